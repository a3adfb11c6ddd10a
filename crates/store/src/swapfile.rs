//! The swap file: private, without a name, past the page cache, reserved before it is used.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use outpage_core::units::{PAGE_SHIFT, SlotRange};

use crate::filesystem::{Filesystem, Verdict};
use crate::{Descriptors, Reserve, ReserveCause, ReserveError, raw};

/// Names tried for a file that cannot be made without one.
const NAMES_MAX: u32 = 100;

/// An open swap file with a cap. Its space is freed when the last descriptor is closed.
#[derive(Debug)]
pub struct SwapFile {
    fd: OwnedFd,
    origin: PathBuf,
    cap_bytes: u64,
    direct: bool,
    filesystem: Filesystem,
}

/// What [`SwapFile::preallocate`] achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Blocks are reserved: writing them cannot find the disk full (but see [`Warning::CopyOnWrite`]).
    Reserved,
    /// The file system cannot reserve. The file has its size; a full disk shows at a page-out.
    Unsupported,
}

/// What works less well than it should; the text says what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warning {
    /// The file system knows no `O_DIRECT`: pages also go through the page cache.
    Buffered(Filesystem),
    /// The file system copies on every overwrite.
    CopyOnWrite(Filesystem),
    /// What lies below an overlay cannot be seen; it may be RAM.
    Overlay,
}

/// Why there is no swap file, or no space in it.
#[derive(Debug)]
#[non_exhaustive]
pub enum SwapFileError {
    /// The directory does not exist.
    Missing(PathBuf),
    /// The path is something else than a directory.
    NotADirectory(PathBuf),
    /// No directory can have this name: too long, or a circle of symbolic links.
    BadName(PathBuf, i32),
    /// Its file system makes no files, as that of `/proc`, or it was removed meanwhile.
    NoFiles(PathBuf),
    /// The file system is mounted read-only.
    ReadOnly(PathBuf),
    /// No permission to make a file there.
    Permission(PathBuf),
    /// The directory is in RAM.
    InMemory(PathBuf, Filesystem),
    /// The directory is served by another machine or program.
    Remote(PathBuf, Filesystem),
    /// No room: a full disk or an exhausted quota.
    NoSpace {
        /// The directory.
        origin: PathBuf,
        /// Bytes asked for; 0 when the file itself could not be made.
        wanted_bytes: u64,
        /// Bytes that the file system says are available.
        available_bytes: u64,
    },
    /// The range goes past the file's cap, or past the process's file size limit.
    TooLarge {
        /// The directory.
        origin: PathBuf,
        /// End of the range in bytes.
        end_bytes: u64,
        /// The cap in bytes.
        cap_bytes: u64,
    },
    /// An inherited descriptor is no regular file open for reading and writing.
    NotAFile(PathBuf),
    /// Another failure of the named system call.
    Io {
        /// The directory.
        origin: PathBuf,
        /// The system call.
        call: &'static str,
        /// The error number.
        errno: i32,
    },
}

