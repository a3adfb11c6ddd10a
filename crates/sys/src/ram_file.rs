//! Files of RAM that have no name: memfds, and what was made on tmpfs and unlinked.
//!
//! Such a file is *kept* where somebody pages it (`outpage_engine::home`). Then a part of it that is out is a hole, which a descriptor reads as zeroes. So
//! whoever has a descriptor must be able to tell, whatever way it came by. Locks of single bytes say what is true (`F_OFD_SETLK` of fcntl(2)), for the kernel
//! takes them back with the last descriptor of whoever took them:
//!
//! - that it is kept, by who keeps it;
//! - that it is open, by each open file description (open(2)) that it was mapped by: where nobody holds that any more, nobody has it mapped or could;
//! - that it may be mapped unseen, by each that it was mapped by where it was not kept: it must not be kept then, for such a mapping is registered nowhere.
//!
//! A kept file has its sticky bit set besides. Who keeps a file sets it and looks for the last of these locks then, and who takes that lock looks for the bit: one of the two sees the
//! other. The bit has no meaning for files otherwise (inode(7)) and which writing, holes and new pages leave as it is: fstat(2) tells it,
//! and with it that the locks are worth a look. Set-user-ID, by contrast, a hole takes away (`file_remove_privs`, Linux 6.18).

use crate::fd::{self, Fd};
use crate::raw::{Errno, syscall3, syscall5};
use crate::{proc, shared};

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

    /// Whether it may be kept, as far as the sticky bit tells.
    #[must_use]
    pub const fn is_marked(&self) -> bool {
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
        let may_be = !self.named && !self.has_memory && !self.is_marked();
        may_be
            && seals(fd) == Ok(libc::F_SEAL_SEAL)
            && room(fd).is_some_and(|room| room >= self.bytes)
    }

    /// Sets the sticky bit, or takes it back.
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

/// Where the locked bytes begin: no file is so long, and who locks a file whole locks them too (`OFFSET_MAX` of include/linux/fs.h less a few).
const LOCKS: u64 = i64::MAX as u64 - 8;
const KEPT: u64 = LOCKS;
const OPEN: u64 = LOCKS + 1;
const UNSEEN: u64 = LOCKS + 2;

/// Says that the file is kept by this open file description, which whoever uses the file does not have. False where another one keeps it, or has the file locked whole.
///
/// # Errors
/// Those of fcntl(2).
pub fn keep(fd: i32) -> Result<bool, Errno> {
    shared::lock_byte(fd, KEPT)
}

/// Whether somebody keeps the file. One that cannot be asked is not kept.
#[must_use]
pub fn is_kept(fd: i32) -> bool {
    shared::is_locked_alone(fd, KEPT) == Ok(true)
}

/// Says that it may be mapped by this open file description as long as that is open. False where somebody has the file locked whole.
///
/// # Errors
/// Those of fcntl(2).
pub fn note_open(fd: i32) -> Result<bool, Errno> {
    shared::share_byte(fd, OPEN)
}

/// Whether an open file description is open that [`note_open`] was told of, or a mapping by it there, or somebody has the file locked whole.
///
/// # Errors
/// Those of fcntl(2).
pub fn is_open(fd: i32) -> Result<bool, Errno> {
    shared::is_locked(fd, OPEN)
}

/// Says that it may be mapped unseen, and is not to be kept as long as this open file description, or a mapping by it, is there. A file that has a name may be somebody's
/// to lock, and one that is locked cannot be: it is given a page of memory instead if it has none, and what may be kept has none. Files of other file systems stay as they are.
pub fn never_keep(fd: i32, found: &RamFile) {
    if room(fd).is_none() {
        return;
    }
    let is_said = !found.named && shared::share_byte(fd, UNSEEN) == Ok(true);
    if !is_said && !found.has_memory {
        give_page(fd);
    }
}

/// Whether it may be mapped unseen, as far as locks tell. What cannot be asked may be.
#[must_use]
pub fn may_be_unseen(fd: i32) -> bool {
    shared::is_locked(fd, UNSEEN) != Ok(false)
}

