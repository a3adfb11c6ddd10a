//! The swap store of the model: what is in each slot, and who may write it.

use std::collections::{BTreeMap, BTreeSet};

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::{PAGE_BYTES, PageNo, SlotNo, SlotRange};

/// The content of a page: the number of the write that it stems from; 0 for zeroes.
pub type Content = u64;

/// What the content comes to: one in five does not compress, one in five takes no room.
fn compressed(content: Content) -> Option<u16> {
    let mixed = content.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    match mixed % 5 {
        0 => None,
        1 => Some(0),
        _ => Some(64 + (mixed >> 8) as u16 % 3500),
    }
}

#[derive(Default)]
pub struct Store {
    content: BTreeMap<SlotNo, Content>,
    /// Slots that this process may write.
    own: BTreeSet<SlotNo>,
    /// Slots of failed writes and reads: never used again.
    retired: BTreeSet<SlotNo>,
    /// Slots that a forked child may read.
    kept: BTreeMap<SlotNo, Content>,
    /// Slots that are being written.
    writing: BTreeSet<SlotNo>,
    /// Which slot the pager is to remember for which page.
    bound: BTreeMap<PageNo, SlotNo>,
    owner: BTreeMap<SlotNo, PageNo>,
    /// Of pages that the pool has, those whose slot has the same content still.
    stored: BTreeMap<PageNo, SlotNo>,
    /// How many pages left the pool for theirs.
    pub ceded: u64,
    /// How many were damaged in the pool, and are read from theirs.
    pub saved: u64,
    /// It could not grow when that was tried last.
    pub full: bool,
    granted: u32,
    extent: u32,
    /// Extents that nobody has, and how often one was given up.
    given_up: Vec<SlotRange>,
    pub shrunk: u64,
    /// What the pool of compressed pages keeps.
    pool: BTreeMap<SlotNo, Content>,
    /// Slots that were told dead, and in how many runs.
    pub told_dead: BTreeSet<SlotNo>,
    pub told_runs: u64,
}

impl Store {
    pub fn slot(&self, page: PageNo) -> Option<SlotNo> {
        self.bound.get(&page).copied()
    }

    /// Pages that have a slot of the store.
    pub fn bound(&self) -> usize {
        let bound = self.bound.values().filter(|slot| !slot.is_pooled());
        bound.count() + self.stored.len()
    }

    /// Frames that the pool takes.
    pub fn pool_frames(&self) -> usize {
        let bytes = self.pool.values().map(|&content| compressed(content));
        let bytes: usize = bytes.map(|bytes| usize::from(bytes.unwrap_or(0))).sum();
        bytes.div_ceil(PAGE_BYTES)
    }

    /// Keeps the page compressed, with as many frames more as `grant`. What becomes of it.
    pub fn keep(
        &mut self,
        page: PageNo,
        slot: SlotNo,
        content: Content,
        grant: &mut usize,
        stored: Option<SlotNo>,
    ) -> PageOutcome {
        assert!(self.writing.remove(&slot));
        assert_eq!(self.bound.get(&page), Some(&slot));
        let before = self.pool_frames();
        assert_eq!(self.pool.insert(slot, content), None, "{slot:?} is taken");
        let outcome = match compressed(content) {
            None => PageOutcome::Refused(Refusal::Unfit),
            Some(_) if self.pool_frames() > before + *grant => {
                PageOutcome::Refused(Refusal::NoRoom)
            }
            Some(bytes) => PageOutcome::Kept { bytes },
        };
        if !matches!(outcome, PageOutcome::Kept { .. }) {
            self.pool.remove(&slot);
            self.leave_place(page, stored);
        }
        *grant -= self.pool_frames() - before;
        outcome
    }

    /// The page goes to the pool, its slot with it, if it has one.
    pub fn enter_pool(&mut self, page: PageNo) {
        if let Some(slot) = self.bound.remove(&page) {
            assert!(!slot.is_pooled());
            self.stored.insert(page, slot);
        }
    }

