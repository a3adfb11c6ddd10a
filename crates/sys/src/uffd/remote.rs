//! A userfaultfd of another process, and memory that is shared with it.
//!
//! The descriptor acts on the address space that it was made in, whoever makes the calls: a pager that was handed one serves the faults of that
//! process. Memory under it is a mapping of a memory file that the pager has mapped too. The owner of the descriptor may be hostile: it can change the flags
//! of the open file that both share, read messages away and register other memory than it says.

use outpage_core::units::PAGE_BYTES;

use super::message::Message;
use super::ops::{fill, protect, wake};
use super::{Features, Outcome, Uffd, abi, ioctl_of};
use crate::fd::{self, Fd};
use crate::raw::{Errno, syscall6};

/// What the descriptor must have been opened with for [`Remote`] to serve it.
///
/// Missing and minor faults of shared memory (Linux 4.11, 5.14), its write-protection (5.19) and signals in place of pages (6.6).
pub const REMOTE_FEATURES: Features = Features::MISSING_SHMEM
    .plus(Features::MINOR_SHMEM)
    .plus(Features::WP_HUGETLBFS_SHMEM)
    .plus(Features::THREAD_ID)
    .plus(Features::POISON);

/// What the descriptor of a process must have been opened with whose shared memory is paged by a process beside it: missing faults and write-protection of
/// shared memory (Linux 4.11, 5.19), and what becomes of its mappings (4.11).
pub const SEAT_FEATURES: Features = Features::MISSING_SHMEM
    .plus(Features::WP_HUGETLBFS_SHMEM)
    .plus(Features::THREAD_ID)
    .plus(Features::EVENT_REMAP)
    .plus(Features::EVENT_REMOVE)
    .plus(Features::EVENT_UNMAP);

/// Read without waiting, whatever the flags of the open file say (`RWF_NOWAIT`, include/uapi/linux/fs.h).
const RWF_NOWAIT: usize = 8;

impl Uffd {
    /// Claims `len` bytes of a shared mapping from `start` on for whoever holds this descriptor: pages that the file does not have, those that it has and the
    /// mapping does not, and writes to those that were write-protected.
    ///
    /// # Errors
    /// Those of [`Uffd::register`].
    pub fn register_shared(&self, start: usize, len: usize) -> Result<(), Errno> {
        let mode = abi::REGISTER_MODE_MISSING | abi::REGISTER_MODE_WP | abi::REGISTER_MODE_MINOR;
        let range = abi::Range::new(start, len);
        let mut request = abi::Register {
            range,
            mode,
            ioctls: 0,
        };
        ioctl_of(self.descriptor(), abi::REGISTER, &mut request)
    }
}

/// The descriptor.
#[derive(Debug)]
pub struct Remote(Fd);

impl Remote {
    /// Takes over a descriptor that somebody sent; `None` if it is no userfaultfd.
    #[must_use]
    pub fn adopt(fd: Fd) -> Option<Self> {
        let mut name = [0u8; 32];
        let length = fd::link_of(fd.number(), &mut name).ok()?;
        (&name[..length] == b"anon_inode:[userfaultfd]").then_some(Self(fd))
    }

    /// The number: readable when messages wait.
    #[must_use]
    pub const fn fd(&self) -> i32 {
        self.0.number()
    }

    /// Reads messages into `out`, without blocking though the other process may have the file block; returns how many.
    ///
    /// # Errors
    /// Those of preadv2(2) but `EAGAIN`; `EOPNOTSUPP` where the kernel cannot (before Linux 6.10).
    pub fn read(&self, out: &mut [Message]) -> Result<usize, Errno> {
        /// 1 KiB of stack.
        const BATCH: usize = 32;
        let mut text = [0u8; BATCH * abi::MESSAGE_BYTES];
        let part = libc::iovec {
            iov_base: text.as_mut_ptr().cast(),
            iov_len: out.len().min(BATCH) * abi::MESSAGE_BYTES,
        };
        let (fd, at) = (self.fd() as usize, (&raw const part) as usize);
        // SAFETY: the kernel writes at most `iov_len` bytes into `text`, which lives as long as the call; an offset of -1 is the file's own.
        let read = unsafe {
            syscall6(
                libc::SYS_preadv2,
                fd,
                at,
                1,
                usize::MAX,
                usize::MAX,
                RWF_NOWAIT,
            )
        };
        let got = match read {
            Err(Errno::EAGAIN) => 0,
            other => other?,
        };
        let messages = text[..got].as_chunks::<{ abi::MESSAGE_BYTES }>().0;
        for (place, message) in out.iter_mut().zip(messages) {
            *place = Message::decode(message);
        }
        Ok(messages.len())
    }

    /// Maps the pages that the file has (UFFDIO_CONTINUE, Linux 5.14), writable, and wakes who waits there. `Exists` for one that is mapped, and
    /// `Other(EFAULT)` for one that the file does not have.
    pub fn map(&self, start: usize, len: usize) -> Outcome {
        fill(self.fd(), abi::CONTINUE, start, len)
    }

    /// Gives the file zeroed pages in a range and maps them (UFFDIO_ZEROPAGE), and wakes who waits there. `Exists` for one that the file has.
    pub fn zero(&self, start: usize, len: usize) -> Outcome {
        fill(self.fd(), abi::ZEROPAGE, start, len)
    }

    /// As [`Uffd::write_protect`]. What is not mapped gets a marker, which mapping it removes.
    pub fn write_protect(&self, start: usize, len: usize, on: bool) -> Outcome {
        protect(self.fd(), start, len, on)
    }

    /// Has whoever touches the page at `address`, which is not mapped, get a SIGBUS, and wakes who waits there.
    pub fn poison(&self, address: usize) -> Outcome {
        // The kernel poisons nothing where a marker is.
        let _ = self.write_protect(address, PAGE_BYTES, false);
        fill(self.fd(), abi::POISON, address, PAGE_BYTES)
    }

    /// As [`Uffd::unregister`].
    ///
    /// # Errors
    /// Those of UFFDIO_UNREGISTER.
    pub fn unregister(&self, start: usize, len: usize) -> Result<(), Errno> {
        ioctl_of(self.fd(), abi::UNREGISTER, &mut abi::Range::new(start, len))
    }

    /// As [`Uffd::wake`].
    ///
    /// # Errors
    /// Those of [`Uffd::wake`].
    pub fn wake(&self, start: usize, len: usize) -> Result<(), Errno> {
        wake(self.fd(), start, len)
    }
}
