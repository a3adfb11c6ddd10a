//! The threads that are bound to the pager's CPU, and until when.

use outpage_core::units::Nanos;
use outpage_sys::clock;
use outpage_sys::process::{self, CpuSet, Tid};

use super::brief::{self, Watch};

/// Threads that are bound at once. A choice: more that fault one after the other come to their CPU seldom.
const THREADS_MAX: usize = 32;
/// How long a thread stays bound after it was woken. A choice, measured against none at all
/// (docs/performance.md, "The CPU of the pager"): programs that page fault every 0.1 to 0.3 ms, and the rest is not to wait for a CPU.
const LEASE: Nanos = Nanos(1_000_000);
/// So much longer for each other thread that is bound, which has the CPU meanwhile: what a fault takes here at p90. A choice.
const LEASE_EACH: u64 = 50_000;

/// What a thread began is looked for again so long after it was let go, and so long after that: one that was interrupted while it began something has copied what
/// it was bound to already, and shows nothing yet. A choice: to begin a thread takes 50 us of a CPU, which on a busy machine comes late.
const AGAIN: [Nanos; 3] = [Nanos(20_000_000), Nanos(100_000_000), Nanos(1_000_000_000)];

/// A thread that was bound, and may have begun something then.
struct Suspect {
    tid: Tid,
    cpu: u32,
    own: CpuSet,
    watch: Watch,
    /// When it was let go, by the clock of [`clock::since_boot`].
    ended: Nanos,
    /// Looks so far, and when the next one is due.
    looks: usize,
    due: Nanos,
}

/// A thread that is bound.
struct Bound {
    tid: Tid,
    /// The CPUs that it may use otherwise.
    own: CpuSet,
    /// When it is let go.
    until: Nanos,
    /// Where no hook sees what it begins.
    watch: Option<Watch>,
}

/// All threads that are bound.
pub struct Held {
    threads: Vec<Bound>,
    /// Whether what they begin is watched.
    watches: bool,
    /// Those that were let go a while ago, whose doings are looked at again.
    suspects: Vec<Suspect>,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            threads: Vec::with_capacity(THREADS_MAX),
            watches: false,
            suspects: Vec::with_capacity(THREADS_MAX),
        }
    }
}

impl Held {
    /// From now on what a bound thread begins has the CPUs that the thread had before.
    pub const fn watch(&mut self) {
        self.watches = true;
    }

    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// The CPUs that `tid` may use when it is not bound; `None` if it is not.
    pub fn own(&self, tid: Tid) -> Option<CpuSet> {
        self.threads.iter().find(|t| t.tid == tid).map(|t| t.own)
    }

    /// Binds `tid` to `cpu` until [`Self::woke`] says more, if it may run there and elsewhere. Two calls of the kernel, 4 us; five where
    /// it is watched.
    pub fn bind(&mut self, tid: Tid, cpu: u32, now: Nanos) {
        if self.threads.len() == THREADS_MAX {
            return;
        }
        let Ok(own) = process::affinity(tid) else {
            return;
        };
        if own.count() == 1 || !own.contains(cpu) {
            return;
        }
        let watch = self.watches.then(|| Watch::begin(tid)).flatten();
        if self.watches && watch.is_none() {
            return;
        }
        let until = self.lease_from(now);
        let thread = Bound {
            tid,
            own,
            until,
            watch,
        };
        match process::set_affinity(tid, &CpuSet::one(cpu)) {
            Ok(()) => self.threads.push(thread),
            Err(_) => drop(thread.let_go(None)),
        }
    }

    /// `tid` goes on, and stays bound for a lease.
    pub fn woke(&mut self, tid: Tid, now: Nanos) {
        let until = self.lease_from(now);
        if let Some(thread) = self.threads.iter_mut().find(|t| t.tid == tid) {
            thread.until = until;
        }
    }

    /// When the first of them is to be let go, or looked at again.
    pub fn first(&self) -> Option<Nanos> {
        let due = self.suspects.iter().map(|suspect| suspect.due);
        self.threads.iter().map(|t| t.until).chain(due).min()
    }

    /// Lets those go, of the ones bound to `cpu`, whose lease is over.
    pub fn let_go_of_old(&mut self, cpu: Option<u32>, now: Nanos) {
        let suspects = &mut self.suspects;
        self.threads.retain(|thread| {
            let stays = now < thread.until;
            if !stays && let Some(suspect) = thread.let_go(cpu) {
                suspect.join(suspects);
            }
            stays
        });
        self.look_again(now);
    }

    /// Nobody is bound to `cpu` any more.
    pub fn let_go(&mut self, cpu: Option<u32>) {
        for thread in self.threads.drain(..) {
            if let Some(suspect) = thread.let_go(cpu) {
                suspect.join(&mut self.suspects);
            }
        }
        if !self.suspects.is_empty() {
            self.look_again(clock::now());
        }
    }

    /// Looks for what those began that were let go a while ago.
    fn look_again(&mut self, now: Nanos) {
        self.suspects.retain_mut(|suspect| {
            if now < suspect.due {
                return true;
            }
            suspect.look();
            suspect.looks += 1;
            let next = AGAIN.get(suspect.looks);
            suspect.due = Nanos(now.0 + next.map_or(0, |next| next.0));
            next.is_some()
        });
    }

