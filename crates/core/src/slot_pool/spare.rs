//! Extents that are not needed any more.
//!
//! A program that was large for a while leaves a large file, whose room others could use. As much again as is in use stays free, and an extent, so that what is
//! given up is not asked for at once, and it is kept for some seconds, so that where memory is freed and taken in turns no room comes and goes.

use alloc::vec::Vec;

use crate::slots::{FREE_WORD_SLOTS as WORD, Slots};
use crate::units::SlotRange;

/// Looks that found too much room, one after another, before some is given up: 5 s of a tick of 100 ms each. A choice between one look and a minute, for file
/// systems that are slower to reserve than ext4 on a solid-state disk, where it is level: four phases of 96 MiB, a second apart, take 5.10 s [4.92-5.15] under
/// `--memory 24M`, and 5.06 s [4.90-5.18] with 1 (five rounds by turns, load 0.5 to 1.1).
const PATIENCE: u32 = 50;
/// Extents that are looked at at a time: a step for each, and one more for each 64 slots that are free. A choice: 1 GiB of extents as they are live, 4,096 steps at most.
const LOOK: usize = 64;

/// The extents that may be written, and for how long there were too many.
#[derive(Default)]
pub(super) struct Spare {
    /// As they were granted, ascending.
    extents: Vec<SlotRange>,
    /// The one that is looked at next, from the end on.
    next: usize,
    looks: u32,
}

impl Spare {
    /// An extent was granted.
    pub(super) fn granted(&mut self, extent: SlotRange) {
        let at = self.extents.partition_point(|own| own.start < extent.start);
        self.extents.insert(at, extent);
        self.looks = 0;
    }

    /// It was given up.
    pub(super) fn given_up(&mut self, extent: SlotRange) {
        self.extents.retain(|own| *own != extent);
    }

    /// An extent to be given up, `used` slots being in use.
    pub(super) fn look(&mut self, used: usize, free: &dyn Slots) -> Option<SlotRange> {
        let spare = |extent: SlotRange| {
            let least = 2 * (used as u64 + u64::from(extent.slots));
            u64::from(free.available()) >= least
        };
        if !self.extents.last().is_some_and(|&extent| spare(extent)) {
            self.looks = 0;
            return None;
        }
        self.looks += 1;
        if self.looks < PATIENCE {
            return None;
        }
        for _ in 0..LOOK.min(self.extents.len()) {
            self.next = self.next.checked_sub(1).unwrap_or(self.extents.len() - 1);
            let extent = self.extents.get(self.next);
            if let Some(&extent) = extent.filter(|&&extent| spare(extent) && is_empty(extent, free))
            {
                return Some(extent);
            }
        }
        None
    }

    /// Bytes of heap.
    pub(super) const fn heap_bytes(&self) -> usize {
        self.extents.capacity() * size_of::<SlotRange>()
    }
}

/// Whether nothing is in any of `extent`.
fn is_empty(extent: SlotRange, free: &dyn Slots) -> bool {
    let (start, end) = (extent.start.0, extent.end().0);
    (start / WORD..end.div_ceil(WORD)).all(|word| {
        let within = start.max(word * WORD)..end.min((word + 1) * WORD);
        let mask = u64::MAX >> (WORD - within.len() as u32) << (within.start % WORD);
        free.free_word(word) & mask == mask
    })
}
