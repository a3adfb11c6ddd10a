//! The upper level: what a guest's CPU does, and what its pager says.

use outpage_core::contract::{
    Access, Action, ActionId, Event, Outcome, PageOutcome, Refusal, Source, Waiter,
};
use outpage_core::page::State;
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotRange};

use super::guest::{Op, Phase};
use super::host::{Cause, Who};
use super::jobs::Job;
use super::{Machine, RunError};
use crate::disk;
use crate::programs::Step;

static DONE: [PageOutcome; 256] = [PageOutcome::Done; 256];
/// Who waits in a guest: its program, or nobody.
const PROGRAM: Waiter = Waiter(0);
const NOBODY: Waiter = Waiter(1);
/// CPU time of a drain, and of an entry: an interrupt and a few cache misses.
const DRAIN_NS: u64 = 2_000;
const ENTRY_NS: u64 = 200;
/// The most that a program computes before its kernel looks for interrupts.
const COMPUTE_NS: u64 = 100_000;

impl Machine {
    /// Whatever the guest's CPU has to do next.
    pub(super) fn step(&mut self, guest: usize) {
        let own = &mut self.guests[guest];
        if core::mem::take(&mut own.tick_due) {
            own.pager.handle(Nanos(self.now), Event::Tick);
            return self.act_guest(guest);
        }
        if own.notifier.as_ref().is_some_and(|notifier| notifier.due) {
            return self.drain(guest);
        }
        match own.ops.front().copied() {
            Some(Op::Zero(frame)) => {
                if self.guest_touches(guest, frame, Access::Write, Cause::ZeroFill) {
                    self.spent += u64::from(self.costs.zero_fill_ns);
                    self.guests[guest].ops.pop_front();
                }
            }
            Some(Op::Filled(id, pages)) => {
                own.ops.pop_front();
                self.guest_done(guest, id, Outcome::Pages(&DONE[..pages as usize]));
                self.act_guest(guest);
            }
            Some(Op::Transferred(id)) => {
                own.ops.pop_front();
                self.spent += u64::from(self.costs.io_done_ns);
                self.guest_done(guest, id, Outcome::Done);
                self.act_guest(guest);
            }
            None if own.waiting || own.ended() => {}
            None => self.program(guest),
        }
    }

    /// One step of the program, of a run its first page.
    fn program(&mut self, guest: usize) {
        let own = &mut self.guests[guest];
        match own.current() {
            Step::Touch {
                run,
                access,
                page_ns,
            } => {
                if run.pages > 0 && !self.touch(guest, run.start, access) {
                    return;
                }
                self.spent += u64::from(page_ns);
                let next = run.start.checked_add(1).filter(|_| run.pages > 1);
                let rest = next.map(|start| Step::Touch {
                    run: PageRange::new(start, run.pages - 1),
                    access,
                    page_ns,
                });
                self.guests[guest].left(rest);
            }
            Step::Compute(ns) => {
                let part = ns.min(COMPUTE_NS);
                self.spent += part;
                own.left((ns > part).then(|| Step::Compute(ns - part)));
            }
            Step::Phase(name) => {
                let from_ns = self.now;
                own.phases.push(Phase { name, from_ns });
                own.left(None);
            }
            Step::Map(_) => own.left(None),
            Step::End => own.ended_at = Some(self.now),
            Step::Together { .. }
            | Step::Unmap(_)
            | Step::Discard(_)
            | Step::Discardable(_)
            | Step::TakeBack(_)
            | Step::Flush(_)
            | Step::Until(_) => {
                unreachable!("no program for guests does so")
            }
        }
    }

    /// The program touches a page: first the guest has to have it, then the host.
    fn touch(&mut self, guest: usize, page: PageNo, access: Access) -> bool {
        let own = &mut self.guests[guest];
        if own.pager.touch(PageRange::one(page), access) == 0 {
            own.waiting = true;
            self.fault(guest, page, access, PROGRAM);
            return false;
        }
        let frame = own.frames.of(page.index()).expect("it is mapped");
        self.guest_touches(guest, frame, access, Cause::Program)
    }

    /// The guest's CPU touches a frame, or waits for it.
    fn guest_touches(&mut self, guest: usize, frame: u32, access: Access, cause: Cause) -> bool {
        let done = self.touch_host(guest, frame, access, Who::Guest(guest), cause);
        self.guests[guest].blocked = !done;
        done
    }

    fn fault(&mut self, guest: usize, page: PageNo, access: Access, waiter: Waiter) {
        let fault = Event::Fault {
            page,
            access,
            waiter,
            source: Source(0),
            extent: self.guests[guest].extent(),
        };
        self.spent += u64::from(self.costs.soft_fault_ns);
        self.guests[guest].pager.handle(Nanos(self.now), fault);
        self.act_guest(guest);
    }

    fn guest_done(&mut self, guest: usize, id: ActionId, outcome: Outcome<'_>) {
        let done = Event::Done { id, outcome };
        self.guests[guest].pager.handle(Nanos(self.now), done);
    }