    /// The page is in the pool no more: it is in its slot, or nowhere.
    ///
    /// Which, the pager says, which may have given the slot back where the store cannot grow.
    pub fn leave_place(&mut self, page: PageNo, slot: Option<SlotNo>) {
        let place = self.bound.remove(&page).expect("it has a place");
        assert!(place.is_pooled());
        self.owner.remove(&place);
        let before = self.stored.remove(&page);
        assert!(self.full || before == slot, "{page:?} in {slot:?}");
        if let Some(before) = before {
            self.owner.remove(&before);
        }
        if let Some(slot) = slot {
            assert_eq!(self.owner.insert(slot, page), None, "{slot:?} is in use");
            self.bound.insert(page, slot);
        }
    }

    /// The page was damaged in the pool: it is read from its slot, if it has one.
    pub fn damaged(&mut self, page: PageNo, slot: Option<SlotNo>) {
        if slot.is_some() {
            self.leave_place(page, slot);
            self.saved += 1;
        }
    }

    /// Of what is told dead, pages that are in the store leave the pool for it.
    pub fn cede(&mut self, places: SlotRange, slot: impl Fn(PageNo) -> Option<SlotNo>) {
        for place in places.iter() {
            if let Some(&page) = self.owner.get(&place) {
                let slot = slot(page);
                assert!(slot.is_some(), "{page:?} is nowhere else");
                self.leave_place(page, slot);
                self.ceded += 1;
            }
        }
    }

    /// Where the store cannot grow the pager may give back the slots of what is in the pool, and has `used` slots: `stored` says which of these a page has still. Whatever it
    /// says, nobody else has such a slot, and what is read there must be the page's.
    pub fn follow(&mut self, used: usize, stored: impl Fn(PageNo) -> Option<SlotNo>) {
        if !self.full || used == self.bound() {
            return;
        }
        self.forget_stored();
        for (&page, place) in &self.bound {
            if place.is_pooled()
                && let Some(slot) = stored(page)
            {
                assert_eq!(self.owner.insert(slot, page), None, "{slot:?} is in use");
                self.stored.insert(page, slot);
            }
        }
    }

    fn forget_stored(&mut self) {
        for slot in std::mem::take(&mut self.stored).into_values() {
            self.owner.remove(&slot);
        }
    }

    /// The slot is used for something else, or told dead: if it was that of a page in the pool, such slots were given back.
    fn given_back(&mut self, slot: SlotNo) {
        let page = self.owner.get(&slot);
        if self.full && page.is_some_and(|page| self.stored.get(page) == Some(&slot)) {
            self.forget_stored();
        }
    }

    /// Takes a page out of the pool.
    pub fn take_out(&mut self, slot: SlotNo) -> Content {
        self.pool.remove(&slot).expect("it is kept")
    }

    pub fn content(&self, slot: SlotNo) -> Content {
        self.content[&slot]
    }

    /// What the page's slot holds, or the pool for it.
    pub fn copy_of(&self, page: PageNo) -> Option<Content> {
        let slot = self.slot(page)?;
        let held = if slot.is_pooled() {
            &self.pool
        } else {
            &self.content
        };
        held.get(&slot).copied()
    }

    /// The next extent of at least `slots` slots, unless the store would exceed `most`. One that was given up comes first.
    pub fn grow(&mut self, slots: u32, most: u32) -> Option<SlotRange> {
        if let Some(range) = self.given_up.pop() {
            self.own.extend(range.iter());
            self.extent = range.slots;
            return Some(range);
        }
        let range = SlotRange::new(SlotNo(self.granted), slots.min(most - self.granted));
        if range.slots == 0 {
            return None;
        }
        self.granted += range.slots;
        self.extent = range.slots;
        self.own.extend(range.iter());
        Some(range)
    }

    /// The pager gives up an extent: nothing is in it, and nobody reads it.
    pub fn shrink(&mut self, extent: SlotRange) {
        self.expect_unused(extent);
        for slot in extent.iter() {
            self.own.remove(&slot);
            self.content.remove(&slot);
        }
        self.given_up.push(extent);
        self.shrunk += 1;
    }

