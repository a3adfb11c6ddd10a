//! Pairs of runs of a workload, two ways, which one goes first alternating.

use std::ffi::OsString;
use std::time::Duration;

use serde::Serialize;

use super::launch::{Spec, launch};
use super::machine::load_average;
use super::progress::Steps;
use super::summary::{Interval, Spread, table};
use super::{BenchError, Common, problem, reference};
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

    /// The workload's short name.
    pub fn workload(&self) -> &str {
        &self.workload
    }

    /// Median CPU seconds of the first way; `None` without a pair.
    pub fn cpu_of_first(&self) -> Option<f64> {
        let seconds: Vec<f64> = self.pairs.iter().map(|p| p.cpu_seconds[0]).collect();
        Spread::of(&seconds).map(|spread| spread.median)
    }

    /// Elapsed seconds of the first way (0) or the second (1); `None` without a pair.
    pub fn elapsed(&self, way: usize) -> Option<Spread> {
        let seconds: Vec<f64> = self.pairs.iter().map(|p| p.wall_seconds[way]).collect();
        Spread::of(&seconds)
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

/// What a benchmark of pairs is about.
pub struct Bench<'a> {
    pub common: &'a Common,
    pub pairs: u32,
    pub workloads: &'a [Spec],
    /// What the workloads touch, as a multiple of the limit.
    pub footprint: f64,
    /// What each way is called.
    pub ways: [&'a str; 2],
}

impl Bench<'_> {
    /// Runs the pairs of all workloads; `commands` makes the two ways of a workload's command. What went
    /// wrong is added to `problems`.
    ///
    /// # Errors
    /// When a run without a limit failed or a command cannot be started.
    pub fn run(
        &self,
        commands: impl Fn(Vec<OsString>) -> Result<[Vec<OsString>; 2], BenchError>,
        mut after: impl FnMut(&Pairs),
        problems: &mut Vec<String>,
    ) -> Result<Vec<Pairs>, BenchError> {
        let common = self.common;
        let mib = common.footprint_mib(self.footprint)?;
        let mut steps = Steps::new(self.workloads.len() * (1 + 2 * self.pairs as usize));
        let mut all = Vec::new();
        for spec in self.workloads {
            steps.begin(&format!("{}, first run", spec.label));
            let reference = reference(spec, mib, common.runs.timeout())?;
            let plan = Plan {
                label: spec.label.clone(),
                ways: self.ways,
                commands: commands(spec.command(mib)?)?,
                pairs: self.pairs,
                timeout: common.runs.timeout(),
                keep_going: common.runs.keep_going,
            };
            all.push(Pairs::run(&plan, &reference, &mut steps, problems)?);
            all.last().into_iter().for_each(&mut after);
            if !problems.is_empty() && !common.runs.keep_going {
                break;
            }
        }
        Ok(all)
    }
}

/// A table with a line for each workload; the ways' short names head its columns.
pub fn render(all: &[Pairs], ways: [&str; 2]) -> String {
    let head = [
        "workload".to_owned(),
        format!("CPU s {}", ways[0]),
        format!("CPU s {}", ways[1]),
        "mean ratio [95 %]".to_owned(),
        "median ratio [95 %]".to_owned(),
        "elapsed ratio [95 %]".to_owned(),
        "pairs".to_owned(),
    ];
    let mut rows = vec![head.to_vec()];
    for one in all {
        let seconds = |side: usize| {
            let values: Vec<f64> = one.pairs.iter().map(|p| p.cpu_seconds[side]).collect();
            Spread::of(&values).map_or_else(|| "-".into(), |spread| spread.to_string())
        };
        let text =
            |middle: f64, (low, high): (f64, f64)| format!("{middle:.4} [{low:.4}-{high:.4}]");
        let mean = |ratio: Option<Interval>| {
            ratio.map_or_else(|| "-".into(), |i| text(i.mean, (i.low, i.high)))
        };
        let median = |i: Interval| match i.median_between {
            Some(between) => text(i.median, between),
            None => format!("{:.4}", i.median),
        };
        rows.push(vec![
            one.workload.clone(),
            seconds(0),
            seconds(1),
            mean(one.cpu_ratio),
            one.cpu_ratio.map_or_else(|| "-".into(), median),
            mean(one.wall_ratio),
            one.pairs.len().to_string(),
        ]);
    }
    format!(
        "\nCPU seconds, user and system, of the whole command: median [least-most]. \
         Intervals: of the mean by bootstrap, of the median by ranks.\n{}",
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
