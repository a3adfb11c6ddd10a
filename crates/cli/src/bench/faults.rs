//! `outpage bench faults`: how long a program waits for one page, beside the device's own read.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use outpage_sys::process::{self, CpuSet, Tid};
use serde::Serialize;
use serde_json::json;

use super::guard::Guard;
use super::launch::{Ending, OutpageRun, Spec, launch};
use super::machine::{Machine, load_average};
use super::progress::Steps;
use super::summary::{Spread, table};
use super::{BenchError, Common, describe, read_stats, stats_file, verdict};
use crate::output;
use crate::workload::Latencies;
use crate::workload::data::Data;

/// Bytes of a page, and of a read of the device.
const PAGE_BYTES: usize = 4096;
/// Size of the file whose pages are read, in pages: more than a disk's own read-ahead.
const FILE_PAGES: usize = 16 << 10;
/// Reads of the device in a round.
const READS: usize = 2_000;
/// Memory of the program, in limits.
const FOOTPRINT: f64 = 3.0;
/// Memory of the program whose pages are kept compressed, in limits: as heaps compress, to a third, half of the limit holds a quarter of its pages and the other half
/// the others. Of the pages that a random touch misses one in thirty is staged.
const FOOTPRINT_COMPRESSED: f64 = 2.0;
/// The hot set whose touches are rescues, in limits: see the workload.
const HOT: f64 = 0.5;
/// The share of the timed touches that must have been of the wanted kind, by the pager's counters: a
/// median of fewer would be shifted. Random touches of three limits find a 24th staged.
const SHARE_MIN: f64 = 0.9;
/// The CPU that program and pager share where there is no other: the one that every machine has.
const SHARED: u32 = 0;
/// Touches of the program in a round.
const TOUCHES: u32 = 20_000;

/// Options of `outpage bench faults`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Runs of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// What the other CPUs do meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Cpus {
    /// Nothing.
    Idle,
    /// A program that never waits runs beside.
    Busy,
    /// There are none: program and pager share one.
    One,
}

const CPUS: [Cpus; 3] = [Cpus::Idle, Cpus::Busy, Cpus::One];

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    /// 4 KiB reads of the disk, O_DIRECT, one at a time.
    Device,
    /// Touches of pages that are in the swap file, read alone.
    PageIn,
    /// Touches of pages that are in the pool, compressed.
    Pool,
    /// Touches of staged pages.
    Rescue,
}

const KINDS: [What; 4] = [What::Device, What::PageIn, What::Pool, What::Rescue];

/// One round of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    #[serde(flatten)]
    latencies: Latencies,
    /// The share of the accesses that were of the kind, by the pager's counters.
    share: f64,
}

/// All rounds of one kind.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    what: What,
    cpus: Cpus,
    rounds: Vec<Round>,
}

/// Runs all rounds, prints the table and writes the JSON.
///
/// # Errors
/// When a run failed, or its faults were not of the kind that was wanted.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let machine = Machine::look(&options.common.runs.swap);
    output::print(&machine.describe())?;
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let disk = Disk::create(&options.common.runs.swap)?;
    let mut steps = Steps::new(KINDS.len() * CPUS.len() * options.rounds as usize);
    let mut all: Vec<Measured> = (CPUS.iter())
        .flat_map(|&cpus| {
            KINDS.map(|what| Measured {
                what,
                cpus,
                rounds: Vec::new(),
            })
        })
        .collect();
    let mut problems = Vec::new();
    let load = load_average();
    'rounds: for round in 0..options.rounds {
        for measured in &mut all {
            let (what, cpus) = (measured.what, measured.cpus);
            steps.begin(&format!(
                "round {}: {what:?}, other CPUs {cpus:?}",
                round + 1
            ));
            let result = match what {
                What::Device => disk.reads(cpus),
                _ => touches(options, what, cpus, &stats),
            };
            match result {
                Ok(round) => measured.rounds.push(round),
                Err(BenchError::Failed(why)) => problems.push(why),
                Err(other) => return Err(other),
            }
            if !problems.is_empty() && !options.common.runs.keep_going {
                break 'rounds;
            }
        }
    }
    drop(steps);
    output::print(&render(&all))?;
    let results = json!({"benchmark": "faults", "machine": machine, "load_average": load,
        "limit_bytes": options.common.memory, "measured": all, "problems": problems});
    let written = options.common.runs.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}

