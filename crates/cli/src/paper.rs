//! `outpage paper`: a paper's evaluation, run again.

pub mod discard;
mod kept;
mod live;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use outpage_sim::paper::{Evaluation, How, Keep, Paper, Recorded};

use crate::bar;
use crate::error::{CliError, code};
use crate::sim::programs::replayed;
use crate::trace::load::{self, Format};
use crate::{message, output};

/// Options of `outpage paper`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// moc (Yang, Ahn and Oh 2009), mclustering (Ahn and others 2014), asp or hsn (Chen and others 2010), or
    /// discard (Subramanian 1991)
    #[arg(value_name = "PAPER", value_parser = parse)]
    paper: Named,
    /// Directory for NAME.html, NAME.md, NAME.csv and NAME-runs.csv
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// The runs of one workload only, and what they answer
    #[arg(long, value_name = "WORKLOAD")]
    only: Option<String>,
    /// Live runs beside the simulated ones. hsn: those of a real guest that `guest/vm.py compare --json FILE` wrote.
    /// discard, without FILE: the programs run on this machine, through a server and, with root, in kernel swap
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    live: Option<Option<PathBuf>>,
    /// discard --live: how often each configuration has its turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// discard --live: directory of the swap files
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    swap: PathBuf,
    /// Keep each finished run in DIR, and do not run again what is there: for a report that takes long, or was cut short. A run is believed
    /// only if its whole set-up and the simulator are the same. Not for hsn
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// moc: a recording of NS2 with 700 nodes (tests/programs/ns2.sh), played in the place of its model
    #[arg(long, value_name = "FILE")]
    ns2: Option<PathBuf>,
    /// Runs at once [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

#[derive(Clone, Debug)]
struct Named {
    name: String,
    paper: Paper,
}

/// Papers that can be run, for the message.
const PAPERS: [&str; 5] = ["moc", "mclustering", "asp", "hsn", "discard"];

fn parse(name: &str) -> Result<Named, String> {
    let known = PAPERS
        .iter()
        .filter(|name| Paper::named(name).is_some())
        .copied();
    match Paper::named(name) {
        Some(paper) => Ok(Named {
            name: name.to_owned(),
            paper,
        }),
        None => Err(format!(
            "papers are {}",
            known.collect::<Vec<_>>().join(", ")
        )),
    }
}

impl Args {
    /// Whether the paper has live runs, from a file or on this machine.
    fn check_live(&self) -> Result<(), CliError> {
        let text = match (self.paper.paper, &self.live) {
            (Paper::Hsn, Some(None)) => {
                "--live FILE: hsn's runs are those of a real guest, which vm.py wrote to a file"
            }
            (Paper::Discard, Some(Some(_))) => {
                "--live is without a file for discard: its programs are run here"
            }
            (Paper::Hsn | Paper::Discard, _) | (_, None) => return Ok(()),
            _ => "--live is for hsn and discard: no other paper has live runs",
        };
        Err(CliError::new(code::USAGE, text))
    }
}

/// NS2, from the trace at `path`.
fn recorded(path: &Path) -> Result<Recorded, CliError> {
    let trace = load::trace(path, Format::Auto)?;
    let name = path.display().to_string();
    Ok(Recorded::new(replayed(&name, &trace, 1)?))
}

/// Makes the runs, or finds them.
fn evaluate(args: &Args) -> Result<Evaluation, CliError> {
    let (paper, only) = (args.paper.paper, args.only.as_deref());
    let threads = args.threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        |n| n as usize,
    );
    let kept = args.resume.as_deref().map(kept::Directory::at);
    let kept = kept.transpose()?;
    let ns2 = args.ns2.as_deref().map(recorded).transpose()?;
    let bar = bar::steps("runs", paper.runs(only, ns2.is_some()) as u64);
    let how = How {
        threads,
        progress: &|done| bar.set_position(done as u64),
        keep: kept.as_ref().map(|kept| kept as &dyn Keep),
        ns2: ns2.as_ref(),
    };
    let evaluation = paper.evaluate(only, how);
    bar.finish_and_clear();
    if let Some(complaint) = kept.and_then(kept::Directory::complaint) {
        message::line(format_args!("{complaint}"));
    }
    Ok(evaluation)
}

/// Runs the evaluation and writes it.
///
/// # Errors
/// [`code::USAGE`] for a workload that the paper does not have; [`code::IO`]; [`code::FAILED`] when a run
/// of the evaluation itself came to no end. That one of a variation does is a result.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let Named { name, paper } = &args.paper;
    let only = args.only.as_deref();
    if only.is_some_and(|only| paper.runs(Some(only), false) == 0) {
        let text = format!("workloads of {name} are {}", paper.workloads().join(", "));
        return Err(CliError::new(code::USAGE, text));
    }
    args.check_live()?;
    if args.ns2.is_some() && *paper != Paper::Moc {
        let text = "--ns2 is for moc: no other paper has NS2";
        return Err(CliError::new(code::USAGE, text));
    }
    if args.resume.is_some() && *paper == Paper::Hsn {
        let text = "--resume is not for hsn: runs with guests are not kept";
        return Err(CliError::new(code::USAGE, text));
    }
    let guest = args.live.iter().flatten().next();
    let guest = guest.map(|file| live::table(file)).transpose()?;
    std::fs::create_dir_all(&args.out).map_err(|e| CliError::unwritten(&args.out, e))?;
    let live = match paper {
        Paper::Discard if args.live.is_some() => Some(discard::live(discard::How {
            rounds: args.rounds,
            swap_dir: &args.swap,
            only,
        })?),
        _ => None,
    };
    let mut evaluation = evaluate(args)?;
    evaluation.tables.extend(guest);
    if let Some(live) = live {
        evaluation.add_live(&live);
    }
    let files = [
        (".html", evaluation.html()),
        (".md", evaluation.markdown()),
        (".csv", evaluation.csv()),
        ("-runs.csv", evaluation.runs_csv()),
    ];
    for (suffix, text) in files {
        let path = args.out.join(format!("{name}{suffix}"));
        std::fs::write(&path, text).map_err(|e| CliError::unwritten(&path, e))?;
        output::print_line(format_args!("{}", path.display()))?;
    }
    for line in evaluation.verdicts() {
        output::print_line(format_args!("{line}"))?;
    }
    output::print_line(format_args!("{} runs", evaluation.runs.len()))?;
    let failed = (evaluation.runs.iter()).filter(|(_, run)| run.is_err());
    let (varied, own): (Vec<_>, Vec<_>) = failed.partition(|(key, _)| !key.variant.is_empty());
    if !varied.is_empty() {
        let runs = varied.len();
        output::print_line(format_args!(
            "variations without result, in {name}.md: {runs}"
        ))?;
    }
    if !own.is_empty() {
        let text = format!("runs without result, in {name}.md: {}", own.len());
        return Err(CliError::new(code::FAILED, text));
    }
    Ok(ExitCode::SUCCESS)
}
