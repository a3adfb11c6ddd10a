//! Mappings: the memory calls without their libc wrappers, and areas of the pager's own.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::AtomicU32;

use outpage_core::units::PAGE_BYTES;

use crate::fd::{self, Fd};
use crate::own::{self, Fork};
use crate::proc;
use crate::raw::{Errno, syscall3, syscall5, syscall6};

/// `prctl` option and sub-option that name an anonymous mapping (include/uapi/linux/prctl.h, Linux 5.17).
const PR_SET_VMA: usize = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: usize = 0;

/// Makes a range one huge page now (include/uapi/asm-generic/mman-common.h, Linux 6.1).
const MADV_COLLAPSE: i32 = 25;

/// The size of a huge page: what an entry of the second-lowest level of page tables maps on x86-64.
pub const HUGE_BYTES: usize = 2 << 20;

/// The name that the pager's own mappings bear in /proc/self/maps, as `[anon:outpage]`.
pub const OWN_NAME: &CStr = c"outpage";

/// mmap(2): `len` bytes; returns the address. Offsets are in bytes.
///
/// # Errors
/// Those of mmap(2).
pub fn mmap(
    address: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Result<usize, Errno> {
    let (prot, flags, fd) = (prot as usize, flags as usize, fd as isize as usize);
    // SAFETY: the crate's rule on addresses: a fixed address is the caller's to overwrite.
    unsafe {
        syscall6(
            libc::SYS_mmap,
            address,
            len,
            prot,
            flags,
            fd,
            offset as usize,
        )
    }
}

/// munmap(2).
///
/// # Errors
/// Those of munmap(2); `ENOMEM` when a split would exceed vm.max_map_count.
pub fn munmap(address: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the crate's rule on addresses.
    unsafe { syscall3(libc::SYS_munmap, address, len, 0) }.map(drop)
}

/// mremap(2); `new_address` counts only with `MREMAP_FIXED` or as a hint with `MREMAP_DONTUNMAP`.
///
/// # Errors
/// Those of mremap(2).
pub fn mremap(
    address: usize,
    old_len: usize,
    new_len: usize,
    flags: i32,
    new_address: usize,
) -> Result<usize, Errno> {
    // SAFETY: the crate's rule on addresses.
    unsafe {
        syscall5(
            libc::SYS_mremap,
            address,
            old_len,
            new_len,
            flags as usize,
            new_address,
        )
    }
}

/// madvise(2).
///
/// # Errors
/// Those of madvise(2).
pub fn madvise(address: usize, len: usize, advice: i32) -> Result<(), Errno> {
    // SAFETY: the crate's rule on addresses.
    unsafe { syscall3(libc::SYS_madvise, address, len, advice as usize) }.map(drop)
}

/// mprotect(2).
///
/// # Errors
/// Those of mprotect(2).
pub fn mprotect(address: usize, len: usize, prot: i32) -> Result<(), Errno> {
    // SAFETY: the crate's rule on addresses.
    unsafe { syscall3(libc::SYS_mprotect, address, len, prot as usize) }.map(drop)
}

/// mlock2(2); `on_fault` locks pages only as they come in.
///
/// # Errors
/// Those of mlock2(2).
pub fn mlock(address: usize, len: usize, on_fault: bool) -> Result<(), Errno> {
    // SAFETY: locking changes no content.
    unsafe { syscall3(libc::SYS_mlock2, address, len, usize::from(on_fault)) }.map(drop)
}

/// munlock(2).
///
/// # Errors
/// Those of munlock(2).
pub fn munlock(address: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: unlocking changes no content.
    unsafe { syscall3(libc::SYS_munlock, address, len, 0) }.map(drop)
}

/// brk as the kernel has it: the new end of the data segment, which is the old one when `end` was refused.
#[must_use]
pub fn brk(end: usize) -> usize {
    // SAFETY: the crate's rule on addresses.
    unsafe { syscall3(libc::SYS_brk, end, 0, 0) }.unwrap_or(0)
}

/// Throws away the frames of a range (`MADV_DONTNEED`): private anonymous pages read as zero afterwards.
///
/// # Errors
/// Those of madvise(2); `EINVAL` on locked memory.
pub fn release(address: usize, len: usize) -> Result<(), Errno> {
    madvise(address, len, libc::MADV_DONTNEED)
}

/// Gives every page of a range a frame of its own, as a write would (`MADV_POPULATE_WRITE`, Linux 5.14).
///
/// # Errors
/// Those of madvise(2).
pub fn populate(address: usize, len: usize) -> Result<(), Errno> {
    madvise(address, len, libc::MADV_POPULATE_WRITE)
}

/// Keeps transparent huge pages out of a range (`MADV_NOHUGEPAGE`). A kernel without them is fine too.
///
/// # Errors
/// Those of madvise(2) except `EINVAL`.
pub fn no_huge_pages(address: usize, len: usize) -> Result<(), Errno> {
    match madvise(address, len, libc::MADV_NOHUGEPAGE) {
        Err(Errno::EINVAL) => Ok(()),
        other => other,
    }
}

/// Leaves a hole in a forked child instead of a range (`MADV_DONTFORK`).
///
/// # Errors
/// Those of madvise(2).
pub fn not_in_children(address: usize, len: usize) -> Result<(), Errno> {
    madvise(address, len, libc::MADV_DONTFORK)
}

/// Address space without frames or access, page-aligned; [`mprotect`] makes parts of it usable.
///
/// # Errors
/// Those of mmap(2).
pub fn reserve(len: usize) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    mmap(0, len, libc::PROT_NONE, flags, -1, 0)
}

