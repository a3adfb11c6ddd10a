//! Linux as the papers describe it: victims in access order, whatever their addresses.
//!
//! mClustering, section 1, after Gorman, "Understanding the Linux Virtual Memory Manager": 32
//! pages, the victim and the dirty pages that follow it in access order (`SWAP_CLUSTER_MAX`).

use alloc::boxed::Box;

use super::gather::Gather;
use super::{Chunk, Entry, Inactive, PageOut, Params, Placement};
use crate::units::{PageNo, PageRange};

pub(super) const ENTRY: Entry = Entry {
    name: "linux",
    summary: "victims in access order, no matter which pages they are",
    source: "Linux, as described by mClustering, 2014",
    // SWAP_CLUSTER_MAX.
    buffer_pages: 32,
    build: |params| Box::new(Linux::new(params)),
};

struct Linux {
    gather: Gather,
}

impl Linux {
    fn new(params: Params) -> Self {
        Self {
            gather: Gather::new(params.checked_buffer_pages(), Placement::Shrink),
        }
    }
}

impl PageOut for Linux {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn buffer_pages(&self) -> u32 {
        self.gather.limit()
    }

    fn collect(&mut self, victim: PageNo, _: &dyn Inactive, ready: &mut Chunk) -> PageRange {
        let pages = PageRange::one(victim);
        self.gather.add(pages, ready);
        pages
    }

    fn finish(&mut self, ready: &mut Chunk) {
        self.gather.hand_over(ready);
    }

    fn forget(&mut self, page: PageNo) {
        self.gather.forget(page);
    }
}
