//! Numbers as bytes, and the check over them.

use alloc::vec::Vec;

use super::Why;

/// A hash of 64 bits over words of eight bytes. Each step is a bijection of the state and of the word,
/// so a changed word always changes the state; half of the bits are kept as the check, which misses one
/// damage in 2^32. Against damage, not against forgery.
#[derive(Clone, Copy)]
pub(super) struct Check(u64);

/// Odd; of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

impl Check {
    pub(super) const BYTES: usize = 4;

    pub(super) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds an entry: what is added together counts, not the bytes alone.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words
            .iter()
            .for_each(|word| self.word(u64::from_le_bytes(*word)));
        let last = rest
            .iter()
            .rev()
            .fold(0, |last, &byte| last << 8 | u64::from(byte));
        self.word(last);
    }

    /// Adds one word.
    pub(super) const fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(MULTIPLIER);
        self.0 = mixed ^ mixed >> 32;
    }

    /// All bits of it.
    pub(super) const fn whole(self) -> u64 {
        self.0
    }

    pub(super) const fn bytes(self) -> [u8; Self::BYTES] {
        (self.0 as u32).to_le_bytes()
    }
}

/// Appends `value`, 7 bits a byte, the lowest first (LEB128).
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends how far `to` lies from `from`, near ones in few bytes.
pub(super) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put(out, ((step << 1) ^ (step >> 63)) as u64);
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Takes bytes apart again.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Why> {
        let end = self.at.checked_add(count).ok_or(Why::Truncated)?;
        let taken = self.bytes.get(self.at..end).ok_or(Why::Truncated)?;
        self.at = end;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Why> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Why::Truncated)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Why> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, Why> {
        let mut value = 0u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Why::Corrupt);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Why::Corrupt)
    }

    pub(super) fn number_u32(&mut self) -> Result<u32, Why> {
        u32::try_from(self.number()?).map_err(|_| Why::Corrupt)
    }

    pub(super) fn step(&mut self, from: u64) -> Result<u64, Why> {
        let coded = self.number()?;
        let step = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        Ok(from.wrapping_add(step as u64))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Why> {
        let length = usize::try_from(self.number()?).map_err(|_| Why::Truncated)?;
        core::str::from_utf8(self.take(length)?).map_err(|_| Why::Corrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_come_back() {
        let numbers = [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            u64::from(u32::MAX),
            u64::MAX,
        ];
        let mut out = Vec::new();
        numbers.iter().for_each(|&n| put(&mut out, n));
        for from in numbers {
            numbers.iter().for_each(|&to| put_step(&mut out, from, to));
        }
        let mut cursor = Cursor { bytes: &out, at: 0 };
        for n in numbers {
            assert_eq!(cursor.number(), Ok(n));
        }
        for from in numbers {
            for to in numbers {
                assert_eq!(cursor.step(from), Ok(to));
            }
        }
        assert_eq!(cursor.byte(), Err(Why::Truncated));
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused() {
        let mut cursor = Cursor {
            bytes: &[0xff; 10],
            at: 0,
        };
        assert_eq!(cursor.number(), Err(Why::Corrupt));
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        let mut cursor = Cursor {
            bytes: &bytes,
            at: 0,
        };
        assert_eq!(cursor.number(), Err(Why::Corrupt));
    }

    #[test]
    fn every_changed_byte_changes_the_check() {
        let bytes = *b"half-open ranges everywhere";
        let check = |bytes: &[u8]| {
            let mut check = Check::new();
            check.add(bytes);
            check.bytes()
        };
        for at in 0..bytes.len() {
            for bits in 1..=255 {
                let mut other = bytes;
                other[at] ^= bits;
                assert_ne!(check(&other), check(&bytes));
            }
        }
    }
}
