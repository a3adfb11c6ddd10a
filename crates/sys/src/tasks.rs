//! The threads of the program, as /proc shows them.

use core::ffi::CStr;

use outpage_core::units::Nanos;

use crate::fd;
use crate::mask::bit;
use crate::proc;
use crate::process::{self, Tid, program};
use crate::raw::{Errno, syscall3};
use crate::thread;

/// Where /proc has `file` of a thread of the program.
pub(crate) fn file_of<'a>(tid: u32, file: &[u8], path: &'a mut [u8; 40]) -> Option<&'a CStr> {
    let mut tasks = [0; 24];
    fd::numbered(&mut tasks, b"", program(), b"/task/");
    let tasks = CStr::from_bytes_until_nul(&tasks).ok()?.to_bytes();
    fd::numbered(path, tasks, tid, file);
    CStr::from_bytes_until_nul(path).ok()
}

fn read<'a>(tid: u32, file: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 40];
    let path = file_of(tid, file, &mut path)?;
    let file = proc::open(path, libc::O_RDONLY).ok()?;
    let len = fd::read(file.number(), text).ok()?;
    Some(&text[..len])
}

/// `USER_HZ`, in nanoseconds: /proc tells times in so many, on x86-64 (`include/asm-generic/param.h`).
pub const TICK: Nanos = Nanos(10_000_000);

/// Field `n` of proc_pid_stat(5) of a thread or process, as a number; `None` when it has ended. From the third on.
fn stat_field(tid: Tid, n: usize) -> Option<u64> {
    let mut path = [0; 40];
    fd::numbered(&mut path, b"", tid.0, b"/stat");
    let file = proc::open(CStr::from_bytes_until_nul(&path).ok()?, libc::O_RDONLY).ok()?;
    let mut text = [0; 512];
    let len = fd::read(file.number(), &mut text).ok()?;
    // Field 2 is the name, which can hold anything, in brackets.
    let after_name = text[..len].rsplit(|&letter| letter == b')').next()?;
    let field = after_name.split(|&letter| letter == b' ').nth(n - 2)?;
    core::str::from_utf8(field).ok()?.parse().ok()
}

/// The CPU that a thread runs on, or ran on last. `None` when it has ended.
#[must_use]
pub fn cpu_of(tid: Tid) -> Option<u32> {
    stat_field(tid, 39)?.try_into().ok()
}

/// When a thread or process began, by [`clock::since_boot`](crate::clock::since_boot), and at most a tick of 10 ms later. `None` when it has ended.
#[must_use]
pub fn began(tid: Tid) -> Option<Nanos> {
    Some(Nanos((stat_field(tid, 22)? + 1) * TICK.0))
}

/// How the scheduler treats a thread, of those ways that any thread may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// `SCHED_OTHER`.
    Other,
    /// `SCHED_BATCH`: as the other one, but who wakes it keeps the CPU (`wakeup_preempt_fair` in kernel/sched/fair.c, Linux 6.18).
    Batch,
}

/// How a thread is scheduled; `None` if it has ended, is scheduled otherwise, or what it begins is not scheduled like it.
#[must_use]
pub fn scheduling(tid: Tid) -> Option<Scheduling> {
    // SAFETY: takes a number only.
    let told = unsafe { syscall3(libc::SYS_sched_getscheduler, tid.0 as usize, 0, 0) };
    match told.ok()? as i32 {
        libc::SCHED_OTHER => Some(Scheduling::Other),
        libc::SCHED_BATCH => Some(Scheduling::Batch),
        _ => None,
    }
}

/// Has a thread be scheduled so. Its nice value and its slice stay.
///
/// # Errors
/// Those of sched_setscheduler(2).
pub fn set_scheduling(tid: Tid, scheduling: Scheduling) -> Result<(), Errno> {
    let number = match scheduling {
        Scheduling::Other => libc::SCHED_OTHER,
        Scheduling::Batch => libc::SCHED_BATCH,
    };
    let param = libc::sched_param { sched_priority: 0 };
    let (tid, at) = (tid.0 as usize, (&raw const param) as usize);
    // SAFETY: the kernel reads the parameter.
    unsafe { syscall3(libc::SYS_sched_setscheduler, tid, number as usize, at) }.map(drop)
}

/// The priority of a thread that is scheduled in real time, 1 to 99 (sched(7)); 0 of any other, and of one that has ended. One with a deadline comes
/// before all of them.
#[must_use]
pub fn real_time(tid: Tid) -> i32 {
    const DEADLINE: i32 = 6;
    let number = tid.0 as usize;
    // SAFETY: takes a number only.
    let told = unsafe { syscall3(libc::SYS_sched_getscheduler, number, 0, 0) };
    match told.unwrap_or(0) as i32 & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_FIFO | libc::SCHED_RR => {
            let mut param = libc::sched_param { sched_priority: 0 };
            let at = (&raw mut param) as usize;
            // SAFETY: the kernel writes the parameter.
            let got = unsafe { syscall3(libc::SYS_sched_getparam, number, at, 0) };
            got.map_or(0, |_| param.sched_priority)
        }
        DEADLINE => 99,
        _ => 0,
    }
}

