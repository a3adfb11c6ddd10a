//! Where slots were given back of which the store was not told yet.

use super::Bits;
use crate::slots::{FREE_WORD_SLOTS as WORD, Slots};
use crate::units::{SlotNo, SlotRange};

/// Marks words of the allocator's in which slots were given back: a bit for 64 slots. Which of them are free is the allocator's to
/// say, at the moment when they are told; so what was written again is not among them.
#[derive(Default)]
pub(super) struct Untold {
    marks: Bits,
    /// The word that is told, and those of its slots that are left.
    at: u32,
    left: u64,
}

impl Untold {
    /// Makes room for slots below `end`.
    pub(super) fn reach(&mut self, end: SlotNo) {
        self.marks.reach(end.0.div_ceil(WORD) as usize);
    }

    /// `range`, which is not empty, was given back.
    pub(super) fn add(&mut self, range: SlotRange) {
        for word in range.start.0 / WORD..range.end().0.div_ceil(WORD) {
            self.marks.set(SlotNo(word));
        }
    }

    /// The next run of free slots in words that are marked; what it looked at is not marked any more. Looks at up to `look` words, or at 64 unmarked ones for one.
    /// `None` when these are looked at, or the end is reached, from where the next call begins anew.
    pub(super) fn next(&mut self, look: &mut usize, free: &dyn Slots) -> Option<SlotRange> {
        // Some may have been allocated since the last call.
        self.left &= free.free_word(self.at);
        while self.left == 0 {
            *look = look.checked_sub(1)?;
            self.go_on(look, free);
        }
        let bit = self.left.trailing_zeros();
        let mut run = SlotRange::new(SlotNo(self.at * WORD + bit), self.take(bit));
        while run.end().0 == (self.at + 1) * WORD && self.marks.take(SlotNo(self.at + 1)) {
            self.at += 1;
            self.left = free.free_word(self.at);
            run.slots += self.take(0);
        }
        Some(run)
    }

    /// Takes the run that begins with bit `bit`, which may be empty; returns its length.
    fn take(&mut self, bit: u32) -> u32 {
        let ones = (self.left >> bit).trailing_ones();
        if ones > 0 {
            self.left &= !(u64::MAX >> (WORD - ones) << bit);
        }
        ones
    }

    /// To the next word that is marked, past at most 64 others.
    fn go_on(&mut self, look: &mut usize, free: &dyn Slots) {
        let Some(&marks) = self.marks.words.get(self.at as usize / 64) else {
            (self.at, *look) = (0, 0);
            return;
        };
        let marks = marks >> (self.at % 64);
        if marks == 0 {
            self.at = (self.at / 64 + 1) * 64;
            return;
        }
        self.at += marks.trailing_zeros();
        self.marks.take(SlotNo(self.at));
        self.left = free.free_word(self.at);
    }

    /// Bytes of heap.
    pub(super) const fn heap_bytes(&self) -> usize {
        self.marks.words.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    use super::*;
    use crate::slots::REGISTRY;

    fn range(start: u32, end: u32) -> SlotRange {
        SlotRange::new(SlotNo(start), end - start)
    }

    /// All of 20,000 slots are allocated, by each allocator.
    fn each(test: impl Fn(&mut Untold, &mut Box<dyn Slots>)) {
        for entry in REGISTRY {
            let mut slots = (entry.build)(20_000);
            slots.add(range(0, 20_000));
            while slots.alloc(1).is_some() {}
            let mut untold = Untold::default();
            untold.reach(SlotNo(20_000));
            test(&mut untold, &mut slots);
        }
    }

    fn give_back(untold: &mut Untold, slots: &mut Box<dyn Slots>, range: SlotRange) {
        slots.free(range);
        untold.add(range);
    }

    fn all(untold: &mut Untold, slots: &dyn Slots) -> Vec<SlotRange> {
        let mut runs = Vec::new();
        for _ in 0..3 {
            let mut look = usize::MAX;
            while let Some(run) = untold.next(&mut look, slots) {
                runs.push(run);
            }
        }
        runs
    }

    #[test]
    fn runs_come_out_whole_and_once() {
        each(|untold, slots| {
            let ends = range(19_999, 20_000);
            let runs = [
                range(0, 1),
                range(3, 64),
                range(65, 300),
                range(512, 15_000),
                ends,
            ];
            for run in runs {
                let each: Vec<_> = run.iter().collect();
                for &slot in each.iter().rev() {
                    give_back(untold, slots, SlotRange::new(slot, 1));
                }
            }
            assert_eq!(all(untold, &**slots), runs);
            assert_eq!(all(untold, &**slots), []);
        });
    }

    #[test]
    fn what_is_allocated_again_is_not_told() {
        each(|untold, slots| {
            for run in [range(128, 130), range(132, 150), range(200, 256)] {
                give_back(untold, slots, run);
            }
            assert_eq!(untold.next(&mut 2, &**slots), Some(range(128, 130)));
            let mut taken = Vec::new();
            for _ in 0..30 {
                taken.extend(slots.alloc(1).expect("room").iter());
            }
            let told = all(untold, &**slots);
            let told: Vec<_> = told.iter().flat_map(|run| run.iter()).collect();
            assert!(taken.iter().all(|slot| !told.contains(slot)), "{told:?}");
            let left = range(132, 256).iter();
            let left = left.filter(|slot| !(150..200).contains(&slot.0) && !taken.contains(slot));
            assert_eq!(told, left.collect::<Vec<_>>());
        });
    }

    #[test]
    fn a_look_ends_and_the_next_goes_on_there() {
        each(|untold, slots| {
            let last = range(19_000, 19_001);
            give_back(untold, slots, last);
            let mut looks = 0;
            let found = loop {
                looks += 1;
                if let Some(run) = untold.next(&mut 2, &**slots) {
                    break run;
                }
            };
            assert_eq!((looks, found), (3, last));
        });
    }
}