/// What Outpage is run with for touches of this kind, unless the user chose.
fn run_args(options: &Options, what: What) -> Vec<String> {
    let mut run_args = options.common.runs.run_args.clone();
    run_args.push("--readahead=none".into());
    let wanted = match what {
        // What a rescue takes does not depend on it, but how many there are does: this policy stages what is hot, too.
        What::Rescue => "--reclaim=second-chance",
        What::Pool => "--tier=lz4",
        _ => "--tier=none",
    };
    let (option, _) = wanted.split_once('=').expect("an option with a value");
    if !run_args.iter().any(|argument| argument.starts_with(option)) {
        run_args.push(wanted.into());
    }
    run_args
}

/// The program of touches of this kind.
fn program(options: &Options, what: What) -> Result<Vec<OsString>, BenchError> {
    let common = &options.common;
    let (footprint, data) = match what {
        What::Pool => (FOOTPRINT_COMPRESSED, Data::Heap),
        _ => (FOOTPRINT, Data::Incompressible),
    };
    let mut program = Spec::parse("latency")
        .map_err(BenchError::Failed)?
        .command(common.footprint_mib(footprint)?)?;
    program.extend(["--touches".into(), TOUCHES.to_string().into()]);
    program.extend(["--data".into(), data.as_str().into()]);
    if what == What::Rescue {
        let hot = common.footprint_mib(HOT)?.to_string();
        program.extend(["--hot-mib".into(), hot.into()]);
    }
    Ok(program)
}

/// Touches of a program whose pages are mostly in the swap file or in the pool, or hot and partly staged.
fn touches(options: &Options, what: What, cpus: Cpus, stats: &Path) -> Result<Round, BenchError> {
    let common = &options.common;
    let run_args = run_args(options, what);
    let outpage = OutpageRun {
        limit_bytes: common.memory,
        swap: &common.runs.swap,
        options: &run_args,
        stats,
    };
    let mut command: Vec<OsString> = Vec::new();
    if cpus == Cpus::One {
        let shared = SHARED.to_string();
        command.extend(["taskset", "-c", &shared].map(OsString::from));
    }
    command.extend(outpage.wrap(program(options, what)?)?);
    let _spinner = (cpus == Cpus::Busy).then(Spinner::start).transpose()?;
    let run = launch(&command, None, common.runs.timeout())?;
    let Ending::Finished { report } = &run.ending else {
        let why = describe(&run.ending);
        return Err(BenchError::Failed(format!("{what:?}: {why}")));
    };
    let latencies = report.latencies.unwrap_or_default();
    let counters = read_stats(stats);
    let counted = |name: &str| {
        let value = counters.as_ref().and_then(|stats| stats[name].as_u64());
        value.ok_or_else(|| BenchError::Failed(format!("the statistics have no {name}")))
    };
    let of_the_kind = match what {
        // Reads outside the timing are some 50: the run's beginning and end.
        What::PageIn => latencies.count.min(counted("major_faults")?),
        What::Pool => latencies.count.min(counted("compressed_hits")?),
        // Every read beside those that cannot have been timed may have been timed.
        What::Rescue | What::Device => {
            let others = counted("major_faults")?.saturating_sub(report.untimed_reads);
            latencies.count.saturating_sub(others)
        }
    };
    judged(what, latencies, of_the_kind)
}

/// The round, if enough was of the kind.
fn judged(what: What, latencies: Latencies, of_the_kind: u64) -> Result<Round, BenchError> {
    // As many as that many touches of random pages can give in any case.
    let enough = latencies.count > u64::from(TOUCHES) / 3;
    let share = of_the_kind as f64 / latencies.count.max(1) as f64;
    if enough && share >= SHARE_MIN {
        Ok(Round { latencies, share })
    } else {
        Err(BenchError::Failed(format!(
            "{what:?}: {} touches of pages that were not mapped, {of_the_kind} of them of the kind, \
             are not what was to be measured",
            latencies.count
        )))
    }
}

/// A process that never waits.
struct Spinner(Child);

