//! Signals that a launcher passes on: it takes them all, its program starts with what it would have had.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use outpage_core::units::Nanos;

use super::send;
use crate::fd::{self, Fd, PollFd};
use crate::mask::{self, bit};
use crate::process;
use crate::raw::{Errno, syscall3, syscall5};

/// A signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// The kernel made it (a terminal key, a child's end, an alarm), not a process.
    pub from_kernel: bool,
    /// What sigqueue(3) sent along.
    pub value: Option<usize>,
    /// The process that sent it by kill(2), the only call that reaches a group; 0 for other signals, and where it has no number here.
    pub sender: u32,
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

const fn plain(handler: usize) -> Action {
    Action {
        handler,
        flags: 0,
        restorer: 0,
        mask: 0,
    }
}

/// The default action.
const DEFAULT: Action = plain(libc::SIG_DFL);
/// The handler returns through `Action::restorer`: the kernel has no return path of its own on x86-64.
const SA_RESTORER: u64 = 0x0400_0000;

/// Where the handler writes; -1 while nobody takes signals.
static WRITE_END: AtomicI32 = AtomicI32::new(-1);

/// Whether SIGPIPE was ignored when this program was executed: Rust's runtime ignores it before `main`.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime, in whatever program this crate is linked into.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_start;

/// Notes the dispositions that Rust's runtime is about to change.
extern "C" fn note_start() {
    let ignored = action(libc::SIGPIPE, None).is_ok_and(|a| a.handler == libc::SIG_IGN);
    PIPE_IGNORED.store(ignored, Ordering::SeqCst);
}

/// The signals of a set.
fn members(set: u64) -> impl Iterator<Item = i32> {
    (1..=64).filter(move |&signal| set & bit(signal) != 0)
}

/// Those of `signals` that are not ignored.
///
/// # Errors
/// Those of sigaction(2).
pub fn heeded<const N: usize>(signals: [i32; N]) -> Result<impl Iterator<Item = i32>, Errno> {
    let mut set = 0;
    for signal in signals {
        if action(signal, None)?.handler != libc::SIG_IGN {
            set |= bit(signal);
        }
    }
    Ok(members(set))
}

/// Signals that the process takes from a pipe, whatever they did and whether they were blocked before.
///
/// Handlers, not a blocked mask: a program started meanwhile would inherit the mask, while exec
/// resets handlers. What was ignored or blocked before is so again in the program by [`Signals::inherit`].
#[derive(Debug)]
pub struct Signals {
    read_end: Fd,
    write_end: Fd,
    taken: u64,
    ignored: u64,
    blocked: u64,
}

impl Signals {
    /// Takes `signals`.
    ///
    /// # Errors
    /// Those of pipe2(2), sigaction(2) and sigprocmask(2).
    ///
    /// # Panics
    /// When another value of this type exists.
    pub fn take(signals: impl IntoIterator<Item = i32>) -> Result<Self, Errno> {
        let mut ends = [0_i32; 2];
        let at = ends.as_mut_ptr() as usize;
        // A full pipe loses a signal rather than stopping its only reader in the handler.
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        // SAFETY: the kernel writes two descriptor numbers.
        unsafe { syscall3(libc::SYS_pipe2, at, flags, 0) }?;
        let mut this = Self {
            read_end: Fd::adopt(ends[0]),
            write_end: Fd::adopt(ends[1]),
            taken: 0,
            ignored: 0,
            blocked: 0,
        };
        let before = WRITE_END.swap(ends[1], Ordering::SeqCst);
        assert_eq!(before, -1, "signals are taken once");
        for signal in signals {
            if action(signal, Some(noting()))?.handler == libc::SIG_IGN {
                this.ignored |= bit(signal);
            }
            this.taken |= bit(signal);
        }
        this.blocked = mask::change(libc::SIG_UNBLOCK, this.taken)?;
        Ok(this)
    }

