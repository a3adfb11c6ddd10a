//! A guest: its memory, its CPU, its program.

use std::collections::VecDeque;

use outpage_core::contract::ActionId;
use outpage_core::pager::Pager;
use outpage_core::units::{ObjectId, PageNo, PageRange};

use super::frames::Frames;
use super::notifier::Notifier;
use super::setup::{GuestSetup, Setup};
use crate::programs::{Program, Step};
use crate::world::SetupError;

/// What a guest's kernel has to do before its program goes on.
#[derive(Clone, Copy)]
pub(super) enum Op {
    /// Fill a frame with zeroes.
    Zero(u32),
    /// Tell its pager that a zero-fill of so many pages is done.
    Filled(ActionId, u32),
    /// Tell its pager that a transfer is complete.
    Transferred(ActionId),
}

/// What is counted of a phase.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    pub name: &'static str,
    pub from_ns: u64,
}

/// One guest.
pub(super) struct Guest {
    number: usize,
    pub pager: Pager,
    pub frames: Frames,
    /// Where its swap space begins, in blocks of the disk.
    pub swap_at: u64,
    pub notifier: Option<Notifier>,
    /// Frames are never taken back: it has no swap space.
    pub no_swap: bool,
    program: Box<dyn Program>,
    step: Option<Step>,
    pub ops: VecDeque<Op>,
    /// Its CPU waits for a frame that the host has paged out.
    pub blocked: bool,
    /// Its program waits for a page that it has paged out itself.
    pub waiting: bool,
    pub tick_due: bool,
    /// Until when its CPU is busy.
    pub ready_at: u64,
    pub ended_at: Option<u64>,
    pub phases: Vec<Phase>,
}

impl Guest {
    pub fn new(number: usize, setup: &GuestSetup, of: &Setup) -> Result<Self, SetupError> {
        let program = setup.work.build(number as u32 + 1);
        let usable = setup.frames.saturating_sub(setup.balloon);
        let notifier = setup.notify.map(|notify| Notifier::new(notify, usable));
        Ok(Self {
            number,
            pager: of.guest(setup)?,
            frames: Frames::new(usable, program.footprint()),
            swap_at: setup.swap_at_mib << 8,
            notifier: notifier.transpose()?,
            no_swap: setup.swap_slots == 0,
            program,
            step: None,
            ops: VecDeque::new(),
            blocked: false,
            waiting: false,
            tick_due: false,
            ready_at: 0,
            ended_at: None,
            phases: Vec::new(),
        })
    }

    pub fn name(&self) -> &'static str {
        self.program.name()
    }

    /// Its program is over. Its memory stays.
    pub const fn ended(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Whether its CPU has something to do.
    pub fn can_run(&self) -> bool {
        let drains = self.notifier.as_ref().is_some_and(|notifier| notifier.due);
        let kernel = drains || self.tick_due || !self.ops.is_empty();
        !self.blocked && (kernel || !(self.waiting || self.ended()))
    }

    /// A transfer is complete: its kernel hears of it when its CPU runs.
    pub fn interrupt(&mut self, id: ActionId) {
        self.ops.push_back(Op::Transferred(id));
    }

    /// When its rings are to be drained.
    pub fn next_drain(&self) -> u64 {
        let notifier = self.notifier.as_ref().filter(|notifier| !notifier.due);
        notifier.map_or(u64::MAX, |notifier| notifier.next_drain)
    }

    /// The time for that has come.
    pub fn drain_falls_due(&mut self, now: u64) {
        if self.next_drain() <= now
            && let Some(notifier) = &mut self.notifier
        {
            notifier.due = true;
            self.ready_at = self.ready_at.max(now);
        }
    }

    /// The pages of its program.
    pub fn extent(&self) -> PageRange {
        let start = PageNo::new(ObjectId(self.number as u32 + 1), 0);
        PageRange::new(start, self.program.footprint())
    }

    /// The step that its program is in.
    pub fn current(&mut self) -> Step {
        *self.step.get_or_insert_with(|| self.program.step())
    }

    /// What is left of the step.
    pub const fn left(&mut self, rest: Option<Step>) {
        self.step = rest;
    }
}
