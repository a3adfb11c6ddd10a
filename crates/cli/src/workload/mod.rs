//! The programs that `bench` and `demo` run: ordinary code on the ordinary allocator.
//!
//! `outpage workload NAME` is hidden from the help. Nothing in here knows about paging; under
//! `outpage run` the memory is managed like that of any other program. Every workload is
//! deterministic, checks its own contents and prints one line of JSON ([`Report`]).

mod allocs;
mod column;
pub mod data;
mod fft;
mod graph;
mod join;
mod latency;
mod matrix;
mod orders;
mod pages;
mod report;
pub mod rng;
mod words;

#[cfg(test)]
pub use report::Phase;
pub use report::{Latencies, Report};

use std::fmt;

use clap::Parser;
use data::Data;
use report::Recorder;

/// Which workload to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Name {
    /// Successive over-relaxation as in SciMark2: rows allocated one by one, swept in order
    Sor,
    /// build_problem of nbench's LU: additions of random rows of one large matrix
    Lu,
    /// Dirty CLUSTER pages, skip CLUSTER pages, over a region; then twice again
    Moc,
    /// Touches of random pages, half of them writes
    Random,
    /// Passes over a region in order, all writes
    Seq,
    /// A hot set touched at random while a cold region is scanned
    Hotset,
    /// Breadth-first search of a random graph
    Graph,
    /// Many small allocations and frees of mixed sizes
    Alloc,
    /// Matrix products in a small space
    Compute,
    /// How long touches of random or of staged pages take, those of mapped pages left out
    Latency,
    /// An array by rows, read down its columns
    Column,
    /// A matrix written, transposed, to another one
    Transpose,
    /// A fast Fourier transform in place, and its inverse
    Fft,
    /// Passes over a region, forward and back
    Zigzag,
    /// Rows into a hash table, and others looked up in it
    Join,
    /// Sorted runs, merged
    Merge,
    /// Runs of pages of random length at random places
    Runs,
    /// Touches in order, at random and with a stride, by turns
    Phases,
}

impl Name {
    /// The name on the command line and in the report.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sor => "sor",
            Self::Lu => "lu",
            Self::Moc => "moc",
            Self::Random => "random",
            Self::Seq => "seq",
            Self::Hotset => "hotset",
            Self::Graph => "graph",
            Self::Alloc => "alloc",
            Self::Compute => "compute",
            Self::Latency => "latency",
            Self::Column => "column",
            Self::Transpose => "transpose",
            Self::Fft => "fft",
            Self::Zigzag => "zigzag",
            Self::Join => "join",
            Self::Merge => "merge",
            Self::Runs => "runs",
            Self::Phases => "phases",
        }
    }
}

/// Options of `outpage workload`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The workload
    pub name: Name,
    /// Memory that the workload touches, in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub mib: u32,
    /// sor: sweeps after the initialisation
    #[arg(long, default_value_t = 3)]
    pub sweeps: u32,
    /// lu: row additions [default: half the number of rows; nbench does 8 times that number];
    /// alloc: allocations; compute: products
    #[arg(long)]
    pub operations: Option<u64>,
    /// lu: begin with nbench's rows (one non-zero element each) instead of full ones
    #[arg(long)]
    pub sparse: bool,
    /// moc: pages written in a row, and then skipped
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub cluster: u32,
    /// random, hotset, latency, runs, phases: touches; latency --hot-mib: those of pages that were not
    /// mapped
    #[arg(long, default_value_t = 50_000)]
    pub touches: u64,
    /// seq, zigzag, column: passes after the first touch [default: 3, 4 and 1]
    #[arg(long)]
    pub passes: Option<u32>,
    /// hotset: size of the hot set, in MiB [default: a quarter of --mib]; latency: time touches of
    /// staged pages, which needs a hot set of half the limit and twice the limit beside it
    #[arg(long)]
    pub hot_mib: Option<u32>,
    /// random, hotset, graph, latency: how far the contents compress. What `heap` imitates was measured page by page in the heaps of
    /// Perl, awk, node, Python and SQLite; docs/bench.md has the ratios
    #[arg(long, value_enum, default_value_t = Data::Heap)]
    pub data: Data,
    #[command(flatten)]
    pub orders: orders::Options,
    /// Write "phase fraction" lines to stderr while running
    #[arg(long)]
    pub progress: bool,
}

/// Contents that are not what was written, or an unusable option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadError(String);

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorkloadError {}

/// What a workload proves about its contents at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Outcome {
    /// Depends on every byte of the final contents and on nothing else.
    checksum: u64,
    /// Pages (or objects) whose contents were compared with what they had to be.
    verified: u64,
}

/// Runs the workload.
///
/// # Errors
/// When contents are wrong: a page, a word of it, the value expected and the value found.
pub fn run(args: &Args) -> Result<Report, WorkloadError> {
    let mut recorder = Recorder::new(args.progress);
    let mut measured = None;
    let outcome = match args.name {
        Name::Sor => matrix::sor(args, &mut recorder),
        Name::Lu => matrix::lu(args, &mut recorder),
        Name::Compute => matrix::compute(args, &mut recorder),
        Name::Moc => pages::moc(args, &mut recorder)?,
        Name::Random => pages::random(args, &mut recorder)?,
        Name::Seq => pages::seq(args, &mut recorder)?,
        Name::Hotset => pages::hotset(args, &mut recorder)?,
        Name::Graph => graph::search(args, &mut recorder)?,
        Name::Alloc => allocs::churn(args, &mut recorder)?,
        Name::Column => column::walk(args, &mut recorder)?,
        Name::Transpose => column::transpose(args, &mut recorder)?,
        Name::Fft => fft::transform(args, &mut recorder)?,
        Name::Zigzag => orders::zigzag(args, &mut recorder)?,
        Name::Join => join::join(args, &mut recorder)?,
        Name::Merge => join::merge(args, &mut recorder)?,
        Name::Runs => orders::runs(args, &mut recorder)?,
        Name::Phases => orders::phases(args, &mut recorder)?,
        Name::Latency => {
            let touches = measured.insert(latency::touches(args, &mut recorder)?);
            touches.outcome
        }
    };
    let mut report = recorder.finish(args.name.as_str(), args.mib, outcome);
    if matches!(args.name, Name::Random | Name::Hotset | Name::Graph) {
        report.data = Some(args.data);
    }
    if let Some(measured) = measured {
        report.latencies = Some(measured.latencies);
        report.untimed_reads = measured.untimed_reads;
    }
    Ok(report)
}

/// A command line of its own.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// Whether `words` are a workload's name and options.
///
/// # Errors
/// Why not, in one line.
pub fn check(words: &[String]) -> Result<(), String> {
    let why = |error: clap::Error| {
        error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    Line::try_parse_from(words).map(|_| ()).map_err(why)
}

#[cfg(test)]
mod testing {
    use clap::Parser;

    /// The options of the command line `outpage workload TEXT`.
    pub fn args(text: &str) -> super::Args {
        super::Line::parse_from(text.split_whitespace()).args
    }
}
