//! The slots of one pager: allocation, and what forks keep alive.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::page::Pages;
use crate::slots::Slots;
use crate::units::{SlotNo, SlotRange};

/// Slots, by who may write them.
pub struct SlotPool {
    /// Free slots of the extents that this pager may write.
    pub free: Box<dyn Slots>,
    build: fn(u32) -> Box<dyn Slots>,
    capacity: u32,
    /// Those extents, ascending, neighbours joined.
    own: Vec<SlotRange>,
    kept: Bits,
    deferred: Vec<SlotNo>,
    used: usize,
}

impl SlotPool {
    /// No room yet, for at most `capacity` slots, handed out by what `build` makes.
    #[must_use]
    pub fn new(capacity: u32, build: fn(u32) -> Box<dyn Slots>) -> Self {
        Self {
            free: build(capacity),
            build,
            capacity,
            own: Vec::new(),
            kept: Bits::default(),
            deferred: Vec::new(),
            used: 0,
        }
    }

    /// `range` may be written from now on.
    pub fn add(&mut self, range: SlotRange) {
        self.free.add(range);
        let at = self.own.partition_point(|own| own.start < range.start);
        self.own.insert(at, range);
        self.own.dedup_by(|next, own| {
            let joins = own.end() == next.start;
            if joins {
                own.slots += next.slots;
            }
            joins
        });
    }

    fn owns(&self, slot: SlotNo) -> bool {
        let behind = self.own.partition_point(|own| own.start <= slot);
        behind > 0 && slot < self.own[behind - 1].end()
    }

    /// Slots that hold a page.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// So many slots, just allocated, hold a page from now on.
    pub const fn bind(&mut self, slots: u32) {
        self.used += slots as usize;
    }

    /// The content in `slot` is not wanted any more.
    pub fn release(&mut self, slot: SlotNo) {
        self.used -= 1;
        if !self.owns(slot) {
            return; // The parent's: it holds the slot until this process is gone.
        }
        if self.kept.get(slot) {
            self.deferred.push(slot);
        } else {
            self.free.free(SlotRange::new(slot, 1));
        }
    }

    /// The contents of all of `range` are not wanted any more.
    pub fn release_run(&mut self, range: SlotRange) {
        let plain = |slot| self.owns(slot) && !self.kept.get(slot);
        if range.iter().all(plain) {
            self.used -= range.slots as usize;
            self.free.free(range);
        } else {
            range.iter().for_each(|slot| self.release(slot));
        }
    }

    /// A slot in use failed and is never used again.
    pub const fn retire(&mut self) {
        self.used -= 1;
    }

    /// A child is about to share every slot that one of `pages` has: none of them is reused before
    /// [`Self::children_gone`].
    pub fn keep_for_child(&mut self, pages: &Pages) {
        let end = self.own.last().map_or(0, |own| own.end().0);
        self.kept.reach(end as usize);
        pages.each_slot(&mut |slot| {
            if slot.0 < end {
                self.kept.set(slot);
            }
        });
    }

    /// No child is left, nor a child of one.
    pub fn children_gone(&mut self) {
        self.kept = Bits::default();
        for slot in core::mem::take(&mut self.deferred) {
            self.free.free(SlotRange::new(slot, 1));
        }
    }

    /// In the child: everything so far is the parent's.
    pub fn disown(&mut self) {
        self.free = (self.build)(self.capacity);
        self.own.clear();
        self.kept = Bits::default();
        self.deferred.clear();
    }

    /// Bytes of heap that were written to.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.free.heap_bytes()
            + self.own.capacity() * size_of::<SlotRange>()
            + self.kept.words.len() * 8
            + self.deferred.capacity() * size_of::<SlotNo>()
    }
}

/// A bitmap over the slots that there are, zero beyond them.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Makes room for slots below `end`.
    fn reach(&mut self, end: usize) {
        if self.words.len() * 64 < end {
            self.words.resize(end.div_ceil(64), 0);
        }
    }

    fn get(&self, slot: SlotNo) -> bool {
        self.words
            .get(slot.0 as usize / 64)
            .is_some_and(|w| w >> (slot.0 % 64) & 1 == 1)
    }

    fn set(&mut self, slot: SlotNo) {
        self.words[slot.0 as usize / 64] |= 1 << (slot.0 % 64);
    }
}
