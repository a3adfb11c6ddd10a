//! What `outpage bench readahead` prints and stores: medians, ratios, what is over and what is worst.

use serde::Serialize;

use super::adversaries::{PAGES_RATIO_MAX, TIME_RATIO_MAX};
use super::summary::{Spread, markdown};
use crate::run::report::grouped;

/// Whose paging a run had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The policy that is compared with.
    Against,
    /// The policy that is measured.
    Measured,
    /// The kernel's swap.
    Kernel,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Whose paging.
    pub side: Side,
    /// From 1 up.
    pub round: u32,
    /// Load average of the minute before.
    pub load_average: f64,
    /// Seconds of the order itself, without filling and checking; of a run that was ended, until then, and
    /// without what the other side took beside the order.
    pub seconds: f64,
    /// Seconds of the whole run.
    pub wall_seconds: f64,
    /// Pages read; until shortly before it was ended if it was.
    pub pages: u64,
    /// Whether it was ended because it took too long.
    pub ended: bool,
    /// Whether the kernel's OOM killer ended it: then it has no time.
    pub oom_killed: bool,
}

/// All runs of one program at one size.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The program.
    pub program: String,
    /// The limit, in percent of what it touches.
    pub percent: u32,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// The runs.
    pub samples: Vec<Sample>,
}

/// Pages, or time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Pages,
    Time,
}

impl What {
    const BOTH: [Self; 2] = [Self::Pages, Self::Time];

    const fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Time => "time",
        }
    }

    /// Times the other side's that are not too much.
    const fn most(self) -> f64 {
        match self {
            Self::Pages => PAGES_RATIO_MAX,
            Self::Time => TIME_RATIO_MAX,
        }
    }
}

impl Line {
    /// Without a run.
    pub const fn new(program: String, percent: u32, limit_bytes: u64) -> Self {
        Self {
            program,
            percent,
            limit_bytes,
            samples: Vec::new(),
        }
    }

    /// The runs of a side.
    pub fn of(&self, side: Side) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.side == side)
    }

    /// Seconds that the runs of the side that is compared with took beside the order itself: the most.
    pub fn beside(&self) -> f64 {
        self.of(Side::Against)
            .map(|sample| sample.wall_seconds - sample.seconds)
            .fold(0.0, f64::max)
    }

    /// Runs of this side that the OOM killer ended.
    fn oom_killed(&self, side: Side) -> usize {
        self.of(side).filter(|sample| sample.oom_killed).count()
    }

    /// Whether a run of this side took too long.
    pub fn ended(&self, side: Side) -> bool {
        self.of(side).any(|sample| sample.ended)
    }

    /// The median of a side; of runs that were ended, what is certain: at least the most of them.
    fn median(&self, side: Side, what: What) -> Option<f64> {
        let value = |sample: &Sample| match what {
            What::Pages => sample.pages as f64,
            What::Time => sample.seconds,
        };
        let survived = self.of(side).filter(|sample| !sample.oom_killed);
        let values: Vec<f64> = survived.map(value).collect();
        let spread = Spread::of(&values)?;
        Some(if self.ended(side) {
            spread.max
        } else {
            spread.median
        })
    }

    /// A side's median over that of the side that is compared with.
    fn ratio(&self, side: Side, what: What) -> Option<f64> {
        let against = self.median(Side::Against, what)?;
        // Of no page at all, one more is as many times as there are.
        let least = if what == What::Pages { 1.0 } else { 1e-6 };
        Some(self.median(side, what)? / against.max(least))
    }

    /// What is over, if anything.
    fn over(&self) -> Vec<What> {
        let over = |what: &What| {
            let longer = *what == What::Time && self.ended(Side::Measured);
            longer || self.ratio(Side::Measured, *what) > Some(what.most())
        };
        What::BOTH.into_iter().filter(over).collect()
    }

    /// One line while the benchmark runs.
    pub fn said(&self) -> String {
        let over: Vec<&str> = self.over().into_iter().map(What::name).collect();
        let [pages, time] = What::BOTH.map(|what| self.cell(Side::Measured, what));
        let verdict = if over.is_empty() {
            String::new()
        } else {
            format!("; over: {}", over.join(", "))
        };
        format!(
            "{}, {} %: pages {pages}, time {time}{verdict}",
            self.program, self.percent
        )
    }

    /// A ratio, with a mark where it is only known to be more.
    fn cell(&self, side: Side, what: What) -> String {
        let mark = if self.ended(side) { "> " } else { "" };
        self.ratio(side, what)
            .map_or_else(|| "-".into(), |ratio| format!("{mark}{ratio:.2}"))
    }

    fn cells(&self, kernel: bool) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| grouped(v as u64));
        let seconds = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
        let bold = |what: What| {
            let cell = self.cell(Side::Measured, what);
            if self.over().contains(&what) {
                format!("**{cell}**")
            } else {
                cell
            }
        };
        let mut cells = vec![self.program.clone(), format!("{} %", self.percent)];
        for side in [Side::Against, Side::Measured] {
            cells.push(number(self.median(side, What::Pages)));
            cells.push(seconds(self.median(side, What::Time)));
        }
        cells.extend(What::BOTH.map(bold));
        if kernel {
            cells.push(number(self.median(Side::Kernel, What::Pages)));
            cells.push(seconds(self.median(Side::Kernel, What::Time)));
            cells.push(self.cell(Side::Kernel, What::Time));
            cells.push(self.oom_killed(Side::Kernel).to_string());
        }
        cells
    }
}

