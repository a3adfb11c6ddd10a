//! An evaluation: rows, tables, figures, and what explains the deviations.

use std::collections::BTreeMap;

use super::chart::Chart;
use super::claims::{Claim, Published};
use super::curves::Curves;
use super::runs::{Line, RunKey};
use super::spread::Spread;
use super::table::Table;
use super::verdict::{Class, Held, Verdict, judged};

/// Words that are judged by a number in them.
#[derive(Clone, PartialEq, Debug)]
pub struct Against {
    /// The words.
    pub text: String,
    /// The number.
    pub spread: Spread,
    /// What it is judged against.
    pub published: f64,
    /// Whether both are percentages.
    pub points: bool,
}

/// What we got for a claim.
#[derive(Clone, PartialEq, Debug)]
pub enum Ours {
    /// A number of one run.
    Number(f64),
    /// A number's median over several runs, and its spread.
    Spread(Spread),
    /// Words with a number that is not of the published one's kind.
    Against(Against),
    /// Words, and in how many runs they agree with the published ones; `None` where nothing can be said.
    Text(String, Option<Held>),
    /// The runs did not come to their ends.
    None,
}

impl Ours {
    /// The number that is compared with the published one.
    #[must_use]
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Spread(spread) => Some(spread.median),
            Self::Against(against) => Some(against.spread.median),
            Self::Text(..) | Self::None => None,
        }
    }

    /// Whether it agrees with a published value; `points` where both are percentages.
    #[must_use]
    pub(super) fn verdict(&self, published: &Published, points: bool) -> Verdict {
        match (published, self) {
            (_, Self::Against(a)) => judged(a.published, a.points, a.spread.interval),
            (Published::Number(p), Self::Number(n)) => judged(*p, points, (*n, *n)),
            (Published::Number(p), Self::Spread(s)) => judged(*p, points, s.interval),
            (_, Self::Text(_, Some(held))) => held.verdict(),
            (_, Self::None) => Verdict::Missed,
            _ => Verdict::NotJudged,
        }
    }
}

/// What a variation makes of a row.
#[derive(Clone, PartialEq, Debug)]
pub struct Nearest {
    /// The variation's name.
    pub name: String,
    /// Our figure under it.
    pub ours: f64,
    /// Independent rows that it meets together, of those it has figures for.
    pub joint: (usize, usize, usize),
}

/// What the variations make of a row, those that move it furthest first.
#[derive(Clone, PartialEq, Debug)]
pub struct Moves {
    /// Our figure without variation, at the same draws.
    pub from: f64,
    /// A few variations by their names, and our figure under each.
    pub most: Vec<(String, f64)>,
    /// How many others have a figure too.
    pub others: usize,
}

/// One claim, ours, and why they differ.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The claim.
    pub claim: Claim,
    /// What we got.
    pub ours: Ours,
    /// What it rests on.
    pub class: Class,
    /// Whether it is met.
    pub verdict: Verdict,
    /// The median's difference: points where `points`, else percent of the published value.
    pub deviation: Option<f64>,
    /// Whether the claim is a percentage.
    pub points: bool,
    /// What is said besides the variations, where the row is not met.
    pub remark: &'static str,
    /// What was varied, with the runs that show it, where the row is not met: all of it, for machines.
    pub note: String,
    /// The variations that move it furthest, where the row is not met and is a number.
    pub moves: Option<Moves>,
    /// The variation that comes nearest to the published figure, where the row is not met.
    pub nearest: Option<Nearest>,
}

/// A figure of the paper, redrawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The chart.
    pub chart: Chart,
    /// What the paper says about it, and what we see.
    pub text: String,
}

/// A whole evaluation.
pub struct Evaluation {
    /// The paper.
    pub title: &'static str,
    /// The constants of all runs, one a line.
    pub constants: Vec<String>,
    /// Where each of a model's constants comes from; no rows where that is in [`Self::constants`].
    pub provenance: Table,
    /// Every claim.
    pub rows: Vec<Row>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Figures.
    pub figures: Vec<Figure>,
    /// What the paper leaves open, swept.
    pub curves: Vec<Curves>,
    /// Every run: its key and what became of it.
    pub runs: BTreeMap<RunKey, Result<Line, String>>,
}

/// Rows met, missed and undetermined.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Their intervals lie within tolerance.
    pub met: usize,
    /// Outside.
    pub missed: usize,
    /// Neither.
    pub undetermined: usize,
}

impl Evaluation {
    /// The rows of a class that are judged.
    #[must_use]
    pub fn tally(&self, class: Class) -> Tally {
        let mut tally = Tally::default();
        for row in self.rows.iter().filter(|row| row.class == class) {
            match row.verdict {
                Verdict::Met => tally.met += 1,
                Verdict::Missed => tally.missed += 1,
                Verdict::Undetermined => tally.undetermined += 1,
                Verdict::NotJudged => {}
            }
        }
        tally
    }
}

/// Points, or percent of the published value; `None` where nothing was published but 0 and ours is
/// not 0.
pub(super) fn deviation(published: f64, ours: f64, points: bool) -> Option<f64> {
    if points {
        Some(ours - published)
    } else if published != 0.0 {
        Some(100.0 * (ours / published - 1.0))
    } else {
        (ours == 0.0).then_some(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::table::short;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 7.0, 12.34, 999.96, 1000.0, 2_891_037.0, -1234.0].map(short),
            ["0", "7", "12.3", "1000.0", "1,000", "2,891,037", "-1,234"]
        );
    }

    #[test]
    fn percentages_deviate_in_points_and_nothing_against_nothing_agrees() {
        assert_eq!(deviation(75.0, 80.0, true), Some(5.0));
        assert_eq!(deviation(200.0, 150.0, false), Some(-25.0));
        assert_eq!(deviation(0.0, 0.0, false), Some(0.0));
        assert_eq!(deviation(0.0, 3.0, false), None);
    }
}
