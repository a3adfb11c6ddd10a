//! The buffer that collects whole clusters until the next one does not fit.

use core::mem;

use super::{Chunk, Placement};
use crate::units::{PageNo, PageRange};

pub(super) struct Gather {
    buffer: Chunk,
    limit: u32,
    placement: Placement,
}

impl Gather {
    /// An empty buffer for `limit` pages.
    pub(super) fn new(limit: u32, placement: Placement) -> Self {
        Self {
            buffer: Chunk::with_capacity(limit),
            limit,
            placement,
        }
    }

    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Pages that still fit: never none, for a full buffer is handed over at once.
    pub(super) fn room(&self) -> u32 {
        self.limit - self.buffer.len()
    }

    /// Puts a whole cluster into the buffer. Returns whether a chunk was handed over: what was
    /// buffered before when the cluster does not fit beside it, or the buffer once it is full.
    ///
    /// The papers' algorithms write a full buffer only when the next cluster arrives; no cluster
    /// fits into a full buffer, so the chunks are the same, just written sooner.
    pub(super) fn add(&mut self, cluster: PageRange, ready: &mut Chunk) -> bool {
        let mut handed = u64::from(self.limit - self.buffer.len()) < cluster.pages;
        if handed {
            self.hand_over(ready);
        }
        self.buffer.push(cluster);
        if !handed && self.buffer.len() == self.limit {
            handed = self.hand_over(ready);
        }
        handed
    }

    /// Swaps what is buffered into `ready`; returns whether there was anything.
    pub(super) fn hand_over(&mut self, ready: &mut Chunk) -> bool {
        assert!(ready.is_empty() && ready.pages.capacity() >= self.limit as usize);
        self.buffer.placement = self.placement;
        mem::swap(&mut self.buffer, ready);
        !ready.is_empty()
    }

    pub(super) fn forget(&mut self, page: PageNo) {
        self.buffer.remove(page);
    }
}
