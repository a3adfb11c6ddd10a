//! The bits of pages that a body with bits sets by its touches, 64 pages a word.
//!
//! | bit | set | cleared |
//! |---|---|---|
//! | mapped | the page becomes Resident | it stops being Resident; under a daemon, which writes pages where they are mapped, not by Writing |
//! | writable | with mapped; under a daemon by write faults, and by read faults of pages that are not kept read-only | with mapped; when a write begins (it stays clear when that is done) |
//! | referenced | any touch through the mapping | when the page is mapped or unmapped; by the policy |
//! | modified | a write through the mapping; adoption | when the page is staged, written or forgotten |
//!
//! Two more belong to a daemon: noted (BSD's `PG_REFERENCED`, which outlives a mapping) and seen
//! (`PG_WINATCFLS`: met dirty on the inactive queue before). So does the age (`act_count`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{LEAF_PAGES, LEAF_SHIFT, PageId, Pages, SLAB_LEAVES, State};
use crate::contract::Access;
use crate::units::PageRange;

/// One of the bits of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Bit {
    /// The program can read it without the pager's help.
    Mapped = 0,
    /// The program can write it, if it is mapped.
    Writable,
    /// Touched through its mapping.
    Referenced,
    /// Written through its mapping.
    Modified,
    /// A reference that was noted by a fault, or when the mapping went.
    Noted,
    /// Met dirty on the inactive queue before.
    Seen,
}

const MAPPED: usize = Bit::Mapped as usize;
const WRITABLE: usize = Bit::Writable as usize;
const REFERENCED: usize = Bit::Referenced as usize;
const MODIFIED: usize = Bit::Modified as usize;
const NOTED: usize = Bit::Noted as usize;

/// The bits of a leaf, by [`Bit`].
type Words = [u64; 6];

/// The bits of all leaves.
pub(super) struct Bits {
    slabs: Vec<Box<[Words; SLAB_LEAVES]>>,
    /// Only under a daemon.
    ages: Option<Vec<Box<[[u8; LEAF_PAGES]; SLAB_LEAVES]>>>,
}

impl Bits {
    fn new(daemon: bool) -> Self {
        Self {
            slabs: Vec::new(),
            ages: daemon.then(Vec::new),
        }
    }

    pub(super) fn add_slab(&mut self) {
        self.slabs.push(slab([0; 6]));
        if let Some(ages) = &mut self.ages {
            ages.push(slab([0; LEAF_PAGES]));
        }
    }

    #[inline]
    fn words(&self, leaf: usize) -> &Words {
        &self.slabs[leaf / SLAB_LEAVES][leaf % SLAB_LEAVES]
    }

    #[inline]
    fn words_mut(&mut self, leaf: usize) -> &mut Words {
        &mut self.slabs[leaf / SLAB_LEAVES][leaf % SLAB_LEAVES]
    }

    /// The page went from one state to another.
    #[expect(clippy::inline_always, reason = "as for `Pages::set_state`")]
    #[inline(always)]
    pub(super) fn follow(&mut self, id: PageId, from: State, state: State) {
        let (daemon, bit) = (self.ages.is_some(), 1u64 << id.offset());
        // Most transitions find nothing to clear: only what was mapped has bits.
        let unmapped = from as u8 != State::Detaching as u8;
        match state {
            State::Reading | State::Mapping | State::Poisoned => return,
            State::Writing | State::PagedOut if !daemon => return,
            State::Staged if !daemon && unmapped => return,
            _ => {}
        }
        let words = self.words_mut(id.leaf());
        match state {
            State::Resident if daemon => words[MAPPED] |= bit,
            State::Resident => {
                words[MAPPED] |= bit;
                words[WRITABLE] |= bit;
                words[REFERENCED] &= !bit;
            }
            State::Writing => words[WRITABLE] &= !bit,
            // The body still has to say what it detached.
            State::Detaching => {
                words[MAPPED] &= !bit;
                words[WRITABLE] &= !bit;
            }
            // A daemon folds what the mapping knew into its own bits.
            State::Staged if daemon => {
                words[MAPPED] &= !bit;
                words[WRITABLE] &= !bit;
                words[REFERENCED] &= !bit;
            }
            State::Staged => {
                words[REFERENCED] &= !bit;
                words[MODIFIED] &= !bit;
            }
            State::Untouched | State::PagedOut => {
                words.iter_mut().for_each(|word| *word &= !bit);
                if let Some(ages) = &mut self.ages {
                    ages[id.leaf() / SLAB_LEAVES][id.leaf() % SLAB_LEAVES][id.offset()] = 0;
                }
            }
            State::Reading | State::Mapping | State::Poisoned => {}
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let ages = self.ages.as_ref().map_or(0, |a| a.len() * LEAF_PAGES);
        (self.slabs.len() * size_of::<Words>() + ages) * SLAB_LEAVES
    }
}

/// A piece of the table, on the heap from the beginning.
fn slab<T: Clone>(zero: T) -> Box<[T; SLAB_LEAVES]> {
    let slab = alloc::vec![zero; SLAB_LEAVES].into_boxed_slice();
    slab.try_into().ok().expect("so many were asked for")
}

impl Pages {
    /// An empty table for a body with bits. Under a daemon pages have ages too, and a page may be
    /// written where it is mapped.
    #[must_use]
    pub fn with_bits(daemon: bool) -> Self {
        Self {
            bits: Some(Bits::new(daemon)),
            ..Self::new()
        }
    }

