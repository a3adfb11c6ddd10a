//! A pager for threads that run in real time.
//!
//! A thread of the program's runs in real time and waits for a page, and another one, which waits for it, keeps the CPU. Scheduled as usual, the
//! pager would have a twentieth of that CPU (`fair_server` in kernel/sched/deadline.c, Linux 6.8), or nothing.

use outpage_core::contract::Waiter;
use outpage_sys::process::{self, Tid};
use outpage_sys::tasks;

use crate::live::Live;

/// Of so many faults one is looked at, the first included. A choice: two short system calls are little beside sixteen faults, and a pager that has a twentieth of a
/// CPU still comes to sixteen within a second (faults of 20 us).
const EVERY: u32 = 16;

impl Live {
    /// The pager's threads are scheduled as `tid`, whose fault has the name `waiter`, from then on, where that is more urgent. Where the program may
    /// not have that any more they stay as they are.
    pub(crate) fn keep_up(&self, tid: Tid, waiter: Waiter) {
        if waiter.0 % EVERY != 1 {
            return;
        }
        let (wanted, own) = (tasks::real_time(tid), process::tid());
        if wanted > 0 && wanted > tasks::real_time(own) {
            let helpers = [self.world.door.helper(), self.beside.helper()];
            for tid in helpers.into_iter().flatten().chain([own]) {
                let _ = tasks::set_real_time(tid, wanted);
            }
        }
    }
}
