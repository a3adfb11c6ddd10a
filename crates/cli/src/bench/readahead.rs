//! `outpage bench readahead`: what reading ahead costs where it cannot help.
//!
//! Two ways of reading ahead by turns, on orders that it gets wrong, on other workloads and on other
//! programs, at parts of the memory that each touches; the kernel's swap beside them where that is asked
//! for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::adversaries::ADVERSARIES;
use super::guard::Guard;
use super::kernel::{SWAP_FOOTPRINTS, reserve_bytes};
use super::kernel_swap::Kernel;
use super::launch::{Ending, OutpageRun, Run, Speaks, Spec, launch_as};
use super::machine::{IoCounts, Machine, available_bytes, load_average};
use super::progress::Steps;
use super::readahead_report::{Line, Sample, Side, render};
use super::{
    BenchError, Runs, describe, fits_machine, parse_spec, problem, read_stats, stats_file, verdict,
};
use crate::output;
use crate::workload::Report;

/// The least that `outpage run` is asked to work with, in bytes.
const LIMIT_MIN_BYTES: u64 = 4 << 20;
/// No run is given up before so many seconds: a short one may double by chance.
const GIVE_UP_SECONDS_MIN: f64 = 5.0;
/// The setting of `vm.page-cluster` that the kernel has by default.
const PAGE_CLUSTER: u32 = 3;

/// Options of `outpage bench readahead`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    runs: Runs,
    /// Memory that the workloads touch, in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    mib: u32,
    /// Memory limits, in percent of what a program touches
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "25,50,75,90", value_parser = clap::value_parser!(u32).range(1..=100))]
    memory_percent: Vec<u32>,
    /// Rounds; the table has medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Workloads, as of `bench kernel` [default: the orders that reading ahead gets wrong]
    #[arg(long, value_delimiter = ',', value_parser = parse_spec)]
    workloads: Vec<Spec>,
    /// Any other program, run by sh; may be repeated. It has to print the same each time
    #[arg(long = "command", value_name = "NAME=COMMAND", value_parser = parse_command)]
    commands: Vec<(String, String)>,
    /// The read-ahead policy that is measured, with its settings [default: that of `outpage run`]
    #[arg(long, value_name = "NAME")]
    readahead: Option<String>,
    /// The read-ahead policy that it is compared with
    #[arg(long, value_name = "NAME", default_value = "none")]
    against: String,
    /// End a run that takes so many times as long as the other policy; it counts as longer, and is not
    /// repeated
    #[arg(long, value_name = "TIMES", default_value_t = 4.0)]
    give_up: f64,
    /// Kernel swap at the same memory as well (needs root)
    #[arg(long)]
    kernel: bool,
}

/// `NAME=COMMAND`, for clap.
fn parse_command(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.is_empty() => {
            Ok((name.to_owned(), command.to_owned()))
        }
        _ => Err("write it as NAME=COMMAND".into()),
    }
}

/// A program, and what it does without a limit.
struct Target {
    label: String,
    command: Vec<OsString>,
    speaks: Speaks,
    /// Bytes that it touches.
    touches: u64,
    reference: Report,
}

/// The benchmark while it runs.
struct Bench<'a> {
    options: &'a Options,
    stats: PathBuf,
    guard: Guard,
    kernel: Option<Kernel>,
    steps: Steps,
    lines: Vec<Line>,
    problems: Vec<String>,
}

/// Runs all, prints the table and writes the JSON.
///
/// # Errors
/// When the machine lacks something, a run failed, or contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let runs = &options.runs;
    fits_machine(options.mib, "--mib")?;
    let machine = Machine::look(&runs.swap);
    output::print(&machine.describe())?;
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let workloads = workloads(options)?;
    let cells = (workloads.len() + options.commands.len()) * options.memory_percent.len();
    let sides = 2 + usize::from(options.kernel);
    let mut bench = Bench {
        options,
        stats,
        guard,
        kernel: None,
        steps: Steps::new(cells * sides * options.rounds as usize),
        lines: Vec::new(),
        problems: Vec::new(),
    };
    let ended = bench.all(&workloads);
    let Bench {
        guard,
        steps,
        lines,
        problems,
        ..
    } = bench;
    drop(steps);
    let cleaned = guard.finish();
    output::print(&render(&lines, &options.against, options.rounds))?;
    let written = runs.write_json(&json!({"benchmark": "readahead", "machine": machine,
        "mib": options.mib, "rounds": options.rounds, "readahead": options.readahead,
        "against": options.against, "run_args": runs.run_args, "lines": lines, "problems": problems}));
    ended.and(verdict(&problems)).and(cleaned).and(written)
}

