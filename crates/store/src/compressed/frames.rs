//! The frames that the pool has: which are in use, and finding neighbours that are not.

use outpage_core::units::PAGE_BYTES;

use super::classes::BLOCK_FRAMES_MAX;
use super::table::Table;

/// Memory that takes RAM once it is written, page by page. Its frames are numbered from 0.
///
/// It is handed out from the lowest frame on in blocks of up to four, so it ought to be larger than the pool's highest limit, by a
/// quarter or so: between blocks of other sizes single frames stay over.
pub trait Memory {
    /// How many frames there are.
    fn capacity(&self) -> usize;
    /// Bytes `start..end` of it, counted from the first frame on.
    fn bytes(&self, start: usize, end: usize) -> &[u8];
    /// The same, to be written.
    fn bytes_mut(&mut self, start: usize, end: usize) -> &mut [u8];
    /// What is in frames `first..first + count` is not needed any more: they go back to the kernel.
    fn give_back(&mut self, first: usize, count: usize);
}

/// Most frames that are kept for the next block. A choice: giving back costs a system call and a fault for each frame when it is written
/// again, and with pages that come and go at random in a pool 90 % full 16 spare 60 to 82 % of these calls (`benches/pool.rs`).
const IDLE_MAX: usize = 16;
/// At most one idle frame for so many in use, so that a small pool does not consist of them. A choice: 3 %.
const USED_PER_IDLE: usize = 32;

/// Frames that are handed out in runs of up to [`BLOCK_FRAMES_MAX`].
pub(super) struct Frames<M> {
    memory: M,
    /// A bit for each frame that is in use or idle. A run lies within one word.
    taken: Table<u64>,
    lacking: Lacking,
    used: usize,
    /// Runs that are not in use and were not given back, the latest last: first frame, and how many; `idle_runs` of them.
    idle: [(usize, usize); IDLE_MAX],
    idle_runs: usize,
    idle_frames: usize,
}

impl<M: Memory> Frames<M> {
    pub(super) fn new(memory: M) -> Self {
        let words = memory.capacity().div_ceil(64);
        Self {
            memory,
            taken: Table::new(words),
            lacking: Lacking::new(words),
            used: 0,
            idle: [(0, 0); IDLE_MAX],
            idle_runs: 0,
            idle_frames: 0,
        }
    }

    #[cfg(test)]
    pub(super) const fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// Frames beside these that have RAM.
    pub(super) const fn idle(&self) -> usize {
        self.idle_frames
    }

    pub(super) const fn table_pages(&self) -> usize {
        self.taken.pages()
    }

    pub(super) const fn fixed_bytes(&self) -> usize {
        self.taken.fixed_bytes() + self.lacking.bits.len() * 8
    }

    fn free(&self, word: usize) -> u64 {
        let over = (word + 1) * 64;
        let beyond = over.saturating_sub(self.memory.capacity());
        !self.taken.get(word) & (u64::MAX >> beyond)
    }

    /// The lowest `count` neighbouring frames that are free, and pages of tables that taking them would add.
    pub(super) fn find(&self, count: usize) -> Option<(usize, usize)> {
        let word = self.lacking.first_without(count)?;
        let runs = runs(self.free(word), count);
        // The last word may be short.
        let first = (runs != 0).then(|| word * 64 + runs.trailing_zeros() as usize)?;
        Some((first, self.taken.fresh(word, word + 1)))
    }

    pub(super) fn take(&mut self, first: usize, count: usize) {
        self.flip(first, count);
        self.used += count;
    }

    /// Neighbouring idle frames, which are in use then: the latest ones of those that are as many, or else more.
    pub(super) fn take_idle(&mut self, count: usize) -> Option<usize> {
        let runs = &self.idle[..self.idle_runs];
        let as_many = runs.iter().rposition(|run| run.1 == count);
        let at = as_many.or_else(|| runs.iter().rposition(|run| run.1 > count))?;
        let (first, all) = self.idle[at];
        if all == count {
            self.drop_run(at);
        } else {
            self.idle[at] = (first + count, all - count);
        }
        self.idle_frames -= count;
        self.used += count;
        Some(first)
    }

