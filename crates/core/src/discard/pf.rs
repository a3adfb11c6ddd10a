//! Flushing by the pager: writes say that memory is tight.

use alloc::boxed::Box;

use super::{Discard, Entry};
use crate::settings::{Allowed, Setting};

pub(super) const ENTRY: Entry = Entry {
    name: "pf",
    summary: "as nf, and with each victim that is to be written others are dropped that are discardable",
    source: "PagerPF of Subramanian, 1991",
    settings: &[&Setting {
        name: "pages",
        summary: "the most pages dropped with a victim",
        // 64 is the paper's, which tried no other.
        allowed: Allowed::Numbers(1, 1 << 20),
        default: 64,
    }],
    build: |values| {
        let pages = values.of("pages");
        Some(Box::new(PagerFlush { pages }))
    },
};

struct PagerFlush {
    pages: u32,
}

impl Discard for PagerFlush {
    fn ahead(&self) -> u32 {
        self.pages
    }
}
