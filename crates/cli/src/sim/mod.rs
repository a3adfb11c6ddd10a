//! `outpage sim`: programs and traces in simulated memory, on a simulated disk.

pub mod bounds;
pub mod jobs;
pub mod machine;
pub mod programs;
pub mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Deserialize;

use crate::error::{CliError, code};
use crate::output;
use crate::trace::load::Format;
use jobs::Job;
use machine::Machine;
use programs::Source;

/// Options of `outpage sim`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Programs that run at once and share the memory: NAME[:KEY=VALUE,...] or trace:FILE
    ///
    /// Programs of the papers, with their parameters (defaults are the papers'):
    ///   sor    n, sweeps, layout, init-ns, sweep-ns
    ///   lu     n, offset, init-ns, add-ns
    ///   moc    cluster-pages, pages, page-ns (the microbenchmark)
    ///   ns2    pages, setup-pages, nodes, rounds, gap-pages, moved-percent, growth, storm-rounds,
    ///          storm-percent, page-ns, seed (growth: even, steps)
    ///   jvm    memory-pages, heap-pages, warehouses, warehouse-pages, warehouse-pages-max,
    ///          transactions, transaction-ns, transaction-bytes, promoted-percent, visits, eden-percent,
    ///          service-period-us, seed (a guest with a Java heap)
    ///   ml     work, heap-pages, old-percent, take-back-pages, allocated-pages, environment-pages,
    ///          user-ms, seed (work: compile, sort; programs with a copying collector)
    ///   texture  matrix-pages, page-ns (texture synthesis in two stages)
    /// Layouts: phkmalloc, brk, glibc, jemalloc.
    /// Orders that reading ahead gets wrong, as in `bench readahead`; all have pages and touch-ns:
    ///   column     row-bytes, step-bytes, arrays, writes, passes
    ///   transpose  tile, element-bytes
    ///   fft        breadth, reversal
    ///   zigzag     passes, writes
    ///   join       row-bytes
    ///   merge      ways, record-bytes, seed
    ///   runs       longest, touches, seed
    ///   phases     phase, touches, seed
    #[arg(value_name = "PROGRAM", verbatim_doc_comment)]
    programs: Vec<String>,
    /// Read programs and settings from a TOML or JSON file; options take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    machine: Machine,
    /// Vary also what no option names: all page-out policies; a quarter, half and three quarters of
    /// the programs' memory; the disks barracuda-7200.9 and nvme
    #[arg(long)]
    sweep: bool,
    #[command(flatten)]
    output: Output,
}

/// Where results go, and how much is computed.
#[derive(Clone, Debug, clap::Args)]
pub struct Output {
    /// Write every run to this file as JSON; "-" is standard output, instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a line for each run to this file as CSV; "-" is standard output, instead of the table
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Leave out the bounds: the optimum and the floor
    #[arg(long)]
    pub no_bounds: bool,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
}

impl Output {
    /// Runs at once.
    #[must_use]
    pub fn threads(&self) -> usize {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(cpus, |n| n as usize)
    }

    /// Whether a result itself goes to standard output.
    #[must_use]
    pub fn takes_stdout(&self) -> bool {
        let is_stdout =
            |file: &Option<PathBuf>| file.as_deref().is_some_and(|f| f.as_os_str() == "-");
        is_stdout(&self.json) || is_stdout(&self.csv)
    }
}

/// A settings file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct File {
    /// As on the command line.
    pub programs: Vec<String>,
    /// As the option.
    pub sweep: bool,
    /// As the options.
    pub machine: Machine,
}

