//! Which page is in a slot.
//!
//! A page that is only in its slot, or is being read from it, is on no queue. So its links are free to
//! chain it to the others of its group of four slots, and the table has a head for each group: a byte
//! a slot. Pages that read-ahead brought are on a queue and found by a table of their own.

use alloc::vec::Vec;

use super::{Links, PageId, Pages, READ_AHEAD, State};
use crate::units::{SlotNo, SlotRange};

/// Slots of a group, and steps of a search at most. With 2 the table takes two bytes a slot; with more
/// than 4 pages that are scattered over memory are found after more cache misses.
const GROUP_SLOTS: usize = 4;
/// Groups of a piece: 16 MiB of the file, the extent that a process of several leases.
const PIECE_GROUPS: usize = 1 << 10;

/// The states of pages that are chained, a bit a state.
const CHAINED: usize = 1 << State::PagedOut as usize | 1 << State::Reading as usize;

/// Whether a page in `state` is chained.
pub(super) const fn chains(state: State) -> bool {
    CHAINED >> state as usize & 1 == 1
}

#[derive(Default)]
pub(super) struct BySlot {
    /// Of the store's slots, and of those of the pool of compressed pages.
    heads: [Heads; 2],
    ahead: Ahead,
    /// Pages that read-ahead brought and nobody touched.
    brought: usize,
}

/// Heads by group. In pieces, empty where the process has no slots: the table grows while threads
/// wait for faults, and nothing is copied.
#[derive(Default)]
struct Heads(Vec<Vec<PageId>>);