/// Schedules a thread in real time (`SCHED_FIFO`), with a priority from 1 to 99.
///
/// # Errors
/// Those of sched_setscheduler(2): `EPERM` where the process may not.
pub fn set_real_time(tid: Tid, priority: i32) -> Result<(), Errno> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    let (tid, at) = (tid.0 as usize, (&raw const param) as usize);
    let policy = libc::SCHED_FIFO as usize;
    // SAFETY: the kernel reads the parameter.
    unsafe { syscall3(libc::SYS_sched_setscheduler, tid, policy, at) }.map(drop)
}

/// Whether `tid` is a thread of process `pid`, as this process numbers both.
#[must_use]
pub fn is_thread_of(tid: Tid, pid: u32) -> bool {
    let (mut tasks, mut path) = ([0; 40], [0; 40]);
    fd::numbered(&mut tasks, b"", pid, b"/task/");
    let Ok(before) = CStr::from_bytes_until_nul(&tasks) else {
        return false;
    };
    fd::numbered(&mut path, before.to_bytes(), tid.0, b"");
    let path = CStr::from_bytes_until_nul(&path).ok();
    path.is_some_and(|path| proc::open(path, libc::O_PATH | libc::O_DIRECTORY).is_ok())
}

/// Calls `visit` with the processes that a thread has begun and nobody has waited for, as far as they fit into a page of text; with none where the
/// kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub fn each_child(tid: Tid, mut visit: impl FnMut(Tid)) {
    let (mut tasks, mut path) = ([0; 40], [0; 40]);
    fd::numbered(&mut tasks, b"", tid.0, b"/task/");
    let Ok(before) = CStr::from_bytes_until_nul(&tasks) else {
        return;
    };
    fd::numbered(&mut path, before.to_bytes(), tid.0, b"/children");
    let path = CStr::from_bytes_until_nul(&path).ok();
    let file = path.and_then(|path| proc::open(path, libc::O_RDONLY).ok());
    let mut text = [0; 4096];
    let len = file.map_or(0, |file| fd::read(file.number(), &mut text).unwrap_or(0));
    let numbers = text[..len].split(|&letter| letter == b' ');
    let pids = numbers.filter_map(|number| core::str::from_utf8(number).ok()?.parse().ok());
    pids.for_each(|pid| visit(Tid(pid)));
}

/// Whether a thread of the program has a name as the pager's have; true where that cannot be told.
pub(crate) fn is_named_as_pagers(tid: Tid) -> bool {
    let mut name = [0; 16];
    let name = read(tid.0, b"/comm", &mut name);
    name.is_none_or(|name| name.starts_with(thread::NAME_PREFIX))
}

/// How the program's first thread ended, as wait(2) has it; `None` while it goes on, and where /proc does not tell.
#[must_use]
pub fn first_ended() -> Option<i32> {
    let mut stat = [0; 1024];
    ended(read(program(), b"/stat", &mut stat)?)
}

/// From the line of proc_pid_stat(5): the state follows the name, which may be any bytes, and the last field is the status.
fn ended(stat: &[u8]) -> Option<i32> {
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = stat[name_ends + 1..].trim_ascii();
    let last = rest.rsplit(|&byte| byte == b' ').next()?;
    let status = core::str::from_utf8(last).ok()?.parse().ok()?;
    rest.starts_with(b"Z").then_some(status)
}

/// Whether a thread of the program goes on beside its first and the pager's; true where that cannot be told. One that begins meanwhile may be
/// missed.
#[must_use]
pub fn any_goes_on() -> bool {
    let mut any = false;
    let seen = process::each_thread(|tid| any |= tid.0 != program() && !is_bare(tid));
    any || seen.is_err()
}

/// Whether a thread is one of the pager's or the kernel's.
fn is_bare(tid: Tid) -> bool {
    has(tid, |status| status.is_pagers() || status.is_kernels())
}

/// Whether a tracer, such as a debugger, has the thread; false where /proc does not tell.
#[must_use]
pub fn is_traced(tid: Tid) -> bool {
    has(tid, |status| status.traced)
}

/// What `of` finds of a thread's status; false where /proc does not tell.
fn has(tid: Tid, of: impl FnOnce(&Status<'_>) -> bool) -> bool {
    let mut text = [0; 2048];
    let status = read(tid.0, b"/status", &mut text).and_then(Status::parse);
    status.is_some_and(|status| of(&status))
}

/// What proc_pid_status(5) says of a thread.
#[derive(Debug)]
pub struct Status<'a> {
    name: &'a [u8],
    /// `T`: stopped, `t`: stopped by a tracer, and so on.
    pub state: u8,
    /// Every signal that can be blocked is, as in no thread that libc made.
    blocks_all: bool,
    /// A tracer has it.
    traced: bool,
}

