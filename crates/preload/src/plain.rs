//! What the standard library and io-uring call of libc, by the kernel's instruction alone.
//!
//! They run on the pager's threads, which libc does not know. A library of the program's may have replaced such a function, by its name or by a jump at its
//! entry as UCX (of MPI) does, and its replacement may need what such a thread lacks. So the linker has each call go here (`--defsym`, build.rs). Calls of other
//! functions are bound to libc's own (`bind`).

use outpage_sys::raw::{Errno, syscall6};

/// As libc returns it: -1, and the error in `errno`.
fn told(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(error) => {
            // SAFETY: always callable, returns the thread's own word.
            unsafe { *libc::__errno_location() = error.number() };
            -1
        }
    }
}

/// Defines functions that make one system call each. Whatever their callers do not pass the kernel does not look at.
macro_rules! plain {
    ($($name:ident $call:ident)*) => {$(
        /// As libc's, whose name follows `outpage_plain_`.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            // SAFETY: the caller's, whose arguments are those of the system call.
            told(unsafe { syscall6(libc::$call, a, b, c, d, e, f) })
        }
    )*};
}

// Of 64-bit programs each of these is the system call of its name.
plain! {
    outpage_plain_mmap SYS_mmap
    outpage_plain_mmap64 SYS_mmap
    outpage_plain_munmap SYS_munmap
    outpage_plain_madvise SYS_madvise
    outpage_plain_open64 SYS_open
    outpage_plain_close SYS_close
    outpage_plain_read SYS_read
    outpage_plain_write SYS_write
    outpage_plain_lseek64 SYS_lseek
    outpage_plain_ftruncate64 SYS_ftruncate
    outpage_plain_fcntl SYS_fcntl
    outpage_plain_fstat64 SYS_fstat
    outpage_plain_stat64 SYS_stat
    outpage_plain_readlink SYS_readlink
    outpage_plain_unlink SYS_unlink
    outpage_plain_getpid SYS_getpid
}

/// As libc's `syscall`.
///
/// # Safety
/// That of the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_plain_syscall(
    number: libc::c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    // SAFETY: the caller's.
    told(unsafe { syscall6(number, a, b, c, d, e, f) })
}
