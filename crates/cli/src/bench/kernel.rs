//! `outpage bench kernel`: Outpage and the kernel's swap, same limit, same disk, in turn.

use std::path::PathBuf;

use outpage_engine::config::parse_size;
use serde_json::json;

use super::guard::Guard;
use super::kernel_report::{self, Record, Reference, Side};
use super::kernel_swap::Kernel;
use super::launch::{Ending, OutpageRun, Speaks, Spec};
use super::machine::{Machine, load_average};
use super::progress::Steps;
use super::{
    BenchError, Common, describe, parse_spec, problem, read_stats, reference, stats_file, verdict,
};

use crate::output;

/// What Outpage needs beside the program's pages. Measured under moc1 at a limit of 128 MiB: launcher and
/// keeper 0.9 MiB, memory of the program that is not managed 0.5, the pager's fixed tables 0.7, the
/// session 0.1, kernel stacks and rings 0.3; the rest is room for the files of programs and libraries ...
const RESERVE_BYTES: u64 = 9 << 19;
/// ... and, as a part of what the workload touches, tables: for each page 36 bytes of state and slots and 8 of page
/// tables, for each frame 16 more of page tables and 6 of the table of staged pages, with twice as many pages as
/// frames. Of 128 MiB the fullest of 5 to 18 runs of each workload left 1.2 (`random`) to 2.6 MiB (`moc4`) unused.
const RESERVE_PART: u64 = 80;
/// Size of the kernel's swap file, in footprints: room enough that nearly-full swap costs it nothing.
pub const SWAP_FOOTPRINTS: u64 = 4;
/// The least that `outpage run` is asked to work with, in bytes.
const LIMIT_MIN_BYTES: u64 = 4 << 20;

/// Options of `outpage bench kernel`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Memory that the workloads touch, in limits
    #[arg(long, value_name = "RATIO", default_value_t = 2.0)]
    footprint: f64,
    /// Runs of each workload on each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Workloads: sor, lu, lu-sparse, moc1 to moc16, random, seq, hotset, graph, alloc, compute, column,
    /// transpose, fft, zigzag, join, merge, runs, phases; with options as in column:arrays=2:writes
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = parse_spec,
        default_value = "sor,lu,moc1,moc2,moc4,moc8,moc16,random"
    )]
    workloads: Vec<Spec>,
    /// Settings of vm.page-cluster for the kernel's runs: it reads 2^N pages at a time
    #[arg(long, value_delimiter = ',', default_value = "0,3,5", value_parser = clap::value_parser!(u32).range(0..=31))]
    page_cluster: Vec<u32>,
    /// Part of the limit that Outpage is not given, for its own memory
    /// [default: 4.5 MiB and an 80th of what the workload touches]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    reserve: Option<u64>,
}

impl Options {
    /// What Outpage is given for the program's pages in a run of `spec`, in bytes.
    ///
    /// # Errors
    /// When that is too little.
    fn given(&self, spec: &Spec, footprint_mib: u32) -> Result<u64, BenchError> {
        let (memory, needed) = (self.common.memory, spec.touches_bytes(footprint_mib));
        let reserve = self.reserve.unwrap_or_else(|| reserve_bytes(needed));
        let given = memory.checked_sub(reserve).map(|bytes| bytes & !0xfff);
        given.filter(|&bytes| bytes >= LIMIT_MIN_BYTES).ok_or_else(|| {
            BenchError::Usage(format!(
                "a limit of {} KiB leaves too little beside the {} KiB that Outpage needs itself \
                 (--reserve); choose a larger --memory",
                memory >> 10,
                reserve >> 10
            ))
        })
    }
}

/// What Outpage needs for itself beside a program that touches `touched` bytes, in bytes.
pub const fn reserve_bytes(touched: u64) -> u64 {
    RESERVE_BYTES + touched / RESERVE_PART
}

/// The least and the most of `bytes`, in MiB.
fn in_mib(bytes: &[u64]) -> String {
    let mib = |bytes: Option<&u64>| bytes.map_or(0.0, |&b| b as f64 / f64::from(1 << 20));
    let (least, most) = (mib(bytes.iter().min()), mib(bytes.iter().max()));
    if least < most {
        format!("{least:.1} to {most:.1}")
    } else {
        format!("{most:.1}")
    }
}

/// The benchmark while it runs.
struct Bench<'a> {
    options: &'a Options,
    kernel: Kernel,
    guard: Guard,
    stats: PathBuf,
    footprint_mib: u32,
    steps: Steps,
    references: Vec<Reference>,
    records: Vec<Record>,
    problems: Vec<String>,
}

/// Runs the comparison, prints the tables and writes the JSON.
///
/// # Errors
/// When the machine lacks something, a run failed other than by the OOM killer on the kernel's side,
/// or contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let common = &options.common;
    let footprint_mib = common.footprint_mib(options.footprint)?;
    let footprint_bytes = u64::from(footprint_mib) << 20;
    let given = options
        .workloads
        .iter()
        .map(|spec| options.given(spec, footprint_mib));
    let given: Vec<u64> = given.collect::<Result<_, _>>()?;
    let machine = Machine::look(&common.runs.swap);
    output::print(&machine.describe())?;
    output::print_line(format_args!(
        "limit {} MiB, of which Outpage may use {} for the program; footprint {footprint_mib} MiB; {} rounds",
        common.memory >> 20,
        in_mib(&given),
        options.rounds
    ))?;
    let mut guard = Guard::start()?;
    let kernel = Kernel::prepare(
        &common.runs.swap,
        footprint_bytes * SWAP_FOOTPRINTS,
        &mut guard,
    )?;
    let runs =
        options.workloads.len() * (1 + options.rounds as usize * (1 + options.page_cluster.len()));
    let mut bench = Bench {
        options,
        kernel,
        stats: stats_file(&mut guard)?,
        guard,
        footprint_mib,
        steps: Steps::new(runs),
        references: Vec::new(),
        records: Vec::new(),
        problems: Vec::new(),
    };
    let ended = bench.all();
    bench.conclude(&machine, ended)
}

