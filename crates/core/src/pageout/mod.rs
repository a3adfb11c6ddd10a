//! How dirty pages are grouped for writing.
//!
//! Reclaim walks the inactive list and names dirty victims; a [`PageOut`] policy adds each victim's
//! cluster to a chunk and hands the chunk over when it is to be written. One chunk is one write,
//! unless the slot allocator has to split it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::units::{PageNo, PageRange};

mod bsd;
mod gather;
mod linux;
mod mclustering;
mod moc;
mod packed;
mod single;
mod window;

pub use window::{ClusterWindow, cluster};

/// The buffer sizes that a policy can be built with, in pages: up to 4 MiB a write.
pub const BUFFER_PAGES: RangeInclusive<u32> = 1..=1024;

/// What a policy may ask about pages.
pub trait Inactive {
    /// Whether `page` may join a cluster: it exists, is inactive and dirty, and is not busy, not
    /// collected into a chunk already, and not pinned.
    fn takes_part(&self, page: PageNo) -> bool;
}

/// How a chunk wants its slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// One run for all pages, smaller runs while there is none (BSD, MOC, Linux).
    Shrink,
    /// One run for all pages, else one a cluster, else smaller runs for that cluster
    /// (mClustering).
    WholeThenClusters,
}

/// Pages to be written together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The pages, in the order in which they are to lie in the store. None occurs twice.
    pub pages: Vec<PageNo>,
    /// The lengths of the clusters, in page order; they add up to the number of pages.
    pub clusters: Vec<u32>,
    /// How the slots are chosen.
    pub placement: Placement,
}

impl Chunk {
    /// An empty chunk with room for `pages` pages. It never grows beyond that.
    #[must_use]
    pub fn with_capacity(pages: u32) -> Self {
        Self {
            pages: Vec::with_capacity(pages as usize),
            clusters: Vec::with_capacity(pages as usize),
            placement: Placement::Shrink,
        }
    }

    /// The number of pages.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Whether there are no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Removes all pages; the room stays.
    pub fn clear(&mut self) {
        self.pages.clear();
        self.clusters.clear();
    }

    /// Appends a cluster.
    ///
    /// # Panics
    /// When there is no room for it.
    fn push(&mut self, cluster: PageRange) {
        let room = self.pages.capacity() - self.pages.len();
        assert!(
            cluster.pages <= room as u64,
            "{cluster:?} does not fit into the chunk"
        );
        self.pages.extend(cluster.iter());
        self.clusters.push(cluster.pages as u32);
    }

    /// Takes `page` out, if it is here; its cluster falls apart into what lies before and after.
    pub(crate) fn remove(&mut self, page: PageNo) {
        let Some(at) = self.pages.iter().position(|&p| p == page) else {
            return;
        };
        self.pages.remove(at);
        let (mut first, mut cluster) = (0, 0);
        while first + self.clusters[cluster] as usize <= at {
            first += self.clusters[cluster] as usize;
            cluster += 1;
        }
        let before = (at - first) as u32;
        let after = self.clusters[cluster] - before - 1;
        match (before, after) {
            (0, 0) => {
                self.clusters.remove(cluster);
            }
            (0, only) | (only, 0) => self.clusters[cluster] = only,
            (before, after) => {
                self.clusters[cluster] = before;
                self.clusters.insert(cluster + 1, after);
            }
        }
    }
}

/// A way of grouping victims into writes.
pub trait PageOut: Send {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// The most pages in a chunk, and so in one write. Chunks passed as `ready` need this much
    /// room ([`Chunk::with_capacity`]).
    fn buffer_pages(&self) -> u32;

    /// Collects the cluster of `victim`, a page that takes part, and returns its pages: all of
    /// them in the buffer or in `ready` now. From here on the caller's view says of them that they
    /// do not take part.
    ///
    /// `ready` is empty on entry. If a chunk is to be written now, it is in `ready` on return; that
    /// happens at most once a call, so a buffer that this call filled after it handed one over
    /// waits for the next call.
    fn collect(&mut self, victim: PageNo, view: &dyn Inactive, ready: &mut Chunk) -> PageRange;

    /// The scan ended: what is buffered goes to `ready` (empty on entry), which stays empty if
    /// nothing is.
    fn finish(&mut self, ready: &mut Chunk);

    /// Takes a buffered page back, because it was rescued, unmapped or discarded before it was
    /// handed over. Pages that are not in the buffer are none of its business.
    fn forget(&mut self, page: PageNo);
}

/// What a policy is built from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The most pages in a chunk and in a cluster, within [`BUFFER_PAGES`]. `single` ignores it.
    pub buffer_pages: u32,
    /// The pages around a victim that a cluster looks at. `single` and `linux` ignore it.
    pub window: ClusterWindow,
}

impl Params {
    /// The buffer size, checked.
    ///
    /// # Panics
    /// When it lies outside [`BUFFER_PAGES`].
    fn checked_buffer_pages(self) -> u32 {
        assert!(
            BUFFER_PAGES.contains(&self.buffer_pages),
            "{} pages are no buffer",
            self.buffer_pages
        );
        self.buffer_pages
    }
}

/// A policy in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The paper or system that it comes from.
    pub source: &'static str,
    /// The buffer size of that source, in pages.
    pub buffer_pages: u32,
    /// Builds the policy; panics when a parameter is out of its range.
    pub build: fn(Params) -> Box<dyn PageOut>,
}

impl Entry {
    /// The parameters of the policy's source.
    #[must_use]
    pub const fn params(&self) -> Params {
        Params {
            buffer_pages: self.buffer_pages,
            window: ClusterWindow::Kernel,
        }
    }
}

/// All page-out policies.
pub static REGISTRY: &[Entry] = &[
    single::ENTRY,
    bsd::ENTRY,
    moc::ENTRY,
    mclustering::ENTRY,
    linux::ENTRY,
    packed::ENTRY,
];

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}
