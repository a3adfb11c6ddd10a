//! Touches of pages, as many at once as can be.

use outpage_core::contract::Access;
use outpage_core::units::{PageNo, PageRange};

use super::World;

impl World {
    pub(super) fn touch(
        &mut self,
        who: usize,
        run: PageRange,
        access: Access,
        page_ns: u32,
    ) -> bool {
        let part = PageRange::new(run.start, self.fitting(run.pages, page_ns));
        let hits = self.pager.touch(part, access);
        self.spend(who, hits * u64::from(page_ns));
        let process = &mut self.processes[who];
        process.touches += hits;
        if hits == run.pages {
            process.next();
            return true;
        }
        let start = run.start.checked_add(hits).expect("the run goes on");
        process.left_to_touch(PageRange::new(start, run.pages - hits));
        hits == part.pages || self.fault(who, start, access)
    }

    /// Round by round, so that faults come in the program's order; rounds without faults at once.
    pub(super) fn touch_together(
        &mut self,
        who: usize,
        runs: &[(PageRange, Access); 4],
        page_ns: u32,
    ) -> bool {
        let pages = runs.iter().map(|r| r.0.pages).max().unwrap_or(0);
        let until = self.until();
        let mut at = self.processes[who].round;
        while at < pages && self.now < until {
            let rounds = self.touch_rounds(who, runs, at, self.fitting(pages - at, page_ns));
            self.spend(who, rounds * u64::from(page_ns));
            at += rounds;
            self.processes[who].round = at;
            if rounds == 0
                && let Some((page, access)) = self.touch_round(who, runs, at)
            {
                return self.fault(who, page, access);
            }
        }
        if at >= pages {
            self.processes[who].next();
        }
        true
    }

    /// Touches the pages of up to `most` rounds from `at` on, up to the first round with a fault.
    /// Returns how many rounds.
    fn touch_rounds(
        &mut self,
        who: usize,
        runs: &[(PageRange, Access); 4],
        at: u64,
        most: u64,
    ) -> u64 {
        let part = |run: PageRange, rounds: u64| {
            let start = PageNo::from_raw(run.start.raw() + at);
            PageRange::new(start, rounds.min(run.pages - at))
        };
        let left = || runs.iter().filter(|(run, _)| at < run.pages);
        let mut rounds = most;
        for &(run, access) in left() {
            let part = part(run, rounds);
            let hits = self.pager.touchable(part, access);
            if hits < part.pages {
                rounds = hits;
            }
            if rounds == 0 {
                return 0;
            }
        }
        for &(run, access) in left() {
            self.processes[who].touches += self.pager.touch(part(run, rounds), access);
        }
        rounds
    }

    /// Touches the pages of one round up to the one that faults, and returns that.
    fn touch_round(
        &mut self,
        who: usize,
        runs: &[(PageRange, Access); 4],
        at: u64,
    ) -> Option<(PageNo, Access)> {
        for &(run, access) in runs.iter().filter(|(run, _)| at < run.pages) {
            let page = PageNo::from_raw(run.start.raw() + at);
            if self.pager.touch(PageRange::one(page), access) == 0 {
                return Some((page, access));
            }
            self.processes[who].touches += 1;
        }
        None
    }
}