    /// Frames are not in use any more: idle, or given back where there are enough of these.
    pub(super) fn put_back(&mut self, first: usize, count: usize) {
        self.used -= count;
        let most = IDLE_MAX.min(self.used / USED_PER_IDLE);
        // The oldest leave: what came last may still be in the processor's cache.
        let over = (self.idle_frames + count).saturating_sub(most);
        self.give_back_idle(over);
        if self.idle_frames + count <= most {
            self.idle[self.idle_runs] = (first, count);
            self.idle_runs += 1;
            self.idle_frames += count;
        } else {
            self.give_back(first, count);
        }
    }

    /// Gives back idle frames, whole runs of them, until `least` are or there are no more.
    pub(super) fn give_back_idle(&mut self, least: usize) {
        let mut given = 0;
        while given < least && self.idle_runs > 0 {
            let (first, count) = self.idle[0];
            self.drop_run(0);
            self.idle_frames -= count;
            given += count;
            self.give_back(first, count);
        }
    }

    fn drop_run(&mut self, at: usize) {
        self.idle.copy_within(at + 1..self.idle_runs, at);
        self.idle_runs -= 1;
    }

    fn give_back(&mut self, first: usize, count: usize) {
        self.flip(first, count);
        self.memory.give_back(first, count);
    }

    fn flip(&mut self, first: usize, count: usize) {
        let word = first / 64;
        let run = ((1 << count) - 1) << (first % 64);
        self.taken.set(word, self.taken.get(word) ^ run);
        let free = self.free(word);
        for count in 1..=BLOCK_FRAMES_MAX {
            self.lacking.set(count, word, runs(free, count) == 0);
        }
    }

    pub(super) fn bytes(&self, start: usize, len: usize) -> &[u8] {
        self.memory.bytes(start, start + len)
    }

    pub(super) fn bytes_mut(&mut self, start: usize, len: usize) -> &mut [u8] {
        self.memory.bytes_mut(start, start + len)
    }

    /// Frame `first`'s first byte.
    pub(super) const fn start(first: u32) -> usize {
        first as usize * PAGE_BYTES
    }
}

/// A bit for each place where `count` bits of `free` in a row begin.
fn runs(free: u64, count: usize) -> u64 {
    (1..count).fold(free, |runs, by| runs & free >> by)
}

/// 64 to the power of it are more words than a pool can have.
const LEVELS_MAX: usize = 5;

/// Which words of 64 frames lack a run of free frames, by its length, so that one that has some is found in a step a level.
///
/// Of each length there is a bit for each word, a bit for each 64 of these that are all set, and so on up to one word.
struct Lacking {
    bits: Vec<u64>,
    /// Where each level begins within the bits of a length.
    starts: [usize; LEVELS_MAX],
    levels: usize,
    /// Words for each length.
    stride: usize,
    /// Bits of the first level.
    len: usize,
}

impl Lacking {
    fn new(words: usize) -> Self {
        let (mut starts, mut levels, mut stride, mut left) = ([0; LEVELS_MAX], 0, 0, words);
        while levels == 0 || left > 1 {
            left = left.div_ceil(64);
            starts[levels] = stride;
            stride += left;
            levels += 1;
        }
        Self {
            bits: vec![0; stride * BLOCK_FRAMES_MAX],
            starts,
            levels,
            stride,
            len: words,
        }
    }

    fn set(&mut self, count: usize, mut at: usize, lacks: bool) {
        for level in 0..self.levels {
            let word = &mut self.bits[(count - 1) * self.stride + self.starts[level] + at / 64];
            let before = *word;
            let bit = 1 << (at % 64);
            *word = if lacks { before | bit } else { before & !bit };
            if (before == u64::MAX) == (*word == u64::MAX) {
                break;
            }
            at /= 64;
        }
    }

    /// The lowest word that has a run of `count`; the last one though it has none when it is shorter than 64 frames and no other has.
    fn first_without(&self, count: usize) -> Option<usize> {
        let bits = &self.bits[(count - 1) * self.stride..count * self.stride];
        let mut at = 0;
        for level in (0..self.levels).rev() {
            // What lies beyond the end of a level is never set, so it is found only when nothing else is.
            let end = if level + 1 < self.levels {
                self.starts[level + 1]
            } else {
                self.stride
            };
            let word = bits[self.starts[level]..end].get(at)?;
            at = at * 64 + word.trailing_ones() as usize;
        }
        (at < self.len).then_some(at)
    }
}
