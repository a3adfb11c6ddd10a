//! An evaluation: rows, tables, figures, and what explains the deviations.

use std::collections::BTreeMap;

use super::chart::Chart;
use super::claims::{Claim, Published};
use super::curves::Curves;
use super::runs::{Line, RunKey, Runs, Variation};
use super::spread::Spread;
use super::table::{Table, short};

/// Deviations above this are explained: points for percentages, percent of the published value for
/// everything else.
const EXPLAINED: f64 = 10.0;

/// What we got for a claim.
#[derive(Clone, PartialEq, Debug)]
pub enum Ours {
    /// A number.
    Number(f64),
    /// A number's median over several runs, and its spread.
    Spread(Spread),
    /// Words, and whether they agree with the published ones; `None` where nothing can be said.
    Text(String, Option<bool>),
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
            Self::Text(..) | Self::None => None,
        }
    }
}

/// One claim, ours, and why they differ.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The claim.
    pub claim: Claim,
    /// What we got.
    pub ours: Ours,
    /// The difference: points where `points`, else percent of the published value.
    pub deviation: Option<f64>,
    /// Whether the claim is a percentage.
    pub points: bool,
    /// What explains a deviation above 10, with the runs that show it.
    pub note: String,
}

impl Row {
    /// Whether it deviates by more than 10 (or disagrees, in words).
    #[must_use]
    pub fn deviates(&self) -> bool {
        match &self.ours {
            Ours::Number(_) | Ours::Spread(_) => self.deviation.is_none_or(|d| d.abs() > EXPLAINED),
            Ours::Text(_, agrees) => *agrees == Some(false),
            Ours::None => true,
        }
    }
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

/// What an evaluation answers claims with.
pub(super) struct Answers<'a> {
    pub runs: &'a Runs,
    pub variations: &'a [Variation],
    /// The answer to a claim from the runs of a variant.
    pub answer: fn(&Runs, &str, &[&str]) -> Ours,
    /// What is said of a deviating claim besides the variations.
    pub remark: fn(&[&str]) -> &'static str,
}

impl Answers<'_> {
    pub fn rows(&self, claims: Vec<Claim>) -> Vec<Row> {
        claims.into_iter().map(|claim| self.row(claim)).collect()
    }

    fn row(&self, claim: Claim) -> Row {
        let ours = (self.answer)(self.runs, "", &claim.keys());
        let points = claim.path.iter().any(|key| key.contains("percent"));
        let deviation = match (&claim.published, ours.number()) {
            (Published::Number(p), Some(o)) => deviation(*p, o, points),
            _ => None,
        };
        let mut row = Row {
            claim,
            ours,
            deviation,
            points,
            note: String::new(),
        };
        if row.deviates() {
            row.note = self.note(&row);
        }
        row
    }

    /// The remark, then what each varied cause makes of our figure, and how near that comes.
    fn note(&self, row: &Row) -> String {
        let keys = row.claim.keys();
        let mut parts: Vec<String> = Vec::new();
        let remark = (self.remark)(&keys);
        if !remark.is_empty() {
            parts.push(remark.to_owned());
        }
        let mut causes: Vec<(&str, Vec<String>)> = Vec::new();
        let (mut numbers, mut idle) = (Vec::new(), Vec::new());
        for variation in self.variations {
            let varied = (self.answer)(self.runs, &variation.name(), &keys);
            if let Some(ours) = varied.number() {
                numbers.push((variation, ours));
            }
            if varied == row.ours {
                idle.push(variation.name());
                continue;
            }
            let text = match varied {
                Ours::Number(ours) => short(ours),
                Ours::Spread(ours) => ours.to_string(),
                Ours::Text(text, _) => text,
                Ours::None => continue,
            };
            let value = format!("{} gives {text}", variation.value);
            match causes.iter_mut().find(|c| c.0 == variation.cause) {
                Some(cause) => cause.1.push(value),
                None => causes.push((variation.cause, vec![value])),
            }
        }
        parts.extend(
            causes
                .iter()
                .map(|(cause, values)| format!("{cause}: {}.", values.join(", "))),
        );
        if !idle.is_empty() {
            parts.push(format!("Without effect: {}.", idle.join("; ")));
        }
        if let (Published::Number(published), Some(base), false) = (
            &row.claim.published,
            row.ours.number(),
            self.variations.is_empty(),
        ) {
            parts.push(verdict(*published, base, row.points, &numbers));
        }
        parts.join(" ")
    }
}

/// What the variations explain of the distance between ours and the published figure.
fn verdict(published: f64, base: f64, points: bool, varied: &[(&Variation, f64)]) -> String {
    let off = |ours: f64| deviation(published, ours, points).map_or(f64::INFINITY, f64::abs);
    let names = |these: &[(&Variation, f64)]| {
        let names = these.iter().map(|(v, _)| v.name());
        names.collect::<Vec<_>>().join("; ")
    };
    let near: Vec<_> = varied
        .iter()
        .filter(|v| off(v.1) <= EXPLAINED)
        .copied()
        .collect();
    if !near.is_empty() {
        return format!("Within 10 of the published figure with: {}.", names(&near));
    }
    let beyond: Vec<_> = varied
        .iter()
        .filter(|v| (v.1 - published) * (base - published) < 0.0)
        .copied()
        .collect();
    if !beyond.is_empty() {
        return format!(
            "The published figure lies between ours and that with: {}.",
            names(&beyond)
        );
    }
    match varied.iter().min_by(|a, b| off(a.1).total_cmp(&off(b.1))) {
        Some((v, ours)) if off(*ours) < off(base) => format!(
            "The nearest is {}: {:.0} {} of the deviation remain, unexplained by what was varied.",
            v.name(),
            off(*ours),
            if points { "points" } else { "%" },
        ),
        Some(_) => "Nothing that was varied brings it nearer: unexplained.".to_owned(),
        None => "Nothing was varied for this figure.".to_owned(),
    }
}

/// Points, or percent of the published value; `None` where nothing was published but 0 and ours is
/// not 0.
fn deviation(published: f64, ours: f64, points: bool) -> Option<f64> {
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

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 7.0, 12.34, 999.96, 1000.0, 2_891_037.0, -1234.0].map(short),
            ["0", "7", "12.3", "1000.0", "1,000", "2,891,037", "-1,234"]
        );
    }

    #[test]
    fn a_verdict_says_what_comes_near_and_what_remains() {
        let variation = |value| Variation {
            cause: "cause",
            value,
            workloads: &[],
            apply: |_| {},
        };
        let (a, b) = (variation("a"), variation("b"));
        let said = |varied: &[(&Variation, f64)]| verdict(75.0, 50.0, true, varied);
        assert!(said(&[(&a, 70.0), (&b, 20.0)]).ends_with("with: cause: a."));
        assert!(
            said(&[(&a, 90.0), (&b, 20.0)]).contains("lies between ours and that with: cause: a.")
        );
        assert!(said(&[(&a, 60.0), (&b, 20.0)]).contains("cause: a: 15 points"));
        assert!(said(&[(&b, 20.0)]).starts_with("Nothing that was varied brings"));
        assert!(said(&[]).starts_with("Nothing was varied"));
    }

    #[test]
    fn percentages_deviate_in_points_and_nothing_against_nothing_agrees() {
        assert_eq!(deviation(75.0, 80.0, true), Some(5.0));
        assert_eq!(deviation(200.0, 150.0, false), Some(-25.0));
        assert_eq!(deviation(0.0, 0.0, false), Some(0.0));
        assert_eq!(deviation(0.0, 3.0, false), None);
    }
}
