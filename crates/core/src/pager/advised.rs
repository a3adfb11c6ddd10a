//! What the program said of ranges of its pages: how they are touched, and which are touched soon.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::size_of;

use crate::units::{PageNo, PageRange};

/// In which order pages are touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pattern {
    /// One after another, upward.
    Sequential,
    /// In none.
    Random,
}

/// Pages, by their numbers, and how they are touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    start: u64,
    end: u64,
    pattern: Pattern,
}

/// What was said, as far as it holds.
#[derive(Default)]
pub(super) struct Advised {
    /// Ascending, disjoint.
    parts: Vec<Part>,
    /// Paged out when it was said that they are needed, in the order in which they are brought in.
    needed: VecDeque<PageNo>,
    /// Reads of such pages that are unanswered.
    pub reads: usize,
}

impl Advised {
    /// How `page` is touched, where that was said.
    #[inline]
    pub fn pattern(&self, page: PageNo) -> Option<Pattern> {
        if self.parts.is_empty() {
            return None;
        }
        let at = self.parts.partition_point(|part| part.end <= page.raw());
        let part = self.parts.get(at)?;
        (part.start <= page.raw()).then_some(part.pattern)
    }

    /// From now on the pages of `range` are touched so; `None` for anyhow.
    pub fn set(&mut self, range: PageRange, pattern: Option<Pattern>) {
        let (start, end) = (range.start.raw(), range.start.raw() + range.pages);
        if start == end {
            return;
        }
        let first = self.parts.partition_point(|part| part.end <= start);
        let behind = self.parts.partition_point(|part| part.start < end);
        let met = &self.parts[first..behind];
        let below = met.first().filter(|part| part.start < start);
        let above = met.last().filter(|part| part.end > end);
        let below = below.map(|part| Part {
            end: start,
            ..*part
        });
        let above = above.map(|part| Part {
            start: end,
            ..*part
        });
        let said = pattern.map(|pattern| Part {
            start,
            end,
            pattern,
        });
        let new = [below, said, above].into_iter().flatten();
        self.parts.splice(first..behind, new);
    }

    /// The pages of `range` are gone: others may have their numbers later.
    pub fn forget(&mut self, range: PageRange) {
        if !self.parts.is_empty() {
            self.set(range, None);
        }
    }

    /// `page` is needed soon, after those that are already.
    pub fn need(&mut self, page: PageNo) {
        self.needed.push_back(page);
    }

    /// How many pages are to be brought in.
    pub fn needed(&self) -> usize {
        self.needed.len()
    }

    /// Whether a page is to be brought in.
    #[inline]
    pub fn needs_any(&self) -> bool {
        !self.needed.is_empty()
    }

    /// The page to be brought in after `skip` others.
    pub fn next_needed(&self, skip: usize) -> Option<PageNo> {
        self.needed.get(skip).copied()
    }

    /// The first `count` of them are on their way, or gone.
    pub fn done(&mut self, count: usize) {
        self.needed.drain(..count);
        if self.needed.is_empty() {
            self.needed = VecDeque::new();
        }
    }

    /// No page is to be brought in any more.
    pub fn none_needed(&mut self) {
        self.needed = VecDeque::new();
    }

    /// Bytes of heap.
    pub fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>() + self.needed.capacity() * size_of::<PageNo>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Pattern::{Random, Sequential};

    fn range(start: u64, pages: u64) -> PageRange {
        PageRange::new(PageNo::from_raw(start), pages)
    }

    /// Against a pattern for each page, whatever overlaps what.
    #[test]
    fn the_last_word_on_each_page_holds() {
        const PAGES: u64 = 40;
        let mut advised = Advised::default();
        let mut plain = [None; PAGES as usize];
        let mut x = 1_u64;
        for _ in 0..5000 {
            x = x.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let (start, pages) = ((x >> 20) % PAGES, (x >> 30) % 12);
            let pages = pages.min(PAGES - start);
            let pattern = [None, Some(Sequential), Some(Random)][(x >> 40) as usize % 3];
            advised.set(range(start, pages), pattern);
            plain[start as usize..(start + pages) as usize].fill(pattern);
            for page in 0..PAGES {
                let told = advised.pattern(PageNo::from_raw(page));
                assert_eq!(told, plain[page as usize], "{page}");
            }
            let apart = advised
                .parts
                .windows(2)
                .all(|two| two[0].end <= two[1].start);
            assert!(apart && advised.parts.iter().all(|part| part.start < part.end));
        }
        advised.forget(range(0, PAGES));
        assert!(advised.parts.is_empty());
    }

    #[test]
    fn what_is_needed_comes_in_order() {
        let mut advised = Advised::default();
        (5..9).for_each(|page| advised.need(PageNo::from_raw(page)));
        assert_eq!(advised.next_needed(1), Some(PageNo::from_raw(6)));
        advised.done(3);
        assert_eq!((advised.needed(), advised.needs_any()), (1, true));
        assert_eq!(advised.next_needed(0), Some(PageNo::from_raw(8)));
        advised.none_needed();
        assert!(!advised.needs_any() && advised.next_needed(0).is_none());
        assert_eq!(advised.heap_bytes(), 0);
    }
}
