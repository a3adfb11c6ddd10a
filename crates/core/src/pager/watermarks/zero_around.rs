//! How many pages a first touch zero-fills.

use crate::units::{PageNo, PageRange};

/// How many pages a first touch zero-fills: halved when most of them come back untouched, doubled
/// when most were used.
pub(super) struct ZeroAround {
    max: u32,
    now: u32,
    used: u32,
    wasted: u32,
    last: PageRange,
}

impl ZeroAround {
    /// Zero-filled pages whose fate is weighed at a time: a few windows' worth.
    const SAMPLE: u32 = 256;

    /// `max` pages to begin with, and at most.
    pub fn new(max: u32) -> Self {
        let last = PageRange::new(PageNo::from_raw(0), 0);
        let max = max.max(1);
        Self {
            max,
            now: max,
            used: 0,
            wasted: 0,
            last,
        }
    }

    /// The pages of one block.
    pub fn pages(&self) -> u64 {
        u64::from(self.now)
    }

    /// A first touch zero-fills `run` for the sake of `page`. Where it goes on behind the last run
    /// (or before it), that one was used, whatever was written there: zeroes leave no trace.
    pub fn fills(&mut self, page: PageNo, run: PageRange) {
        let (page, start, end) = (
            page.raw(),
            self.last.start.raw(),
            self.last.start.raw() + self.last.pages,
        );
        // Programs that skip pages go on all the same.
        let slack = u64::from(self.max);
        if (end..end.saturating_add(slack)).contains(&page)
            || (start.saturating_sub(slack)..start).contains(&page)
        {
            self.used += self.last.pages as u32;
            self.now = (self.now * 2).min(self.max);
        }
        self.last = run;
    }

    /// A page zero-filled around a fault left memory: still zero, or used.
    pub fn left(&mut self, still_zero: bool) {
        *(if still_zero {
            &mut self.wasted
        } else {
            &mut self.used
        }) += 1;
        if self.used + self.wasted < Self::SAMPLE {
            return;
        }
        if self.wasted > 3 * self.used {
            self.now = (self.now / 2).max(1);
        } else if self.wasted < self.used {
            self.now = (self.now * 2).min(self.max);
        }
        (self.used, self.wasted) = (0, 0);
    }
}
