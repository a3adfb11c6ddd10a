//! `outpage bench`: measurements against the kernel's own swap, against no pager at all, and of the
//! page-out policies among themselves.
//!
//! Every run is this program again, as `outpage workload`, either on its own or behind
//! `outpage run`, so both sides execute the same instructions. What a benchmark changes on the
//! machine is undone by [`guard`], however it ends.

mod adversaries;
pub mod cgroup;
mod compression;
mod encrypt;
mod events;
mod faults;
mod fit;
pub mod guard;
mod kernel;
mod kernel_report;
pub mod kernel_swap;
pub mod launch;
mod machine;
mod pageout;
mod pairs;
mod plot;
mod programs;
mod progress;
mod readahead;
mod readahead_report;
mod reclaim;
mod sim;
pub mod summary;
mod tools;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outpage_engine::config::parse_memory;

use launch::{Ending, Spec};

use crate::error::CliError;

/// Exit status "a resource is unavailable" (EX_UNAVAILABLE of sysexits.h): the machine lacks something.
const EXIT_LACKS: u8 = 69;
/// Exit status "the command was used incorrectly" (EX_USAGE of sysexits.h).
const EXIT_USAGE: u8 = 64;
/// Exit status of everything else that goes wrong, wrong contents above all.
const EXIT_FAILED: u8 = 1;

/// Options of `outpage bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Mode {
    /// Compare with the kernel's own swap: same workloads, same limit, same disk (needs root)
    ///
    /// Every run gets a fresh memory cgroup with the same limit. Outpage's own memory counts against
    /// it, and kernel swap is off while Outpage runs. The kernel swaps to a file that this command
    /// makes, at each of the given settings of vm.page-cluster. Everything is undone at the end, also
    /// after Ctrl-C or a kill. The contents after every run are compared with those of a run without
    /// a limit.
    Kernel(Box<kernel::Options>),
    /// Measure what Outpage costs a program that fits its limit, in CPU time
    ///
    /// Pairs of runs with and without Outpage, in alternating order. CPU time is user plus system of
    /// the whole command, launcher included.
    Fit(Box<fit::Options>),
    /// Measure what the event log of `outpage trace --events` costs a program that pages, in CPU time
    ///
    /// Pairs of runs under `outpage run`, with and without the log, in alternating order.
    Events(Box<events::Options>),
    /// Measure what encrypting the swap file costs a program that pages, in CPU time and elapsed
    ///
    /// Pairs of runs under `outpage run`, with --encrypt off and on, in alternating order.
    Encrypt(Box<encrypt::Options>),
    /// Measure how long a program waits for a page: page-ins and rescues, beside the disk's own read
    ///
    /// Once with the other CPUs idle, once with a program that never waits beside, once on one CPU.
    Faults(Box<faults::Options>),
    /// Compare the page-out policies: write requests, cluster sizes, page-ins
    Pageout(Box<pageout::Options>),
    /// Measure whether reading ahead costs where it cannot help: the default against reading nothing ahead
    ///
    /// Each workload, at parts of the memory that it touches, by turns with both. What reads more than 1.5
    /// times as many pages, or takes more than 1.05 times as long, is marked, and the worst is named.
    Readahead(Box<readahead::Options>),
    /// Compare on real programs at parts of their peak: no limit, Outpage, kernel swap, kernel swap on zram (needs root)
    ///
    /// Interpreters, stores, a compiler, a linker, a solver, a pipeline: what Debian installs. A program that is missing
    /// is skipped, and said to be. Every run gets a fresh memory cgroup with the same limit, in which Outpage's own memory
    /// counts, and zram's. What each run prints is compared with a run without a limit. Everything that is changed on
    /// the machine is undone at the end, also after Ctrl-C or a kill.
    Programs(Box<programs::Options>),
    /// Every read-ahead policy on the orders that reading ahead gets wrong, simulated, beside the bound
    ///
    /// The tables are Markdown. What reads more than 1.5 times as many pages as `none`, or takes more than
    /// 1.05 times as long, is in bold.
    Adversaries(Box<adversaries::Options>),
    /// Clustering beside swap compression on the papers' programs, simulated, by how far pages compress
    ///
    /// The tables are Markdown: elapsed time, times that of the kernel's clustering without compression.
    Compression(Box<compression::Options>),
    /// Every reclaim policy on recorded programs and on loops, scans and phases, simulated, beside the optimum
    ///
    /// The tables are Markdown: pages read in 25, 50 and 75 % of what is touched, nothing being read ahead.
    Reclaim(reclaim::Options),
    /// Draw a stored result of `bench kernel` as a picture
    Plot(plot::Options),
    /// Measure the simulator: references, faults and decoded references a second
    Sim(sim::Options),
    /// Undo what is written to stdin once it closes
    #[command(hide = true)]
    Guard,
}

