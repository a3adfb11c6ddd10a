//! What concerns the process and its threads as a whole.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use outpage_core::units::{Nanos, PAGE_BYTES};

use crate::fd::{self, Fd};
use crate::kcmp;
use crate::proc;
pub use crate::raw::yield_now;
use crate::raw::{Errno, syscall3, syscall5, syscall6};

/// A thread, as the kernel numbers it in this process's pid namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub u32);

/// The calling thread.
#[must_use]
pub fn tid() -> Tid {
    // SAFETY: takes nothing, cannot fail.
    Tid(unsafe { syscall3(libc::SYS_gettid, 0, 0, 0) }.unwrap_or(0) as u32)
}

/// The process id, asked of the kernel each time (right also after fork and vfork).
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { syscall3(libc::SYS_getpid, 0, 0, 0) }.unwrap_or(0) as u32
}

/// Whether the kernel has swap, as sysinfo(2) says; true where it does not say.
#[must_use]
pub fn has_swap() -> bool {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel fills the structure, or leaves its zeroes; it has no invalid values.
    let (told, info) = unsafe {
        let told = syscall3(libc::SYS_sysinfo, info.as_mut_ptr() as usize, 0, 0);
        (told, info.assume_init())
    };
    told.is_err() || info.totalswap > 0
}

/// Whether there is a task of this number: a thread of this process or another process.
#[must_use]
pub fn task_exists(tid: Tid) -> bool {
    // SAFETY: signal 0 is no signal: this only asks.
    let asked = unsafe { syscall3(libc::SYS_tkill, tid.0 as usize, 0, 0) };
    asked != Err(Errno::ESRCH)
}

/// Whether this process has a thread `tid`, one that is ending included.
#[must_use]
pub fn has_thread(tid: Tid) -> bool {
    // SAFETY: signal 0 is never delivered.
    let asked = unsafe { syscall3(libc::SYS_tgkill, pid() as usize, tid.0 as usize, 0) };
    asked != Err(Errno::ESRCH)
}

/// Whether this process has no child, neither alive nor ended and not waited for.
#[must_use]
pub fn has_no_children() -> bool {
    /// `__WALL` of include/uapi/linux/wait.h: children that end without a signal too.
    const ALL_KINDS: i32 = 0x4000_0000;
    let options = (libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | ALL_KINDS) as usize;
    // SAFETY: without a place for its answer the kernel writes nothing, and it leaves the child as it is.
    let asked = unsafe { syscall5(libc::SYS_waitid, libc::P_ALL as usize, 0, 0, options, 0) };
    asked == Err(Errno::ECHILD)
}

/// CPU time, user and system, of all children that ended and were waited for, and of theirs, in steps
/// of 1 us.
#[must_use]
pub fn children_cpu() -> Nanos {
    cpu_time(libc::RUSAGE_CHILDREN)
}

/// CPU time, user and system, of this process, in steps of 1 us.
#[must_use]
pub fn own_cpu() -> Nanos {
    cpu_time(libc::RUSAGE_SELF)
}

fn cpu_time(who: i32) -> Nanos {
    let usage = usage(who);
    let [user, system] = [usage.ru_utime, usage.ru_stime]
        .map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000);
    Nanos(user + system)
}

