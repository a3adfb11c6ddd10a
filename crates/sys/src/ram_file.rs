//! Files of RAM that have no name: memfds, and what was made on tmpfs and unlinked.
//!
//! Such a file is *kept* where somebody pages it (`outpage_engine::home`). Then a part of it that is out is a hole, which a descriptor reads as zeroes. So
//! whoever has a descriptor must be able to tell, whatever way it came by: the file's sticky bit says it, which has no meaning for files otherwise (inode(7)) and
//! which writing, holes and new pages leave as it is. Set-user-ID, by contrast, a hole takes away (`file_remove_privs`, Linux 6.18).
//!
//! A file that somebody may have mapped unseen is never to be kept. It is given a page of memory, and what may be kept has none.

use crate::fd::{self, Fd};
use crate::raw::{Errno, syscall3, syscall5};

/// Which file it is, in a number: the device's minor number and the inode's. Devices of such files have major number 0.
#[must_use]
pub const fn id(minor: u32, inode: u64) -> u64 {
    /// A choice: device numbers have 20 bits (include/linux/kdev_t.h), and inodes count from 1 as files are made.
    const INODE_BITS: u32 = 44;
    (minor as u64) << INODE_BITS ^ inode
}

/// What fstat(2) says of a file that may be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RamFile {
    /// [`id`].
    pub id: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Some of it has memory.
    pub has_memory: bool,
    named: bool,
    mode: u32,
}

impl RamFile {
    /// The file behind `fd`; `None` where another one is, or none. Files of some other file systems look like it: [`Self::may_be_kept`] tells.
    #[must_use]
    pub fn behind(fd: i32) -> Option<Self> {
        Self::of(&fd::status(fd).ok()?)
    }

    /// The same, of what fstat(2) said.
    #[must_use]
    pub fn of(stat: &libc::stat) -> Option<Self> {
        let is_one = stat.st_mode & libc::S_IFMT == libc::S_IFREG && libc::major(stat.st_dev) == 0;
        is_one.then(|| Self {
            id: id(libc::minor(stat.st_dev), stat.st_ino),
            bytes: stat.st_size as u64,
            has_memory: stat.st_blocks != 0,
            named: stat.st_nlink != 0,
            mode: stat.st_mode & 0o7777,
        })
    }

    /// Whether it is kept, as far as the file says.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.mode & libc::S_ISVTX != 0
    }

    /// Whether it has a name.
    #[must_use]
    pub const fn has_name(&self) -> bool {
        self.named
    }

    /// Whether it can be: it has neither a name nor memory yet, lies on tmpfs, and nobody can seal it, for a file that is sealed against writing gets no holes.
    #[must_use]
    pub fn may_be_kept(&self, fd: i32) -> bool {
        let may_be = !self.named && !self.has_memory && !self.is_kept();
        may_be
            && seals(fd) == Ok(libc::F_SEAL_SEAL)
            && room(fd).is_some_and(|room| room >= self.bytes)
    }

    /// Says in the file whether it is kept.
    ///
    /// # Errors
    /// Those of fchmod(2).
    pub fn mark(&self, fd: i32, kept: bool) -> Result<(), Errno> {
        let mode = self.mode & !libc::S_ISVTX;
        set_mode(fd, if kept { mode | libc::S_ISVTX } else { mode })
    }
}

/// fchmod(2).
///
/// # Errors
/// Those of fchmod(2).
pub fn set_mode(fd: i32, mode: u32) -> Result<(), Errno> {
    // SAFETY: takes numbers only.
    unsafe { syscall3(libc::SYS_fchmod, fd as usize, mode as usize, 0) }.map(drop)
}

/// Gives the file behind `fd` a page of memory, so that it is never kept. One that refuses it, being sealed or not to be written, or that does not lie on tmpfs,
/// stays as it is.
pub fn never_keep(fd: i32) {
    if room(fd).is_none() {
        return;
    }
    let (fd, mode) = (fd as usize, libc::FALLOC_FL_KEEP_SIZE as usize);
    // SAFETY: takes numbers only, and changes no byte of the file.
    let _ = unsafe { syscall5(libc::SYS_fallocate, fd, mode, 0, 1, 0) };
}

fn seals(fd: i32) -> Result<i32, Errno> {
    let command = libc::F_GET_SEALS as usize;
    // SAFETY: takes numbers only.
    let seals = unsafe { syscall3(libc::SYS_fcntl, fd as usize, command, 0) }?;
    Ok(seals as i32)
}

