//! `outpage decisions`: what the pager decides in runs that are the same for every build.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use outpage_sim::decisions::{Line, RUNS, decide, describe};

use crate::bar;
use crate::error::{CliError, code};
use crate::output;
use crate::sim::table::put;

/// Options of `outpage decisions`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Compare with the lines in this file, as another build wrote them
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    against: Option<PathBuf>,
    /// Write the lines to this file; "-" is standard output [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only the first so many runs
    #[arg(long, value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(1..=i64::from(RUNS)))]
    runs: u32,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

/// Runs, prints a line for each run, or compares.
///
/// # Errors
/// [`code::NO_INPUT`] and [`code::DATA`] for the file to compare with; [`code::IO`];
/// [`code::FAILED`] when a run's decisions are others.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let expected = args.against.as_deref().map(read).transpose()?;
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let lines = all(args.runs, args.threads.map_or_else(cpus, |n| n as usize));
    let text = || {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let Some(expected) = expected else {
        put(args.out.as_deref().unwrap_or(Path::new("-")), &text())?;
        return Ok(ExitCode::SUCCESS);
    };
    let other = |line: &&Line| expected.iter().find(|e| e.run == line.run) != Some(line);
    let others: Vec<&Line> = lines.iter().filter(other).collect();
    let Some(first) = others.first() else {
        output::print_line(format_args!("the same decisions in {} runs", lines.len()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let text = format!(
        "{} of {} runs decide otherwise; the first is run {}: {}",
        others.len(),
        lines.len(),
        first.run,
        describe(first.run)
    );
    Err(CliError::new(code::FAILED, text))
}

fn read(path: &Path) -> Result<Vec<Line>, CliError> {
    let text = std::fs::read_to_string(path).map_err(|e| CliError::no_text(path, e))?;
    let lines = text.lines().map(str::parse).collect::<Result<_, String>>();
    lines.map_err(|why| CliError::new(code::DATA, format!("{}: {why}", path.display())))
}

/// The lines of the first `runs` runs, in order.
fn all(runs: u32, threads: usize) -> Vec<Line> {
    let bar = bar::steps("runs", u64::from(runs));
    let next = AtomicU32::new(0);
    let lines = Mutex::new(Vec::new());
    let work = || {
        loop {
            let run = next.fetch_add(1, Relaxed);
            if run >= runs {
                return;
            }
            let line = decide(run);
            lines
                .lock()
                .expect("nobody panics with the lock")
                .push(line);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let mut lines = lines.into_inner().expect("the threads are gone");
    lines.sort_unstable_by_key(|line| line.run);
    lines
}
