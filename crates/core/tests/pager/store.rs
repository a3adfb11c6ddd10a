//! The swap store of the model: what is in each slot, and who may write it.

use std::collections::{BTreeMap, BTreeSet};

use outpage_core::units::{PageNo, SlotNo, SlotRange};

/// The content of a page: the number of the write that it stems from; 0 for zeroes.
pub type Content = u64;

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
    granted: u32,
    /// Slots that were told dead, and in how many runs.
    pub told_dead: BTreeSet<SlotNo>,
    pub told_runs: u64,
}

impl Store {
    pub fn slot(&self, page: PageNo) -> Option<SlotNo> {
        self.bound.get(&page).copied()
    }

    pub fn bound(&self) -> usize {
        self.bound.len()
    }

    pub fn content(&self, slot: SlotNo) -> Content {
        self.content[&slot]
    }

    /// What the page's slot holds.
    pub fn copy_of(&self, page: PageNo) -> Option<Content> {
        self.slot(page)
            .and_then(|slot| self.content.get(&slot).copied())
    }

    /// The next extent of at least `slots` slots, unless the store would exceed `most`.
    pub fn grow(&mut self, slots: u32, most: u32) -> Option<SlotRange> {
        let range = SlotRange::new(SlotNo(self.granted), slots.min(most - self.granted));
        if range.slots == 0 {
            return None;
        }
        self.granted += range.slots;
        self.own.extend(range.iter());
        Some(range)
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
        assert!(self.own.contains(&slot), "{slot:?} is not this process's");
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
        if let Some(slot) = self.bound.remove(&page) {
            self.owner.remove(&slot);
        }
    }

    /// The page's slot cannot be read: it is given up for good.
    pub fn lose(&mut self, page: PageNo) {
        self.retired.extend(self.slot(page));
        self.unbind(page);
    }

    /// Slots that are told dead: this process's to write, and nobody's to read.
    pub fn expect_dead(&mut self, slots: SlotRange) {
        assert!(slots.slots > 0);
        for slot in slots.iter() {
            assert!(self.own.contains(&slot), "{slot:?} is not this process's");
            assert_eq!(self.owner.get(&slot), None, "{slot:?} is in use");
            assert!(!self.kept.contains_key(&slot), "a child needs {slot:?}");
            assert!(!self.retired.contains(&slot), "{slot:?} failed before");
        }
        self.told_dead.extend(slots.iter());
        self.told_runs += 1;
    }

    /// Lets go of dead slots: whoever reads one before it is written again finds nothing.
    pub fn forget(&mut self, slots: SlotRange) {
        for slot in slots.iter() {
            self.content.remove(&slot);
        }
    }

    pub fn keep_for_child(&mut self) {
        for slot in self.owner.keys() {
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
    }

    /// In the child: all slots so far are the parent's.
    pub fn disown(&mut self) {
        self.own.clear();
        self.kept.clear();
    }
}