/// Options of the benchmarks that have one memory limit.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// Memory limit
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_memory)]
    memory: u64,
    #[command(flatten)]
    runs: Runs,
}

impl Common {
    /// A footprint of `ratio` times the limit, in whole MiB.
    fn footprint_mib(&self, ratio: f64) -> Result<u32, BenchError> {
        let mib = (self.memory as f64 * ratio / f64::from(1 << 20)).ceil();
        if !(1.0..f64::from(1 << 20)).contains(&mib) {
            return Err(BenchError::Usage(format!(
                "a footprint of {mib} MiB cannot be measured; it must be 1 MiB to 1 TiB"
            )));
        }
        fits_machine(mib as u32, "--memory").map(|()| mib as u32)
    }
}

/// Whether this machine has room for a run without a limit that touches `mib` MiB, which `option` made so
/// large.
///
/// # Errors
/// When it has not.
fn fits_machine(mib: u32, option: &str) -> Result<(), BenchError> {
    // Tables and the kernel's own caches need room as well.
    let needed = u64::from(mib) << 20;
    match machine::available_bytes() {
        Some(available) if available < needed + needed / 4 => Err(BenchError::Lacks(format!(
            "the run without a limit needs {} MiB and this machine has {} MiB free; choose a smaller {option}",
            (needed + needed / 4) >> 20,
            available >> 20
        ))),
        _ => Ok(()),
    }
}

/// Options of all benchmarks that run programs.
#[derive(Clone, Debug, clap::Args)]
struct Runs {
    /// Directory of the swap files; its disk is the one that is measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    swap: PathBuf,
    /// Write every run and the summary to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Go on after a run that failed; the exit status still tells
    #[arg(long)]
    keep_going: bool,
    /// Pass an option on to `outpage run`; may be repeated, e.g. --run-arg=--pageout=bsd
    #[arg(long = "run-arg", value_name = "OPTION", allow_hyphen_values = true)]
    run_args: Vec<String>,
    /// Kill a run that takes longer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

impl Runs {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Writes the results where `--json` says.
    fn write_json(&self, results: &serde_json::Value) -> Result<(), BenchError> {
        write_json(self.json.as_deref(), results)
    }
}

/// Writes results to a file, if there is to be one.
fn write_json(file: Option<&Path>, results: &serde_json::Value) -> Result<(), BenchError> {
    let Some(file) = file else {
        return Ok(());
    };
    std::fs::write(file, format!("{results:#}\n"))
        .map_err(|error| BenchError::Failed(format!("cannot write {}: {error}", file.display())))
}

/// Why a benchmark ended without a result, or with one that must not be believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BenchError {
    /// The machine or the user's rights lack something; the text names the remedy.
    Lacks(String),
    /// Options that contradict each other or the machine.
    Usage(String),
    /// A run failed or its contents were wrong, or the machine did not do what it was told.
    Failed(String),
    /// A file cannot be read or written, or holds something else.
    File(CliError),
}

