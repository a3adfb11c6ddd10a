//! On which CPU the pager's thread runs.
//!
//! Waking a thread that sleeps on another virtual CPU costs 50 to 60 us, on its own CPU 7 us: as
//! much as reading a page. So while faults come from one thread, the pager follows that thread;
//! when they come from several, the scheduler decides.
//!
//! The scheduler would wake the thread on another CPU that is idle (`select_idle_sibling`), for the
//! pager runs on its own. So the thread is bound to it from its fault until it was woken: it sleeps
//! all that time and cannot see it.
//!
//! Which CPU that is matters too: where a device interrupts one CPU only, a read awaited on another
//! one takes 15 to 20 us longer, because that CPU sleeps. So reads of one page are timed on each CPU
//! in turn, and the best one is kept for a while ([`Trials`]).

use outpage_core::units::Nanos;
use outpage_sys::process::{self, CpuSet, Tid};

mod trials;

use trials::Trials;

/// How often the faulting thread's CPU is looked up: a look costs about 10 us, a wrong CPU 50 us a
/// fault, and schedulers move a thread every few milliseconds at most.
const LOOK_EVERY: Nanos = Nanos(2_000_000);
/// Faults in a row from one thread before the pager follows it.
const FAITHFUL: u32 = 16;

/// Follows the faulting thread.
pub struct Placement {
    all: Option<CpuSet>,
    last: Tid,
    in_a_row: u32,
    at: Option<u32>,
    next_look: Nanos,
    /// The thread that is bound while it waits, and the CPUs it may use otherwise.
    held: Option<(Tid, CpuSet)>,
    trials: Trials,
}

impl Default for Placement {
    fn default() -> Self {
        Self::new()
    }
}

impl Placement {
    /// Leaves the thread where it is; of the CPUs it may use now, it is never taken off for good.
    #[must_use]
    pub fn new() -> Self {
        let all = process::affinity(Tid(0)).ok().filter(|set| set.count() > 1);
        Self {
            all,
            last: Tid(0),
            in_a_row: 0,
            at: None,
            next_look: Nanos(0),
            held: None,
            trials: Trials::default(),
        }
    }

    /// A fault came from `tid`, which waits.
    pub fn fault(&mut self, tid: Tid, now: Nanos) {
        let Some(all) = self.all else { return };
        self.woke();
        if tid != self.last {
            (self.last, self.in_a_row) = (tid, 0);
            if self.at.take().is_some() {
                let _ = process::set_affinity(Tid(0), &all);
            }
            return;
        }
        self.in_a_row += 1;
        if self.in_a_row < FAITHFUL {
            return;
        }
        if now >= self.next_look {
            self.follow(tid, &all);
            self.next_look = Nanos(now.0 + LOOK_EVERY.0);
        }
        self.hold(tid);
    }

    /// Goes to the CPU that reads best, else to that of `tid`.
    fn follow(&mut self, tid: Tid, all: &CpuSet) {
        let allowed = |&cpu: &u32| {
            all.contains(cpu) && process::affinity(tid).is_ok_and(|own| own.contains(cpu))
        };
        let best = self.trials.cpu().filter(allowed);
        let Some(cpu) = best.or_else(|| process::cpu_of(tid).filter(allowed)) else {
            return;
        };
        if self.at != Some(cpu) && process::set_affinity(Tid(0), &CpuSet::one(cpu)).is_ok() {
            self.at = Some(cpu);
        }
    }

    fn hold(&mut self, tid: Tid) {
        let Some(cpu) = self.at else { return };
        let Ok(own) = process::affinity(tid) else {
            return;
        };
        let may_move = own.count() > 1 && own.contains(cpu);
        if may_move && process::set_affinity(tid, &CpuSet::one(cpu)).is_ok() {
            self.held = Some((tid, own));
        }
    }

    /// Whoever waited goes on.
    pub fn woke(&mut self) {
        if let Some((tid, own)) = self.held.take() {
            let _ = process::set_affinity(tid, &own);
        }
    }

    /// A read of one page, awaited by one thread, took `took`.
    pub fn read(&mut self, took: Nanos, now: Nanos) {
        let (Some(all), Some(at)) = (self.all, self.at) else {
            return;
        };
        if self.trials.took(at, took, now, &all) {
            // There is another CPU to go to.
            self.next_look = Nanos(0);
        }
    }

    /// The pager shares a CPU with the only thread that faults, so waiting by yielding delays nobody.
    #[must_use]
    pub const fn beside_the_program(&self) -> bool {
        self.at.is_some()
    }
}
