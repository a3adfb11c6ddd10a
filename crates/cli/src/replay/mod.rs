//! `outpage replay`: a recorded program under other policies, memory and disks.

mod identical;
mod rivals;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::CliError;
use crate::sim::machine::Machine;
use crate::sim::programs::Source;
use crate::sim::{self, Output, table};
use crate::trace::load::{self, Format};

/// Options of `outpage replay`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A trace: page references, an event log, lackey's text, oracleGeneral
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// What TRACE holds
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    format: Format,
    /// Tell the events of an event log to the same policies again and require the same actions,
    /// byte by byte
    #[arg(long, conflicts_with_all = ["memory", "disk", "system", "reclaim", "pageout", "readahead", "slots"])]
    identical: bool,
    #[command(flatten)]
    machine: Machine,
    /// Leave out the other replacement policies
    #[arg(long)]
    no_rivals: bool,
    #[command(flatten)]
    output: Output,
}

/// Replays and prints the tables.
///
/// # Errors
/// [`crate::error::code::DATA`] with the offset for a trace that is damaged or cut short;
/// [`crate::error::code::FAILED`] when a replay diverged or a run came to no end.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.identical {
        return identical::run(&args.trace, args.output.json.as_deref());
    }
    let runs = load::runs(&args.trace, args.format)?;
    let sources = [Source::recorded(&args.trace.to_string_lossy(), &runs)];
    drop(runs);
    let lines = sim::lines(&args.machine, &sources, &args.output)?;
    let frames: Vec<u64> = lines.iter().map(|line| line.job.setup.frames).collect();
    let compared = (!args.no_rivals)
        .then(|| rivals::compare(&sources[0], &frames))
        .flatten();
    let out = &args.output;
    if !out.takes_stdout() {
        print!("{}", table::text(&lines, &sources));
        if let Some(compared) = &compared {
            print!("\n{}", rivals::text(compared));
        }
    }
    if let Some(file) = &out.csv {
        table::put(file, &table::csv(&lines))?;
    }
    if let Some(file) = &out.json {
        let mut value = table::json(&lines, &sources);
        value["rivals"] = serde_json::json!(compared);
        table::put(file, &format!("{value:#}\n"))?;
    }
    sim::verdict(&lines)
}
