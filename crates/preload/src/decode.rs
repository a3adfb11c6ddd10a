//! Just enough x86-64 decoding to patch a function: lengths, branch targets, what depends on its place.
//!
//! A full disassembler's tables cost more to build than the rest of the shim's start in a process
//! together (3 ms of 4 were measured), and every process of the tree pays that. This one knows the
//! legacy opcode maps (Intel SDM volume 2, appendix A) and gives up on VEX, EVEX and XOP; a test
//! holds it against a full disassembler on every function of the C library that it runs with.

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Length in bytes.
    pub len: usize,
    /// Where a direct branch or call leads, relative to the next instruction.
    pub branch: Option<isize>,
    /// Where the 4 bytes of an operand's distance from the next instruction lie, if it has one.
    pub rip_relative: Option<usize>,
    /// Execution never goes on behind it.
    pub ends: bool,
    /// `endbr64`.
    pub endbr: bool,
}

/// What follows the opcode.
#[derive(Clone, Copy)]
enum Rest {
    /// Not an instruction, or one that this decoder does not know.
    Unknown,
    /// Immediate bytes only.
    Imm(usize),
    /// An immediate of the operand's size, at most 4 bytes.
    ImmZ,
    /// An immediate of the operand's size, up to 8 bytes.
    ImmV,
    /// ModRM, then so many immediate bytes.
    Modrm(usize),
    /// ModRM, then an immediate of the operand's size, at most 4 bytes.
    ModrmImmZ,
    /// ModRM; an immediate of 1 byte (`false`) or the operand's size (`true`) with /0 and /1.
    Group3(bool),
    /// A branch with a displacement of so many bytes.
    Branch(usize),
}

/// Longest instruction there is, in bytes.
const LEN_MAX: usize = 15;

/// Decodes the instruction at the start of `code`; `None` if it is unknown or cut off.
#[must_use]
pub fn decode(code: &[u8]) -> Option<Instruction> {
    let mut at = 0;
    let (mut narrow, mut repeat) = (false, false);
    while let Some(&byte) = code.get(at) {
        match byte {
            0x66 => narrow = true,
            0xf3 => repeat = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 | 0xf0 | 0xf2 => {}
            _ => break,
        }
        at += 1;
    }
    let mut wide = false;
    let mut opcode = *code.get(at)?;
    if opcode & 0xf0 == 0x40 {
        wide = opcode & 8 != 0;
        at += 1;
        opcode = *code.get(at)?;
    }
    at += 1;
    let two_bytes = opcode == 0x0f;
    let rest = if two_bytes {
        opcode = *code.get(at)?;
        at += 1;
        if opcode == 0x38 || opcode == 0x3a {
            // Three-byte maps: ModRM always, an immediate in the second.
            at += 1;
            Rest::Modrm(usize::from(opcode == 0x3a))
        } else {
            two_byte_map(opcode)
        }
    } else {
        one_byte_map(opcode)
    };
    let modrm = code.get(at).copied();
    let imm_z = if narrow && !wide { 2 } else { 4 };
    let (has_modrm, imm) = match rest {
        Rest::Unknown => return None,
        // What a narrowed branch means differs between makers.
        Rest::Branch(_) if narrow => return None,
        Rest::Imm(bytes) | Rest::Branch(bytes) => (false, bytes),
        Rest::ImmZ => (false, imm_z),
        Rest::ImmV => (false, if wide { 8 } else { imm_z }),
        Rest::Modrm(bytes) => (true, bytes),
        Rest::ModrmImmZ => (true, imm_z),
        Rest::Group3(sized) => match modrm? >> 3 & 7 {
            0 | 1 => (true, if sized { imm_z } else { 1 }),
            _ => (true, 0),
        },
    };
    // With another extension than 0, 8F is XOP, and C6 and C7 end and begin a transaction, which branches.
    if !two_bytes && matches!(opcode, 0x8f | 0xc6 | 0xc7) && modrm? >> 3 & 7 != 0 {
        return None;
    }
    if has_modrm {
        at += modrm_bytes(code.get(at..)?)?;
    }
    let len = at + imm;
    if len > code.len() || len > LEN_MAX {
        return None;
    }
    let extension = modrm.unwrap_or(0) >> 3 & 7;
    let jumps_away = if two_bytes {
        opcode == 0x0b
    } else {
        matches!(opcode, 0xc2 | 0xc3 | 0xca | 0xcb | 0xcf | 0xe9 | 0xeb)
            || opcode == 0xff && matches!(extension, 4 | 5)
    };
    Some(Instruction {
        len,
        branch: if let Rest::Branch(_) = rest {
            displacement(&code[at..len])
        } else {
            None
        },
        // The distance is all of the displacement, right before the immediate.
        rip_relative: (has_modrm && modrm.is_some_and(|m| m & 0xc7 == 5)).then(|| at - 4),
        ends: jumps_away,
        endbr: two_bytes && repeat && opcode == 0x1e && modrm == Some(0xfa),
    })
}

