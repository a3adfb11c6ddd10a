//! How many frames the pool gets: as many as save most waiting.
//!
//! A frame of the pool holds several pages, each of which saves a read less what a touch in the pool costs. A frame of the program's holds one, and saves all of
//! that touch. Which is more depends on how far pages come back: on how many left after them, and are out. So what was waited for is counted by that distance; what
//! it would have come to with more frames here or there is a sum over these counts; and the part moves a step towards the least.
//!
//! Of pages that did not leave no distance is known. Touches of staged pages tell how dense they are at the border.

use crate::refaults::{Refaults, SPANS};
use crate::tier::Costs;

/// What is seen of a pager when the part is weighed.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// All frames.
    pub frames: usize,
    /// Frames that the pool has.
    pub pool: usize,
    /// Staged pages.
    pub staged: usize,
    /// Touches of staged pages that were in use before, since the pager began.
    pub rescued: u64,
    /// What touches of pages that are out cost.
    pub costs: Costs,
    /// What was waited for by distance, up to all frames.
    pub near: &'a Refaults,
    /// The same up to [`BEYOND`] times as many.
    pub far: &'a Refaults,
}

/// Distances are told apart up to so many times all frames: three quarters of them hold so many pages that come to a tenth.
pub const BEYOND: usize = 8;

/// Spans that are taken from the near counts, up to an eighth of all frames: where more is out, those of longer distances have lost their places to others.
const NEAR: usize = SPANS - 3;
/// The next one's place in the far counts.
const FAR: usize = SPANS - BEYOND.ilog2() as usize - 3;
const BINS: usize = NEAR + SPANS - FAR;
/// Each span is looked at in so many places, as if it were even between its bounds. A choice.
const CELLS: usize = 8;

/// The part is counted in so many.
const WHOLE: usize = 1024;
/// A step: a 32nd of all frames to the pool, which takes of them what it fills, and a 128th from it, whose pages leave at once, each for a read: to come back it
/// takes the pool a step's refaults. Twice as many as the last one where it goes on, up to an eighth; the first one to the pool is a quarter of the way that is thought best, for
/// of two ways over a hill the one that is begun is to be taken. Choices.
const STEP: usize = WHOLE / 32;
const STEP_BACK: usize = WHOLE / 128;
const STEP_MAX: usize = WHOLE / 8;
/// Where it begins, and the least: what is kept there tells whether more would be worth it.
const BEGIN: usize = WHOLE / 4;
const LEAST: usize = WHOLE / 32;
/// What a step is thought to save, in parts of all that is waited for: less is not told from chance.
const WORTH: u64 = 20;

/// A page comes to a 30th at least, and a 20th of the victims go to the pool, in thousandths: bounds of what follows from few of them.
const SIZE_MIN: u64 = 33;
const POOLED_MIN: u64 = 50;
/// Fewer refaults do not tell how far the pool reaches. A choice.
const FEW: u64 = 64;

/// What came back within a span of distances; older counts weigh less.
#[derive(Clone, Copy, Default)]
struct Bin {
    hits: u64,
    reads: u64,
}

/// What is known of the victims: how small they become, and how many go to the pool.
#[derive(Clone, Copy)]
pub(super) struct Victims {
    /// Thousandths of a page that one comes to.
    pub size: u64,
    /// Thousandths of the victims that go there.
    pub pooled: u64,
}

pub(super) struct Part {
    /// Of [`WHOLE`].
    now: usize,
    most: usize,
    /// The last step, and its direction: towards the pool if positive.
    step: isize,
    bins: [Bin; BINS],
    /// Touches of staged pages, older ones weighing less.
    rescued: u64,
    /// What had been counted when it was weighed last.
    near: Refaults,
    far: Refaults,
    seen_rescued: u64,
}

impl Part {
    /// At most `percent` of all frames.
    pub fn new(percent: u32) -> Self {
        let most = WHOLE * percent as usize / 100;
        Self {
            now: BEGIN.min(most),
            most,
            step: 0,
            bins: [Bin::default(); BINS],
            rescued: 0,
            near: Refaults::default(),
            far: Refaults::default(),
            seen_rescued: 0,
        }
    }

    /// Frames that the pool may take of `frames`.
    pub const fn frames(&self, frames: usize) -> usize {
        frames * self.now / WHOLE
    }

    /// The most that it may ever take of `frames`.
    pub const fn most(&self, frames: usize) -> usize {
        frames * self.most / WHOLE
    }

    /// Takes in what was waited for since the last time, and moves a step where that would have been less.
    pub fn weigh(&mut self, sight: &Sight<'_>, victims: Victims) {
        self.count(sight);
        let model = Model::new(&self.bins, sight, victims, self.rescued);
        let here = model.cost(0);
        let unit = (sight.frames / (WHOLE / STEP)).max(1) as isize;
        let best = [-16, -8, -4, -2, -1, 1, 2, 4, 8, 16]
            .into_iter()
            .map(|n| (model.cost(n * unit), n));
        let (cost, way) = best.min().expect("there are some");
        if cost + here / WORTH >= here {
            self.step = 0;
            return;
        }
        self.go(way, sight);
    }

