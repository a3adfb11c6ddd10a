//! Threads that are bound for no longer than it takes to wake them.
//!
//! What a thread begins may run where the thread may. Under `outpage run` hooks see to it that it begins nothing while it is bound, and that it
//! hears of its own CPUs when it asks for them. A library has no hooks. So there a thread is bound right before it is woken and let go right
//! after: it is woken on the pager's CPU, and runs when the pager rests. So that it does not take that CPU at once, it is `SCHED_BATCH` as long as it is bound. If the
//! pager lost its CPU nevertheless, the thread may have run, and what it began is looked for.

use outpage_core::units::Nanos;
use outpage_sys::clock;
use outpage_sys::process::{self, CpuSet, Tid};
use outpage_sys::tasks::{self, Scheduling};

/// Generations of processes that are looked for: a program that is started may start another one. A choice.
const GENERATIONS: u32 = 3;

/// What was so when a thread was bound.
#[derive(Clone, Copy)]
pub struct Watch {
    began: Nanos,
    switches: u64,
}

impl Watch {
    /// `tid` is to be bound: from now on it does not run at once when it is woken. `None` if it is no ordinary thread: it is to stay as it is.
    pub fn begin(tid: Tid) -> Option<Self> {
        if tasks::scheduling(tid) != Some(Scheduling::Other) {
            return None;
        }
        tasks::set_scheduling(tid, Scheduling::Batch).ok()?;
        Some(Self {
            began: clock::since_boot(),
            switches: process::switches(),
        })
    }

    /// Whether the thread may have run while it was bound.
    pub fn may_have_run(&self) -> bool {
        process::switches() != self.switches
    }

    /// What `tid` began while it was bound to `cpu`, until `ended`, may run on its `own` CPUs as well. To be done when it may itself.
    pub fn look(&self, tid: Tid, cpu: u32, own: &CpuSet, ended: Nanos) {
        let span = self.began..=Nanos(ended.0 + tasks::TICK.0);
        let free = |heir: Tid| {
            let bound = process::affinity(heir).ok() == Some(CpuSet::one(cpu));
            let like_it = bound || tasks::scheduling(heir) == Some(Scheduling::Batch);
            let is_heir = like_it && tasks::began(heir).is_some_and(|began| span.contains(&began));
            if is_heir {
                set_back(heir);
            }
            if is_heir && bound {
                let _ = process::set_affinity(heir, own);
            }
            is_heir
        };
        let free_too = |thread| {
            free(thread);
        };
        if process::each_thread_beside(tid, free_too).is_err() {
            // It has ended: this process's own are looked at, as it was one of them in most cases.
            let _ = process::each_thread(free_too);
        }
        free_children(tid, GENERATIONS, &free);
    }
}

/// `tid` is an ordinary thread again. To be done before it may run elsewhere. Whoever was scheduled otherwise meanwhile keeps it.
pub fn set_back(tid: Tid) {
    if tasks::scheduling(tid) == Some(Scheduling::Batch) {
        let _ = tasks::set_scheduling(tid, Scheduling::Other);
    }
}

/// Has `free` see the processes that `of` began, and what those began which it freed.
fn free_children(of: Tid, generations: u32, free: &dyn Fn(Tid) -> bool) {
    if generations == 0 {
        return;
    }
    tasks::each_child(of, |child| {
        if free(child) {
            free_children(child, generations - 1, free);
        }
    });
}
