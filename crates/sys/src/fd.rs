//! File descriptors and the reads, writes and waits that the pager needs.

use core::ffi::CStr;

use outpage_core::units::Nanos;

use crate::clock;
use crate::raw::{Errno, syscall3, syscall5, syscall6};

/// A descriptor that is closed when dropped.
///
/// Descriptor tables can differ between threads here ([`crate::thread`]): an `Fd` belongs to the table
/// of the thread that opened it and must be dropped by a thread that uses that table or a copy of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Fd(i32);

impl Fd {
    /// Takes over descriptor `number`, which nobody else may close.
    #[must_use]
    pub const fn adopt(number: i32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(&self) -> i32 {
        self.0
    }

    /// The number, which is not closed any more when this value goes.
    #[must_use]
    pub const fn release(self) -> i32 {
        let number = self.0;
        core::mem::forget(self);
        number
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: closing a descriptor touches no memory. An error leaves nothing to do: Linux frees the number anyway.
        let _ = unsafe { syscall3(libc::SYS_close, self.0 as usize, 0, 0) };
    }
}

/// Opens `path` with `flags` (`O_CLOEXEC` is added); a file made by it has mode 0600.
///
/// # Errors
/// Those of open(2).
pub fn open(path: &CStr, flags: i32) -> Result<Fd, Errno> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let here = libc::AT_FDCWD as isize as usize;
    // SAFETY: `path` is a valid C string for the length of the call.
    let number = unsafe {
        syscall5(
            libc::SYS_openat,
            here,
            path.as_ptr() as usize,
            flags,
            0o600,
            0,
        )
    }?;
    Ok(Fd(number as i32))
}

/// Reads into `buffer`; 0 is the end of the file.
///
/// # Errors
/// Those of read(2).
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most `len` bytes into the exclusively borrowed buffer.
    unsafe {
        syscall3(
            libc::SYS_read,
            fd as usize,
            buffer.as_mut_ptr() as usize,
            buffer.len(),
        )
    }
}

/// Writes from `buffer`, possibly less than all.
///
/// # Errors
/// Those of write(2).
pub fn write(fd: i32, buffer: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel only reads the borrowed buffer.
    unsafe {
        syscall3(
            libc::SYS_write,
            fd as usize,
            buffer.as_ptr() as usize,
            buffer.len(),
        )
    }
}

/// Reads from byte `offset` on; 0 is the end of the file.
///
/// # Errors
/// Those of pread(2).
pub fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let (at, len) = (buffer.as_mut_ptr() as usize, buffer.len());
    // SAFETY: the kernel writes at most `len` bytes into the exclusively borrowed buffer.
    unsafe { syscall5(libc::SYS_pread64, fd as usize, at, len, offset as usize, 0) }
}

