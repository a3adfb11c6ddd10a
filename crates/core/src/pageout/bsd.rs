//! BSD page-out: the victim's cluster is one write.
//!
//! FreeBSD 6.2 to 8.2, `vm/vm_pageout.c:vm_pageout_clean`; the baseline of both papers.

use alloc::boxed::Box;

use super::window::{ClusterWindow, cluster};
use super::{Chunk, Entry, Inactive, PageOut, Params, Placement};
use crate::units::{PageNo, PageRange};

pub(super) const ENTRY: Entry = Entry {
    name: "bsd",
    summary: "a victim and its dirty neighbours in one write",
    source: "FreeBSD 6.2 to 8.2, vm_pageout_clean",
    // vm_pageout_page_count.
    buffer_pages: 16,
    build: |params| Box::new(Bsd::new(params)),
};

struct Bsd {
    limit: u32,
    window: ClusterWindow,
}

impl Bsd {
    fn new(params: Params) -> Self {
        Self {
            limit: params.checked_buffer_pages(),
            window: params.window,
        }
    }
}

impl PageOut for Bsd {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn buffer_pages(&self) -> u32 {
        self.limit
    }

    fn collect(&mut self, victim: PageNo, view: &dyn Inactive, ready: &mut Chunk) -> PageRange {
        let pages = cluster(victim, self.limit, self.window, view);
        ready.placement = Placement::Shrink;
        ready.push(pages);
        pages
    }

    fn finish(&mut self, _: &mut Chunk) {}

    fn forget(&mut self, _: PageNo) {}
}
