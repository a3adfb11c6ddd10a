//! On which CPU the pager's thread runs.
//!
//! Waking a thread that sleeps on another virtual CPU costs 50 to 60 us, on its own CPU 7 us: as
//! much as reading a page. So while faults come from one thread, the pager follows that thread;
//! when they come from several, the scheduler decides, or what was tried (`Crowd`).
//!
//! The scheduler would wake the thread on another CPU that is idle (`select_idle_sibling`), for the
//! pager runs on its own. So the thread is bound to it from its fault on, and stays bound while it
//! faults again and again: on another CPU, every page that is taken from it would interrupt it.
//!
//! Which CPU that is matters too: where a device interrupts one CPU only, a read awaited on another
//! one takes 15 to 20 us longer, because that CPU sleeps. So reads of one page are timed on each CPU
//! in turn, and the best one is kept for a while (`Trials`).
//!
//! Where the process may use one CPU only, nobody is bound and nobody followed.

use outpage_core::units::Nanos;
use outpage_sys::process::{self, CpuSet, Tid};
use outpage_sys::tasks;

mod brief;
mod crowd;
mod held;
mod trials;
mod yielding;

use crowd::Crowd;
use held::Held;
use trials::Trials;
pub use yielding::{Yielded, await_by_yielding};

/// How often the faulting thread's CPU is looked up: a look costs about 10 us, a wrong CPU 50 us a
/// fault, and schedulers move a thread every few milliseconds at most.
const LOOK_EVERY: Nanos = Nanos(2_000_000);
/// Faults in a row from one thread before the pager follows it.
const FAITHFUL: u32 = 16;
/// After a wait in which another program had the CPU, at most so many reads are awaited asleep before
/// yielding is tried again: a try costs a time slice of some milliseconds, a read asleep 50 us. Beside a
/// busy loop on the only CPU, 3,000 touches took 3.96, 0.47, 0.28 and 0.25 s with 1, 16, 256 and 4096 (medians of 5).
const ASLEEP_MAX: u32 = 256;

/// For so long threads are bound briefly after one was found on another CPU than the pager. A choice, not varied: many times `LOOK_EVERY`, after which one that
/// is bound no more is found there again.
const STRAYS_FOR: Nanos = Nanos(64_000_000);

/// Threads that are kept unbound at once, those included that went over to another program from a child
/// of vfork and never say that they are done: the oldest make room.
const UNBOUND_MAX: usize = crate::call::SLOTS;