impl Heads {
    fn reach(&mut self, start: usize, end: usize) {
        const PIECE_SLOTS: usize = GROUP_SLOTS * PIECE_GROUPS;
        let pieces = start / PIECE_SLOTS..end.div_ceil(PIECE_SLOTS);
        if self.0.len() < pieces.end {
            self.0.resize_with(pieces.end, Vec::new);
        }
        for piece in &mut self.0[pieces] {
            if piece.is_empty() {
                *piece = alloc::vec![PageId::NONE; PIECE_GROUPS];
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let heads: usize = self.0.iter().map(Vec::len).sum();
        heads * size_of::<PageId>() + self.0.capacity() * size_of::<Vec<PageId>>()
    }
}

/// Which table the slot is in, and its number there.
const fn within(slot: SlotNo) -> (usize, usize) {
    let start = SlotNo::POOL_START.0;
    if slot.0 >= start {
        (1, (slot.0 - start) as usize)
    } else {
        (0, slot.0 as usize)
    }
}

impl BySlot {
    pub(super) fn heap_bytes(&self) -> usize {
        let heads: usize = self.heads.iter().map(Heads::heap_bytes).sum();
        heads + self.ahead.cells.len() * size_of::<PageId>()
    }

    fn head(&self, slot: SlotNo) -> PageId {
        let (table, number) = within(slot);
        let group = number / GROUP_SLOTS;
        let piece = self.heads[table].0.get(group / PIECE_GROUPS);
        piece
            .and_then(|piece| piece.get(group % PIECE_GROUPS))
            .map_or(PageId::NONE, |&head| head)
    }

    /// # Panics
    /// When there is no room for `slot`.
    pub(super) fn head_mut(&mut self, slot: SlotNo) -> &mut PageId {
        let (table, number) = within(slot);
        let group = number / GROUP_SLOTS;
        &mut self.heads[table].0[group / PIECE_GROUPS][group % PIECE_GROUPS]
    }
}

impl Pages {
    /// Makes room for pages in the slots of `range`, which are all of the store or all of the pool.
    pub fn add_slots(&mut self, range: SlotRange) {
        let (table, start) = within(range.start);
        self.by_slot.heads[table].reach(start, start + range.slots as usize);
    }

    /// The page that is only in `slot`, or is being read from it.
    #[must_use]
    pub fn in_slot(&self, slot: SlotNo) -> Option<PageId> {
        let mut at = self.by_slot.head(slot);
        while at.is_some() {
            if self.slot(at) == slot {
                return Some(at);
            }
            at = self.link(at).next;
        }
        None
    }

    pub(super) fn chain(&mut self, id: PageId) {
        let slot = self.slot(id);
        let next = core::mem::replace(self.by_slot.head_mut(slot), id);
        let prev = PageId::NONE;
        *self.link_mut(id) = Links { prev, next };
        if next.is_some() {
            self.link_mut(next).prev = id;
        }
    }

    pub(super) fn unchain(&mut self, id: PageId) {
        let Links { prev, next } = self.link(id);
        if prev.is_some() {
            self.link_mut(prev).next = next;
        } else {
            *self.by_slot.head_mut(self.slot(id)) = next;
        }
        if next.is_some() {
            self.link_mut(next).prev = prev;
        }
    }

    /// The page, which is paged out or being read, is in `slot` from now on.
    pub fn move_to_slot(&mut self, id: PageId, slot: SlotNo) {
        debug_assert!(chains(self.state(id)));
        self.unchain(id);
        self.entry_mut(id).slot = slot;
        self.chain(id);
    }

    /// Calls `visit` with every slot that a page has.
    pub fn each_slot(&self, visit: &mut dyn FnMut(SlotNo)) {
        let slots = self.slabs.iter().flatten().map(|entry| entry.slot);
        slots.filter(|slot| slot.is_some()).for_each(visit);
    }

    /// Read-ahead brings the page, which nobody touched yet.
    pub fn set_read_ahead(&mut self, id: PageId) {
        self.by_slot.brought += usize::from(!self.has(id, READ_AHEAD));
        self.set_flag(id, READ_AHEAD, true);
    }

    /// How many pages read-ahead brought, or is bringing, that nobody touched.
    #[must_use]
    pub const fn read_ahead(&self) -> usize {
        self.by_slot.brought
    }

    /// From now on [`Self::ahead_in_slot`] finds the page, which read-ahead brought, until
    /// [`Self::clear_read_ahead`].
    pub fn find_ahead_by_slot(&mut self, id: PageId) {
        debug_assert!(self.has(id, READ_AHEAD));
        let mut ahead = core::mem::take(&mut self.by_slot.ahead);
        ahead.insert(id, self);
        self.by_slot.ahead = ahead;
    }

    /// The page that read-ahead brought from `slot`, where that was noted.
    #[must_use]
    pub fn ahead_in_slot(&self, slot: SlotNo) -> Option<PageId> {
        let ahead = &self.by_slot.ahead;
        if ahead.used == 0 {
            return None;
        }
        let id = ahead.cells[ahead.find(slot, self)];
        id.is_some().then_some(id)
    }

    /// The page is no longer one that read-ahead brought and nobody touched.
    pub fn clear_read_ahead(&mut self, id: PageId) {
        self.by_slot.brought -= usize::from(self.has(id, READ_AHEAD));
        self.set_flag(id, READ_AHEAD, false);
        if self.by_slot.ahead.used > 0 {
            let mut ahead = core::mem::take(&mut self.by_slot.ahead);
            ahead.remove(id, self);
            self.by_slot.ahead = ahead;
        }
    }
}

/// Pages by their slots: open addressing, linear probing, at most half full.
#[derive(Default)]
struct Ahead {
    cells: Vec<PageId>,
    used: usize,
}

impl Ahead {
    /// Fibonacci hashing, as in [`super::directory`].
    fn home(&self, slot: SlotNo) -> usize {
        let bits = self.cells.len().trailing_zeros();
        (slot.0.wrapping_mul(0x9E37_79B9) >> (32 - bits)) as usize
    }

    /// The cell of the page in `slot`, or the vacant one where the search ends.
    fn find(&self, slot: SlotNo, pages: &Pages) -> usize {
        let mask = self.cells.len() - 1;
        let mut at = self.home(slot);
        while self.cells[at].is_some() && pages.slot(self.cells[at]) != slot {
            at = (at + 1) & mask;
        }
        at
    }

    fn insert(&mut self, id: PageId, pages: &Pages) {
        /// One window of the default size.
        const CELLS_MIN: usize = 128;
        if (self.used + 1) * 2 > self.cells.len() {
            let size = (self.cells.len() * 2).max(CELLS_MIN);
            let old = core::mem::replace(&mut self.cells, alloc::vec![PageId::NONE; size]);
            self.used = 0;
            for id in old.into_iter().filter(|id| id.is_some()) {
                self.insert(id, pages);
            }
        }
        let at = self.find(pages.slot(id), pages);
        self.cells[at] = id;
        self.used += 1;
    }

    /// Backward-shift deletion; nothing when the page is not there.
    fn remove(&mut self, id: PageId, pages: &Pages) {
        let mask = self.cells.len() - 1;
        let mut hole = self.find(pages.slot(id), pages);
        if self.cells[hole] != id {
            return;
        }
        let mut at = (hole + 1) & mask;
        while self.cells[at].is_some() {
            let home = self.home(pages.slot(self.cells[at]));
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = self.cells[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.cells[hole] = PageId::NONE;
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ObjectId, PageNo};

    /// `count` paged-out pages, the n-th in slot `slot(n)`.
    fn paged_out(count: u64, slot: impl Fn(u32) -> u32) -> (Pages, Vec<PageId>) {
        let mut pages = Pages::new();
        pages.add_slots(SlotRange::new(SlotNo(0), 1 << 16));
        let ids = (0..count).map(|index| {
            let id = pages.create(PageNo::new(ObjectId(1), index), State::Resident);
            pages.set_slot(id, SlotNo(slot(index as u32)));
            pages.set_state(id, State::Detaching);
            pages.set_state(id, State::Staged);
            pages.set_state(id, State::PagedOut);
            id
        });
        let ids = ids.collect();
        (pages, ids)
    }

    #[test]
    fn a_page_is_found_by_its_slot_as_long_as_it_is_only_there() {
        let slot = |n: u32| n.wrapping_mul(4099) % (1 << 16);
        let (mut pages, ids) = paged_out(5000, slot);
        let every_third = |n: usize| n.is_multiple_of(3);
        for (_, &id) in ids.iter().enumerate().filter(|(n, _)| every_third(*n)) {
            pages.set_state(id, State::Reading);
            assert_eq!(pages.in_slot(pages.slot(id)), Some(id), "being read");
            pages.set_state(id, State::Staged);
        }
        for (n, &id) in ids.iter().enumerate() {
            let found = pages.in_slot(SlotNo(slot(n as u32)));
            assert_eq!(found, (!every_third(n)).then_some(id), "page {n}");
        }
        assert_eq!(pages.in_slot(SlotNo(1 << 20)), None, "beyond the table");
    }

    #[test]
    fn a_forgotten_page_leaves_its_chain() {
        let (mut pages, ids) = paged_out(4, |n| n);
        pages.forget(ids[1]);
        pages.forget(ids[3]);
        let found = [0, 1, 2, 3].map(|slot| pages.in_slot(SlotNo(slot)));
        assert_eq!(found, [Some(ids[0]), None, Some(ids[2]), None]);
    }

    #[test]
    fn pages_read_ahead_are_found_until_they_are_touched_or_forgotten() {
        let slot = |n: u32| n.wrapping_mul(4099) % (1 << 16);
        let (mut pages, ids) = paged_out(1000, slot);
        for &id in &ids {
            pages.set_state(id, State::Reading);
            pages.set_read_ahead(id);
            pages.set_state(id, State::Staged);
            pages.find_ahead_by_slot(id);
        }
        assert_eq!(pages.read_ahead(), 1000);
        for (n, &id) in ids.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
            if n % 4 == 0 {
                pages.clear_read_ahead(id);
                pages.clear_read_ahead(id);
            } else {
                pages.forget(id);
            }
        }
        assert_eq!(pages.read_ahead(), 500);
        for (n, &id) in ids.iter().enumerate() {
            let found = pages.ahead_in_slot(SlotNo(slot(n as u32)));
            assert_eq!(found, (n % 2 == 1).then_some(id), "page {n}");
        }
    }

    #[test]
    fn the_table_has_room_only_where_slots_are() {
        let mut pages = Pages::new();
        let empty = pages.heap_bytes();
        pages.add_slots(SlotRange::new(SlotNo(1 << 24), 4096));
        let grown = pages.heap_bytes() - empty;
        assert!((4096..4096 + (1 << 18)).contains(&grown), "{grown} bytes");
    }
}
