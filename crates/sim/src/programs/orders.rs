//! Orders of whole pages in which reading ahead goes wrong now and then: forward and back, runs that end
//! without notice, and phases of different orders.

use std::collections::VecDeque;

use outpage_core::contract::Access;
use serde::{Deserialize, Serialize};

use super::ns2::Random;
use super::order::{Order, Touch};

/// Parameters of the passes forward and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZigzagParams {
    /// Pages of the region.
    pub pages: u64,
    /// Passes; the first one is back, after the one forward that fills the region.
    pub passes: u64,
    /// Whether pages are written.
    pub writes: bool,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for ZigzagParams {
    /// 64 MiB. The time is what `outpage workload zigzag` takes without a limit: 31 ms for 65,536 touches.
    fn default() -> Self {
        Self {
            pages: 16_384,
            passes: 4,
            writes: false,
            touch_ns: 470,
        }
    }
}

/// Back and forward.
pub struct Zigzag {
    params: ZigzagParams,
    nth: u64,
}

impl Zigzag {
    /// The order with these parameters.
    #[must_use]
    pub const fn new(params: ZigzagParams) -> Self {
        Self { params, nth: 0 }
    }
}

impl Order for Zigzag {
    const NAME: &'static str = "zigzag";

    fn pages(&self) -> u64 {
        self.params.pages
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        let pages = self.params.pages;
        if self.nth == pages * self.params.passes {
            return;
        }
        let (pass, at) = (self.nth / pages, self.nth % pages);
        let page = if pass % 2 == 0 { pages - 1 - at } else { at };
        touches.push_back(Touch::one(page, self.params.writes));
        self.nth += 1;
    }
}

/// Parameters of the runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunsParams {
    /// Pages of the region.
    pub pages: u64,
    /// Pages of the longest run.
    pub longest: u64,
    /// Touches, the last run cut.
    pub touches: u64,
    /// Seed.
    pub seed: u64,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for RunsParams {
    /// 64 MiB. The time is what `outpage workload runs` takes without a limit: 17 ms for 50,000 touches.
    fn default() -> Self {
        Self {
            pages: 16_384,
            longest: 64,
            touches: 50_000,
            seed: 64,
            touch_ns: 340,
        }
    }
}

/// Runs of 1 to the longest, each length as likely, at random places; every other one is written.
pub struct Runs {
    params: RunsParams,
    random: Random,
    left: u64,
}

impl Runs {
    /// The order with these parameters.
    ///
    /// # Panics
    /// When the longest run has no page or more than there are.
    #[must_use]
    pub fn new(params: RunsParams) -> Self {
        let lengths = 1..=params.pages;
        assert!(lengths.contains(&params.longest), "runs fit the region");
        Self {
            params,
            random: Random(params.seed | 1),
            left: params.touches,
        }
    }
}

impl Order for Runs {
    const NAME: &'static str = "runs";

    fn pages(&self) -> u64 {
        self.params.pages
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        if self.left == 0 {
            return;
        }
        let length = 1 + self.random.below(self.params.longest);
        let page = self.random.below(self.params.pages - length + 1);
        let writes = self.random.share() < 0.5;
        let pages = length.min(self.left);
        self.left -= pages;
        touches.push_back(Touch {
            page,
            pages,
            access: if writes { Access::Write } else { Access::Read },
        });
    }
}

/// Parameters of the phases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PhasesParams {
    /// Pages of the region.
    pub pages: u64,
    /// Touches before the order changes.
    pub phase: u64,
    /// Touches.
    pub touches: u64,
    /// Seed.
    pub seed: u64,
    /// CPU time of a touch, nanoseconds.
    pub touch_ns: u32,
}

impl Default for PhasesParams {
    /// 64 MiB. The time is what `outpage workload phases` takes without a limit: 34 ms for 50,000 touches.
    fn default() -> Self {
        Self {
            pages: 16_384,
            phase: 4096,
            touches: 50_000,
            seed: 16,
            touch_ns: 680,
        }
    }
}

/// Pages between two touches of a phase with a stride.
const STRIDE_PAGES: u64 = 16;
/// Orders by turns: in order, at random, with a stride, at random.
const TURNS: usize = 4;