    /// Whether pages take the transitions of the second table.
    #[must_use]
    #[inline]
    pub fn under_daemon(&self) -> bool {
        self.bits.as_ref().is_some_and(|bits| bits.ages.is_some())
    }

    /// The bit of the page; false where the body has none.
    #[must_use]
    #[inline]
    pub fn bit(&self, id: PageId, bit: Bit) -> bool {
        self.bits
            .as_ref()
            .is_some_and(|bits| bits.words(id.leaf())[bit as usize] >> id.offset() & 1 == 1)
    }

    /// Sets or clears the bit, where the body has any.
    #[inline]
    pub fn set_bit(&mut self, id: PageId, bit: Bit, on: bool) {
        if let Some(bits) = &mut self.bits {
            let mask = 1u64 << id.offset();
            let word = &mut bits.words_mut(id.leaf())[bit as usize];
            *word = if on { *word | mask } else { *word & !mask };
        }
    }

    /// Clears the noted and the referenced bit, and says which was set.
    pub fn take_references(&mut self, id: PageId) -> (bool, bool) {
        let Some(bits) = &mut self.bits else {
            return (false, false);
        };
        let (words, bit) = (bits.words_mut(id.leaf()), 1u64 << id.offset());
        let taken = (words[NOTED] & bit != 0, words[REFERENCED] & bit != 0);
        words[NOTED] &= !bit;
        words[REFERENCED] &= !bit;
        taken
    }

    /// A fault ended with the page, which is mapped: writable, referenced in every way.
    pub fn set_entered(&mut self, id: PageId) {
        if let Some(bits) = &mut self.bits {
            let (words, bit) = (bits.words_mut(id.leaf()), 1u64 << id.offset());
            for word in [WRITABLE, REFERENCED, NOTED] {
                words[word] |= bit;
            }
        }
    }

    /// How often the page was found referenced, as the daemon weighs it; 0 without a daemon.
    #[must_use]
    pub fn age(&self, id: PageId) -> u8 {
        let ages = self.bits.as_ref().and_then(|bits| bits.ages.as_ref());
        ages.map_or(0, |a| {
            a[id.leaf() / SLAB_LEAVES][id.leaf() % SLAB_LEAVES][id.offset()]
        })
    }

    /// Sets the age; nothing without a daemon.
    pub fn set_age(&mut self, id: PageId, age: u8) {
        if let Some(ages) = self.bits.as_mut().and_then(|bits| bits.ages.as_mut()) {
            ages[id.leaf() / SLAB_LEAVES][id.leaf() % SLAB_LEAVES][id.offset()] = age;
        }
    }

    /// Touches the pages of `run` one after the other, until one needs the pager's help: it is not
    /// mapped, or is to be written and not writable. Returns how many needed none; their bits are
    /// set, 64 pages at a time.
    ///
    /// # Panics
    /// When the body has no bits.
    pub fn touch(&mut self, run: PageRange, access: Access) -> u64 {
        let end = run.start.raw() + run.pages;
        let mut at = run.start.raw();
        while at < end {
            let Some((leaf, hit, pages)) = self.open(at, end, access) else {
                break;
            };
            let words = self.bits.as_mut().expect("looked at").words_mut(leaf);
            words[REFERENCED] |= hit;
            if access == Access::Write {
                words[MODIFIED] |= hit;
            }
            at += pages;
            if pages == 0 || at & (LEAF_PAGES as u64 - 1) != 0 {
                break;
            }
        }
        at - run.start.raw()
    }

    /// As [`Self::touch`], without touching.
    ///
    /// # Panics
    /// When the body has no bits.
    #[must_use]
    pub fn touchable(&self, run: PageRange, access: Access) -> u64 {
        let end = run.start.raw() + run.pages;
        let mut at = run.start.raw();
        while at < end {
            let pages = self.open(at, end, access).map_or(0, |open| open.2);
            at += pages;
            if pages == 0 || at & (LEAF_PAGES as u64 - 1) != 0 {
                break;
            }
        }
        at - run.start.raw()
    }