/// The table, how many are over, and the worst.
pub fn render(lines: &[Line], against: &str, rounds: u32) -> String {
    let kernel = lines
        .iter()
        .any(|line| line.of(Side::Kernel).next().is_some());
    let mut head = vec!["program".to_owned(), "memory".into()];
    head.extend([format!("pages `{against}`"), format!("s `{against}`")]);
    head.extend(["pages", "s", "pages ratio", "time ratio"].map(str::to_owned));
    if kernel {
        head.extend(
            [
                "pages kernel",
                "s kernel",
                "kernel's time ratio",
                "OOM kills",
            ]
            .map(str::to_owned),
        );
    }
    let mut rows = vec![head];
    rows.extend(lines.iter().map(|line| line.cells(kernel)));
    let mut out = format!(
        "\nMedians of {rounds} rounds; ratios to `{against}`, in bold beyond {PAGES_RATIO_MAX} times its pages or {TIME_RATIO_MAX} times \
         its time; > where a run was ended because it took too long.\n\n{}\n",
        markdown(&rows)
    );
    for what in What::BOTH {
        let over = lines
            .iter()
            .filter(|line| line.over().contains(&what))
            .count();
        out += &format!(
            "More than {} times the {}: {over} of {}.",
            what.most(),
            what.name(),
            lines.len()
        );
        out += &worst(lines, what).map_or_else(String::new, |line| {
            let ratio = line.cell(Side::Measured, what);
            format!(
                " The worst is {} at {} %: {ratio}.",
                line.program, line.percent
            )
        });
        out.push('\n');
    }
    out
}

/// The line with the highest ratio.
fn worst(lines: &[Line], what: What) -> Option<&Line> {
    let ratio = |line: &Line| line.ratio(Side::Measured, what).unwrap_or(0.0);
    let with = lines
        .iter()
        .filter(|line| line.ratio(Side::Measured, what).is_some());
    with.max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, runs: &[(Side, u64, f64, bool)]) -> Line {
        let mut line = Line::new(program.into(), 50, 1 << 25);
        line.samples = runs
            .iter()
            .map(|&(side, pages, seconds, ended)| Sample {
                side,
                round: 1,
                load_average: 0.0,
                seconds,
                wall_seconds: seconds + 0.5,
                pages,
                ended,
                oom_killed: false,
            })
            .collect();
        line
    }

    #[test]
    fn medians_decide_what_is_over_and_the_worst_is_named() {
        use Side::{Against, Kernel, Measured};
        let fine = line(
            "fine",
            &[(Against, 100, 1.0, false), (Measured, 149, 1.04, false)],
        );
        let pages = line(
            "pages",
            &[
                (Against, 100, 1.0, false),
                (Measured, 151, 0.5, false),
                (Measured, 151, 0.5, false),
                (Measured, 100, 9.0, false),
                (Kernel, 7, 3.0, false),
            ],
        );
        let ended = line(
            "ended",
            &[(Against, 10, 2.0, false), (Measured, 5, 8.0, true)],
        );
        assert!((fine.beside() - 0.5).abs() < 1e-9);
        assert!(fine.over().is_empty());
        assert_eq!(pages.over(), [What::Pages]);
        assert_eq!(ended.over(), [What::Time], "whatever it read until then");
        let text = render(&[fine, pages, ended], "none", 3);
        assert!(
            text.contains("the pages: 1 of 3. The worst is pages at 50 %: 1.51."),
            "{text}"
        );
        assert!(
            text.contains("the time: 1 of 3. The worst is ended at 50 %: > 4.00."),
            "{text}"
        );
        assert!(
            text.contains("| **1.51** | 0.50 | 7 | 3.00 | 3.00 | 0 |"),
            "{text}"
        );
    }

    #[test]
    fn a_run_that_the_oom_killer_ended_has_no_time() {
        use Side::{Against, Kernel};
        let mut killed = line(
            "killed",
            &[(Against, 9, 1.0, false), (Kernel, 5, 0.0, false)],
        );
        killed.samples[1].oom_killed = true;
        let text = render(&[killed.clone()], "none", 1);
        assert!(text.contains("| - | - | - | 1 |"), "{text}");
        let survivor = line("", &[(Kernel, 7, 3.0, false)]);
        killed.samples.extend(survivor.samples);
        let text = render(&[killed], "none", 2);
        assert!(text.contains("| 7 | 3.00 | 3.00 | 1 |"), "{text}");
    }
}
