//! Pairs of runs of a workload, two ways, which one goes first alternating.

use std::ffi::OsString;
use std::time::Duration;

use serde::Serialize;

use super::launch::launch;
use super::machine::load_average;
use super::progress::Steps;
use super::summary::{Interval, Spread, table};
use super::{BenchError, problem};
use crate::workload::Report;

/// CPU and elapsed seconds of a pair, the first way first.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    load_average: f64,
    cpu_seconds: [f64; 2],
    wall_seconds: [f64; 2],
}

/// What is compared, and how.
pub struct Plan<'a> {
    /// The workload's short name.
    pub label: String,
    /// What each way is called, as in "without Outpage".
    pub ways: [&'a str; 2],
    /// The commands.
    pub commands: [Vec<OsString>; 2],
    /// How many pairs.
    pub pairs: u32,
    /// After which a run is killed.
    pub timeout: Duration,
    /// Whether to go on after a run that failed.
    pub keep_going: bool,
}

/// All pairs of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Pairs {
    workload: String,
    pairs: Vec<Pair>,
    /// CPU time of the second way over that of the first.
    cpu_ratio: Option<Interval>,
    wall_ratio: Option<Interval>,
}

impl Pairs {
    /// Runs them. What went wrong is added to `problems`.
    ///
    /// # Errors
    /// When a command cannot be started.
    pub fn run(
        plan: &Plan<'_>,
        reference: &Report,
        steps: &mut Steps,
        problems: &mut Vec<String>,
    ) -> Result<Self, BenchError> {
        let mut pairs = Vec::new();
        for pair in 0..plan.pairs {
            let load_average = load_average();
            let (mut cpu_seconds, mut wall_seconds) = ([0.0; 2], [0.0; 2]);
            for side in [pair % 2, 1 - pair % 2].map(|side| side as usize) {
                let what = format!("{} {}, pair {}", plan.label, plan.ways[side], pair + 1);
                steps.begin(&format!("{what} of {}", plan.pairs));
                let run = launch(&plan.commands[side], None, plan.timeout)?;
                if let Some(wrong) = problem(&run.ending, reference) {
                    problems.push(format!("{what}: {wrong}"));
                }
                cpu_seconds[side] = run.cpu_seconds;
                wall_seconds[side] = run.wall_seconds;
            }
            if !problems.is_empty() && !plan.keep_going {
                break;
            }
            pairs.push(Pair {
                load_average,
                cpu_seconds,
                wall_seconds,
            });
        }
        Ok(Self::of(plan.label.clone(), pairs))
    }

    fn of(workload: String, pairs: Vec<Pair>) -> Self {
        let ratios = |seconds: fn(&Pair) -> [f64; 2]| {
            let ratios = pairs.iter().map(seconds).map(|[one, two]| two / one);
            Interval::bootstrap(&ratios.collect::<Vec<f64>>())
        };
        Self {
            workload,
            cpu_ratio: ratios(|pair| pair.cpu_seconds),
            wall_ratio: ratios(|pair| pair.wall_seconds),
            pairs,
        }
    }
}

/// A table with a line for each workload; the ways' short names head its columns.
pub fn render(all: &[Pairs], ways: [&str; 2]) -> String {
    let head = [
        "workload".to_owned(),
        format!("CPU s {}", ways[0]),
        format!("CPU s {}", ways[1]),
        "mean ratio [95 %]".to_owned(),
        "median ratio".to_owned(),
        "elapsed ratio [95 %]".to_owned(),
        "pairs".to_owned(),
    ];
    let mut rows = vec![head.to_vec()];
    for one in all {
        let seconds = |side: usize| {
            let values: Vec<f64> = one.pairs.iter().map(|p| p.cpu_seconds[side]).collect();
            Spread::of(&values).map_or_else(|| "-".into(), |spread| spread.to_string())
        };
        let interval = |interval: Option<Interval>| {
            interval.map_or_else(
                || "-".into(),
                |i| format!("{:.4} [{:.4}-{:.4}]", i.mean, i.low, i.high),
            )
        };
        rows.push(vec![
            one.workload.clone(),
            seconds(0),
            seconds(1),
            interval(one.cpu_ratio),
            one.cpu_ratio
                .map_or_else(|| "-".into(), |i| format!("{:.4}", i.median)),
            interval(one.wall_ratio),
            one.pairs.len().to_string(),
        ]);
    }
    format!(
        "\nCPU seconds, user and system, of the whole command: median [least-most].\n{}",
        table(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_the_ratio_with_its_interval() {
        let pair = Pair {
            load_average: 0.0,
            cpu_seconds: [2.0, 2.02],
            wall_seconds: [2.0, 2.1],
        };
        let pairs = Pairs::of("alloc".into(), vec![pair; 15]);
        let text = render(&[pairs], ["without", "with"]);
        assert!(
            text.contains("1.0100 [1.0100-1.0100]") && text.contains("2.02 [2.02-2.02]"),
            "{text}"
        );
    }
}
