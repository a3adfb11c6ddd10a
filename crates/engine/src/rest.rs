//! Waiting, on the pager's thread, until something is as it has to be.

use outpage_core::contract::{Access, Event, Source, Waiter};
use outpage_core::page::State;
use outpage_core::units::{Nanos, PageNo, PageRange};
use outpage_sys::clock;

use crate::live::{Live, STUCK_MAX};
use crate::world::Mechanism;

impl Live {
    /// Waits until no action touches `range`, so that it may be unmapped or discarded.
    pub(crate) fn quiesce(&mut self, range: PageRange) {
        // All but transfers are answered when they are carried out.
        self.drive();
        while self.transfers.iter().any(|t| t.touches(range)) {
            self.store.wait(10_000_000);
            self.complete_io();
            self.drive();
        }
    }

    /// Waits until nothing is under way at all.
    pub(crate) fn quiesce_all(&mut self) {
        while self.pager.in_flight() > 0 {
            self.store.wait(10_000_000);
            self.complete_io();
            self.drive();
        }
    }

    /// Protects again what is staged in place, after the kernel dropped the protection: a staged page
    /// must not change.
    pub(crate) fn protect_staged(&mut self, which: impl Fn(PageNo) -> bool) {
        if self.world.mechanism == Mechanism::WriteProtect {
            let world = &mut self.world;
            self.pager.each_staged(&mut |page| {
                if which(page) {
                    world.protect_again(page);
                }
            });
        }
    }

    /// Brings the page at `address`, if it is managed, into the program, and waits until it is there.
    pub(crate) fn bring_in(&mut self, address: usize) {
        self.bring_in_within(address, STUCK_MAX);
    }

    /// The same, for `patience` at most where it waits for a frame.
    pub(crate) fn bring_in_within(&mut self, address: usize, patience: Nanos) {
        let Some(region) = self.world.regions.at(address).copied() else {
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
            self.store.wait(1_000_000);
            self.complete_io();
            self.pager.handle(clock::now(), Event::Tick);
            self.drive();
            self.quiesce(PageRange::one(page));
        }
    }
}
