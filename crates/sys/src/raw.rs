//! The system call instruction and its error values.

use core::arch::asm;
use core::fmt;

use libc::c_long;

/// Declares the error numbers that get a constant, a name and a sentence.
macro_rules! errnos {
    ($($name:ident $text:literal)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`: ", $text, ".")]
            pub const $name: Self = Self(libc::$name);)*

            /// The symbol, such as `"ENOMEM"`; `None` for a number without a constant here.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $(libc::$name => Some(stringify!($name)),)* _ => None }
            }

            /// What the number means, such as `"out of memory"`.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 { $(libc::$name => $text,)* _ => "unknown error" }
            }
        }
    };
}

/// An error number of the kernel, always positive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

errnos! {
    EPERM "operation not permitted"
    ENOENT "no such file, directory or page"
    ESRCH "no such process"
    EINTR "interrupted by a signal"
    EIO "input/output error"
    ENXIO "no such device or address"
    E2BIG "argument too large"
    EBADF "bad file descriptor"
    ECHILD "no child processes"
    EAGAIN "try again"
    ENOMEM "out of memory, or too many mappings"
    EACCES "permission denied"
    EFAULT "bad address"
    EBUSY "busy: pinned, shared or already claimed"
    EEXIST "already exists"
    EXDEV "across devices"
    ENODEV "no such device"
    ENOTDIR "not a directory"
    EISDIR "is a directory"
    EINVAL "invalid argument"
    ENFILE "too many open files in the system"
    EMFILE "too many open files in the process (ulimit -n)"
    ENOTTY "not an operation of this device"
    EFBIG "file too large"
    ENOSPC "no space left"
    ESPIPE "cannot seek"
    EROFS "read-only file system"
    EPIPE "broken pipe"
    ERANGE "out of range"
    EDEADLK "would deadlock"
    ENAMETOOLONG "name too long"
    ENOSYS "not implemented by this kernel, or forbidden by a sandbox"
    ELOOP "too many symbolic links"
    EOPNOTSUPP "operation not supported"
    EOVERFLOW "value too large"
    ETIMEDOUT "timed out"
    EHWPOISON "memory page has a hardware error"
}

impl Errno {
    /// The error numbered `number`.
    #[must_use]
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// The number, as libc's `errno` would hold it.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.text()),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Errno {}

/// The kernel's return convention: -4095..0 is an error number, anything else a value.
/// (`MAX_ERRNO` in the kernel's include/linux/err.h.)
const ERRNO_MAX: isize = 4095;

/// Turns a raw return value into a result.
///
/// # Errors
/// The error number that `value` encodes.
#[inline]
pub(crate) const fn check(value: isize) -> Result<usize, Errno> {
    if value < 0 && value >= -ERRNO_MAX {
        Err(Errno(-value as i32))
    } else {
        Ok(value as usize)
    }
}

/// Makes system call `nr` with six arguments.
///
/// # Errors
/// What the kernel returned. `EINTR` is passed on, never retried.
///
/// # Safety
/// The call must be sound for these arguments: pointers valid for what the kernel reads and writes,
/// and no memory that Rust code relies on unmapped or changed.
#[inline]
pub unsafe fn syscall6(
    nr: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> Result<usize, Errno> {
    let value: isize;
    // SAFETY: the instruction clobbers rcx and r11 and touches no stack of ours; the rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as isize => value,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    check(value)
}

/// [`syscall6`] with three arguments; the other registers are zero.
///
/// # Errors
/// As [`syscall6`].
///
/// # Safety
/// As [`syscall6`].
#[inline]
pub unsafe fn syscall3(nr: c_long, a: usize, b: usize, c: usize) -> Result<usize, Errno> {
    // SAFETY: passed on from the caller.
    unsafe { syscall6(nr, a, b, c, 0, 0, 0) }
}

/// [`syscall6`] with five arguments; the last register is zero.
///
/// # Errors
/// As [`syscall6`].
///
/// # Safety
/// As [`syscall6`].
#[inline]
pub unsafe fn syscall5(
    nr: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
) -> Result<usize, Errno> {
    // SAFETY: passed on from the caller.
    unsafe { syscall6(nr, a, b, c, d, e, 0) }
}

/// The calling thread's pointer to its block of thread-locals.
#[must_use]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the x86-64 ABI keeps the thread pointer itself at offset 0 of the fs segment.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// Lets other threads run.
pub fn yield_now() {
    // SAFETY: takes nothing.
    let _ = unsafe { syscall3(libc::SYS_sched_yield, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn errors_come_back_as_values_with_names() {
        // SAFETY: closing a descriptor that cannot exist touches no memory.
        let error = unsafe { syscall3(libc::SYS_close, usize::MAX, 0, 0) }.unwrap_err();
        assert_eq!(error, Errno::EBADF);
        assert_eq!(format!("{error}"), "bad file descriptor (EBADF)");
        assert_eq!(format!("{}", Errno::new(4000)), "error 4000");
    }

    #[test]
    fn only_the_last_4095_values_are_errors() {
        assert_eq!(check(-4095), Err(Errno(4095)));
        assert_eq!(check(-4096), Ok(-4096isize as usize));
        assert_eq!(check(0), Ok(0));
    }
}