    /// The leaf of page `at`, the bits of the pages from there on, below `end` and in that leaf,
    /// that need no help, and how many these are. `None` without a leaf.
    #[inline]
    fn open(&self, at: u64, end: u64, access: Access) -> Option<(usize, u64, u64)> {
        let leaf = self.directory.get(at >> LEAF_SHIFT)? as usize;
        let words = self.bits.as_ref().expect("a body with bits").words(leaf);
        let first = at & (LEAF_PAGES as u64 - 1);
        let pages = (LEAF_PAGES as u64 - first).min(end - at);
        let wanted = u64::MAX >> (LEAF_PAGES as u64 - pages) << first;
        let open = match access {
            Access::Read => words[MAPPED],
            Access::Write => words[MAPPED] & words[WRITABLE],
        };
        let missing = wanted & !open;
        // All below the first page that is missing.
        let below = (missing & missing.wrapping_neg()).wrapping_sub(1);
        let open = if missing == 0 {
            pages
        } else {
            u64::from(missing.trailing_zeros()) - first
        };
        Some((leaf, wanted & below, open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ObjectId, PageNo, SlotNo, SlotRange};

    fn page(index: u64) -> PageNo {
        PageNo::new(ObjectId(1), index)
    }

    fn resident(range: core::ops::Range<u64>) -> Pages {
        let mut pages = Pages::with_bits(false);
        for index in range {
            pages.create(page(index), State::Resident);
        }
        pages
    }

    #[test]
    fn a_touch_ends_at_the_first_page_that_is_not_mapped() {
        let mut pages = resident(10..300);
        let touch = |pages: &mut Pages, start, count| {
            pages.touch(PageRange::new(page(start), count), Access::Read)
        };
        assert_eq!(touch(&mut pages, 10, 290), 290);
        assert_eq!(touch(&mut pages, 10, 291), 290);
        assert_eq!(touch(&mut pages, 9, 5), 0);
        assert_eq!(touch(&mut pages, 1000, 5), 0);
        assert_eq!(touch(&mut pages, 64, 64), 64);
        let hole = pages.find(page(130)).expect("made");
        pages.set_state(hole, State::Detaching);
        assert_eq!(touch(&mut pages, 64, 200), 66);
        assert_eq!(touch(&mut pages, 131, 1), 1);
    }

    #[test]
    fn bits_tell_what_was_touched_and_how() {
        let mut pages = resident(0..128);
        pages.touch(PageRange::new(page(60), 8), Access::Write);
        pages.touch(PageRange::new(page(68), 2), Access::Read);
        for index in 0..128 {
            let id = pages.find(page(index)).expect("made");
            assert_eq!(
                pages.bit(id, Bit::Referenced),
                (60..70).contains(&index),
                "{index}"
            );
            assert_eq!(
                pages.bit(id, Bit::Modified),
                (60..68).contains(&index),
                "{index}"
            );
        }
        let id = pages.find(page(61)).expect("made");
        pages.set_bit(id, Bit::Writable, false);
        assert_eq!(
            pages.touch(PageRange::new(page(60), 8), Access::Write),
            1,
            "page 61 is read-only"
        );
        assert_eq!(pages.touch(PageRange::new(page(60), 8), Access::Read), 8);
    }

    #[test]
    fn what_was_written_is_known_until_the_page_is_staged() {
        let mut pages = resident(0..1);
        let id = pages.find(page(0)).expect("made");
        pages.touch(PageRange::one(page(0)), Access::Write);
        pages.set_state(id, State::Detaching);
        assert!(pages.bit(id, Bit::Modified) && !pages.bit(id, Bit::Mapped));
        pages.set_state(id, State::Resident);
        assert!(pages.bit(id, Bit::Modified), "it was refused");
        pages.set_state(id, State::Detaching);
        pages.set_state(id, State::Staged);
        assert!(!pages.bit(id, Bit::Modified));
    }

    #[test]
    fn a_forgotten_leaf_is_not_touched() {
        let mut pages = resident(0..1);
        assert_eq!(pages.touch(PageRange::one(page(0)), Access::Read), 1);
        let id = pages.find(page(0)).expect("made");
        pages.forget(id);
        pages.create(page(64), State::Resident);
        assert_eq!(pages.touch(PageRange::one(page(0)), Access::Read), 0);
    }

    #[test]
    fn state_with_bits_and_ages_is_at_most_33_bytes_a_touched_page() {
        let mut pages = Pages::with_bits(true);
        let touched = 1 << 18;
        for index in 0..touched {
            pages.create(page(index), State::Mapping);
        }
        // Finding the page by its slot takes a byte for each.
        pages.add_slots(SlotRange::new(SlotNo(0), touched as u32));
        let bytes = pages.heap_bytes();
        assert!(bytes <= 33 * touched as usize, "{bytes} bytes");
    }
}
