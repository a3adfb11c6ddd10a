//! Slots like a log: each run goes where the last one ended, round and round.
//!
//! Pages that leave one after the other get neighbouring slots, however the slots before were
//! freed, so that read-ahead by slot finds them in that order. First fit would fill old holes and
//! lose it. The price is a larger file: half of it is kept free, so that the log finds long runs
//! when it comes round (Rosenblum and Ousterhout, "The Design and Implementation of a
//! Log-Structured File System", SOSP 1991, for why a log wants free space).

use alloc::vec::Vec;

use super::Slots;
use crate::units::{SlotNo, SlotRange};

const WORD: u32 = u64::BITS;

/// Next-fit allocation over slots `0..capacity`, all of them unavailable at first.
pub struct Log {
    /// One bit a slot, 1 = free, up to the last slot that was made usable.
    words: Vec<u64>,
    available: u32,
    /// Where the last run ended.
    cursor: u32,
    capacity: u32,
}

impl Log {
    /// For up to `capacity` slots, none of which is usable yet. Takes a bit for each that becomes so.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            words: Vec::new(),
            available: 0,
            cursor: 0,
            capacity,
        }
    }

    fn is_free(&self, slot: u32) -> bool {
        self.words[(slot / WORD) as usize] >> (slot % WORD) & 1 == 1
    }

    fn mark(&mut self, range: SlotRange, free: bool) {
        for slot in range.iter() {
            let (word, bit) = (
                &mut self.words[(slot.0 / WORD) as usize],
                1u64 << (slot.0 % WORD),
            );
            assert!((*word & bit == 0) == free, "{slot:?} is so already");
            *word ^= bit;
        }
        if free {
            self.available += range.slots;
        } else {
            self.available -= range.slots;
        }
    }

    /// The first free slot from `from` on, below `end`.
    fn next_free(&self, from: u32, end: u32) -> Option<u32> {
        let mut at = from;
        while at < end {
            let word = self.words[(at / WORD) as usize] >> (at % WORD);
            if word != 0 {
                return Some(at + word.trailing_zeros()).filter(|&slot| slot < end);
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }

    /// The first run of `slots` free slots within `from..end`. Costs a step a word or a run.
    fn find(&self, from: u32, end: u32, slots: u32) -> Option<u32> {
        let mut at = from;
        loop {
            let start = self.next_free(at, end)?;
            let most = end.min(start.saturating_add(slots));
            match (start..most).find(|&slot| !self.is_free(slot)) {
                Some(taken) => at = taken,
                None if most - start == slots => return Some(start),
                None => return None,
            }
        }
    }
}

impl Slots for Log {
    fn alloc(&mut self, slots: u32) -> Option<SlotRange> {
        assert!(slots > 0, "a run has at least one slot");
        if slots > self.available {
            return None;
        }
        let (cursor, end) = (self.cursor, self.words.len() as u32 * WORD);
        let start = self
            .find(cursor, end, slots)
            .or_else(|| self.find(0, end.min(cursor.saturating_add(slots)), slots))?;
        let run = SlotRange::new(SlotNo(start), slots);
        self.mark(run, false);
        self.cursor = start + slots;
        Some(run)
    }

    fn free(&mut self, range: SlotRange) {
        self.mark(range, true);
    }

    fn add(&mut self, range: SlotRange) {
        assert!(
            range.end().0 <= self.capacity,
            "{range:?} leaves the capacity"
        );
        let words = range.end().0.div_ceil(WORD) as usize;
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        self.mark(range, true);
    }

    fn available(&self) -> u32 {
        self.available
    }

    fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    fn wants_room(&self, used: u32, chunk: u32) -> bool {
        self.available < used.max(2 * chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_each_other_and_go_round() {
        let mut log = Log::new(256);
        log.add(SlotRange::new(SlotNo(0), 256));
        let runs: Vec<_> = (0..3).map(|_| log.alloc(64).map(|r| r.start.0)).collect();
        assert_eq!(runs, [Some(0), Some(64), Some(128)]);
        log.free(SlotRange::new(SlotNo(0), 64));
        assert_eq!(
            log.alloc(64).map(|r| r.start.0),
            Some(192),
            "not the hole behind"
        );
        assert_eq!(log.alloc(32).map(|r| r.start.0), Some(0));
        assert_eq!(log.alloc(33), None);
        assert_eq!(log.alloc(32).map(|r| r.start.0), Some(32));
        assert_eq!((log.alloc(1), log.available()), (None, 0));
    }

    #[test]
    fn a_run_across_the_cursor_is_found() {
        let mut log = Log::new(128);
        log.add(SlotRange::new(SlotNo(0), 128));
        let first = log.alloc(96).expect("room");
        log.free(SlotRange::new(SlotNo(64), 32));
        assert_eq!(log.alloc(64).map(|r| r.start.0), Some(64), "{first:?}");
    }
}