/// How often the calling thread left its CPU to another one, or slept. A system call.
#[must_use]
pub fn switches() -> u64 {
    let usage = usage(libc::RUSAGE_THREAD);
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

fn usage(who: i32) -> libc::rusage {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    let (who, at) = (who as usize, usage.as_mut_ptr() as usize);
    // SAFETY: `at` is a writable rusage.
    let _ = unsafe { syscall3(libc::SYS_getrusage, who, at, 0) };
    // SAFETY: an rusage is numbers, for which zeroes are values too.
    unsafe { usage.assume_init() }
}

/// The CPU that the caller runs on. (libc's `sched_getcpu` reads a field that a raw thread lacks.)
#[must_use]
pub fn cpu() -> u32 {
    let mut cpu = 0u32;
    // SAFETY: the kernel writes one u32; the other two pointers are null.
    let _ = unsafe { syscall3(libc::SYS_getcpu, (&raw mut cpu) as usize, 0, 0) };
    cpu
}

/// Where the kernel finds the robust mutexes that thread `tid` of this process holds (`struct
/// robust_list_head`); 0 when the thread never said so, or has begun to end.
///
/// # Errors
/// `ESRCH` when the thread is gone.
pub fn robust_list(tid: Tid) -> Result<usize, Errno> {
    let (mut head, mut len) = (0usize, 0usize);
    let (head_at, len_at) = ((&raw mut head) as usize, (&raw mut len) as usize);
    // SAFETY: the kernel writes one word to each of the two.
    unsafe { syscall3(libc::SYS_get_robust_list, tid.0 as usize, head_at, len_at) }?;
    Ok(head)
}

/// Passes over the threads before a list is taken as it is: each is spoilt by a thread that begins or ends just then. A choice: of 20,000 lists beside
/// six ending threads 28 were without one that lived.
const PASSES_MAX: usize = 64;

/// Calls `visit` with every thread of the [`program`], some more than once.
///
/// The kernel ends a list early where the thread it has come to is gone (`next_tid` in fs/proc/base.c, Linux 6.18), and then
/// leaves out as many as ended when it is asked for the rest. So the list is read until it is as long as the kernel says, before
/// and after. A thread that begins meanwhile may be left out.
///
/// # Errors
/// Those of opening, measuring and reading `/proc/PID/task`.
pub fn each_thread(visit: impl FnMut(Tid)) -> Result<(), Errno> {
    each_thread_beside(Tid(program()), visit)
}

/// As [`each_thread`], for the process that thread `tid` belongs to.
///
/// # Errors
/// As [`each_thread`].
pub fn each_thread_beside(tid: Tid, mut visit: impl FnMut(Tid)) -> Result<(), Errno> {
    /// What the directory links to beside its threads.
    const LINKS: usize = 2;
    let mut path = [0; 32];
    fd::numbered(&mut path, b"", tid.0, b"/task");
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::ENOENT)?;
    for _ in 0..PASSES_MAX {
        let directory = proc::open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let threads = || Ok((fd::links(directory.number())? as usize).saturating_sub(LINKS));
        let (before, mut seen) = (threads()?, 0);
        each_in(directory.number(), |tid| {
            seen += 1;
            visit(tid);
        })?;
        if seen == before && seen == threads()? {
            break;
        }
    }
    Ok(())
}

/// Calls `visit` with every task that has an entry in a directory of /proc.
fn each_numbered(path: &CStr, visit: impl FnMut(Tid)) -> Result<(), Errno> {
    let directory = proc::open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
    each_in(directory.number(), visit)
}

/// Calls `visit` with every task that has an entry in the open directory of that number, from where it stands.
///
/// # Errors
/// Those of getdents64(2).
#[inline(never)] // its buffer is on the stack, which may be small: whoever does not call it needs no room for it
pub fn each_in(directory: i32, mut visit: impl FnMut(Tid)) -> Result<(), Errno> {
    // From `struct linux_dirent64` of getdents64(2): its length, and its name behind a type.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut entries = [0u8; 1024];
    loop {
        let (fd, at) = (directory as usize, entries.as_mut_ptr() as usize);
        // SAFETY: the kernel writes at most the length of the buffer.
        let got = unsafe { syscall3(libc::SYS_getdents64, fd, at, entries.len()) }?;
        let mut rest = &entries[..got];
        if rest.is_empty() {
            return Ok(());
        }
        while rest.len() > NAME {
            let len = usize::from(u16::from_ne_bytes([rest[LENGTH], rest[LENGTH + 1]]));
            let (entry, following) = rest.split_at(len.clamp(NAME, rest.len()));
            let name = CStr::from_bytes_until_nul(&entry[NAME..]);
            if let Some(tid) = name.ok().and_then(|n| n.to_str().ok()?.parse().ok()) {
                visit(Tid(tid));
            }
            rest = following;
        }
    }
}

/// A set of CPUs, up to number 1023.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuSet([u64; 16]);

impl CpuSet {
    /// The set of one CPU; empty when its number is over 1023.
    #[must_use]
    pub fn one(cpu: u32) -> Self {
        let mut set = Self([0; 16]);
        if let Some(word) = set.0.get_mut(cpu as usize / 64) {
            *word = 1 << (cpu % 64);
        }
        set
    }

    /// With `cpu` as well, if its number is not over 1023.
    #[must_use]
    pub fn with(mut self, cpu: u32) -> Self {
        if let Some(word) = self.0.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
        self
    }

    /// How many CPUs are in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether `cpu` is in it.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0
            .get(cpu as usize / 64)
            .is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }
}

/// The CPUs that thread `tid` may run on (0: the caller).
///
/// # Errors
/// Those of sched_getaffinity(2); `EINVAL` on machines with more than 1024 CPUs.
pub fn affinity(tid: Tid) -> Result<CpuSet, Errno> {
    let mut set = CpuSet([0; 16]);
    let (at, len) = (set.0.as_mut_ptr() as usize, size_of_val(&set.0));
    // SAFETY: the kernel writes at most `len` bytes into the set.
    unsafe { syscall3(libc::SYS_sched_getaffinity, tid.0 as usize, len, at) }?;
    Ok(set)
}

