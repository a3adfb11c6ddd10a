//! Swap compression: a small cache of compressed pages, which are written as they are, several in a block.
//!
//! Cervera, Cortes and Becerra, "Improving Application Performance through Swap Compression", USENIX 1999: a page that is paged out is compressed
//! and put into a cache (section 2.2), the cache is written many pages at once, compressed (2.3), and what is read has a path of its
//! own (5). So the cache is what gathers a write; that it also keeps pages from being read is the lesser part.
//!
//! So a victim that the store has already is not written once more for the sake of a short time in the cache. All others are compressed; what is
//! written of them is the store's business.

use alloc::boxed::Box;

use super::{Entry, Tier, Written};
use crate::settings::{Allowed, Setting};
use crate::units::PageNo;

pub(super) const ENTRY: Entry = Entry {
    name: "cervera",
    summary: "a small pool (LZ4), out of which pages are written as they were compressed, several in a block",
    source: "Cervera, Cortes and Becerra, USENIX 1999: swap compression",
    codec: "lz4",
    written: Written::Compressed,
    settings: &[&POOL],
    build: |values| {
        Some(Box::new(Cervera {
            percent: values.of(POOL.name),
        }))
    },
};

/// As many frames as gather a write: of 16,384 frames 3 percent hold, at a ratio of 3, twenty writes of 64 pages. A choice: what the authors
/// set is not known here.
static POOL: Setting = Setting {
    name: "pool",
    summary: "the most that the pool takes, in percent of the frames",
    allowed: Allowed::Numbers(1, 90),
    default: 3,
};

struct Cervera {
    percent: u32,
}

impl Tier for Cervera {
    fn pools(&mut self, _victim: PageNo) -> bool {
        true
    }

    fn pools_clean(&self) -> bool {
        false
    }

    fn pool_frames(&self, frames: usize) -> usize {
        frames * self.percent as usize / 100
    }
}
