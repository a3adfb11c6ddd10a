//! The usual driver: a hard limit, and watermarks to which the queues are brought back after every event.
//!
//! Each part has its own state and is told what it needs: [`Faults`] what a touch leads to, [`Eviction`] which pages
//! leave and when, [`Transfers`] what is read and written, [`Ranges`] what comes and goes without a fault. Here is
//! who hears of what, and in which order.

mod advice;
mod discards;
mod eviction;
mod faults;
mod ranges;
mod rescue;
#[cfg(test)]
mod tests;
mod transfers;
mod zero_around;

use alloc::boxed::Box;

use super::ledger::Ledger;
use super::ops::Kind;
use super::range::Ranges;
use super::waits::Demand;
use crate::contract::{ActionId, Event, Outcome};
use crate::page::Pages;
use crate::pageout::PageOut;
use crate::readahead::Manner;
use crate::reclaim::Reclaim;
use eviction::Eviction;
use faults::Faults;
use transfers::Transfers;

/// How many pages come along with one that is touched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// The most pages of one zero-fill.
    pub zeroes: u32,
    /// Staged neighbours of a page that is rescued.
    pub rescued: u32,
}

/// The parts of the usual driver.
pub(super) struct Watermarks {
    faults: Faults,
    eviction: Eviction,
    transfers: Transfers,
    ranges: Ranges,
}

impl Watermarks {
    /// With these policies; `manner` is that of read-ahead.
    pub fn new(
        reclaim: Box<dyn Reclaim>,
        pageout: Box<dyn PageOut>,
        manner: &Manner,
        around: Around,
    ) -> Self {
        Self {
            faults: Faults::new(around),
            eviction: Eviction::new(reclaim),
            transfers: Transfers::new(pageout, manner.demand_first),
            ranges: Ranges::new(),
        }
    }

    /// Makes room for what is remembered of the pages that there is room for; away from the fault path.
    pub fn replenish(&mut self, pages: &Pages) {
        self.eviction.reclaim.reserve(pages.ids());
    }

    /// Bytes of heap for what victims are chosen by.
    pub fn heap_bytes(&self) -> usize {
        self.eviction.reclaim.heap_bytes()
    }

    /// Takes in what happened, and does what follows from it.
    #[inline]
    pub fn handle(&mut self, ledger: &mut Ledger, event: Event<'_>) {
        match event {
            Event::Done { id, outcome } => self.done(ledger, id, outcome),
            event => match Demand::of(&event) {
                Some(demand) => self.fault(ledger, &demand),
                None => self.handle_other(ledger, event),
            },
        }
        if ledger.advised.needs_any() {
            self.transfers.bring_needed(ledger, &mut self.eviction);
        }
        if !self.eviction.balanced(ledger, &self.transfers) {
            self.settle_down(ledger);
        }
    }

    #[inline]
    fn fault(&mut self, ledger: &mut Ledger, demand: &Demand) {
        let (eviction, transfers) = (&mut self.eviction, &self.transfers);
        self.faults.fault(ledger, eviction, transfers, demand);
    }

