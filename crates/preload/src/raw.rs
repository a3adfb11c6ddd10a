//! Bare system calls as the hooks need them: the kernel's own return value, errors negative.

use outpage_sys::raw::syscall6;
use outpage_sys::thread::OWN_SIGNALS;

/// Makes system call `nr`; returns what the kernel returned, an error as its negative number.
///
/// # Safety
/// The call must be one that the program itself asked for, or sound for the shim's own memory.
#[inline]
pub unsafe fn call(nr: libc::c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    // SAFETY: passed on from the caller.
    match unsafe { syscall6(nr, a, b, c, d, e, f) } {
        Ok(value) => value as isize,
        Err(error) => -(error.number() as isize),
    }
}

/// mmap(2).
///
/// # Safety
/// With `MAP_FIXED`, whoever uses the range must expect it.
pub unsafe fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: i32, off: usize) -> isize {
    let args = [
        addr,
        len,
        prot as usize,
        flags as usize,
        fd as isize as usize,
        off,
    ];
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_mmap, args) }
}

/// munmap(2).
///
/// # Safety
/// Nobody uses the range any more.
pub unsafe fn munmap(addr: usize, len: usize) -> isize {
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_munmap, [addr, len, 0, 0, 0, 0]) }
}

/// mprotect(2).
///
/// # Safety
/// Whoever uses the range must expect the change.
pub unsafe fn mprotect(addr: usize, len: usize, prot: i32) -> isize {
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_mprotect, [addr, len, prot as usize, 0, 0, 0]) }
}

/// The calling thread's pointer to itself, which tells threads apart without a system call.
///
/// Never 0. A child of vfork has its parent's, which sleeps meanwhile.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the x86-64 ABI keeps the thread pointer itself at offset 0 of the fs segment.
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer.max(1)
}

/// The set of all signals, as the kernel takes it.
const ALL_SIGNALS: u64 = u64::MAX;

/// Signals of the calling thread, blocked until dropped; also the two that glibc keeps for itself.
pub struct SignalsBlocked(u64);

impl SignalsBlocked {
    /// Blocks all of them.
    #[must_use]
    pub fn new() -> Self {
        Self::blocking(ALL_SIGNALS)
    }

    /// Blocks those that come from outside: their handlers may jump away.
    #[must_use]
    pub fn of_others() -> Self {
        let own = OWN_SIGNALS
            .iter()
            .fold(0, |mask, signal| mask | 1 << (signal - 1));
        Self::blocking(ALL_SIGNALS & !own)
    }

    fn blocking(mask: u64) -> Self {
        let mut before = 0u64;
        let (mask, old) = ((&raw const mask) as usize, (&raw mut before) as usize);
        // SAFETY: both pointers are valid for the 8 bytes of the kernel's signal set.
        unsafe {
            call(
                libc::SYS_rt_sigprocmask,
                [libc::SIG_BLOCK as usize, mask, old, 8, 0, 0],
            )
        };
        Self(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_signals(&self.0, None);
    }
}

/// Sets the calling thread's mask of blocked signals.
pub fn set_signals(mask: &u64, before: Option<&mut u64>) {
    let before = before.map_or(0, |b| core::ptr::from_mut(b) as usize);
    let mask = core::ptr::from_ref(mask) as usize;
    let args = [libc::SIG_SETMASK as usize, mask, before, 8, 0, 0];
    // SAFETY: both pointers are valid for the 8 bytes of the kernel's signal set.
    unsafe { call(libc::SYS_rt_sigprocmask, args) };
}

/// Whether the word at `at` can be read, as the kernel finds: it copies a set before it looks at what is asked (rt_sigprocmask(2), `EFAULT`).
pub fn is_readable(at: usize) -> bool {
    const NOTHING: usize = usize::MAX;
    // SAFETY: the kernel reads 8 bytes, or says that it cannot; no mask is changed.
    let result = unsafe { call(libc::SYS_rt_sigprocmask, [NOTHING, at, 0, 8, 0, 0]) };
    result != -(libc::EFAULT as isize)
}

#[cfg(test)]
pub mod tests;