/// Bytes that the tmpfs has room for where the file lies; `None` for other file systems.
fn room(fd: i32) -> Option<u64> {
    // SAFETY: an all-zero `statfs` is a valid value.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: on x86-64 the kernel's structure for this call is libc's, and it is writable.
    unsafe { syscall3(libc::SYS_fstatfs, fd as usize, (&raw mut stat) as usize, 0) }.ok()?;
    if stat.f_type != libc::TMPFS_MAGIC {
        return None;
    }
    // That of memfds says that it has no blocks, and has no limit.
    let free = stat.f_bavail.saturating_mul(stat.f_bsize as u64);
    Some(if stat.f_blocks == 0 { u64::MAX } else { free })
}

/// The same file, to read and write.
///
/// # Errors
/// Those of open(2).
pub fn writable(file: Fd) -> Result<Fd, Errno> {
    let flags = fd::open_flags(file.number())?;
    if flags & libc::O_ACCMODE == libc::O_RDWR && flags & libc::O_PATH == 0 {
        return Ok(file);
    }
    fd::open_again(file.number(), libc::O_RDWR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map;

    fn memfd(bytes: u64) -> Fd {
        let (name, flags) = (c"test", libc::MFD_CLOEXEC as usize);
        // SAFETY: `name` is a valid C string.
        let number = unsafe { syscall3(libc::SYS_memfd_create, name.as_ptr() as usize, flags, 0) };
        let file = Fd::adopt(number.expect("a memfd") as i32);
        fd::set_len(file.number(), bytes).expect("a length");
        file
    }

    #[test]
    fn only_a_file_of_ram_without_a_name_may_be_kept() {
        let file = memfd(8192);
        let found = RamFile::behind(file.number()).expect("one");
        assert_eq!((found.bytes, found.has_memory), (8192, false));
        assert!(found.may_be_kept(file.number()));
        let null = fd::open(c"/dev/null", libc::O_RDWR).expect("a device");
        for other in [null.number(), -1] {
            assert_eq!(RamFile::behind(other), None);
        }
        let program = fd::open(c"/proc/self/exe", libc::O_RDONLY).expect("a program");
        let found = RamFile::behind(program.number());
        assert!(found.is_none_or(|found| !found.may_be_kept(program.number())));
        let path = c"/dev/shm/outpage-test-of-ram-files";
        let named = fd::open(path, libc::O_RDWR | libc::O_CREAT).expect("a file");
        let may_be = |fd| RamFile::behind(fd).is_some_and(|found| found.may_be_kept(fd));
        assert!(!may_be(named.number()));
        std::fs::remove_file(path.to_str().expect("a path")).expect("removed");
        assert!(may_be(named.number()));
        let sealable = crate::shared::create(c"test", 8192).expect("a file");
        let found = RamFile::behind(sealable.number()).expect("one");
        assert!(!found.may_be_kept(sealable.number()));
    }

    #[test]
    fn the_mark_outlasts_writing_and_holes() {
        let file = memfd(8192);
        let fd = file.number();
        let found = RamFile::behind(fd).expect("one");
        found.mark(fd, true).expect("its owner");
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = map::mmap(0, 8192, prot, libc::MAP_SHARED, fd, 0).expect("a mapping");
        map::populate(at, 8192).expect("pages");
        map::madvise(at, 4096, libc::MADV_REMOVE).expect("a hole");
        fd::pwrite(fd, b"x", 0).expect("written");
        fd::punch(fd, 0, 4096).expect("a hole");
        let found = RamFile::behind(fd).expect("one");
        assert!(found.is_kept() && found.has_memory && !found.may_be_kept(fd));
        found.mark(fd, false).expect("its owner");
        assert!(!RamFile::behind(fd).expect("one").is_kept());
        map::munmap(at, 8192).expect("unmapped");
    }

    #[test]
    fn a_page_keeps_it_from_being_kept() {
        let file = memfd(8192);
        never_keep(file.number());
        let found = RamFile::behind(file.number()).expect("one");
        assert!(found.has_memory && !found.may_be_kept(file.number()));
        assert_eq!(found.bytes, 8192);
    }

    #[test]
    fn one_that_is_read_only_is_opened_again() {
        let file = memfd(4096);
        let read = fd::open_again(file.number(), libc::O_RDONLY).expect("opened");
        assert!(fd::pwrite(read.number(), b"x", 0).is_err());
        let both = writable(read).expect("opened");
        assert_eq!(fd::pwrite(both.number(), b"x", 0), Ok(1));
        assert_eq!(fd::identity(both.number()), fd::identity(file.number()));
    }
}