/// The workloads that are asked for; the adversaries when nothing is.
fn workloads(options: &Options) -> Result<Vec<Spec>, BenchError> {
    if !options.workloads.is_empty() || !options.commands.is_empty() {
        return Ok(options.workloads.clone());
    }
    let specs = ADVERSARIES.iter().map(|label| Spec::parse(label));
    specs.collect::<Result<_, _>>().map_err(BenchError::Usage)
}

impl Bench<'_> {
    /// All programs at all sizes. Stops at the first problem unless told to go on.
    fn all(&mut self, workloads: &[Spec]) -> Result<(), BenchError> {
        let options = self.options;
        for at in 0..workloads.len() + options.commands.len() {
            let target = match workloads.get(at) {
                Some(spec) => self.workload(spec),
                None => self.program(&options.commands[at - workloads.len()]),
            }?;
            if options.kernel && self.kernel.is_none() {
                let bytes = target.touches.max(u64::from(options.mib) << 20) * SWAP_FOOTPRINTS;
                self.kernel = Some(Kernel::prepare(&options.runs.swap, bytes, &mut self.guard)?);
            }
            for &percent in &options.memory_percent {
                let line = self.line(&target, percent)?;
                self.steps.say(&line.said());
                self.lines.push(line);
                if !self.problems.is_empty() && !options.runs.keep_going {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A workload, run once without a limit.
    fn workload(&self, spec: &Spec) -> Result<Target, BenchError> {
        let mib = self.options.mib;
        let reference = super::reference(spec, mib, self.options.runs.timeout())?;
        Ok(Target {
            label: spec.label.clone(),
            command: spec.command(mib)?,
            speaks: Speaks::Report,
            touches: spec.touches_bytes(mib),
            reference,
        })
    }

    /// Another program, run once with more memory than it needs: that tells how much it touches.
    fn program(&self, (label, text): &(String, String)) -> Result<Target, BenchError> {
        let command = ["sh", "-c", text].map(OsString::from).to_vec();
        let plenty = available_bytes().unwrap_or(LIMIT_MIN_BYTES * 256) / 2;
        let limits = (None, self.options.runs.timeout());
        let run = self.outpage(&command, Speaks::Anything, plenty, limits)?.0;
        let Ending::Finished { report } = run.ending else {
            let how = describe(&run.ending);
            return Err(BenchError::Failed(format!(
                "{label} without a limit: {how}"
            )));
        };
        let peak = read_stats(&self.stats).and_then(|stats| stats.get("peak_bytes")?.as_u64());
        let touches = peak.filter(|&bytes| bytes > 0).ok_or_else(|| {
            BenchError::Failed(format!("{label}: outpage run counted no memory of it"))
        })?;
        Ok(Target {
            label: label.clone(),
            command,
            speaks: Speaks::Anything,
            touches,
            reference: report,
        })
    }

    /// A run under `outpage run`, and the pages that it read.
    fn outpage(
        &self,
        command: &[OsString],
        speaks: Speaks,
        limit_bytes: u64,
        (policy, timeout): (Option<&str>, Duration),
    ) -> Result<(Run, u64), BenchError> {
        let _ = std::fs::remove_file(&self.stats);
        let mut options = self.options.runs.run_args.clone();
        options.extend(policy.map(|name| format!("--readahead={name}")));
        let outpage = OutpageRun {
            limit_bytes,
            swap: &self.options.runs.swap,
            options: &options,
            stats: &self.stats,
        };
        let run = launch_as(&outpage.wrap(command.to_vec())?, None, timeout, speaks)?;
        let pages = read_stats(&self.stats).and_then(|stats| stats.get("page_ins")?.as_u64());
        Ok((run, pages.unwrap_or(0)))
    }

    /// All rounds of one program at one size.
    fn line(&mut self, target: &Target, percent: u32) -> Result<Line, BenchError> {
        let rounds = self.options.rounds;
        let limit = (target.touches * u64::from(percent) / 100).max(LIMIT_MIN_BYTES) & !0xfff;
        let mut line = Line::new(target.label.clone(), percent, limit);
        let mut sides = vec![Side::Against, Side::Measured];
        sides.extend(self.kernel.is_some().then_some(Side::Kernel));
        for round in 1..=rounds {
            // Another side begins each time; in the first round the one that the others are ended by.
            let first = (round as usize - 1) % sides.len();
            for &side in sides[first..].iter().chain(&sides[..first]) {
                let what = format!("{}, {percent} %, {side:?}, round {round}", target.label);
                self.steps.begin(&format!("{what} of {rounds}"));
                if line.ended(side) {
                    continue;
                }
                let sample = self.sample(target, side, round, &line, &what)?;
                line.samples.extend(sample);
            }
        }
        Ok(line)
    }

    /// One run; `None` when it failed, which is noted.
    fn sample(
        &mut self,
        target: &Target,
        side: Side,
        round: u32,
        line: &Line,
        what: &str,
    ) -> Result<Option<Sample>, BenchError> {
        let load_average = load_average();
        let timeout = self.patience(side, line);
        let (run, pages) = match side {
            Side::Kernel => self.kernel_run(target, line.limit_bytes, timeout)?,
            _ => {
                let measured = self.options.readahead.as_deref();
                let policy = if side == Side::Against {
                    Some(&*self.options.against)
                } else {
                    measured
                };
                let limits = (policy, timeout);
                self.outpage(&target.command, target.speaks, line.limit_bytes, limits)?
            }
        };
        let seconds = match &run.ending {
            Ending::TimedOut if side != Side::Against => run.wall_seconds - line.beside(),
            Ending::OomKilled { .. } if side == Side::Kernel => 0.0,
            ending => match problem(ending, &target.reference) {
                None => own_seconds(ending),
                Some(wrong) => {
                    self.problems.push(format!("{what}: {wrong}"));
                    return Ok(None);
                }
            },
        };
        Ok(Some(Sample {
            side,
            round,
            load_average,
            seconds,
            wall_seconds: run.wall_seconds,
            pages,
            ended: run.ending == Ending::TimedOut,
            oom_killed: matches!(run.ending, Ending::OomKilled { .. }),
        }))
    }

    /// How long a run may take.
    fn patience(&self, side: Side, line: &Line) -> Duration {
        let most = self.options.runs.timeout();
        let against = line.of(Side::Against).map(|sample| sample.wall_seconds);
        let longest = against
            .max_by(f64::total_cmp)
            .filter(|_| side != Side::Against);
        longest.map_or(most, |longest| {
            let seconds = (longest * self.options.give_up).max(GIVE_UP_SECONDS_MIN);
            most.min(Duration::from_secs_f64(seconds))
        })
    }

    /// A run with kernel swap in as much memory as Outpage takes, its own included.
    fn kernel_run(
        &mut self,
        target: &Target,
        limit_bytes: u64,
        timeout: Duration,
    ) -> Result<(Run, u64), BenchError> {
        let Some(kernel) = &mut self.kernel else {
            return Err(BenchError::Failed("kernel swap was not prepared".into()));
        };
        let measured = kernel.run(
            (&target.command, target.speaks),
            limit_bytes + reserve_bytes(target.touches),
            Some(PAGE_CLUSTER),
            timeout,
            &mut self.guard,
        )?;
        let IoCounts { pswpin, .. } = measured.io;
        Ok((measured.run, pswpin))
    }
}

fn own_seconds(ending: &Ending) -> f64 {
    match ending {
        Ending::Finished { report } => report.own_seconds(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_a_name() {
        let parsed = parse_command("sort=sort -k2=3 file").unwrap();
        assert_eq!(parsed, ("sort".into(), "sort -k2=3 file".into()));
        assert!(parse_command("sort").is_err() && parse_command("=sort").is_err());
        assert!(parse_command("sort=").is_err());
    }
}