impl Bench<'_> {
    /// All runs. Stops at the first problem unless told to go on.
    fn all(&mut self) -> Result<(), BenchError> {
        let options = self.options;
        for spec in &options.workloads {
            self.steps.begin(&format!("{} without a limit", spec.label));
            let report = reference(spec, self.footprint_mib, options.common.runs.timeout())?;
            self.references.push(Reference {
                label: spec.label.clone(),
                report,
            });
        }
        let mut sides = vec![Side::Outpage];
        sides.extend(
            options
                .page_cluster
                .iter()
                .map(|&page_cluster| Side::Kernel(page_cluster)),
        );
        for round in 1..=options.rounds {
            for (index, spec) in options.workloads.iter().enumerate() {
                // Another side begins each time, so that none always meets a warm or a tired disk.
                let first = (round as usize - 1 + index) % sides.len();
                for &side in sides[first..].iter().chain(&sides[..first]) {
                    self.steps.begin(&format!(
                        "round {round} of {}: {}, {side}",
                        options.rounds, spec.label
                    ));
                    let record = self.one(spec, side, round)?;
                    self.judge(&record, index);
                    self.records.push(record);
                    if !self.problems.is_empty() && !options.common.runs.keep_going {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// One run in a fresh cgroup.
    fn one(&mut self, spec: &Spec, side: Side, round: u32) -> Result<Record, BenchError> {
        let common = &self.options.common;
        let mut command = spec.command(self.footprint_mib)?;
        let swap = match side {
            Side::Outpage => {
                let _ = std::fs::remove_file(&self.stats);
                let outpage = OutpageRun {
                    limit_bytes: self.options.given(spec, self.footprint_mib)?,
                    swap: &common.runs.swap,
                    options: &common.runs.run_args,
                    stats: &self.stats,
                };
                command = outpage.wrap(command)?;
                None
            }
            Side::Kernel(page_cluster) => Some(page_cluster),
        };
        let load_average = load_average();
        let measured = self.kernel.run(
            (&command, Speaks::Report),
            common.memory,
            swap,
            common.runs.timeout(),
            &mut self.guard,
        )?;
        Ok(Record {
            workload: spec.label.clone(),
            round,
            side,
            load_average,
            page_cluster: measured.page_cluster,
            run: measured.run,
            io: measured.io,
            outpage_stats: if side == Side::Outpage {
                read_stats(&self.stats)
            } else {
                None
            },
        })
    }

    /// Notes what is wrong with a run. On the kernel's side an OOM kill or a run without end is a
    /// result, not a failure.
    fn judge(&mut self, record: &Record, workload: usize) {
        let what = format!(
            "{}, {}, round {}",
            record.workload, record.side, record.round
        );
        let wrong = problem(&record.run.ending, &self.references[workload].report);
        match (record.side, &record.run.ending) {
            (Side::Kernel(_), Ending::OomKilled { .. } | Ending::TimedOut) => {
                self.steps
                    .say(&format!("{what}: {}", describe(&record.run.ending)));
            }
            _ => self
                .problems
                .extend(wrong.map(|wrong| format!("{what}: {wrong}"))),
        }
        if let Side::Kernel(wanted) = record.side
            && record.page_cluster != [wanted; 2]
        {
            let [before, after] = record.page_cluster;
            self.problems.push(format!(
                "{what}: somebody else set vm.page-cluster (found {before}, then {after})"
            ));
        }
        if record.side == Side::Outpage && record.io.pswpout > 0 {
            let pages = record.io.pswpout;
            self.steps.say(&format!(
                "{what}: the kernel swapped out {pages} pages meanwhile (other swap is active)"
            ));
        }
    }

    /// Cleans up, prints and stores what there is.
    fn conclude(self, machine: &Machine, ended: Result<(), BenchError>) -> Result<(), BenchError> {
        let Self {
            guard,
            steps,
            references,
            records,
            problems,
            options,
            footprint_mib,
            ..
        } = self;
        drop(steps);
        let cleaned = guard.finish();
        let lines = kernel_report::summarise(&references, &records, &options.page_cluster);
        output::print(&kernel_report::render(
            &lines,
            &records,
            &options.page_cluster,
        ))?;
        let written = options.common.runs.write_json(&json!({
            "benchmark": "kernel",
            "machine": machine,
            "limit_bytes": options.common.memory,
            "footprint_mib": footprint_mib,
            "rounds": options.rounds,
            "run_args": options.common.runs.run_args,
            "references": references,
            "runs": records,
            "summary": lines,
            "problems": problems,
        }));
        ended.and(verdict(&problems)).and(cleaned).and(written)
    }
}