impl SwapFile {
    /// Makes a swap file without a name in `directory`, with room for `cap_bytes` bytes (rounded
    /// down to whole pages). Reserves nothing yet.
    ///
    /// # Errors
    /// All of [`SwapFileError`] but `TooLarge` and `NotAFile`.
    pub fn create_in(directory: &Path, cap_bytes: u64) -> Result<Self, SwapFileError> {
        let fail = |call| move |e: io::Error| SwapFileError::of_directory(directory, call, &e);
        let mut look = OpenOptions::new();
        look.read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        judge(
            directory,
            look.open(directory).map_err(fail("open"))?.as_fd(),
        )?;
        let file = match create_unnamed(directory) {
            // Not every file system makes files without a name; a kernel that does not know the
            // flag (before 3.11) takes it for an attempt to open the directory.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                create_and_unlink(directory)
            }
            other => other,
        };
        Self::new(
            file.map_err(|e| match e.raw_os_error() {
                // ENOENT, and on ext4 EPERM.
                _ if is_removed(directory) => SwapFileError::Missing(directory.to_owned()),
                Some(libc::ENOENT) => SwapFileError::NoFiles(directory.to_owned()),
                _ => fail("open")(e),
            })?
            .into(),
            directory.to_owned(),
            cap_bytes,
        )
    }

    /// Takes over a swap file that somebody else made. Turns `O_DIRECT` on, which its other
    /// descriptors see.
    ///
    /// # Errors
    /// `NotAFile`, `InMemory`, `Remote`, `Io`.
    pub fn from_fd(fd: OwnedFd, cap_bytes: u64) -> Result<Self, SwapFileError> {
        let origin = PathBuf::from(format!("inherited descriptor {}", fd.as_raw_fd()));
        let file = File::from(fd);
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => {}
            _ => return Err(SwapFileError::NotAFile(origin)),
        }
        Self::new(file.into(), origin, cap_bytes)
    }

    fn new(fd: OwnedFd, origin: PathBuf, cap_bytes: u64) -> Result<Self, SwapFileError> {
        let filesystem = judge(&origin, fd.as_fd())?;
        let direct = match raw::set_direct(fd.as_fd()) {
            Ok(()) => true,
            Err(libc::EINVAL) => false,
            Err(errno) => {
                return Err(SwapFileError::Io {
                    origin,
                    call: "fcntl",
                    errno,
                });
            }
        };
        let cap_bytes = cap_bytes >> PAGE_SHIFT << PAGE_SHIFT;
        Ok(Self {
            fd,
            origin,
            cap_bytes,
            direct,
            filesystem,
        })
    }

    /// Reserves space for the bytes `range` of the file, which grows as far; a part that is reserved
    /// already is left alone. May take milliseconds per GiB.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `Io`. What was reserved is given back: of a range of which a part was reserved before, what lies behind the end that the file had.
    pub fn preallocate(&self, range: Range<u64>) -> Result<Allocation, SwapFileError> {
        let (end_bytes, wanted_bytes) = (range.end, range.end.saturating_sub(range.start));
        self.allocate(range).map_err(|cause| {
            let origin = self.origin.clone();
            match cause {
                ReserveCause::NoSpace { available_bytes } => SwapFileError::NoSpace {
                    origin,
                    wanted_bytes,
                    available_bytes,
                },
                ReserveCause::TooLarge { cap_bytes } => SwapFileError::TooLarge {
                    origin,
                    end_bytes,
                    cap_bytes,
                },
                ReserveCause::Call { call, errno } => SwapFileError::Io {
                    origin,
                    call,
                    errno,
                },
            }
        })
    }

    /// [`Self::preallocate`] for `slots`; does not allocate.
    pub(crate) fn reserve(&self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        let start = slots.start.byte_offset();
        let end = start + (u64::from(slots.slots) << PAGE_SHIFT);
        self.allocate(start..end)
            .map_err(|cause| ReserveError { slots, cause })
    }

    /// The same file by a descriptor of its own, for another thread.
    pub(crate) fn beside(&self) -> Option<Box<dyn Reserve>> {
        let fd = self.fd.try_clone().ok()?;
        let origin = self.origin.clone();
        Some(Box::new(Self {
            fd,
            origin,
            ..*self
        }))
    }

    fn allocate(&self, range: Range<u64>) -> Result<Allocation, ReserveCause> {
        let cap_bytes = self.cap_bytes;
        if range.end > cap_bytes {
            return Err(ReserveCause::TooLarge { cap_bytes });
        }
        if range.is_empty() {
            return Ok(Allocation::Reserved);
        }
        let failed = |call| {
            move |error: io::Error| {
                let errno = error.raw_os_error().unwrap_or(0);
                ReserveCause::Call { call, errno }
            }
        };
        let file = File::from(self.fd.try_clone().map_err(failed("fcntl"))?);
        let old_bytes = file.metadata().map_err(failed("fstat"))?.len();
        // A reservation that failed before has left the file longer, and nothing in it.
        let below = range.start..range.end.min(old_bytes);
        let was_hole = !below.is_empty()
            && raw::is_hole(self.fd.as_fd(), below.start, below.end - below.start);
        let errno = match raw::allocate(self.fd.as_fd(), range.start, range.end - range.start) {
            Ok(()) => return Ok(Allocation::Reserved),
            Err(libc::EOPNOTSUPP) => {
                if range.end > old_bytes {
                    raw::write_last_page(self.fd.as_fd(), range.end).map_err(|errno| {
                        let call = "pwrite";
                        ReserveCause::Call { call, errno }
                    })?;
                }
                return Ok(Allocation::Unsupported);
            }
            Err(errno) => errno,
        };
        // Never by truncating: another process may have reserved what lies behind since.
        let start = if was_hole {
            range.start
        } else {
            range.start.max(old_bytes)
        };
        let fresh = start..range.end;
        if !fresh.is_empty() {
            let _ = raw::punch(self.fd.as_fd(), fresh.start, fresh.end - fresh.start);
        }
        Err(match errno {
            libc::ENOSPC | libc::EDQUOT => ReserveCause::NoSpace {
                available_bytes: raw::filesystem(self.fd.as_fd()).map_or(0, |(_, bytes)| bytes),
            },
            libc::EFBIG => ReserveCause::TooLarge { cap_bytes },
            errno => ReserveCause::Call {
                call: "fallocate",
                errno,
            },
        })
    }

    /// Bytes that the file system could still give.
    ///
    /// # Errors
    /// `Io`.
    pub fn available_bytes(&self) -> Result<u64, SwapFileError> {
        match raw::filesystem(self.fd.as_fd()) {
            Ok((_, available_bytes)) => Ok(available_bytes),
            Err(errno) => Err(SwapFileError::Io {
                origin: self.origin.clone(),
                call: "fstatfs",
                errno,
            }),
        }
    }

    /// The cap in bytes, a multiple of the page size.
    #[must_use]
    pub const fn cap_bytes(&self) -> u64 {
        self.cap_bytes
    }

    /// Slots below the cap.
    #[must_use]
    pub fn capacity_slots(&self) -> u32 {
        // The highest number stands for "no slot".
        u32::try_from(self.cap_bytes >> PAGE_SHIFT)
            .unwrap_or(u32::MAX)
            .min(u32::MAX - 1)
    }

    /// Whether transfers bypass the page cache (`O_DIRECT`).
    #[must_use]
    pub const fn direct(&self) -> bool {
        self.direct
    }

    /// What the file lies on.
    #[must_use]
    pub const fn filesystem(&self) -> Filesystem {
        self.filesystem
    }

    /// The directory, or a phrase that names the inherited descriptor.
    #[must_use]
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// What the user should know before paging to this file.
    pub fn warnings(&self) -> impl Iterator<Item = Warning> {
        let below = match self.filesystem.verdict() {
            Verdict::CopyOnWrite => Some(Warning::CopyOnWrite(self.filesystem)),
            Verdict::Hidden => Some(Warning::Overlay),
            Verdict::Fine | Verdict::InMemory | Verdict::Remote => None,
        };
        let buffered = (!self.direct).then_some(Warning::Buffered(self.filesystem));
        below.into_iter().chain(buffered)
    }

    /// The same file by a descriptor of its own.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            origin: self.origin.clone(),
            ..*self
        })
    }

    /// Follows a fork: the descriptor stays, or is forgotten for another one.
    pub(crate) fn follow_fork(&mut self, descriptors: Descriptors) {
        if let Descriptors::Replaced(fd) = descriptors {
            let _not_ours = std::mem::replace(&mut self.fd, fd).into_raw_fd();
        }
    }
}

