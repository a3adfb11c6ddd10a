//! Address space that pages are taken to from elsewhere, whatever lies there at that moment.
//!
//! `MADV_DONTNEED` throws away what is at an address by the time the kernel comes to it. A mapping that is moved is there yet, and
//! who took what it did not want can put it back.

use outpage_core::units::PAGE_BYTES;

use crate::map;
use crate::own::{self, Fork};
use crate::raw::Errno;

/// Nobody may touch it, and between two uses it has no frames.
const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Address space of the pager's own, to take pages to.
///
/// It is unmapped when dropped; nothing may be [registered](crate::uffd::Uffd::register) there then.
#[derive(Debug)]
pub struct Landing {
    start: usize,
    len: usize,
}

impl Landing {
    /// Room for `pages` pages, of which a forked child has a copy.
    ///
    /// # Errors
    /// Those of mmap(2); `ENOMEM` when [`own`] is full.
    ///
    /// # Panics
    /// Without pages.
    pub fn new(pages: usize) -> Result<Self, Errno> {
        assert!(pages > 0);
        let len = pages * PAGE_BYTES;
        let start = map::reserve(len)?;
        let landing = Self { start, len };
        own::add(start, start + len, Fork::Inherited)?;
        Ok(landing)
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Address of the first byte, and how many there are.
    #[must_use]
    pub const fn span(&self) -> (usize, usize) {
        (self.start, self.len)
    }

    /// Throws away what was taken here. Where something of it is registered the call waits until the message about it is read.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn clear(&self) -> Result<(), Errno> {
        let flags = FLAGS | libc::MAP_FIXED;
        map::mmap(self.start, self.len, libc::PROT_NONE, flags, -1, 0).map(drop)
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        own::remove(self.start);
        let _ = map::munmap(self.start, self.len);
    }
}

/// Moves the pages of the `len` bytes at `from`, one mapping's, to `to` in a [`Landing`], in one step; the mapping stays, without
/// pages (`MREMAP_DONTUNMAP`, Linux 5.7). Where it is registered with `EVENT_REMAP`, so is `to`, and the call ends when the message is read.
///
/// # Errors
/// Those of mremap(2), and `EINVAL` for locked memory, which would not be locked any more: nothing was moved.
pub fn take(from: usize, len: usize, to: usize) -> Result<(), Errno> {
    // Says by its error whether memory is locked, and does nothing but make it older (Linux 5.4).
    map::madvise(from, len, libc::MADV_COLD)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    map::mremap(from, len, len, flags, to).map(drop)
}
