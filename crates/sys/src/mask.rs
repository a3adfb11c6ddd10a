//! The signals that the calling thread has blocked.
//!
//! A set is as the kernel has it: signal `n` is bit `n - 1`.

use core::ptr;

use crate::raw::{Errno, syscall5};

/// The set of one signal.
pub(crate) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Changes the mask by `set`, as `how` says (`SIG_BLOCK`, `SIG_UNBLOCK`, `SIG_SETMASK`); returns the mask before.
///
/// # Errors
/// Those of sigprocmask(2).
pub(crate) fn change(how: i32, set: u64) -> Result<u64, Errno> {
    let mut old = 0_u64;
    let (new_at, old_at) = ((&raw const set) as usize, (&raw mut old) as usize);
    // SAFETY: the kernel's signal set is 8 bytes; it reads one and writes the other.
    unsafe {
        syscall5(
            libc::SYS_rt_sigprocmask,
            how as usize,
            new_at,
            old_at,
            size_of::<u64>(),
            0,
        )
    }?;
    Ok(old)
}

/// Does `work` with the signals of `set` blocked. Those that it brought upon the caller are gone afterwards; one that waited before
/// still does.
pub(crate) fn without<R>(set: u64, work: impl FnOnce() -> R) -> R {
    let Ok(before) = change(libc::SIG_BLOCK, set) else {
        return work();
    };
    let new = set & !pending();
    let result = work();
    while take(new) {}
    let _ = change(libc::SIG_SETMASK, before);
    result
}

/// What waits for the caller; nothing where the kernel does not tell.
fn pending() -> u64 {
    let mut set = 0_u64;
    let at = (&raw mut set) as usize;
    // SAFETY: the kernel writes one signal set of 8 bytes.
    let told = unsafe { syscall5(libc::SYS_rt_sigpending, at, size_of::<u64>(), 0, 0, 0) };
    told.map_or(0, |_| set)
}

/// Takes one signal of `set`, all of which are blocked; whether there was one.
fn take(set: u64) -> bool {
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (at, now) = (ptr::from_ref(&set) as usize, ptr::from_ref(&now) as usize);
    // SAFETY: the kernel reads a signal set of 8 bytes and a time, and is asked for no more than the signal's number.
    unsafe { syscall5(libc::SYS_rt_sigtimedwait, at, 0, now, size_of::<u64>(), 0) }.is_ok()
}
