//! The content hash: tells a clean page from a dirty one, and a page read back from garbage.

use outpage_core::page::ContentHash;
use twox_hash::XxHash3_128;

/// A hash function keyed anew for every run, so that nobody can prepare two pages that collide.
#[derive(Clone, Copy)]
pub struct Hasher {
    seed: u64,
}

impl Hasher {
    /// Keyed by `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The hash of one page: the low 96 bits of XXH3-128.
    #[must_use]
    pub fn page(self, content: &[u8]) -> ContentHash {
        let h = XxHash3_128::oneshot_with_seed(self.seed, content);
        ContentHash([h as u32, (h >> 32) as u32, (h >> 64) as u32])
    }
}

/// Whether every byte of a page is zero; stops at the first that is not.
#[must_use]
pub fn is_zero(content: &[u8]) -> bool {
    debug_assert_eq!(content.len() % 64, 0);
    content
        .chunks_exact(64)
        .all(|line| line.iter().fold(0, |a, &b| a | b) == 0)
}
