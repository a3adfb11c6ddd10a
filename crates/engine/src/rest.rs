//! Waiting, on the pager's thread, until something is as it has to be.
//!
//! A thread that unmaps memory goes on as soon as the kernel has told, and the pager waits for the transfers of that range. Others touch
//! their pages meanwhile: their faults are served, but for those where mappings change. What they ask and what they change waits: it is
//! known, and nothing old is mapped there. A fork alone has everybody wait, for nothing may be under way then.

use outpage_core::contract::{Access, Event, Source, Waiter};
use outpage_core::page::State;
use outpage_core::units::{Nanos, PAGE_BYTES, PageRange};
use outpage_sys::clock;

use crate::live::{Live, STUCK_MAX};

/// A sleep while a transfer is waited for: its end is heard of, so it is for a store that does not tell.
const WAIT: Nanos = Nanos(10_000_000);
/// A sleep while a frame is waited for, which comes free by a tick.
const MOMENT: Nanos = Nanos(1_000_000);

impl Live {
    /// Waits until no action touches `range`, so that it may be unmapped or discarded.
    pub(crate) fn quiesce(&mut self, range: PageRange) {
        // All but transfers are answered when they are carried out.
        self.drive();
        while self.transfers.iter().any(|t| t.touches(range)) {
            self.go_on(WAIT);
        }
    }

    /// Does what can be done while something is waited for; sleeps for `patience` at most where that is nothing.
    pub(crate) fn go_on(&mut self, patience: Nanos) {
        let done = self.complete_io() + self.serve_others();
        self.drive();
        if done == 0 {
            self.sleep_for(patience);
        }
    }

    /// Serves faults where nothing is changing and nothing is withheld; the others are kept for later. How many were served.
    fn serve_others(&mut self) -> usize {
        self.world.door.gather();
        let mut served = 0;
        while let Some(fault) = self.world.door.next_fault() {
            if self.is_settled(fault.address) {
                self.fault(&fault);
                served += 1;
            } else {
                self.later.push_back(fault);
            }
        }
        served
    }

    /// Whether what is known at `address` is what lies there, and stays so whatever is waited for.
    fn is_settled(&self, address: usize) -> bool {
        let page = address & !(PAGE_BYTES - 1);
        !self.winds_up && self.world.space.is_served(page) && !self.world.is_disturbed(page)
    }

    /// Has `act` done while no fault in `start..end` is served.
    pub(crate) fn withholding<T>(
        &mut self,
        (start, end): (usize, usize),
        act: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.world.space.withhold(start, end);
        let result = act(self);
        self.world.space.serve_again();
        result
    }

    /// Waits until nothing is under way at all, beside the loop neither. Nobody is served meanwhile.
    pub(crate) fn quiesce_all(&mut self) {
        self.drive();
        while self.pager.in_flight() > 0 || self.beside.is_busy() {
            if self.pager.in_flight() > 0 {
                self.store.wait(WAIT.0);
            } else {
                self.sleep_for(WAIT);
            }
            self.complete_io();
            self.drive();
        }
    }

    /// Whether nothing is under way, beside the loop neither, and the program changes nothing.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.pager.in_flight() == 0 && !self.beside.is_busy() && self.world.is_calm()
    }

    /// Brings the page at `address`, if it is managed, into the program, and waits until it is there.
    pub(crate) fn bring_in(&mut self, address: usize) {
        self.bring_in_within(address, STUCK_MAX);
    }

    /// The same, for `patience` at most where it waits for a frame.
    pub(crate) fn bring_in_within(&mut self, address: usize, patience: Nanos) {
        let Some(region) = self.world.space.at(address).copied() else {
            return;
        };
        let page = region.page(address);
        let event = Event::Fault {
            page,
            access: Access::Write,
            waiter: Waiter(0),
            source: Source(0),
            extent: region.pages(),
        };
        self.pager.handle(clock::now(), event);
        self.drive();
        self.quiesce(PageRange::one(page));
        // It may wait for a frame; where nothing can be mapped at all, whoever touches it will see.
        let give_up = clock::now().0 + patience.0;
        while clock::now().0 < give_up
            && self.world.change_at(address).is_none()
            && !matches!(
                self.pager.state(page),
                State::Resident | State::Poisoned | State::Detaching
            )
        {
            self.go_on(MOMENT);
            self.pager.handle(clock::now(), Event::Tick);
            self.drive();
            self.quiesce(PageRange::one(page));
        }
    }
}