impl From<CliError> for BenchError {
    fn from(error: CliError) -> Self {
        Self::File(error)
    }
}

impl From<BenchError> for CliError {
    fn from(error: BenchError) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}

impl BenchError {
    /// The exit status of the command.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Lacks(_) => EXIT_LACKS,
            Self::Usage(_) => EXIT_USAGE,
            Self::Failed(_) => EXIT_FAILED,
            Self::File(error) => error.code,
        }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacks(text) | Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::File(error) => f.write_str(&error.text),
        }
    }
}

impl std::error::Error for BenchError {}

/// Runs a benchmark.
///
/// # Errors
/// When something is missing on the machine, a run failed, or contents were wrong.
pub fn run(args: &Args) -> Result<(), BenchError> {
    match &args.mode {
        Mode::Kernel(options) => kernel::run(options),
        Mode::Fit(options) => fit::run(options),
        Mode::Events(options) => events::run(options),
        Mode::Encrypt(options) => encrypt::run(options),
        Mode::Faults(options) => faults::run(options),
        Mode::Pageout(options) => pageout::run(options),
        Mode::Readahead(options) => readahead::run(options),
        Mode::Programs(options) => programs::run(options),
        Mode::Adversaries(options) => adversaries::run(options),
        Mode::Compression(options) => compression::run(options),
        Mode::Reclaim(options) => reclaim::run(options),
        Mode::Plot(options) => plot::run(options),
        Mode::Sim(options) => sim::run(options),
        Mode::Guard => guard::watch(std::io::stdin().lock()),
    }
}

/// Where `outpage run` writes its counters; the guard removes it.
fn stats_file(guard: &mut guard::Guard) -> Result<PathBuf, BenchError> {
    let path = std::env::temp_dir().join(format!("outpage-bench-{}.json", std::process::id()));
    guard.note(&guard::Undo::Remove(path.clone()))?;
    Ok(path)
}

/// The counters that `outpage run` wrote, if it wrote any.
fn read_stats(path: &Path) -> Option<serde_json::Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

/// Parses the short name of a workload, for clap.
fn parse_spec(label: &str) -> Result<Spec, String> {
    Spec::parse(label)
}

/// The run without pager and limit that all others are compared with.
fn reference(
    spec: &Spec,
    mib: u32,
    timeout: Duration,
) -> Result<crate::workload::Report, BenchError> {
    match launch::launch(&spec.command(mib)?, None, timeout)?.ending {
        Ending::Finished { report } => Ok(report),
        other => Err(BenchError::Failed(format!(
            "{} without a limit: {}",
            spec.label,
            describe(&other)
        ))),
    }
}

/// What is wrong with a run under Outpage; `None` when it finished with the right contents.
fn problem(ending: &Ending, reference: &crate::workload::Report) -> Option<String> {
    match ending {
        Ending::Finished { report } if report.checksum == reference.checksum => None,
        Ending::Finished { report } => Some(format!(
            "WRONG CONTENTS: checksum {} where the run without a limit has {}",
            report.checksum, reference.checksum
        )),
        other => Some(describe(other)),
    }
}

/// How a run ended, for people.
fn describe(ending: &Ending) -> String {
    match ending {
        Ending::Finished { .. } => "finished".into(),
        Ending::OomKilled { swap_used_kib } => {
            format!(
                "killed by the kernel's OOM killer ({} MiB of swap in use)",
                swap_used_kib >> 10
            )
        }
        Ending::TimedOut => "killed because it took too long (--timeout)".into(),
        Ending::Failed { what } => what.clone(),
    }
}

/// Reports what went wrong during a benchmark that went on.
fn verdict(problems: &[String]) -> Result<(), BenchError> {
    match problems {
        [] => Ok(()),
        [only] => Err(BenchError::Failed(only.clone())),
        [first, ..] => Err(BenchError::Failed(format!(
            "{} runs failed; the first: {first}",
            problems.len()
        ))),
    }
}
