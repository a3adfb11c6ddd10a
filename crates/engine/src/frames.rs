//! The frames of one process that are not mapped in the program: the staging area.
//!
//! The area is address space for twice as many frames as the limit allows. A place in it is empty
//! (no memory), free (memory whose content nobody wants) or in use (a staged page, or I/O).
//! `UFFDIO_MOVE` carries frames between the program and empty or used places, so the number of
//! frames is what was populated, minus what was given back: RAM is bounded by construction.

use outpage_core::units::PAGE_BYTES;
use outpage_store::{Frame, FrameArea};
use outpage_sys::map::{self, Area};
use outpage_sys::own::Fork;
use outpage_sys::raw::Errno;

/// A frame of the staging area, by its place there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrameNo(pub u32);

/// Consecutive frames, half-open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRange {
    /// The first.
    pub start: FrameNo,
    /// How many.
    pub count: u32,
}

impl FrameRange {
    /// The places in ascending order.
    pub fn iter(self) -> impl Iterator<Item = FrameNo> {
        (self.start.0..self.start.0 + self.count).map(FrameNo)
    }

    /// FrameNo number `i` of them, from 0 on.
    #[must_use]
    pub const fn at(self, i: usize) -> FrameNo {
        debug_assert!(i < self.count as usize);
        FrameNo(self.start.0 + i as u32)
    }
}

/// The staging area and what is where in it.
pub struct Frames {
    area: Area,
    io: FrameArea,
    empty: Bits,
    free: Bits,
    populated: usize,
    prot: i32,
}

impl Frames {
    /// Address space for staging `frames` frames; no memory yet.
    ///
    /// # Errors
    /// The kernel's, when there is no address space.
    pub fn new(frames: usize) -> Result<Self, Errno> {
        let places =
            u32::try_from((frames * 2).next_multiple_of(64)).map_err(|_| Errno::EOVERFLOW)?;
        let area = Area::new(places as usize * PAGE_BYTES, Fork::Inherited)?;
        #[expect(unsafe_code, reason = "names the staging area as I/O memory, once")]
        // SAFETY: the area lives as long as this value, is touched through system calls and
        // `Area`'s own accessors only, and never while a request names the place.
        let io = unsafe { FrameArea::new(area.start(), places) };
        Ok(Self {
            area,
            io,
            empty: Bits::filled(places, true),
            free: Bits::filled(places, false),
            populated: 0,
            prot: libc::PROT_READ | libc::PROT_WRITE,
        })
    }

    /// The area's protection, `PROT_*`.
    #[must_use]
    pub const fn prot(&self) -> i32 {
        self.prot
    }

    /// The kernel gave the area this protection: what is mapped under `READ_IMPLIES_EXEC` (personality(2)) can be executed.
    pub const fn set_prot(&mut self, prot: i32) {
        self.prot = prot;
    }

    /// Address and length in bytes of the area.
    #[must_use]
    pub fn span(&self) -> (usize, usize) {
        (self.area.start(), self.area.len())
    }

    /// The address of `place`.
    #[must_use]
    pub fn address(&self, place: FrameNo) -> usize {
        self.area.start() + place.0 as usize * PAGE_BYTES
    }

    /// `place` as a target of I/O.
    #[must_use]
    pub fn frame(&self, place: FrameNo) -> Frame {
        self.io.frame(place.0)
    }

    /// The content of a populated place that no request names.
    #[must_use]
    pub fn content(&self, place: FrameNo) -> &[u8] {
        self.area.bytes(place.0 as usize * PAGE_BYTES, PAGE_BYTES)
    }

    /// As [`Self::content`], to be written.
    pub fn content_mut(&mut self, place: FrameNo) -> &mut [u8] {
        self.area
            .bytes_mut(place.0 as usize * PAGE_BYTES, PAGE_BYTES)
    }

    /// Writes to the frame what is in it.
    pub fn write_nothing(&mut self, place: FrameNo) {
        let first = &mut self.content_mut(place)[0];
        *first = std::hint::black_box(*first);
    }

    /// Frames with memory in the area: free or in use.
    #[must_use]
    pub const fn populated(&self) -> usize {
        self.populated
    }

