//! A program that runs in a world.

use outpage_core::units::{PageNo, PageRange};

use super::memory::Memory;
use crate::programs::{Program, Step};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Runs or could.
    Ready,
    /// A fault of it is being served.
    Waiting,
    /// It is over.
    Ended,
}

/// A program, where it is, and what it cost.
pub(super) struct Process {
    program: Box<dyn Program>,
    step: Option<Step>,
    /// Rounds of the current [`Step::Together`] that are done.
    pub round: u64,
    pub state: State,
    /// When the current wait began.
    pub since: u64,
    /// The page of the last fault.
    pub page: Option<PageNo>,
    pub memory: Memory,
    pub cpu_ns: u64,
    /// That of its faults.
    pub fault_ns: u64,
    pub wait_ns: u64,
    pub touches: u64,
    pub faults: u64,
    pub pages_in: u64,
    pub pages_out: u64,
    pub reads: u64,
    pub ended_at: u64,
    /// When it ends, if that is given by the time.
    pub ends_at: Option<u64>,
}

impl Process {
    pub fn new(program: Box<dyn Program>) -> Self {
        Self {
            program,
            step: None,
            round: 0,
            state: State::Ready,
            since: 0,
            page: None,
            memory: Memory::default(),
            cpu_ns: 0,
            fault_ns: 0,
            wait_ns: 0,
            touches: 0,
            faults: 0,
            pages_in: 0,
            pages_out: 0,
            reads: 0,
            ended_at: 0,
            ends_at: None,
        }
    }

    pub fn name(&self) -> &'static str {
        self.program.name()
    }

    pub fn done(&self) -> u64 {
        self.program.done()
    }

    pub fn footprint(&self) -> u64 {
        self.program.footprint()
    }

    /// Whether the next step is yet to be taken from the program.
    pub const fn begins_step(&self) -> bool {
        self.step.is_none()
    }

    /// The step that it is in at `now`: the last one where its time is over.
    pub fn current(&mut self, now: u64) -> &Step {
        let over = self.ends_at.is_some_and(|at| at <= now);
        let next = || if over { Step::End } else { self.program.step() };
        self.step.get_or_insert_with(next)
    }

    /// The current step is done.
    pub const fn next(&mut self) {
        (self.step, self.round) = (None, 0);
    }

    /// Only `rest` is left of the run that is touched.
    pub const fn left_to_touch(&mut self, rest: PageRange) {
        if let Some(Step::Touch { run, .. }) = &mut self.step {
            *run = rest;
        }
    }

    /// Only `rest` is left of the current step; nothing at all if `done`.
    pub const fn left(&mut self, rest: Step, done: bool) {
        self.step = if done { None } else { Some(rest) };
    }
}
