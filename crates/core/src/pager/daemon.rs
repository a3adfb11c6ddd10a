//! The other driver: FreeBSD's page daemon, which is woken, in place of watermarks after each event.
//!
//! Where [`super::watermarks`] keeps a hard limit that victims are detached for, a daemon keeps a reserve: a fault takes
//! a frame from it at once, wakes the daemon when that leaves too few, and waits when there are hardly any. Frames are
//! the business of [`Reserve`], writes that of [`Laundry`]. FreeBSD `vm/vm_page.c:vm_page_alloc`, `vm_waitpfault`.

mod arrive;
mod fault;
mod laundry;
mod reserve;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use super::drops::take_back;
use super::ledger::Ledger;
use super::range::Ranges;
use super::waits::Demand;
use crate::contract::{Action, Event};
use crate::pageout::PageOut;
use crate::reclaim::bsd::{Daemon, Memory, Params, Release, Step};
use crate::units::{PageNo, PageRange};
use laundry::{Flushed, Laundry};
use reserve::Reserve;

/// The parts of the other driver; its faults need all of them.
pub(super) struct PageDaemon {
    reserve: Reserve,
    laundry: Laundry,
    ranges: Ranges,
}

impl PageDaemon {
    /// A daemon for `frames` frames, whose victims are grouped by `pageout`.
    pub fn new(params: Params, pageout: Box<dyn PageOut>, frames: usize) -> Self {
        Self {
            reserve: Reserve::new(Daemon::new(params, frames)),
            laundry: Laundry::new(pageout),
            ranges: Ranges::new(),
        }
    }

    /// The policy: levels, pass and counters.
    pub const fn daemon(&self) -> &Daemon {
        &self.reserve.daemon
    }

    const fn release(&self) -> Release {
        self.reserve.release()
    }

    /// Takes in what happened, and lets the daemon do what follows from it.
    pub fn handle(&mut self, ledger: &mut Ledger, event: Event<'_>) {
        match event {
            Event::Fault { .. } => {
                let demand = Demand::of(&event).expect("a fault");
                self.fault(ledger, demand);
            }
            Event::Done { id, outcome } => self.done(ledger, id, outcome),
            Event::Left(waiter) => ledger.waits.leave(waiter),
            Event::Adopt(range) => self.adopt(ledger, range),
            Event::Unmap(range) => {
                self.discard(ledger, range);
                // The kernel's object ends with its entry; a later one is another object.
                if range.start.index() == 0 {
                    self.laundry.forget_object(range.start.object());
                }
            }
            Event::Discard(range) => self.discard(ledger, range),
            Event::TakeBack(range) => take_back(ledger, range, |_, _| {}),
            Event::Discardable(_)
            | Event::Flush(_)
            | Event::Freeing(_)
            | Event::Freed(_)
            | Event::Advise(..) => {}
            Event::Limit(frames) => {
                ledger.limits.frames = frames;
                self.reserve.daemon.resize(frames);
                self.reserve.freed(ledger);
            }
            Event::Grown(range) => ledger.grown(range),
            Event::Full => ledger.full(),
            Event::Forking => ledger.slots.keep_for_child(&ledger.pages),
            Event::Forked => ledger.forked(),
            Event::ChildrenGone => ledger.slots.children_gone(),
            Event::Tick | Event::Timer => {}
            Event::Pooled(_) => unreachable!("a daemon has no pool"),
        }
        self.come_to_rest(ledger);
    }

    /// The daemon first, as it goes before programs; then whoever it lets go.
    fn come_to_rest(&mut self, ledger: &mut Ledger) {
        loop {
            self.run_daemon(ledger);
            if !self.reserve.daemon.lets_go() {
                return;
            }
            for _ in 0..ledger.waits.frames() {
                let demand = ledger.waits.take_for_frame().expect("counted");
                self.fault(ledger, demand);
            }
        }
    }

    fn run_daemon(&mut self, ledger: &mut Ledger) {
        let now = ledger.now;
        if self.reserve.daemon.rests(now) {
            return;
        }
        while self.flush_on(ledger) {
            let memory = Memory {
                free: ledger.frames_free(),
                slots_free: ledger.slots.available(),
            };
            let reserve = &mut self.reserve;
            match reserve.daemon.advance(now, &mut ledger.pages, memory) {
                Step::Rest => return,
                Step::Cache(id) => reserve.put_in_cache(ledger, id),
                Step::Launder(id) => self.laundry.launder(ledger, reserve, id),
                Step::Flush => self.laundry.flush_buffer(ledger),
                Step::FreeCached => reserve.reuse_cached(ledger),
                Step::Exhausted => {
                    let exhausted = Action::Exhausted { swap_full: true };
                    ledger.actions.push_back(exhausted);
                }
            }
        }
    }

    /// Writes what is left of the chunk. False when that takes a write more than may be in flight.
    fn flush_on(&mut self, ledger: &mut Ledger) -> bool {
        loop {
            match self.laundry.flush_on(ledger, &mut self.reserve) {
                Flushed::GaveUp(page) => self.restart(ledger, page),
                Flushed::Waits => return false,
                Flushed::All => return true,
            }
        }
    }

    /// Whoever sleeps on the page starts its fault again.
    fn restart(&mut self, ledger: &mut Ledger, page: PageNo) {
        // Whoever falls asleep again meanwhile is not asked twice.
        let (page, mut among) = (PageRange::one(page), 0..ledger.waits.sleepers());
        while let Some((at, demand)) = ledger.waits.take_sleeper(among.clone(), page) {
            among = at..among.end - 1;
            let demand = Demand {
                retried: true,
                ..demand
            };
            self.fault(ledger, demand);
        }
    }
}