/// Restricts thread `tid` (0: the caller) to `cpus`.
///
/// # Errors
/// Those of sched_setaffinity(2).
pub fn set_affinity(tid: Tid, cpus: &CpuSet) -> Result<(), Errno> {
    let (at, len) = (cpus.0.as_ptr() as usize, size_of_val(&cpus.0));
    // SAFETY: the kernel reads `len` bytes of the set.
    unsafe { syscall3(libc::SYS_sched_setaffinity, tid.0 as usize, len, at) }.map(drop)
}

/// `PIDFD_THREAD` of include/uapi/linux/pidfd.h.
pub(crate) const THREAD: i32 = libc::O_EXCL;

/// A copy of descriptor `number` of thread `tid` of this process, in the caller's table: the same open file description.
///
/// # Errors
/// Those of pidfd_open(2) and pidfd_getfd(2); `EINVAL` before Linux 6.9.
pub fn descriptor_of(tid: Tid, number: i32) -> Result<Fd, Errno> {
    copy_descriptor(tid.0, THREAD, number)
}

/// A copy of descriptor `number` of the task `of` in the caller's table, as `flags` of pidfd_open(2) have it (Linux 5.6).
pub(crate) fn copy_descriptor(of: u32, flags: i32, number: i32) -> Result<Fd, Errno> {
    // SAFETY: takes numbers only.
    let whose = unsafe { syscall3(libc::SYS_pidfd_open, of as usize, flags as usize, 0) }?;
    let whose = Fd::adopt(whose as i32);
    let (of, number) = (whose.number() as usize, number as usize);
    // SAFETY: takes numbers only.
    let copy = unsafe { syscall3(libc::SYS_pidfd_getfd, of, number, 0) }?;
    Ok(Fd::adopt(copy as i32))
}

/// Runs `work` while this process may have `least` descriptors at once, as far as its hard limit or its privilege go.
pub fn with_descriptors<R>(least: u64, work: impl FnOnce() -> R) -> R {
    let before = descriptor_limit(None).unwrap_or([u64::MAX; 2]);
    if before[0] >= least {
        return work();
    }
    let raised = descriptor_limit(Some([least, before[1].max(least)]))
        .or_else(|_| descriptor_limit(Some([least.min(before[1]), before[1]])));
    let result = work();
    if raised.is_ok() {
        let _ = descriptor_limit(Some(before));
    }
    result
}

/// `RLIMIT_NOFILE` as it was, soft and hard, after setting it if `new` says so.
fn descriptor_limit(new: Option<[u64; 2]>) -> Result<[u64; 2], Errno> {
    let mut old = [0u64; 2];
    let new_at = new.as_ref().map_or(0, |new| new.as_ptr() as usize);
    let (resource, old_at) = (libc::RLIMIT_NOFILE as usize, old.as_mut_ptr() as usize);
    // SAFETY: the kernel reads one pair of numbers and writes another.
    unsafe { syscall5(libc::SYS_prlimit64, 0, resource, new_at, old_at, 0) }?;
    Ok(old)
}

/// While it lives this process may look at itself in /proc, even after it changed its user (`PR_SET_DUMPABLE`, prctl(2)).
/// Others of its user may, too: for a moment in which nothing of the program runs.
#[must_use]
pub struct Visible {
    hide: bool,
}

impl Visible {
    /// From now on.
    pub fn now() -> Self {
        let hide = !is_visible();
        if hide {
            set_dumpable(1);
        }
        Self { hide }
    }
}

impl Drop for Visible {
    fn drop(&mut self) {
        if self.hide {
            set_dumpable(0);
        }
    }
}

/// Whether others of its user may look at this process, and so whether it may look at itself where it is not root's.
#[must_use]
pub fn is_visible() -> bool {
    // SAFETY: takes numbers only.
    let state = unsafe { syscall3(libc::SYS_prctl, libc::PR_GET_DUMPABLE as usize, 0, 0) };
    state == Ok(1)
}

fn set_dumpable(state: usize) {
    // SAFETY: takes numbers only.
    let _ = unsafe { syscall3(libc::SYS_prctl, libc::PR_SET_DUMPABLE as usize, state, 0) };
}

/// Exit code of a process that no SIGKILL of its own reaches: what a shell makes of that signal.
const KILLED: usize = 128 + libc::SIGKILL as usize;

