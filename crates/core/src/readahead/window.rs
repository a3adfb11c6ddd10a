//! What to read for a major fault: the run that is waited for, and what else.

use crate::units::{SlotNo, SlotRange};

/// The most runs of a window besides the first: one for each slot of the widest window that
/// scatters (32 slots), so only holes in larger ones can cost runs, the farthest first.
pub const RUNS_MAX: usize = 32;

/// Disjoint runs of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Runs {
    /// `None` as long as there is none: most windows are one run, and are made at every major fault.
    runs: Option<[SlotRange; RUNS_MAX]>,
    len: usize,
}

impl Runs {
    /// No run.
    pub const NONE: Self = Self { runs: None, len: 0 };

    fn push(&mut self, run: SlotRange) {
        let none = [SlotRange::new(SlotNo(0), 0); RUNS_MAX];
        self.runs.get_or_insert(none)[self.len] = run;
        self.len += 1;
    }

    /// The runs, those next to the fault first.
    #[must_use]
    pub fn as_slice(&self) -> &[SlotRange] {
        self.runs.as_ref().map_or(&[], |runs| &runs[..self.len])
    }
}

/// What to read for a major fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Read at once, as one run. Holds the fault's slot, and paged-out slots only.
    pub now: SlotRange,
    /// The rest of a window that is not one run. Read with `now`, each as a run of its own, but
    /// not waited for. Disjoint from `now`, paged-out slots only.
    pub rest: Runs,
    /// Read after it without anybody waiting: the next window. Disjoint from the others, paged-out
    /// slots only.
    pub behind: Option<SlotRange>,
    /// The run was chosen because slots are touched in descending order.
    pub downward: bool,
    /// The window that was chosen, in slots, before it was cut to what is paged out; without
    /// `behind`.
    pub size: u32,
}

impl Window {
    /// Nothing but the slot itself.
    #[must_use]
    pub const fn one(slot: SlotNo) -> Self {
        Self::run(SlotRange::new(slot, 1))
    }

    /// One run.
    #[must_use]
    pub const fn run(now: SlotRange) -> Self {
        Self {
            now,
            // Not `Runs::NONE`: a constant is copied whole, the room for runs included.
            rest: Runs { runs: None, len: 0 },
            behind: None,
            downward: false,
            size: now.slots,
        }
    }

    /// What is left of the window of the fault at `slot` when at most `most` pages are read beside that
    /// one: of [`Self::now`] the part in the stream's direction first, then the other runs.
    #[must_use]
    pub fn within(&self, slot: SlotNo, most: u32) -> Self {
        let now = clip(self.now, slot, most.saturating_add(1), self.downward);
        let mut left = most - (now.slots - 1);
        let mut rest = Runs { runs: None, len: 0 };
        for run in self.rest.as_slice() {
            let slots = run.slots.min(left);
            if slots > 0 {
                rest.push(if run.start < slot {
                    SlotRange::new(SlotNo(run.end().0 - slots), slots)
                } else {
                    SlotRange::new(run.start, slots)
                });
            }
            left -= slots;
        }
        let part = |range: SlotRange| match range.slots.min(left) {
            0 => None,
            slots if self.downward => Some(SlotRange::new(SlotNo(range.end().0 - slots), slots)),
            slots => Some(SlotRange::new(range.start, slots)),
        };
        Self {
            now,
            rest,
            behind: self.behind.and_then(part),
            ..*self
        }
    }

    /// Pages of the window, but for the fault's own.
    #[must_use]
    pub fn ahead(&self) -> u32 {
        let rest: u32 = self.rest.as_slice().iter().map(|run| run.slots).sum();
        self.now.slots - 1 + rest + self.behind.map_or(0, |range| range.slots)
    }

    /// The window of the fault at `slot` that reads `slots`, different paged-out ones in any order
    /// and `slot` among them.
    pub(super) fn of(slot: SlotNo, slots: &mut [u32]) -> Self {
        slots.sort_unstable();
        let at = slots.partition_point(|&other| other < slot.0);
        let last = at + leading(&slots[at..]);
        let first = at + 1 - trailing(&slots[..=at]);
        let (mut below, mut above) = (&slots[..first], &slots[last..]);
        let mut window = Self::run(range(&slots[first..last]));
        while window.rest.len < RUNS_MAX && !(below.is_empty() && above.is_empty()) {
            let down = below.last().map_or(u32::MAX, |other| slot.0 - other);
            let up = above.first().map_or(u32::MAX, |other| other - slot.0);
            if down < up {
                let (left, run) = below.split_at(below.len() - trailing(below));
                window.rest.push(range(run));
                below = left;
            } else {
                let (run, left) = above.split_at(leading(above));
                window.rest.push(range(run));
                above = left;
            }
        }
        window
    }
}

/// The part of `run` of at most `most` slots that holds `slot` and lies in the stream's direction.
pub(crate) fn clip(run: SlotRange, slot: SlotNo, most: u32, downward: bool) -> SlotRange {
    if run.slots <= most {
        return run;
    }
    let (low, high) = (run.start.0, run.end().0);
    let start = if downward {
        (slot.0 + 1).saturating_sub(most).max(low)
    } else {
        slot.0.min(high - most)
    };
    SlotRange::new(SlotNo(start), most)
}

/// How many of the ascending `slots` are one run from the first on.
fn leading(slots: &[u32]) -> usize {
    let together = |pair: &&[u32]| pair[0] + 1 == pair[1];
    slots.len().min(1) + slots.windows(2).take_while(together).count()
}

/// How many of the ascending `slots` are one run up to the last.
fn trailing(slots: &[u32]) -> usize {
    let together = |pair: &&[u32]| pair[0] + 1 == pair[1];
    slots.len().min(1) + slots.windows(2).rev().take_while(together).count()
}

fn range(run: &[u32]) -> SlotRange {
    SlotRange::new(SlotNo(run[0]), run.len() as u32)
}
