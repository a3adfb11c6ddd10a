//! The right to read the time stamp counter, which a program may take from its threads.

use crate::raw::syscall3;

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

/// As [`ReadsClock`], for a thread of the pager's own.
pub(crate) fn read_clock() {
    set_tsc(libc::PR_TSC_ENABLE);
}

fn set_tsc(mode: i32) {
    // SAFETY: takes numbers only.
    let _ = unsafe { syscall3(libc::SYS_prctl, libc::PR_SET_TSC as usize, mode as usize, 0) };
}
