//! Two levels: guests that page their own memory, on a host that pages the guests.
//!
//! Each guest has a pager of its own over its frames, its swap space and one virtual CPU with a program. What it calls a frame is a
//! page of the host's pager, which has fewer frames. Both swap spaces are on one disk. What a guest's disk reads or writes goes through the
//! host: a frame of the guest's that the host has paged out is read back first, whatever the guest is about to do with it.
//!
//! The host is the same pager as everywhere, with the notifier on its page-outs and page-ins; the guest hides what it is told of by
//! refusing it as a victim.
//!
//! Every guest has a CPU for itself. The kernels' own memory is not paged by anybody and not counted here.

mod frames;
mod guest;
mod host;
mod jobs;
mod notifier;
mod report;
mod setup;
mod sysbench;
mod work;

pub use report::{Causes, GuestReport, Report};
pub use setup::{GuestSetup, NotifySetup, Setup, Work};
pub use sysbench::SysbenchParams;

use std::fmt;

use outpage_core::pager::Pager;

use crate::disk::Queue;
use crate::world::{Costs, SetupError};
use guest::Guest;
use host::{Request, Wait};
use jobs::{Job, Slab};

/// As the driver of programs without a host has it: both pagers are told of passing time so often.
const TICK_NS: u64 = 100_000_000;

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// A guest finds no frame for a page: its kernel would kill a process.
    Guest {
        /// Which.
        guest: usize,
        /// When, nanoseconds.
        now_ns: u64,
        /// Its swap space is full, or it has none.
        swap_full: bool,
        /// Pages that it hides.
        hidden: u64,
    },
    /// The host finds none.
    Host {
        /// When, nanoseconds.
        now_ns: u64,
    },
    /// Guests wait and nothing is under way: a policy lost somebody.
    Stuck {
        /// When, nanoseconds.
        now_ns: u64,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: u64| ns / 1_000_000_000;
        match *self {
            Self::Guest {
                guest,
                now_ns,
                swap_full,
                hidden,
            } => {
                let why = if swap_full {
                    "its swap is full"
                } else {
                    "no page of it can leave"
                };
                let at = seconds(now_ns);
                write!(
                    f,
                    "guest {guest} is out of memory after {at} s: {why}, {hidden} pages are hidden"
                )
            }
            Self::Host { now_ns } => {
                write!(f, "the host is out of memory after {} s", seconds(now_ns))
            }
            Self::Stuck { now_ns } => {
                write!(f, "guests wait for ever from {} s on", seconds(now_ns))
            }
        }
    }
}

impl std::error::Error for RunError {}

/// A host and its guests.
pub struct Machine {
    now: u64,
    host: Pager,
    disk: Queue,
    /// What the disk was asked for, by the request's number.
    requests: Slab<Request>,
    /// Transfers of the guests' disks.
    jobs: Slab<Job>,
    /// Those that may go on.
    woken: Vec<u32>,
    guests: Vec<Guest>,
    /// Faults that the host has not served yet.
    waits: Vec<Wait>,
    costs: Costs,
    /// CPU time of the kernels in this step.
    spent: u64,
    next_tick: u64,
    causes: Causes,
    failed: Option<RunError>,
}

