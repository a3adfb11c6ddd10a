//! Virtual time, and the driver that owns a pager.
//!
//! One CPU, several programs that share the memory, one disk. A program runs until it faults on a
//! page that has to be waited for, until its time slice is over, or until something is due: a
//! request of the disk, the pager's timer. Touches of mapped pages cost two bit operations; only
//! faults reach the pager.

mod act;
mod ahead;
mod costs;
mod memory;
mod packed;
mod pool;
mod process;
mod ratio;
mod report;
mod setup;
pub mod speed;
mod touch;
mod watch;

pub use costs::{CodecCosts, Costs};
pub use ratio::Ratio;
pub use report::{DiscardReport, PhaseReport, ProgramReport, Report};
pub use setup::{
    BsdSwitches, DiskSpec, LastrSetting, POOL_LOSS_PERCENT, Policies, Setup, SetupError,
    ShortageSetting, WindowSetting,
};

use std::collections::VecDeque;

use outpage_core::contract::{Access, Event, PageOutcome, Source, Waiter};
use outpage_core::pager::Pager;
use outpage_core::tier::Written;
use outpage_core::units::{Nanos, PageNo, PageRange};

use crate::disk::Queue;
use crate::programs::{INDEX_MAX, Program, Step, holds};
use process::{Process, State};
use watch::Watch;

/// Live policies want to be told of passing time a few times a second.
const TICK_NS: u64 = 100_000_000;

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual time.
    pub now_ns: u64,
    /// Pages written so far.
    pub page_outs: u64,
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// No frame can be had and nothing can be written: the kernel would kill a program.
    Exhausted {
        /// When.
        now_ns: u64,
        /// The swap space is full.
        swap_full: bool,
    },
    /// A program names a page that no world holds.
    Beyond {
        /// The first page of the run that has it.
        page: PageNo,
    },
    /// Programs wait and nothing is under way: a policy lost somebody.
    Stuck {
        /// When.
        now_ns: u64,
    },
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exhausted { now_ns, swap_full } => {
                let why = if *swap_full {
                    "swap is full"
                } else {
                    "no page can leave"
                };
                write!(f, "out of memory after {} s: {why}", now_ns / 1_000_000_000)
            }
            Self::Beyond { page } => write!(
                f,
                "page {} of object {} is beyond what can be simulated: objects from 1 on, pages up to {INDEX_MAX}",
                page.index(),
                page.object().0,
            ),
            Self::Stuck { now_ns } => {
                write!(
                    f,
                    "programs wait for ever from {} s on",
                    now_ns / 1_000_000_000
                )
            }
        }
    }
}

impl std::error::Error for RunError {}

/// The simulated body.
pub struct World {
    pager: Pager,
    /// Where the tier policy has one.
    pool: Option<Box<pool::Pool>>,
    /// Where the tier policy has pages written as they were compressed.
    packed: Option<Box<packed::Packed>>,
    sizes: ratio::PageSizes,
    disk: Queue,
    processes: Vec<Process>,
    /// Programs that are not over.
    alive: usize,
    /// Who can run; the front one has the CPU.
    ready: VecDeque<usize>,
    /// Programs that start later, and when, nanoseconds: the next one last.
    late: Vec<(u64, usize)>,
    costs: Costs,
    frames: usize,
    /// Everything fits so far, and the pager does nothing: see [`World::pager_starts`].
    fits: bool,
    quantum_ns: u64,
    now: u64,
    slice_ends: u64,
    deadline: Option<u64>,
    next_tick: Option<u64>,
    /// When something is due, at the earliest.
    due: u64,
    /// Something else may be due earlier, or no more.
    due_stale: bool,
    idle_ns: u64,
    /// CPU time of an external pager.
    pager_ns: u64,
    /// Pages flushed so far, as far as their time was counted.
    flushed: u64,
    phases: Vec<PhaseReport>,
    ahead: ahead::Ahead,
    exhausted: Option<RunError>,
    /// Whose fault is being reported.
    faulting: Option<usize>,
    /// Of the pages that are being detached; kept for its room.
    outcomes: Vec<PageOutcome>,
    watch: Option<Box<Watch>>,
}