/// Bytes of ModRM, SIB and displacement.
fn modrm_bytes(code: &[u8]) -> Option<usize> {
    let modrm = *code.first()?;
    let (mode, register) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(1);
    }
    let sib = if register == 4 {
        Some(*code.get(1)?)
    } else {
        None
    };
    let base = sib.map_or(register, |sib| sib & 7);
    let displacement = match mode {
        0 if base == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(1 + usize::from(sib.is_some()) + displacement)
}

fn displacement(bytes: &[u8]) -> Option<isize> {
    match *bytes {
        [byte] => Some(byte as i8 as isize),
        [a, b, c, d] => Some(i32::from_le_bytes([a, b, c, d]) as isize),
        _ => None,
    }
}

/// SDM volume 2, table A-2.
fn one_byte_map(opcode: u8) -> Rest {
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => Rest::Modrm(0),
            4 => Rest::Imm(1),
            5 => Rest::ImmZ,
            _ => Rest::Unknown,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f => Rest::Imm(0),
        0x63 => Rest::Modrm(0),
        0x68 => Rest::ImmZ,
        0x69 => Rest::ModrmImmZ,
        0x6a => Rest::Imm(1),
        0x6b => Rest::Modrm(1),
        0x70..=0x7f | 0xe0..=0xe3 | 0xeb => Rest::Branch(1),
        0x80 | 0x83 => Rest::Modrm(1),
        0x81 => Rest::ModrmImmZ,
        0x84..=0x8f => Rest::Modrm(0),
        0xa4..=0xa7 | 0xaa..=0xaf => Rest::Imm(0),
        0xa8 => Rest::Imm(1),
        0xa9 => Rest::ImmZ,
        0xb0..=0xb7 => Rest::Imm(1),
        0xb8..=0xbf => Rest::ImmV,
        0xc0 | 0xc1 | 0xc6 => Rest::Modrm(1),
        0xc2 | 0xca => Rest::Imm(2),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf => Rest::Imm(0),
        0xc7 => Rest::ModrmImmZ,
        0xc8 => Rest::Imm(3),
        0xcd => Rest::Imm(1),
        0xd0..=0xd3 | 0xd8..=0xdf => Rest::Modrm(0),
        0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => Rest::Imm(0),
        0xe4..=0xe7 => Rest::Imm(1),
        0xe8 | 0xe9 => Rest::Branch(4),
        0xf6 => Rest::Group3(false),
        0xf7 => Rest::Group3(true),
        0xfe | 0xff => Rest::Modrm(0),
        _ => Rest::Unknown,
    }
}

/// SDM volume 2, table A-3. Without 20 to 23, whose ModRM addresses no memory whatever it says, and 78 and 79, which have
/// immediates after some prefixes.
fn two_byte_map(opcode: u8) -> Rest {
    match opcode {
        0x05..=0x09 | 0x0b | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa => Rest::Imm(0),
        0xc8..=0xcf => Rest::Imm(0),
        0x80..=0x8f => Rest::Branch(4),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => Rest::Modrm(1),
        0x00..=0x03 | 0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x77 | 0x7a..=0x7f => {
            Rest::Modrm(0)
        }
        0x90..=0x9f | 0xa3 | 0xa5 | 0xab | 0xad..=0xff => Rest::Modrm(0),
        _ => Rest::Unknown,
    }
}

#[cfg(test)]
// Named, for the fuzz targets include this file from elsewhere.
#[path = "decode/tests.rs"]
mod tests;
