//! An evaluation as HTML, Markdown and CSV. Verdicts come first, then figures, then what they rest on.

mod claims;
mod csv;
mod html;
mod markdown;
#[cfg(test)]
mod picture;

use super::claims::Published;
use super::evaluation::{Evaluation, Nearest, Ours, Row, Tally};
use super::table::short;
use super::verdict::{Class, Verdict};

impl Row {
    fn name(&self) -> String {
        self.claim.path.join(" / ")
    }

    /// The claim with its unit, and where the paper makes it: `elapsed, s / 512 MB / sor / bsd (Table 1)`.
    fn words(&self) -> String {
        let words: Vec<String> = self.claim.path.iter().map(|key| word(key)).collect();
        let place = match self.claim.place.as_str() {
            "" => String::new(),
            place => format!(" ({place})"),
        };
        words.join(" / ") + &place
    }

    /// What it is about, without the run.
    fn subject(&self) -> String {
        word(&self.claim.path[0])
    }

    fn published(&self) -> String {
        match &self.claim.published {
            Published::Number(n) => short(*n),
            Published::Text(text) => text.clone(),
        }
    }

    /// The median, or words.
    fn ours(&self) -> String {
        match &self.ours {
            Ours::Number(n) => short(*n),
            Ours::Spread(spread) => short(spread.median),
            Ours::Against(against) => against.text.clone(),
            Ours::Text(text, _) => text.clone(),
            Ours::None => "no result".to_owned(),
        }
    }

    /// Where 95 % of the runs lie, or in how many words hold.
    fn interval(&self) -> String {
        match &self.ours {
            Ours::Spread(spread) => spread.interval_words(short),
            Ours::Against(against) if against.points => against.spread.interval_words(short),
            Ours::Against(against) => against.spread.interval_words(|v| format!("{v:.2}")),
            Ours::Text(_, Some(held)) => format!("in {} of {}", held.held, held.of),
            _ => String::new(),
        }
    }

    fn difference(&self) -> String {
        match self.deviation {
            Some(d) if self.points => format!("{d:+.1} points"),
            Some(d) => format!("{d:+.1} %"),
            None => "-".to_owned(),
        }
    }

    const fn is_open(&self) -> bool {
        matches!(self.verdict, Verdict::Missed | Verdict::Undetermined)
    }

    /// What comes nearest, in one sentence.
    fn nearest(&self) -> String {
        let Some(Nearest { name, ours, joint }) = &self.nearest else {
            return String::new();
        };
        let (met, of, without) = joint;
        let value = precise(*ours);
        format!(
            "Nearest: {name} gives {value}, and meets {met} of {of} independent rows together ({without} without it, by single runs)."
        )
    }

    /// The remark, what comes nearest and what moves the row most.
    fn why(&self) -> String {
        let mut parts = vec![self.remark.to_owned(), self.nearest()];
        if let Some(moves) = self.moves.as_ref().filter(|moves| !moves.most.is_empty()) {
            let most = moves.most.iter();
            let most = most.map(|(name, ours)| format!("{name} gives {}", precise(*ours)));
            let most: Vec<_> = most.collect();
            let others = match moves.others {
                0 => String::new(),
                n => format!("; {n} others move it less"),
            };
            let from = precise(moves.from);
            parts.push(format!(
                "What moves it most, from {from}: {}{others}.",
                most.join("; ")
            ));
        }
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }
}

/// A key of the table of claims, with its unit.
fn word(key: &str) -> String {
    match key {
        "elapsed" => "elapsed, s".to_owned(),
        "memory_512mb" => "512 MB".to_owned(),
        "memory_1gb" => "1 GB".to_owned(),
        key => key.replace("_percent", ", %").replace('_', " "),
    }
}

impl Tally {
    /// In words.
    #[must_use]
    pub fn words(self) -> String {
        format!(
            "{} met, {} missed, {} undetermined",
            self.met, self.missed, self.undetermined
        )
    }
}

/// With two decimals below 10, for ratios.
fn precise(value: f64) -> String {
    if value.abs() < 10.0 {
        format!("{value:.2}")
    } else {
        short(value)
    }
}

/// Below the notes of a page.
const MORE: &str = "What every variation makes of each row is in the CSV file.";

/// What the verdicts mean.
const RULE: &str = "Ours is this project's simulator's, if not said to be live. A row is met when the interval that holds 95 % of its runs lies within tolerance, \
    missed when all of it lies outside, else undetermined. Tolerance: 10 points for percentages above 10, a tenth of the published value for all else. Words are met if \
    they hold in 95 % of the runs, missed if in 5 % at most; the first run's are shown. The interval lies between the 2.5th and the 97.5th percentile; parentheses in \
    other tables have the least and the most. A saving is the median over pairs of runs with equal draws. Independent rows follow from no other; derived ones are \
    computed from others; by construction are those that were set, or that what was fitted decides; restated rows say in other words what others have, and are not \
    counted. A row that is not judged is in no count. A variation is one run: what it moves by less than the interval may be chance.";

impl Evaluation {
    /// Rows by class, one a line, for people: `independent: 10 met, 3 missed, 2 undetermined`.
    #[must_use]
    pub fn verdicts(&self) -> Vec<String> {
        let of = |class: Class| (class, self.tally(class));
        let all = Class::COUNTED.map(of).into_iter();
        let any = all.filter(|(_, tally)| *tally != Tally::default());
        any.map(|(class, tally)| format!("{}: {}", class.name(), tally.words()))
            .collect()
    }

    /// Rows of a class, in the paper's order.
    fn of(&self, class: Class) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.class == class)
    }

    fn failures(&self) -> Vec<String> {
        let failed = self
            .runs
            .iter()
            .filter_map(|(key, outcome)| Some((key, outcome.as_ref().err()?)));
        let words = failed.map(|(k, why)| {
            format!(
                "{} {} {} {}, draw {}: {why}",
                k.memory, k.workload, k.policy, k.variant, k.seed
            )
        });
        words.collect()
    }
}
