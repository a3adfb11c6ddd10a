//! The attribute object: what a client says of its pages without a message.
//!
//! Words of 8 bytes in memory that both ends have mapped. The first counts how often bits were set; from [`ATTRIBUTE_HEADER_BYTES`] on there is a bit for each page
//! of the primary object, the lowest bit of the first word being that of page 0. The client sets a bit when it gives a page up, and adds one to the count
//! afterwards. The server takes the bits that it finds, and clears them by that. A set bit means a page that was given up and of which the server does not know yet.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::PAGE_BYTES;

/// Where the bits begin: on a page of their own.
pub const ATTRIBUTE_HEADER_BYTES: u64 = PAGE_BYTES as u64;

/// Length of the attribute object of an object of `pages` pages: whole pages.
#[must_use]
pub const fn attribute_bytes(pages: u64) -> u64 {
    ATTRIBUTE_HEADER_BYTES + pages.div_ceil(8).next_multiple_of(ATTRIBUTE_HEADER_BYTES)
}

/// The words of an attribute object. The other end is not to be trusted: each word is read once.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    words: &'a [AtomicU64],
    pages: u64,
}

impl<'a> Attributes<'a> {
    /// Of an object of `pages` pages.
    ///
    /// # Panics
    /// When there are too few words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], pages: u64) -> Self {
        assert!(words.len() as u64 * 8 >= attribute_bytes(pages));
        Self { words, pages }
    }

    fn bits(&self) -> &'a [AtomicU64] {
        &self.words[ATTRIBUTE_HEADER_BYTES as usize / 8..]
    }

    /// How often bits were set, around 2^64.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words[0].load(Ordering::Acquire)
    }

    /// Gives up `pages` pages from `first` on.
    ///
    /// # Panics
    /// When they are outside of the object.
    pub fn mark(&self, first: u64, pages: u64) {
        // Released: what was done to a page before is done when the bit is seen.
        self.each_word(first, pages, |word, mask| {
            word.fetch_or(mask, Ordering::Release);
        });
        self.words[0].fetch_add(1, Ordering::Release);
    }

    /// Forgets the bits of `pages` pages from `first` on.
    ///
    /// # Panics
    /// When they are outside of the object.
    pub fn clear(&self, first: u64, pages: u64) {
        self.each_word(first, pages, |word, mask| {
            if word.load(Ordering::Relaxed) & mask != 0 {
                word.fetch_and(!mask, Ordering::AcqRel);
            }
        });
    }

    /// Takes all bits: calls `run` with the first page and the length of each run that was given up.
    pub fn take(&self, mut run: impl FnMut(u64, u64)) {
        let mut open: Option<(u64, u64)> = None;
        for (at, word) in (0..)
            .step_by(64)
            .zip(self.bits())
            .take(self.pages.div_ceil(64) as usize)
        {
            let mut bits = match word.load(Ordering::Relaxed) {
                0 => 0,
                _ => word.swap(0, Ordering::Acquire),
            };
            if self.pages - at < 64 {
                bits &= (1 << (self.pages - at)) - 1;
            }
            while bits != 0 {
                let first = bits.trailing_zeros();
                let length = (bits >> first).trailing_ones();
                bits &= !(mask_of(length) << first);
                let (start, pages) = (at + u64::from(first), u64::from(length));
                open = match open {
                    Some((from, so_far)) if from + so_far == start => Some((from, so_far + pages)),
                    other => {
                        other.into_iter().for_each(|(from, pages)| run(from, pages));
                        Some((start, pages))
                    }
                };
            }
        }
        open.into_iter().for_each(|(from, pages)| run(from, pages));
    }

    fn each_word(&self, first: u64, pages: u64, mut act: impl FnMut(&AtomicU64, u64)) {
        let end = first.checked_add(pages).filter(|&end| end <= self.pages);
        let end = end.expect("pages of the object");
        let mut at = first;
        while at < end {
            let offset = at % 64;
            let length = (64 - offset).min(end - at);
            act(
                &self.bits()[(at / 64) as usize],
                mask_of(length as u32) << offset,
            );
            at += length;
        }
    }
}

/// The lowest `length` bits, 1 to 64.
const fn mask_of(length: u32) -> u64 {
    u64::MAX >> (64 - length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn words(pages: u64) -> Vec<AtomicU64> {
        (0..attribute_bytes(pages) / 8)
            .map(|_| AtomicU64::new(0))
            .collect()
    }

    fn taken(attributes: &Attributes<'_>) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        attributes.take(|first, pages| runs.push((first, pages)));
        runs
    }

    #[test]
    fn runs_are_taken_as_they_were_marked_and_once() {
        let words = words(1000);
        let attributes = Attributes::new(&words, 1000);
        let runs = [(0, 1), (2, 62), (70, 200), (512, 64), (640, 1), (936, 64)];
        for (first, pages) in runs {
            attributes.mark(first, pages);
        }
        assert_eq!(attributes.count(), runs.len() as u64);
        assert_eq!(taken(&attributes), runs);
        assert_eq!(taken(&attributes), []);
        attributes.mark(100, 200);
        attributes.clear(150, 64);
        assert_eq!(taken(&attributes), [(100, 50), (214, 86)]);
    }

    #[test]
    fn bits_of_no_page_are_not_taken() {
        let words = words(70);
        let attributes = Attributes::new(&words, 70);
        words
            .iter()
            .for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        assert_eq!(taken(&attributes), [(0, 70)]);
        assert_eq!(attribute_bytes(70), 8192);
        assert_eq!(attribute_bytes(32_768), 8192);
        assert_eq!(attribute_bytes(32_769), 12_288);
    }
}