impl File {
    /// What `text` says, TOML or JSON.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(text: &str, is_json: bool) -> Result<Self, String> {
        let parsed = if is_json {
            serde_json::from_str(text).map_err(|e| e.to_string())
        } else {
            toml::from_str(text).map_err(|e: toml::de::Error| {
                let line = e
                    .span()
                    .map_or(1, |s| text[..s.start].matches('\n').count() + 1);
                format!("{} at line {line}", e.message())
            })
        };
        parsed.map_err(|why| why.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// What `--sweep` varies when nothing is said: memory as a share of the programs', and disks.
const SWEPT_MEMORY: [&str; 3] = ["25%", "50%", "75%"];
const SWEPT_DISKS: [&str; 2] = ["barracuda-7200.9", "nvme"];

/// Runs every combination and prints the table.
///
/// # Errors
/// [`code::USAGE`] for what there is not; [`code::NO_INPUT`] and [`code::DATA`] for files;
/// [`code::FAILED`] when a run came to no end.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let file = args
        .config
        .as_deref()
        .map_or_else(|| Ok(File::default()), read_file)?;
    let texts = if args.programs.is_empty() {
        file.programs
    } else {
        args.programs.clone()
    };
    if texts.is_empty() {
        let text = format!(
            "no program: name one or more of {}, trace:FILE",
            programs::names()
        );
        return Err(CliError::new(code::USAGE, text));
    }
    let sources = programs::parse_all(&texts, Format::Auto)?;
    let mut machine = args.machine.clone().or(file.machine);
    if args.sweep || file.sweep {
        sweep(&mut machine);
    }
    execute(&machine, sources, &args.output)
}

/// Runs `sources` together on every machine that `machine` describes, and reports.
///
/// # Errors
/// As [`run`].
pub fn execute(
    machine: &Machine,
    sources: Vec<Source>,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let lines = lines(machine, &sources, output)?;
    let runs = table::Runs { sources, lines };
    if !output.takes_stdout() {
        output::print(&table::text(std::slice::from_ref(&runs)))?;
    }
    table::write(&runs, output)?;
    verdict(&runs.lines)
}

/// Every run with its result.
///
/// # Errors
/// As [`run`], but for runs that came to no end.
pub fn lines(
    machine: &Machine,
    sources: &[Source],
    output: &Output,
) -> Result<Vec<jobs::Line>, CliError> {
    let jobs: Vec<Job> = machine.jobs(sources)?;
    let threads = output.threads();
    let bounds = if output.no_bounds {
        bounds::Bounds::default()
    } else {
        let sizes = jobs.iter().map(|job| job.setup.frames).collect();
        bounds::Bounds::of(sources, sizes, threads)
    };
    Ok(jobs::run_all(jobs, sources, &bounds, threads))
}

/// The exit code: a run without an end is a failure, and is named.
///
/// # Errors
/// [`code::FAILED`].
pub fn verdict<'a>(lines: impl IntoIterator<Item = &'a jobs::Line>) -> Result<ExitCode, CliError> {
    let mut failed = lines
        .into_iter()
        .filter_map(|line| line.report.as_ref().err());
    let Some(first) = failed.next() else {
        return Ok(ExitCode::SUCCESS);
    };
    let text = match failed.count() {
        0 => format!("a run came to no end: {first}"),
        more => format!("{} runs came to no end; the first: {first}", more + 1),
    };
    Err(CliError::new(code::FAILED, text))
}

fn sweep(machine: &mut Machine) {
    let fill = |list: &mut Vec<String>, names: &[&str]| {
        if list.is_empty() {
            *list = names.iter().map(|&name| name.to_owned()).collect();
        }
    };
    let pageouts: Vec<&str> = outpage_core::pageout::REGISTRY
        .iter()
        .map(|e| e.name)
        .collect();
    fill(&mut machine.pageout, &pageouts);
    fill(&mut machine.memory, &SWEPT_MEMORY);
    fill(&mut machine.disk, &SWEPT_DISKS);
}

fn read_file(path: &std::path::Path) -> Result<File, CliError> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::no_text(path, e))?;
    let is_json = path.extension().is_some_and(|e| e == "json");
    File::parse(&text, is_json)
        .map_err(|why| CliError::new(code::DATA, format!("{}: {why}", path.display())))
}
