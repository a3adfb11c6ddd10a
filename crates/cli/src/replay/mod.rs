//! `outpage replay`: a recorded program under other policies, memory and disks.

mod identical;
mod rivals;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use outpage_sim::rivals::Table;
use serde_json::{Value, json};

use crate::error::{CliError, code};
use crate::output;
use crate::sim::machine::Machine;
use crate::sim::programs::Source;
use crate::sim::table::Runs;
use crate::sim::{self, Output, table};
use crate::trace::load::{self, Format};

/// Options of `outpage replay`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A trace: page references, an event log, lackey's text, oracleGeneral. Of several, each is
    /// replayed by itself, and one table shows them all
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// What the traces hold
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    format: Format,
    /// Tell the events of an event log to the same policies again and require the same actions,
    /// byte by byte
    #[arg(long, conflicts_with_all = ["memory", "disk", "system", "reclaim", "pageout", "readahead", "slots", "tier", "ratio"])]
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
        let [trace] = &args.traces[..] else {
            let text = "--identical takes one event log";
            return Err(CliError::new(code::USAGE, text));
        };
        return identical::run(trace, args.output.json.as_deref());
    }
    let mut all = Vec::new();
    let mut rivals = Vec::new();
    for trace in &args.traces {
        let (runs, compared) = replay(args, trace)?;
        all.push(runs);
        rivals.push(compared);
    }
    let out = &args.output;
    if !out.takes_stdout() {
        output::print(&table::text(&all))?;
        for (runs, compared) in all.iter().zip(&rivals) {
            if let Some(compared) = compared {
                let name = (all.len() > 1).then(|| runs.name());
                output::print(&format!("\n{}", rivals::text(name.as_deref(), compared)))?;
            }
        }
    }
    if let Some(file) = &out.csv {
        table::put(file, &table::csv(&all))?;
    }
    if let Some(file) = &out.json {
        table::put(file, &format!("{:#}\n", json(&all, &rivals)))?;
    }
    sim::verdict(all.iter().flat_map(|runs| &runs.lines))
}

/// As much of the name as a column has room for. A number at its end tells processes apart.
fn short_name(trace: &Path) -> Cow<'_, str> {
    let ending = trace.extension().unwrap_or_default().to_string_lossy();
    let numbered = ending.bytes().all(|b| b.is_ascii_digit());
    let name = match numbered {
        true => trace.file_name(),
        false => trace.file_stem(),
    };
    name.unwrap_or(trace.as_os_str()).to_string_lossy()
}

/// All runs of one trace, and the other replacement policies on it where they are asked for.
fn replay(args: &Args, trace: &Path) -> Result<(Runs, Option<Table>), CliError> {
    let recorded = load::trace(trace, args.format)?;
    let name = match args.traces.len() {
        1 => trace.to_string_lossy(),
        _ => short_name(trace),
    };
    let sources = vec![Source::recorded(&name, &recorded)?];
    drop(recorded);
    let lines = sim::lines(&args.machine, &sources, &args.output)?;
    let frames: Vec<u64> = lines.iter().map(|line| line.job.setup.frames).collect();
    let compared = (!args.no_rivals)
        .then(|| rivals::compare(&sources[0], &frames))
        .flatten();
    Ok((Runs { sources, lines }, compared))
}

/// One trace's runs; of several traces, an array of these.
fn json(all: &[Runs], rivals: &[Option<Table>]) -> Value {
    let one = |(runs, compared): (&Runs, &Option<Table>)| {
        let mut value = table::json(runs);
        value["rivals"] = json!(compared);
        value
    };
    let mut values: Vec<Value> = all.iter().zip(rivals).map(one).collect();
    match values.len() {
        1 => values.remove(0),
        _ => json!({"traces": values}),
    }
}