fn give_page(fd: i32) {
    let give = |fd: i32| {
        let (fd, mode) = (fd as usize, libc::FALLOC_FL_KEEP_SIZE as usize);
        // SAFETY: takes numbers only, and changes no byte of the file.
        unsafe { syscall5(libc::SYS_fallocate, fd, mode, 0, 1, 0) }
    };
    // Who has it open to read alone may write to it by another descriptor, as a rule.
    if give(fd) == Err(Errno::EBADF)
        && let Ok(again) = writable(fd)
    {
        let _ = give(again.number());
    }
}

fn seals(fd: i32) -> Result<i32, Errno> {
    let command = libc::F_GET_SEALS as usize;
    // SAFETY: takes numbers only.
    let seals = unsafe { syscall3(libc::SYS_fcntl, fd as usize, command, 0) }?;
    Ok(seals as i32)
}

/// Whether the tmpfs has a limit of its own where the file lies. That of memfds says that it has no blocks, and has none.
#[must_use]
pub fn is_limited(fd: i32) -> bool {
    room(fd).is_some_and(|room| room < u64::MAX)
}

/// Bytes that the tmpfs has room for where the file lies, `u64::MAX` without a limit; `None` for other file systems.
fn room(fd: i32) -> Option<u64> {
    // SAFETY: an all-zero `statfs` is a valid value.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: on x86-64 the kernel's structure for this call is libc's, and it is writable.
    unsafe { syscall3(libc::SYS_fstatfs, fd as usize, (&raw mut stat) as usize, 0) }.ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_bsize as u64);
    let room = if stat.f_blocks == 0 { u64::MAX } else { free };
    (stat.f_type == libc::TMPFS_MAGIC).then_some(room)
}

/// Another open file description of the file behind `fd`, to read and write.
///
/// # Errors
/// Those of open(2).
pub fn writable(fd: i32) -> Result<Fd, Errno> {
    proc::reopen(fd, libc::O_RDWR)
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
        assert!(found.is_marked() && found.has_memory && !found.may_be_kept(fd));
        found.mark(fd, false).expect("its owner");
        assert!(!RamFile::behind(fd).expect("one").is_marked());
        map::munmap(at, 8192).expect("unmapped");
    }

    #[test]
    fn what_is_open_and_kept_and_unseen_is_told_by_locks() {
        let file = memfd(8192);
        let own = writable(file.number()).expect("opened");
        assert_eq!(keep(own.number()), Ok(true));
        assert!(is_kept(file.number()) && !may_be_unseen(own.number()));
        assert_eq!(is_open(own.number()), Ok(false));
        let read = proc::reopen(file.number(), libc::O_RDONLY).expect("opened");
        for opened in [file.number(), read.number()] {
            assert_eq!(note_open(opened), Ok(true));
        }
        let found = RamFile::behind(file.number()).expect("one");
        never_keep(read.number(), &found);
        assert!(may_be_unseen(own.number()));
        drop(file);
        assert_eq!(is_open(own.number()), Ok(true));
        // A mapping holds it as well as a descriptor.
        let at = map::mmap(0, 4096, libc::PROT_READ, libc::MAP_SHARED, read.number(), 0);
        drop(read);
        assert_eq!(is_open(own.number()), Ok(true));
        map::munmap(at.expect("a mapping"), 4096).expect("unmapped");
        assert_eq!(is_open(own.number()), Ok(false));
        assert!(!may_be_unseen(own.number()));
        let other = writable(own.number()).expect("opened");
        drop(own);
        assert!(!is_kept(other.number()));
    }

    #[test]
    fn one_with_a_name_has_a_page_in_place_of_a_lock() {
        let path = c"/dev/shm/outpage-test-of-names";
        let named = fd::open(path, libc::O_RDWR | libc::O_CREAT).expect("a file");
        let read = fd::open(path, libc::O_RDONLY).expect("a file");
        fd::set_len(named.number(), 8192).expect("a length");
        never_keep(read.number(), &RamFile::behind(read.number()).expect("one"));
        std::fs::remove_file(path.to_str().expect("a path")).expect("removed");
        let found = RamFile::behind(named.number()).expect("one");
        assert!(found.has_memory && !found.may_be_kept(named.number()));
        let other = writable(named.number()).expect("opened");
        assert!(!may_be_unseen(other.number()) && found.bytes == 8192);
    }
}
