//! A sample of the pages that are mapped along: each stays staged, so that its touch shows, and stands
//! for so many others.
//!
//! A sampled page is used if it is touched before as many frames were taken as memory has: so long, about, a
//! mapped page stays. That it is released before, as staged pages are, does not end the watch.

use alloc::vec;
use alloc::vec::Vec;

use super::StreamId;
use crate::units::PageNo;

/// The most pages that are watched at a time: 24 KiB, of which RAM is taken as they are used. A choice; in a large memory each
/// stands for more pages.
const PLACES: usize = 512;

/// A page that is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    pub(super) page: PageNo,
    /// How many pages it stands for, itself included.
    pub(super) weight: u32,
    /// Frames taken when the watch began.
    pub(super) since: u64,
    /// The stream for which it was read.
    pub(super) stream: Option<StreamId>,
}

/// The pages that are watched: a queue, and a table that finds them by number.
pub(super) struct Samples {
    /// A ring of [`PLACES`], the oldest first; those that were never used are not there yet. A place is empty when its watch is over.
    ring: Vec<Option<Sample>>,
    oldest: usize,
    /// Places from the oldest to the latest, the empty ones between them included.
    used: usize,
    /// Pages that are watched.
    watched: usize,
    /// Open addressing with linear probing, at most half full: places of the ring, from 1.
    table: Vec<u16>,
}

impl Samples {
    /// None watched.
    pub(super) fn new() -> Self {
        Self {
            ring: Vec::with_capacity(PLACES),
            oldest: 0,
            used: 0,
            watched: 0,
            table: vec![0; 2 * PLACES],
        }
    }

    /// Whether more than half of the places are in use, those between others that are empty included.
    pub(super) const fn crowded(&self) -> bool {
        self.used * 2 > PLACES
    }

    /// Whether there is no place.
    pub(super) const fn full(&self) -> bool {
        self.watched == PLACES
    }

    /// Watches a page that is not watched yet. There is a place.
    pub(super) fn watch(&mut self, sample: Sample) {
        if self.used == PLACES {
            self.close_up();
        }
        let at = (self.oldest + self.used) & (PLACES - 1);
        if at == self.ring.len() {
            self.ring.push(None);
        }
        self.ring[at] = Some(sample);
        self.used += 1;
        self.watched += 1;
        let cell = self.find(sample.page).unwrap_or_else(|vacant| vacant);
        self.table[cell] = at as u16 + 1;
    }

    /// Whether `page` is watched.
    pub(super) fn has(&self, page: PageNo) -> bool {
        self.used > 0 && self.find(page).is_ok()
    }

    /// Ends the watch of `page`.
    pub(super) fn take(&mut self, page: PageNo) -> Option<Sample> {
        if self.used == 0 {
            return None;
        }
        let cell = self.find(page).ok()?;
        let at = usize::from(self.table[cell]) - 1;
        self.vacate(cell);
        let sample = self.ring[at].take();
        self.watched -= 1;
        self.trim();
        sample
    }

    /// Ends the watch of the oldest page, if it began when at most `until` frames had been taken.
    pub(super) fn expired(&mut self, until: u64) -> Option<Sample> {
        if self.used == 0 {
            return None;
        }
        let oldest = self.ring[self.oldest]?;
        (oldest.since <= until).then(|| self.take(oldest.page))?
    }

    /// Gives back the empty places between others: one page that nobody touches must not keep those behind it.
    fn close_up(&mut self) {
        self.table.fill(0);
        let (places, from) = (self.ring.len(), self.oldest);
        (self.oldest, self.used) = (0, 0);
        self.ring.rotate_left(from);
        for at in 0..places {
            if let Some(sample) = self.ring[at].take() {
                self.ring[self.used] = Some(sample);
                let cell = self.find(sample.page).unwrap_or_else(|vacant| vacant);
                self.table[cell] = self.used as u16 + 1;
                self.used += 1;
            }
        }
    }

    /// Drops the oldest places that are empty.
    fn trim(&mut self) {
        while self.used > 0 && self.ring[self.oldest].is_none() {
            self.oldest = (self.oldest + 1) & (PLACES - 1);
            self.used -= 1;
        }
    }

    fn home(&self, page: PageNo) -> usize {
        (hash(page) >> 32) as usize & (self.table.len() - 1)
    }

    /// The cell of `page`, or the vacant one where the search ends.
    fn find(&self, page: PageNo) -> Result<usize, usize> {
        let mut cell = self.home(page);
        loop {
            let Some(at) = self.table[cell].checked_sub(1) else {
                return Err(cell);
            };
            if self.ring[usize::from(at)].is_some_and(|sample| sample.page == page) {
                return Ok(cell);
            }
            cell = (cell + 1) & (self.table.len() - 1);
        }
    }

    /// Backward-shift deletion.
    fn vacate(&mut self, mut hole: usize) {
        let mask = self.table.len() - 1;
        let mut cell = (hole + 1) & mask;
        while let Some(at) = self.table[cell].checked_sub(1) {
            let home = self.ring[usize::from(at)].map_or(cell, |sample| self.home(sample.page));
            if (cell.wrapping_sub(home) & mask) >= (cell.wrapping_sub(hole) & mask) {
                self.table[hole] = self.table[cell];
                hole = cell;
            }
            cell = (cell + 1) & mask;
        }
        self.table[hole] = 0;
    }
}

/// Fibonacci hashing: the upper half is well mixed.
pub(super) const fn hash(page: PageNo) -> u64 {
    hash_of(page.raw())
}

/// The same of any number.
pub(super) const fn hash_of(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::units::ObjectId;

    fn sample(index: u64, since: u64) -> Sample {
        Sample {
            page: PageNo::new(ObjectId(1), index),
            weight: 1,
            since,
            stream: None,
        }
    }

    #[test]
    fn a_page_that_nobody_touches_keeps_no_place_but_its_own() {
        let mut samples = Samples::new();
        samples.watch(sample(0, 0));
        for index in 1..10_000 {
            assert!(!samples.full());
            samples.watch(sample(index, index));
            assert_eq!(
                samples.take(sample(index, 0).page),
                Some(sample(index, index))
            );
        }
        assert_eq!(samples.expired(0), Some(sample(0, 0)));
    }

    proptest! {
        /// A queue that is searched from end to end.
        #[test]
        fn watches_begin_and_end_as_in_a_plain_queue(steps in proptest::collection::vec((0..3_u8, 0..200_u64), 1..600)) {
            let (mut samples, mut model) = (Samples::new(), VecDeque::new());
            for (now, (step, index)) in steps.into_iter().enumerate() {
                let new = sample(index, now as u64);
                prop_assert_eq!(samples.watched, model.len());
                let known = model.iter().position(|old: &Sample| old.page == new.page);
                prop_assert_eq!(samples.has(new.page), known.is_some());
                match step {
                    0 if known.is_none() && !samples.full() => {
                        samples.watch(new);
                        model.push_back(new);
                    }
                    1 => prop_assert_eq!(samples.take(new.page), known.and_then(|at| model.remove(at))),
                    _ => {
                        let until = (now as u64).saturating_sub(index);
                        let old = model.front().is_some_and(|old| old.since <= until);
                        let expected = if old { model.pop_front() } else { None };
                        prop_assert_eq!(samples.expired(until), expected);
                    }
                }
            }
        }
    }
}
