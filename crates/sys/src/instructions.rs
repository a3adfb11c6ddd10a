//! The right to execute instructions that a program may take from its threads: reading the time stamp counter, and asking the CPU what it can.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::process;
use crate::raw::syscall3;

/// A thread that had lost the right to read the counter began the pager, or may have.
static NO_COUNTER: AtomicBool = AtomicBool::new(false);
/// A thread that had lost the right to ask the CPU began the pager.
static NO_CPUID: AtomicBool = AtomicBool::new(false);

/// From arch/x86/include/uapi/asm/prctl.h.
const ARCH_GET_CPUID: usize = 0x1011;
const ARCH_SET_CPUID: usize = 0x1012;

/// While it lives the calling thread may execute all instructions, though the program took some from it: rdtsc, by which clocks are read without a system call
/// (`PR_SET_TSC`, prctl(2)), and cpuid, by which codecs and hashes choose their code (`ARCH_SET_CPUID`, arch_prctl(2)). A thread that begins meanwhile keeps them.
#[must_use]
pub struct AllInstructions {
    counter: bool,
    cpuid: bool,
}

impl AllInstructions {
    /// From now on.
    pub fn now() -> Self {
        let mut mode = libc::PR_TSC_ENABLE;
        let at = (&raw mut mode) as usize;
        // SAFETY: the kernel writes a number there.
        let _ = unsafe { syscall3(libc::SYS_prctl, libc::PR_GET_TSC as usize, at, 0) };
        let counter = mode == libc::PR_TSC_SIGSEGV;
        if counter {
            NO_COUNTER.store(true, Ordering::SeqCst);
            set_counter(libc::PR_TSC_ENABLE);
        }
        // Few programs make this call after their start, so a filter may not know it.
        // SAFETY: takes numbers only.
        let get = || unsafe { syscall3(libc::SYS_arch_prctl, ARCH_GET_CPUID, 0, 0) };
        let cpuid = !process::is_filtered() && get() == Ok(0);
        if cpuid {
            NO_CPUID.store(true, Ordering::SeqCst);
            set_cpuid(true);
        }
        Self { counter, cpuid }
    }
}

impl Drop for AllInstructions {
    fn drop(&mut self) {
        if self.counter {
            set_counter(libc::PR_TSC_SIGSEGV);
        }
        if self.cpuid {
            set_cpuid(false);
        }
    }
}

/// As [`AllInstructions`], for a thread of the pager's own, for good. Elsewhere not a call is made: a filter of the program's may not know it.
pub(crate) fn have_all() {
    if NO_COUNTER.load(Ordering::SeqCst) {
        set_counter(libc::PR_TSC_ENABLE);
    }
    if NO_CPUID.load(Ordering::SeqCst) {
        set_cpuid(true);
    }
}

/// In a thread that a forked one began: the pager may read clocks, whatever that one may. What the CPU can was asked before the fork.
pub fn have_all_in_child() {
    NO_COUNTER.store(true, Ordering::SeqCst);
    have_all();
}

fn set_counter(mode: i32) {
    // SAFETY: takes numbers only.
    let _ = unsafe { syscall3(libc::SYS_prctl, libc::PR_SET_TSC as usize, mode as usize, 0) };
}

fn set_cpuid(on: bool) {
    // SAFETY: takes numbers only.
    let _ = unsafe { syscall3(libc::SYS_arch_prctl, ARCH_SET_CPUID, on.into(), 0) };
}
