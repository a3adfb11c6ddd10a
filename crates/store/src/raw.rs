//! The system calls of this crate, with error numbers as values.
//!
//! All go through `syscall(2)`: the wrappers of the C library for reading, writing and waiting are
//! cancellation points, which look into a thread descriptor that a raw thread does not have.
#![allow(unsafe_code)] // system calls

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;

use crate::{Direction, IoVec};

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

fn checked(returned: libc::c_long) -> Result<usize, i32> {
    if returned >= 0 {
        return Ok(returned as usize);
    }
    // SAFETY: the C library's errno of this thread, valid for its life.
    Err(unsafe { *libc::__errno_location() })
}

/// One vectored transfer at `offset` (bytes); returns the bytes moved or the error number.
pub(crate) fn transfer(
    fd: RawFd,
    direction: Direction,
    offset: u64,
    iovecs: &[IoVec],
) -> Result<usize, i32> {
    let call = match direction {
        Direction::PageIn => libc::SYS_preadv,
        Direction::PageOut => libc::SYS_pwritev,
    };
    // SAFETY: the slice has the layout of `struct iovec` and is made from frames of a request in
    // flight, which are valid for this. The two last arguments are the halves of the offset, of
    // which a 64-bit kernel uses the first alone.
    checked(unsafe { libc::syscall(call, fd, iovecs.as_ptr(), iovecs.len(), offset, 0_usize) })
}

/// Sleeps while `word` is `expected`. May return early.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let no_timeout = ptr::null::<libc::timespec>();
    // SAFETY: the word lives through the call; no other memory is involved.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            expected,
            no_timeout,
        )
    };
}

/// Wakes up to `sleepers` threads that sleep on `word`.
pub(crate) fn futex_wake(word: &AtomicU32, sleepers: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking does not access the memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, sleepers) };
}

/// A non-blocking eventfd at 0, closed on exec.
pub(crate) fn eventfd() -> Result<OwnedFd, i32> {
    let flags = libc::EFD_NONBLOCK | libc::EFD_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = checked(unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags) })?;
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Adds one to an eventfd, which is never near the largest number. Somebody may sleep until it is there: what the kernel puts off
/// is asked for again.
pub(crate) fn eventfd_add(fd: RawFd) {
    let one = 1_u64;
    loop {
        // SAFETY: reads 8 bytes of `one`.
        let written = unsafe { libc::syscall(libc::SYS_write, fd, &raw const one, 8_usize) };
        match checked(written) {
            Err(libc::EINTR | libc::EAGAIN) => yield_now(),
            result => return assert_eq!(result, Ok(8), "an eventfd of this crate's"),
        }
    }
}

/// The value of an eventfd, which becomes 0.
pub(crate) fn eventfd_take(fd: RawFd) -> u64 {
    let mut value = 0_u64;
    // SAFETY: writes 8 bytes to `value`. An eventfd at 0 fails with EAGAIN and writes nothing.
    unsafe { libc::syscall(libc::SYS_read, fd, &raw mut value, 8_usize) };
    value
}

/// Sleeps until `fd` is readable or `timeout_ns` nanoseconds have passed. May return early.
pub(crate) fn wait_readable(fd: RawFd, timeout_ns: u64) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut timeout = libc::timespec {
        tv_sec: (timeout_ns / SECOND_NS) as i64,
        tv_nsec: (timeout_ns % SECOND_NS) as i64,
    };
    let (poll, timeout) = (&raw mut poll, &raw mut timeout);
    let no_mask = ptr::null::<libc::sigset_t>();
    // SAFETY: both structures live through the call.
    unsafe { libc::syscall(libc::SYS_ppoll, poll, 1, timeout, no_mask, 0_usize) };
}

/// Lets other threads run.
pub(crate) fn yield_now() {
    // SAFETY: no memory is involved.
    unsafe { libc::syscall(libc::SYS_sched_yield) };
}

/// The magic number of the file system below `fd` and the bytes that an ordinary user may still
/// allocate there.
pub(crate) fn filesystem(fd: BorrowedFd<'_>) -> Result<(u32, u64), i32> {
    // SAFETY: plain numbers, for which zero is valid.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is the structure that the kernel fills on a 64-bit machine.
    checked(unsafe { libc::syscall(libc::SYS_fstatfs, fd.as_raw_fd(), &raw mut found) })?;
    let available_bytes = found.f_bavail.saturating_mul(found.f_bsize as u64);
    Ok((found.f_type as u32, available_bytes))
}

