//! What a launcher of programs needs: forwarded signals, a child's end, waiting for a lock.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::fd::{self, Fd};
use crate::raw::{Errno, check, syscall3, syscall5, syscall6};

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

/// A signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// The kernel made it (a terminal key, a child's end), not a process.
    pub from_kernel: bool,
}

/// The kernel's `struct sigaction` on x86-64 (arch/x86/include/uapi/asm/signal.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The default action.
const DEFAULT: Action = Action {
    handler: libc::SIG_DFL,
    flags: 0,
    restorer: 0,
    mask: 0,
};
/// The handler returns through `Action::restorer`: the kernel has no return path of its own on x86-64.
const SA_RESTORER: u64 = 0x0400_0000;

/// Where the handler writes; -1 while nobody takes signals.
static WRITE_END: AtomicI32 = AtomicI32::new(-1);

/// Signals that the process takes from a pipe instead of dying of them.
///
/// Handlers, not a blocked mask: a program started meanwhile would inherit the mask, while exec
/// resets handlers.
#[derive(Debug)]
pub struct Signals {
    read_end: Fd,
    write_end: Fd,
    taken: u64,
}

impl Signals {
    /// Takes `signals`, except those that are ignored now: a program is to inherit that.
    ///
    /// # Errors
    /// Those of pipe2(2) and sigaction(2).
    ///
    /// # Panics
    /// When another value of this type exists.
    pub fn take(signals: &[i32]) -> Result<Self, Errno> {
        let mut ends = [0_i32; 2];
        let at = ends.as_mut_ptr() as usize;
        // SAFETY: the kernel writes two descriptor numbers.
        unsafe { syscall3(libc::SYS_pipe2, at, libc::O_CLOEXEC as usize, 0) }?;
        let mut this = Self {
            read_end: Fd::adopt(ends[0]),
            write_end: Fd::adopt(ends[1]),
            taken: 0,
        };
        let before = WRITE_END.swap(ends[1], Ordering::SeqCst);
        assert_eq!(before, -1, "signals are taken once");
        for &signal in signals {
            if action(signal, None)?.handler != libc::SIG_IGN {
                let flags = SA_RESTORER | (libc::SA_SIGINFO | libc::SA_RESTART) as u64;
                let (handler, restorer) =
                    (note as *const () as usize, restore as *const () as usize);
                action(
                    signal,
                    Some(Action {
                        handler,
                        flags,
                        restorer,
                        mask: 0,
                    }),
                )?;
                this.taken |= 1 << signal;
            }
        }
        Ok(this)
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// Those of read(2) except `EINTR`.
    pub fn next(&self) -> Result<Arrived, Errno> {
        let mut record = [0; RECORD_BYTES];
        loop {
            match fd::read(self.read_end.number(), &mut record) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        Ok(Arrived {
            signal: i32::from(record[0]),
            from_kernel: record[1] != 0,
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for signal in (1..64).filter(|signal| self.taken >> signal & 1 != 0) {
            // It was changed before, so it can be changed again.
            let _ = action(signal, Some(DEFAULT));
        }
        WRITE_END.store(-1, Ordering::SeqCst);
        debug_assert!(self.write_end.number() >= 0);
    }
}

/// What the handler writes: the signal, and whether the kernel made it. Pipes keep it whole.
const RECORD_BYTES: usize = 2;

extern "C" fn note(signal: i32, info: *const libc::siginfo_t, _context: usize) {
    // SAFETY: the kernel passes a valid record with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // SI_USER, SI_QUEUE and SI_TKILL, which processes send, are not positive.
    let record: [u8; RECORD_BYTES] = [signal as u8, u8::from(code > 0)];
    let _ = fd::write(WRITE_END.load(Ordering::SeqCst), &record);
}

/// Ends a handler: rt_sigreturn(2), with the stack as the handler left it.
#[unsafe(naked)]
extern "C" fn restore() {
    core::arch::naked_asm!("mov eax, {nr}", "syscall", nr = const libc::SYS_rt_sigreturn)
}

/// Replaces what `signal` does, if `new` is given; returns what it did.
fn action(signal: i32, new: Option<Action>) -> Result<Action, Errno> {
    let mut old = DEFAULT;
    let new_at = new.as_ref().map_or(0, |new| ptr::from_ref(new) as usize);
    let old_at = (&raw mut old) as usize;
    // SAFETY: the kernel reads and writes one structure each; the only handlers installed here are
    // `note`, which is async-signal-safe, and the default action.
    unsafe {
        syscall5(
            libc::SYS_rt_sigaction,
            signal as usize,
            new_at,
            old_at,
            8,
            0,
        )
    }?;
    Ok(old)
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
            for signal in 1..=64 {
                // SIGKILL and SIGSTOP cannot be changed.
                let _ = action(signal, Some(DEFAULT));
            }
            let code = child();
            loop {
                // SAFETY: ends the process, and touches no memory.
                let _ = unsafe { syscall3(libc::SYS_exit_group, usize::from(code), 0, 0) };
            }
        }
        pid => Ok(pid as u32),
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
    let _ = action(signal, Some(DEFAULT));
    let _ = send(crate::process::pid(), signal);
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let other = fd::reopen(file.number(), libc::O_RDWR).unwrap();
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

    #[test]
    fn signals_come_by_the_pipe_and_not_to_programs_started_meanwhile() {
        let signals = Signals::take(&[libc::SIGUSR1, libc::SIGCHLD]).unwrap();
        send(crate::process::pid(), libc::SIGUSR1).unwrap();
        // Children of other tests may end meanwhile.
        let next = |wanted| loop {
            let arrived = signals.next().unwrap();
            if arrived.signal == wanted {
                return arrived.from_kernel;
            }
        };
        assert!(!next(libc::SIGUSR1));
        let status = Command::new("sh")
            .args(["-c", "kill -USR1 $$; sleep 5"])
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGUSR1));
        assert!(next(libc::SIGCHLD));
    }
}
