//! The right to read the time stamp counter, which a program may take from its threads.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::raw::syscall3;

/// A thread that had lost the right began the pager, or may have.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// While it lives the calling thread may read the time stamp counter, by which clocks are read without a system call, though the program took that right from it
/// (`PR_SET_TSC`, prctl(2)). A thread that begins meanwhile keeps it.
#[must_use]
pub struct ReadsClock {
    takes: bool,
}

impl ReadsClock {
    /// From now on.
    pub fn now() -> Self {
        let mut mode = libc::PR_TSC_ENABLE;
        let at = (&raw mut mode) as usize;
        // SAFETY: the kernel writes a number there.
        let _ = unsafe { syscall3(libc::SYS_prctl, libc::PR_GET_TSC as usize, at, 0) };
        let takes = mode == libc::PR_TSC_SIGSEGV;
        if takes {
            TAKEN.store(true, Ordering::SeqCst);
            set_tsc(libc::PR_TSC_ENABLE);
        }
        Self { takes }
    }
}

impl Drop for ReadsClock {
    fn drop(&mut self) {
        if self.takes {
            set_tsc(libc::PR_TSC_SIGSEGV);
        }
    }
}

/// As [`ReadsClock`], for a thread of the pager's own, for good. Elsewhere not a call is made: a filter of the program's may not know it.
pub(crate) fn read_clock() {
    if TAKEN.load(Ordering::SeqCst) {
        set_tsc(libc::PR_TSC_ENABLE);
    }
}

/// In a thread that a forked one began: the pager may read clocks, whatever that one may.
pub fn read_clock_in_child() {
    TAKEN.store(true, Ordering::SeqCst);
    read_clock();
}

fn set_tsc(mode: i32) {
    // SAFETY: takes numbers only.
    let _ = unsafe { syscall3(libc::SYS_prctl, libc::PR_SET_TSC as usize, mode as usize, 0) };
}