/// Bytes that are given back at once: a read of another part of the file waits meanwhile. On ext4 a hole of 16 MiB that was written takes 3.8 ms, and one of 1 MiB 0.4
/// (medians of 20 and 320). A choice: 16 calls an extent, each as long as some reads of a page.
const PUNCH_BYTES: u64 = 1 << 20;

impl Reserve for SwapFile {
    fn reserve(&self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        SwapFile::reserve(self, slots)
    }

    fn give_back(&self, slots: SlotRange) {
        let start = slots.start.byte_offset();
        let end = start + (u64::from(slots.slots) << PAGE_SHIFT);
        for at in (start..end).step_by(PUNCH_BYTES as usize) {
            // Room that is kept costs room, and nothing else.
            let _ = raw::punch(self.fd.as_fd(), at, PUNCH_BYTES.min(end - at));
        }
    }
}

impl AsRawFd for SwapFile {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn create_unnamed(directory: &Path) -> io::Result<File> {
    // With O_EXCL nobody can give the file a name later.
    private()
        .custom_flags(libc::O_TMPFILE | libc::O_EXCL)
        .open(directory)
}

fn create_and_unlink(directory: &Path) -> io::Result<File> {
    let mut result = Err(io::ErrorKind::AlreadyExists.into());
    for attempt in 0..NAMES_MAX {
        let name = format!(".outpage-{}-{attempt}.swap", std::process::id());
        let path = directory.join(name);
        result = private().create_new(true).open(&path);
        match &result {
            Ok(_) => {
                fs::remove_file(&path)?;
                break;
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => break,
        }
    }
    result
}

/// The file system below `fd`, unless no swap file belongs there.
fn judge(origin: &Path, fd: std::os::fd::BorrowedFd<'_>) -> Result<Filesystem, SwapFileError> {
    let origin = origin.to_owned();
    let (magic, _) = match raw::filesystem(fd) {
        Ok(found) => found,
        Err(errno) => {
            return Err(SwapFileError::Io {
                origin,
                call: "fstatfs",
                errno,
            });
        }
    };
    let filesystem = Filesystem::from_magic(magic);
    match filesystem.verdict() {
        Verdict::InMemory => Err(SwapFileError::InMemory(origin, filesystem)),
        Verdict::Remote => Err(SwapFileError::Remote(origin, filesystem)),
        Verdict::Fine | Verdict::CopyOnWrite | Verdict::Hidden => Ok(filesystem),
    }
}

/// Whether it was removed while somebody is in it.
fn is_removed(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| found.nlink() == 0)
}

impl SwapFileError {
    /// The directory, or a phrase that names the inherited descriptor.
    #[must_use]
    pub fn origin(&self) -> &Path {
        match self {
            Self::Missing(origin)
            | Self::NotADirectory(origin)
            | Self::BadName(origin, _)
            | Self::NoFiles(origin)
            | Self::ReadOnly(origin)
            | Self::Permission(origin)
            | Self::InMemory(origin, _)
            | Self::Remote(origin, _)
            | Self::NoSpace { origin, .. }
            | Self::TooLarge { origin, .. }
            | Self::NotAFile(origin)
            | Self::Io { origin, .. } => origin,
        }
    }

