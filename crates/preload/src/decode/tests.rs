use super::*;
use crate::elf::Libc;
use iced_x86::{Decoder, DecoderOptions, Instruction as Full, Mnemonic, OpKind};
use proptest::prelude::*;

/// Whether the opcode is one of the maps that `decode` leaves out: VEX, EVEX, XOP.
fn is_vector_encoding(code: &[u8]) -> bool {
    let prefix = |byte: &u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let at = code.iter().position(|byte| !prefix(byte)).unwrap_or(0);
    matches!(code[at], 0xc4 | 0xc5 | 0x62 | 0x8f)
}

/// What `decode` is to tell of the instruction that the full disassembler has just decoded.
fn expected(decoder: &Decoder<'_>, full: &Full) -> Instruction {
    let near = full.op_count() > 0 && full.op0_kind() == OpKind::NearBranch64;
    let places = decoder.get_constant_offsets(full);
    Instruction {
        len: full.len(),
        branch: near.then(|| full.near_branch_target().wrapping_sub(full.next_ip()) as isize),
        rip_relative: full
            .is_ip_rel_memory_operand()
            .then(|| places.displacement_offset()),
        ends: matches!(
            full.mnemonic(),
            Mnemonic::Ret
                | Mnemonic::Retf
                | Mnemonic::Iret
                | Mnemonic::Iretd
                | Mnemonic::Iretq
                | Mnemonic::Jmp
                | Mnemonic::Ud2
        ),
        endbr: full.mnemonic() == Mnemonic::Endbr64,
    }
}

#[test]
fn agrees_with_a_full_disassembler_on_all_of_libc() {
    let functions = Libc::find().expect("glibc").functions();
    let mut compared = 0;
    for symbol in functions {
        // SAFETY: a function of libc, which is mapped.
        let code =
            unsafe { core::slice::from_raw_parts(symbol.address as *const u8, symbol.bytes) };
        let ip = symbol.address as u64;
        let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
        while decoder.can_decode() {
            let full = decoder.decode();
            let rest = &code[(full.ip() - ip) as usize..];
            if full.is_invalid() {
                break;
            }
            let Some(ours) = decode(rest) else {
                assert!(
                    is_vector_encoding(rest),
                    "unknown: {:x?}",
                    &rest[..full.len()]
                );
                continue;
            };
            compared += 1;
            assert_eq!(ours, expected(&decoder, &full), "{full:?}");
        }
    }
    assert!(compared > 50_000, "only {compared} instructions");
}

/// Prefixes alone and together, in the order in which compilers write them.
const PREFIXES: [&[u8]; 16] = [
    &[],
    &[0x66],
    &[0xf2],
    &[0xf3],
    &[0x67],
    &[0x2e],
    &[0xf0],
    &[0x64],
    &[0x40],
    &[0x41],
    &[0x48],
    &[0x66, 0x48],
    &[0xf3, 0x4f],
    &[0xf2, 0x48],
    &[0x66, 0xf2],
    &[0x2e, 0x66, 0x41],
];

/// The maps of opcodes, by what stands before the opcode.
const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];

/// Registers and displacements as the base; an index alone.
const SIBS: [u8; 3] = [0x24, 0x25, 0x8d];

