//! Numbers as bytes, 7 bits each, the lowest first (LEB128); signed ones zigzag.

pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Takes numbers off the front of bytes. `None` when they end, or when a number needs more than
/// 64 bits.
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl Cursor<'_> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        let coded = self.number()?;
        Some((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let powers = (0..64).flat_map(|bit| [(1i64 << bit).wrapping_sub(1), 1 << bit]);
        let numbers: Vec<i64> = powers
            .flat_map(|power| [power, power.wrapping_neg()])
            .collect();
        let mut out = Vec::new();
        for &number in &numbers {
            put_signed(&mut out, number);
            put(&mut out, number as u64);
        }
        let mut cursor = Cursor(&out);
        for number in numbers {
            assert_eq!(cursor.signed(), Some(number));
            assert_eq!(cursor.number(), Some(number as u64));
        }
        assert_eq!(cursor.number(), None);
    }

    #[test]
    fn a_number_beyond_64_bits_is_none() {
        let mut ten = [0xff; 10];
        assert_eq!(Cursor(&ten).number(), None);
        ten[9] = 2;
        assert_eq!(Cursor(&ten).number(), None);
        ten[9] = 1;
        assert_eq!(Cursor(&ten).number(), Some(u64::MAX));
    }
}
