//! What more frames would have saved, and what the last of them save: refaults by how many frames more would have kept the page.
//!
//! A page that comes back would still be there, had there been as many frames more as pages left after it and are out still. Pages that
//! were read along count as back, not as refaults: nobody waited for them. The body divides a limit among processes by it, and a tier policy a process's frames
//! between its pages and the pool.

use alloc::boxed::Box;
use alloc::vec;

use crate::units::PageNo;

/// Spans that are told apart: up to 1/128, 1/64 ... of all frames, and all of them. A choice; a process gets what is worth it within a factor of 2.
pub const SPANS: usize = 8;

/// Places, 8 bytes each, made at the start. A choice: half of them stand for all frames that there can be, and each refault looks at them all, 0.2 us.
const PLACES: usize = 2048;
/// Places for distances beyond: one for so many frames, a thousandth of them in bytes, between these bounds. Each refault that is remembered looks at them all,
/// 7.6 us [7.1-10.3] at most (that loop by itself, five times), and of 125 MiB one in 31 is: 0.25 us each. With 4,096 places, 33 refaults stood for the last 4,000
/// there, and chance moved the pool. Choices.
const FRAMES_PER_PLACE: usize = 2;
const BEYOND_MIN: usize = 2 * PLACES;
const BEYOND_MAX: usize = 8 * PLACES;

/// Refaults since the pager began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refaults {
    /// Reads that somebody waited for, by the smallest span of frames that would have saved them.
    pub read: [u64; SPANS],
    /// The same for pages that were in the pool of compressed pages.
    pub unpacked: [u64; SPANS],
    /// Touches of pages that were to leave next and had been in use before: with fewer frames they would have been reads.
    pub rescued: u64,
    /// Frames that were given up so that others could use them.
    pub departures: u64,
}

#[derive(Clone, Copy)]
struct Ghost {
    /// The upper half of the page's hash, which tells it from others of this place.
    tag: u32,
    /// The count of departures when it left; 0: nobody's place.
    left: u32,
}

/// Some of the pages that are out, found by number; a later one takes the place of an earlier one.
pub(crate) struct Departed {
    places: Box<[Ghost]>,
    departures: u32,
    /// One page in so many is remembered, and counts as so many.
    share: u32,
    /// All frames that there can be.
    most: u64,
    pub counts: Refaults,
    /// The same for distances beyond these, where something is decided by them.
    pub beyond: Option<Box<Self>>,
}

impl Departed {
    /// Nobody left, and up to `frames` frames are told apart.
    pub fn new(frames: usize) -> Self {
        Self::with(PLACES, frames)
    }

    fn with(places: usize, frames: usize) -> Self {
        const NOBODY: Ghost = Ghost { tag: 0, left: 0 };
        Self {
            places: vec![NOBODY; places].into_boxed_slice(),
            departures: 0,
            share: (frames / (places / 2)).max(1) as u32,
            most: frames as u64,
            counts: Refaults::default(),
            beyond: None,
        }
    }

    /// As [`Self::new`], and up to `times` as many in spans of their own, which are right however many are out.
    pub fn and_beyond(frames: usize, times: usize) -> Self {
        let places = (frames / FRAMES_PER_PLACE).clamp(BEYOND_MIN, BEYOND_MAX);
        Self {
            beyond: Some(Box::new(Self::with(places, frames * times))),
            ..Self::new(frames)
        }
    }

    /// Counts from the beginning.
    pub fn reset(&mut self) {
        self.counts = Refaults::default();
        if let Some(beyond) = &mut self.beyond {
            beyond.reset();
        }
    }

    /// The place of `page` and its tag, if it is among those that are remembered.
    fn place(&self, page: PageNo) -> Option<(usize, u32)> {
        let hash = mixed(page.raw());
        let tag = (hash >> 32) as u32;
        (tag.is_multiple_of(self.share)).then_some((hash as usize % self.places.len(), tag))
    }

    /// The frame of `page` was given up.
    pub fn left(&mut self, page: PageNo) {
        self.counts.departures += 1;
        self.departures = self.departures.wrapping_add(1).max(1);
        if let Some((at, tag)) = self.place(page) {
            let left = self.departures;
            self.places[at] = Ghost { tag, left };
        }
        if let Some(beyond) = &mut self.beyond {
            beyond.left(page);
        }
    }

    /// `page` comes along with another one.
    pub fn comes_along(&mut self, page: PageNo) {
        self.take(page);
        if let Some(beyond) = &mut self.beyond {
            beyond.comes_along(page);
        }
    }

