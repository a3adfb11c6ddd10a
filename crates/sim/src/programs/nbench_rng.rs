//! The random numbers of nbench 2.2.2 (BYTEmark).

/// Its generator: a recurrence over two words in 32-bit arithmetic that wraps (`randnum`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NbenchRng {
    last: i32,
    before: i32,
}

impl Default for NbenchRng {
    /// As after a reset, which sets the two words and draws a number.
    fn default() -> Self {
        let mut rng = Self {
            last: 13,
            before: 117,
        };
        rng.next();
        rng
    }
}

impl NbenchRng {
    /// The next number.
    pub const fn next(&mut self) -> i32 {
        let sum = self
            .last
            .wrapping_mul(254_754)
            .wrapping_add(self.before.wrapping_mul(529_562));
        self.before = self.last;
        self.last = sum % 999_563;
        self.last
    }

    /// A number below `limit`: the absolute value of the remainder (`abs_randwc`).
    pub const fn below(&mut self, limit: u32) -> u32 {
        (self.next() % limit as i32).unsigned_abs()
    }
}
