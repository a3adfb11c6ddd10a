//! What a row is worth, and whether it is met.

/// Percentages above this are judged in points, all else by the published value: ten points would accept anything at 10 or below.
const RELATIVE_MAX: f64 = 10.0;
/// Points.
const POINTS: f64 = 10.0;
/// Of the published value.
const PART: f64 = 0.1;
/// Words hold, or do not, in so many percent of the runs: the same 95 % as for intervals.
const HOLDS_PERCENT: u32 = 95;

/// What a row rests on. Rows of different classes are never added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Neither set nor fitted: it could have come out otherwise.
    Independent,
    /// Follows from other rows or from drawn costs by arithmetic.
    Derived,
    /// Set from the published value, fitted to it, or true whatever the runs do.
    Construction,
    /// Another row's figure in other words: counted there.
    Restated,
}

impl Class {
    /// Those that are counted, each by itself.
    pub const COUNTED: [Self; 3] = [Self::Independent, Self::Derived, Self::Construction];

    /// For reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Derived => "derived",
            Self::Construction => "by construction",
            Self::Restated => "restated",
        }
    }
}

/// Whether a row agrees with the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The whole interval lies within tolerance.
    Met,
    /// All of it lies outside.
    Missed,
    /// It reaches over a bound: the runs do not tell.
    Undetermined,
    /// There is nothing to compare.
    NotJudged,
}

impl Verdict {
    /// For reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undetermined => "undetermined",
            Self::NotJudged => "not judged",
        }
    }
}

/// In how many of so many runs something said in words holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// In so many it does.
    pub held: u32,
    /// Of so many.
    pub of: u32,
}

impl Held {
    /// In one run.
    #[must_use]
    pub const fn once(holds: bool) -> Self {
        Self {
            held: holds as u32,
            of: 1,
        }
    }

    /// Of so many.
    pub(super) const fn verdict(self) -> Verdict {
        let percent = self.held * 100;
        if percent >= HOLDS_PERCENT * self.of {
            Verdict::Met
        } else if percent <= (100 - HOLDS_PERCENT) * self.of {
            Verdict::Missed
        } else {
            Verdict::Undetermined
        }
    }
}

/// How far from the published value counts as met.
pub(super) fn tolerance(published: f64, points: bool) -> f64 {
    if points && published.abs() > RELATIVE_MAX {
        POINTS
    } else {
        PART * published.abs()
    }
}

/// The verdict on an interval.
pub(super) fn judged(published: f64, points: bool, (low, high): (f64, f64)) -> Verdict {
    let tolerance = tolerance(published, points);
    let within = |value: f64| (value - published).abs() <= tolerance;
    if within(low) && within(high) {
        Verdict::Met
    } else if high < published - tolerance || low > published + tolerance {
        Verdict::Missed
    } else {
        Verdict::Undetermined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_met_within_missed_outside_and_else_undetermined() {
        assert_eq!(judged(75.0, true, (66.0, 84.0)), Verdict::Met);
        assert_eq!(judged(75.0, true, (60.0, 84.0)), Verdict::Undetermined);
        assert_eq!(judged(75.0, true, (50.0, 100.0)), Verdict::Undetermined);
        assert_eq!(judged(75.0, true, (86.0, 90.0)), Verdict::Missed);
        assert_eq!(judged(2_000.0, false, (1_900.0, 2_150.0)), Verdict::Met);
        assert_eq!(judged(2_000.0, false, (2_300.0, 2_400.0)), Verdict::Missed);
    }

    #[test]
    fn what_is_published_as_10_or_less_is_judged_by_its_tenth() {
        assert_eq!(judged(5.0, true, (4.6, 5.4)), Verdict::Met);
        assert_eq!(judged(5.0, true, (6.0, 14.0)), Verdict::Missed);
        assert_eq!(judged(0.0, false, (0.0, 0.0)), Verdict::Met);
        assert_eq!(judged(0.0, false, (0.0, 1.0)), Verdict::Undetermined);
        assert_eq!(tolerance(11.0, true), 10.0);
    }

    #[test]
    fn words_are_met_where_they_hold_in_19_of_20_runs() {
        let of = |held| Held { held, of: 20 }.verdict();
        assert_eq!(
            [20, 19, 18].map(of),
            [Verdict::Met, Verdict::Met, Verdict::Undetermined]
        );
        assert_eq!(
            [2, 1, 0].map(of),
            [Verdict::Undetermined, Verdict::Missed, Verdict::Missed]
        );
        assert_eq!(Held::once(true).verdict(), Verdict::Met);
    }
}
