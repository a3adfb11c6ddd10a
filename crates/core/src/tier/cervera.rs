//! Swap compression: a small cache of compressed pages, which are written as they are, several in a block.
//!
//! Cervera, Cortes and Becerra, "Improving Application Performance through Swap Compression", USENIX 1999: a page that is paged out is compressed
//! and put into a cache (section 2.2), the cache is written many pages at once, compressed (2.3), and what is read has a path of its
//! own (5). So the cache is what gathers a write; that it also keeps pages from being read is the lesser part.
//!
//! Which victims are compressed and which leave the pool is as with [`super::always`]; what is written of them is the store's business.

use super::always;
use super::{Entry, Written};
use crate::settings::{Allowed, Setting};

pub(super) const ENTRY: Entry = Entry {
    name: "cervera",
    summary: "a small pool (LZ4), out of which pages are written as they were compressed, several in a block",
    source: "Cervera, Cortes and Becerra, USENIX 1999: swap compression",
    codec: "lz4",
    written: Written::Compressed,
    settings: &[&POOL],
    build: always::build,
};

/// As many frames as gather a write: of 16,384 frames 3 percent hold, at a ratio of 3, twenty writes of 64 pages. A choice: what the authors
/// set is not known here.
static POOL: Setting = Setting {
    name: "pool",
    summary: "the most that the pool takes, in percent of the frames",
    allowed: Allowed::Numbers(1, 90),
    default: 3,
};