/// Makes transfers of `fd` bypass the page cache.
pub(crate) fn set_direct(fd: BorrowedFd<'_>) -> Result<(), i32> {
    let fd = fd.as_raw_fd();
    // SAFETY: no memory is involved.
    let flags = checked(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) })?;
    let flags = flags as i32 | libc::O_DIRECT;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, flags) }).map(drop)
}

/// Reserves blocks for `bytes` bytes from `offset` on; the file grows as far.
pub(crate) fn allocate(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), i32> {
    let fd = fd.as_raw_fd();
    loop {
        // SAFETY: no memory is involved.
        let result = checked(unsafe { libc::syscall(libc::SYS_fallocate, fd, 0, offset, bytes) });
        if result != Err(libc::EINTR) {
            return result.map(drop);
        }
    }
}

/// Writes zeroes to the page that has the byte before `end`: the file reaches as far then, and never less far, whoever else makes it longer meanwhile.
pub(crate) fn write_last_page(fd: BorrowedFd<'_>, end: u64) -> Result<(), i32> {
    /// Aligned as direct I/O asks for.
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    static ZEROES: Page = Page([0; 4096]);
    let page = ZEROES.0.len() as u64;
    let (fd, at) = (fd.as_raw_fd(), (end - 1) / page * page);
    loop {
        // SAFETY: reads a page that is there for good.
        let result = checked(unsafe {
            libc::syscall(
                libc::SYS_pwrite64,
                fd,
                ZEROES.0.as_ptr(),
                ZEROES.0.len(),
                at,
            )
        });
        match result {
            Err(libc::EINTR) => {}
            Ok(bytes) if bytes < ZEROES.0.len() => return Err(libc::EIO),
            result => return result.map(drop),
        }
    }
}

/// Whether the file has no block in `bytes` bytes from `offset` on, reserved ones counted too: false also where the file system does not tell.
pub(crate) fn is_hole(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> bool {
    /// `struct fiemap` of include/uapi/linux/fiemap.h without room for extents: the kernel counts them only.
    #[repr(C)]
    struct Fiemap {
        start: u64,
        length: u64,
        flags: u32,
        mapped_extents: u32,
        extent_count: u32,
        reserved: u32,
    }
    /// `FS_IOC_FIEMAP` of include/uapi/linux/fs.h: `_IOWR('f', 11, struct fiemap)`, 32 bytes.
    const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
    let mut map = Fiemap {
        start: offset,
        length: bytes,
        flags: 0,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
    };
    let (fd, at) = (fd.as_raw_fd(), &raw mut map);
    // SAFETY: the kernel reads and writes the structure, and no extents behind it, of which there is to be none.
    let asked = checked(unsafe { libc::syscall(libc::SYS_ioctl, fd, FS_IOC_FIEMAP, at) });
    asked.is_ok() && map.mapped_extents == 0
}

/// Gives back the blocks of `bytes` bytes from `offset` on; the file keeps its size.
pub(crate) fn punch(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), i32> {
    let (fd, mode) = (
        fd.as_raw_fd(),
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
    );
    loop {
        // SAFETY: no memory is involved.
        let result =
            checked(unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, offset, bytes) });
        if result != Err(libc::EINTR) {
            return result.map(drop);
        }
    }
}

/// Memory of this process alone, zero at first. What was never written, or given back since, takes no RAM.
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a box does.
unsafe impl Send for Memory {}

impl Memory {
    /// `bytes` bytes, at least one.
    pub(crate) fn new(bytes: usize) -> Result<Self, i32> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        let anywhere = ptr::null_mut::<u8>();
        // SAFETY: a new mapping, where the kernel has room for it.
        let mapped =
            unsafe { libc::syscall(libc::SYS_mmap, anywhere, bytes, access, kind, -1, 0_usize) };
        let base = ptr::with_exposed_provenance_mut(checked(mapped)?);
        let base = NonNull::new(base).ok_or(libc::ENOMEM)?;
        Ok(Self { base, bytes })
    }

    /// Gives whole pages back: they are zero afterwards.
    ///
    /// # Panics
    /// When the range is not within the memory.
    pub(crate) fn give_back(&mut self, range: std::ops::Range<usize>) {
        let pages = self[range].as_mut_ptr_range();
        let bytes = pages.end as usize - pages.start as usize;
        // SAFETY: pages of this mapping's own, to which nobody has a reference.
        let given =
            unsafe { libc::syscall(libc::SYS_madvise, pages.start, bytes, libc::MADV_DONTNEED) };
        assert_eq!(checked(given), Ok(0), "whole pages of one mapping");
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as `self` is, and written through `self` alone.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody uses any more.
        unsafe { libc::syscall(libc::SYS_munmap, self.base.as_ptr(), self.bytes) };
    }
}
