//! The threads that are bound to the pager's CPU, and until when.

use outpage_core::units::Nanos;
use outpage_sys::process::{self, CpuSet, Tid};

/// Threads that are bound at once. A choice: more that fault one after the other come to their CPU seldom.
const THREADS_MAX: usize = 32;
/// How long a thread stays bound after it was woken. A choice, measured against none at all
/// (docs/performance.md, "The CPU of the pager"): programs that page fault every 0.1 to 0.3 ms, and the rest is not to wait for a CPU.
const LEASE: Nanos = Nanos(1_000_000);
/// So much longer for each other thread that is bound, which has the CPU meanwhile: what a fault takes here at p90. A choice.
const LEASE_EACH: u64 = 50_000;

/// A thread that is bound.
struct Bound {
    tid: Tid,
    /// The CPUs that it may use otherwise.
    own: CpuSet,
    /// When it is let go.
    until: Nanos,
}

/// All threads that are bound.
pub struct Held {
    threads: Vec<Bound>,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            threads: Vec::with_capacity(THREADS_MAX),
        }
    }
}

impl Held {
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// The CPUs that `tid` may use when it is not bound; `None` if it is not.
    pub fn own(&self, tid: Tid) -> Option<CpuSet> {
        self.threads.iter().find(|t| t.tid == tid).map(|t| t.own)
    }

    /// Binds `tid` to `cpu` until [`Self::woke`] says more, if it may run there and elsewhere. Two calls of the kernel, 4 us.
    pub fn bind(&mut self, tid: Tid, cpu: u32, now: Nanos) {
        if self.threads.len() == THREADS_MAX {
            return;
        }
        let Ok(own) = process::affinity(tid) else {
            return;
        };
        let may_move = own.count() > 1 && own.contains(cpu);
        if may_move && process::set_affinity(tid, &CpuSet::one(cpu)).is_ok() {
            let until = self.lease_from(now);
            self.threads.push(Bound { tid, own, until });
        }
    }

    /// `tid` goes on, and stays bound for a lease.
    pub fn woke(&mut self, tid: Tid, now: Nanos) {
        let until = self.lease_from(now);
        if let Some(thread) = self.threads.iter_mut().find(|t| t.tid == tid) {
            thread.until = until;
        }
    }

    /// When the first of them is to be let go.
    pub fn first(&self) -> Option<Nanos> {
        self.threads.iter().map(|t| t.until).min()
    }

    /// Lets those go, of the ones bound to `cpu`, whose lease is over.
    pub fn let_go_of_old(&mut self, cpu: Option<u32>, now: Nanos) {
        self.threads.retain(|thread| {
            let stays = now < thread.until;
            if !stays {
                thread.let_go(cpu);
            }
            stays
        });
    }

    /// Nobody is bound to `cpu` any more.
    pub fn let_go(&mut self, cpu: Option<u32>) {
        self.threads.drain(..).for_each(|thread| thread.let_go(cpu));
    }

    fn lease_from(&self, now: Nanos) -> Nanos {
        let others = self.threads.len().saturating_sub(1) as u64;
        Nanos(now.0 + LEASE.0 + others * LEASE_EACH)
    }
}

impl Bound {
    /// CPUs that somebody else chose for it meanwhile stay.
    fn let_go(&self, cpu: Option<u32>) {
        if process::affinity(self.tid).ok() == cpu.map(CpuSet::one) {
            let _ = process::set_affinity(self.tid, &self.own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A thread of this process that waits until it is told to end.
    fn idle_thread() -> (Tid, mpsc::Sender<()>) {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = tell.send(process::tid());
            let _ = ended.recv();
        });
        (told.recv().expect("a thread"), end)
    }

    #[test]
    fn each_thread_is_let_go_when_its_own_lease_is_over_and_gets_its_cpus_back() {
        let own = process::affinity(Tid(0)).expect("CPUs");
        let Some(cpu) = (0..1024).find(|&cpu| own.contains(cpu) && own.count() > 1) else {
            return eprintln!("SKIPPED: with one CPU nobody can be bound");
        };
        let ((a, _a), (b, _b)) = (idle_thread(), idle_thread());
        let of = |tid| process::affinity(tid).expect("a living thread");
        let mut held = Held::default();
        held.bind(a, cpu, Nanos(0));
        held.bind(b, cpu, Nanos(0));
        assert_eq!(
            (held.len(), of(a), of(b)),
            (2, CpuSet::one(cpu), CpuSet::one(cpu))
        );
        assert_eq!(held.own(a), Some(own));
        held.woke(b, Nanos(LEASE.0));
        assert_eq!(held.first(), Some(LEASE), "that of a");
        held.let_go_of_old(Some(cpu), LEASE);
        assert_eq!((of(a), of(b)), (own, CpuSet::one(cpu)));
        assert_eq!(held.own(a), None);
        // Somebody chose other CPUs for b meanwhile: they stay.
        let other = (0..1024).find(|&other| own.contains(other) && other != cpu);
        let other = CpuSet::one(other.expect("two CPUs"));
        process::set_affinity(b, &other).expect("allowed");
        held.let_go(Some(cpu));
        assert_eq!((held.len(), of(b)), (0, other));
    }
}