/// Kills the whole process as [`crate::say::die`] does, without a word; and every other that shares the memory, if the caller is a task of
/// its own ([`outlives`]).
///
/// The kernel keeps a pid namespace's process 1 from killing itself: that one exits with code 137.
pub fn kill() -> ! {
    if program() != pid() {
        let _ = each_sharer(|task| {
            // SAFETY: takes numbers only.
            let _ = unsafe { syscall3(libc::SYS_kill, task.0 as usize, libc::SIGKILL as usize, 0) };
        });
    }
    // SAFETY: takes numbers only.
    let _ = unsafe { syscall3(libc::SYS_kill, pid() as usize, libc::SIGKILL as usize, 0) };
    loop {
        // SAFETY: ends all threads, those that wait for a page included, and never returns.
        let _ = unsafe { syscall3(libc::SYS_exit_group, KILLED, 0, 0) };
    }
}

/// Ends the caller's process, which is one of its own, in order.
pub fn exit() -> ! {
    loop {
        // SAFETY: takes a number only.
        let _ = unsafe { syscall3(libc::SYS_exit_group, 0, 0, 0) };
    }
}

/// The process whose memory the caller, a process of its own, serves; 0 while they are one.
static PROGRAM: AtomicU32 = AtomicU32::new(0);

/// Says that the pager lives in a process of its own from now on, beside `program`; `None` that it does not, as in a forked child.
pub fn outlives(program: Option<u32>) {
    PROGRAM.store(program.unwrap_or(0), Ordering::SeqCst);
}

/// The process whose memory the pager serves.
#[must_use]
pub fn program() -> u32 {
    match PROGRAM.load(Ordering::SeqCst) {
        0 => pid(),
        other => other,
    }
}

/// Whether a filter of system calls is in force. It may be one that asks a tracer (`SECCOMP_RET_TRACE`), and refuses what has none.
#[must_use]
pub fn is_filtered() -> bool {
    let get = libc::PR_GET_SECCOMP as usize;
    // SAFETY: takes a number only.
    !matches!(unsafe { syscall3(libc::SYS_prctl, get, 0, 0) }, Ok(0))
}

/// The parent of the caller's process; 0 where it is in another pid namespace.
#[must_use]
pub fn parent() -> u32 {
    // SAFETY: takes nothing.
    unsafe { syscall3(libc::SYS_getppid, 0, 0, 0) }.unwrap_or(0) as u32
}

/// The caller's process leaves its process group: signals to the group do not reach it any more.
pub fn leave_group() {
    // SAFETY: takes numbers only. Cannot fail for a process that leads no session.
    let _ = unsafe { syscall3(libc::SYS_setpgid, 0, 0, 0) };
}

/// Whether no other process uses the caller's memory, as far as /proc shows it: one look at every process.
#[must_use]
pub fn has_memory_alone() -> bool {
    let mut alone = true;
    let seen = each_sharer(|_| alone = false);
    if program() != pid() {
        // By its threads: the first may have ended before the others.
        let _ = each_thread(|tid| alone &= !is_sharer(tid));
    }
    seen.is_ok() && alone
}

/// Whether a thread of the program uses the caller's memory. One that changed its user hides that, and counts as if while the program is the parent.
fn is_sharer(tid: Tid) -> bool {
    match has_my_memory(tid) {
        Err(Errno::EPERM) => parent() == program(),
        same => same == Ok(true),
    }
}

/// Whether `task` uses the memory of the calling thread. By the caller's own number: a first thread that has ended has no memory.
fn has_my_memory(task: Tid) -> Result<bool, Errno> {
    Ok(kcmp::memory(tid().0, task.0)?.is_eq())
}

/// Calls `visit` with every other process that shares the caller's memory, as far as /proc shows it (kcmp(2)).
fn each_sharer(mut visit: impl FnMut(Tid)) -> Result<(), Errno> {
    let me = pid();
    each_numbered(c".", |task| {
        if task.0 != me && has_my_memory(task) == Ok(true) {
            visit(task);
        }
    })
}

/// Pages that are touched by one call of [`touch`]: the most parts that process_vm_readv(2) takes (`UIO_MAXIOV`).
const TOUCHED_AT_ONCE: usize = 1024;

/// Copies what lies at `address` in this process to `into`, without a signal where it cannot be read.
///
/// # Errors
/// Those of process_vm_readv(2): `EFAULT` where a byte cannot be read, with those before it copied as far as they were in whole pages.
pub fn copy_from(address: usize, into: &mut [u8]) -> Result<(), Errno> {
    let here = into.as_mut_ptr().addr();
    // SAFETY: the kernel writes into the exclusively borrowed buffer alone.
    unsafe { copy(libc::SYS_process_vm_readv, here, address, into.len()) }
}

