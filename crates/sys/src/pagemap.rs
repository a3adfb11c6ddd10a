//! What the page tables say about a range: /proc/self/pagemap.

use core::fmt;

use outpage_core::units::{PAGE_BYTES, PAGE_SHIFT};

use crate::fd::{self, Fd};
use crate::proc;
use crate::raw::Errno;

/// What the kernel knows of one page of the address space.
///
/// Bits as in the kernel's Documentation/admin-guide/mm/pagemap.rst. A page that is neither present
/// nor swapped has no content of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PageFlags(u8);

impl PageFlags {
    /// Bit of the file's entries that is the lowest kept: all flags lie in 56..=63.
    const SHIFT: u32 = 56;

    /// A frame is mapped (the shared zero page included).
    #[must_use]
    pub const fn present(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    /// The content is in the kernel's swap, or migrating.
    #[must_use]
    pub const fn swapped(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// A file page or shared anonymous memory.
    #[must_use]
    pub const fn file_or_shared(self) -> bool {
        self.0 & 1 << 5 != 0
    }

    /// Write-protected by userfaultfd.
    #[must_use]
    pub const fn write_protected(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// Mapped here and nowhere else.
    #[must_use]
    pub const fn exclusive(self) -> bool {
        self.0 & 1 != 0
    }

    /// Neither present nor swapped: nothing was ever written here, or it is gone.
    #[must_use]
    pub const fn empty(self) -> bool {
        !self.present() && !self.swapped()
    }

    const fn from_entry(entry: u64) -> Self {
        Self((entry >> Self::SHIFT) as u8)
    }
}

impl fmt::Debug for PageFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = [
            (self.present(), 'p'),
            (self.swapped(), 's'),
            (self.file_or_shared(), 'f'),
            (self.write_protected(), 'w'),
            (self.exclusive(), 'x'),
        ];
        for (set, letter) in marks {
            write!(f, "{}", if set { letter } else { '-' })?;
        }
        Ok(())
    }
}

/// The open file. Needs no privilege: frame numbers are hidden from ordinary users, flags are not.
#[derive(Debug)]
pub struct Pagemap(Fd);

impl Pagemap {
    /// Opens /proc/self/pagemap.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open() -> Result<Self, Errno> {
        proc::open(c"thread-self/pagemap", libc::O_RDONLY).map(Self)
    }

    /// The descriptor, to be kept by [`fd::close_all_except`].
    #[must_use]
    pub const fn fd(&self) -> i32 {
        self.0.number()
    }

    /// Fills `out` with the flags of consecutive pages from address `start` on (rounded down to a page).
    ///
    /// # Errors
    /// Those of pread(2); `EFAULT` when the range ends beyond the address space.
    pub fn read(&self, start: usize, out: &mut [PageFlags]) -> Result<(), Errno> {
        const ENTRY_BYTES: usize = size_of::<u64>();
        /// 2 KiB of stack: one call for 1 MiB of address space.
        const BATCH: usize = 256;
        let mut entries = [0u8; BATCH * ENTRY_BYTES];
        let first = (start >> PAGE_SHIFT) as u64;
        for (batch, out) in out.chunks_mut(BATCH).enumerate() {
            let buffer = &mut entries[..out.len() * ENTRY_BYTES];
            let offset = (first + (batch * BATCH) as u64) * ENTRY_BYTES as u64;
            if fd::pread_whole(self.0.number(), buffer, offset)? < buffer.len() {
                return Err(Errno::EFAULT);
            }
            for (flags, entry) in out.iter_mut().zip(buffer.as_chunks::<ENTRY_BYTES>().0) {
                *flags = PageFlags::from_entry(u64::from_ne_bytes(*entry));
            }
        }
        Ok(())
    }

    /// The flags of the page at `address`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn page(&self, address: usize) -> Result<PageFlags, Errno> {
        let mut flags = [PageFlags::default()];
        self.read(address & !(PAGE_BYTES - 1), &mut flags)?;
        Ok(flags[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{self, Area};
    use crate::own::Fork;
    use std::vec;

    #[test]
    fn untouched_written_and_read_pages_differ() {
        let mut area = Area::new(600 * PAGE_BYTES, Fork::ParentOnly).unwrap();
        let pagemap = Pagemap::open().unwrap();
        // Page 599 lies in the third batch of the reader.
        area.bytes_mut(599 * PAGE_BYTES, 1)[0] = 1;
        assert_eq!(area.bytes(PAGE_BYTES, 1)[0], 0);
        let mut flags = vec![PageFlags::default(); 600];
        pagemap.read(area.start(), &mut flags).unwrap();
        assert!(flags[0].empty() && flags[598].empty());
        assert!(flags[599].present() && flags[599].exclusive() && !flags[599].file_or_shared());
        assert!(
            flags[1].present() && !flags[1].exclusive(),
            "the zero page is shared: {:?}",
            flags[1]
        );
        map::release(area.start() + 599 * PAGE_BYTES, PAGE_BYTES).unwrap();
        assert!(
            pagemap
                .page(area.start() + 599 * PAGE_BYTES)
                .unwrap()
                .empty()
        );
    }

    #[test]
    fn a_range_beyond_the_address_space_is_an_error() {
        let pagemap = Pagemap::open().unwrap();
        let mut flags = [PageFlags::default(); 2];
        assert!(
            pagemap
                .read(usize::MAX - 2 * PAGE_BYTES, &mut flags)
                .is_err()
        );
    }
}