/// Follows the faulting thread.
pub struct Placement {
    all: Option<CpuSet>,
    /// Who faulted last, and when.
    last: Tid,
    last_at: Nanos,
    in_a_row: u32,
    at: Option<u32>,
    next_look: Nanos,
    /// The thread to bind before it is woken.
    to_hold: Option<Tid>,
    /// Those that are bound.
    held: Held,
    crowd: Crowd,
    /// Threads that must not be bound now; 0 is all of them.
    unbound: Vec<Tid>,
    /// Where no hook sees what a thread begins while it is bound: whoever is bound is let go as soon as it was woken, and after that time nobody is bound.
    brief: Option<Nanos>,
    /// Reads to await asleep after the last wait that let another program run, and those left of them.
    asleep: u32,
    asleep_left: u32,
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
            last_at: Nanos(0),
            in_a_row: 0,
            at: None,
            next_look: Nanos(0),
            to_hold: None,
            held: Held::default(),
            crowd: Crowd::default(),
            unbound: Vec::with_capacity(UNBOUND_MAX),
            brief: None,
            asleep: 0,
            asleep_left: 0,
            trials: Trials::default(),
        }
    }

    /// A fault came from `tid`, which waits.
    pub fn fault(&mut self, tid: Tid, now: Nanos) {
        let Some(all) = self.all else { return };
        self.to_hold = None;
        let turn = tid != self.last;
        (self.last, self.last_at) = (tid, now);
        self.try_ways(turn, now);
        if turn && !self.crowd.together() {
            self.in_a_row = 0;
            self.let_loose(&all);
            return;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row < FAITHFUL {
            return;
        }
        if now >= self.next_look {
            self.follow(tid, &all, now);
            self.next_look = Nanos(now.0 + LOOK_EVERY.0);
            self.held.let_go_of_old(self.at, now);
        }
        self.to_hold = self.held.own(tid).is_none().then_some(tid);
    }

    /// Has `Crowd` choose between the ways, unless nobody may be bound.
    fn try_ways(&mut self, turn: bool, now: Nanos) {
        if self.brief.is_some() || self.unbound.contains(&Tid(0)) {
            return;
        }
        let together = self.crowd.together();
        self.crowd.fault(turn, now);
        if self.crowd.together() && !together {
            (self.in_a_row, self.next_look) = (FAITHFUL, Nanos(0));
        }
    }

    /// The scheduler decides where the pager and the program run.
    fn let_loose(&mut self, all: &CpuSet) {
        self.let_go();
        if self.at.take().is_some() {
            let _ = process::set_affinity(Tid(0), all);
        }
    }

    /// Goes to the CPU that reads best, else to that of `tid`.
    fn follow(&mut self, tid: Tid, all: &CpuSet, now: Nanos) {
        let mut its = None;
        if let Some(until) = &mut self.brief {
            its = tasks::cpu_of(tid);
            if its != self.at {
                *until = Nanos(now.0 + STRAYS_FOR.0);
            }
        }
        let own = self.held.own(tid).or_else(|| process::affinity(tid).ok());
        let allowed =
            |&cpu: &u32| all.contains(cpu) && own.is_some_and(|own: CpuSet| own.contains(cpu));
        // Who is bound briefly does not come along.
        let comes_along = self.brief.is_none();
        let best = (self.trials.cpu()).filter(|cpu| comes_along && allowed(cpu));
        // Those that are bound already are not to go from CPU to CPU with each other.
        let stays = self.at.filter(|_| self.crowd.together());
        let Some(cpu) = best
            .or(stays)
            .or_else(|| its.or_else(|| tasks::cpu_of(tid)).filter(allowed))
        else {
            return;
        };
        if self.at != Some(cpu) && process::set_affinity(Tid(0), &CpuSet::one(cpu)).is_ok() {
            self.let_go();
            self.at = Some(cpu);
        }
    }

    /// Binds the thread that faulted last, if that is not done yet. It costs 4 us, so a fault that takes a
    /// read comes to it while the device reads. To be done before the thread is woken.
    pub fn hold(&mut self) {
        let (Some(tid), Some(cpu)) = (self.to_hold.take(), self.at) else {
            return;
        };
        let brief_is_over = self.brief.is_some_and(|until| self.last_at >= until);
        if !brief_is_over && !self.unbound.iter().any(|&u| u == tid || u == Tid(0)) {
            self.held.bind(tid, cpu, self.last_at);
        }
    }

    /// As [`Self::hold`], some time before the thread is woken.
    pub fn hold_early(&mut self) {
        if self.brief.is_none() {
            self.hold();
        }
    }

    /// Binds nobody for longer than it takes to be woken: no hook sees what a thread begins while it is bound.
    pub const fn be_brief(&mut self) {
        self.brief = Some(Nanos(0));
        self.held.watch();
    }

    /// `tid`, who waited, goes on; while another program wants the CPU, on any.
    pub fn woke(&mut self, tid: Option<Tid>, now: Nanos) {
        self.to_hold = None;
        let waits_for_cpu = self.brief.is_some() && self.held.len() > 0;
        if self.brief.is_some() || self.asleep > 0 {
            self.let_go();
        }
        if waits_for_cpu {
            process::yield_now();
        }
        if let Some(tid) = tid {
            self.held.woke(tid, now);
        }
    }

    /// When a bound thread is to be let go, if there is one that runs.
    pub fn lease(&self) -> Option<Nanos> {
        self.held.first()
    }

    /// Those whose lease is over are bound no more.
    pub fn let_go_of_old(&mut self, now: Nanos) {
        self.held.let_go_of_old(self.at, now);
    }

    /// Nobody is bound any more. CPUs that somebody else chose for a thread meanwhile stay.
    pub fn let_go(&mut self) {
        self.held.let_go(self.at);
    }

    /// Whether [`Self::rested`] wants to be told: threads fault where they like.
    pub const fn is_loose(&self) -> bool {
        self.at.is_none()
    }

    /// The pager slept for so long because there was nothing to do.
    pub const fn rested(&mut self, took: Nanos) {
        self.crowd.rested(took);
    }

    /// Nobody is bound now, and `tid` (0: nobody) will not be until [`Self::bind`]; if that is not to
    /// last, until it faulted `FAITHFUL` times more.
    pub fn unbind(&mut self, tid: Tid, lasting: bool) {
        self.to_hold = None;
        self.let_go();
        self.in_a_row = 0;
        if lasting {
            if self.unbound.len() == UNBOUND_MAX {
                self.unbound.remove(0);
            }
            self.unbound.push(tid);
        }
    }

    /// Ends one lasting [`Self::unbind`].
    pub fn bind(&mut self, tid: Tid) {
        if let Some(at) = self.unbound.iter().position(|&u| u == tid) {
            self.unbound.swap_remove(at);
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

    /// Whether to await the next read by yielding, with `waiting` threads that wait: the pager shares a CPU with all threads that
    /// fault and they wait, or there is one CPU for all, and no other program had it lately.
    pub fn may_yield(&mut self, waiting: usize) -> bool {
        if self.all.is_some() && (self.at.is_none() || waiting < self.held.len()) {
            return false;
        }
        let crowded = self.asleep_left > 0;
        self.asleep_left = self.asleep_left.saturating_sub(1);
        !crowded
    }

    /// How a read was awaited by yielding.
    pub fn yielded(&mut self, end: Yielded) {
        self.asleep = match end {
            Yielded::Done => 0,
            Yielded::Crowded => (2 * self.asleep).clamp(1, ASLEEP_MAX),
            Yielded::Ran | Yielded::Late => return,
        };
        self.asleep_left = self.asleep;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use outpage_sys::tasks::Scheduling;

    use super::*;

    #[test]
    fn where_no_hook_sees_a_thread_it_is_bound_while_it_is_woken_if_others_woke_elsewhere() {
        let all = process::affinity(Tid(0)).expect("CPUs");
        if all.count() == 1 {
            return eprintln!("SKIPPED: with one CPU nobody can be bound");
        }
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = tell.send(process::tid());
            let _ = ended.recv();
        });
        let tid = told.recv().expect("a thread");
        // On its way to sleep it may still move.
        let stat = format!("/proc/self/task/{}/stat", tid.0);
        let sleeps = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
        while !sleeps() {
            std::thread::yield_now();
        }
        let of = || {
            (
                process::affinity(tid).expect("it lives"),
                tasks::scheduling(tid),
            )
        };
        let own = (all, Some(Scheduling::Other));
        let mut placement = Placement::new();
        placement.be_brief();
        let bound = |placement: &mut Placement, now: u64| {
            (0..=FAITHFUL).for_each(|_| placement.fault(tid, Nanos(now)));
            placement.hold_early();
            assert_eq!(of(), own, "a read is under way");
            placement.hold();
            let bound = of();
            placement.woke(Some(tid), Nanos(now));
            assert_eq!(of(), own);
            (bound != own).then_some(bound)
        };
        let its = tasks::cpu_of(tid).expect("it lives");
        let here = Some((CpuSet::one(its), Some(Scheduling::Batch)));
        assert_eq!(bound(&mut placement, 0), here, "the pager was not there");
        assert_eq!(bound(&mut placement, STRAYS_FOR.0 - 1), here);
        let later = STRAYS_FOR.0 + LOOK_EVERY.0;
        assert_eq!(bound(&mut placement, later), None, "it is, ever since");
        placement.let_loose(&all);
        drop(end);
        thread.join().expect("no panic");
    }
}