    /// An action was answered.
    fn done(&mut self, ledger: &mut Ledger, id: ActionId, outcome: Outcome<'_>) {
        let (faults, eviction) = (&mut self.faults, &mut self.eviction);
        let transfers = &mut self.transfers;
        let kind = ledger.ops[id].kind;
        match (kind, outcome) {
            (Kind::ZeroFill | Kind::Map | Kind::MapNeeded, Outcome::Pages(o)) => {
                faults.mapped(ledger, eviction, id, o);
            }
            (Kind::Detach | Kind::Flush | Kind::Cold, Outcome::Pages(o)) => {
                eviction.detached(ledger, faults, id, o)
            }
            (Kind::Drop, Outcome::Pages(o)) => eviction.dropped(ledger, id, o),
            (Kind::PageIn | Kind::Needed, Outcome::Pages(o)) => {
                transfers.paged_in(ledger, eviction, &faults.rescue, id, Some(o));
            }
            (Kind::PageIn | Kind::Needed, Outcome::Done) => {
                transfers.paged_in(ledger, eviction, &faults.rescue, id, None);
            }
            (Kind::PageIn | Kind::Needed, Outcome::Failed(_)) => ledger.page_in_failed(id),
            (Kind::PageOut, Outcome::Done) => {
                transfers.paged_out(ledger, eviction, &faults.rescue, id);
            }
            (Kind::PageOut, Outcome::Failed(why)) => {
                transfers.page_out_failed(ledger, eviction, &faults.rescue, id, why);
            }
            (Kind::Compress, Outcome::Pages(o)) => {
                transfers.compressed(ledger, eviction, &faults.rescue, id, o);
            }
            (Kind::Decompress | Kind::Demote, Outcome::Pages(o)) => {
                transfers.decompressed(ledger, &faults.rescue, id, Some(o));
            }
            (Kind::Decompress | Kind::Demote, Outcome::Done) => {
                transfers.decompressed(ledger, &faults.rescue, id, None);
            }
            (Kind::Cede, Outcome::Done) => transfers.ceded(ledger, id),
            (Kind::Release, Outcome::Done) => {}
            (Kind::Poison, Outcome::Done) => ledger.poisoned(id),
            (kind, outcome) => panic!("{outcome:?} does not answer {kind:?}"),
        }
        ledger.advised.reads -= usize::from(kind == Kind::Needed);
        ledger.ops.finish(id);
    }

    /// All but faults and answers.
    fn handle_other(&mut self, ledger: &mut Ledger, event: Event<'_>) {
        self.eviction.begin_exchange(ledger);
        match event {
            Event::Fault { .. } | Event::Done { .. } => unreachable!("handled before"),
            Event::Left(waiter) => ledger.waits.leave(waiter),
            Event::Adopt(range) => self.ranges.adopt(ledger, &mut self.eviction, range),
            Event::Unmap(range) => {
                self.ranges.discard(ledger, range);
                ledger.advised.forget(range);
            }
            Event::Discard(range) => self.ranges.discard(ledger, range),
            Event::Advise(advice, range) => self.ranges.advise(ledger, advice, range),
            Event::Discardable(range) => self.ranges.mark(ledger, range),
            Event::TakeBack(range) => self.eviction.take_back(ledger, range),
            Event::Flush(range) => self.ranges.flush(ledger, range),
            Event::Freeing(range) => self.ranges.freeing(ledger, range),
            Event::Freed(range) => self.ranges.freed(ledger, range),
            Event::Grown(range) => ledger.grown(range),
            Event::Full => ledger.full(),
            Event::Limit(frames) => {
                ledger.limit(frames, self.transfers.chunk_pages());
                ledger.ahead.resize(frames);
            }
            Event::Pooled(frames) => ledger.pooled(frames, self.transfers.chunk_pages()),
            Event::Forking => ledger.slots.keep_for_child(&ledger.pages),
            Event::Forked => {
                ledger.forked();
                self.eviction.forked(ledger);
            }
            Event::ChildrenGone => {
                ledger.slots.children_gone();
                ledger.swap_full = false;
            }
            Event::Tick => self.eviction.tick(ledger, &mut self.transfers),
            Event::Timer => {}
        }
    }

    /// Whether what is beyond the limit stays for now.
    pub fn rests(&self, ledger: &Ledger) -> bool {
        self.eviction.rests(ledger)
    }

    /// Serves who waits for a frame and brings the queues back to their watermarks.
    #[inline(never)]
    fn settle_down(&mut self, ledger: &mut Ledger) {
        let (faults, eviction) = (&mut self.faults, &mut self.eviction);
        loop {
            faults.retry_pending(ledger, eviction, &self.transfers);
            eviction.balance(ledger, &mut self.transfers);
            // Balancing may have found the frame that somebody waits for.
            if ledger.waits.frames() == 0 || !eviction.has_frame(ledger) {
                break;
            }
        }
    }
}
