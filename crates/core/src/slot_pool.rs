//! The slots of one pager: allocation, the page behind each slot, and what forks keep alive.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::page::PageId;
use crate::slots::Slots;
use crate::units::{SlotNo, SlotRange};

/// Slots, by who may write them.
pub struct SlotPool {
    /// Free slots of the extents that this pager may write.
    pub free: Box<dyn Slots>,
    build: fn(u32) -> Box<dyn Slots>,
    capacity: u32,
    pages: Vec<PageId>,
    own: Bits,
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
            pages: Vec::new(),
            own: Bits::new(capacity),
            kept: Bits::default(),
            deferred: Vec::new(),
            used: 0,
        }
    }

    /// `range` may be written from now on.
    pub fn add(&mut self, range: SlotRange) {
        self.free.add(range);
        range.iter().for_each(|slot| self.own.set(slot, true));
        let end = range.end().0 as usize;
        if self.pages.len() < end {
            self.pages.resize(end, PageId::NONE);
        }
    }

    /// Slots that hold a page.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// The page whose content is in `slot`.
    #[must_use]
    pub fn page(&self, slot: SlotNo) -> Option<PageId> {
        self.pages
            .get(slot.0 as usize)
            .copied()
            .filter(|id| id.is_some())
    }

    /// Binds `slot`, which was just allocated, to a page.
    pub fn bind(&mut self, slot: SlotNo, page: PageId) {
        debug_assert!(self.page(slot).is_none());
        self.pages[slot.0 as usize] = page;
        self.used += 1;
    }

    /// The content in `slot` is not wanted any more.
    pub fn release(&mut self, slot: SlotNo) {
        self.pages[slot.0 as usize] = PageId::NONE;
        self.used -= 1;
        if !self.own.get(slot) {
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
        let plain = |slot| self.own.get(slot) && !self.kept.get(slot);
        if range.iter().all(plain) {
            let slots = range.start.0 as usize..range.end().0 as usize;
            self.pages[slots].fill(PageId::NONE);
            self.used -= range.slots as usize;
            self.free.free(range);
        } else {
            range.iter().for_each(|slot| self.release(slot));
        }
    }

    /// `slot` failed and is never used again.
    pub fn retire(&mut self, slot: SlotNo) {
        self.pages[slot.0 as usize] = PageId::NONE;
        self.used -= 1;
    }

    /// A child is about to share every slot in use: none of them is reused before [`Self::children_gone`].
    pub fn keep_for_child(&mut self) {
        if self.kept.words.len() < self.own.words.len() {
            self.kept.words.resize(self.own.words.len(), 0);
        }
        for (slot, page) in self.pages.iter().enumerate() {
            if page.is_some() {
                self.kept.set(SlotNo(slot as u32), true);
            }
        }
    }

    /// No child is left.
    pub fn children_gone(&mut self) {
        self.kept.words.clear();
        for slot in core::mem::take(&mut self.deferred) {
            self.free.free(SlotRange::new(slot, 1));
        }
    }

    /// In the child: everything so far is the parent's.
    pub fn disown(&mut self) {
        self.free = (self.build)(self.capacity);
        self.own = Bits::new(self.capacity);
        self.kept = Bits::default();
        self.deferred.clear();
    }

    /// Bytes of heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<PageId>()
            + (self.own.words.capacity() + self.kept.words.capacity()) * 8
    }
}

/// A bitmap over slots.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn new(capacity: u32) -> Self {
        Self {
            words: alloc::vec![0; capacity.div_ceil(64) as usize],
        }
    }

    fn get(&self, slot: SlotNo) -> bool {
        self.words
            .get(slot.0 as usize / 64)
            .is_some_and(|w| w >> (slot.0 % 64) & 1 == 1)
    }

    fn set(&mut self, slot: SlotNo, on: bool) {
        let (word, bit) = (&mut self.words[slot.0 as usize / 64], 1u64 << (slot.0 % 64));
        *word = if on { *word | bit } else { *word & !bit };
    }
}
