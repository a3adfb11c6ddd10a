//! Linux's slots of a rotating disk: one behind the other in runs of 256, the lowest run first.
//!
//! After `scan_swap_map` of Linux 2.6.28 (`mm/swapfile.c`). Slots are taken from a run of
//! [`CLUSTER`] free ones until so many are taken; then the lowest such run is next. Without one,
//! free slots are taken from the lowest on. Where the kernel takes slot by slot, a chunk that does
//! not fit what is left of the run begins another here.

use super::Slots;
use super::bits::Bits;
use crate::units::{SlotNo, SlotRange};

/// `SWAPFILE_CLUSTER`.
const CLUSTER: u32 = 256;

/// The allocator over slots `0..capacity`, all of them unavailable at first.
pub struct Linux {
    bits: Bits,
    /// Where the last run ended (`cluster_next`).
    cursor: u32,
    /// Slots until another run of [`CLUSTER`] is looked for (`cluster_nr`).
    left: u32,
}

impl Linux {
    /// For up to `capacity` slots, none of which is usable yet. Takes a bit for each that becomes so.
    #[must_use]
    pub const fn new(capacity: u32) -> Self {
        Self {
            bits: Bits::new(capacity),
            cursor: 0,
            left: 0,
        }
    }
}

impl Slots for Linux {
    fn alloc(&mut self, slots: u32) -> Option<SlotRange> {
        assert!(slots > 0, "a run has at least one slot");
        let end = self.bits.end();
        if self.left < slots {
            let whole = slots.max(CLUSTER);
            self.left = whole;
            self.cursor = self.bits.find(0, end, whole).unwrap_or(0);
        }
        let start = self.bits.find(self.cursor, end, slots);
        let start = start.or_else(|| self.bits.find(0, end, slots))?;
        let run = SlotRange::new(SlotNo(start), slots);
        self.bits.mark(run, false);
        self.cursor = start + slots;
        self.left -= slots;
        Some(run)
    }

    fn free(&mut self, range: SlotRange) {
        self.bits.mark(range, true);
    }

    fn add(&mut self, range: SlotRange) {
        self.bits.add(range);
    }

    fn available(&self) -> u32 {
        self.bits.available()
    }

    fn free_word(&self, word: u32) -> u64 {
        self.bits.free_word(word)
    }

    fn heap_bytes(&self) -> usize {
        self.bits.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u32, slots: u32) -> SlotRange {
        SlotRange::new(SlotNo(start), slots)
    }

    fn starts(linux: &mut Linux, runs: usize, slots: u32) -> [Option<u32>; 3] {
        assert!(runs <= 3);
        let mut starts = [None; 3];
        for start in starts.iter_mut().take(runs) {
            *start = linux.alloc(slots).map(|r| r.start.0);
        }
        starts
    }

    #[test]
    fn a_run_of_256_is_used_up_before_the_lowest_free_one_is_next() {
        let mut linux = Linux::new(1024);
        linux.add(range(0, 1024));
        assert_eq!(starts(&mut linux, 3, 128), [Some(0), Some(128), Some(256)]);
        linux.free(range(0, 256));
        assert_eq!(
            starts(&mut linux, 2, 128),
            [Some(384), Some(0), None],
            "the run goes on, then the lowest"
        );
    }

    #[test]
    fn holes_of_less_than_256_wait_until_there_is_no_such_run() {
        let mut linux = Linux::new(768);
        linux.add(range(0, 768));
        assert_eq!(starts(&mut linux, 3, 256), [Some(0), Some(256), Some(512)]);
        linux.free(range(100, 64));
        linux.free(range(512, 256));
        assert_eq!(starts(&mut linux, 1, 32), [Some(512), None, None]);
        linux.free(range(400, 8));
        for _ in 0..7 {
            assert!(linux.alloc(32).is_some_and(|r| r.start.0 > 512));
        }
        assert_eq!(starts(&mut linux, 3, 32), [Some(100), Some(132), None]);
        assert_eq!(starts(&mut linux, 2, 8), [Some(400), None, None]);
        assert_eq!(linux.available(), 0);
    }
}
