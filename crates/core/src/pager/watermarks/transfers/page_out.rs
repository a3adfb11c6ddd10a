//! Dirty pages are gathered, given slots and written.

use super::{Transfers, WRITE_FAILURES_MAX};
use crate::contract::{ActionId, IoFailure};
use crate::page::{COLLECTED, DIRTY, PageId, Queue, State};
use crate::pageout::{Chunk, Inactive};
use crate::pager::WRITES_MAX;
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::watermarks::eviction::Eviction;
use crate::pager::watermarks::rescue::Rescue;
use crate::slots::place;
use crate::units::{PageNo, PageRange, SlotRange};

impl Transfers {
    /// Whether the store counts as broken.
    pub const fn store_fails(&self) -> bool {
        self.write_failures_in_a_row >= WRITE_FAILURES_MAX
    }

    /// A store that failed is tried once in a while: it may have been mended.
    pub fn try_store_again(&mut self) {
        self.write_failures_in_a_row = self.write_failures_in_a_row.min(WRITE_FAILURES_MAX - 1);
    }

    /// Whether one more write may be in flight and there are slots for it.
    pub fn may_write(&self, ledger: &mut Ledger) -> bool {
        self.may_begin_write(ledger) && ledger.slots.available() > 0
    }

    /// Whether one more write may be in flight; if so, asks for slots in time.
    pub fn may_begin_write(&self, ledger: &mut Ledger) -> bool {
        if self.writes >= WRITES_MAX || self.store_fails() {
            return false;
        }
        if self.wants_room(ledger) {
            ledger.grow(self.chunk_pages);
        }
        true
    }

    /// Whether slots are to be asked for.
    pub fn wants_room(&self, ledger: &mut Ledger) -> bool {
        !ledger.swap_full && !ledger.growing && ledger.slots.wants_room(self.chunk_pages)
    }

    /// Adds the cluster of a victim, a dirty page that was taken off its queue, to what is written next; returns its
    /// pages.
    pub fn collect(
        &mut self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        victim: PageId,
    ) -> usize {
        let page = ledger.pages.number(victim);
        // The victim was taken off its queue; no policy asks whether it takes part.
        let view = Candidates(ledger);
        let taken = self.pageout.collect(page, &view, &mut self.ready);
        debug_assert!(taken.contains(page));
        for page in taken.iter() {
            let id = ledger.known(page);
            ledger.pages.unqueue(id);
            ledger.pages.set_flag(id, COLLECTED, true);
        }
        self.write_ready(ledger, eviction);
        taken.pages as usize
    }

    /// The scan is over: what was collected is written.
    pub fn finish(&mut self, ledger: &mut Ledger, eviction: &mut Eviction) {
        self.pageout.finish(&mut self.ready);
        self.write_ready(ledger, eviction);
    }

    /// Gives the ready chunk its slots and writes it.
    fn write_ready(&mut self, ledger: &mut Ledger, eviction: &mut Eviction) {
        if self.ready.pages.is_empty() {
            return;
        }
        let mut placed = core::mem::take(&mut self.placed);
        placed.clear();
        place(&self.ready, ledger.slots.allocator(), &mut placed);
        ledger.stats.clusters += self.ready.clusters.len() as u64;
        let chunk = core::mem::replace(&mut self.ready, Chunk::with_capacity(0));
        for p in &placed {
            let pages = &chunk.pages[p.first..p.first + p.slots.slots as usize];
            self.write(ledger, pages, p.slots);
        }
        let found: u32 = placed.iter().map(|p| p.slots.slots).sum();
        if found < chunk.len() {
            for &page in &chunk.pages {
                let id = ledger.known(page);
                if ledger.pages.has(id, COLLECTED) {
                    self.not_placed(ledger, eviction, id);
                }
            }
        }
        self.ready = chunk;
        self.ready.clear();
        self.placed = placed;
    }

    /// There is no run of slots for the page. A store that cannot grow is used to the last slot;
    /// otherwise the page stays in memory until there is more room.
    fn not_placed(&mut self, ledger: &mut Ledger, eviction: &mut Eviction, id: PageId) {
        if ledger.swap_full
            && let Some(slot) = ledger.slots.allocator().alloc(1)
        {
            let page = ledger.pages.number(id);
            return self.write(ledger, &[page], slot);
        }
        if !ledger.swap_full {
            ledger.grow(self.chunk_pages);
        }
        ledger.stats.not_placed += u64::from(ledger.swap_full);
        ledger.pages.set_flag(id, COLLECTED, false);
        eviction.reclaim.not_written(&mut ledger.pages, id);
    }

    fn write(&mut self, ledger: &mut Ledger, pages: &[PageNo], slots: SlotRange) {
        let op = ledger.start(Kind::PageOut, PageRange::new(PageNo::from_raw(0), 0));
        for (&page, slot) in pages.iter().zip(slots.iter()) {
            let id = ledger.known(page);
            ledger.ops[op].add(id, page);
            ledger.ops[op].must_have(ledger.pages.hash(id));
            let entry = ledger.pages.advance(id, State::Staged, State::Writing);
            debug_assert!(!{ entry.slot }.is_some(), "a dirty page gave its slot back");
            entry.slot = slot;
            entry.set_flag(COLLECTED, false);
        }
        ledger.slots.bind(slots.slots);
        self.writes += 1;
        ledger.page_out(op, slots);
    }

    /// Pages are safely in their slots.
    #[inline(never)]
    pub fn paged_out(
        &mut self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        rescue: &Rescue,
        op: ActionId,
    ) {
        self.write_failures_in_a_row = 0;
        self.each_written(ledger, op, true, |ledger, id, page| {
            eviction.settle(ledger, rescue, id, page, true);
        });
    }

    /// Pages could not be written: they stay in memory, dirty, and are tried elsewhere.
    pub fn page_out_failed(
        &mut self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        rescue: &Rescue,
        op: ActionId,
        why: IoFailure,
    ) {
        ledger.stats.write_errors += 1;
        self.write_failures_in_a_row += 1;
        ledger.swap_full |= why == IoFailure::NoSpace;
        self.each_written(ledger, op, false, |ledger, id, page| {
            ledger.take_slot_back(id, why);
            if ledger.is_awaited(page) {
                rescue.map_around(ledger, id);
            } else {
                eviction.reclaim.not_written(&mut ledger.pages, id);
            }
        });
    }

    fn each_written(
        &mut self,
        ledger: &mut Ledger,
        op: ActionId,
        clean: bool,
        mut then: impl FnMut(&mut Ledger, PageId, PageNo),
    ) {
        self.writes -= 1;
        let ids = ledger.ops[op].lend_ids();
        for &id in &ids {
            let page = ledger.pages.number(id);
            let entry = ledger.pages.advance(id, State::Writing, State::Staged);
            entry.set_flag(DIRTY, !clean);
            then(ledger, id, page);
        }
        ledger.ops[op].return_ids(ids);
    }
}

/// Which pages may go along with a victim: inactive, dirty and wanted.
struct Candidates<'a>(&'a Ledger);

impl Inactive for Candidates<'_> {
    fn takes_part(&self, page: PageNo) -> bool {
        let pages = &self.0.pages;
        pages.place(page).is_some_and(|id| {
            let entry = pages.entry(id);
            let leaves = matches!(entry.queue(), Queue::Inactive | Queue::Outward);
            leaves && entry.has(DIRTY) && !self.0.discarding.marks.is_marked(page)
        })
    }
}