impl Machine {
    /// At time 0.
    ///
    /// # Errors
    /// When the set-up names what there is not, or makes no sense.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let host = setup.host()?;
        let mut guests = Vec::new();
        for (number, guest) in setup.guests.iter().enumerate() {
            guests.push(Guest::new(number, guest, setup)?);
        }
        Ok(Self {
            now: 0,
            host: host.0,
            disk: host.1,
            requests: Slab::default(),
            jobs: Slab::default(),
            woken: Vec::new(),
            guests,
            waits: Vec::new(),
            costs: setup.costs,
            spent: 0,
            next_tick: TICK_NS,
            causes: Causes::default(),
            failed: None,
        })
    }

    /// Runs all programs to their ends.
    ///
    /// # Errors
    /// When a guest or the host is out of memory, or somebody waits for ever.
    pub fn run(mut self) -> Result<Report, RunError> {
        self.act_host();
        for guest in 0..self.guests.len() {
            self.act_guest(guest);
        }
        while self.guests.iter().any(|guest| !guest.ended()) {
            self.turn()?;
        }
        Ok(self.report())
    }

    /// What is due, then a guest until something else is; where none can run before that, time goes on.
    fn turn(&mut self) -> Result<(), RunError> {
        self.deliver();
        match self.next_guest() {
            Some(guest) if self.guests[guest].ready_at <= self.next_event() => {
                self.run_guest(guest);
            }
            next => {
                if next.is_none() && self.disk.next_event().is_none() {
                    self.idles()?;
                }
                self.now = self.now.max(self.next_event());
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Nothing is under way and no guest can run: only a tick may help, but not for ever.
    fn idles(&self) -> Result<(), RunError> {
        let since = self.guests.iter().map(|guest| guest.ready_at).max();
        if self.now > since.unwrap_or(0) + 100 * TICK_NS {
            return Err(RunError::Stuck { now_ns: self.now });
        }
        Ok(())
    }

    /// The guest that can run and has come least far.
    fn next_guest(&self) -> Option<usize> {
        let can = (0..self.guests.len()).filter(|&guest| self.guests[guest].can_run());
        can.min_by_key(|&guest| self.guests[guest].ready_at)
    }

    /// When something falls due that no guest does.
    fn next_event(&self) -> u64 {
        let drain = self.guests.iter().map(|guest| guest.next_drain());
        let due = drain.min().unwrap_or(u64::MAX).min(self.next_tick);
        due.min(self.disk.next_event().unwrap_or(u64::MAX))
    }

    /// What is due now.
    fn deliver(&mut self) {
        while let Some(finished) = self.disk.poll(self.now) {
            self.finished(finished.request.id);
        }
        if self.next_tick <= self.now {
            self.next_tick = self.now + TICK_NS;
            self.tick_host();
            self.guests
                .iter_mut()
                .for_each(|guest| guest.tick_due = true);
        }
        for guest in &mut self.guests {
            guest.drain_falls_due(self.now);
        }
        while let Some(job) = self.woken.pop() {
            self.advance(job);
        }
        self.spent = 0;
    }

    /// Lets a guest run until something else is due.
    fn run_guest(&mut self, guest: usize) {
        let others = (0..self.guests.len()).filter(|&other| other != guest);
        let others = others.filter(|&other| self.guests[other].can_run());
        let others = others.map(|other| self.guests[other].ready_at).min();
        let others = others.unwrap_or(u64::MAX);
        loop {
            self.now = self.now.max(self.guests[guest].ready_at);
            self.spent = 0;
            self.step(guest);
            let spent = core::mem::take(&mut self.spent);
            let ready = &mut self.guests[guest].ready_at;
            *ready = (*ready).max(self.now) + spent;
            let ready = *ready;
            let due = self.next_event().min(others);
            if ready > due || !self.guests[guest].can_run() || !self.woken.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use outpage_core::contract::Event;
    use outpage_core::units::Nanos;

    use super::*;
    use crate::world::{DiskSpec, Policies};

    /// A guest that hides all that it has when its memory becomes so small that it needs a frame of these.
    fn hidden_whole(rescues: bool) -> Result<Report, RunError> {
        let notify = NotifySetup {
            entries: 1 << 12,
            drain_us: 1_000,
            hidden_percent: 100,
            rescues,
        };
        let guest = GuestSetup {
            frames: 2_000,
            balloon: 0,
            swap_slots: 10_000,
            swap_at_mib: 1_000,
            policies: Policies::default(),
            notify: Some(notify),
            work: Work::Sysbench(SysbenchParams {
                system_pages: 500,
                block_pages: 2_500,
                requests: 1,
                writes: true,
                page_ns: 1_000,
                pause_ns: 0,
            }),
        };
        let setup = Setup {
            frames: 4_000,
            swap_slots: 10_000,
            policies: Policies::default(),
            disk: DiskSpec::Named("nvme".to_owned()),
            scheduler: "fifo".to_owned(),
            costs: Costs::default(),
            guests: vec![guest],
        };
        let mut machine = Machine::new(&setup).expect("a sound set-up");
        while machine.guests[0].pager.frames_used() < 1_000 {
            machine.turn()?;
        }
        let now = Nanos(machine.now);
        let guest = &mut machine.guests[0];
        let limit = Event::Limit(guest.pager.frames_used());
        (0..2_000).for_each(|frame| {
            guest
                .frames
                .hide(frame, guest.frames.page_in(frame).is_some())
        });
        guest.pager.handle(now, limit);
        machine.act_guest(0);
        machine.run()
    }

    #[test]
    fn hidden_pages_are_given_back_when_a_guest_runs_out_of_memory() {
        let rescued = hidden_whole(true).expect("it goes on");
        assert!(rescued.guests[0].rescued >= 1_000, "{rescued:?}");
        let killed = hidden_whole(false).expect_err("nothing can leave");
        let RunError::Guest {
            guest: 0,
            hidden,
            swap_full: false,
            ..
        } = killed
        else {
            panic!("{killed}");
        };
        assert!(hidden >= 1_000, "{killed}");
    }
}