impl<'a> Status<'a> {
    /// From the file's text; `None` where that lacks a line.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        const ALL: u64 = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
        let field = |name: &[u8]| {
            let mut lines = text.split(|&byte| byte == b'\n');
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(<[u8]>::trim_ascii)
        };
        let blocked = core::str::from_utf8(field(b"SigBlk:")?).ok()?;
        Some(Self {
            name: field(b"Name:")?,
            state: *field(b"State:")?.first()?,
            blocks_all: u64::from_str_radix(blocked, 16).ok()? == ALL,
            traced: field(b"TracerPid:").is_some_and(|pid| pid != b"0"),
        })
    }

    /// Whether it is one of a pager's threads.
    #[must_use]
    pub fn is_pagers(&self) -> bool {
        self.blocks_all && self.name.starts_with(thread::NAME_PREFIX)
    }

    /// Whether it is the thread that serves.
    #[must_use]
    pub fn is_pager(&self) -> bool {
        self.blocks_all && self.name == thread::NAME_PREFIX
    }

    /// Whether it is one of the kernel's for an io_uring (io_uring/io-wq.c and sqpoll.c, Linux 5.12).
    #[must_use]
    pub fn is_kernels(&self) -> bool {
        self.blocks_all && self.name.starts_with(b"iou-")
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;
    use crate::clock;

    const NOBODY: Tid = Tid(u32::MAX >> 1);

    #[test]
    fn a_thread_says_where_it_runs_and_how() {
        let own = process::tid();
        assert!(
            process::affinity(own)
                .unwrap()
                .contains(cpu_of(own).unwrap())
        );
        assert_eq!(scheduling(own), Some(Scheduling::Other));
        set_scheduling(own, Scheduling::Batch).unwrap();
        assert_eq!(scheduling(own), Some(Scheduling::Batch));
        set_scheduling(own, Scheduling::Other).unwrap();
        assert_eq!(scheduling(own), Some(Scheduling::Other));
        assert_eq!((cpu_of(NOBODY), scheduling(NOBODY)), (None, None));
        assert_eq!(set_scheduling(NOBODY, Scheduling::Batch), Err(Errno::ESRCH));
    }

    #[test]
    fn what_a_thread_began_is_found_and_when() {
        let before = clock::since_boot();
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let after = clock::since_boot();
        let mut children = std::vec::Vec::new();
        each_child(process::tid(), |pid| children.push(pid));
        let told = began(Tid(child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(children, [Tid(child.id())]);
        assert!(before <= told && told.0 <= after.0 + TICK.0);
        assert_eq!(began(NOBODY), None);
        each_child(NOBODY, |_| panic!("a child of nobody"));
    }

    #[test]
    fn the_end_of_a_first_thread_is_read_behind_its_name() {
        assert_eq!(ended(b"17 (a) Z 0) Z 1 17 0 1792\n"), Some(1792));
        assert_eq!(ended(b"17 (sh) S 1 17 0 1792\n"), None);
        assert_eq!(ended(b"17 (sh"), None);
        assert_eq!(first_ended(), None, "this one goes on");
    }

    #[test]
    fn threads_of_the_program_are_none_of_the_pagers() {
        let told = |name: &str, blocked: &str| {
            let text =
                format!("Name:\t{name}\nState:\tT (stopped)\nSigBlk:\t{blocked}\nSigIgn:\t0\n");
            let status = Status::parse(text.as_bytes()).expect("all lines");
            assert_eq!(status.state, b'T');
            [status.is_pager(), status.is_pagers(), status.is_kernels()]
        };
        const ALL: &str = "fffffffffffbfeff";
        assert_eq!(told("outpage", ALL), [true, true, false]);
        assert_eq!(told("outpage-drop", ALL), [false, true, false]);
        assert_eq!(told("iou-wrk-7", ALL), [false, false, true]);
        assert_eq!(told("sh", ALL), [false; 3]);
        // Without a word of a tracer there is none.
        let traced = |pid: &str| {
            let text = format!("Name:\tg\nState:\tS (sleeping)\n{pid}SigBlk:\t{ALL}\n");
            Status::parse(text.as_bytes()).expect("all lines").traced
        };
        assert_eq!(
            ["TracerPid:\t0\n", "TracerPid:\t17\n", ""].map(traced),
            [false, true, false]
        );
        // A name can be anybody's.
        assert_eq!(told("outpage", "0000000000000000"), [false; 3]);
        assert!(Status::parse(b"Name:\tsh\n").is_none());
        // The thread of the test is no first one.
        assert!(any_goes_on());
    }
}
