//! `outpage bench events`: what the event log of `outpage trace --events` costs a program that pages.

use std::ffi::OsString;
use std::fmt;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use outpage_core::record::{Logged, Reader, Recorder, Unreadable};
use serde::Serialize;
use serde_json::json;

use super::guard::{Guard, Undo};
use super::launch::{OutpageRun, Spec};
use super::machine::Machine;
use super::pairs::{Bench, Pairs, render};
use super::{BenchError, Common, parse_spec, stats_file, verdict};

use crate::output;

/// Footprint as a multiple of the limit: every pass pages.
const FOOTPRINT: f64 = 2.0;

/// Options of `outpage bench events`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Pairs of runs, one with and one without the event log
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Workloads, as of `bench kernel`
    #[arg(long, value_delimiter = ',', value_parser = parse_spec, default_value = "sor,random")]
    workloads: Vec<Spec>,
}

/// Runs the pairs, prints the table and writes the JSON.
///
/// # Errors
/// When a run failed or its contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let common = &options.common;
    let machine = Machine::look(&common.runs.swap);
    output::print(&machine.describe())?;
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let logs = common
        .runs
        .swap
        .join(format!("outpage-bench-events-{}", std::process::id()));
    guard.note(&Undo::Remove(logs.clone()))?;
    std::fs::create_dir(&logs)
        .map_err(|error| BenchError::Failed(format!("cannot make {}: {error}", logs.display())))?;
    let outpage = OutpageRun {
        limit_bytes: common.memory,
        swap: &common.runs.swap,
        options: &common.runs.run_args,
        stats: &stats,
    };
    let bench = Bench {
        common,
        pairs: options.pairs,
        workloads: &options.workloads,
        footprint: FOOTPRINT,
        ways: ["without events", "with events"],
    };
    let mut problems = Vec::new();
    let commands = |plain| {
        let under = outpage.wrap(plain)?;
        Ok([recording(None, &under), recording(Some(&logs), &under)])
    };
    let mut encoded = Vec::new();
    let after = |pairs: &Pairs| encoded.extend(Encoded::of_latest(&logs, pairs));
    let results = bench.run(commands, after, &mut problems)?;
    if std::fs::read_dir(&logs).is_ok_and(|mut files| files.next().is_none()) {
        problems.push("no run with events left a log: nothing was paged".into());
    }
    output::print(&render(&results, ["without", "with"]))?;
    for one in &encoded {
        output::print_line(format_args!("{one}"))?;
    }
    let results = json!({"benchmark": "events", "machine": machine, "limit_bytes": common.memory,
        "run_args": common.runs.run_args, "workloads": results, "logs": encoded, "problems": problems});
    let written = common.runs.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}

/// `command` with the variable that `outpage trace` sets; empty where there is to be no log. Every log
/// goes under its process's number into `logs`, whose disk must have room for all of them.
fn recording(logs: Option<&Path>, command: &[OsString]) -> Vec<OsString> {
    let mut variable = OsString::from("OUTPAGE_RECORD=");
    if let Some(logs) = logs {
        variable.push(logs.join("log"));
    }
    let mut all = vec!["env".into(), variable];
    all.extend_from_slice(command);
    all
}

/// The log of one run, encoded once more by itself: what the encoder takes with everything in the CPU's
/// caches, to the nanosecond. The pairs show the whole price, but no better than to their noise.
#[derive(Clone, Debug, Serialize)]
struct Encoded {
    workload: String,
    entries: u64,
    bytes: u64,
    seconds: f64,
    /// Median CPU seconds of the runs without a log.
    of_cpu_seconds: f64,
}

impl Encoded {
    /// Encodes so often, and the fastest counts: all else is disturbance.
    const ROUNDS: usize = 7;

    /// That of the log that was written last; `None` where there is none that can be read.
    fn of_latest(logs: &Path, pairs: &Pairs) -> Option<Self> {
        let files = std::fs::read_dir(logs).ok()?.flatten();
        let latest = files.max_by_key(|file| file.metadata().and_then(|m| m.modified()).ok())?;
        let bytes = std::fs::read(latest.path()).ok()?;
        let fastest = |encode| {
            let rounds = (0..Self::ROUNDS).map(|_| pass(&bytes, encode));
            rounds
                .collect::<Result<Vec<_>, _>>()
                .ok()?
                .into_iter()
                .min()
        };
        let (decoded, entries) = fastest(false)?;
        let (encoded, _) = fastest(true)?;
        Some(Self {
            workload: pairs.workload().to_owned(),
            entries,
            bytes: bytes.len() as u64,
            seconds: encoded.saturating_sub(decoded).as_secs_f64(),
            of_cpu_seconds: pairs.cpu_of_first()?,
        })
    }
}

impl fmt::Display for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: a log of {} entries, {} bytes; encoding it by itself takes {:.2} ms, {:.2} % of a run's CPU time",
            self.workload,
            self.entries,
            self.bytes,
            self.seconds * 1e3,
            self.seconds / self.of_cpu_seconds * 100.0
        )
    }
}

/// Reads a log, and encodes it again if so told: how long that took, and its entries.
fn pass(bytes: &[u8], encode: bool) -> Result<(Duration, u64), Unreadable> {
    let start = Instant::now();
    let mut reader = Reader::new(bytes)?;
    let mut out = Vec::new();
    let mut recorder = Recorder::begin(&reader.header(), &mut out);
    let mut entries = 0;
    while let Some(entry) = reader.next_entry()? {
        entries += 1;
        if encode {
            match black_box(entry) {
                Logged::Event { now, event } => recorder.event(now, &event, &mut out),
                Logged::Action(action) => recorder.action(&action, &mut out),
            }
            // As often as the pager writes it out, so that it stays in the caches.
            if out.len() >= 64 << 10 {
                black_box(&out);
                out.clear();
            }
        } else {
            black_box(entry);
        }
    }
    Ok((start.elapsed(), entries))
}
