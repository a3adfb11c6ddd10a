//! Strings of references: random, loops, scans, Zipf, and recorded ones.

use proptest::prelude::*;

/// A small deterministic generator (Steele, Lea and Flood's SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Page `k` with probability proportional to `1 / (k + 1)`.
pub fn zipf(pages: u64, references: usize, seed: u64) -> Vec<u64> {
    let weights = (1..=pages).map(|rank| 1.0 / rank as f64);
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let whole = sums[sums.len() - 1];
    let mut random = Random(seed);
    let mut draw = |_| {
        let at = random.next() as f64 / u64::MAX as f64 * whole;
        sums.partition_point(|&sum| sum < at).min(sums.len() - 1) as u64
    };
    (0..references).map(&mut draw).collect()
}

/// `0..pages` again and again.
pub fn looping(pages: u64, references: usize) -> Vec<u64> {
    (0..references as u64).map(|at| at % pages).collect()
}

/// Zipf over `pages`, with a scan of `length` pages that never come again every `every`.
pub fn scans(pages: u64, references: usize, every: usize, length: u64) -> Vec<u64> {
    let mut fresh = 1 << 32;
    let mut string = Vec::new();
    for (at, page) in zipf(pages, references, 3).into_iter().enumerate() {
        string.push(page);
        if at % every == every - 1 {
            string.extend(fresh..fresh + length);
            fresh += length;
        }
    }
    string
}

/// Strings of every kind, short enough to shrink.
pub fn every_kind() -> impl Strategy<Value = Vec<u64>> {
    let random = (1u64..40).prop_flat_map(|pages| prop::collection::vec(0..pages, 0..400));
    let loops = (1u64..40, 0usize..400).prop_map(|(pages, length)| looping(pages, length));
    let skewed = (1u64..60, 0usize..500, any::<u64>())
        .prop_map(|(pages, length, seed)| zipf(pages, length, seed));
    let scanned = (1u64..40, 0usize..200, 1usize..50, 0u64..40)
        .prop_map(|(pages, length, every, scan)| scans(pages, length, every, scan));
    let piece = prop_oneof![random, loops, skewed, scanned];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}
