//! What a policy remembers of each page, 4 bytes a touched page: whether it has proved itself, and when it left or was seen last.
//!
//! A ghost queue remembers which pages left last, in order. Here it is a number for each page, the count of departures when it left: what
//! left more than so many departures ago is forgotten without anybody's taking it off a queue.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::page::PageId;

/// Marks that are allocated together: 64 KiB.
const SLAB: usize = 16_384;

/// The page has proved itself.
const PROVED: u32 = 1 << 31;
/// Of a page that left: it had proved itself by then.
const HAD: u32 = 1 << 30;
/// When it left, or was seen last; 0 for never.
const TIME: u32 = HAD - 1;

/// Of which kind a page was when it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// It never proved itself.
    First,
    /// It had.
    Second,
}

/// A mark for each page; O(1) each. Time is counted in departures, or in what the policy says ([`Self::tick`]). After 2^30 of them, 4 TiB, a page that left so long ago may be taken for one that
/// just did: a hint is wrong then, no more.
#[derive(Default)]
pub struct Marks {
    /// Slabs do not move: growing copies nothing.
    slabs: Vec<Box<[u32]>>,
    now: u32,
}

impl Marks {
    /// Makes room for pages whose [`PageId::index`] is below `ids`, so that what is remembered of them allocates nothing.
    pub(super) fn reserve(&mut self, ids: usize) {
        while self.slabs.len() * SLAB < ids {
            self.slabs.push(alloc::vec![0; SLAB].into_boxed_slice());
        }
    }

    /// Bytes of heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slabs.len() * SLAB * size_of::<u32>()
    }

    /// Whether the page has proved itself.
    pub(super) fn is_proved(&self, id: PageId) -> bool {
        self.mark(id) & PROVED != 0
    }

    /// Says so.
    pub(super) fn set_proved(&mut self, id: PageId, on: bool) {
        let mark = self.mark(id) & !PROVED | if on { PROVED } else { 0 };
        self.set(id, mark);
    }

    /// The page leaves. Where it never proved itself that is remembered; else it has to prove itself anew.
    pub(super) fn leaves(&mut self, id: PageId) {
        if self.is_proved(id) {
            return self.forget(id);
        }
        self.leaves_from(id, Left::First);
    }

    /// The page leaves, and it is remembered of which kind it was.
    pub(super) fn leaves_from(&mut self, id: PageId, from: Left) {
        self.tick();
        let had = if from == Left::Second { HAD } else { 0 };
        self.set(id, self.now | had);
    }

    /// Whether the page is among the `most` that left last. It is there again: that it left is forgotten.
    pub(super) fn recall(&mut self, id: PageId, most: usize) -> bool {
        self.recall_from(id, most).is_some()
    }

    /// As [`Self::recall`]: of which kind it was.
    pub(super) fn recall_from(&mut self, id: PageId, most: usize) -> Option<Left> {
        let left = self.age(id).filter(|&age| (age as usize) < most);
        let from = match self.mark(id) & HAD {
            0 => Left::First,
            _ => Left::Second,
        };
        self.set(id, self.mark(id) & PROVED);
        left.map(|_| from)
    }

    /// The page, which is about to leave, is an old one.
    pub(super) fn set_old(&mut self, id: PageId) {
        self.set(id, self.mark(id) & PROVED | HAD);
    }

    /// Whether it was; not any more after that.
    pub(super) fn take_old(&mut self, id: PageId) -> bool {
        let mark = self.mark(id);
        self.set(id, mark & !HAD);
        mark & HAD != 0
    }

    /// Time goes on by one.
    pub(super) fn tick(&mut self) {
        self.now = ((self.now + 1) & TIME).max(1);
    }

    /// The page was seen now.
    pub(super) fn seen(&mut self, id: PageId) {
        self.set(id, self.mark(id) & PROVED | self.now.max(1));
    }

    /// In place of when the page was seen last: the time between two uses of it.
    pub(super) fn set_span(&mut self, id: PageId, span: u32) {
        self.set(id, self.mark(id) & PROVED | span.clamp(1, TIME));
    }

    /// What [`Self::set_span`] said.
    pub(super) fn span(&self, id: PageId) -> Option<u32> {
        Some(self.mark(id) & TIME).filter(|&span| span != 0)
    }

    /// How long ago the page left, or was seen.
    pub(super) fn age(&self, id: PageId) -> Option<u32> {
        let at = self.mark(id) & TIME;
        (at != 0).then(|| self.now.wrapping_sub(at) & TIME)
    }

    /// The page's name may be another's from now on.
    pub(super) fn forget(&mut self, id: PageId) {
        self.set(id, 0);
    }

    fn mark(&self, id: PageId) -> u32 {
        let slab = self.slabs.get(id.index() / SLAB);
        slab.map_or(0, |slab| slab[id.index() % SLAB])
    }

    /// Allocates only where nobody reserved, as [`crate::page::Pages`] does then.
    fn set(&mut self, id: PageId, mark: u32) {
        if mark != self.mark(id) {
            self.reserve(id.index() + 1);
            self.slabs[id.index() / SLAB][id.index() % SLAB] = mark;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Pages, State};
    use crate::units::PageNo;

    #[test]
    fn only_the_last_are_remembered_and_only_once() {
        let mut pages = Pages::new();
        let ids: Vec<PageId> = (0..6)
            .map(|n| pages.create(PageNo::from_raw(n), State::Resident))
            .collect();
        let mut marks = Marks::default();
        marks.reserve(pages.ids());
        assert!(!marks.recall(ids[5], 100));
        ids[..5].iter().for_each(|&id| marks.leaves(id));
        let recalled: Vec<bool> = ids.iter().map(|&id| marks.recall(id, 3)).collect();
        assert_eq!(recalled, [false, false, true, true, true, false]);
        assert!(ids.iter().all(|&id| !marks.recall(id, 3)));
    }

    #[test]
    fn a_page_that_proved_itself_has_to_do_so_anew_after_it_left() {
        let mut pages = Pages::new();
        let id = pages.create(PageNo::from_raw(0), State::Resident);
        // Room comes as it is needed.
        let mut marks = Marks::default();
        marks.leaves(id);
        marks.set_proved(id, true);
        assert!(marks.is_proved(id) && marks.recall(id, 1) && marks.is_proved(id));
        marks.leaves(id);
        assert!(!marks.is_proved(id) && !marks.recall(id, 1));
    }
}