    /// Free frames.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.free.ones
    }

    /// Up to `wanted` neighbouring free frames, populated when too few are; they are in use afterwards.
    /// `zeroed` asks for zeroes in them.
    ///
    /// # Errors
    /// `ENOMEM` when the kernel has no memory for a frame that the limit allows.
    pub fn take(&mut self, wanted: u32, zeroed: bool) -> Result<FrameRange, Errno> {
        if self.free.ones > 0 {
            let got = self.free.take_run(wanted);
            if zeroed {
                got.iter().for_each(|place| self.content_mut(place).fill(0));
            }
            return Ok(got);
        }
        self.take_populated(wanted)
    }

    /// Makes `frames` frames more free.
    ///
    /// # Errors
    /// `ENOMEM` when the kernel has no memory for them.
    pub fn populate(&mut self, mut frames: usize) -> Result<(), Errno> {
        while frames > 0 {
            let got = self.take_populated(frames as u32)?;
            got.iter().for_each(|place| self.set_free(place));
            frames -= got.count as usize;
        }
        Ok(())
    }

    /// Up to `wanted` neighbouring frames that were empty, in use afterwards.
    fn take_populated(&mut self, wanted: u32) -> Result<FrameRange, Errno> {
        let got = self.take_empty(wanted);
        if let Err(error) = map::populate(self.address(got.start), got.count as usize * PAGE_BYTES)
        {
            got.iter().for_each(|place| self.set_empty(place));
            return Err(error);
        }
        Ok(got)
    }

    /// Up to `wanted` neighbouring empty places, in use afterwards: the target of a detach.
    ///
    /// # Panics
    /// When no place is empty: there are twice as many as frames.
    pub fn take_empty(&mut self, wanted: u32) -> FrameRange {
        assert!(
            self.empty.ones > 0,
            "the staging area has twice as many places as frames"
        );
        let got = self.empty.take_run(wanted);
        self.populated += got.count as usize;
        got
    }

    /// `count` neighbouring empty places, in use afterwards; `None` if none are found nearby.
    pub fn take_empty_run(&mut self, count: u32) -> Option<FrameRange> {
        if self.empty.ones < count as usize {
            return None;
        }
        let (start, found) = self.empty.find_run(count as usize);
        if found < count as usize {
            return None;
        }
        self.populated += found;
        Some(self.empty.take_at(start, found))
    }

    /// The free frame `step` places beyond `place`, in use afterwards, if there is one and only empty places lie between.
    pub fn take_beyond(&mut self, place: FrameNo, step: u32) -> Option<FrameNo> {
        let at = place.0 + step;
        let between = (place.0 + 1..at).all(|bit| self.empty.has(bit));
        (between && self.free.has(at)).then(|| self.free.take_at(at as usize, 1).start)
    }

    /// Whether `place` is empty.
    #[must_use]
    pub fn is_empty(&self, place: FrameNo) -> bool {
        self.empty.has(place.0)
    }

    /// The first neighbouring places from `at` on that are thought to be empty; `None` if there are no more.
    pub fn empty_run(&self, at: u32) -> Option<FrameRange> {
        let places = (self.area.len() / PAGE_BYTES) as u32;
        let start = (at..places).find(|&place| self.empty.has(place))?;
        let end = (start..places).find(|&place| !self.empty.has(place));
        Some(FrameRange {
            start: FrameNo(start),
            count: end.unwrap_or(places) - start,
        })
    }

    /// The frame at `place`, which was in use, is free.
    pub fn set_free(&mut self, place: FrameNo) {
        self.free.put(place.0);
    }

    /// The place, which was in use, has no memory any more (it went to the program, or never came).
    pub fn set_empty(&mut self, place: FrameNo) {
        self.empty.put(place.0);
        self.populated -= 1;
    }

    /// Up to `wanted` neighbouring free frames, in use afterwards; `None` if there are none.
    pub fn take_free(&mut self, wanted: u32) -> Option<FrameRange> {
        (wanted > 0 && self.free.ones > 0).then(|| self.free.take_run(wanted))
    }
}

/// How much farther a longer run is looked for, in bits. A choice: looking at all places took 3 % of the CPU time of
/// MOC's microbenchmark, whose free frames lie one by one; 1024 measured alike (2.557 and 2.550 s of it).
const LOOK_ON: usize = 256;

/// A bitmap that hands out runs of ones, next fit.
struct Bits {
    words: Vec<u64>,
    ones: usize,
    cursor: usize,
}

impl Bits {
    fn filled(bits: u32, on: bool) -> Self {
        let words = vec![if on { u64::MAX } else { 0 }; bits as usize / 64];
        Self {
            ones: if on { bits as usize } else { 0 },
            words,
            cursor: 0,
        }
    }

    fn put(&mut self, bit: u32) {
        let word = &mut self.words[bit as usize / 64];
        debug_assert!(*word >> (bit % 64) & 1 == 0, "place {bit} put twice");
        *word |= 1 << (bit % 64);
        self.ones += 1;
    }

    /// The first run of `wanted` ones from the cursor on, or the longest that is found soon; cleared.
    ///
    /// # Panics
    /// When there is no one at all.
    fn take_run(&mut self, wanted: u32) -> FrameRange {
        let (start, count) = self.find_run(wanted as usize);
        self.take_at(start, count)
    }

    /// Those of `start..start + count`, which are ones; cleared.
    fn take_at(&mut self, start: usize, count: usize) -> FrameRange {
        self.clear(start, count);
        self.ones -= count;
        self.cursor = (start + count) / 64 % self.words.len();
        FrameRange {
            start: FrameNo(start as u32),
            count: count as u32,
        }
    }

