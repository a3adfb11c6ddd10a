//! MOC with full buffers: a cluster that does not fit is split.
//!
//! Ours. MOC writes a buffer before it is full rather than split a cluster, because the parts
//! would get slots apart from each other. Where slots are a log (`slots::Log`), the part in the
//! next buffer gets the slots behind the part in this one, so nothing is lost by filling buffers.

use alloc::boxed::Box;

use super::gather::Gather;
use super::moc::ObjectSort;
use super::window::{ClusterWindow, cluster};
use super::{Chunk, Entry, Inactive, PageOut, Params, Placement};
use crate::units::{PageNo, PageRange};

pub(super) const ENTRY: Entry = Entry {
    name: "packed",
    summary: "like moc, but buffers are filled to the last page: clusters may be split",
    source: "Outpage",
    // Measured: a write of 64 pages costs twice one of a single page, and beyond it hardly less a page.
    buffer_pages: 64,
    build: |params| Box::new(Packed::new(params)),
};

struct Packed {
    gather: Gather,
    window: ClusterWindow,
    sort: ObjectSort,
}

impl Packed {
    fn new(params: Params) -> Self {
        let limit = params.checked_buffer_pages();
        Self {
            gather: Gather::new(limit, Placement::Shrink),
            window: params.window,
            sort: ObjectSort::new(limit),
        }
    }
}

impl PageOut for Packed {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn buffer_pages(&self) -> u32 {
        self.gather.limit()
    }

    fn collect(&mut self, victim: PageNo, view: &dyn Inactive, ready: &mut Chunk) -> PageRange {
        let pages = cluster(victim, self.gather.room(), self.window, view);
        if self.gather.add(pages, ready) {
            self.sort.sort(ready);
        }
        pages
    }

    fn finish(&mut self, ready: &mut Chunk) {
        if self.gather.hand_over(ready) {
            self.sort.sort(ready);
        }
    }

    fn forget(&mut self, page: PageNo) {
        self.gather.forget(page);
    }
}
