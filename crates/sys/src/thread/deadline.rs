//! Threads begun by one that has a deadline.
//!
//! A thread under `SCHED_DEADLINE` may begin no other (`EAGAIN`; sched(7), `sched_fork` in kernel/sched/core.c, Linux 6.18), unless what it begins is
//! not scheduled like it.

use crate::raw::{Errno, syscall5};

/// From include/uapi/linux/sched.h.
const SCHED_DEADLINE: u32 = 6;

/// The calling thread begins threads that are scheduled as usual, as long as this lives.
pub(super) struct ResetOnFork(libc::sched_attr);

impl ResetOnFork {
    /// `None` where the thread has no deadline, or begins such threads already.
    pub(super) fn set() -> Option<Self> {
        let before = attributes().ok()?;
        let resets = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        if before.sched_policy != SCHED_DEADLINE || before.sched_flags & resets != 0 {
            return None;
        }
        let mut during = before;
        during.sched_flags |= resets;
        apply(&during).ok()?;
        Some(Self(before))
    }
}

impl Drop for ResetOnFork {
    fn drop(&mut self) {
        // It was so before, and whoever could set it may take it off.
        let _ = apply(&self.0);
    }
}

/// sched_getattr(2) of the calling thread.
fn attributes() -> Result<libc::sched_attr, Errno> {
    // SAFETY: all zeroes are a valid value.
    let mut attributes: libc::sched_attr = unsafe { core::mem::zeroed() };
    let (at, size) = ((&raw mut attributes) as usize, size_of_val(&attributes));
    // SAFETY: the kernel writes so many bytes at most.
    unsafe { syscall5(libc::SYS_sched_getattr, 0, at, size, 0, 0) }?;
    Ok(attributes)
}

/// sched_setattr(2) of the calling thread.
fn apply(attributes: &libc::sched_attr) -> Result<(), Errno> {
    let at = (&raw const *attributes) as usize;
    // SAFETY: the kernel reads the value, whose size is its first field.
    unsafe { syscall5(libc::SYS_sched_setattr, 0, at, 0, 0, 0) }.map(drop)
}
