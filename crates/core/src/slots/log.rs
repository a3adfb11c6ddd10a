//! Slots like a log: each run goes where the last one ended, round and round.
//!
//! Pages that leave one after the other get neighbouring slots, however the slots before were
//! freed, so that read-ahead by slot finds them in that order. First fit would fill old holes and
//! lose it. The price is a larger file: half of it is kept free, so that the log finds long runs
//! when it comes round (Rosenblum and Ousterhout, "The Design and Implementation of a
//! Log-Structured File System", SOSP 1991, for why a log wants free space).

use super::Slots;
use super::bits::Bits;
use crate::units::{SlotNo, SlotRange};

/// Next-fit allocation over slots `0..capacity`, all of them unavailable at first.
pub struct Log {
    bits: Bits,
    /// Where the last run ended.
    cursor: u32,
    /// Slots that are usable, free or not.
    usable: u32,
}

impl Log {
    /// For up to `capacity` slots, none of which is usable yet. Takes a bit for each that becomes so.
    #[must_use]
    pub const fn new(capacity: u32) -> Self {
        Self {
            bits: Bits::new(capacity),
            cursor: 0,
            usable: 0,
        }
    }
}

impl Slots for Log {
    fn alloc(&mut self, slots: u32) -> Option<SlotRange> {
        assert!(slots > 0, "a run has at least one slot");
        if slots > self.bits.available() {
            return None;
        }
        let (cursor, end) = (self.cursor, self.bits.end());
        let start = self
            .bits
            .find(cursor, end, slots)
            .or_else(|| (self.bits).find(0, end.min(cursor.saturating_add(slots)), slots))?;
        let run = SlotRange::new(SlotNo(start), slots);
        self.bits.mark(run, false);
        self.cursor = start + slots;
        Some(run)
    }

    fn free(&mut self, range: SlotRange) {
        self.bits.mark(range, true);
    }

    fn add(&mut self, range: SlotRange) {
        self.usable += range.slots;
        self.bits.add(range);
    }

    fn remove(&mut self, range: SlotRange) -> bool {
        self.bits.mark(range, false);
        self.usable -= range.slots;
        true
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

    fn wants_room(&self, used: u32, chunk: u32) -> bool {
        // What is kept free for the log alone is no more than half of what all processes may have: another may need it.
        let most = self.bits.capacity() / 2;
        let spare = if self.usable < most { used } else { 0 };
        self.available() < spare.max(2 * chunk)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

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
    fn half_is_kept_free_while_half_is_left_to_others() {
        let mut log = Log::new(400);
        log.add(SlotRange::new(SlotNo(0), 150));
        log.alloc(80).expect("room");
        assert!(log.wants_room(80, 8) && !log.wants_room(70, 8));
        log.add(SlotRange::new(SlotNo(150), 50));
        log.alloc(100).expect("room");
        assert!(!log.wants_room(180, 8), "20 are free, and 16 needed");
        log.alloc(5).expect("room");
        assert!(log.wants_room(185, 8));
    }

    #[test]
    fn what_is_removed_is_not_handed_out_until_it_is_added_again() {
        let mut log = Log::new(256);
        log.add(SlotRange::new(SlotNo(0), 256));
        log.alloc(64).expect("room");
        let middle = SlotRange::new(SlotNo(64), 64);
        assert!(log.remove(middle));
        assert_eq!((log.available(), log.free_word(1)), (128, 0));
        assert_eq!(log.alloc(64).map(|r| r.start.0), Some(128));
        assert!(!log.wants_room(64, 32));
        log.add(middle);
        assert_eq!(log.alloc(128), None, "a run is broken by what is in use");
        assert_eq!(log.alloc(64).map(|r| r.start.0), Some(192));
        assert_eq!(log.alloc(64), Some(middle));
    }

    #[test]
    #[should_panic(expected = "is so already")]
    fn what_is_in_use_is_not_removed() {
        let mut log = Log::new(64);
        log.add(SlotRange::new(SlotNo(0), 64));
        log.alloc(1).expect("room");
        log.remove(SlotRange::new(SlotNo(0), 64));
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
