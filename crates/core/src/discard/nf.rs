//! No flushing: discardable pages leave when other pages would.

use alloc::boxed::Box;

use super::{Discard, Entry};

pub(super) const ENTRY: Entry = Entry {
    name: "nf",
    summary: "a discardable page that is to be written is dropped",
    source: "PagerNF of Subramanian, 1991",
    settings: &[],
    build: |_| Some(Box::new(NoFlush)),
};

struct NoFlush;

impl Discard for NoFlush {}
