//! A second mapping of memory that the program has mapped shared: the pager's own way to the pages, whatever the program's mapping becomes.
//!
//! It is not registered with a userfaultfd. So a page that lies there can be read through it without a fault, and a hole that is
//! punched through it is told to nobody, while it takes the page from every mapping.

use outpage_core::units::PAGE_BYTES;

use crate::map;
use crate::own::{self, Fork};
use crate::raw::{Errno, syscall3};

/// A mapping of the pager's own of memory that is shared; unmapped when dropped.
#[derive(Debug)]
pub struct View {
    start: usize,
    len: usize,
}

impl View {
    /// Of the pages that are mapped at `start..start + len` (whole pages, one shared mapping, registered with no userfaultfd).
    ///
    /// By mremap(2) with an old length of 0, which maps a shared mapping's pages a second time.
    ///
    /// # Errors
    /// Those of mremap(2) and mprotect(2): `EINVAL` where the mapping is private, `EACCES` where it is never to be written;
    /// `ENOMEM` when [`own`] is full.
    pub fn of(start: usize, len: usize) -> Result<Self, Errno> {
        let at = map::mremap(start, 0, len, libc::MREMAP_MAYMOVE, 0)?;
        let view = Self { start: at, len };
        own::add(at, at + len, Fork::ParentOnly)?;
        map::not_in_children(at, len)?;
        map::mprotect(at, len, libc::PROT_READ | libc::PROT_WRITE)?;
        // What is locked cannot be punched (`madvise_remove` in mm/madvise.c), and where all that is mapped is locked at once this is too.
        map::munlock(at, len)?;
        Ok(view)
    }

    fn check(&self, offset: usize, len: usize) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(
            fits && offset.is_multiple_of(PAGE_BYTES),
            "range {offset:#x}+{len:#x} leaves the view of {:#x} bytes",
            self.len
        );
    }

    /// Has the pages of `len` bytes from `offset` on, all of which are there, and no others be mapped here, before they are copied. A touch that reads would
    /// have the kernel map neighbours as well (`do_fault_around` in mm/memory.c), which would count as this process's twice.
    ///
    /// # Panics
    /// When the range leaves the view.
    pub fn open(&self, offset: usize, len: usize) {
        self.check(offset, len);
        // Where it is refused a touch does it.
        let _ = map::populate(self.start + offset, len);
    }

    /// Ends that, for pages that stay in the file after all.
    ///
    /// # Panics
    /// When the range leaves the view.
    pub fn close(&self, offset: usize, len: usize) {
        self.check(offset, len);
        let _ = map::release(self.start + offset, len);
    }

    /// Copies the page at byte `offset`, which is there, to `to`. A hole would be filled with a page of zeroes.
    ///
    /// # Panics
    /// When the page leaves the view.
    pub fn copy_page(&self, offset: usize, to: &mut [u8; PAGE_BYTES]) {
        self.check(offset, PAGE_BYTES);
        let from = core::ptr::with_exposed_provenance::<u8>(self.start + offset);
        // SAFETY: inside the mapping, which lives as long as `self`; `to` is memory of another mapping. That others write to the page
        // meanwhile is excluded by whoever calls: it is write-protected, or what is read is not used.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), PAGE_BYTES) };
    }

    /// Whether each page from byte `offset` on is there (mincore(2)), in RAM and whole. A page that the kernel has in a swap of its own is not.
    ///
    /// # Errors
    /// Those of mincore(2).
    ///
    /// # Panics
    /// When the range leaves the view.
    pub fn there(&self, offset: usize, out: &mut [bool]) -> Result<(), Errno> {
        const LOOK_PAGES: usize = 512;
        self.check(offset, out.len() * PAGE_BYTES);
        let mut bytes = [0u8; LOOK_PAGES];
        let mut at = self.start + offset;
        for part in out.chunks_mut(LOOK_PAGES) {
            let len = part.len() * PAGE_BYTES;
            // SAFETY: the kernel writes one byte a page to the array, which is as long as a part at the most.
            unsafe { syscall3(libc::SYS_mincore, at, len, bytes.as_mut_ptr() as usize) }?;
            for (there, byte) in part.iter_mut().zip(bytes) {
                // The other bits are reserved.
                *there = byte & 1 != 0;
            }
            at += len;
        }
        Ok(())
    }

    /// Takes the pages of `len` bytes from `offset` on from everybody (`MADV_REMOVE`): they read as zeroes afterwards.
    ///
    /// # Errors
    /// Those of madvise(2): `EPERM` where the file is sealed.
    ///
    /// # Panics
    /// When the range leaves the view.
    pub fn punch(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.check(offset, len);
        map::madvise(self.start + offset, len, libc::MADV_REMOVE)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Out of the table first: an address may be mapped again by anybody once it is free.
        own::remove(self.start);
        let _ = map::munmap(self.start, self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_shows_the_pages_and_takes_them() {
        const PAGES: usize = 4;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let len = PAGES * PAGE_BYTES;
        let at = map::mmap(0, len, prot, flags, -1, 0).expect("mmap");
        let view = View::of(at, len).expect("view");
        let there = || {
            let mut there = [true; PAGES];
            view.there(0, &mut there).expect("mincore");
            there
        };
        assert_eq!(there(), [false; PAGES]);
        let byte = core::ptr::with_exposed_provenance_mut::<u8>(at + 2 * PAGE_BYTES + 5);
        // SAFETY: in the mapping above, which nobody else knows.
        unsafe { byte.write_volatile(7) };
        assert_eq!(there(), [false, false, true, false]);
        view.open(2 * PAGE_BYTES, PAGE_BYTES);
        assert_eq!(there(), [false, false, true, false]);
        let mut copy = [1; PAGE_BYTES];
        view.copy_page(2 * PAGE_BYTES, &mut copy);
        assert_eq!((copy[4], copy[5], copy[6]), (0, 7, 0));
        view.close(2 * PAGE_BYTES, PAGE_BYTES);
        assert_eq!(there(), [false, false, true, false]);
        view.punch(2 * PAGE_BYTES, PAGE_BYTES).expect("punch");
        assert_eq!(there(), [false; PAGES]);
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read_volatile() }, 0);
        assert!(own::contains(view.start));
        let start = view.start;
        drop(view);
        assert!(!own::contains(start));
        map::munmap(at, len).expect("munmap");
    }

    #[test]
    fn private_memory_has_no_view() {
        let at = map::anonymous(PAGE_BYTES).expect("mmap");
        assert!(View::of(at, PAGE_BYTES).is_err());
        map::munmap(at, PAGE_BYTES).expect("munmap");
    }
}
