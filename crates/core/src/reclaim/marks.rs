//! What a policy remembers of each page, 4 bytes a touched page: whether it has proved itself, and when it left.
//!
//! A ghost queue remembers which pages left last, in order. Here it is a number for each page, the count of departures when it left: what
//! left more than so many departures ago is forgotten without anybody's taking it off a queue.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::page::PageId;

/// Marks that are allocated together: 64 KiB.
const SLAB: usize = 16_384;

/// The page has proved itself; the other bits say when it left, 0 for never.
const PROVED: u32 = 1 << 31;

/// A mark for each page; O(1) each. After 2^31 departures, 8 TiB, a page that left so long ago may be taken for one that
/// just did: a hint is wrong then, no more.
#[derive(Default)]
pub(super) struct Marks {
    /// Slabs do not move: growing copies nothing.
    slabs: Vec<Box<[u32]>>,
    departures: u32,
}

impl Marks {
    /// Makes room for pages whose [`PageId::index`] is below `ids`. Of one beyond nothing is remembered.
    pub(super) fn reserve(&mut self, ids: usize) {
        while self.slabs.len() * SLAB < ids {
            self.slabs.push(alloc::vec![0; SLAB].into_boxed_slice());
        }
    }

    /// Whether the page has proved itself.
    pub(super) fn is_proved(&self, id: PageId) -> bool {
        let slab = self.slabs.get(id.index() / SLAB);
        slab.is_some_and(|slab| slab[id.index() % SLAB] & PROVED != 0)
    }

    /// Says so.
    pub(super) fn set_proved(&mut self, id: PageId, on: bool) {
        if let Some(mark) = self.mark(id) {
            *mark = *mark & !PROVED | if on { PROVED } else { 0 };
        }
    }

    /// The page leaves. Where it never proved itself that is remembered; else it has to prove itself anew.
    pub(super) fn leaves(&mut self, id: PageId) {
        if self.is_proved(id) {
            return self.forget(id);
        }
        self.departures = ((self.departures + 1) & !PROVED).max(1);
        let departures = self.departures;
        if let Some(mark) = self.mark(id) {
            *mark = departures;
        }
    }

    /// Whether the page is among the `most` that left last. It is there again: that it left is forgotten.
    pub(super) fn recall(&mut self, id: PageId, most: usize) -> bool {
        let departures = self.departures;
        let Some(mark) = self.mark(id) else {
            return false;
        };
        let left = *mark & !PROVED;
        *mark &= PROVED;
        left != 0 && (departures.wrapping_sub(left) & !PROVED) < most as u32
    }

    /// The page's name may be another's from now on.
    pub(super) fn forget(&mut self, id: PageId) {
        if let Some(mark) = self.mark(id) {
            *mark = 0;
        }
    }

    fn mark(&mut self, id: PageId) -> Option<&mut u32> {
        let slab = self.slabs.get_mut(id.index() / SLAB)?;
        Some(&mut slab[id.index() % SLAB])
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
    fn beyond_the_room_nothing_is_remembered() {
        let mut pages = Pages::new();
        let id = pages.create(PageNo::from_raw(0), State::Resident);
        let mut marks = Marks::default();
        marks.leaves(id);
        marks.set_proved(id, true);
        assert!(!marks.is_proved(id));
        assert!(!marks.recall(id, 1));
    }

    #[test]
    fn a_page_that_proved_itself_has_to_do_so_anew_after_it_left() {
        let mut pages = Pages::new();
        let id = pages.create(PageNo::from_raw(0), State::Resident);
        let mut marks = Marks::default();
        marks.reserve(pages.ids());
        marks.leaves(id);
        marks.set_proved(id, true);
        assert!(marks.is_proved(id) && marks.recall(id, 1) && marks.is_proved(id));
        marks.leaves(id);
        assert!(!marks.is_proved(id) && !marks.recall(id, 1));
    }
}
