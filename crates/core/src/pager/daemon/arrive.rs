//! What follows when an action is answered, and when pages come or go by events.

use super::PageDaemon;
use super::reserve::Reserve;
use crate::contract::{ActionId, IoFailure, Outcome, PageOutcome, Refusal};
use crate::page::{Bit, COLLECTED, DIRTY, PageId, State};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::reclaim::bsd;
use crate::units::{PageNo, PageRange};

impl PageDaemon {
    /// An action was answered.
    pub fn done(&mut self, ledger: &mut Ledger, id: ActionId, outcome: Outcome<'_>) {
        let kind = ledger.ops[id].kind;
        match (kind, outcome) {
            (Kind::ZeroFill, Outcome::Pages(&[outcome])) => self.zero_filled(ledger, id, outcome),
            (Kind::PageIn, Outcome::Done) => self.arrived(ledger, id),
            (Kind::PageIn, Outcome::Failed(_)) => {
                ledger.page_in_failed(id);
                self.wake_poisoned(ledger, id);
            }
            (Kind::PageOut, Outcome::Done) => self.laundered(ledger, id),
            (Kind::PageOut, Outcome::Failed(why)) => self.not_laundered(ledger, id, why),
            (Kind::Poison, Outcome::Done) => ledger.poisoned(id),
            (kind, outcome) => panic!("{outcome:?} does not answer {kind:?}"),
        }
        ledger.ops.finish(id);
    }

    fn zero_filled(&mut self, ledger: &mut Ledger, op: ActionId, outcome: PageOutcome) {
        let page = ledger.ops[op].run.start;
        let id = ledger.known(page);
        match outcome {
            PageOutcome::Done | PageOutcome::Refused(Refusal::Present) => {
                self.enter_for_first(ledger, id, page);
            }
            PageOutcome::Refused(_) => {
                ledger.drop_page(id);
                self.reserve.freed(ledger);
            }
            outcome => panic!("a mapping was answered by {outcome:?}"),
        }
        self.restart(ledger, page);
    }

    /// Ends the fault that brought the page; without it the page is a candidate like others.
    fn enter_for_first(&mut self, ledger: &mut Ledger, id: PageId, page: PageNo) {
        let among = 0..ledger.waits.sleepers();
        if let Some((_, demand)) = ledger.waits.take_sleeper(among, PageRange::one(page)) {
            self.enter(ledger, id, demand);
        } else {
            if ledger.pages.state(id) == State::Mapping {
                ledger.pages.set_state(id, State::Resident);
                ledger.pages.set_bit(id, Bit::Writable, true);
            }
            bsd::deactivate(&mut ledger.pages, id);
        }
    }

    /// Pages were read: the demanded one is mapped, the others wait at the end of the inactive queue.
    fn arrived(&mut self, ledger: &mut Ledger, op: ActionId) {
        let pages = ledger.ops[op].pages().clone();
        let ids = ledger.ops[op].lend_ids();
        let run = ledger.ops[op].run;
        for (&page, &id) in pages.iter().zip(&ids) {
            ledger.pages.set_flag(id, DIRTY, false);
            ledger.pages.advance(id, State::Reading, State::Staged);
            if !run.contains(page) {
                bsd::deactivate(&mut ledger.pages, id);
            }
        }
        if run.pages > 0 {
            let id = ledger.known(run.start);
            self.enter_for_first(ledger, id, run.start);
        }
        if ledger.waits.sleepers() > 0 {
            pages.iter().for_each(|&page| self.restart(ledger, page));
        }
        ledger.ops[op].return_ids(ids);
    }

    fn wake_poisoned(&mut self, ledger: &mut Ledger, op: ActionId) {
        let pages = ledger.ops[op].pages().clone();
        for &page in pages.iter() {
            if ledger.pages.state_of(page) == State::Poisoned {
                self.restart(ledger, page);
            }
        }
    }

    /// Pages are in their slots. They stay where they are, for a later scan to cache, unless memory
    /// is very short.
    fn laundered(&mut self, ledger: &mut Ledger, op: ActionId) {
        self.each_laundered(ledger, op, |reserve, ledger, id| {
            ledger.pages.set_flag(id, DIRTY, false);
            if reserve.severe(ledger) {
                ledger.pages.unqueue(id);
                reserve.put_in_cache(ledger, id);
            }
        });
    }

    /// Pages could not be written: they are dirty still, and active.
    fn not_laundered(&mut self, ledger: &mut Ledger, op: ActionId, why: IoFailure) {
        ledger.stats.write_errors += 1;
        self.each_laundered(ledger, op, |_, ledger, id| {
            ledger.take_slot_back(id, why);
            bsd::activate(&mut ledger.pages, id);
        });
    }

    fn each_laundered(
        &mut self,
        ledger: &mut Ledger,
        op: ActionId,
        mut then: impl FnMut(&mut Reserve, &mut Ledger, PageId),
    ) {
        self.laundry.written();
        let pages = ledger.ops[op].pages().clone();
        let ids = ledger.ops[op].lend_ids();
        for &id in &ids {
            let mapped = ledger.pages.bit(id, Bit::Mapped);
            let state = if mapped {
                State::Resident
            } else {
                State::Staged
            };
            ledger.pages.set_state(id, state);
            then(&mut self.reserve, ledger, id);
        }
        if ledger.waits.sleepers() > 0 {
            pages.iter().for_each(|&page| self.restart(ledger, page));
        }
        ledger.ops[op].return_ids(ids);
    }

    /// Pages that were in memory before the pager began: nobody knows what is in them.
    pub fn adopt(&mut self, ledger: &mut Ledger, range: PageRange) {
        for page in range.iter() {
            if ledger.pages.find(page).is_none() {
                let id = ledger.pages.create(page, State::Resident);
                ledger.pages.set_flag(id, DIRTY, true);
                ledger.pages.set_bit(id, Bit::Writable, true);
                bsd::activate(&mut ledger.pages, id);
                self.reserve.taken(Reserve::available(ledger));
            }
        }
    }

    /// Drops the contents of `range`: frames and slots.
    pub fn discard(&mut self, ledger: &mut Ledger, range: PageRange) {
        let ids = self.ranges.gather(&ledger.pages, range);
        for &id in &ids {
            match ledger.pages.state(id) {
                State::Resident | State::Staged | State::PagedOut | State::Poisoned => {}
                busy => panic!("{:?} discarded while {busy:?}", ledger.pages.number(id)),
            }
            if ledger.pages.has(id, COLLECTED) {
                self.laundry.unbuffer(ledger, id);
            }
            let had_slot = ledger.pages.slot(id).is_some();
            ledger.drop_page(id);
            if had_slot {
                self.reserve.slots_freed(ledger);
            }
            ledger.stats.discarded += 1;
        }
        self.ranges.put_back(ids);
        self.reserve.freed(ledger);
        ledger.wake_whose_page_is_gone(range);
        while let Some((_, demand)) = ledger.waits.take_sleeper(0..ledger.waits.sleepers(), range) {
            ledger.wake_demand(&demand);
        }
    }
}
