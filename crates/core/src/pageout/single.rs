//! One page a write: the floor that every grouping is measured against.

use alloc::boxed::Box;

use super::{Chunk, Entry, Inactive, PageOut, Placement};
use crate::units::{PageNo, PageRange};

pub(super) const ENTRY: Entry = Entry {
    name: "single",
    summary: "every victim is written alone",
    source: "the floor of every comparison",
    buffer_pages: 1,
    build: |_| Box::new(Single),
};

struct Single;

impl PageOut for Single {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn buffer_pages(&self) -> u32 {
        1
    }

    fn collect(&mut self, victim: PageNo, _: &dyn Inactive, ready: &mut Chunk) -> PageRange {
        ready.placement = Placement::Shrink;
        ready.push(PageRange::one(victim));
        PageRange::one(victim)
    }

    fn finish(&mut self, _: &mut Chunk) {}

    fn forget(&mut self, _: PageNo) {}
}
