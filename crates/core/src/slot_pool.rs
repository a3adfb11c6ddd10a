//! The slots of one pager: allocation, and what forks keep alive.

mod pooled;
mod spare;
mod untold;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::page::Pages;
use crate::slots::Slots;
use crate::units::{SlotNo, SlotRange};
use pooled::Pooled;
use spare::Spare;
use untold::Untold;

/// Slots, by who may write them.
pub struct SlotPool {
    /// Free slots of the extents that this pager may write.
    free: Box<dyn Slots>,
    build: fn(u32) -> Box<dyn Slots>,
    capacity: u32,
    /// Those extents, ascending, neighbours joined.
    own: Vec<SlotRange>,
    kept: Bits,
    deferred: Vec<SlotNo>,
    /// Where slots were given back since they were last told dead.
    untold: Untold,
    spare: Spare,
    used: usize,
    /// Places in the pool of compressed pages, where there is one.
    pooled: Option<Pooled>,
    /// Whether there should be more slots, and whether slots came or went since that was asked.
    low: bool,
    changed: bool,
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
            untold: Untold::default(),
            spare: Spare::default(),
            used: 0,
            pooled: None,
            low: false,
            changed: true,
        }
    }

    /// There is a pool of compressed pages too, of at most `places` pages.
    #[must_use]
    pub fn with_pool(mut self, places: u32) -> Self {
        self.pooled = Some(Pooled::new(places));
        self
    }

    /// `range` may be written from now on.
    pub fn add(&mut self, range: SlotRange) {
        self.changed = true;
        self.free.add(range);
        self.untold.reach(range.end());
        self.spare.granted(range);
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

    /// A moment passed: slots that were added at once, nothing is in, and are not needed for what is in use either. They are not this pager's any
    /// more. Looks at a bounded number of slots.
    pub fn give_up(&mut self) -> Option<SlotRange> {
        let slots = self.spare.look(self.used, &*self.free)?;
        if !self.free.remove(slots) {
            return None;
        }
        self.spare.given_up(slots);
        self.changed = true;
        let at = self.own.partition_point(|own| own.end() <= slots.start);
        let own = self.own.remove(at);
        let (before, behind) = (slots.start.0 - own.start.0, own.end().0 - slots.end().0);
        let rest = [
            SlotRange::new(own.start, before),
            SlotRange::new(slots.end(), behind),
        ];
        let rest = rest.into_iter().filter(|rest| rest.slots > 0);
        self.own.splice(at..at, rest);
        Some(slots)
    }

    /// Whether `range` can be added: slots that there may be, none of which was added before.
    #[must_use]
    pub fn admits(&self, range: SlotRange) -> bool {
        let end = range.start.0.checked_add(range.slots);
        let free = |own: &SlotRange| own.end() <= range.start || range.end() <= own.start;
        range.slots > 0 && end.is_some_and(|end| end <= self.capacity) && self.own.iter().all(free)
    }

    fn owns(&self, slot: SlotNo) -> bool {
        self.owned(slot).is_some()
    }

    /// The extent of `slot`, if it may be written.
    fn owned(&self, slot: SlotNo) -> Option<SlotRange> {
        let behind = self.own.partition_point(|own| own.start <= slot);
        let own = *self.own.get(behind.checked_sub(1)?)?;
        (slot < own.end()).then_some(own)
    }

    /// The allocator.
    pub fn allocator(&mut self) -> &mut dyn Slots {
        self.changed = true;
        &mut *self.free
    }

    /// Free slots.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.free.available()
    }

    /// Whether the file should grow, for writes of `chunk` pages, which is always the same.
    /// See [`Slots::wants_room`].
    pub fn wants_room(&mut self, chunk: u32) -> bool {
        if self.changed {
            self.changed = false;
            self.low = self.free.wants_room(self.used as u32, chunk);
        }
        self.low
    }

    /// Slots that hold a page.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// So many slots, just allocated, hold a page from now on.
    pub const fn bind(&mut self, slots: u32) {
        self.used += slots as usize;
        self.changed = true;
    }

    /// Slots can be allocated again: nobody of the family reads them.
    fn give_back(&mut self, slots: SlotRange) {
        self.free.free(slots);
        self.untold.add(slots);
    }

    /// The next run of slots that nobody reads and that may be written, near slots that were given back since the last time. What a
    /// child may read is not among them, nor what is the parent's. Looks at up to `look` words of 64 slots, or as many times 64 in which nothing was given back, and takes them off.
    pub fn next_dead(&mut self, look: &mut usize) -> Option<SlotRange> {
        self.untold.next(look, &*self.free)
    }

    /// The places of the pool that can be used beside those before, where it needs more.
    pub fn extend_pool(&mut self) -> Option<SlotRange> {
        self.pooled.as_mut()?.extend()
    }

    /// `places` neighbouring places in the pool, if there are such.
    pub fn alloc_pooled(&mut self, places: u32) -> Option<SlotRange> {
        self.pooled.as_mut()?.alloc(places)
    }

    /// Nothing is kept in these places of the pool, as the body said: they can be used again at once.
    pub fn taken_out(&mut self, places: SlotRange) {
        self.of_pool().give_back(places);
    }

    /// The next place of the pool in use, in order of age. The search goes on behind it, and round; `None` when none is in use.
    pub fn next_oldest_pooled(&mut self) -> Option<SlotNo> {
        self.pooled.as_mut()?.next_oldest()
    }

    /// The next run of places of the pool that is to be told dead.
    pub fn next_dead_pooled(&mut self) -> Option<SlotRange> {
        self.pooled.as_mut()?.next_dead()
    }

    /// The place is the next one that [`Self::next_oldest_pooled`] finds.
    pub fn look_again(&mut self, place: SlotNo) {
        self.of_pool().look_again(place);
    }

    /// What is kept in `place` of the pool is in `slot` of the store too, which is not reused until then.
    pub fn set_stored(&mut self, place: SlotNo, slot: SlotNo) {
        self.of_pool().set_stored(place, slot);
    }

    /// Takes the slot of the store that has what is kept in `place` of the pool, which is a page's again; [`SlotNo::NONE`] without one.
    pub fn take_stored(&mut self, place: SlotNo) -> SlotNo {
        self.of_pool().take_stored(place)
    }

    /// The slot of the store that has what is kept in `place` of the pool; [`SlotNo::NONE`] without one, and for what is no place of the pool.
    #[must_use]
    pub fn stored_in(&self, place: SlotNo) -> SlotNo {
        let pooled = self.pooled.as_ref().filter(|_| place.is_pooled());
        pooled.map_or(SlotNo::NONE, |pooled| pooled.stored_in(place))
    }

    /// Gives back the slots of the store that have what the pool keeps: they are needed for pages that are nowhere else.
    pub fn forget_stored(&mut self) {
        let Some(mut pooled) = self.pooled.take() else {
            return;
        };
        pooled.forget_stored(&mut |slot| self.release(slot));
        self.pooled = Some(pooled);
    }

    /// Calls `visit` with every slot and place that one of `pages` has, and with those of the store that have what the pool keeps.
    pub fn each_in_use(&self, pages: &Pages, visit: &mut dyn FnMut(SlotNo)) {
        each_in_use(self.pooled.as_ref(), pages, visit);
    }

    fn of_pool(&mut self) -> &mut Pooled {
        self.pooled.as_mut().expect("a place in a pool")
    }

    /// The content in `slot` is not wanted any more.
    pub fn release(&mut self, slot: SlotNo) {
        if slot.is_pooled() {
            return self.release_place(slot);
        }
        self.used -= 1;
        self.changed = true;
        if !self.owns(slot) {
            return; // The parent's: it holds the slot until this process is gone.
        }
        if self.kept.get(slot) {
            self.deferred.push(slot);
        } else {
            self.give_back(SlotRange::new(slot, 1));
        }
    }

    /// What is kept in a place of the pool is not wanted any more, nor is the slot that has it.
    fn release_place(&mut self, place: SlotNo) {
        let pooled = self.of_pool();
        let stored = pooled.take_stored(place);
        pooled.release(SlotRange::new(place, 1));
        if stored.is_some() {
            self.release(stored);
        }
    }

    /// The contents of all of `range` are not wanted any more.
    pub fn release_run(&mut self, range: SlotRange) {
        if range.slots == 0 {
            return;
        }
        if range.start.is_pooled() {
            return range.iter().for_each(|place| self.release_place(place));
        }
        let own = self.owned(range.start);
        let own = own.is_some_and(|own| range.end() <= own.end());
        let kept = !self.kept.words.is_empty() && range.iter().any(|slot| self.kept.get(slot));
        if own && !kept {
            self.used -= range.slots as usize;
            self.changed = true;
            self.give_back(range);
        } else {
            range.iter().for_each(|slot| self.release(slot));
        }
    }

    /// A slot in use failed and is never used again.
    pub const fn retire(&mut self) {
        self.used -= 1;
        self.changed = true;
    }

    /// A child is about to share every slot that one of `pages` has: none of them is reused before
    /// [`Self::children_gone`].
    pub fn keep_for_child(&mut self, pages: &Pages) {
        let end = self.own.last().map_or(0, |own| own.end().0);
        self.kept.reach(end as usize);
        let kept = &mut self.kept;
        let mut keep = |slot: SlotNo| {
            if slot.0 < end {
                kept.set(slot);
            }
        };
        each_in_use(self.pooled.as_ref(), pages, &mut keep);
    }

    /// No child is left, nor a child of one.
    pub fn children_gone(&mut self) {
        self.changed = true;
        self.kept = Bits::default();
        for slot in core::mem::take(&mut self.deferred) {
            self.give_back(SlotRange::new(slot, 1));
        }
    }

    /// In the child: everything so far is the parent's.
    pub fn disown(&mut self) {
        self.free = (self.build)(self.capacity);
        self.changed = true;
        self.own.clear();
        self.kept = Bits::default();
        self.deferred.clear();
        self.untold = Untold::default();
        self.spare = Spare::default();
    }

    /// Bytes of heap that were written to.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.free.heap_bytes()
            + self.own.capacity() * size_of::<SlotRange>()
            + self.kept.words.len() * 8
            + self.untold.heap_bytes()
            + self.spare.heap_bytes()
            + self.pooled.as_ref().map_or(0, Pooled::heap_bytes)
            + self.deferred.capacity() * size_of::<SlotNo>()
    }
}

fn each_in_use(pooled: Option<&Pooled>, pages: &Pages, visit: &mut dyn FnMut(SlotNo)) {
    pages.each_slot(visit);
    if let Some(pooled) = pooled {
        pooled.each_stored(visit);
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
        let words = end.div_ceil(64);
        if self.words.len() < words {
            // A store grows by many slots at a time: room for more would be wasted.
            self.words.reserve_exact(words - self.words.len());
            self.words.resize(words, 0);
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

    /// Takes a slot out; returns whether it was there.
    fn take(&mut self, slot: SlotNo) -> bool {
        let was = self.get(slot);
        if was {
            self.words[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
        }
        was
    }
}