    /// Slots that it may write, and the size of the extent that it got last.
    pub fn room(&self) -> (usize, usize) {
        (self.own.len(), self.extent as usize)
    }

    /// Slots so far.
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// Slots that a write could go to.
    pub fn free(&self) -> usize {
        let free = |slot: &&SlotNo| {
            !self.owner.contains_key(slot)
                && !self.retired.contains(slot)
                && !self.kept.contains_key(slot)
        };
        self.own.iter().filter(free).count()
    }

    /// A write of `page` to `slot` begins; nobody else may have a claim on the slot.
    pub fn begin_write(&mut self, page: PageNo, slot: SlotNo) {
        self.given_back(slot);
        let own = slot.is_pooled() || self.own.contains(&slot);
        assert!(own, "{slot:?} is not this process's");
        assert!(!self.retired.contains(&slot), "{slot:?} failed before");
        assert!(!self.kept.contains_key(&slot), "a child needs {slot:?}");
        assert!(self.writing.insert(slot), "{slot:?} written twice at once");
        assert_eq!(self.owner.insert(slot, page), None, "{slot:?} is in use");
        assert_eq!(self.bound.insert(page, slot), None, "{page:?} has a slot");
    }

    pub fn end_write(&mut self, page: PageNo, slot: SlotNo, content: Content) {
        assert!(self.writing.remove(&slot));
        self.content.insert(slot, content);
        assert_eq!(self.bound.get(&page), Some(&slot));
    }

    /// The write failed; what is in the slot now is anybody's guess.
    pub fn fail_write(&mut self, page: PageNo, slot: SlotNo, retire: bool) {
        self.end_write(page, slot, Content::MAX);
        self.unbind(page);
        if retire {
            self.retired.insert(slot);
        }
    }

    /// The pager need not remember the page's slot any more.
    pub fn unbind(&mut self, page: PageNo) {
        let slots = [self.bound.remove(&page), self.stored.remove(&page)];
        for slot in slots.into_iter().flatten() {
            self.owner.remove(&slot);
        }
    }

    /// The page's slot cannot be read: it is given up for good.
    pub fn lose(&mut self, page: PageNo) {
        let slot = self.slot(page).expect("it had one");
        if !slot.is_pooled() {
            self.retired.insert(slot);
        }
        self.unbind(page);
    }

    /// Slots that are told dead: this process's to write, and nobody's to read.
    pub fn expect_dead(&mut self, slots: SlotRange) {
        self.expect_unused(slots);
        if !slots.start.is_pooled() {
            self.told_dead.extend(slots.iter());
            self.told_runs += 1;
        }
    }

    fn expect_unused(&mut self, slots: SlotRange) {
        assert!(slots.slots > 0);
        for slot in slots.iter() {
            self.given_back(slot);
            let own = slot.is_pooled() || self.own.contains(&slot);
            assert!(own, "{slot:?} is not this process's");
            assert!(!self.writing.contains(&slot), "{slot:?} is being written");
            assert_eq!(self.owner.get(&slot), None, "{slot:?} is in use");
            assert!(!self.kept.contains_key(&slot), "a child needs {slot:?}");
            assert!(!self.retired.contains(&slot), "{slot:?} failed before");
        }
    }

    /// Lets go of dead slots: whoever reads one before it is written again finds nothing.
    pub fn forget(&mut self, slots: SlotRange) {
        for slot in slots.iter() {
            self.content.remove(&slot);
            self.pool.remove(&slot);
        }
    }

    pub fn keep_for_child(&mut self) {
        for slot in self.owner.keys().filter(|slot| !slot.is_pooled()) {
            self.kept.insert(*slot, self.content[slot]);
        }
    }

    /// What a child would read must be what it was.
    pub fn check_kept(&self) {
        for (slot, content) in &self.kept {
            assert_eq!(self.content[slot], *content, "the child's {slot:?}");
        }
    }

    pub fn children_gone(&mut self) {
        self.check_kept();
        self.kept.clear();
        self.full = false;
    }

    /// In the child: all slots so far are the parent's.
    pub fn disown(&mut self) {
        self.own.clear();
        self.kept.clear();
        self.full = false;
    }
}