/// A readable and writable private anonymous mapping, zero-filled and without frames yet.
///
/// # Errors
/// Those of mmap(2), and where it has to be let go ([`own::locks_future`]) those of munlock(2) and mprotect(2).
pub fn anonymous(len: usize) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    if !own::is_future_locked() {
        let start = mmap(0, len, access, flags, -1, 0)?;
        // Refused where it is locked, and filled, after all: nobody told of a `mlockall` that no hook saw.
        if release(start, len) != Err(Errno::EINVAL) {
            return Ok(start);
        }
        munmap(start, len)?;
        own::locks_future(true);
    }
    // The kernel fills what it locks, but for what has no access.
    let start = mmap(0, len, libc::PROT_NONE, flags, -1, 0)?;
    // SAFETY: a fresh range that nobody else knows of.
    let opened = unlock(start, len).and_then(|()| unsafe {
        syscall3(libc::SYS_mprotect, start, len, access as usize).map(drop)
    });
    if let Err(error) = opened {
        munmap(start, len)?;
        return Err(error);
    }
    Ok(start)
}

/// Lets a range go that is locked (munlock(2)).
///
/// # Errors
/// Those of munlock(2).
pub fn unlock(address: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: changes no contents.
    unsafe { syscall3(libc::SYS_munlock, address, len, 0) }.map(drop)
}

/// Unmaps what lies between two addresses, if anything does.
fn unmap_between(start: usize, end: usize) -> Result<(), Errno> {
    if start < end {
        return munmap(start, end - start);
    }
    Ok(())
}

/// Names an anonymous range in /proc/self/maps (and so keeps it from merging with a neighbour).
///
/// # Errors
/// `EINVAL` where the kernel was built without `CONFIG_ANON_VMA_NAME`.
pub fn set_name(address: usize, len: usize, name: &CStr) -> Result<(), Errno> {
    let (option, what) = (PR_SET_VMA, PR_SET_VMA_ANON_NAME);
    // SAFETY: the kernel copies the name; the memory's content does not change.
    unsafe {
        syscall5(
            libc::SYS_prctl,
            option,
            what,
            address,
            len,
            name.as_ptr() as usize,
        )
    }
    .map(drop)
}

/// Writes to the page at `address` what it holds, in one atomic step: a page that a fork left shared
/// becomes this process's own, by a copy if anybody else still has it. Returns whether that was done.
///
/// The kernel does it (`FUTEX_WAKE_OP`, futex(2)): a page that is gone or may not be written is refused with
/// `EFAULT`, where an instruction of the caller's would fault and wait for itself.
#[must_use]
pub fn make_exclusive(address: usize) -> bool {
    /// Or with 0; the comparison, with 0 for equality, decides about a wake-up of nobody.
    const OR_NOTHING: usize = (libc::FUTEX_OP_OR as usize) << 28;
    let own = AtomicU32::new(0);
    let op = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
    let (first, word) = (own.as_ptr() as usize, address & !(size_of::<u32>() - 1));
    // SAFETY: an or with 0 changes no byte, whoever else writes; the crate's rule on addresses.
    unsafe { syscall6(libc::SYS_futex, first, op, 0, 0, word, OR_NOTHING) }.is_ok()
}

/// This process's memory as a file: reads ranges without access rights (`PROT_NONE`) too.
#[derive(Debug)]
pub struct Memory(Fd);

