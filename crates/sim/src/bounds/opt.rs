//! Belady's optimum.

use serde::Serialize;

use super::keep::{Keep, next_counted};
use crate::trace::PageString;

/// What the optimal policy does with a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Optimum {
    /// References that find their page not resident, first references included.
    pub misses: u64,
    /// Of those, first references.
    pub first: u64,
}

/// The fewest misses on `string` that any policy with `frames` frames can have, whether it loads
/// pages on demand or ahead: the page with the farthest next reference leaves (Belady, A study of
/// replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966; proof in
/// Mattson et al., 1970). O(n log frames) time, 16 bytes a reference.
///
/// # Panics
/// When there is no frame.
#[must_use]
pub fn opt(string: &PageString, frames: u32) -> Optimum {
    assert!(frames > 0, "no policy without a frame");
    let next = next_counted(string.references(), string.distinct(), |_| true);
    let mut keep = Keep::new(frames, string.distinct());
    let mut misses = 0;
    for (page, next) in string.numbers().zip(next) {
        misses += u64::from(!keep.reference(page));
        keep.keep(page, next);
    }
    Optimum {
        misses,
        first: string.distinct() as u64,
    }
}
