//! Free slots as a bitmap, and runs of them.

use alloc::vec::Vec;

use crate::units::SlotRange;

const WORD: u32 = u64::BITS;

/// Slots `0..capacity`, all of them unavailable at first. Takes a bit for each up to the last that
/// was made usable.
pub(super) struct Bits {
    /// 1 = free.
    words: Vec<u64>,
    available: u32,
    capacity: u32,
}

impl Bits {
    pub(super) const fn new(capacity: u32) -> Self {
        Self {
            words: Vec::new(),
            available: 0,
            capacity,
        }
    }

    /// Makes `range` usable.
    pub(super) fn add(&mut self, range: SlotRange) {
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

    /// As [`super::Slots::free_word`].
    pub(super) fn free_word(&self, word: u32) -> u64 {
        self.words.get(word as usize).copied().unwrap_or(0)
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) const fn available(&self) -> u32 {
        self.available
    }

    /// Behind the last slot that can be free.
    pub(super) const fn end(&self) -> u32 {
        self.words.len() as u32 * WORD
    }

    pub(super) const fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// # Panics
    /// When one of `range` is so already.
    pub(super) fn mark(&mut self, range: SlotRange, free: bool) {
        let (mut at, end) = (range.start.0, range.end().0);
        while at < end {
            let pages = (WORD - at % WORD).min(end - at);
            let mask = u64::MAX >> (WORD - pages) << (at % WORD);
            let word = &mut self.words[(at / WORD) as usize];
            let so = if free { *word } else { !*word };
            assert!(so & mask == 0, "one of {range:?} is so already");
            *word ^= mask;
            at += pages;
        }
        if free {
            self.available += range.slots;
        } else {
            self.available -= range.slots;
        }
    }

    /// The first slot from `from` on, below `end`, that is free, or is not.
    fn next(&self, free: bool, from: u32, end: u32) -> Option<u32> {
        let flip = if free { 0 } else { u64::MAX };
        let mut at = from;
        while at < end {
            let word = (self.words[(at / WORD) as usize] ^ flip) >> (at % WORD);
            if word != 0 {
                return Some(at + word.trailing_zeros()).filter(|&slot| slot < end);
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }

    /// The first run of `slots` free slots within `from..end`. Costs a step a word or a run.
    pub(super) fn find(&self, from: u32, end: u32, slots: u32) -> Option<u32> {
        let mut at = from;
        loop {
            let start = self.next(true, at, end)?;
            let most = end.min(start.saturating_add(slots));
            match self.next(false, start, most) {
                Some(taken) => at = taken,
                None if most - start == slots => return Some(start),
                None => return None,
            }
        }
    }
}