impl World {
    /// A world at time 0.
    ///
    /// # Errors
    /// When the set-up names what there is not, or makes no sense.
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let programs = (1..)
            .zip(&setup.programs)
            .map(|(object, spec)| spec.build(object));
        Self::with_programs(setup, programs.collect())
    }

    /// The same with programs that are made elsewhere; `setup.programs` is not looked at. Each has
    /// memory objects of its own.
    ///
    /// # Errors
    /// As [`World::new`].
    pub fn with_programs(
        setup: &Setup,
        programs: Vec<Box<dyn Program>>,
    ) -> Result<Self, SetupError> {
        let (pager, ticks, tier) = setup.pager()?;
        let pooled = (!tier.codec.is_empty()).then_some(tier.codec);
        let packed = (tier.written == Written::Compressed).then(|| {
            let (compress_ns, decompress_ns) = setup.costs.of_codec(tier.codec);
            Box::new(packed::Packed::new(compress_ns, decompress_ns))
        });
        let disk = setup.queue()?;
        let sizes = ratio::PageSizes::new(setup.ratio, &programs);
        let processes: Vec<_> = programs.into_iter().map(Process::new).collect();
        let mut world = Self {
            ahead: ahead::Ahead::of(&pager),
            pager,
            pool: pooled.map(|codec| Box::new(pool::Pool::new(setup, codec))),
            packed,
            sizes,
            disk,
            ready: (0..processes.len())
                .filter(|&who| setup.starts(who) == 0)
                .collect(),
            late: late(setup, processes.len()),
            alive: processes.len(),
            processes,
            costs: setup.costs,
            frames: setup.frames as usize,
            fits: ticks,
            quantum_ns: u64::from(setup.quantum_ms.max(1)) * 1_000_000,
            now: 0,
            slice_ends: 0,
            deadline: None,
            next_tick: ticks.then_some(TICK_NS),
            due: 0,
            due_stale: true,
            idle_ns: 0,
            pager_ns: 0,
            flushed: 0,
            phases: Vec::new(),
            exhausted: None,
            faulting: None,
            outcomes: Vec::new(),
            watch: None,
        };
        world.slice_ends = world.quantum_ns;
        if world.fits {
            // So much that no watermark is reached before the memory is full.
            let limit = Event::Limit(2 * world.frames);
            world.pager.handle(Nanos(0), limit);
        }
        world.act();
        Ok(world)
    }

    /// Runs all programs to their ends. `progress` is told now and then.
    ///
    /// # Errors
    /// When memory and swap are exhausted, or programs wait for ever.
    pub fn run(mut self, progress: &mut dyn FnMut(Progress)) -> Result<Report, RunError> {
        self.run_on(progress)?;
        Ok(self.report())
    }

    fn run_on(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), RunError> {
        let mut told = 0;
        while self.alive > 0 {
            if self.now >= self.due {
                self.deliver();
            }
            if let Some(error) = self.exhausted.take() {
                return Err(error);
            }
            match self.ready.front() {
                Some(&who) => self.run_program(who),
                None => self.wait()?,
            }
            if self.now >= told + 1_000_000_000 {
                told = self.now;
                let page_outs = self.pager.stats().page_outs;
                progress(Progress {
                    now_ns: self.now,
                    page_outs,
                });
            }
        }
        Ok(())
    }

    /// Nobody can run: time goes on to what is due next.
    fn wait(&mut self) -> Result<(), RunError> {
        if self.due == u64::MAX {
            return Err(RunError::Stuck { now_ns: self.now });
        }
        let next = self.due.max(self.now);
        self.idle_ns += next - self.now;
        self.now = next;
        Ok(())
    }

    fn set_due(&mut self) {
        if !self.due_stale {
            return;
        }
        self.due_stale = false;
        let start = self.late.last().map(|&(at, _)| at);
        let due = [self.disk.next_event(), self.deadline, self.next_tick, start];
        self.due = due
            .map(|at| at.unwrap_or(u64::MAX))
            .into_iter()
            .fold(u64::MAX, u64::min);
    }

    /// Tells the pager what is due.
    fn deliver(&mut self) {
        self.due_stale = true;
        while let Some(finished) = self.disk.poll(self.now) {
            self.finished(finished.request.id);
        }
        while let Some((_, who)) = self.late.pop_if(|late| late.0 <= self.now) {
            self.ready.push_back(who);
        }
        if self.deadline.is_some_and(|at| at <= self.now) {
            self.pager.handle(Nanos(self.now), Event::Timer);
            self.act();
        }
        if let Some(at) = self.next_tick
            && at <= self.now
        {
            // Only waiting programs need them; a world without any would never end its waiting.
            let alive =
                self.disk.next_event().is_some() || !self.ready.is_empty() || !self.late.is_empty();
            self.next_tick = (alive || self.now < at + 100 * TICK_NS).then_some(self.now + TICK_NS);
            self.pager.handle(Nanos(self.now), Event::Tick);
            self.act();
        }
        self.set_due();
    }

    /// Lets program `who` run to its next wait, the end of its slice, or the next thing due.
    fn run_program(&mut self, who: usize) {
        while self.now < self.due {
            if self.now >= self.slice_ends {
                self.slice_ends = self.now + self.quantum_ns;
                if self.ready.len() > 1 {
                    self.ready.rotate_left(1);
                    return;
                }
            }
            if !self.advance(who) {
                return;
            }
        }
    }

    /// One step of a program, or the part of it that fits. False when somebody else has the CPU now.
    fn advance(&mut self, who: usize) -> bool {
        let process = &mut self.processes[who];
        let begins = process.begins_step();
        let step = process.current(self.now);
        if begins && let Some(range) = beyond(step) {
            let page = range.start;
            self.exhausted = Some(RunError::Beyond { page });
            return false;
        }
        match *step {
            Step::Touch {
                run,
                access,
                page_ns,
            } => return self.touch(who, run, access, page_ns),
            Step::Together { runs, page_ns } => return self.touch_together(who, &runs, page_ns),
            Step::Compute(ns) => {
                let spent = ns.min(self.until() - self.now);
                self.spend(who, spent);
                self.processes[who].left(Step::Compute(ns - spent), ns == spent);
                return true;
            }
            Step::Map(range) => {
                self.processes[who].memory.map(range);
                self.pager_starts();
            }
            Step::Unmap(range) => return self.drop_range(who, range, true),
            Step::Discard(range) => return self.drop_range(who, range, false),
            Step::Discardable(range) => self.tell(Event::Discardable(range)),
            Step::TakeBack(range) => self.tell(Event::TakeBack(range)),
            Step::Flush(range) => self.tell(Event::Flush(range)),
            Step::Phase(name) => self.begin_phase(who, name),
            Step::Until(ns) => self.processes[who].ends_at = Some(self.now + ns),
            Step::End => {
                self.end(who);
                return false;
            }
        }
        self.processes[who].next();
        true
    }

    /// A policy that a live body could have begins when the memory of the programs, touched or not,
    /// no longer fits, and goes on to the end: `outpage run` starts a pager then. A page daemon is
    /// there from the beginning.
    fn pager_starts(&mut self) {
        if !self.fits {
            return;
        }
        let mapped: u64 = self.processes.iter().map(|p| p.memory.pages()).sum();
        if mapped > self.frames as u64 || self.pager.frames_used() > self.frames {
            self.fits = false;
            let limit = Event::Limit(self.frames);
            self.pager.handle(Nanos(self.now), limit);
            self.act();
        }
    }

    /// Until when a program may run on.
    fn until(&self) -> u64 {
        self.due.min(self.slice_ends).max(self.now + 1)
    }

    /// How many of `pages` touches, each of `page_ns`, begin before that.
    fn fitting(&self, pages: u64, page_ns: u32) -> u64 {
        let (left, page_ns) = (self.until() - self.now, u64::from(page_ns.max(1)));
        // A division costs more than the touch of a page.
        if pages.saturating_mul(page_ns) <= left {
            pages
        } else {
            pages.min(left.div_ceil(page_ns))
        }
    }

    fn spend(&mut self, who: usize, ns: u64) {
        self.now += ns;
        self.processes[who].cpu_ns += ns;
    }

    /// Reports a fault. True when the program goes on at once.
    fn fault(&mut self, who: usize, page: PageNo, access: Access) -> bool {
        let process = &mut self.processes[who];
        process.faults += 1;
        let extent = process.memory.extent(page);
        (process.state, process.since, process.page) = (State::Waiting, self.now, Some(page));
        self.ahead.faulted(page);
        let waiter = Waiter(who as u32);
        self.pager.handle(
            Nanos(self.now),
            Event::Fault {
                page,
                access,
                waiter,
                source: Source(who as u32),
                extent,
            },
        );
        let (charged, waited) = (self.now, self.processes[who].wait_ns);
        let elsewhere = self.pager_ns;
        self.faulting = Some(who);
        self.act();
        self.faulting = None;
        if self.fits && self.pager.frames_used() > self.frames {
            // A program that touches what it never mapped.
            self.pager_starts();
        }
        if self.now == charged {
            // Neither zero-filled nor read: it was there.
            self.now += u64::from(self.costs.soft_fault_ns);
        }
        let charged = self.now - charged - (self.pager_ns - elsewhere);
        self.processes[who].cpu_ns += charged;
        self.processes[who].fault_ns += charged;
        self.set_due();
        if self.processes[who].state == State::Waiting {
            self.leaves(who);
            return false;
        }
        // Served at once: that was CPU time.
        self.processes[who].wait_ns = waited;
        self.ready.front() == Some(&who)
    }

    /// Program `who`, which had the CPU unless another one was woken meanwhile, cannot run on.
    fn leaves(&mut self, who: usize) {
        if self.ready.front() == Some(&who) {
            self.ready.pop_front();
        } else {
            self.ready.retain(|&r| r != who);
        }
        self.slice_ends = self.now + self.quantum_ns;
    }

    /// Takes `range` from the program, or its contents only.
    fn drop_range(&mut self, who: usize, range: PageRange, unmaps: bool) -> bool {
        if self.pager.busy(range) {
            // The body answers what touches the range first.
            self.now = self.due.max(self.now);
            return false;
        }
        let event = if unmaps {
            self.processes[who].memory.unmap(range);
            Event::Unmap(range)
        } else {
            Event::Discard(range)
        };
        self.ahead.dropped(range, &self.pager);
        self.pager.handle(Nanos(self.now), event);
        self.act();
        self.set_due();
        self.processes[who].next();
        true
    }

    fn end(&mut self, who: usize) {
        self.processes[who].state = State::Ended;
        self.alive -= 1;
        self.processes[who].ended_at = self.now;
        self.leaves(who);
        self.end_phase(who);
        let memory = core::mem::take(&mut self.processes[who].memory);
        for range in memory.ranges() {
            // What is under way for a program that ends is let finish.
            while self.pager.busy(range) && self.due != u64::MAX {
                self.now = self.now.max(self.due);
                self.deliver();
            }
            self.ahead.dropped(range, &self.pager);
            self.pager.handle(Nanos(self.now), Event::Unmap(range));
            self.act();
        }
        self.set_due();
    }
}

/// The first range of a step that no world holds. Looked at when the step begins.
fn beyond(step: &Step) -> Option<PageRange> {
    match step {
        Step::Touch { run, .. } => Some(*run).filter(|run| !holds(*run)),
        Step::Together { runs, .. } => {
            let runs = runs.iter().map(|(run, _)| *run);
            runs.filter(|run| run.pages > 0).find(|run| !holds(*run))
        }
        Step::Map(range)
        | Step::Unmap(range)
        | Step::Discard(range)
        | Step::Discardable(range)
        | Step::TakeBack(range)
        | Step::Flush(range) => Some(*range).filter(|range| !holds(*range)),
        _ => None,
    }
}

/// Programs that do not start at once, the first to start last.
fn late(setup: &Setup, programs: usize) -> Vec<(u64, usize)> {
    let starts = (0..programs).map(|who| (setup.starts(who), who));
    let mut late: Vec<_> = starts.filter(|start| start.0 > 0).collect();
    late.sort_unstable_by_key(|&start| std::cmp::Reverse(start));
    late
}