    fn lease_from(&self, now: Nanos) -> Nanos {
        let others = self.threads.len().saturating_sub(1) as u64;
        Nanos(now.0 + LEASE.0 + others * LEASE_EACH)
    }
}

impl Bound {
    /// CPUs that somebody else chose for it meanwhile stay. Returns it where it may have begun something.
    fn let_go(&self, cpu: Option<u32>) -> Option<Suspect> {
        if self.watch.is_some() {
            brief::set_back(self.tid);
        }
        if process::affinity(self.tid).ok() == cpu.map(CpuSet::one) {
            let _ = process::set_affinity(self.tid, &self.own);
        }
        let watch = self.watch.filter(Watch::may_have_run)?;
        let suspect = Suspect {
            tid: self.tid,
            cpu: cpu?,
            own: self.own,
            watch,
            ended: clock::since_boot(),
            looks: 0,
            due: Nanos(clock::now().0 + AGAIN[0].0),
        };
        suspect.look();
        Some(suspect)
    }
}

impl Suspect {
    fn look(&self) {
        self.watch.look(self.tid, self.cpu, &self.own, self.ended);
    }

    /// Is looked at again from now on; one thread stands here once, however often it was bound.
    fn join(self, others: &mut Vec<Self>) {
        let same =
            |other: &&mut Self| (other.tid, other.cpu, other.own) == (self.tid, self.cpu, self.own);
        if let Some(known) = others.iter_mut().find(same) {
            (known.ended, known.looks) = (self.ended, 0);
        } else if others.len() < THREADS_MAX {
            others.push(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError, mpsc};

    /// A look frees whatever thread of the process was begun meanwhile, those of another test too.
    static ONE_LOOKS: Mutex<()> = Mutex::new(());

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
        let _one = ONE_LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Says who it is, and begins a thread and a process when it is told to, which begins one of its own: these.
    fn thread_that_begins_others(
        of: mpsc::Sender<Vec<Tid>>,
    ) -> (mpsc::Sender<()>, std::thread::JoinHandle<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = of.send(vec![process::tid()]);
            let _ = ended.recv();
            let (thread, end_thread) = idle_thread();
            let mut shell = std::process::Command::new("sh")
                .args(["-c", "sleep 600 & echo $!; wait"])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("a shell");
            let mut line = String::new();
            let out = shell.stdout.take().expect("a pipe");
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)
                .expect("its child");
            let child = Tid(line.trim().parse().expect("a number"));
            let _ = of.send(vec![thread, Tid(shell.id()), child]);
            let _ = ended.recv();
            let _ = shell.kill();
            let _ = std::process::Command::new("kill")
                .arg(child.0.to_string())
                .status();
            let _ = shell.wait();
            drop(end_thread);
        });
        (end, thread)
    }

    #[test]
    fn what_a_bound_thread_began_gets_its_cpus_too_where_no_hook_sees_it() {
        let _one = ONE_LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        let own = process::affinity(Tid(0)).expect("CPUs");
        let Some(cpu) = (0..1024).find(|&cpu| own.contains(cpu) && own.count() > 1) else {
            return eprintln!("SKIPPED: with one CPU nobody can be bound");
        };
        let of = |tid| process::affinity(tid).expect("it lives");
        for watches in [false, true] {
            let (tell, told) = mpsc::channel();
            let (go_on, thread) = thread_that_begins_others(tell);
            let tid = told.recv().expect("a thread")[0];
            let mut held = Held::default();
            if watches {
                held.watch();
            }
            held.bind(tid, cpu, Nanos(0));
            go_on.send(()).expect("it waits");
            let begun = told.recv().expect("it goes on");
            assert!(begun.iter().all(|&tid| of(tid) == CpuSet::one(cpu)));
            held.let_go(Some(cpu));
            let of_heirs: Vec<_> = begun.iter().map(|&tid| of(tid) == own).collect();
            go_on.send(()).expect("it waits");
            thread.join().expect("no panic");
            assert_eq!(of_heirs, [watches; 3]);
        }
    }

    #[test]
    fn what_shows_late_is_found_by_a_later_look() {
        let _one = ONE_LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        let own = process::affinity(Tid(0)).expect("CPUs");
        let Some(cpu) = (0..1024).find(|&cpu| own.contains(cpu) && own.count() > 1) else {
            return eprintln!("SKIPPED: with one CPU nobody can be bound");
        };
        let (tell, told) = mpsc::channel();
        let (go_on, thread) = thread_that_begins_others(tell);
        let tid = told.recv().expect("a thread")[0];
        let mut held = Held::default();
        held.watch();
        held.bind(tid, cpu, Nanos(0));
        go_on.send(()).expect("it waits");
        let late = told.recv().expect("it goes on")[0];
        // As if it were not there yet.
        brief::set_back(late);
        process::set_affinity(late, &own).expect("it lives");
        held.let_go(Some(cpu));
        process::set_affinity(late, &CpuSet::one(cpu)).expect("it lives");
        let mut found = Vec::new();
        for span in AGAIN {
            let due = held.first().expect("another look");
            assert!(due <= Nanos(clock::now().0 + 2 * AGAIN[2].0), "{span:?}");
            held.let_go_of_old(Some(cpu), due);
            found.push(process::affinity(late).expect("it lives") == own);
        }
        let over = held.first();
        go_on.send(()).expect("it waits");
        thread.join().expect("no panic");
        assert_eq!((found, over), (vec![true; 3], None));
    }
}