    fn of_directory(directory: &Path, call: &'static str, error: &io::Error) -> Self {
        let origin = directory.to_owned();
        match error.raw_os_error().unwrap_or(0) {
            libc::ENOENT => Self::Missing(origin),
            libc::ENOTDIR => Self::NotADirectory(origin),
            errno @ (libc::ENAMETOOLONG | libc::ELOOP) => Self::BadName(origin, errno),
            libc::EROFS => Self::ReadOnly(origin),
            libc::EACCES | libc::EPERM => Self::Permission(origin),
            libc::ENOSPC | libc::EDQUOT => Self::NoSpace {
                origin,
                wanted_bytes: 0,
                available_bytes: 0,
            },
            errno => Self::Io {
                origin,
                call,
                errno,
            },
        }
    }
}

impl fmt::Display for SwapFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = "choose another swap directory";
        let place = self.origin().display();
        match self {
            Self::Missing(_) => {
                write!(
                    f,
                    "swap directory {place} does not exist: make it, or {other}"
                )
            }
            Self::NotADirectory(_) => write!(f, "{place} is no directory: {other}"),
            Self::BadName(_, errno) => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "no swap directory can be {place} ({error}): {other}")
            }
            Self::NoFiles(_) => {
                write!(f, "no file can be made in swap directory {place}: {other}")
            }
            Self::ReadOnly(_) => {
                write!(f, "swap directory {place} is mounted read-only: {other}")
            }
            Self::Permission(_) => write!(
                f,
                "no permission to make a file in swap directory {place}: change its mode, or {other}"
            ),
            Self::InMemory(_, filesystem) => write!(
                f,
                "swap directory {place} is on {filesystem}, which is memory itself: choose one on a \
                 disk"
            ),
            Self::Remote(_, filesystem) => write!(
                f,
                "swap directory {place} is on {filesystem}, which needs another machine or program \
                 to page: choose one on a local disk"
            ),
            Self::NoSpace {
                wanted_bytes: 0, ..
            } => {
                write!(
                    f,
                    "no space for another file in {place}: remove some, or {other}"
                )
            }
            Self::NoSpace {
                wanted_bytes: wanted,
                available_bytes: available,
                ..
            } => write!(
                f,
                "no space for {wanted} more bytes of swap in {place}, where {available} are \
                 available: free some, lower the swap cap, or {other}"
            ),
            Self::TooLarge {
                end_bytes: end,
                cap_bytes: cap,
                ..
            } => write!(
                f,
                "the swap file in {place} may not grow to {end} bytes: its cap is {cap}; raise it, \
                 and the file size limit (ulimit -f) where that is lower"
            ),
            Self::NotAFile(_) => {
                write!(f, "{place} is no regular file: pass an open swap file")
            }
            Self::Io { call, errno, .. } => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "{call} failed for swap in {place}: {error}; {other}")
            }
        }
    }
}

impl std::error::Error for SwapFileError {}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffered(filesystem) => write!(
                f,
                "{filesystem} has no direct I/O here: paged-out pages also fill the page cache; \
                 choose a swap directory on ext4 or XFS"
            ),
            Self::CopyOnWrite(filesystem) => write!(
                f,
                "{filesystem} copies on every overwrite: paging is slower and may find the disk \
                 full in spite of reserved space; choose a swap directory on ext4 or XFS"
            ),
            Self::Overlay => f.write_str(
                "the swap directory is on overlayfs and what lies below cannot be seen: make sure \
                 that it is a disk, for example by a volume",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_made_under_a_name_loses_it_at_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let metadata = create_and_unlink(directory.path())
            .unwrap()
            .metadata()
            .unwrap();
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_name_in_use_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory
            .path()
            .join(format!(".outpage-{}-0.swap", std::process::id()));
        fs::write(&taken, "theirs").unwrap();
        create_and_unlink(directory.path()).unwrap();
        assert_eq!(fs::read(&taken).unwrap(), b"theirs");
    }
}
