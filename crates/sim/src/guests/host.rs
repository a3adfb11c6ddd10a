//! The lower level: the host's pager and its disk.

use outpage_core::contract::{
    Access, Action, ActionId, Event, Outcome, PageOutcome, Source, Waiter,
};
use outpage_core::page::State;
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotRange};

use super::{Machine, RunError};
use crate::disk::{self, DAEMON, Op};

/// As many pages as one action can name.
static DONE: [PageOutcome; 256] = [PageOutcome::Done; 256];
static DETACHED: [PageOutcome; 256] = [PageOutcome::Unhashed; 256];
/// Waiters from this number on are transfers; those below are guests.
const JOBS: u32 = 1 << 16;

/// Who touches a guest's frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// A guest's CPU.
    Guest(usize),
    /// A transfer of a guest's disk.
    Job(u32),
}

impl Who {
    const fn waiter(self) -> Waiter {
        match self {
            Self::Guest(guest) => Waiter(guest as u32),
            Self::Job(job) => Waiter(JOBS + job),
        }
    }

    const fn of(waiter: Waiter) -> Self {
        match waiter.0.checked_sub(JOBS) {
            Some(job) => Self::Job(job),
            None => Self::Guest(waiter.0 as usize),
        }
    }
}

/// Why a guest's frame is touched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A program of the guest's wants what is in it.
    Program,
    /// The guest fills it with zeroes: what the host may read back is of no use.
    ZeroFill,
    /// The guest writes it to its own swap space.
    GuestPageOut,
    /// The guest reads it from its own swap space.
    GuestPageIn,
}

/// A fault that the host has not served.
pub(super) struct Wait {
    page: PageNo,
    who: Who,
    cause: Cause,
}

/// What the disk was asked for.
pub(super) enum Request {
    /// A page-in of the host's.
    PageIn(ActionId, Vec<PageNo>),
    /// A page-out of the host's.
    PageOut(ActionId),
    /// A transfer of a guest's disk.
    Guest(u32),
}

/// The host's page for a guest's frame.
fn page_of(guest: usize, frame: u32) -> PageNo {
    PageNo::new(ObjectId(guest as u32 + 1), u64::from(frame))
}

fn guest_of(page: PageNo) -> (usize, u32) {
    (page.object().0 as usize - 1, page.index() as u32)
}

impl Machine {
    /// Touches a guest's frame. False when `who` has to wait until the host has it; then it tries again.
    pub(super) fn touch_host(
        &mut self,
        guest: usize,
        frame: u32,
        access: Access,
        who: Who,
        cause: Cause,
    ) -> bool {
        let page = page_of(guest, frame);
        let one = PageRange::one(page);
        let all = PageRange::new(page_of(guest, 0), self.guests[guest].frames.len());
        while self.host.touch(one, access) == 0 {
            self.waits.push(Wait { page, who, cause });
            let fault = Event::Fault {
                page,
                access,
                waiter: who.waiter(),
                source: Source(guest as u32),
                extent: all,
            };
            self.host.handle(Nanos(self.now), fault);
            self.act_host();
            if self.failed.is_some() || self.waits.iter().any(|wait| wait.who == who) {
                return false;
            }
        }
        true
    }

    /// Time passed.
    pub(super) fn tick_host(&mut self) {
        self.host.handle(Nanos(self.now), Event::Tick);
        self.act_host();
    }

    /// Carries out what the host's pager says.
    pub(super) fn act_host(&mut self) {
        while let Some(action) = self.host.poll_action() {
            match action {
                Action::ZeroFill { id, run, .. } => {
                    self.spent += u64::from(self.costs.zero_fill_ns) * run.pages;
                    self.host_done(id, Outcome::Pages(&DONE[..run.pages as usize]));
                }
                Action::Map { id, run, .. } => {
                    self.spent += u64::from(self.costs.soft_fault_ns);
                    self.host_done(id, Outcome::Pages(&DONE[..run.pages as usize]));
                }
                Action::Detach { id, run, .. } => {
                    self.host_done(id, Outcome::Pages(&DETACHED[..run.pages as usize]));
                }
                Action::PageIn {
                    id, slots, pages, ..
                } => {
                    let from = self.account(&pages);
                    let request = Request::PageIn(id, pages.to_vec());
                    self.submit_host(request, Op::Read, slots, from);
                }
                Action::PageOut { id, slots, .. } => {
                    self.submit_host(Request::PageOut(id), Op::Write, slots, DAEMON);
                }
                Action::Release { id, pages, .. } => {
                    for &page in pages.iter() {
                        // One that was zeroes is filled again without a read.
                        if self.host.state(page) == State::PagedOut {
                            self.tell(page, true);
                        }
                    }
                    drop(pages);
                    self.host_done(id, Outcome::Done);
                }
                Action::Dead { id, .. } | Action::Poison { id, .. } => {
                    self.host_done(id, Outcome::Done);
                }
                Action::Wake { waiter, .. } => self.wake(Who::of(waiter)),
                Action::Grow { .. } => self.host.handle(Nanos(self.now), Event::Full),
                Action::Exhausted { .. } => {
                    let now_ns = self.now;
                    self.failed.get_or_insert(RunError::Host { now_ns });
                }
                Action::Shrink { .. } => unreachable!("all slots are granted at once"),
                Action::Compress { .. } | Action::Decompress { .. } => {
                    unreachable!("a host has no pool")
                }
                Action::TakenBack { .. } | Action::Drop { .. } => {
                    unreachable!("a guest gives nothing up")
                }
            }
        }
    }