    /// Somebody waits for `page` to be read.
    pub fn read(&mut self, page: PageNo) {
        if let Some(span) = self.back(page) {
            self.counts.read[span] += u64::from(self.share);
        }
        if let Some(beyond) = &mut self.beyond {
            beyond.read(page);
        }
    }

    /// Somebody waits for `page` to come out of the pool.
    pub fn unpacked(&mut self, page: PageNo) {
        if let Some(span) = self.back(page) {
            self.counts.unpacked[span] += u64::from(self.share);
        }
        if let Some(beyond) = &mut self.beyond {
            beyond.unpacked(page);
        }
    }

    /// The span that would have kept `page`; `None` where it is not remembered, or no span would.
    fn back(&mut self, page: PageNo) -> Option<usize> {
        let left = self.take(page)?;
        let since = |ghost: &&Ghost| ghost.left != 0 && ghost.left.wrapping_sub(left) as i32 > 0;
        let out = self.places.iter().filter(since).count() as u64;
        let frames = (out + 1) * u64::from(self.share);
        (0..SPANS).find(|&span| frames <= self.most >> (SPANS - 1 - span))
    }

    fn take(&mut self, page: PageNo) -> Option<u32> {
        let (at, tag) = self.place(page)?;
        let ghost = self.places[at];
        (ghost.left != 0 && ghost.tag == tag).then(|| {
            self.places[at].left = 0;
            ghost.left
        })
    }
}

/// The finaliser of `MurmurHash3` (Appleby, 2011): all bits of the result depend on all bits.
const fn mixed(mut bits: u64) -> u64 {
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ObjectId;

    fn page(index: u64) -> PageNo {
        PageNo::new(ObjectId(1), index)
    }

    /// Exact: a list of those that are out, the last to leave last.
    #[derive(Default)]
    struct Naive(alloc::vec::Vec<PageNo>);

    impl Naive {
        fn back(&mut self, page: PageNo) -> Option<usize> {
            let at = self.0.iter().rposition(|&p| p == page)?;
            let frames = self.0.len() - at;
            self.0.remove(at);
            Some(frames)
        }
    }

    #[test]
    fn a_page_is_kept_by_as_many_frames_as_left_after_it_and_are_out() {
        let mut departed = Departed::new(1024);
        (0..20).for_each(|n| departed.left(page(n)));
        (10..20).for_each(|n| departed.comes_along(page(n)));
        departed.read(page(0));
        departed.unpacked(page(9));
        departed.read(page(0));
        let counts = departed.counts;
        // Ten were out, it included: more than 1024 / 128, no more than 1024 / 64.
        assert_eq!(counts.read, [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(counts.unpacked, [1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_nothing_would_have_kept_counts_nowhere() {
        let mut departed = Departed::new(64);
        (0..65).for_each(|n| departed.left(page(n)));
        departed.read(page(0));
        departed.read(page(1));
        assert_eq!(departed.counts.read, [0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn where_more_can_be_out_more_are_remembered() {
        for (frames, places, share) in [
            (2_048, 4_096, 8),
            (16_384, 8_192, 32),
            (1 << 20, 16_384, 1024),
        ] {
            let departed = Departed::and_beyond(frames, 8);
            let beyond = departed.beyond.expect("it was asked for");
            assert_eq!((beyond.places.len(), beyond.share), (places, share));
        }
    }

    #[test]
    fn what_some_tell_is_what_an_exact_list_tells() {
        let frames = 100_000;
        let (mut departed, mut naive) = (Departed::new(frames), Naive::default());
        let mut exact = [0_u64; SPANS];
        let mut seed = 5_u64;
        for _ in 0..30_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (what, number) = (seed >> 60, seed >> 33);
            let number = page(if what < 12 {
                number % 20_000
            } else {
                number % 600
            });
            if let Some(out) = naive.back(number) {
                let span = |s: &usize| out <= frames >> (SPANS - 1 - s);
                exact[(0..SPANS).find(span).expect("few are out")] += 1;
            }
            departed.read(number);
            departed.left(number);
            naive.0.push(number);
        }
        let (mut of_exact, mut of_some) = (0, 0);
        for (span, (exact, some)) in exact.iter().zip(departed.counts.read).enumerate() {
            (of_exact, of_some) = (of_exact + exact, of_some + some);
            let least = (of_exact * 7 / 10).saturating_sub(1_000);
            assert!(
                (least..=of_exact * 13 / 10 + 1_000).contains(&of_some),
                "span {span}: {of_some} of {of_exact}"
            );
        }
        assert!(of_exact > 10_000);
    }
}
