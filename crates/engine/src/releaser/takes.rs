//! Pages that are taken away in place of being thrown away, for programs that move memory by calls that no hook sees.
//!
//! Between hearing that pages go and their going, such a call may move other memory there, which would go in their place. Taken
//! away it is whole. What is no memory of the pager's is put back at once. What is waits here until the program's call is attended to.

use outpage_core::units::PAGE_BYTES;
use outpage_sys::landing::{self, Landing};
use outpage_sys::map::{self, Area, Memory};
use outpage_sys::own::Fork;
use outpage_sys::pagemap::Pagemap;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::Uffd;

use super::{CALL_PAGES, Part};

/// Where pages are taken to, and those that may be wanted back.
pub(super) struct Takes {
    landing: Landing,
    /// Copies of pages that were taken away while something was moved.
    copies: Area,
    /// Where each copy belongs, 0 for nowhere.
    places: [usize; CALL_PAGES],
    /// The copy that is written over next.
    next: usize,
}

impl Takes {
    /// # Errors
    /// Those of mapping memory.
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            landing: Landing::new(CALL_PAGES)?,
            copies: Area::new(CALL_PAGES * PAGE_BYTES, Fork::Inherited)?,
            places: [0; CALL_PAGES],
            next: 0,
        })
    }

    /// Where the first page goes that an order takes.
    pub(super) const fn start(&self) -> usize {
        self.landing.start()
    }

    /// What was taken of `part`, to `taken`, is not registered, so none of the pager's: whoever moved it there is not heard yet, and
    /// nobody else knows of it.
    ///
    /// # Errors
    /// Those of mremap(2).
    pub(super) fn put_back(part: Part, taken: usize) -> Result<(), Errno> {
        landing::take(taken, part.pages * PAGE_BYTES, part.address)
    }

    /// Nothing that was taken of `part` before is wanted back.
    pub(super) fn forget_part(&mut self, part: Part) {
        for place in &mut self.places {
            if (part.address..part.end()).contains(place) {
                *place = 0;
            }
        }
    }

    /// Keeps a copy of what was taken of `part`, to `taken`, in place of what was taken there before.
    pub(super) fn keep(&mut self, part: Part, taken: usize, pagemap: &Pagemap, memory: &Memory) {
        self.forget_part(part);
        for offset in (0..part.pages).map(|i| i * PAGE_BYTES) {
            // A read of what is not there would wait for this thread.
            let is_there = pagemap
                .page(taken + offset)
                .is_ok_and(|page| page.present());
            let copy = self.copies.bytes_mut(self.next * PAGE_BYTES, PAGE_BYTES);
            if is_there && memory.read(taken + offset, copy) == Ok(PAGE_BYTES) {
                self.places[self.next] = part.address + offset;
                self.next = (self.next + 1) % CALL_PAGES;
            }
        }
    }

    /// Throws away what an order took.
    ///
    /// # Errors
    /// Those of UFFDIO_UNREGISTER and mmap(2).
    pub(super) fn clear(&self, uffd: &Uffd) -> Result<(), Errno> {
        // What is registered cannot go without being heard of by this very thread.
        let (start, bytes) = self.landing.span();
        uffd.unregister(start, bytes)?;
        self.landing.clear()
    }

    /// The address of the copy of what was taken away at `address`.
    pub(super) fn copy_of(&self, address: usize) -> Option<usize> {
        let found = self.places.iter().position(|&place| place == address)?;
        Some(self.copies.start() + found * PAGE_BYTES)
    }

    /// Nothing is wanted back any more.
    pub(super) fn forget_all(&mut self) {
        if self.next != 0 || self.places.iter().any(|&place| place != 0) {
            (self.places, self.next) = ([0; CALL_PAGES], 0);
            let _ = map::release(self.copies.start(), self.copies.len());
        }
    }
}
