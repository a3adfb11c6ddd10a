//! Whether threads that fault by turns run on the pager's CPU, all of them, or where the scheduler has them.
//!
//! On a CPU of its own a thread is interrupted for each page that is taken or given (a TLB shootdown, 12 us in
//! docs/performance.md, "The CPU of the pager"), and has to be woken across CPUs; on the pager's it loses what it could compute
//! beside the others. Which costs less differs by machine and program, so it is tried: where several threads fault by turns and
//! the pager hardly rests, the time from fault to fault of a while apart is compared with that of a while together, and again
//! now and then.

use outpage_core::units::Nanos;

/// How long a way is tried. A choice: some hundred faults, whose mean differs by a few percent.
const WHILE: Nanos = Nanos(32_000_000);
/// Fewer faults in that time tell nothing.
const FAULTS: u32 = 128;
/// By turns: so many faults for one that comes from another thread than the last. A choice.
const PER_TURN: u32 = 8;
/// Together is better if a fault takes less than 8/9 of the time apart. A choice: above what one while differs from the next.
const BETTER: (u64, u64) = (8, 9);
/// Together is left at once for a try apart when a fault takes more than 4/3 of what it took: another phase of the program.
const WORSE: (u64, u64) = (4, 3);
/// How long a choice holds, the first time; twice as long each time that it is confirmed, and no longer than that. Choices: a try costs
/// one while, 13 % of the first and 1 % of the last.
const HOLDS: Nanos = Nanos(250_000_000);
const HOLDS_MAX: Nanos = Nanos(4_000_000_000);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Apart,
    /// Tried; apart a fault took so many ns.
    TryTogether(u64),
    /// A fault takes so many ns.
    Together(u64),
    /// Tried; together a fault took so many ns.
    TryApart(u64),
}

/// The ways tried by one process.
pub struct Crowd {
    way: Way,
    /// Of this while: its begin, faults, those that came from another thread than the one before, and the ns that the pager rested.
    since: Nanos,
    faults: u32,
    turns: u32,
    rested: u64,
    /// When the other way is tried, and how long the next choice holds.
    until: Nanos,
    holds: Nanos,
}

impl Default for Crowd {
    fn default() -> Self {
        Self {
            way: Way::Apart,
            since: Nanos(0),
            faults: 0,
            turns: 0,
            rested: 0,
            until: Nanos(0),
            holds: HOLDS,
        }
    }
}

impl Crowd {
    /// Whether threads that fault are to run on the pager's CPU, whichever faulted last.
    pub const fn together(&self) -> bool {
        matches!(self.way, Way::TryTogether(_) | Way::Together(_))
    }

    /// The pager slept for so long because there was nothing to do.
    pub const fn rested(&mut self, took: Nanos) {
        self.rested += took.0;
    }

    /// A fault came, from another thread than the last if `turn`.
    pub fn fault(&mut self, turn: bool, now: Nanos) {
        self.faults += 1;
        self.turns += u32::from(turn);
        let took = now.0.saturating_sub(self.since.0);
        if took < WHILE.0 {
            return;
        }
        let by_turns = self.faults >= FAULTS && self.turns * PER_TURN >= self.faults;
        let each = took / u64::from(self.faults);
        let busy = 2 * self.rested <= took;
        (self.since, self.faults, self.turns, self.rested) = (now, 0, 0, 0);
        // Faults so seldom that the while was far longer than it should be are none of a crowd.
        self.choose(by_turns && took < 2 * WHILE.0, busy, each, now);
    }

    fn choose(&mut self, by_turns: bool, busy: bool, each: u64, now: Nanos) {
        let due = now >= self.until;
        let better = |together: u64, apart: u64| together * BETTER.1 <= apart * BETTER.0;
        self.way = match self.way {
            Way::Apart if by_turns && busy && due => Way::TryTogether(each),
            Way::Apart => Way::Apart,
            _ if !by_turns => self.hold(Way::Apart, HOLDS, now),
            Way::TryTogether(apart) if better(each, apart) => {
                self.hold(Way::Together(each), HOLDS, now)
            }
            Way::TryTogether(_) => self.hold(Way::Apart, self.holds, now),
            Way::Together(took) if due || each * WORSE.1 > took * WORSE.0 => Way::TryApart(each),
            Way::Together(took) => Way::Together(took),
            Way::TryApart(together) if better(together, each) => {
                self.hold(Way::Together(together), self.holds, now)
            }
            Way::TryApart(_) => self.hold(Way::Apart, HOLDS, now),
        };
    }

    /// `way` holds for `holds` from now on, and twice as long if it is chosen again.
    fn hold(&mut self, way: Way, holds: Nanos, now: Nanos) -> Way {
        self.until = Nanos(now.0 + holds.0);
        self.holds = Nanos((2 * holds.0).min(HOLDS_MAX.0));
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose faults come from `threads` threads by turns; each takes so many ns together and apart.
    struct Program {
        threads: u32,
        together: u64,
        apart: u64,
        rests: u64,
    }

    /// Runs it for `ns`; returns the share of the time that it was together, in percent.
    fn run(crowd: &mut Crowd, now: &mut u64, ns: u64, program: &Program) -> u64 {
        let (end, mut together, mut count) = (*now + ns, 0, 0);
        while *now < end {
            let took = if crowd.together() {
                together += program.together;
                program.together
            } else {
                program.apart
            };
            *now += took;
            count += 1;
            crowd.rested(Nanos(program.rests));
            crowd.fault(
                program.threads > 1 && count % program.threads == 0,
                Nanos(*now),
            );
        }
        together * 100 / ns
    }

    const TEN_SECONDS: u64 = 10_000_000_000;

    #[test]
    fn the_way_that_takes_less_time_is_found_and_kept() {
        let (mut crowd, mut now) = (Crowd::default(), 1);
        let cheaper_together = Program {
            threads: 2,
            together: 30_000,
            apart: 60_000,
            rests: 0,
        };
        let share = run(&mut crowd, &mut now, TEN_SECONDS, &cheaper_together);
        assert!(share > 90, "{share} %");
        // It computes more: found within a while or two.
        let cheaper_apart = Program {
            together: 90_000,
            ..cheaper_together
        };
        let share = run(&mut crowd, &mut now, TEN_SECONDS, &cheaper_apart);
        assert!(share < 5, "{share} %");
        let share = run(&mut crowd, &mut now, TEN_SECONDS, &cheaper_together);
        assert!(share > 50, "{share} %: a try that failed is repeated");
    }

    #[test]
    fn one_thread_a_pager_that_rests_and_few_faults_are_no_crowd() {
        let alone = Program {
            threads: 1,
            together: 30_000,
            apart: 60_000,
            rests: 0,
        };
        let resting = Program {
            threads: 2,
            rests: 40_000,
            ..alone
        };
        let seldom = Program {
            threads: 2,
            together: 500_000,
            apart: 1_000_000,
            ..alone
        };
        for program in [alone, resting, seldom] {
            let (mut crowd, mut now) = (Crowd::default(), 1);
            let share = run(&mut crowd, &mut now, TEN_SECONDS, &program);
            assert_eq!(share, 0, "{} threads", program.threads);
        }
    }
}