impl Spinner {
    fn start() -> Result<Self, BenchError> {
        let spawned = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn();
        spawned
            .map(Self)
            .map_err(|error| BenchError::Lacks(format!("cannot start sh: {error}")))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This thread on the CPU that program and pager share elsewhere, until it is dropped.
struct Pinned(CpuSet);

impl Pinned {
    fn to_shared() -> Result<Self, BenchError> {
        let lacks = |error| BenchError::Lacks(format!("cannot run on CPU {SHARED} alone: {error}"));
        let before = process::affinity(Tid(0)).map_err(lacks)?;
        process::set_affinity(Tid(0), &CpuSet::one(SHARED)).map_err(lacks)?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = process::set_affinity(Tid(0), &self.0);
    }
}

/// A file without a name on the disk that is measured.
struct Disk(File);

impl Disk {
    fn create(directory: &Path) -> Result<Self, BenchError> {
        let lacks = |error: std::io::Error| {
            BenchError::Lacks(format!(
                "no file for direct I/O in {}: {error}; choose another --swap",
                directory.display()
            ))
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE | libc::O_DIRECT)
            .mode(0o600)
            .open(directory)
            .map_err(lacks)?;
        let mut buffer = vec![0x5a_u8; (1 << 20) + PAGE_BYTES];
        let start = buffer.as_ptr().align_offset(PAGE_BYTES);
        let chunk = &mut buffer[start..start + (1 << 20)];
        for at in (0..FILE_PAGES * PAGE_BYTES).step_by(chunk.len()) {
            file.write_all_at(chunk, at as u64).map_err(lacks)?;
        }
        file.sync_all().map_err(lacks)?;
        Ok(Self(file))
    }

    /// Where program and pager share a CPU, the reads are awaited on that one too: a device may
    /// interrupt another, and then each CPU has its own latency.
    fn reads(&self, cpus: Cpus) -> Result<Round, BenchError> {
        let _pinned = (cpus == Cpus::One).then(Pinned::to_shared).transpose()?;
        let _spinner = (cpus == Cpus::Busy).then(Spinner::start).transpose()?;
        let mut buffer = vec![0_u8; 2 * PAGE_BYTES];
        let start = buffer.as_ptr().align_offset(PAGE_BYTES);
        let page = &mut buffer[start..start + PAGE_BYTES];
        let mut times = Vec::with_capacity(READS);
        let mut at = 1_usize;
        for _ in 0..READS {
            // The generator of Park and Miller: every page of the file in a fixed disorder.
            at = at * 48_271 % 2_147_483_647;
            let offset = (at % FILE_PAGES * PAGE_BYTES) as u64;
            let begun = Instant::now();
            (self.0.read_exact_at(page, offset))
                .map_err(|error| BenchError::Failed(format!("cannot read the disk: {error}")))?;
            times.push(begun.elapsed().as_nanos() as u64);
        }
        Ok(Round {
            latencies: Latencies::of(&mut times),
            share: 1.0,
        })
    }
}

fn render(all: &[Measured]) -> String {
    let head = [
        "what",
        "other CPUs",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "of that kind",
        "rounds",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for measured in all {
        let micros = |value: fn(&Latencies) -> u64| {
            let values: Vec<f64> = (measured.rounds.iter())
                .map(|round| value(&round.latencies) as f64 / 1e3)
                .collect();
            Spread::of(&values).map_or_else(|| "-".into(), |spread| spread.to_string())
        };
        rows.push(vec![
            match measured.what {
                What::Device => "4 KiB read of the disk",
                What::PageIn => "page-in",
                What::Pool => "hit in the pool, LZ4",
                What::Rescue => "rescue of a staged page",
            }
            .into(),
            match measured.cpus {
                Cpus::Idle => "idle",
                Cpus::Busy => "one busy",
                Cpus::One => "none",
            }
            .into(),
            micros(|l| l.p50_ns),
            micros(|l| l.p99_ns),
            micros(|l| l.p999_ns),
            (measured.rounds.iter().map(|round| round.share))
                .reduce(f64::min)
                .map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 100.0)),
            measured.rounds.len().to_string(),
        ]);
    }
    format!(
        "\nTime that one access takes, in us: median [least-most] of the rounds; by the pager's counters\n\
         the share \"of that kind\" of the accesses, least of the rounds, was what the line says.\n{}",
        table(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_kind() {
        let latencies = Latencies {
            count: 9,
            p50_ns: 61_500,
            p90_ns: 70_000,
            p99_ns: 90_000,
            p999_ns: 200_000,
        };
        let text = render(&[Measured {
            what: What::PageIn,
            cpus: Cpus::Busy,
            rounds: [0.99, 0.951].map(|share| Round { latencies, share }).into(),
        }]);
        for part in ["61.50 [61.50-61.50]", "one busy", "95.1 %"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn reads_of_the_disk_are_timed() {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a directory");
        match Disk::create(directory.path()) {
            Ok(disk) => {
                let measured = disk.reads(Cpus::Idle).expect("reads");
                assert!(
                    measured.latencies.count == READS as u64 && measured.latencies.p50_ns > 0,
                    "{measured:?}"
                );
            }
            Err(error) => eprintln!("SKIPPED: {error}"),
        }
    }
}
