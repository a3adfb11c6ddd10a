//! Carrying out what the pager says.

use outpage_core::contract::{Action, ActionId, Event, IoFailure, Outcome, PageOutcome};
use outpage_core::units::{Nanos, PageNo, PageRange, SlotRange};

use super::packed::Blocks;
use super::process::State;
use super::{RunError, World};
use crate::disk::{DAEMON, Op, Request};

/// As many pages as one action can name.
static MAPPED: [PageOutcome; 256] = [PageOutcome::Done; 256];

impl World {
    /// Carries out all actions, and asks when the pager wants to be woken.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.pager.poll_action() {
            if let Some(watch) = &mut self.watch {
                watch.action(&action);
            }
            match action {
                Action::ZeroFill { id, run, .. } => {
                    self.now += u64::from(self.costs.zero_fill_ns) * run.pages;
                    self.asks_pager(run.pages);
                    self.done(id, Outcome::Pages(&MAPPED[..run.pages as usize]));
                }
                Action::Map { id, run, .. } => {
                    self.now += u64::from(self.costs.soft_fault_ns);
                    self.done(id, Outcome::Pages(&MAPPED[..run.pages as usize]));
                }
                Action::Detach { id, run, .. } => {
                    self.detach(id, run);
                }
                Action::PageIn {
                    id, slots, pages, ..
                } => self.submit(id, slots, Op::Read, &pages),
                Action::PageOut {
                    id, slots, pages, ..
                } => self.submit(id, slots, Op::Write, &pages),
                Action::Release { id, pages, .. } => {
                    pages.iter().for_each(|&page| self.ahead.released(page));
                    // So that the pager can use the list again.
                    drop(pages);
                    self.done(id, Outcome::Done);
                }
                Action::Compress {
                    id,
                    slots,
                    pages,
                    grant,
                    ..
                } => self.compress(id, slots, pages, grant),
                Action::Decompress {
                    id, slots, pages, ..
                } => self.decompress(id, slots, pages),
                Action::Dead { id, slots, .. } => self.dead(id, slots),
                Action::Poison { id, .. } => self.done(id, Outcome::Done),
                Action::Drop { .. } => unreachable!("no program here frees"),
                Action::Shrink { .. } => unreachable!("all slots are granted at once"),
                Action::TakenBack { .. } => {}
                Action::Wake { waiter, .. } => self.wake(waiter.0 as usize),
                Action::Grow { .. } => self.pager.handle(Nanos(self.now), Event::Full),
                Action::Exhausted { swap_full } => {
                    let now_ns = self.now;
                    self.exhausted
                        .get_or_insert(RunError::Exhausted { now_ns, swap_full });
                    self.due_stale = true;
                }
            }
        }
        let stats = self.pager.stats();
        let flushed = stats.flushed + stats.dropped_for_write;
        let new = flushed - std::mem::replace(&mut self.flushed, flushed);
        if new > 0 {
            self.asks_pager(new);
        }
        if let Some(pool) = &mut self.pool {
            pool.used_peak = pool.used_peak.max(self.pager.frames_used());
        }
        let deadline = self.pager.next_deadline().map(|at| at.0);
        self.due_stale |= deadline != self.deadline;
        self.deadline = deadline;
    }

    /// The program says what it makes of its memory.
    pub(super) fn tell(&mut self, event: Event<'_>) {
        self.pager.handle(Nanos(self.now), event);
        self.act();
        self.set_due();
    }

    /// An external pager, where there is one, is sent so many messages and answers them.
    fn asks_pager(&mut self, messages: u64) {
        let ns = u64::from(self.costs.pager_ns) * messages;
        self.now += ns;
        self.pager_ns += ns;
    }

    #[inline(never)]
    fn detach(&mut self, id: ActionId, run: PageRange) {
        run.iter()
            .for_each(|page| self.ahead.detached(page, &self.pager));
        let mut outcomes = core::mem::take(&mut self.outcomes);
        outcomes.clear();
        outcomes.resize(run.pages as usize, PageOutcome::Unhashed);
        self.done(id, Outcome::Pages(&outcomes));
        self.outcomes = outcomes;
    }

    pub(super) fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.pager
            .handle(Nanos(self.now), Event::Done { id, outcome });
    }

    /// Hands a transfer to the disk, and counts it for the programs whose pages it moves.
    fn submit(&mut self, id: ActionId, slots: SlotRange, op: Op, pages: &[PageNo]) {
        self.now += u64::from(self.costs.io_ns);
        self.asks_pager(pages.len() as u64);
        let from = match op {
            Op::Read => self.reader(pages),
            Op::Write => DAEMON,
        };
        if let Some(process) = self.processes.get_mut(from as usize) {
            process.reads += 1;
        }
        for page in pages {
            let owner = page.object().0 as usize - 1;
            let Some(process) = self.processes.get_mut(owner) else {
                continue;
            };
            match op {
                Op::Read => {
                    process.pages_in += 1;
                    if process.state != State::Waiting || process.page != Some(*page) {
                        self.ahead.reads(*page);
                    }
                }
                Op::Write => process.pages_out += 1,
            }
        }
        let blocks = match &mut self.packed {
            Some(packed) => {
                let sizes = &self.sizes;
                let sized = pages.iter().map(|&page| (page, sizes.bytes(page)));
                if op == Op::Write {
                    self.now += packed.compress_ns(sized.clone());
                }
                packed.transfer(id.0, op, slots, sized.map(|(_, bytes)| bytes))
            }
            None => Blocks {
                start: u64::from(slots.start.0),
                count: slots.slots,
            },
        };
        let request = Request {
            id: id.0,
            op,
            block: blocks.start,
            blocks: blocks.count,
            from,
        };
        self.disk.submit(self.now, request);
        self.due_stale = true;
    }

    /// For whom a read is: the program whose fault is being reported, or, where the fault had to
    /// wait for frames, one that waits and has a page in it. A read may hold pages of others too.
    fn reader(&self, pages: &[PageNo]) -> u32 {
        let owners = pages.iter();
        let owners = owners.map(|page| page.object().0 as usize - 1);
        let waits = |&who: &usize| {
            let process = self.processes.get(who);
            process.is_some_and(|process| process.state == State::Waiting)
        };
        let first = || owners.clone().next();
        let from = (self.faulting)
            .or_else(|| owners.clone().find(waits))
            .or_else(first);
        from.map_or(DAEMON, |who| who as u32)
    }

    /// A transfer is complete.
    pub(super) fn finished(&mut self, id: u32) {
        self.now += u64::from(self.costs.io_done_ns);
        if let Some(packed) = &mut self.packed {
            self.now += packed.decompress_ns(id);
        }
        let fails = self.watch.as_mut().is_some_and(|watch| watch.fails());
        let outcome = if fails {
            Outcome::Failed(IoFailure::Device)
        } else {
            Outcome::Done
        };
        self.done(ActionId(id), outcome);
        self.act();
    }

    /// A program that waited goes on, before those that compute: a thread that wakes from a wait
    /// for a page has the better priority under 4BSD scheduling.
    fn wake(&mut self, who: usize) {
        let process = &mut self.processes[who];
        if process.state != State::Waiting {
            return;
        }
        process.state = State::Ready;
        process.wait_ns += self.now - process.since;
        if !self.ready.contains(&who) {
            self.ready.push_front(who);
            self.slice_ends = self.now + self.quantum_ns;
        }
    }
}
