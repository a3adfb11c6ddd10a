//! /proc as the pager found it when it began.
//!
//! A program may change its root directory, and what it forks needs a pager as well. So the pager keeps the directory open, in
//! its own descriptor table, and its threads go in by it; the program's own threads take the path.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::fd::{self, Fd};
use crate::pagers;
use crate::raw::{Errno, syscall5};

/// Longest path below /proc that is asked for, with its zero: `thread-self/fd/` and a number.
const PATH_MAX: usize = 40;
const PREFIX: &[u8] = b"/proc/";

/// The directory's number in the pager's table; negative until it is known.
static DIRECTORY: AtomicI32 = AtomicI32::new(-1);

/// Opens the directory and keeps it, for the threads of the caller's descriptor table.
///
/// # Errors
/// Those of open(2).
pub fn keep() -> Result<(), Errno> {
    let directory = fd::open(c"/proc", libc::O_PATH | libc::O_DIRECTORY)?;
    keep_as(Some(directory));
    Ok(())
}

/// The same in a forked child, which has the parent's directory as `directory`, or has none of it: the parent's number is one of another table there.
pub fn keep_as(directory: Option<Fd>) {
    DIRECTORY.store(directory.map_or(-1, Fd::release), Ordering::SeqCst);
}

/// The directory's number in the pager's table, if it is kept.
#[must_use]
pub fn directory() -> Option<i32> {
    let number = DIRECTORY.load(Ordering::SeqCst);
    (number >= 0).then_some(number)
}

/// Opens `path`, which is relative to /proc, as in `self/maps`.
///
/// # Errors
/// Those of open(2); `ENAMETOOLONG` for more than 33 bytes.
pub fn open(path: &CStr, flags: i32) -> Result<Fd, Errno> {
    let kept = directory().filter(|_| pagers::is_pagers());
    let Some(directory) = kept else {
        let mut whole = [0; PREFIX.len() + PATH_MAX];
        let bytes = path.to_bytes();
        whole[..PREFIX.len()].copy_from_slice(PREFIX);
        let place = whole.get_mut(PREFIX.len()..PREFIX.len() + bytes.len());
        place.ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(bytes);
        let whole = CStr::from_bytes_until_nul(&whole).map_err(|_| Errno::ENAMETOOLONG)?;
        return fd::open(whole, flags);
    };
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let (directory, path) = (directory as usize, path.as_ptr() as usize);
    // SAFETY: `path` is a valid C string for the length of the call.
    let number = unsafe { syscall5(libc::SYS_openat, directory, path, flags, 0, 0) }?;
    Ok(Fd::adopt(number as i32))
}

/// Bytes of the caller's address space that are locked (`VmLck` of proc(5), `/proc/PID/status`).
///
/// # Errors
/// Those of open(2) and read(2); `EINVAL` where there is no such line.
pub fn locked_bytes() -> Result<u64, Errno> {
    status(b"VmLck:").map(|kib| kib * 1024)
}

/// How many descriptors the caller's table has room for (`FDSize`): each number is below that.
///
/// # Errors
/// Those of [`locked_bytes`].
pub fn table_size() -> Result<u64, Errno> {
    status(b"FDSize:")
}

/// The number in the line of the caller's `/proc/PID/status` that begins with `name`.
fn status(name: &[u8]) -> Result<u64, Errno> {
    // 1.5 KiB on Linux 6.18; these lines are in the first third.
    let mut text = [0; 1024];
    let file = open(c"thread-self/status", libc::O_RDONLY)?;
    let len = fd::read(file.number(), &mut text)?;
    let mut lines = text[..len].split(|&byte| byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| core::str::from_utf8(line).ok()?.split_whitespace().next());
    number
        .and_then(|text| text.parse().ok())
        .ok_or(Errno::EINVAL)
}

/// Opens the file behind `fd` anew: an open file description of its own, with its own locks and offset.
///
/// # Errors
/// Those of open(2); `ENOENT` where /proc is not mounted.
pub fn reopen(fd: i32, flags: i32) -> Result<Fd, Errno> {
    let number = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
    let mut path = [0u8; 40];
    fd::numbered(&mut path, b"thread-self/fd/", number, b"");
    open(
        CStr::from_bytes_until_nul(&path).map_err(|_| Errno::EBADF)?,
        flags,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reopened_file_has_the_same_content() {
        let file = fd::open(c"/proc/self/exe", libc::O_RDONLY).unwrap();
        let again = reopen(file.number(), libc::O_RDONLY).unwrap();
        assert_ne!(again.number(), file.number());
        assert_eq!(fd::len(again.number()), fd::len(file.number()));
        let mut magic = [0u8; 4];
        assert_eq!(fd::pread(again.number(), &mut magic, 0), Ok(4));
        assert_eq!(&magic, b"\x7fELF");
    }
}
