//! mClustering: several clusters in one write, and slots that keep each cluster together.
//!
//! Ahn, Choi, Oh, Lim and Kim, "Paging out Multiple Clusters to Improve Virtual Memory System
//! Performance", IEICE Trans. Inf. & Syst. E97-D(7), 2014, algorithm 1. Clusters keep the order in
//! which they were collected.

use alloc::boxed::Box;

use super::gather::Gather;
use super::window::{ClusterWindow, cluster};
use super::{Chunk, Entry, Inactive, PageOut, Params, Placement};
use crate::units::{PageNo, PageRange};

pub(super) const ENTRY: Entry = Entry {
    name: "mclustering",
    summary: "several clusters in one write, each kept whole in the swap store",
    source: "mClustering, 2014",
    buffer_pages: 16,
    build: |params| Box::new(MClustering::new(params)),
};

struct MClustering {
    gather: Gather,
    window: ClusterWindow,
}

impl MClustering {
    fn new(params: Params) -> Self {
        let limit = params.checked_buffer_pages();
        Self {
            gather: Gather::new(limit, Placement::WholeThenClusters),
            window: params.window,
        }
    }
}

impl PageOut for MClustering {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn buffer_pages(&self) -> u32 {
        self.gather.limit()
    }

    fn collect(&mut self, victim: PageNo, view: &dyn Inactive, ready: &mut Chunk) -> PageRange {
        let pages = cluster(victim, self.gather.limit(), self.window, view);
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