    fn host_done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.host
            .handle(Nanos(self.now), Event::Done { id, outcome });
    }

    /// Counts a read for what causes it, and says for whom it is. What a program waits for too is the program's.
    fn account(&mut self, pages: &[PageNo]) -> u32 {
        let waits = || self.waits.iter().filter(|wait| pages.contains(&wait.page));
        let mut causes = waits().map(|wait| wait.cause);
        let first = causes.next();
        let cause = if causes.any(|cause| cause == Cause::Program) {
            Some(Cause::Program)
        } else {
            first
        };
        let counts = &mut self.causes;
        let (reads, brought) = match cause {
            Some(Cause::GuestPageOut) => (&mut counts.page_out_reads, &mut counts.page_out_pages),
            Some(Cause::GuestPageIn) => (&mut counts.page_in_reads, &mut counts.page_in_pages),
            Some(Cause::ZeroFill) => (&mut counts.zero_fill_reads, &mut counts.zero_fill_pages),
            Some(Cause::Program) | None => (&mut counts.program_reads, &mut counts.program_pages),
        };
        *reads += 1;
        *brought += pages.len() as u64;
        let (guests, owner) = (self.guests.len(), guest_of(pages[0]).0);
        match waits().next().map(|wait| wait.who) {
            Some(Who::Guest(guest)) => guest as u32,
            Some(Who::Job(_)) | None => (guests + owner) as u32,
        }
    }

    fn submit_host(&mut self, request: Request, op: Op, slots: SlotRange, from: u32) {
        self.spent += u64::from(self.costs.io_ns);
        let request = disk::Request {
            id: self.requests.add(request),
            op,
            block: u64::from(slots.start.0),
            blocks: slots.slots,
            from,
        };
        self.disk.submit(self.now, request);
    }

    /// A request of the disk is complete.
    pub(super) fn finished(&mut self, number: u32) {
        match self.requests.take(number) {
            Request::PageIn(id, pages) => {
                pages.iter().for_each(|&page| self.tell(page, false));
                self.host_done(id, Outcome::Done);
                self.act_host();
            }
            Request::PageOut(id) => {
                self.host_done(id, Outcome::Done);
                self.act_host();
            }
            Request::Guest(job) => {
                let job = self.jobs.take(job);
                self.guests[job.guest].interrupt(job.id);
                self.wakes(job.guest);
            }
        }
    }

    /// The notifier of the guest whose page this is, if it has one.
    fn tell(&mut self, page: PageNo, out: bool) {
        let (guest, frame) = guest_of(page);
        if let Some(notifier) = &mut self.guests[guest].notifier {
            notifier.tell(frame, out);
        }
    }

    /// A wait is over.
    fn wake(&mut self, who: Who) {
        let waits = self.waits.len();
        self.waits.retain(|wait| wait.who != who);
        if self.waits.len() == waits {
            return;
        }
        match who {
            Who::Guest(guest) if self.guests[guest].blocked => {
                self.guests[guest].blocked = false;
                self.wakes(guest);
            }
            Who::Job(job) if self.jobs.get(job).waits => {
                self.jobs.get(job).waits = false;
                self.woken.push(job);
            }
            // Served within the touch: it goes on by itself.
            Who::Guest(_) | Who::Job(_) => {}
        }
    }

    /// A guest that did not run can from now on.
    fn wakes(&mut self, guest: usize) {
        let ready = &mut self.guests[guest].ready_at;
        *ready = (*ready).max(self.now);
    }
}
