//! What the kernel says of a descriptor.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::raw;

/// Address of the trampoline to libc's `fstat`.
pub static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

type Fstat = extern "C" fn(c_int, *mut libc::stat) -> c_int;

/// libc's own asks as this libc does, for a filter of the program's may allow that call alone: newfstatat(2) before glibc 2.39, fstat(2) since.
/// `None` where this libc has it by another name.
pub fn of_libc() -> Option<Fstat> {
    match ORIGINAL.load(Ordering::Acquire) {
        0 => None,
        // SAFETY: the trampoline to libc's function.
        original => Some(unsafe { core::mem::transmute::<usize, Fstat>(original) }),
    }
}

/// Of the file behind `fd`; `None` for no descriptor.
pub fn of(fd: i32) -> Option<libc::stat> {
    // SAFETY: an all-zero `stat` is a valid value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let at = &raw mut stat;
    let found = match of_libc() {
        Some(fstat) => fstat(fd, at) == 0,
        // SAFETY: on x86-64 the kernel's structure for this call is libc's.
        None => unsafe { raw::call(libc::SYS_fstat, [fd as usize, at as usize, 0, 0, 0, 0]) == 0 },
    };
    found.then_some(stat)
}
