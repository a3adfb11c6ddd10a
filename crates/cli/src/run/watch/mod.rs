//! What the launcher does while the program runs: it looks, from time to time.

pub mod thrash;
pub(super) mod tree;
pub mod unpaged;

use std::time::{Duration, Instant};

use outpage_engine::session::Session;
use outpage_sys::{process, say};

use thrash::{Moment, Thrash};
use tree::Tree;
use unpaged::{Looks, Unpaged};

/// Memory is looked at after this time first, then after an eighth of the time that the run took so far:
/// what a program has for a tenth of its time is seen. A choice.
const LOOK_FIRST: Duration = Duration::from_millis(10);
/// At the latest after this time.
const LOOK_LAST: Duration = Duration::from_secs(1);
/// And after so many times the CPU time of the look, so that looks take 1 % of a CPU at most.
const LOOK_COST: u32 = 100;
/// The counters are written again after this time: a file that is read while the run lasts is as new as a
/// person can want it. A choice.
const SNAPSHOT: Duration = Duration::from_secs(2);

/// A pager in a process of its own sees within a tenth of a second that the program has ended; twice that where the CPUs are busy.
const PAGER_ENDS: Duration = Duration::from_millis(200);
/// Between two looks whether it has.
const PAGER_LOOK: Duration = Duration::from_millis(2);

/// Waits for pagers that have outlived the processes they belong to: they end where nobody else has the memory. Who runs on is not waited for.
pub fn await_pagers(session: &Session) {
    let until = Instant::now() + PAGER_ENDS;
    loop {
        session.reap();
        // The home of shared memory leaves when nobody has any.
        let ended = |pid| session.is_home(pid) || !tree::is_there(pid);
        if !session.members().any(|member| ended(member.pid)) || Instant::now() >= until {
            return;
        }
        std::thread::sleep(PAGER_LOOK);
    }
}

/// Looks at a run.
pub struct Watch {
    began: Instant,
    tree: Tree,
    memory: Looks,
    thrash: Option<Thrash>,
    limit: u64,
    memory_due: Instant,
    snapshot_due: Instant,
    span_due: Instant,
}

impl Watch {
    /// Of `program`, which runs since `began` under `limit` bytes; `speaks` of what the user should know.
    pub fn new(program: u32, began: Instant, limit: u64, speaks: bool) -> Self {
        Self {
            began,
            tree: Tree::of(program),
            memory: Looks::default(),
            thrash: speaks.then(Thrash::default),
            limit,
            memory_due: began + LOOK_FIRST,
            snapshot_due: began + SNAPSHOT,
            span_due: began + thrash::SPAN,
        }
    }

    /// Does what is due, `snapshot` included; returns when to come again.
    pub fn look(&mut self, session: &Session, snapshot: impl FnOnce(&Unpaged)) -> Instant {
        let now = Instant::now();
        if now >= self.memory_due {
            let before = process::own_cpu();
            self.memory.look(session, &self.tree.look());
            let cost = Duration::from_nanos(process::own_cpu().0 - before.0);
            let pause = (now - self.began) / 8;
            let pause = pause.clamp(LOOK_FIRST, LOOK_LAST);
            self.memory_due = now + pause.max(cost * LOOK_COST);
        }
        if now >= self.span_due {
            self.judge(session, now);
            self.span_due = now + thrash::SPAN;
        }
        if now >= self.snapshot_due {
            snapshot(&self.memory.peak());
            self.snapshot_due = now + SNAPSHOT;
        }
        self.memory_due.min(self.span_due).min(self.snapshot_due)
    }

    /// Says so if the run has been thrashing.
    fn judge(&mut self, session: &Session, now: Instant) {
        let Some(thrash) = &mut self.thrash else {
            return;
        };
        let counts = session.totals();
        // Damaged counters say nothing; the user is told at the end.
        if session.check().is_err() {
            return;
        }
        let mut worked = Duration::ZERO;
        // Before the first page-in there is nothing to judge.
        if counts.page_ins > 0 {
            let ticks: u64 = self.tree.look().into_iter().map(tree::cpu_ticks).sum();
            worked = TICK * u32::try_from(ticks).unwrap_or(u32::MAX);
        }
        let moment = Moment::new(now - self.began, &counts, worked);
        if let Some(line) = thrash.judge(moment, self.limit) {
            say::say(&["outpage: ", &line]);
        }
    }

    /// The most that was in RAM and is not paged.
    pub const fn unpaged(&self) -> Unpaged {
        self.memory.peak()
    }
}

/// A tick of `/proc/PID/stat`: `USER_HZ` is 100 on x86-64 (arch/x86/include/asm/param.h, asm-generic/param.h).
const TICK: Duration = Duration::from_millis(10);
