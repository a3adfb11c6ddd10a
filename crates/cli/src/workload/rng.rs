//! Generators: a fast one for contents and touches, and nbench's own for the rows of its LU.

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014): one word of state, every seed good.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always gives the same sequence for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; the bias is below `bound / 2^64`.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.next() as u128 * bound as u128) >> 64) as usize
    }

    /// A double in `0.0..1.0`.
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The finaliser of splitmix64: every input bit reaches every output bit.
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Folds one word into a checksum; the order of the words matters.
pub const fn fold(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// The generator of nbench (misc.c, `randnum`): a two-word recurrence in wrapping 32-bit integers.
#[derive(Clone, Debug)]
pub struct NbenchRng([i32; 2]);

impl NbenchRng {
    /// The state after nbench's own reset.
    pub const fn new() -> Self {
        Self([13, 117])
    }

    const fn next(&mut self) -> i32 {
        let [a, b] = self.0;
        let x = a
            .wrapping_mul(254_754)
            .wrapping_add(b.wrapping_mul(529_562))
            % 999_563;
        self.0 = [x, a];
        x
    }

    /// A number in `0..bound` (`abs_randwc`); only `bound` values below 999,563 occur.
    pub const fn below(&mut self, bound: usize) -> usize {
        self.next().unsigned_abs() as usize % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nbench_rows_of_the_papers_matrix() {
        // n = 10,000: 80,000 additions are drawn, 79,992 of them name two different rows.
        let n = 10_000;
        let mut rng = NbenchRng::new();
        for _ in 0..n {
            let _ = rng.below(100);
            let _ = rng.below(1000);
        }
        let effective = (0..8 * n).filter(|_| rng.below(n) != rng.below(n)).count();
        assert_eq!(effective, 79_992);
    }

    #[test]
    fn below_stays_below_and_reaches_the_ends() {
        let mut rng = Rng::new(1);
        let drawn: Vec<usize> = (0..1000).map(|_| rng.below(10)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&0), Some(&9))
        );
        assert!(
            (0..1000)
                .map(|_| rng.unit())
                .all(|x| (0.0..1.0).contains(&x))
        );
    }
}
