//! Stops that would never be complete: the pager of a stopped process goes on until all of the program has stopped.
//!
//! Example: Ctrl-Z while a thread reads a file into a page that is out. All threads are to stop, the pager's among them. But a thread
//! within a system call stops at its end, the call waits for the page, and the pager is stopped. A kernel that is interrupted there tries
//! again and again (`fault_signal_pending` in include/linux/sched/signal.h, Linux 6.18), so a CPU is busy, and no shell hears of a stop.
//!
//! The keeper looks, five times a second, whether a pager is stopped beside a thread that is not. It has that pager's threads go on by
//! ptrace(2) until all others have stopped, and lets them go: then they are stopped too.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use outpage_engine::session::{Session, State};
use outpage_sys::libc;
use outpage_sys::process::Tid;
use outpage_sys::ptrace::{self, News, Traced};
use outpage_sys::raw::Errno;
use outpage_sys::tasks::Status;

/// How often: a look at one process costs 0.2 ms, and whoever stops a program waits so long at most. A choice.
const LOOK: Duration = Duration::from_millis(200);
/// With many processes, or threads that are stopped, a look takes longer; no more than a fiftieth of a CPU goes to it.
const PART: u32 = 50;
/// But so often it is made, with however many. A choice.
const LOOK_AT_LEAST: Duration = Duration::from_secs(1);
/// A pager that is stopped this long beside a thread that is not will not see it stop: threads stop within microseconds.
const STUCK: Duration = Duration::from_millis(5);
/// Between two looks while a pager is traced. A choice.
const STEP: Duration = Duration::from_millis(1);
/// How long one process is helped at once, and its pager then let go, for others may wait. A choice.
const HELP: Duration = Duration::from_secs(2);

/// What is known of a process.
#[derive(Default)]
struct Process {
    /// The pager's thread, where one was found.
    pager: Option<u32>,
    /// Its threads that go on. One within a call that nothing interrupts is not let go at once.
    traced: Vec<Traced>,
    /// It may not be traced, as far as this stop goes.
    refused: bool,
}

/// Looks after the processes of `session` for ever.
pub fn attend(session: &Session) -> ! {
    let mut known = HashMap::new();
    loop {
        let begun = Instant::now();
        let stuck = look(session, &mut known);
        let took = begun.elapsed();
        for pid in stuck {
            if let Some(process) = known.get_mut(&pid) {
                process.help(pid);
            }
        }
        std::thread::sleep((took * PART).clamp(LOOK, LOOK_AT_LEAST));
    }
}

/// The processes that seem to be stuck.
fn look(session: &Session, known: &mut HashMap<u32, Process>) -> Vec<u32> {
    let live = session
        .members()
        .filter(|member| member.state == State::Live && member.pid != 0);
    let pids: Vec<u32> = live.map(|member| member.pid).collect();
    // A traced thread that has ended stays, and with it what its process's parent waits for, until its tracer has seen it.
    known.retain(|pid, process| pids.contains(pid) || !process.traced.is_empty());
    for pid in pids {
        known.entry(pid).or_default();
    }
    let stuck = known.iter_mut();
    stuck
        .filter_map(|(pid, process)| process.is_stuck(*pid).then_some(*pid))
        .collect()
}

impl Process {
    /// Whether the pager is stopped and another thread is not, be it one of the pager's own: what drops memory may wait for the pager.
    fn is_stuck(&mut self, pid: u32) -> bool {
        if !self.traced.is_empty() {
            return true;
        }
        let pager = self.pager.and_then(|tid| Task::read(pid, tid));
        let pager = pager
            .filter(|pager| pager.is_pager)
            .or_else(|| pager_of(pid));
        self.pager = pager.as_ref().map(|pager| pager.tid);
        let stopped = pager.is_some_and(|pager| pager.state == b'T');
        // A debugger may be gone by the next stop.
        self.refused &= stopped;
        stopped && !self.refused && {
            let (pagers, others) = tasks(pid);
            !pagers.iter().chain(&others).all(Task::is_done)
        }
    }

    /// Has the pager go on until the others have stopped, or the process goes on, or it has taken too long.
    fn help(&mut self, pid: u32) {
        // A stop that has just begun is not stuck.
        std::thread::sleep(STUCK);
        if !self.is_stuck(pid) {
            return;
        }
        self.seize(pid);
        let until = Instant::now() + HELP;
        while !self.refused && Instant::now() < until {
            if self.send_on() || all_stopped(pid) {
                break;
            }
            std::thread::sleep(STEP);
        }
        self.let_go(until + HELP);
    }

