//! Threads of a stopped process that go on: ptrace(2) with `PTRACE_SEIZE`.
//!
//! A stop signal stops every thread of a process. One that is traced so may be sent on while the others stay stopped.

use crate::process::Tid;
use crate::raw::{Errno, syscall5};

/// A thread that the calling thread traces. Dropping this value does not let it go: its tracer's end does.
#[derive(Debug)]
pub struct Traced(Tid);

/// What is new of a traced thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// Nothing: it runs, or has been told of.
    None,
    /// It is stopped, by this signal where its process is stopped or the signal is meant for it.
    Stopped {
        /// The signal; SIGTRAP where it was interrupted, or its process goes on.
        signal: i32,
        /// Whether that is told to the tracer alone: no signal is to be passed on.
        told: bool,
    },
    /// It has ended.
    Gone,
}

// Of include/uapi/linux/ptrace.h; the requests are those of ptrace(2).
const EVENT_STOP: i32 = 128;

/// Begins to trace thread `tid`, which goes on as it does, or stays stopped.
///
/// # Errors
/// `EPERM`: it may not be traced by the caller, or is traced already. `ESRCH`: it is gone.
pub fn seize(tid: Tid) -> Result<Traced, Errno> {
    request(libc::PTRACE_SEIZE, tid, 0).map(|()| Traced(tid))
}

fn request(what: u32, tid: Tid, data: usize) -> Result<(), Errno> {
    // SAFETY: the requests used here take numbers only, and touch no memory of the caller's.
    unsafe { syscall5(libc::SYS_ptrace, what as usize, tid.0 as usize, 0, data, 0) }.map(drop)
}

impl Traced {
    /// Which thread.
    #[must_use]
    pub const fn tid(&self) -> Tid {
        self.0
    }

    /// What is new since the last call; does not wait.
    #[must_use]
    pub fn news(&self) -> News {
        let mut status = 0_i32;
        let how = libc::WNOHANG | libc::__WALL;
        let (tid, at) = (self.0.0 as usize, (&raw mut status) as usize);
        // SAFETY: the kernel writes one status.
        match unsafe { syscall5(libc::SYS_wait4, tid, at, how as usize, 0, 0) } {
            Ok(0) => News::None,
            Ok(_) if libc::WIFSTOPPED(status) => News::Stopped {
                signal: libc::WSTOPSIG(status),
                told: status >> 16 == EVENT_STOP,
            },
            Ok(_) | Err(_) => News::Gone,
        }
    }

    /// Has the stopped thread go on, with `signal` delivered to it (0: none). Does nothing where it is not stopped.
    pub fn go_on(&self, signal: i32) {
        // ESRCH: it runs, or is gone.
        let _ = request(libc::PTRACE_CONT, self.0, signal as usize);
    }

    /// Has the running thread stop, so that it can be let go.
    pub fn interrupt(&self) {
        let _ = request(libc::PTRACE_INTERRUPT, self.0, 0);
    }

    /// Ends tracing of the stopped thread: it does as its process does.
    pub fn let_go(self) {
        let _ = request(libc::PTRACE_DETACH, self.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{clock, launch, process};

    fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let from = clock::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(
                clock::now().0 - from.0 < 20_000_000_000,
                "nothing came of it"
            );
            process::yield_now();
        }
    }

    fn until_stopped(thread: &Traced) -> News {
        until(|| Some(thread.news()).filter(|news| *news != News::None))
    }

    /// A counter that both processes see.
    fn counter() -> &'static AtomicU32 {
        let bytes = outpage_core::units::PAGE_BYTES;
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping of zeroes, which stays.
        unsafe {
            let at = libc::mmap(core::ptr::null_mut(), bytes, prot, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast()
        }
    }

    #[test]
    fn a_traced_thread_goes_on_in_a_stopped_process_and_stops_again_when_let_go() {
        let steps = counter();
        let pid = launch::fork(|| {
            loop {
                steps.fetch_add(1, Ordering::SeqCst);
                process::yield_now();
            }
        })
        .unwrap();
        launch::send(pid, libc::SIGSTOP).unwrap();
        until(|| launch::is_stopped(pid).then_some(()));
        let thread = seize(Tid(pid)).unwrap();
        let stopped = News::Stopped {
            signal: libc::SIGSTOP,
            told: true,
        };
        assert_eq!(until_stopped(&thread), stopped);
        let before = steps.load(Ordering::SeqCst);
        thread.go_on(0);
        until(|| (steps.load(Ordering::SeqCst) > before + 10).then_some(()));
        thread.interrupt();
        assert!(matches!(
            until_stopped(&thread),
            News::Stopped { told: true, .. }
        ));
        thread.let_go();
        until(|| launch::is_stopped(pid).then_some(()));
        let before = steps.load(Ordering::SeqCst);
        for _ in 0..100 {
            process::yield_now();
        }
        assert_eq!(
            steps.load(Ordering::SeqCst),
            before,
            "it is stopped like its process"
        );
        launch::send(pid, libc::SIGKILL).unwrap();
        // SAFETY: waits for the child of this test.
        let waited = unsafe { libc::waitpid(pid as i32, core::ptr::null_mut(), 0) };
        assert_eq!(waited, pid as i32);
        assert_eq!(seize(Tid(pid)).unwrap_err(), Errno::ESRCH);
    }
}
