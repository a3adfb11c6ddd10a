//! MOC, multiple-object clustering: several clusters in one write, sorted by object.
//!
//! Yang, Ahn and Oh, "MOC: A Multiple-Object Clustering Scheme for High Performance of Page-out in
//! BSD VM", 2009, figure 8. A cluster is never split between buffers. Slots come from the
//! unchanged BSD path over the whole buffer.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::gather::Gather;
use super::window::{ClusterWindow, cluster};
use super::{Chunk, Entry, Inactive, PageOut, Params, Placement};
use crate::units::{ObjectId, PageNo, PageRange};

pub(super) const ENTRY: Entry = Entry {
    name: "moc",
    summary: "several clusters in one write, the pages of each object in ascending order",
    source: "MOC, 2009",
    buffer_pages: 16,
    build: |params| Box::new(Moc::new(ENTRY.name, Parted::Never, params)),
};

/// Whether a cluster may lie in two buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parted {
    /// A buffer is handed over before a cluster that does not fit, as in the paper.
    Never,
    /// The buffer is filled, and the rest of the cluster begins the next one.
    ToFill,
}

pub(super) struct Moc {
    name: &'static str,
    parted: Parted,
    gather: Gather,
    window: ClusterWindow,
    sort: ObjectSort,
}

impl Moc {
    pub(super) fn new(name: &'static str, parted: Parted, params: Params) -> Self {
        let limit = params.checked_buffer_pages();
        Self {
            name,
            parted,
            gather: Gather::new(limit, Placement::Shrink),
            window: params.window,
            sort: ObjectSort::new(limit),
        }
    }
}

impl PageOut for Moc {
    fn name(&self) -> &'static str {
        self.name
    }

    fn buffer_pages(&self) -> u32 {
        self.gather.limit()
    }

    fn collect(&mut self, victim: PageNo, view: &dyn Inactive, ready: &mut Chunk) -> PageRange {
        let most = match self.parted {
            Parted::Never => self.gather.limit(),
            Parted::ToFill => self.gather.room(),
        };
        let pages = cluster(victim, most, self.window, view);
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

/// The object sort: reunites clusters of an object that were collected apart.
struct ObjectSort {
    /// Objects in order of first appearance. The paper leaves their order open.
    objects: Vec<ObjectId>,
    /// (rank of the object, page).
    keys: Vec<(u32, PageNo)>,
}

impl ObjectSort {
    fn new(limit: u32) -> Self {
        let limit = limit as usize;
        Self {
            objects: Vec::with_capacity(limit),
            keys: Vec::with_capacity(limit),
        }
    }

    /// Sorts the pages of each object, objects in order of first appearance, and joins clusters
    /// that have become neighbours.
    fn sort(&mut self, chunk: &mut Chunk) {
        let ends = [chunk.pages.first(), chunk.pages.last()].map(|end| end.map(|p| p.object()));
        if ends[0] != ends[1] || !chunk.pages.is_sorted() {
            self.sort_pages(&mut chunk.pages);
        }
        chunk.clusters.clear();
        let mut expected = None;
        for &page in &chunk.pages {
            match chunk.clusters.last_mut() {
                Some(cluster) if expected == Some(page) => *cluster += 1,
                _ => chunk.clusters.push(1),
            }
            expected = page.checked_add(1);
        }
    }

    fn sort_pages(&mut self, pages: &mut [PageNo]) {
        self.objects.clear();
        self.keys.clear();
        for &page in &*pages {
            let object = page.object();
            let known = self.objects.iter().position(|&o| o == object);
            let rank = known.unwrap_or_else(|| {
                self.objects.push(object);
                self.objects.len() - 1
            });
            self.keys.push((rank as u32, page));
        }
        self.keys.sort_unstable();
        for (page, &(_, sorted)) in pages.iter_mut().zip(&self.keys) {
            *page = sorted;
        }
    }
}
