//! Places in the pool of compressed pages.
//!
//! They are numbers and no room: the pool takes frames for the pages it keeps, wherever these are small. They are handed out like a log, so
//! that from the cursor on round they stand in the order of their age, and pages that left together can come back together.

use alloc::vec::Vec;

use crate::slots::{Log, Slots};
use crate::units::{SlotNo, SlotRange};

/// Places that are made usable at a time, at least: as many as a piece of the table by slot has (`page/by_slot.rs`).
const EXTENT: u32 = 4096;

/// Which places are in use.
pub(super) struct Pooled {
    /// By place, in pieces of [`EXTENT`]: the slot of the store that has the same content, or none.
    stored: Vec<Vec<SlotNo>>,
    /// Of them, those that there are.
    stored_count: usize,
    /// By their number within the pool.
    free: Log,
    capacity: u32,
    usable: u32,
    /// Given back while a page is kept there, in runs: nothing goes there before the body has let go of it.
    dead: Vec<SlotRange>,
    /// Where the search for the oldest goes on.
    oldest: u32,
}

/// As numbered within the pool.
const fn inner(range: SlotRange) -> SlotRange {
    let start = SlotNo(range.start.0 - SlotNo::POOL_START.0);
    SlotRange::new(start, range.slots)
}

/// As everybody else numbers them.
const fn outer(range: SlotRange) -> SlotRange {
    let start = SlotNo(range.start.0 + SlotNo::POOL_START.0);
    SlotRange::new(start, range.slots)
}