    /// Makes the program of `command` start with the dispositions and the mask that this process started with.
    pub fn inherit(&self, command: &mut Command) {
        let pipe = PIPE_IGNORED.load(Ordering::SeqCst);
        let ignored = self.ignored | if pipe { bit(libc::SIGPIPE) } else { 0 };
        let blocked = self.blocked;
        // In any case: started the other way, by posix_spawn(3), the program would ignore the two signals that glibc keeps for itself, 32 and 33. Neither way
        // is the faster one here.
        let restore = move || {
            members(ignored)
                .try_for_each(|signal| action(signal, Some(plain(libc::SIG_IGN))).map(drop))
                .and_then(|()| mask::change(libc::SIG_SETMASK, blocked).map(drop))
                .map_err(|errno| io::Error::from_raw_os_error(errno.number()))
        };
        // SAFETY: between fork and exec it makes bare system calls only, and touches its copied numbers.
        unsafe { command.pre_exec(restore) };
    }

    /// Can be read when a signal has come. Valid as long as `self` is.
    #[must_use]
    pub const fn descriptor(&self) -> i32 {
        self.read_end.number()
    }

    /// Waits for the next signal, for `timeout` at most; `None` when none came.
    ///
    /// # Errors
    /// Those of ppoll(2) and read(2) except `EINTR` and `EAGAIN`.
    pub fn next(&self, timeout: Option<Nanos>) -> Result<Option<Arrived>, Errno> {
        let mut fds = [PollFd {
            fd: self.read_end.number(),
            events: fd::READABLE,
            revents: 0,
        }];
        match fd::poll(&mut fds, timeout) {
            // The signal that interrupted is in the pipe by now.
            Err(Errno::EINTR) => {}
            Ok(0) => return Ok(None),
            other => drop(other?),
        }
        let mut record = [0; RECORD_BYTES];
        match fd::read(self.read_end.number(), &mut record) {
            Err(Errno::EINTR | Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(Some(arrived(record))),
        }
    }

    /// Stops this process as `signal` (SIGTSTP, SIGTTIN, SIGTTOU, SIGSTOP) does; returns when it goes on.
    ///
    /// # Errors
    /// Those of sigaction(2).
    pub fn stop_by(&self, signal: i32) -> Result<(), Errno> {
        if signal == libc::SIGSTOP {
            return send(process::pid(), signal);
        }
        let before = action(signal, Some(DEFAULT))?;
        let sent = send(process::pid(), signal);
        action(signal, Some(before))?;
        sent
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for signal in members(self.taken) {
            let ignored = self.ignored & bit(signal) != 0;
            // It was changed before, so it can be changed again.
            let _ = action(
                signal,
                Some(plain(if ignored {
                    libc::SIG_IGN
                } else {
                    libc::SIG_DFL
                })),
            );
        }
        WRITE_END.store(-1, Ordering::SeqCst);
        debug_assert!(self.write_end.number() >= 0);
    }
}

/// Gives `signal` its default action, and lets it through.
pub(super) fn reset(signal: i32) {
    let _ = action(signal, Some(DEFAULT));
    let _ = mask::change(libc::SIG_UNBLOCK, bit(signal));
}

/// Gives every signal its default action, and lets it through.
pub(super) fn reset_all() {
    for signal in 1..=64 {
        // SIGKILL and SIGSTOP cannot be changed.
        let _ = action(signal, Some(DEFAULT));
    }
    let _ = mask::change(libc::SIG_SETMASK, 0);
}

/// Has `signal` do nothing.
pub(super) fn ignore(signal: i32) {
    let _ = action(signal, Some(plain(libc::SIG_IGN)));
}

/// What the handler writes: the signal, who made it, the value that came along, and the number of who sent it. Pipes keep it whole.
const RECORD_BYTES: usize = VALUE_END + size_of::<u32>();
/// Where the value ends, which follows the two bytes before.
const VALUE_END: usize = 2 + size_of::<usize>();
/// Who made it.
const BY_PROCESS: u8 = 0;
const BY_KERNEL: u8 = 1;
const BY_QUEUE: u8 = 2;

extern "C" fn note(signal: i32, info: *const libc::siginfo_t, _context: usize) {
    // SAFETY: the kernel passes a valid record with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // SI_USER, SI_QUEUE and SI_TKILL, which processes send, are not positive.
    let by = match code {
        libc::SI_QUEUE => BY_QUEUE,
        1.. => BY_KERNEL,
        _ => BY_PROCESS,
    };
    let value = if by == BY_QUEUE {
        // SAFETY: as above; with SI_QUEUE it holds a value.
        unsafe { (*info).si_value() }.sival_ptr as usize
    } else {
        0
    };
    let sender = if code == libc::SI_USER {
        // SAFETY: as above; such a signal says who sent it.
        unsafe { (*info).si_pid() as u32 }
    } else {
        0
    };
    let mut record = [0; RECORD_BYTES];
    (record[0], record[1]) = (signal as u8, by);
    record[2..VALUE_END].copy_from_slice(&value.to_ne_bytes());
    record[VALUE_END..].copy_from_slice(&sender.to_ne_bytes());
    let _ = fd::write(WRITE_END.load(Ordering::SeqCst), &record);
}

fn arrived(record: [u8; RECORD_BYTES]) -> Arrived {
    let mut value = [0; size_of::<usize>()];
    value.copy_from_slice(&record[2..VALUE_END]);
    let mut sender = [0; size_of::<u32>()];
    sender.copy_from_slice(&record[VALUE_END..]);
    Arrived {
        sender: u32::from_ne_bytes(sender),
        signal: i32::from(record[0]),
        from_kernel: record[1] == BY_KERNEL,
        value: (record[1] == BY_QUEUE).then_some(usize::from_ne_bytes(value)),
    }
}

fn noting() -> Action {
    Action {
        handler: note as *const () as usize,
        flags: SA_RESTORER | (libc::SA_SIGINFO | libc::SA_RESTART) as u64,
        restorer: restore as *const () as usize,
        mask: 0,
    }
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
    // `note`, which is async-signal-safe, the default action, and none.
    unsafe {
        syscall5(
            libc::SYS_rt_sigaction,
            signal as usize,
            new_at,
            old_at,
            size_of::<u64>(),
            0,
        )
    }?;
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::string::String;

    /// Which of `taken` a program finds blocked and ignored as it starts.
    fn found(signals: &Signals, taken: u64) -> [u64; 2] {
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        signals.inherit(&mut command);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        ["SigBlk:\t", "SigIgn:\t"].map(|name| {
            let set = text.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(set.unwrap(), 16).unwrap() & taken
        })
    }

    /// One test, for signals are taken once in a process.
    #[test]
    fn signals_come_by_the_pipe_and_not_to_programs_started_meanwhile() {
        let ignore = plain(libc::SIG_IGN);
        action(libc::SIGUSR2, Some(ignore)).unwrap();
        mask::change(libc::SIG_BLOCK, bit(libc::SIGWINCH)).unwrap();
        let taken = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH, libc::SIGCHLD];
        let signals = Signals::take(taken).unwrap();
        // Children of other tests may end meanwhile.
        let next = |wanted| loop {
            match signals.next(None).unwrap() {
                Some(arrived) if arrived.signal == wanted => return arrived,
                _ => {}
            }
        };
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            send(process::pid(), signal).unwrap();
            let arrived = next(signal);
            assert!(!arrived.from_kernel && arrived.sender == process::pid());
        }
        super::super::queue(process::pid(), libc::SIGUSR1, 77).unwrap();
        assert_eq!(next(libc::SIGUSR1).value, Some(77));
        let all = taken.iter().fold(0, |set, &signal| set | bit(signal));
        let expected = [bit(libc::SIGWINCH), bit(libc::SIGUSR2)];
        assert_eq!(found(&signals, all), expected);
        let status = Command::new("sh")
            .args(["-c", "kill -USR1 $$; sleep 5"])
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGUSR1));
        let ended = next(libc::SIGCHLD);
        assert!(ended.from_kernel && ended.sender == 0);
        drop(signals);
        assert_eq!(action(libc::SIGUSR2, None).unwrap().handler, libc::SIG_IGN);
    }
}
