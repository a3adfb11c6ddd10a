//! Pages that left not long ago: those that would still be there, had less been read in vain.
//!
//! A page comes back `d` frames after it left. Had `d` frames fewer been taken, it would not have left;
//! so where at least `d` pages of the last memory's worth were read in vain, its refault is their cost.

use alloc::boxed::Box;
use alloc::vec;

use super::sample::hash;
use crate::units::PageNo;

/// Places: 8 KiB, made at the start. A choice; in a large memory each ghost stands for several pages.
const PLACES: usize = 1024;

/// A page that left; all of zeroes: nobody's place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ghost {
    /// Both halves of the page's hash in one: of pages at this place, none of the same index in another object has it, and by chance one other
    /// in some million.
    tag: u32,
    /// Frames taken when it left, modulo 2^32; never 0.
    left: u32,
}

const NOBODY: Ghost = Ghost { tag: 0, left: 0 };

/// Some of the pages that left, found by number; a later one takes the place of an earlier one.
pub(super) struct Ghosts {
    places: Box<[Ghost]>,
    /// One page in so many is remembered, and counts as so many.
    share: u64,
}

impl Ghosts {
    /// For a memory of `frames` frames.
    pub(super) fn new(frames: usize) -> Self {
        let mut ghosts = Self {
            places: vec![NOBODY; PLACES].into_boxed_slice(),
            share: 1,
        };
        ghosts.resize(frames);
        ghosts
    }

    /// The memory has `frames` frames from now on.
    pub(super) fn resize(&mut self, frames: usize) {
        // What comes back while a quarter of memory is taken finds its ghost.
        self.share = (frames / 4).div_ceil(PLACES).max(1) as u64;
    }

    /// The place of `page` and its tag, if it is among those that are remembered.
    fn place(&mut self, page: PageNo) -> Option<(&mut Ghost, u32)> {
        let hash = hash(page);
        let at = (hash >> 32) as usize & (PLACES - 1);
        hash.is_multiple_of(self.share)
            .then(|| (&mut self.places[at], (hash >> 32) as u32 ^ hash as u32))
    }

    /// `page` left when so many frames had been taken.
    pub(super) fn left(&mut self, page: PageNo, taken: u64) {
        if let Some((place, tag)) = self.place(page) {
            let left = (taken as u32).max(1);
            *place = Ghost { tag, left };
        }
    }

    /// `page` is back: for how many pages that counts, and how many frames were taken meanwhile.
    pub(super) fn back(&mut self, page: PageNo, taken: u64) -> Option<(u64, u64)> {
        let share = self.share;
        let (place, tag) = self.place(page)?;
        if *place == NOBODY || place.tag != tag {
            return None;
        }
        let ghost = core::mem::replace(place, NOBODY);
        Some((share, u64::from((taken as u32).wrapping_sub(ghost.left))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ObjectId;

    fn page(index: u64) -> PageNo {
        PageNo::new(ObjectId(1), index)
    }

    #[test]
    fn a_page_that_comes_back_is_known_once() {
        let mut ghosts = Ghosts::new(1024);
        ghosts.left(page(7), 100);
        assert_eq!(ghosts.back(page(8), 130), None);
        assert_eq!(ghosts.back(page(7), 130), Some((1, 30)));
        assert_eq!(ghosts.back(page(7), 130), None);
    }

    #[test]
    fn in_a_large_memory_some_stand_for_all() {
        let mut ghosts = Ghosts::new(1 << 20);
        (0..40_000).for_each(|n| ghosts.left(page(n), n));
        let found: u64 = (0..40_000)
            .filter_map(|n| ghosts.back(page(n), 40_000))
            .map(|(share, _)| share)
            .sum();
        assert!((30_000..50_000).contains(&found), "{found}");
    }
}
