//! What a launcher of programs needs: forwarded signals, standard descriptors that were closed, a child's end, waiting for a lock.

use core::ffi::CStr;
use core::ptr;

use outpage_core::units::PAGE_BYTES;

use crate::fd;
use crate::map;
use crate::process;
use crate::raw::{Errno, check, syscall3, syscall5, syscall6};

mod signals;
mod streams;

pub use signals::{Arrived, Signals, heeded};
pub use streams::closed_streams;

/// Locks byte `index` of `file` as [`crate::shared::lock_byte`] does, waiting until it is free.
///
/// # Errors
/// Those of fcntl(2) except `EINTR`.
pub fn wait_lock_byte(file: i32, index: u64) -> Result<(), Errno> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: index as libc::off_t,
        l_len: 1,
        l_pid: 0,
    };
    let (at, command) = (
        ptr::from_mut(&mut lock) as usize,
        libc::F_OFD_SETLKW as usize,
    );
    loop {
        // SAFETY: the kernel reads one `flock`, exclusively borrowed.
        match unsafe { syscall3(libc::SYS_fcntl, file as usize, command, at) } {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Below the frame of [`trim`] so much of the stack is left alone: what the calls that it makes take, many times.
const STACK_LEFT_BYTES: usize = 16 << 10;

/// So far below it the stack may have been used: reading a command line takes 128 KiB. Less than the gap that the kernel keeps below a stack (1 MiB,
/// `stack_guard_gap` of mm/mmap.c) and than what is left of a thread's, so that nothing else lies there.
const STACK_USED_BYTES: usize = 512 << 10;

/// Gives the kernel back what of the heap and of this thread's stack is free, in whole pages: a launcher that waits needs little of what reading its command
/// line took.
#[inline(never)]
pub fn trim() {
    // SAFETY: takes a number only; malloc_trim(3) may be called by any thread.
    unsafe { libc::malloc_trim(0) };
    let here = 0_u8;
    let end = ((&raw const here).addr() - STACK_LEFT_BYTES) & !(PAGE_BYTES - 1);
    // What is not mapped of it stays so (`ENOMEM`).
    let _ = map::release(end - STACK_USED_BYTES, STACK_USED_BYTES);
}

/// Whether programs started from now on inherit descriptor `number`.
///
/// # Errors
/// Those of fcntl(2).
pub fn set_inherited(number: i32, inherited: bool) -> Result<(), Errno> {
    let flags = if inherited { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: takes numbers only.
    unsafe {
        syscall3(
            libc::SYS_fcntl,
            number as usize,
            libc::F_SETFD as usize,
            flags as usize,
        )
    }
    .map(drop)
}

/// Makes the caller the leader of a session of its own, out of reach of the terminal's signals.
///
/// # Errors
/// `EPERM` when it leads a process group.
pub fn new_session() -> Result<(), Errno> {
    // SAFETY: takes nothing.
    unsafe { syscall3(libc::SYS_setsid, 0, 0, 0) }.map(drop)
}

/// The effective user id.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { syscall3(libc::SYS_geteuid, 0, 0, 0) }.unwrap_or(u32::MAX as usize) as u32
}

/// Gives up every capability for good and lets the user's other processes look into this one again.
///
/// A process that a capability of its file started is closed to its own user (`/proc/PID/fd`).
///
/// # Errors
/// Those of capset(2) and prctl(2).
pub fn drop_capabilities() -> Result<(), Errno> {
    /// `_LINUX_CAPABILITY_VERSION_3` (include/uapi/linux/capability.h).
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable; twice 32 bits each.
    let none = [0_u32; 6];
    let (header, none) = (header.as_ptr() as usize, none.as_ptr() as usize);
    // SAFETY: the kernel reads a header of two words and two sets of three words.
    unsafe { syscall3(libc::SYS_capset, header, none, 0) }?;
    // SAFETY: takes numbers only.
    unsafe { syscall3(libc::SYS_prctl, libc::PR_SET_DUMPABLE as usize, 1, 0) }.map(drop)
}

/// Whether the file at `path` gives capabilities to whoever executes it.
#[must_use]
pub fn has_file_capabilities(path: &CStr) -> bool {
    let (path, name) = (
        path.as_ptr() as usize,
        c"security.capability".as_ptr() as usize,
    );
    // SAFETY: two C strings; with a size of 0 the kernel only says how long the value is.
    unsafe { syscall5(libc::SYS_getxattr, path, name, 0, 0, 0) }.is_ok_and(|bytes| bytes > 0)
}

/// Whether this process's effective user may execute the file at `path` (access(2)); in doubt it may, and execve(2) says.
#[must_use]
pub fn may_execute(path: &CStr) -> bool {
    let (at, path) = (libc::AT_FDCWD as usize, path.as_ptr() as usize);
    let (mode, flags) = (libc::X_OK as usize, libc::AT_EACCESS as usize);
    // SAFETY: a C string and numbers.
    let answer = unsafe { syscall5(libc::SYS_faccessat2, at, path, mode, flags, 0) };
    answer != Err(Errno::EACCES)
}

/// Makes a copy of this process, which calls `child` and ends with the exit code that it returns; returns
/// the copy's process id.
///
/// The copy has all descriptors, no thread but this one, and the default action for every signal. What
/// the caller still has to write, or to do at its exit, the copy does not.
///
/// # Errors
/// Those of fork(2).
pub fn fork(child: impl FnOnce() -> u8) -> Result<u32, Errno> {
    // SAFETY: takes nothing. libc's function, which leaves its heap usable in the copy.
    match unsafe { libc::fork() } {
        // SAFETY: the calling thread's errno.
        -1 => check(-unsafe { *libc::__errno_location() } as isize).map(|_| 0),
        0 => {
            signals::reset_all();
            let code = child();
            loop {
                // SAFETY: ends the process, and touches no memory.
                let _ = unsafe { syscall3(libc::SYS_exit_group, usize::from(code), 0, 0) };
            }
        }
        pid => Ok(pid as u32),
    }
}

/// Has this process, which keeps files for others, make them as long as it may at all (`RLIMIT_FSIZE`), and an error of what is beyond, not a signal.
pub fn write_large_files() {
    signals::ignore(libc::SIGXFSZ);
    if let Ok(limit) = crate::kernel::file_size() {
        let limits = [limit.hard, limit.hard];
        let (resource, at) = (libc::RLIMIT_FSIZE as usize, limits.as_ptr() as usize);
        // SAFETY: the kernel reads one pair of numbers. What it refuses stays as it was.
        let _ = unsafe { syscall5(libc::SYS_prlimit64, 0, resource, at, 0, 0) };
    }
}

/// Sends `signal` to process `pid`.
///
/// # Errors
/// Those of kill(2).
pub fn send(pid: u32, signal: i32) -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    unsafe { syscall3(libc::SYS_kill, pid as usize, signal as usize, 0) }.map(drop)
}

/// Sends `signal` to process `pid` with `value`, as sigqueue(3) does.
///
/// # Errors
/// Those of rt_sigqueueinfo(2).
pub fn queue(pid: u32, signal: i32, value: usize) -> Result<(), Errno> {
    /// `siginfo_t` up to its value (include/uapi/asm-generic/siginfo.h); the kernel reads 128 bytes.
    #[repr(C)]
    struct Info {
        signal: i32,
        errno: i32,
        code: i32,
        padding: i32,
        pid: u32,
        uid: u32,
        value: usize,
        rest: [u64; 12],
    }
    const _: () = assert!(size_of::<Info>() == 128);
    let info = Info {
        signal,
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        pid: process::pid(),
        uid: effective_uid(),
        value,
        rest: [0; 12],
    };
    let at = (&raw const info) as usize;
    // SAFETY: the kernel reads one record.
    unsafe { syscall3(libc::SYS_rt_sigqueueinfo, pid as usize, signal as usize, at) }.map(drop)
}

/// Whether process `pid` is in the caller's process group: what a terminal sends one, it sends the other.
#[must_use]
pub fn in_own_group(pid: u32) -> bool {
    // SAFETY: takes a number.
    let group = |pid: u32| unsafe { syscall3(libc::SYS_getpgid, pid as usize, 0, 0) };
    group(pid) == group(0)
}

/// The signal that child `pid` was stopped by since the last call, if it was. Its end stays to be waited for.
#[must_use]
pub fn stopped_by(pid: u32) -> Option<i32> {
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let (at, how) = (info.as_mut_ptr() as usize, libc::WSTOPPED | libc::WNOHANG);
    // SAFETY: the kernel writes one record.
    unsafe {
        syscall5(
            libc::SYS_waitid,
            libc::P_PID as usize,
            pid as usize,
            at,
            how as usize,
            0,
        )
    }
    .ok()?;
    // SAFETY: a record is numbers, for which zeroes are values too.
    let info = unsafe { info.assume_init() };
    // SAFETY: waitid(2) fills it in as for SIGCHLD, or leaves the zeroes.
    (info.si_signo == libc::SIGCHLD).then(|| unsafe { info.si_status() })
}

/// Whether this process is of a shell's job, and that, or the process group of child `pid`, is in the foreground of the terminal: the shell waits for the job to end or to
/// stop.
#[must_use]
pub fn is_foreground_job(pid: u32) -> bool {
    let Ok(terminal) = fd::open(c"/dev/tty", libc::O_RDONLY | libc::O_NOCTTY) else {
        return false;
    };
    let mut foreground = 0i32;
    let (tty, at) = (terminal.number() as usize, (&raw mut foreground) as usize);
    // SAFETY: the kernel writes one number.
    let asked = unsafe { syscall3(libc::SYS_ioctl, tty, libc::TIOCGPGRP as usize, at) };
    let shell = process::parent() as usize;
    let asks = [0, shell, pid as usize];
    // SAFETY: these take a number.
    let [group, of_shell, of_child] =
        asks.map(|of| unsafe { syscall3(libc::SYS_getpgid, of, 0, 0) });
    // SAFETY: as above.
    let sessions = [0, shell].map(|of| unsafe { syscall3(libc::SYS_getsid, of, 0, 0) });
    // A group whose parents are all outside of the session is nobody's job.
    asked.is_ok()
        && [group, of_child].contains(&Ok(foreground as usize))
        && group != of_shell
        && sessions[0] == sessions[1]
}

/// Whether process `pid` is stopped now.
#[must_use]
pub fn is_stopped(pid: u32) -> bool {
    let mut path = [0u8; 40];
    fd::numbered(&mut path, b"/proc/", pid, b"/stat");
    let mut text = [0u8; 512];
    let read = CStr::from_bytes_until_nul(&path).ok().and_then(|path| {
        let file = fd::open(path, libc::O_RDONLY).ok()?;
        fd::read(file.number(), &mut text).ok()
    });
    // Field 2 is the name, which can hold anything, in brackets; the state follows (proc(5)).
    let after_name = text[..read.unwrap_or(0)]
        .rsplit(|&letter| letter == b')')
        .next();
    after_name.is_some_and(|rest| rest.starts_with(b" T"))
}

/// Ends this process by `signal`, so that whoever waits for it sees a child's death as its own.
///
/// No core is dumped: the child left its own. Returns where the signal does not end a process.
pub fn die_of(signal: i32) {
    let no_core = [0_u64; 2];
    // SAFETY: the kernel reads two words; core limits touch no memory.
    let _ = unsafe {
        let at = no_core.as_ptr() as usize;
        syscall6(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_CORE as usize,
            at,
            0,
            0,
            0,
        )
    };
    signals::reset(signal);
    let _ = send(process::pid(), signal);
}

/// Ends this process, all of its threads, as `status` says, which is as wait(2) has it.
pub fn end_as(status: i32) -> ! {
    let code = if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        die_of(signal);
        // The kernel keeps it from process 1 of a pid namespace.
        128 + signal
    } else {
        libc::WEXITSTATUS(status)
    } as usize;
    loop {
        // SAFETY: takes a number only, and never returns.
        let _ = unsafe { syscall3(libc::SYS_exit_group, code, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn inheritance_can_be_switched() {
        let file = fd::open(c"/dev/null", libc::O_RDONLY).unwrap();
        let sees = || {
            let path = std::format!("/proc/self/fd/{}", file.number());
            Command::new("test")
                .args(["-e", &path])
                .status()
                .unwrap()
                .success()
        };
        assert!(!sees());
        set_inherited(file.number(), true).unwrap();
        assert!(sees());
        set_inherited(file.number(), false).unwrap();
        assert!(!sees());
    }

    #[test]
    fn a_waited_for_lock_is_held() {
        let file = crate::shared::create(c"outpage-test", 4096).unwrap();
        let other = proc::reopen(file.number(), libc::O_RDWR).unwrap();
        wait_lock_byte(file.number(), 3).unwrap();
        assert_eq!(crate::shared::is_locked(other.number(), 3), Ok(true));
    }

    #[test]
    fn a_copy_ends_with_its_code_and_dies_of_signals() {
        let wait = |pid: u32| {
            let mut status = 0;
            // SAFETY: waits for a child of this test's own.
            let got = unsafe { libc::waitpid(pid as i32, &mut status, 0) };
            assert_eq!(got, pid as i32);
            std::process::ExitStatus::from_raw(status)
        };
        assert_eq!(wait(fork(|| 7).unwrap()).code(), Some(7));
        let waits = fork(|| {
            loop {
                futex_for_ever();
            }
        });
        let waits = waits.unwrap();
        send(waits, libc::SIGTERM).unwrap();
        assert_eq!(wait(waits).signal(), Some(libc::SIGTERM));
    }

    fn futex_for_ever() {
        let word = core::sync::atomic::AtomicU32::new(0);
        crate::futex::wait(&word, 0, None, crate::futex::Scope::Process);
    }
}
