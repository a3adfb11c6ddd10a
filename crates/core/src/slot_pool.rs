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
    pages: Owners,
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
            pages: Owners::default(),
            own: Bits::default(),
            kept: Bits::default(),
            deferred: Vec::new(),
            used: 0,
        }
    }

    /// `range` may be written from now on.
    pub fn add(&mut self, range: SlotRange) {
        self.free.add(range);
        let end = range.end().0 as usize;
        self.own.reach(end);
        range.iter().for_each(|slot| self.own.set(slot, true));
        self.pages.reach(end);
    }

    /// Slots that hold a page.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// The page whose content is in `slot`.
    #[must_use]
    pub fn page(&self, slot: SlotNo) -> Option<PageId> {
        self.pages.get(slot).filter(|id| id.is_some())
    }

    /// Binds `slot`, which was just allocated, to a page.
    pub fn bind(&mut self, slot: SlotNo, page: PageId) {
        debug_assert!(self.page(slot).is_none());
        self.pages.set(slot, page);
        self.used += 1;
    }

    /// The content in `slot` is not wanted any more.
    pub fn release(&mut self, slot: SlotNo) {
        self.pages.set(slot, PageId::NONE);
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
            range
                .iter()
                .for_each(|slot| self.pages.set(slot, PageId::NONE));
            self.used -= range.slots as usize;
            self.free.free(range);
        } else {
            range.iter().for_each(|slot| self.release(slot));
        }
    }

    /// `slot` failed and is never used again.
    pub fn retire(&mut self, slot: SlotNo) {
        self.pages.set(slot, PageId::NONE);
        self.used -= 1;
    }

    /// A child is about to share every slot in use: none of them is reused before [`Self::children_gone`].
    pub fn keep_for_child(&mut self) {
        self.kept.reach(self.pages.slots());
        for (slot, page) in self.pages.iter().enumerate() {
            if page.is_some() {
                self.kept.set(SlotNo(slot as u32), true);
            }
        }
    }

    /// No child is left, nor a child of one.
    pub fn children_gone(&mut self) {
        self.kept.words.clear();
        for slot in core::mem::take(&mut self.deferred) {
            self.free.free(SlotRange::new(slot, 1));
        }
    }

    /// In the child: everything so far is the parent's.
    pub fn disown(&mut self) {
        self.free = (self.build)(self.capacity);
        self.own = Bits::default();
        self.kept = Bits::default();
        self.deferred.clear();
    }

    /// Bytes of heap that were written to, those of the allocator left out.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pages.slots() * size_of::<PageId>()
            + (self.own.words.len() + self.kept.words.len()) * 8
    }
}

/// Slots of one piece of [`Owners`]: 64 KiB, which the live allocator has a class for.
const PIECE_SLOTS: usize = 1 << 14;

/// The page behind each slot that there is. In pieces, because the table grows while threads wait for
/// faults: nothing is copied, and no outgrown copy is left in the allocator.
#[derive(Default)]
struct Owners {
    pieces: Vec<Vec<PageId>>,
}

impl Owners {
    /// Makes room for slots below `end`.
    fn reach(&mut self, end: usize) {
        while self.slots() < end {
            self.pieces.push(alloc::vec![PageId::NONE; PIECE_SLOTS]);
        }
    }

    /// Slots that there is room for.
    fn slots(&self) -> usize {
        self.pieces.len() * PIECE_SLOTS
    }

    fn get(&self, slot: SlotNo) -> Option<PageId> {
        let slot = slot.0 as usize;
        let piece = self.pieces.get(slot / PIECE_SLOTS)?;
        Some(piece[slot % PIECE_SLOTS])
    }

    /// # Panics
    /// When there is no room for `slot`.
    fn set(&mut self, slot: SlotNo, page: PageId) {
        let slot = slot.0 as usize;
        self.pieces[slot / PIECE_SLOTS][slot % PIECE_SLOTS] = page;
    }

    fn iter(&self) -> impl Iterator<Item = &PageId> {
        self.pieces.iter().flatten()
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

    fn set(&mut self, slot: SlotNo, on: bool) {
        let (word, bit) = (&mut self.words[slot.0 as usize / 64], 1u64 << (slot.0 % 64));
        *word = if on { *word | bit } else { *word & !bit };
    }
}
