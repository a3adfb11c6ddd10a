//! What follows under a daemon when an action is answered, and when pages come or go by events.

use super::super::{Kind, Pager};
use crate::contract::{ActionId, IoFailure, Outcome, PageOutcome, Refusal};
use crate::page::{Bit, COLLECTED, DIRTY, PageId, State};
use crate::reclaim::bsd;
use crate::units::{PageNo, PageRange, SlotNo};

impl Pager {
    pub(super) fn done_under_daemon(&mut self, id: ActionId, outcome: Outcome<'_>) {
        let kind = self.ops[id].kind;
        match (kind, outcome) {
            (Kind::ZeroFill, Outcome::Pages(&[outcome])) => self.zero_filled(id, outcome),
            (Kind::PageIn, Outcome::Done) => self.arrived(id),
            (Kind::PageIn, Outcome::Failed(_)) => {
                self.page_in_failed(id);
                self.wake_poisoned(id);
            }
            (Kind::PageOut, Outcome::Done) => self.laundered(id),
            (Kind::PageOut, Outcome::Failed(why)) => self.not_laundered(id, why),
            (Kind::Poison, Outcome::Done) => self.poisoned(id),
            (kind, outcome) => panic!("{outcome:?} does not answer {kind:?}"),
        }
        self.ops.finish(id);
    }

    fn zero_filled(&mut self, op: ActionId, outcome: PageOutcome) {
        let page = self.ops[op].run.start;
        let id = self.known(page);
        match outcome {
            PageOutcome::Done | PageOutcome::Refused(Refusal::Present) => {
                self.enter_for_first(id, page);
            }
            PageOutcome::Refused(_) => {
                self.drop_page(id);
                let available = self.available();
                self.daemon_mut().freed(available);
            }
            outcome => panic!("a mapping was answered by {outcome:?}"),
        }
        self.restart(page);
    }

    /// Ends the fault that brought the page; without it the page is a candidate like others.
    fn enter_for_first(&mut self, id: PageId, page: PageNo) {
        if let Some((_, demand)) = self
            .waits
            .take_sleeper(0..self.waits.sleepers(), PageRange::one(page))
        {
            self.enter(id, demand);
        } else {
            if self.pages.state(id) == State::Mapping {
                self.pages.set_state(id, State::Resident);
                self.pages.set_bit(id, Bit::Writable, true);
            }
            bsd::deactivate(&mut self.pages, id);
        }
    }

    /// Pages were read: the demanded one is mapped, the others wait at the end of the inactive queue.
    fn arrived(&mut self, op: ActionId) {
        let pages = self.ops[op].pages().clone();
        let ids = self.ops[op].lend_ids();
        let run = self.ops[op].run;
        for (&page, &id) in pages.iter().zip(&ids) {
            self.pages.set_flag(id, DIRTY, false);
            self.pages.advance(id, State::Reading, State::Staged);
            if !run.contains(page) {
                bsd::deactivate(&mut self.pages, id);
            }
        }
        if run.pages > 0 {
            let id = self.known(run.start);
            self.enter_for_first(id, run.start);
        }
        if self.waits.sleepers() > 0 {
            pages.iter().for_each(|&page| self.restart(page));
        }
        self.ops[op].return_ids(ids);
    }

    fn wake_poisoned(&mut self, op: ActionId) {
        let pages = self.ops[op].pages().clone();
        for &page in pages.iter() {
            if self.pages.state_of(page) == State::Poisoned {
                self.restart(page);
            }
        }
    }

    /// Pages are in their slots. They stay where they are, for a later scan to cache, unless memory
    /// is very short.
    fn laundered(&mut self, op: ActionId) {
        self.each_laundered(op, |pager, id| {
            pager.pages.set_flag(id, DIRTY, false);
            if pager.severe() {
                pager.pages.unqueue(id);
                pager.put_in_cache(id);
            }
        });
    }

    /// Pages could not be written: they are dirty still, and active.
    fn not_laundered(&mut self, op: ActionId, why: IoFailure) {
        self.stats.write_errors += 1;
        self.each_laundered(op, |pager, id| {
            let slot = pager.pages.slot(id);
            pager.pages.set_slot(id, SlotNo::NONE);
            match why {
                IoFailure::NoSpace => pager.slots.release(slot),
                IoFailure::Device => pager.slots.retire(),
            }
            bsd::activate(&mut pager.pages, id);
        });
    }

    fn each_laundered(&mut self, op: ActionId, mut then: impl FnMut(&mut Self, PageId)) {
        self.writes -= 1;
        let pages = self.ops[op].pages().clone();
        let ids = self.ops[op].lend_ids();
        for &id in &ids {
            let mapped = self.pages.bit(id, Bit::Mapped);
            let state = if mapped {
                State::Resident
            } else {
                State::Staged
            };
            self.pages.set_state(id, state);
            then(self, id);
        }
        if self.waits.sleepers() > 0 {
            pages.iter().for_each(|&page| self.restart(page));
        }
        self.ops[op].return_ids(ids);
    }

    /// Pages that were in memory before the pager began: nobody knows what is in them.
    pub(super) fn adopt_under_daemon(&mut self, range: PageRange) {
        for page in range.iter() {
            if self.pages.find(page).is_none() {
                let id = self.pages.create(page, State::Resident);
                self.pages.set_flag(id, DIRTY, true);
                self.pages.set_bit(id, Bit::Writable, true);
                bsd::activate(&mut self.pages, id);
                let available = self.available();
                self.taken(available);
            }
        }
    }

    /// Drops the contents of `range`: frames and slots.
    pub(super) fn discard_under_daemon(&mut self, range: PageRange) {
        let mut ids = core::mem::take(&mut self.scratch);
        ids.clear();
        self.pages.collect_range(range, &mut |id| ids.push(id));
        ids.sort_unstable_by_key(|&id| self.pages.number(id));
        for &id in &ids {
            match self.pages.state(id) {
                State::Resident | State::Staged | State::PagedOut | State::Poisoned => {}
                busy => panic!("{:?} discarded while {busy:?}", self.pages.number(id)),
            }
            if self.pages.has(id, COLLECTED) {
                self.unbuffer(id);
            }
            let had_slot = self.pages.slot(id).is_some();
            self.drop_page(id);
            if had_slot {
                let free = self.slots.available();
                self.daemon_mut().slots_changed(true, free);
            }
            self.stats.discarded += 1;
        }
        self.scratch = ids;
        let available = self.available();
        self.daemon_mut().freed(available);
        self.wake_whose_page_is_gone(range);
        while let Some((_, demand)) = self.waits.take_sleeper(0..self.waits.sleepers(), range) {
            self.let_go(demand);
        }
    }
}
