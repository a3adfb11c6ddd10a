//! Some of the pages of a request.

use std::fmt;

use crate::REQUEST_PAGES_LIMIT;

const WORDS: usize = (REQUEST_PAGES_LIMIT / u64::BITS) as usize;

/// A set of pages of one request, by their place in it, `0..REQUEST_PAGES_LIMIT`: a bit each, in 128 bytes. It is a value of fixed size,
/// so that a completion carries it without a list that somebody would have to own, and through any number of wrappers.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PageBits([u64; WORDS]);

impl PageBits {
    /// No page.
    pub const NONE: Self = Self([0; WORDS]);

    /// Pages `pages`, half-open.
    ///
    /// # Panics
    /// When the range ends past [`REQUEST_PAGES_LIMIT`].
    #[must_use]
    pub fn of(pages: std::ops::Range<u32>) -> Self {
        let mut bits = Self::NONE;
        pages.for_each(|page| bits.insert(page));
        bits
    }

    /// Adds a page.
    ///
    /// # Panics
    /// When it is not below [`REQUEST_PAGES_LIMIT`].
    pub const fn insert(&mut self, page: u32) {
        self.0[(page / u64::BITS) as usize] |= 1 << (page % u64::BITS);
    }

    /// Adds the pages of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// Whether the page is in the set; false past [`REQUEST_PAGES_LIMIT`].
    #[must_use]
    pub fn contains(&self, page: u32) -> bool {
        let word = self.0.get((page / u64::BITS) as usize);
        word.is_some_and(|word| word >> (page % u64::BITS) & 1 == 1)
    }

    /// How many pages.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// The pages, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..REQUEST_PAGES_LIMIT).filter(|&page| self.contains(page))
    }
}

impl fmt::Debug for PageBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_there_once_each_and_others_are_not() {
        let mut bits = PageBits::of(62..66);
        assert!(!bits.contains(61) && bits.contains(62) && bits.contains(65) && !bits.contains(66));
        bits.insert(REQUEST_PAGES_LIMIT - 1);
        bits.merge(&PageBits::of(0..2));
        bits.merge(&PageBits::of(1..2));
        assert_eq!(
            bits.iter().collect::<Vec<_>>(),
            [0, 1, 62, 63, 64, 65, 1023]
        );
        assert_eq!((bits.count(), bits.is_empty()), (7, false));
        assert!(PageBits::of(5..5).is_empty() && !bits.contains(u32::MAX));
        assert_eq!(
            PageBits::of(0..REQUEST_PAGES_LIMIT).count(),
            REQUEST_PAGES_LIMIT
        );
    }
}
