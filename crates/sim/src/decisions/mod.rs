//! What the pager decides in 600 runs that are the same for every build, each run as two numbers.
//!
//! Half of the runs are programs in a [`World`], under the daemons and the default of reclaim, on a disk that fails now and
//! then. In the others several threads and a store misbehave as the contract allows (`unruly.rs`). The last 100 keep victims
//! compressed in RAM. A change
//! that must not change decisions gives the same numbers before and after it.

mod cases;
mod ceiling;
mod pool;
mod unruly;

use std::fmt;
use std::str::FromStr;

use outpage_core::record::Decisions;

use crate::world::World;

/// Runs in all: so many that few paths of the pager are never taken, which still take seconds only.
pub const RUNS: u32 = 600;
/// The runs from this on have a pool of compressed pages.
const POOLED_FROM: u32 = 500;

/// The numbers of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Which run, below [`RUNS`].
    pub run: u32,
    /// [`Decisions::transfers`].
    pub transfers: u64,
    /// [`Decisions::all`].
    pub all: u64,
    /// Pages read.
    pub page_ins: u64,
    /// Pages written.
    pub page_outs: u64,
}

impl Line {
    const fn new(run: u32, decisions: &Decisions) -> Self {
        Self {
            run,
            transfers: decisions.transfers(),
            all: decisions.all(),
            page_ins: decisions.page_ins,
            page_outs: decisions.page_outs,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:016x} {:016x} {} {}",
            self.run, self.transfers, self.all, self.page_ins, self.page_outs
        )
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let bad = || format!("'{text}' is no line of decisions");
        let [run, transfers, all, page_ins, page_outs] = words[..] else {
            return Err(bad());
        };
        let hex = |word| u64::from_str_radix(word, 16).map_err(|_| bad());
        let number = |word: &str| word.parse::<u64>().map_err(|_| bad());
        Ok(Self {
            run: run.parse().map_err(|_| bad())?,
            transfers: hex(transfers)?,
            all: hex(all)?,
            page_ins: number(page_ins)?,
            page_outs: number(page_outs)?,
        })
    }
}

/// What run `run` is, in words.
///
/// # Panics
/// When `run` is not below [`RUNS`].
#[must_use]
pub fn describe(run: u32) -> String {
    if run.is_multiple_of(2) {
        format!("{:?}", cases::world(run))
    } else {
        format!("{:?}", cases::unruly(run))
    }
}

/// Run `run` and its numbers.
///
/// # Panics
/// When `run` is not below [`RUNS`], or a page's content is not what was written last.
#[must_use]
pub fn decide(run: u32) -> Line {
    assert!(run < RUNS, "run {run} of {RUNS}");
    let decisions = if run.is_multiple_of(2) {
        let case = cases::world(run);
        let world = World::new(&case.setup).expect("what is chosen exists");
        // A run may end without memory: what was decided until then counts.
        world.decisions(u64::from(run), case.failures).0
    } else {
        unruly::decisions(&cases::unruly(run))
    };
    Line::new(run, &decisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by `outpage decisions`, by the last build whose decisions were meant to change.
    const STORED: &str = include_str!("decisions.txt");

    #[test]
    fn stored_lines_are_those_of_this_build() {
        let stored: Vec<Line> = STORED.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(stored.len() as u32, RUNS);
        // Both kinds of runs, a few seconds of them; the command has all.
        for line in stored.iter().step_by(9) {
            assert_eq!(line, &decide(line.run), "{}", describe(line.run));
        }
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let line = decide(1);
        assert_eq!(line.to_string().parse(), Ok(line.clone()));
        assert!("1 2 3".parse::<Line>().is_err());
    }
}