    fn has(&self, bit: u32) -> bool {
        let word = self.words.get(bit as usize / 64);
        word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    fn find_run(&self, wanted: usize) -> (usize, usize) {
        let total = self.words.len() * 64;
        let mut best = (0, 0);
        let mut at = self.cursor * 64;
        let (mut looked, mut look) = (0, total);
        while looked < look {
            if at >= total {
                at = 0;
            }
            let word = self.words[at / 64] >> (at % 64);
            if word == 0 {
                let skip = 64 - at % 64;
                (at, looked) = (at + skip, looked + skip);
                continue;
            }
            let skip = word.trailing_zeros() as usize;
            (at, looked) = (at + skip, looked + skip);
            let run = self.run_at(at, wanted);
            if run > best.1 {
                best = (at, run);
                if run == wanted {
                    return best;
                }
                look = look.min(looked + LOOK_ON);
            }
            (at, looked) = (at + run, looked + run);
        }
        assert!(best.1 > 0, "no place left");
        best
    }

    fn run_at(&self, start: usize, most: usize) -> usize {
        let end = (start + most).min(self.words.len() * 64);
        let mut at = start;
        while at < end {
            let ones = (self.words[at / 64] >> (at % 64)).trailing_ones() as usize;
            at += ones;
            if ones == 0 || !at.is_multiple_of(64) {
                break;
            }
        }
        at.min(end) - start
    }

    fn clear(&mut self, start: usize, count: usize) {
        let (mut at, end) = (start, start + count);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            self.words[at / 64] &= !((u64::MAX >> (64 - bits)) << (at % 64));
            at += bits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_and_reused() {
        let mut frames = Frames::new(128).expect("address space");
        let got = frames.take(100, true).expect("memory");
        assert_eq!(got.count, 100);
        assert!(frames.content(got.start).iter().all(|&b| b == 0));
        frames.content_mut(got.start).fill(7);
        got.iter().for_each(|p| frames.set_free(p));
        let again = frames.take(64, true).expect("memory");
        assert_eq!((again.count, frames.populated()), (64, 100));
        assert!(
            again
                .iter()
                .all(|p| frames.content(p).iter().all(|&b| b == 0)),
            "a recycled frame is zeroed"
        );
        let left = frames.take_free(1000).expect("free ones");
        assert_eq!((left.count, frames.take_free(1)), (36, None));
        left.iter().for_each(|p| frames.set_empty(p));
        assert_eq!((frames.populated(), frames.take_free(0)), (64, None));
    }

    #[test]
    fn frames_are_taken_in_step_with_pages() {
        let mut frames = Frames::new(64).expect("address space");
        let got = frames.take(6, false).expect("memory");
        for i in [0, 2, 3, 5] {
            frames.set_free(got.at(i));
        }
        frames.set_empty(got.at(1));
        let beyond = |frames: &mut Frames, from, step| frames.take_beyond(got.at(from), step);
        let taken = frames.take(1, false).expect("free").start;
        assert_eq!(taken, got.at(0));
        assert_eq!(beyond(&mut frames, 0, 1), None, "empty");
        assert_eq!(
            beyond(&mut frames, 0, 3),
            None,
            "one that is free lies between"
        );
        assert_eq!(beyond(&mut frames, 0, 2), Some(got.at(2)));
        assert_eq!(beyond(&mut frames, 3, 2), None, "one in use lies between");
        assert_eq!((frames.free(), frames.populated()), (2, 5));
        assert!(frames.is_empty(got.at(1)) && !frames.is_empty(got.at(2)));
    }

    #[test]
    fn empty_places_are_taken_in_one_run_or_not_at_all() {
        let mut frames = Frames::new(64).expect("address space");
        let all = frames.take_empty_run(128).expect("twice as many places");
        assert_eq!(frames.take_empty_run(1), None);
        for i in (0..128).filter(|i| i % 32 != 0) {
            frames.set_empty(all.at(i));
        }
        assert_eq!(frames.take_empty_run(32), None);
        assert_eq!(frames.take_empty_run(31).map(|got| got.count), Some(31));
        assert_eq!(frames.populated(), 4 + 31);
    }

    #[test]
    fn the_longest_run_nearby_is_found_when_none_is_long_enough() {
        let mut bits = Bits::filled(256, false);
        for bit in (0..10).chain(100..150).chain(200..220) {
            bits.put(bit);
        }
        assert_eq!(
            bits.take_run(64),
            FrameRange {
                start: FrameNo(100),
                count: 50
            }
        );
        assert_eq!(bits.take_run(16).count, 16);
        assert_eq!(bits.ones, 14);
    }

    #[test]
    fn a_longer_run_is_not_looked_for_far_away_and_no_one_is_overlooked() {
        let mut bits = Bits::filled(1024, false);
        for bit in (5..15).chain(500..550) {
            bits.put(bit);
        }
        for (start, count) in [(5, 10), (500, 50)] {
            let start = FrameNo(start);
            assert_eq!(bits.take_run(64), FrameRange { start, count });
        }
        assert!(bits.ones == 0 && bits.words.iter().all(|&word| word == 0));
    }
}