#[test]
fn agrees_with_a_full_disassembler_on_every_opcode_and_operand() {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (prefix, map) in PREFIXES.iter().flat_map(|p| MAPS.map(|m| (p, m))) {
        for (opcode, modrm) in (0..=255).flat_map(|o| (0..=255).map(move |m| (o, m))) {
            for sib in SIBS {
                let tail = [opcode, modrm, sib, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
                let code = [prefix, map, &tail[..]].concat();
                let Some(ours) = decode(&code) else {
                    continue;
                };
                let mut decoder = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE);
                let full = decoder.decode();
                // What no processor executes may be taken for anything.
                if full.is_invalid() {
                    continue;
                }
                compared += 1;
                if ours != expected(&decoder, &full) && wrong.len() < 20 {
                    wrong.push(format!(
                        "{:02x?}: {:?}: {ours:?}",
                        &code[..full.len()],
                        full.code()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared > 1_000_000, "only {compared} instructions");
}

/// Encodings out of the manual (Intel SDM volume 2), each with its length, for lengths that no other byte tells.
#[test]
fn lengths_are_those_of_the_manual() {
    let cases: [&[u8]; 26] = [
        // NOP, "recommended multi-byte sequences": 1 to 9 bytes.
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        // mov: 32, 16 and 64 bits of immediate; sign-extended to 64.
        &[0xb8, 1, 2, 3, 4],
        &[0x66, 0xb8, 1, 2],
        &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x48, 0xc7, 0xc0, 1, 2, 3, 4],
        &[0x66, 0xc7, 0x00, 1, 2],
        // REX.W goes before the operand-size prefix.
        &[0x66, 0x48, 0xc7, 0xc0, 1, 2, 3, 4],
        // Group 3: test has an immediate, not and neg have none.
        &[0xf6, 0xc0, 1],
        &[0xf6, 0xd0],
        &[0xf7, 0xc0, 1, 2, 3, 4],
        &[0x66, 0xf7, 0xc0, 1, 2],
        &[0xf7, 0xd8],
        // enter: two immediates; ret: one of 2 bytes.
        &[0xc8, 1, 2, 3],
        &[0xc2, 1, 2],
        // jcc in both sizes; pshufd and pcmpistri with an immediate byte.
        &[0x74, 1],
        &[0x0f, 0x84, 1, 2, 3, 4],
        &[0x66, 0x0f, 0x70, 0xc1, 1],
        &[0x66, 0x0f, 0x3a, 0x63, 0xc1, 1],
    ];
    for code in cases {
        let longer = [code, &[0x90; 16]].concat();
        assert_eq!(
            decode(&longer).map(|i| i.len),
            Some(code.len()),
            "{code:02x?}"
        );
    }
}

#[test]
fn what_is_cut_off_is_unknown() {
    let mov = [0x48, 0xc7, 0xc0, 0xea, 0xff, 0xff, 0xff];
    assert_eq!(decode(&mov).map(|i| i.len), Some(7));
    for len in 0..mov.len() {
        assert_eq!(decode(&mov[..len]), None, "{len} bytes");
    }
    assert_eq!(decode(&[0x66; 32]), None);
    // Before the last byte of the opcode.
    assert_eq!(decode(&[0x0f, 0x3a]), None);
}

#[test]
fn what_the_tables_leave_out_is_unknown() {
    let cases: [&[u8]; 7] = [
        // vzeroupper; vaddps by the long form; vmovdqu64 by EVEX; vpcmov by XOP
        &[0xc5, 0xf8, 0x77],
        &[0xc4, 0xc1, 0x74, 0x58, 0xc0],
        &[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x06],
        &[0x8f, 0xe8, 0x78, 0xa2, 0xc1, 0x20],
        // mov %cr0,%rdi: the ModRM of (%rip), and no displacement; extrq $1,$2,%xmm0 with two immediates
        &[0x0f, 0x20, 0x05],
        &[0x66, 0x0f, 0x78, 0xc0, 1, 2],
        // A 64-bit address as the operand: compilers do not write it.
        &[0xa1, 1, 2, 3, 4, 5, 6, 7, 8],
    ];
    for code in cases {
        let longer = [code, &[0x90; 16]].concat();
        assert_eq!(decode(&longer), None, "{code:02x?}");
    }
    // pop by the same opcode as XOP
    assert_eq!(decode(&[0x8f, 0xc0]).map(|i| i.len), Some(2));
}

/// A transaction that fails goes on at its target, which would be missed among the jumps of a function.
#[test]
fn the_beginning_of_a_transaction_is_unknown() {
    assert_eq!(decode(&[0xc7, 0xf8, 1, 2, 3, 4]), None);
    assert_eq!(decode(&[0xc6, 0xf8, 1]), None);
}

#[test]
fn more_than_15_bytes_are_no_instruction() {
    let mut code = vec![0x2e; 8];
    code.extend([0x48, 0xc7, 0xc0, 1, 2, 3, 4]);
    assert_eq!(decode(&code).map(|i| i.len), Some(15));
    code.insert(0, 0x2e);
    assert_eq!(decode(&code), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// A function's last instruction lies before another function, or before no memory at all.
    #[test]
    fn nothing_behind_an_instruction_matters(
        start in proptest::collection::vec(any::<u8>(), 0..20),
        behind in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let Some(found) = decode(&start) else {
            return Ok(());
        };
        prop_assert!((1..=start.len().min(LEN_MAX)).contains(&found.len));
        let own = &start[..found.len];
        prop_assert_eq!(decode(own), Some(found));
        prop_assert_eq!(decode(&[own, &behind].concat()), Some(found));
        for len in 0..found.len {
            prop_assert_eq!(decode(&start[..len]), None, "cut to {} bytes", len);
        }
        if let Some(at) = found.rip_relative {
            prop_assert!(at + 4 <= found.len);
        }
    }
}