    /// Carries out what a guest's pager says.
    pub(super) fn act_guest(&mut self, guest: usize) {
        while let Some(action) = self.guests[guest].pager.poll_action() {
            match action {
                Action::ZeroFill { id, run, .. } => self.zero_fill(guest, id, run),
                Action::Map { id, run, .. } => {
                    self.guest_done(guest, id, Outcome::Pages(&DONE[..run.pages as usize]));
                }
                Action::Detach { id, run, .. } => self.detach(guest, id, run),
                Action::PageIn {
                    id, slots, pages, ..
                } => self.transfer(guest, id, disk::Op::Read, slots, &pages),
                Action::PageOut {
                    id, slots, pages, ..
                } => self.transfer(guest, id, disk::Op::Write, slots, &pages),
                Action::Release { id, pages, .. } => {
                    let frames = &mut self.guests[guest].frames;
                    pages.iter().for_each(|page| frames.give_back(page.index()));
                    drop(pages);
                    self.guest_done(guest, id, Outcome::Done);
                }
                Action::Dead { id, .. } | Action::Poison { id, .. } => {
                    self.guest_done(guest, id, Outcome::Done);
                }
                Action::Wake { waiter, .. } => self.guests[guest].waiting &= waiter != PROGRAM,
                Action::Grow { .. } => {
                    let full = Event::Full;
                    self.guests[guest].pager.handle(Nanos(self.now), full);
                }
                Action::Exhausted { swap_full } => self.out_of_memory(guest, swap_full),
                Action::Shrink { .. } => unreachable!("all slots are granted at once"),
                Action::Compress { .. } | Action::Decompress { .. } => {
                    unreachable!("a guest has no pool")
                }
                Action::TakenBack { .. } | Action::Drop { .. } => {
                    unreachable!("no program for guests does so")
                }
            }
        }
    }

    fn zero_fill(&mut self, guest: usize, id: ActionId, run: PageRange) {
        let own = &mut self.guests[guest];
        for page in run.iter() {
            let Some(frame) = own.frames.take(page.index()) else {
                return self.out_of_memory(guest, true);
            };
            own.ops.push_back(Op::Zero(frame));
        }
        own.ops.push_back(Op::Filled(id, run.pages as u32));
    }

    /// Hidden pages are no victims.
    fn detach(&mut self, guest: usize, id: ActionId, run: PageRange) {
        let frames = &self.guests[guest].frames;
        let hidden = |page: PageNo| {
            let frame = frames.of(page.index());
            frame.is_some_and(|frame| frames.is_hidden(frame))
        };
        let outcome = |page| match hidden(page) {
            true => PageOutcome::Refused(Refusal::Busy),
            false => PageOutcome::Unhashed,
        };
        let outcomes: Vec<_> = run.iter().map(outcome).collect();
        self.guest_done(guest, id, Outcome::Pages(&outcomes));
    }

    fn transfer(
        &mut self,
        guest: usize,
        id: ActionId,
        op: disk::Op,
        slots: SlotRange,
        pages: &[PageNo],
    ) {
        self.spent += u64::from(self.costs.io_ns);
        let own = &mut self.guests[guest].frames;
        let frame = |page: &PageNo| match op {
            disk::Op::Write => own.of(page.index()).expect("what is written is in a frame"),
            disk::Op::Read => own.take(page.index()).expect("within the guest's limit"),
        };
        let frames = pages.iter().map(frame).collect();
        let job = self.jobs.add(Job {
            guest,
            id,
            op,
            slots,
            frames,
            at: 0,
            waits: false,
        });
        self.advance(job);
    }

    /// The guest reads its rings: hides what the host paged out, un-hides what it has again.
    fn drain(&mut self, guest: usize) {
        let mut told = Vec::new();
        let own = &mut self.guests[guest];
        let notifier = own.notifier.as_mut().expect("it is due");
        notifier.drain(self.now, &mut told);
        self.spent += DRAIN_NS + ENTRY_NS * told.len() as u64;
        for (frame, out) in told {
            if out {
                self.hide(guest, frame);
            } else {
                self.guests[guest].frames.hide(frame, false);
            }
        }
        let own = &mut self.guests[guest];
        let hidden = own.frames.hidden();
        let notifier = own.notifier.as_mut().expect("as above");
        notifier.report(hidden);
    }

    /// Hides the page of a frame, if it is one that the guest could page out. A page that waits to be written is taken
    /// back from there first.
    fn hide(&mut self, guest: usize, frame: u32) {
        let own = &mut self.guests[guest];
        let notifier = own.notifier.as_mut().expect("told by it");
        if own.frames.is_hidden(frame) {
            return;
        }
        let page = own.frames.page_in(frame);
        let page = page.filter(|_| own.frames.hidden() < notifier.hidden_max);
        let page = page.map(|page| PageNo::new(ObjectId(guest as u32 + 1), page));
        match page.map(|page| (page, own.pager.state(page))) {
            Some((_, State::Resident)) => own.frames.hide(frame, true),
            Some((page, State::Staged)) => {
                own.frames.hide(frame, true);
                self.fault(guest, page, Access::Read, NOBODY);
            }
            _ => notifier.skipped += 1,
        }
    }

    /// No frame is to be had. What is hidden is given back; if nothing is, the guest's kernel would kill a process.
    fn out_of_memory(&mut self, guest: usize, swap_full: bool) {
        let own = &mut self.guests[guest];
        let hidden = own.frames.hidden();
        if let Some(notifier) = &mut own.notifier
            && notifier.setup.rescues
            && hidden > 0
            && !own.no_swap
        {
            notifier.rescued += own.frames.show_all();
            own.pager.handle(Nanos(self.now), Event::Tick);
            return;
        }
        self.failed.get_or_insert(RunError::Guest {
            guest,
            now_ns: self.now,
            swap_full,
            hidden,
        });
    }
}
