//! The pages of ranges that come and go without a fault.

use alloc::vec::Vec;

use crate::page::{PageId, Pages};
use crate::units::PageRange;

/// Adopts, unmaps and discards; what each driver does is in a file of its own.
pub(super) struct Ranges {
    /// Kept to allocate nothing.
    ids: Vec<PageId>,
}

impl Ranges {
    /// Room for the pages of 8 MiB before anything is allocated.
    pub fn new() -> Self {
        Self {
            ids: Vec::with_capacity(2048),
        }
    }

    /// The touched pages of `range` in their order, to be given back by [`Self::put_back`].
    pub fn gather(&mut self, pages: &Pages, range: PageRange) -> Vec<PageId> {
        let mut ids = core::mem::take(&mut self.ids);
        ids.clear();
        pages.collect_range(range, &mut |id| ids.push(id));
        // The order of the leaves depends on when they were allocated, actions must not.
        ids.sort_unstable_by_key(|&id| pages.number(id));
        ids
    }

    /// Takes back what [`Self::gather`] gave.
    pub fn put_back(&mut self, ids: Vec<PageId>) {
        self.ids = ids;
    }
}