/// Phases by turns, a quarter of the touches writes.
pub struct Phases {
    params: PhasesParams,
    random: Random,
    nth: u64,
    /// Touches that each turn has behind it, all its phases together.
    done: [u64; TURNS],
}

impl Phases {
    /// The order with these parameters.
    ///
    /// # Panics
    /// With phases of no touch.
    #[must_use]
    pub fn new(params: PhasesParams) -> Self {
        assert!(params.phase > 0, "phases have touches");
        Self {
            params,
            random: Random(params.seed | 1),
            nth: 0,
            done: [0; TURNS],
        }
    }

    /// The page of the touch number `nth` of a turn.
    fn page(&mut self, turn: usize, nth: u64) -> u64 {
        let pages = self.params.pages;
        match turn {
            0 => nth % pages,
            2 => {
                let columns = (pages / STRIDE_PAGES).max(1);
                (nth % columns * STRIDE_PAGES + nth / columns % STRIDE_PAGES) % pages
            }
            _ => self.random.below(pages),
        }
    }
}

impl Order for Phases {
    const NAME: &'static str = "phases";

    fn pages(&self) -> u64 {
        self.params.pages
    }

    fn next(&mut self, touches: &mut VecDeque<Touch>) {
        if self.nth == self.params.touches {
            return;
        }
        let turn = (self.nth / self.params.phase) as usize % TURNS;
        let page = self.page(turn, self.done[turn]);
        self.done[turn] += 1;
        self.nth += 1;
        touches.push_back(Touch::one(page, self.random.share() < 0.25));
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::testing::pages;
    use super::*;

    #[test]
    fn a_zigzag_goes_back_first() {
        let params = ZigzagParams {
            pages: 5,
            passes: 3,
            writes: true,
            ..ZigzagParams::default()
        };
        let (forward, back) = ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]);
        let mut naive = [back, forward, back].concat();
        // Where it turns round it stays on its page.
        naive.dedup();
        let naive: Vec<_> = naive.into_iter().map(|p| (p, Access::Write)).collect();
        assert_eq!(pages(Zigzag::new(params)), naive);
    }

    #[test]
    fn runs_lie_in_the_region_and_their_lengths_are_even() {
        let params = RunsParams {
            pages: 1000,
            longest: 8,
            touches: 100_000,
            ..RunsParams::default()
        };
        let mut order = Runs::new(params);
        let mut touches = VecDeque::new();
        let (mut lengths, mut all, mut writes) = ([0_u64; 9], 0, 0);
        loop {
            order.next(&mut touches);
            let Some(touch) = touches.pop_front() else {
                break;
            };
            assert!(touch.page + touch.pages <= 1000);
            lengths[touch.pages as usize] += 1;
            all += touch.pages;
            writes += u64::from(touch.access == Access::Write);
        }
        let runs: u64 = lengths.iter().sum();
        assert_eq!((all, lengths[0]), (100_000, 0));
        // Each of the eight lengths, and every other run written: within 10 % of its share.
        let near = |count: u64, share: u64| count.abs_diff(runs / share) < runs / share / 10;
        assert!(
            lengths[1..].iter().all(|&count| near(count, 8)),
            "{lengths:?}"
        );
        assert!(near(writes, 2), "{writes} of {runs}");
    }

    #[test]
    fn phases_go_on_where_the_last_one_of_their_order_ended() {
        let params = PhasesParams {
            pages: 64,
            phase: 3,
            touches: 24,
            ..PhasesParams::default()
        };
        let mut order = Phases::new(params);
        let mut touches = VecDeque::new();
        (0..30).for_each(|_| order.next(&mut touches));
        let found: Vec<u64> = touches.iter().map(|touch| touch.page).collect();
        assert_eq!(found.len(), 24);
        assert_eq!(
            (&found[..3], &found[12..15]),
            (&[0, 1, 2][..], &[3, 4, 5][..])
        );
        assert_eq!(
            (&found[6..9], &found[18..21]),
            (&[0, 16, 32][..], &[48, 1, 17][..])
        );
        assert!(found.iter().all(|&page| page < 64));
    }

    #[test]
    fn a_stride_visits_every_page_once_before_any_again() {
        let mut order = Phases::new(PhasesParams {
            pages: 64,
            ..PhasesParams::default()
        });
        let mut found: Vec<u64> = (0..64).map(|nth| order.page(2, nth)).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..64));
    }
}