    /// One step, from where the pool is.
    fn go(&mut self, way: isize, sight: &Sight<'_>) {
        let to_pool = way < 0;
        let has = sight.pool * WHOLE / sight.frames.max(1);
        let size = if to_pool == (self.step > 0) && self.step != 0 {
            (self.step.unsigned_abs() * 2).min(STEP_MAX)
        } else if to_pool {
            (STEP * way.unsigned_abs() / 4).clamp(STEP, STEP_MAX)
        } else {
            STEP_BACK
        };
        if to_pool {
            // What it does not fill already is of no use to it.
            self.now = self
                .now
                .max((has + size).min(self.now + size))
                .min(self.most);
            self.step = size as isize;
        } else {
            self.now = self
                .now
                .min(has)
                .saturating_sub(size)
                .max(LEAST.min(self.most));
            self.step = -(size as isize);
        }
    }

    fn count(&mut self, sight: &Sight<'_>) {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        for (n, bin) in self.bins.iter_mut().enumerate() {
            let (now, before, span) = if n < NEAR {
                (sight.near, &self.near, n)
            } else {
                (sight.far, &self.far, n - NEAR + FAR)
            };
            bin.hits = bin.hits * 3 / 4 + since(now.unpacked[span], before.unpacked[span]);
            bin.reads = bin.reads * 3 / 4 + since(now.read[span], before.read[span]);
        }
        self.rescued = self.rescued * 3 / 4 + since(sight.rescued, self.seen_rescued);
        (self.near, self.far, self.seen_rescued) = (*sight.near, *sight.far, sight.rescued);
    }
}

/// What would have been waited for with other frames.
struct Model<'a> {
    bins: &'a [Bin; BINS],
    /// Nanoseconds of a touch in the pool, and of one that is a read.
    hit_ns: u64,
    read_ns: u64,
    frames: usize,
    pool: usize,
    /// The distance up to which pages are in the pool.
    reach: usize,
    /// Thousandths of what comes back from there that is found in it.
    found: u64,
    /// Touches of staged pages, and how many of these there are.
    density: (u64, u64),
}

impl<'a> Model<'a> {
    fn new(bins: &'a [Bin; BINS], sight: &Sight<'_>, victims: Victims, rescued: u64) -> Self {
        let mut model = Self {
            bins,
            hit_ns: sight.costs.hit_ns(),
            read_ns: sight.costs.read_ns(),
            frames: sight.frames,
            pool: sight.pool.max(sight.frames * LEAST / WHOLE).max(1),
            reach: 0,
            found: victims.pooled.clamp(POOLED_MIN, 1000),
            density: (rescued, sight.staged.max(1) as u64),
        };
        model.reach = model.reach(sight.pool as u64 * 1000 / victims.size.max(SIZE_MIN));
        model
    }

    /// As many refaults come from below it as were found in the pool, which is how far it reaches, whatever order pages left it in. Where few were counted,
    /// or all were found, the `pages` that it has tell.
    fn reach(&self, pages: u64) -> usize {
        let thought = (pages * 1000 / self.found) as usize;
        let hits: u64 = self.bins.iter().map(|bin| bin.hits).sum();
        let all = hits + self.bins.iter().map(|bin| bin.reads).sum::<u64>();
        if hits < FEW {
            return thought;
        }
        let below = hits * 1000 / self.found;
        // Beyond that distance chance decides what was found.
        let reached = self.distance(below.min(all - all / WORTH));
        if below + all / WORTH >= all {
            thought.max(reached)
        } else {
            reached
        }
    }

    /// The distance below which so many came back, as if each span were even.
    fn distance(&self, mut below: u64) -> usize {
        for (n, bin) in self.bins.iter().enumerate() {
            let of_span = bin.hits + bin.reads;
            if below < of_span {
                let (from, to) = (self.bound(n), self.bound(n + 1));
                return from + ((to - from) as u64 * below / of_span) as usize;
            }
            below -= of_span;
        }
        self.bound(BINS)
    }

    /// Nanoseconds, had the program had `more` frames more, and the pool as many less.
    fn cost(&self, more: isize) -> u64 {
        let more = more.min(self.pool as isize);
        let pool = self.pool.saturating_add_signed(-more);
        let reach = (self.reach as u128 * pool as u128 / self.pool as u128) as isize + more;
        let mut sum = 0;
        for (n, bin) in self.bins.iter().enumerate() {
            let (from, to) = (self.bound(n), self.bound(n + 1));
            for cell in 0..CELLS {
                let distance = (from + (to - from) * (2 * cell + 1) / (2 * CELLS)) as isize;
                if distance >= reach {
                    sum += (bin.hits + bin.reads) * self.read_ns;
                } else if distance >= more {
                    let saved = self.read_ns.saturating_sub(self.hit_ns) * self.found / 1000;
                    sum += (bin.hits + bin.reads) * (self.read_ns - saved);
                }
            }
        }
        let (touches, staged) = self.density;
        let fewer = more.min(0).unsigned_abs() as u64;
        sum / CELLS as u64 + fewer * touches * self.hit_ns / staged
    }

    /// Where span `n` begins.
    const fn bound(&self, n: usize) -> usize {
        match n {
            0 => 0,
            n if n <= SPANS => self.frames >> (SPANS - n),
            n => self.frames << (n - SPANS),
        }
    }
}

#[cfg(test)]
mod tests;