/// As [`pread`], until the buffer is full or no more can be read; a signal interrupts nothing.
///
/// # Errors
/// Those of pread(2) but `EINTR`, when nothing was read.
pub fn pread_whole(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match pread(fd, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(Errno::EINTR) => {}
            Err(error) if filled == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(filled)
}

/// Writes from byte `offset` on, possibly less than all.
///
/// # Errors
/// Those of pwrite(2).
pub fn pwrite(fd: i32, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
    let (at, len) = (buffer.as_ptr() as usize, buffer.len());
    // SAFETY: the kernel only reads the borrowed buffer.
    unsafe { syscall5(libc::SYS_pwrite64, fd as usize, at, len, offset as usize, 0) }
}

/// Makes the file `bytes` long.
///
/// # Errors
/// Those of ftruncate(2).
pub fn set_len(fd: i32, bytes: u64) -> Result<(), Errno> {
    // SAFETY: takes numbers only; whoever maps the file shorter than it was answers for that mapping.
    unsafe { syscall3(libc::SYS_ftruncate, fd as usize, bytes as usize, 0) }.map(drop)
}

/// Length of the file in bytes.
///
/// # Errors
/// Those of fstat(2).
pub fn len(fd: i32) -> Result<u64, Errno> {
    Ok(status(fd)?.st_size as u64)
}

/// Whether a regular file, such as a memfd, is behind `fd`.
///
/// # Errors
/// Those of fstat(2).
pub fn is_regular(fd: i32) -> Result<bool, Errno> {
    Ok(status(fd)?.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Whether a socket is behind `fd`.
///
/// # Errors
/// Those of fstat(2).
pub(crate) fn is_socket(fd: i32) -> Result<bool, Errno> {
    Ok(status(fd)?.st_mode & libc::S_IFMT == libc::S_IFSOCK)
}

/// Whether both descriptors came from one open(2), as dup(2) makes them. False where the kernel cannot tell (before Linux 6.10).
pub(crate) fn is_same_opened(one: i32, other: i32) -> bool {
    /// `F_LINUX_SPECIFIC_BASE` + 3 (include/uapi/linux/fcntl.h).
    const F_DUPFD_QUERY: usize = 1027;
    // SAFETY: takes numbers only.
    let answer = unsafe { syscall3(libc::SYS_fcntl, one as usize, F_DUPFD_QUERY, other as usize) };
    answer == Ok(1)
}

/// The major and minor number of the character device behind `fd`; `None` where another file is.
///
/// # Errors
/// Those of fstat(2).
pub fn character_device(fd: i32) -> Result<Option<(u32, u32)>, Errno> {
    let status = status(fd)?;
    let is_one = status.st_mode & libc::S_IFMT == libc::S_IFCHR;
    Ok(is_one.then(|| (libc::major(status.st_rdev), libc::minor(status.st_rdev))))
}

/// The flags that the file behind `fd` was opened with.
///
/// # Errors
/// Those of fcntl(2).
pub fn open_flags(fd: i32) -> Result<i32, Errno> {
    // SAFETY: takes numbers only.
    let flags = unsafe { syscall3(libc::SYS_fcntl, fd as usize, libc::F_GETFL as usize, 0) }?;
    Ok(flags as i32)
}

/// Flags of descriptor `fd` itself: `FD_CLOEXEC`.
///
/// # Errors
/// Those of fcntl(2).
pub fn flags(fd: i32) -> Result<i32, Errno> {
    // SAFETY: takes numbers only.
    let flags = unsafe { syscall3(libc::SYS_fcntl, fd as usize, libc::F_GETFD as usize, 0) }?;
    Ok(flags as i32)
}

/// What tells a file from all others: its file system's device and its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// `st_dev` of fstat(2).
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// Which file is behind `fd`.
///
/// # Errors
/// Those of fstat(2).
pub fn identity(fd: i32) -> Result<Identity, Errno> {
    let status = status(fd)?;
    Ok(Identity {
        device: status.st_dev,
        inode: status.st_ino,
    })
}

/// The number of the inode behind `fd`.
///
/// # Errors
/// Those of fstat(2).
pub fn inode(fd: i32) -> Result<u64, Errno> {
    Ok(status(fd)?.st_ino)
}

/// Names of the file; of a directory, two and those in it that are directories (`st_nlink`).
///
/// # Errors
/// Those of fstat(2).
pub fn links(fd: i32) -> Result<u64, Errno> {
    Ok(status(fd)?.st_nlink)
}

/// Bytes of RAM or disk that the file takes, holes left out.
///
/// # Errors
/// Those of fstat(2).
pub fn allocated(fd: i32) -> Result<u64, Errno> {
    /// What `st_blocks` counts in (stat(3type)).
    const UNIT: u64 = 512;
    Ok(status(fd)?.st_blocks as u64 * UNIT)
}

/// Makes a hole of `bytes` bytes from `offset` on: what was there is gone, from every mapping too, and reads as zeroes.
///
/// # Errors
/// Those of fallocate(2).
pub fn punch(fd: i32, offset: u64, bytes: u64) -> Result<(), Errno> {
    allocate_by(
        fd,
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        offset,
        bytes,
    )
}

/// Fills the holes of `bytes` bytes from `offset` on with zeroes; what is there stays.
///
/// # Errors
/// Those of fallocate(2): of a memory file, `ENOMEM` and `ENOSPC` where there is no RAM.
pub fn allocate(fd: i32, offset: u64, bytes: u64) -> Result<(), Errno> {
    allocate_by(fd, 0, offset, bytes)
}

fn allocate_by(fd: i32, mode: i32, offset: u64, bytes: u64) -> Result<(), Errno> {
    let (fd, mode, offset) = (fd as usize, mode as usize, offset as usize);
    // SAFETY: takes numbers only; what a mapping of the file loses by a hole reads as zeroes.
    unsafe { syscall5(libc::SYS_fallocate, fd, mode, offset, bytes as usize, 0) }.map(drop)
}

/// Another descriptor of the same open file.
///
/// # Errors
/// Those of fcntl(2).
pub fn copy(fd: i32) -> Result<Fd, Errno> {
    let command = libc::F_DUPFD_CLOEXEC as usize;
    // SAFETY: takes numbers only.
    let number = unsafe { syscall3(libc::SYS_fcntl, fd as usize, command, 0) }?;
    Ok(Fd(number as i32))
}

/// What descriptor `fd` of this process refers to, as /proc names it; returns the length, at most that of `out`.
///
/// # Errors
/// Those of readlink(2).
pub fn link_of(fd: i32, out: &mut [u8]) -> Result<usize, Errno> {
    let mut path = [0u8; 32];
    numbered(&mut path, b"/proc/thread-self/fd/", fd as u32, b"\0");
    let (at, to) = (path.as_ptr() as usize, out.as_mut_ptr() as usize);
    // SAFETY: the path ends with a zero byte; the kernel writes at most `len` bytes into the borrowed buffer.
    unsafe { syscall3(libc::SYS_readlink, at, to, out.len()) }
}

pub(crate) fn status(fd: i32) -> Result<libc::stat, Errno> {
    // SAFETY: all-zero is a valid `stat`.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: on x86-64 the kernel's structure for this call is libc's `stat`, and it is writable.
    unsafe { syscall3(libc::SYS_fstat, fd as usize, (&raw mut stat) as usize, 0) }?;
    Ok(stat)
}

/// Writes `before`, `number` in decimal and `after` into `out`, which is zero and has room for them.
pub(crate) fn numbered<const N: usize>(
    out: &mut [u8; N],
    before: &[u8],
    mut number: u32,
    after: &[u8],
) {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let end = before.len() + digits;
    out[..before.len()].copy_from_slice(before);
    for place in out[before.len()..end].iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out[end..end + after.len()].copy_from_slice(after);
}

/// A new eventfd holding 0, non-blocking: written to in order to end somebody's [`poll`].
///
/// # Errors
/// Those of eventfd(2).
pub fn eventfd() -> Result<Fd, Errno> {
    let flags = (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as usize;
    // SAFETY: takes numbers only.
    let number = unsafe { syscall3(libc::SYS_eventfd2, 0, flags, 0) }?;
    Ok(Fd(number as i32))
}

/// One descriptor to wait for (`struct pollfd`).
pub use libc::pollfd as PollFd;

/// To be asked in `PollFd::events`: data to read, or a message.
pub const READABLE: i16 = libc::POLLIN;

/// Waits until one of `fds` is ready for what its `events` names, or until `timeout` has passed
/// (`None`: for ever; zero: not at all). Returns how many are ready, and sets their `revents`.
///
/// # Errors
/// Those of ppoll(2).
pub fn poll(fds: &mut [PollFd], timeout: Option<Nanos>) -> Result<usize, Errno> {
    let mut span = clock::timespec(timeout.unwrap_or(Nanos(0)));
    let span_at = if timeout.is_some() {
        (&raw mut span) as usize
    } else {
        0
    };
    let (at, count) = (fds.as_mut_ptr() as usize, fds.len());
    // SAFETY: `fds` is exclusively borrowed, `span` outlives the call, the signal mask is absent.
    unsafe { syscall6(libc::SYS_ppoll, at, count, span_at, 0, 0, 0) }
}

/// Closes every descriptor of the calling thread's table except those in `keep` (at most 32, any order).
///
/// Meant for a thread with a table of its own: it must not hold open what the program closes, or the
/// program's pipes never see their end. Values of type [`Fd`] for closed numbers must be forgotten.
///
/// # Errors
/// `E2BIG` when `keep` is too long.
pub fn close_all_except(keep: &[i32]) -> Result<(), Errno> {
    let mut sorted = [0u32; 32];
    let sorted = sorted.get_mut(..keep.len()).ok_or(Errno::E2BIG)?;
    for (place, &number) in sorted.iter_mut().zip(keep) {
        *place = number as u32;
    }
    sorted.sort_unstable();
    let mut next = 0u32;
    for &kept in sorted.iter() {
        if kept > next {
            close_range(next, kept - 1)?;
        }
        next = kept.saturating_add(1);
    }
    close_range(next, u32::MAX)
}

/// Closes the descriptors `first..=last`.
fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: closing descriptors touches no memory.
    match unsafe { syscall3(libc::SYS_close_range, first as usize, last as usize, 0) } {
        // Before Linux 5.9: one by one, up to the most that the table can hold by default.
        Err(Errno::ENOSYS) => {
            for number in first..=last.min(1 << 16) {
                drop(Fd(number as i32));
            }
            Ok(())
        }
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_decimal_digits() {
        for (number, path) in [
            (0, &b"<0>\0"[..]),
            (1_000, b"<1000>\0"),
            (u32::MAX, b"<4294967295>\0"),
        ] {
            let mut out = [0; 16];
            numbered(&mut out, b"<", number, b">");
            assert!(out.starts_with(path), "{number}");
        }
    }

    #[test]
    fn poll_sees_an_eventfd_and_a_timeout() {
        let event = eventfd().unwrap();
        let mut fds = [PollFd {
            fd: event.number(),
            events: READABLE,
            revents: 0,
        }];
        assert_eq!(poll(&mut fds, Some(Nanos(0))), Ok(0));
        assert_eq!(write(event.number(), &1u64.to_ne_bytes()), Ok(8));
        assert_eq!(poll(&mut fds, None), Ok(1));
        assert_eq!(fds[0].revents, READABLE);
    }
}