impl Pooled {
    /// At most `capacity` places, none of them usable yet.
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            stored: Vec::new(),
            stored_count: 0,
            free: Log::new(capacity),
            capacity,
            usable: 0,
            dead: Vec::with_capacity(64),
            oldest: 0,
        }
    }

    /// Makes more places usable; which. `None` where enough are free: pages leave one by one and come together, and where three in four places are free,
    /// a run of 8 begins at every tenth of them.
    pub(super) fn extend(&mut self) -> Option<SlotRange> {
        let free = self.free.available();
        let slots = self.usable.max(EXTENT).min(self.capacity - self.usable);
        if slots == 0 || self.usable > 0 && free > 3 * (self.usable - free) {
            return None;
        }
        let more = SlotRange::new(SlotNo(self.usable), slots);
        self.usable += slots;
        self.free.add(more);
        let pieces = self.usable.div_ceil(EXTENT) as usize;
        (self.stored).resize_with(pieces, || alloc::vec![SlotNo::NONE; EXTENT as usize]);
        Some(outer(more))
    }

    /// `slots` neighbouring places, if there are such.
    pub(super) fn alloc(&mut self, slots: u32) -> Option<SlotRange> {
        let run = self.free.alloc(slots)?;
        if (run.start.0..run.end().0).contains(&self.oldest) {
            self.oldest = run.end().0;
        }
        Some(outer(run))
    }

    /// Where the slot of what is kept in `place` is noted.
    fn stored(&mut self, place: SlotNo) -> &mut SlotNo {
        let place = place.0 - SlotNo::POOL_START.0;
        &mut self.stored[(place / EXTENT) as usize][(place % EXTENT) as usize]
    }

    /// What is kept in `place` is in `slot` of the store too.
    pub(super) fn set_stored(&mut self, place: SlotNo, slot: SlotNo) {
        let before = core::mem::replace(self.stored(place), slot);
        debug_assert!(!before.is_some(), "{place:?} had a slot");
        self.stored_count += 1;
    }

    /// Takes the slot that has what is kept in `place`; none if there is none.
    pub(super) fn take_stored(&mut self, place: SlotNo) -> SlotNo {
        let slot = core::mem::replace(self.stored(place), SlotNo::NONE);
        self.stored_count -= usize::from(slot.is_some());
        slot
    }

    /// The slot that has what is kept in `place`; none if there is none.
    pub(super) fn stored_in(&self, place: SlotNo) -> SlotNo {
        let place = place.0 - SlotNo::POOL_START.0;
        self.stored[(place / EXTENT) as usize][(place % EXTENT) as usize]
    }

    /// Calls `visit` with each slot of the store that has what is kept here.
    pub(super) fn each_stored(&self, visit: &mut dyn FnMut(SlotNo)) {
        if self.stored_count > 0 {
            let slots = self.stored.iter().flatten().copied();
            slots.filter(|slot| slot.is_some()).for_each(visit);
        }
    }

    /// From now on the store has nothing of what is kept here; calls `visit` with each slot that had.
    pub(super) fn forget_stored(&mut self, visit: &mut dyn FnMut(SlotNo)) {
        if self.stored_count > 0 {
            self.each_stored(visit);
            (self.stored.iter_mut().flatten()).for_each(|slot| *slot = SlotNo::NONE);
            self.stored_count = 0;
        }
    }

    /// The place is the next one that [`Self::next_oldest`] finds.
    pub(super) fn look_again(&mut self, place: SlotNo) {
        self.oldest = place.0 - SlotNo::POOL_START.0;
    }

    /// Nothing is kept there, and the body knows.
    pub(super) fn give_back(&mut self, range: SlotRange) {
        self.free.free(inner(range));
    }

    /// What is kept there is not wanted any more.
    pub(super) fn release(&mut self, range: SlotRange) {
        match self.dead.last_mut() {
            Some(last) if last.end() == range.start => last.slots += range.slots,
            _ => self.dead.push(range),
        }
    }

    /// The next run that is to be told dead; [`Self::give_back`] follows when that is answered.
    pub(super) fn next_dead(&mut self) -> Option<SlotRange> {
        self.dead.pop()
    }

    /// The next place in order of age that is in use; the search goes on behind it, and round. `None` when none is in use.
    pub(super) fn next_oldest(&mut self) -> Option<SlotNo> {
        let found = self.next_used(self.oldest, self.usable);
        let found = found.or_else(|| self.next_used(0, self.oldest.min(self.usable)))?;
        self.oldest = found + 1;
        Some(SlotNo(SlotNo::POOL_START.0 + found))
    }

    /// The first place in use within `from..end`. Costs a step for each 64 free ones.
    fn next_used(&self, from: u32, end: u32) -> Option<u32> {
        let mut at = from;
        while at < end {
            let used = !self.free.free_word(at / 64) >> (at % 64);
            if used != 0 {
                return Some(at + used.trailing_zeros()).filter(|&found| found < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Bytes of heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.free.heap_bytes()
            + self.dead.capacity() * size_of::<SlotRange>()
            + self.stored.len() * EXTENT as usize * size_of::<SlotNo>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_come_first_and_what_is_dead_is_not_handed_out_before_it_was_told() {
        let mut pool = Pooled::new(EXTENT);
        let usable = pool.extend().expect("room");
        assert_eq!((usable.start, usable.slots), (SlotNo::POOL_START, EXTENT));
        assert!(pool.extend().is_none());
        let runs: Vec<_> = (0..EXTENT / 8)
            .map(|_| pool.alloc(8).expect("room"))
            .collect();
        assert_eq!(pool.alloc(1), None);
        assert_eq!(pool.next_oldest(), Some(runs[0].start));
        pool.release(runs[0]);
        pool.release(runs[1]);
        assert_eq!(pool.alloc(1), None, "not told yet");
        let dead = pool.next_dead().expect("two runs");
        assert_eq!((dead.start, dead.slots), (runs[0].start, 16));
        assert_eq!(
            (pool.next_dead(), pool.alloc(1)),
            (None, None),
            "not answered yet"
        );
        pool.give_back(dead);
        assert_eq!(pool.next_oldest(), Some(runs[2].start), "past the hole");
        assert_eq!(pool.alloc(8), Some(runs[0]));
        pool.give_back(runs[2]);
        assert_eq!(
            pool.next_oldest(),
            Some(runs[3].start),
            "not what is newest"
        );
    }
}
