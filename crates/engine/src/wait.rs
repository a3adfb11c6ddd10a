//! How the pager waits for what happens next.

use outpage_core::units::Nanos;
use outpage_sys::{clock, fd};

use crate::live::{DETACH_PAGES, Live};
use crate::placement::{Yielded, await_by_yielding};

/// A store without a descriptor is asked this often.
const ASK: Nanos = Nanos(1_000_000);

impl Live {
    /// Whether everything that was read is served: what a tick or a wait came by, and left, nobody is told of again.
    pub(crate) fn may_sleep(&self) -> bool {
        self.later.is_empty() && !self.world.door.has_read()
    }

    /// Until something happens. Beside the program's only faulting thread, a read is awaited by
    /// yielding: the CPU would be idle, and an idle virtual CPU takes longer to wake than the read.
    pub(crate) fn sleep(&mut self) {
        let reading = self.store.in_flight() > 0;
        let waiting = self.world.waiting.len();
        // The CPU would wait for the disk.
        if waiting > 0 && self.detach_some(DETACH_PAGES) {
            return;
        }
        if reading && waiting > 0 && self.placement.may_yield(waiting) {
            // The read is under way: what its end needs is done meanwhile.
            self.placement.hold_early();
            if self.await_read() {
                return;
            }
        }
        let ring = self.store.wake_fd().filter(|_| reading);
        let mut fds = [
            pollfd(self.world.door.fd()),
            pollfd(self.world.bells.fd()),
            pollfd(ring.unwrap_or(-1)),
            pollfd(self.beside.fd()),
            pollfd(self.lent.fd()),
        ];
        let now = clock::now();
        let due = if self.follows_share() {
            self.next_step.min(self.next_tick)
        } else {
            self.next_tick
        };
        let tick = due.0.saturating_sub(now.0).max(1_000_000);
        // A thread that waits stays bound until it goes on.
        let lease = self
            .placement
            .lease()
            .filter(|_| self.world.waiting.is_empty());
        let wait = match lease.map(|until| until.0.saturating_sub(now.0)) {
            Some(0) => {
                self.placement.let_go_of_old(now);
                tick
            }
            Some(left) => left.min(tick),
            None => tick,
        };
        let _ = fd::poll(&mut fds, Some(Nanos(wait)));
        if fds[4].revents != 0 {
            self.hear_from_home();
        }
        if self.placement.is_loose() {
            let took = clock::now().0.saturating_sub(now.0);
            self.placement.rested(Nanos(took));
        }
    }

    /// Until a transfer has ended or somebody faulted, for `patience` at most.
    pub(crate) fn sleep_for(&mut self, patience: Nanos) {
        let ring = self.store.wake_fd();
        let patience = match ring {
            Some(_) => patience,
            None => patience.min(ASK),
        };
        let mut fds = [
            pollfd(self.world.door.fd()),
            pollfd(ring.unwrap_or(-1)),
            pollfd(self.beside.fd()),
        ];
        let _ = fd::poll(&mut fds, Some(patience));
    }

    /// Yields until a transfer has ended, or a thread ran that may have faulted. False when that takes
    /// too long.
    fn await_read(&mut self) -> bool {
        let end = await_by_yielding(|| self.complete_io() > 0);
        self.placement.yielded(end);
        if end == Yielded::Done {
            self.drive_on();
        }
        end != Yielded::Late
    }
}

fn pollfd(fd: i32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}
