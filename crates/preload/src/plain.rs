//! What the standard library and io-uring call of libc, by the kernel's instruction alone.
//!
//! They run on the pager's threads, which libc does not know. A library of the program's may have replaced such a function, by its name or by a jump at its
//! entry as UCX (of MPI) does, and its replacement may need what such a thread lacks. So the linker has each call go here (`--defsym`, build.rs). Calls of other
//! functions are bound to libc's own (`bind`).

use outpage_sys::raw::{Errno, syscall6};

/// Paths are looked up from the working directory.
const HERE: usize = libc::AT_FDCWD as usize;

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

// As glibc makes them: a program's seccomp filter may allow these and not their like.
plain! {
    outpage_plain_mmap SYS_mmap
    outpage_plain_mmap64 SYS_mmap
    outpage_plain_munmap SYS_munmap
    outpage_plain_madvise SYS_madvise
    outpage_plain_close SYS_close
    outpage_plain_read SYS_read
    outpage_plain_write SYS_write
    outpage_plain_lseek64 SYS_lseek
    outpage_plain_ftruncate64 SYS_ftruncate
    outpage_plain_fcntl SYS_fcntl
    outpage_plain_readlink SYS_readlink
    outpage_plain_unlink SYS_unlink
    outpage_plain_getpid SYS_getpid
}

/// As libc's.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_plain_open64(path: usize, flags: usize, mode: usize) -> isize {
    // SAFETY: the caller's.
    told(unsafe { syscall6(libc::SYS_openat, HERE, path, flags, mode, 0, 0) })
}

/// As libc's.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_plain_stat64(path: usize, to: usize) -> isize {
    // SAFETY: the caller's.
    told(unsafe { syscall6(libc::SYS_newfstatat, HERE, path, to, 0, 0, 0) })
}

/// As libc's.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn outpage_plain_fstat64(file: usize, to: usize) -> isize {
    let (itself, flags) = (c"".as_ptr().addr(), libc::AT_EMPTY_PATH as usize);
    // SAFETY: the caller's; the path is empty, and static.
    told(unsafe { syscall6(libc::SYS_newfstatat, file, itself, to, flags, 0, 0) })
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
