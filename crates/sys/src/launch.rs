//! What a launcher of programs needs: forwarded signals, a child's end, waiting for a lock.

use core::ffi::CStr;
use core::ptr;

use crate::fd::{self, Fd};
use crate::raw::{Errno, syscall3, syscall5, syscall6};

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
    let (path, name) = (path.as_ptr() as usize, c"security.capability".as_ptr() as usize);
    // SAFETY: two C strings; with a size of 0 the kernel only says how long the value is.
    unsafe { syscall5(libc::SYS_getxattr, path, name, 0, 0, 0) }.is_ok_and(|bytes| bytes > 0)
}

/// A set of signals, in the kernel's form: bit `n - 1` is signal `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SignalSet(u64);

impl SignalSet {
    /// The set of `signals`.
    #[must_use]
    pub fn new(signals: &[i32]) -> Self {
        Self(
            signals
                .iter()
                .fold(0, |bits, signal| bits | 1 << (signal - 1)),
        )
    }
}

/// A signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// The kernel made it (a terminal key, a child's end), not a process.
    pub from_kernel: bool,
}

/// Signals that the process takes from a descriptor instead of dying of them.
#[derive(Debug)]
pub struct Signals {
    fd: Fd,
    set: SignalSet,
}

impl Signals {
    /// Blocks `set` in the calling thread and opens a descriptor for it. Call before other threads start.
    ///
    /// # Errors
    /// Those of signalfd(2).
    pub fn take(set: SignalSet) -> Result<Self, Errno> {
        change_mask(libc::SIG_BLOCK, set)?;
        let at = (&raw const set.0) as usize;
        // SAFETY: the kernel reads a set of 8 bytes.
        let number = unsafe {
            syscall5(
                libc::SYS_signalfd4,
                usize::MAX,
                at,
                8,
                libc::SFD_CLOEXEC as usize,
                0,
            )
        }?;
        Ok(Self {
            fd: Fd::adopt(number as i32),
            set,
        })
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// Those of read(2) except `EINTR`.
    pub fn next(&self) -> Result<Arrived, Errno> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match fd::read(self.fd.number(), &mut info) {
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        // struct signalfd_siginfo starts with three 32-bit fields: number, errno, code.
        let word =
            |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        // SI_USER, SI_QUEUE and SI_TKILL, which processes send, are not positive.
        Ok(Arrived {
            signal: word(0),
            from_kernel: word(8) > 0,
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = change_mask(libc::SIG_UNBLOCK, self.set);
    }
}

fn change_mask(how: i32, set: SignalSet) -> Result<(), Errno> {
    let at = (&raw const set.0) as usize;
    // SAFETY: the kernel reads a set of 8 bytes; the old set is not asked for.
    unsafe { syscall5(libc::SYS_rt_sigprocmask, how as usize, at, 0, 8, 0) }.map(drop)
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
    /// The kernel's `struct sigaction`, all zero: default action, no flags, empty mask.
    const DEFAULT: [usize; 4] = [0; 4];
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
    // SAFETY: the kernel reads one `struct sigaction` of 32 bytes; the default action runs no code.
    let _ = unsafe {
        let at = DEFAULT.as_ptr() as usize;
        syscall5(libc::SYS_rt_sigaction, signal as usize, at, 0, 8, 0)
    };
    let _ = send(crate::process::pid(), signal);
    let _ = change_mask(libc::SIG_UNBLOCK, SignalSet::new(&[signal]));
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn sets_have_one_bit_a_signal() {
        assert_eq!(
            SignalSet::new(&[libc::SIGHUP, libc::SIGTERM]),
            SignalSet(1 | 1 << 14)
        );
    }
}