impl Memory {
    /// Opens /proc/self/mem.
    ///
    /// # Errors
    /// Those of open(2); `EACCES` for a process that made itself undumpable.
    pub fn open() -> Result<Self, Errno> {
        proc::open(c"thread-self/mem", libc::O_RDONLY).map(Self)
    }

    /// The descriptor, to be kept by [`fd::close_all_except`].
    #[must_use]
    pub const fn fd(&self) -> i32 {
        self.0.number()
    }

    /// Copies from `address` on; returns the bytes copied, fewer when the mapping ends.
    ///
    /// # Errors
    /// `EIO` where nothing is mapped, where a page is missing in a registered range, or where the kernel forbids access against the protection.
    pub fn read(&self, address: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
        fd::pread_whole(self.0.number(), buffer, address as u64)
    }
}

/// A private anonymous mapping of the pager's own, entered in [`own`]; without huge pages, or one of them.
///
/// It is unmapped when dropped.
#[derive(Debug)]
pub struct Area {
    start: usize,
    len: usize,
}

impl Area {
    /// Maps `len` bytes (a multiple of the page size, not zero), zero-filled and without frames yet.
    ///
    /// # Errors
    /// Those of mmap(2); `EINVAL` for a length that is not whole pages; `ENOMEM` when [`own`] is full.
    pub fn new(len: usize, fork: Fork) -> Result<Self, Errno> {
        if len == 0 || !len.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::EINVAL);
        }
        let start = anonymous(len)?;
        let area = Self { start, len };
        own::add(start, start + len, fork)?;
        no_huge_pages(start, len)?;
        if fork == Fork::ParentOnly {
            not_in_children(start, len)?;
        }
        // Only cosmetic: kernels without the feature go without.
        let _ = set_name(start, len, OWN_NAME);
        Ok(area)
    }

    /// `len` bytes that are neighbours in RAM, zero-filled: the first part of a huge page (`MADV_COLLAPSE`, Linux 6.1), of which the kernel has the rest back.
    ///
    /// # Errors
    /// Those of mmap(2) and madvise(2), where the kernel has no huge page to give; `ENOMEM` when [`own`] is full.
    ///
    /// # Panics
    /// Unless `len` is pages, and at most [`HUGE_BYTES`] of them.
    pub fn contiguous(len: usize, fork: Fork) -> Result<Self, Errno> {
        assert!(0 < len && len <= HUGE_BYTES && len.is_multiple_of(PAGE_BYTES));
        let around = anonymous(2 * HUGE_BYTES)?;
        let start = around.next_multiple_of(HUGE_BYTES);
        let end = start + HUGE_BYTES;
        unmap_between(around, start)?;
        unmap_between(end, around + 2 * HUGE_BYTES)?;
        let area = Self { start, len };
        own::add(start, start + len, fork)?;
        if fork == Fork::ParentOnly {
            not_in_children(start, HUGE_BYTES)?;
        }
        // Says nothing where huge pages are switched off: then the kernel copies single pages into one.
        let _ = madvise(start, HUGE_BYTES, libc::MADV_HUGEPAGE);
        let got =
            populate(start, HUGE_BYTES).and_then(|()| madvise(start, HUGE_BYTES, MADV_COLLAPSE));
        unmap_between(start + len, end)?;
        got?;
        if len < HUGE_BYTES {
            // The kernel splits a huge page of which a part is mapped when it looks at that (Linux 5.4, mm/madvise.c). Where it does not, the rest is
            // free once RAM is short.
            let _ = madvise(start, len, libc::MADV_COLD);
        }
        let _ = set_name(start, len, OWN_NAME);
        Ok(area)
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Never: an area has at least a page.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `len` bytes from byte `offset` on. Pages without a frame read as zero (and take one of the
    /// kernel's zero page). The caller moves, releases or reads nothing into them meanwhile.
    ///
    /// # Panics
    /// When the range leaves the area.
    #[must_use]
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        // SAFETY: inside the mapping, which lives as long as `self`; any byte is a valid u8.
        unsafe { core::slice::from_raw_parts(self.at(offset), len) }
    }

    /// As [`Self::bytes`], to be written to.
    ///
    /// # Panics
    /// When the range leaves the area.
    #[must_use]
    pub fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        self.check(offset, len);
        // SAFETY: inside the mapping, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.at(offset), len) }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.start + offset)
    }

    fn check(&self, offset: usize, len: usize) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(
            fits,
            "range {offset:#x}+{len:#x} leaves the area of {:#x} bytes",
            self.len
        );
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // Out of the table first: an address may be mapped again by anybody once it is free.
        own::remove(self.start);
        let _ = munmap(self.start, self.len);
    }
}