    /// Traces those of the pager's threads that are not traced yet.
    fn seize(&mut self, pid: u32) {
        let (pagers, _) = tasks(pid);
        for Task { tid, .. } in pagers {
            if self.traced.iter().any(|thread| thread.tid().0 == tid) {
                continue;
            }
            match ptrace::seize(Tid(tid)) {
                Ok(thread) => self.traced.push(thread),
                Err(Errno::ESRCH) => {}
                // A debugger has it, or the keeper has no right to.
                Err(_) => self.refused = true,
            }
        }
    }

    /// Has those that stopped go on. Returns whether the process does by itself: somebody continued it.
    fn send_on(&mut self) -> bool {
        let mut continued = false;
        self.traced.retain(|thread| match thread.news() {
            News::Gone => false,
            News::None => true,
            News::Stopped { signal, told } => {
                continued |= told && signal == libc::SIGTRAP;
                thread.go_on(if told { 0 } else { signal });
                true
            }
        });
        continued
    }

    /// Ends tracing: first of what may wait for the pager, which goes on meanwhile. What has not stopped by `until` stays traced until the next look.
    fn let_go(&mut self, until: Instant) {
        let pager = self.pager;
        let is_pager = |thread: &Traced| Some(thread.tid().0) == pager;
        let (mut last, mut first): (Vec<_>, Vec<_>) = self.traced.drain(..).partition(is_pager);
        interrupt(&mut first, &mut last, until);
        if first.is_empty() {
            interrupt(&mut last, &mut [], until);
        }
        self.traced.extend(first.into_iter().chain(last));
    }
}

/// Interrupts `threads` and ends tracing of each that has stopped, while `others` go on; until none is left, or the time is up.
fn interrupt(threads: &mut Vec<Traced>, others: &mut [Traced], until: Instant) {
    threads.iter().for_each(Traced::interrupt);
    loop {
        let (stopped, running): (Vec<_>, Vec<_>) = (threads.drain(..))
            .map(|thread| (thread.news(), thread))
            .filter(|(news, _)| *news != News::Gone)
            .partition(|(news, _)| matches!(news, News::Stopped { told: true, .. }));
        (stopped.into_iter()).for_each(|(_, thread)| thread.let_go());
        for (news, thread) in running {
            if let News::Stopped { signal, .. } = news {
                thread.go_on(signal);
            }
            threads.push(thread);
        }
        for thread in &mut *others {
            if let News::Stopped { signal, told } = thread.news() {
                thread.go_on(if told { 0 } else { signal });
            }
        }
        if threads.is_empty() || Instant::now() >= until {
            return;
        }
        std::thread::sleep(STEP);
    }
}

/// A thread, as /proc shows it.
struct Task {
    tid: u32,
    state: u8,
    is_pagers: bool,
    /// The thread that serves.
    is_pager: bool,
    is_kernels: bool,
}

impl Task {
    fn read(pid: u32, tid: u32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let status = Status::parse(&text)?;
        Some(Self {
            tid,
            state: status.state,
            is_pagers: status.is_pagers(),
            is_pager: status.is_pager(),
            is_kernels: status.is_kernels(),
        })
    }

    /// Whether nothing is to be waited for: it is stopped, or ended. Those of the kernel are not the program's.
    fn is_done(&self) -> bool {
        matches!(self.state, b'T' | b't' | b'Z' | b'X') || self.is_kernels
    }
}

/// The pager's threads and the others.
fn tasks(pid: u32) -> (Vec<Task>, Vec<Task>) {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let numbers = entries.into_iter().flatten().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse().ok()
    });
    numbers
        .filter_map(|tid| Task::read(pid, tid))
        .partition(|task| task.is_pagers)
}

fn pager_of(pid: u32) -> Option<Task> {
    let (pagers, _) = tasks(pid);
    pagers.into_iter().find(|task| task.is_pager)
}

/// Whether no thread of the program is to be waited for.
fn all_stopped(pid: u32) -> bool {
    let (_, others) = tasks(pid);
    others.iter().all(Task::is_done)
}
