//! What goes to the store and comes from it.

mod page_in;
mod page_out;
mod pool;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::pageout::{Chunk, PageOut};
use crate::slots::Placed;

/// Failed writes in a row after which the store counts as broken: enough to get past a bad
/// stretch of a few chunks.
const WRITE_FAILURES_MAX: u32 = 64;

/// Reads and writes, and the pages that are gathered for the next write.
pub(super) struct Transfers {
    /// Windows of at least so many slots are read as the demanded page first and the rest behind it; 0 for never.
    demand_first: u32,
    pageout: Box<dyn PageOut>,
    /// The most pages of a write.
    chunk_pages: u32,
    /// The chunk that is to be written.
    ready: Chunk,
    /// Its slots; kept to allocate nothing.
    placed: Vec<Placed>,
    /// Unanswered writes.
    writes: usize,
    write_failures_in_a_row: u32,
}

impl Transfers {
    /// Nothing under way. Pages are grouped by `pageout`; the field says what `demand_first` is.
    pub fn new(pageout: Box<dyn PageOut>, demand_first: u32) -> Self {
        let chunk_pages = pageout.buffer_pages();
        Self {
            demand_first,
            pageout,
            chunk_pages,
            ready: Chunk::with_capacity(chunk_pages),
            placed: Vec::with_capacity(64),
            writes: 0,
            write_failures_in_a_row: 0,
        }
    }

    /// The most pages of a write.
    pub const fn chunk_pages(&self) -> u32 {
        self.chunk_pages
    }
}