/// Copies `from` to `address` in this process, without a signal where it cannot be written.
///
/// # Errors
/// As [`copy_from`].
pub fn copy_to(address: usize, from: &[u8]) -> Result<(), Errno> {
    let here = from.as_ptr().addr();
    // SAFETY: the crate's rule on addresses; the borrowed buffer is only read.
    unsafe { copy(libc::SYS_process_vm_writev, here, address, from.len()) }
}

/// Copies `len` bytes between `here` and `there`. By the caller's own number: a first thread that has ended has no memory any more.
///
/// # Safety
/// What the call writes to is the caller's.
unsafe fn copy(call: libc::c_long, here: usize, there: usize, len: usize) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let ours = [here + done, len - done];
        let theirs = [there + done, len - done];
        let (at, from) = ((&raw const ours).addr(), (&raw const theirs).addr());
        // SAFETY: one part on either side, laid out as `struct iovec`; the caller's promise for what they name.
        let copied = unsafe { syscall6(call, tid().0 as usize, at, 1, from, 1, 0) }?;
        if copied == 0 {
            return Err(Errno::EFAULT);
        }
        done += copied;
    }
    Ok(())
}

/// Reads a byte of each page of `pages`, addresses of whole pages of this process, without a signal where one cannot be read.
///
/// # Errors
/// As [`copy_from`].
pub fn touch(pages: Range<usize>) -> Result<(), Errno> {
    let mut bytes = [0_u8; TOUCHED_AT_ONCE];
    let mut parts = [[0_usize; 2]; TOUCHED_AT_ONCE];
    let mut at = pages.start;
    while at < pages.end {
        let left = (pages.end - at).div_ceil(PAGE_BYTES).min(TOUCHED_AT_ONCE);
        for (i, part) in parts[..left].iter_mut().enumerate() {
            *part = [at + i * PAGE_BYTES, 1];
        }
        let ours = [bytes.as_mut_ptr().addr(), left];
        let (here, there) = ((&raw const ours).addr(), parts.as_ptr().addr());
        let call = libc::SYS_process_vm_readv;
        // SAFETY: as many parts as there are, laid out as `struct iovec`, into a buffer of as many bytes.
        let read = unsafe { syscall6(call, tid().0 as usize, here, 1, there, left, 0) }?;
        if read < left {
            return Err(Errno::EFAULT);
        }
        at += left * PAGE_BYTES;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_agree_with_libc() {
        assert_eq!(pid(), std::process::id());
        assert_ne!(tid().0, 0);
    }

    #[test]
    fn threads_are_listed_with_their_lists() {
        let (told, telling) = std::sync::mpsc::channel();
        let (done, end) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            told.send(tid()).unwrap();
            end.recv().unwrap_err();
        });
        let other_tid = telling.recv().unwrap();
        let mut seen = std::vec::Vec::new();
        each_thread(|tid| seen.push(tid)).unwrap();
        assert!(seen.contains(&tid()) && seen.contains(&other_tid));
        assert!(robust_list(other_tid).unwrap() > 0);
        assert_ne!(robust_list(other_tid), robust_list(tid()));
        drop(done);
        other.join().unwrap();
        assert_eq!(robust_list(Tid(u32::MAX >> 1)), Err(Errno::ESRCH));
    }

    #[test]
    fn a_thread_is_listed_while_those_before_it_end() {
        for _ in 0..2000 {
            let brief = [(); 4].map(|()| std::thread::spawn(std::thread::yield_now));
            let (told, telling) = std::sync::mpsc::channel();
            let (done, end) = std::sync::mpsc::channel::<()>();
            let last = std::thread::spawn(move || {
                told.send(tid()).unwrap();
                end.recv().unwrap_err();
            });
            let (wanted, mut found) = (telling.recv().unwrap(), false);
            each_thread(|tid| found |= tid == wanted).unwrap();
            assert!(found);
            drop(done);
            last.join().unwrap();
            for thread in brief {
                thread.join().unwrap();
            }
        }
    }

    #[test]
    fn the_caller_runs_on_a_cpu_it_may_use() {
        let set = affinity(Tid(0)).unwrap();
        assert!(set.count() > 0);
        assert!(set.contains(cpu()));
    }

    #[test]
    fn cpu_sets_hold_up_to_1023() {
        assert!(CpuSet::one(1023).contains(1023));
        assert_eq!(CpuSet::one(1024).count(), 0);
    }
}
