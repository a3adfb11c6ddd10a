//! Where paged-out pages go: the slot allocator and the rules that place a chunk.

mod bits;
mod blist;
mod linux;
mod log;
mod place;

pub use blist::{Blist, LEAF_SLOTS};
pub use linux::Linux;
pub use log::Log;
pub use place::{Placed, ShrinkRule, place, place_with, request};

use alloc::boxed::Box;

use crate::units::SlotRange;

/// Slots of which [`Slots::free_word`] tells at once.
pub const FREE_WORD_SLOTS: u32 = u64::BITS;

/// A slot allocator. After construction none of it allocates heap memory.
pub trait Slots: Send {
    /// Takes `slots` consecutive free slots; `None` when there is no such run.
    fn alloc(&mut self, slots: u32) -> Option<SlotRange>;
    /// Gives slots back: any span of allocated ones.
    fn free(&mut self, range: SlotRange);
    /// The swap file grew: `range` is usable from now on.
    fn add(&mut self, range: SlotRange);
    /// Takes `range`, which was added and all of which is free, away again. False, and nothing, of an allocator that cannot: the default.
    ///
    /// # Panics
    /// When a slot of it is not free.
    fn remove(&mut self, range: SlotRange) -> bool {
        let _ = range;
        false
    }
    /// Free slots.
    fn available(&self) -> u32;
    /// Bytes of heap that it has written to.
    fn heap_bytes(&self) -> usize;
    /// Which of slots `64 * word..64 * (word + 1)` are free: a bit each, from the lowest on; none where there are no slots.
    fn free_word(&self, word: u32) -> u64;
    /// Whether the file should grow, with `used` slots in use and writes of `chunk` pages.
    fn wants_room(&self, used: u32, chunk: u32) -> bool {
        let _ = used;
        self.available() < 2 * chunk
    }
}

impl Slots for Blist {
    fn alloc(&mut self, slots: u32) -> Option<SlotRange> {
        Self::alloc(self, slots)
    }
    fn free(&mut self, range: SlotRange) {
        Self::free(self, range);
    }
    fn add(&mut self, range: SlotRange) {
        Self::add(self, range);
    }
    fn available(&self) -> u32 {
        Self::available(self)
    }
    fn heap_bytes(&self) -> usize {
        Self::heap_bytes(self)
    }
    fn free_word(&self, word: u32) -> u64 {
        Self::free_word(self, word)
    }
}

/// One allocator of the registry.
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Makes one for up to so many slots.
    pub build: fn(u32) -> Box<dyn Slots>,
}

/// Every slot allocator.
pub static REGISTRY: &[Entry] = &[
    Entry {
        name: "blist",
        summary: "radix tree, lowest first fit within 32-slot leaves",
        source: "FreeBSD subr_blist.c; the allocator of both papers",
        build: |capacity| Box::new(Blist::new(capacity)),
    },
    Entry {
        name: "linux",
        summary: "runs of 256 slots, the lowest free one first",
        source: "Linux 2.6.28 scan_swap_map",
        build: |capacity| Box::new(Linux::new(capacity)),
    },
    Entry {
        name: "log",
        summary: "each run behind the last, round a file kept half free",
        source: "Outpage",
        build: |capacity| Box::new(Log::new(capacity)),
    },
];

/// The allocator called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}
