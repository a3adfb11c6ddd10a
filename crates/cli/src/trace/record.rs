//! `outpage trace -- PROGRAM`: a program's page references, or its pager's whole event log.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::rc::Rc;

use outpage_core::record::{Unreadable, Why};
use outpage_core::units::PAGE_BYTES;
use outpage_core::{readahead, reclaim};
use outpage_engine::config::{self, Config, DEFAULT_SWAP_DIR, Mechanism, format_size};
use outpage_sim::bounds::Curve;
use outpage_sim::trace::{Header, PageString};
use outpage_sys::fd::Fd;
use outpage_sys::launch::Signals;

use super::logs::{Log, Logs};
use super::references::{Extent, Recording, extent, of_log};
use super::{convert, events, load, with_suffix};
use crate::bench::summary::table;
use crate::error::{CliError, code};
use crate::message;
use crate::run::report::grouped;
use crate::run::start::Plan;
use crate::run::{admit, program, wait};

/// Options of `outpage trace -- PROGRAM`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// RAM while recording, at least 8M: references that hit it go unseen [default: 8M; with --log or --events 64M]
    #[arg(long, short, value_name = "SIZE", value_parser = config::parse_memory)]
    memory: Option<u64>,
    /// The trace, or the event log [default: outpage.trace, with --log outpage.log]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record with this much RAM once more and compare [default: twice --memory]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_memory, conflicts_with = "once")]
    compare: Option<u64>,
    /// Run PROGRAM once only: the error of the trace stays unknown
    #[arg(long)]
    once: bool,
    /// Keep the pager's event log, under the policies of `outpage run`, instead of references
    #[arg(long)]
    log: bool,
    /// Write charts, a Perfetto trace and CSV of the pager's events into this directory
    #[arg(long, value_name = "DIR")]
    events: Option<PathBuf>,
    /// Directory of the swap file
    #[arg(long, value_name = "DIR", default_value = DEFAULT_SWAP_DIR)]
    swap: PathBuf,
    /// How pages leave the program: auto, move, write-protect
    #[arg(long, value_name = "NAME", default_value = Mechanism::Auto.name())]
    mechanism: Mechanism,
    /// With --log or --events: which pages leave
    #[arg(long, value_name = "NAME[:SETTING=VALUE,...]", value_parser = config::parse_reclaim)]
    reclaim: Option<reclaim::Choice>,
    /// With --log or --events: how pages are grouped for writing
    #[arg(long, value_name = "NAME", value_parser = config::parse_pageout)]
    pageout: Option<&'static str>,
    /// With --log or --events: what else is read with a page
    #[arg(long, value_name = "NAME[:SETTING=VALUE,...]", value_parser = config::parse_readahead)]
    readahead: Option<readahead::Choice>,
    /// With --log or --events: where in the swap file pages go
    #[arg(long, value_name = "NAME", value_parser = config::parse_slots)]
    slots: Option<&'static str>,
    /// The program and its arguments, best after "--"
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Memory for logs when none is said: room for most small programs' working sets.
const LOG_MEMORY: u64 = 64 << 20;

/// All that leaves is compressed, so that its size is known; the pool itself has as few frames as it can.
const TIER: &str = "lz4:pool=5";

/// Runs the program and writes what was asked for; ends as the program did.
///
/// # Errors
/// What keeps the program from running, or the result from being written.
pub fn run(options: &Options, device: Option<Fd>) -> Result<ExitCode, CliError> {
    let device = device.map(Rc::new);
    if options.log || options.events.is_some() {
        return log(options, device);
    }
    let policy = options.pageout.or(options.slots).is_some();
    if policy || options.readahead.is_some() || options.reclaim.is_some() {
        let text = "--reclaim, --pageout, --readahead and --slots need --log or --events: a trace of references does not depend on them";
        return Err(CliError::new(code::USAGE, text));
    }
    let memory = options.memory.unwrap_or(config::MIN_LIMIT);
    if options.compare.is_some_and(|more| more <= memory) {
        let text = format!(
            "--compare must be more than --memory, {}",
            format_size(memory)
        );
        return Err(CliError::new(code::USAGE, text));
    }
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| "outpage.trace".into());
    let signals = wait::take_signals()?;
    let first = recorded(options, memory, &output, device.clone(), &signals)?;
    let words: Vec<_> = options
        .program
        .iter()
        .map(|w| w.to_string_lossy())
        .collect();
    let name: String = words.join(" ").chars().take(1000).collect();
    for (at, process) in first.processes.iter().enumerate() {
        let (path, recording) = (process.path(&output, at), &process.recording);
        let header = Header {
            page_bytes: PAGE_BYTES as u32,
            recorded: convert::filtered(recording.resident),
            program: name.clone(),
        };
        convert::write_refs(&path, &header, &recording.runs, &recording.sizes)?;
        message::line(format_args!("outpage: {}", describe(&path, process)));
    }
    // A run that failed or was interrupted is not worth another.
    if !options.once && first.status.success() {
        let recorded = |memory| recorded(options, memory, &output, device.clone(), &signals);
        compare(options, memory, &first, recorded)?;
    }
    drop(signals);
    Ok(wait::end_like(first.status))
}

/// A program that was run, and the references of its processes, the most first.
struct Recorded {
    status: ExitStatus,
    processes: Vec<Process>,
}

/// What was recorded of a process.
struct Process {
    name: String,
    /// The process that forked it while paging.
    parent: Option<String>,
    recording: Recording,
}

impl Process {
    fn path(&self, output: &Path, at: usize) -> PathBuf {
        path_of(output, at, &self.name)
    }
}

/// Where the result of the process goes: of the first one to `output`, of others beside it.
fn path_of(output: &Path, at: usize, process: &str) -> PathBuf {
    match at {
        0 => output.to_owned(),
        _ => with_suffix(output, &format!(".{process}")),
    }
}

fn recorded(
    options: &Options,
    memory: u64,
    output: &Path,
    device: Option<Rc<Fd>>,
    signals: &Signals,
) -> Result<Recorded, CliError> {
    let config = Config {
        // In order: of a page that is kept longer than others no reference would be seen for as long.
        reclaim: config::parse_reclaim("second-chance").expect("a policy of the registry"),
        readahead: config::plain_readahead("none"),
        tier: config::parse_tier(TIER).expect("a policy of the registry"),
        record_each: true,
        ..base(options, memory)
    };
    let logs = Logs::beside(output)?;
    let status = run_program(options, config, &logs, device, signals)?;
    let (mut processes, mut silent) = (Vec::new(), 0);
    for name in logs.processes()? {
        let Some(log) = logs.read(&name)? else {
            silent += 1;
            continue;
        };
        // A process that was ended while its pager wrote leaves a part of an entry.
        let recording = match of_log(&log.bytes) {
            Err(torn) if torn.why == Why::Truncated => of_log(&log.bytes[..torn.offset]),
            other => other,
        };
        let recording = recording.map_err(|e| damaged_log(&name, e))?;
        if recording.references > 0 && recording.forks == log.forks {
            processes.push(Process {
                name,
                parent: log.parent,
                recording,
            });
        } else {
            silent += 1;
        }
    }
    say_silent(silent);
    processes.sort_by_key(|p| std::cmp::Reverse(p.recording.references));
    if processes.is_empty() {
        let text = format!(
            "nothing was recorded: the program stayed within {}, so that no touch of its memory was seen",
            format_size(memory)
        );
        return Err(CliError::new(code::FAILED, text));
    }
    Ok(Recorded { status, processes })
}

/// What is to be said of `count` processes of which there is nothing.
fn say_silent(count: usize) {
    if count > 0 {
        message::line(format_args!(
            "outpage: processes with a pager but no trace: {}; they touched nothing that was out of RAM, or were \
             cut short at once",
            grouped(count as u64)
        ));
    }
}

fn damaged_log(process: &str, why: Unreadable) -> CliError {
    load::damaged(Path::new(&format!("log of process {process}")), why)
}

fn base(options: &Options, memory: u64) -> Config {
    Config {
        swap_dir: options.swap.clone(),
        mechanism: options.mechanism,
        quiet: true,
        ..Config::new(memory)
    }
}

fn run_program(
    options: &Options,
    mut config: Config,
    logs: &Logs,
    device: Option<Rc<Fd>>,
    signals: &Signals,
) -> Result<ExitStatus, CliError> {
    config.record = Some(logs.prefix());
    let program = program::find(&options.program[0])?;
    admit(&program, false)?;
    let plan = Plan::new(config, program, device)?;
    plan.warnings()
        .for_each(|warning| message::line(format_args!("outpage: {warning}")));
    let mut running = plan.start(&options.program[0], &options.program[1..], |command| {
        signals.inherit(command);
    })?;
    wait::wait(&mut running.child, signals)
}

fn describe(path: &Path, process: &Process) -> String {
    let recording = &process.recording;
    let mut text = format!(
        "{}: {} references that missed {} of RAM",
        path.display(),
        grouped(recording.references),
        format_size(recording.resident * PAGE_BYTES as u64)
    );
    let _ = write!(
        text,
        ", compressed sizes of {} pages",
        grouped(recording.sizes.len() as u64)
    );
    if let Some(parent) = &process.parent {
        let _ = write!(
            text,
            "; forked by process {parent} while it paged: the first {} are the pages that it was left and touches",
            grouped(recording.inherited)
        );
    }
    if !recording.ended {
        text.push_str("; the last ones may be missing, as the process ended by a signal, _exit or exec, or a write failed");
    }
    if recording.given_back > 0 {
        let _ = write!(
            text,
            "; {} touches of pages that had been given back count as touches of kept ones",
            grouped(recording.given_back)
        );
    }
    text
}

/// Records again with more RAM and prints how far the miss-ratio curves lie apart above it.
fn compare(
    options: &Options,
    memory: u64,
    first: &Recorded,
    again: impl FnOnce(u64) -> Result<Recorded, CliError>,
) -> Result<(), CliError> {
    let more = options.compare.unwrap_or(2 * memory);
    message::line(format_args!(
        "outpage: once more with {}, to see how much the trace misses",
        format_size(more)
    ));
    let second = match again(more) {
        Ok(second) => second,
        Err(error) if error.code == code::FAILED => {
            message::line(format_args!(
                "outpage: {error}: there is nothing to compare"
            ));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let fine = &first.processes[0].recording;
    let coarse = &counterpart(first, &second).recording;
    message::text(format_args!(
        "{}",
        error_table(&string(fine), &string(coarse), coarse.resident)
    ));
    Ok(())
}

/// The process of `second` that did what the first process of `first` did. Process numbers differ between
/// runs, so it is found by the order in which they began to page.
fn counterpart<'a>(first: &Recorded, second: &'a Recorded) -> &'a Process {
    let began = |process: &Process| process.recording.began;
    let main = began(&first.processes[0]);
    let before = first.processes.iter().filter(|p| began(p) < main).count();
    let mut others: Vec<_> = second.processes.iter().collect();
    if others.len() != first.processes.len() {
        message::line(format_args!(
            "outpage: another number of processes paged: those with the most references are compared"
        ));
        return others[0];
    }
    others.sort_by_key(|process| began(process));
    others[before]
}

fn string(recording: &Recording) -> PageString {
    let references = recording.runs.iter().flat_map(|run| run.references());
    references.map(|r| (r.page.raw(), r.access)).collect()
}

/// LRU misses by both traces at sizes from `resident` pages up, and how far they differ.
fn error_table(fine: &PageString, coarse: &PageString, resident: u64) -> String {
    let (a, b) = (Curve::new(fine), Curve::new(coarse));
    let pages = fine.distinct().min(coarse.distinct()) as u64;
    let mut rows = vec![
        ["RAM", "misses", "by the coarser trace", "difference"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut worst: f64 = 0.0;
    for quarter in 4..=40_u64 {
        let frames = resident * quarter / 4;
        if frames >= pages || (quarter > 8 && quarter % 4 != 0) {
            continue;
        }
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        let (fine, coarse) = (a.misses(frames), b.misses(frames));
        let difference = 100.0 * (coarse as f64 / fine.max(1) as f64 - 1.0);
        worst = if difference.abs() > worst.abs() {
            difference
        } else {
            worst
        };
        let ram = format_size(u64::from(frames) * PAGE_BYTES as u64);
        rows.push(vec![
            ram,
            grouped(fine),
            grouped(coarse),
            format!("{difference:+.1} %"),
        ]);
    }
    if rows.len() == 1 {
        return "outpage: the program is smaller than the larger resident set: no error can be measured\n".to_owned();
    }
    format!(
        "Misses of LRU by this trace and by one recorded with {}:\n{}Doubt about the misses above that size, as the \
         resident set of the recording grows: at most {worst:.1} %. What this trace misses itself is not seen.\n",
        format_size(resident * PAGE_BYTES as u64),
        table(&rows)
    )
}

/// Keeps the event logs, or charts them.
fn log(options: &Options, device: Option<Rc<Fd>>) -> Result<ExitCode, CliError> {
    let mut config = base(options, options.memory.unwrap_or(LOG_MEMORY));
    config.reclaim = options.reclaim.unwrap_or(config.reclaim);
    config.pageout = options.pageout.unwrap_or(config.pageout);
    config.readahead = options.readahead.unwrap_or(config.readahead);
    config.slots = options.slots.unwrap_or(config.slots);
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| "outpage.log".into());
    let logs = Logs::beside(&output)?;
    let signals = wait::take_signals()?;
    let status = run_program(options, config, &logs, device, &signals)?;
    let (mut kept, mut silent) = (0, 0);
    for process in logs.processes()? {
        let Some(log) = logs.read(&process)? else {
            silent += 1;
            continue;
        };
        let extent = extent(&log.bytes).map_err(|e| damaged_log(&process, e))?;
        if log.parent.is_none() || extent.forks == log.forks && extent.faults > 0 {
            keep(options, &output, kept, &log, &extent)?;
            kept += 1;
        } else {
            silent += 1;
        }
    }
    drop(logs);
    say_silent(silent);
    if kept == 0 {
        let text = "nothing was recorded: the program stayed within its memory";
        return Err(CliError::new(code::FAILED, text));
    }
    drop(signals);
    Ok(wait::end_like(status))
}

/// Writes what was asked for of one log.
fn keep(
    options: &Options,
    output: &Path,
    at: usize,
    log: &Log,
    extent: &Extent,
) -> Result<(), CliError> {
    if let Some(dir) = &options.events {
        let dir = match at {
            0 => dir.clone(),
            _ => dir.join(&log.process),
        };
        let damaged = |e| damaged_log(&log.process, e);
        events::report(&log.bytes[..extent.whole], damaged, &dir)?;
    }
    if options.log {
        let to = path_of(output, at, &log.process);
        std::fs::write(&to, &log.bytes).map_err(|e| CliError::unwritten(&to, e))?;
        let mut text = format!("{} bytes of events", grouped(log.bytes.len() as u64));
        if let Some(parent) = &log.parent {
            let _ = write!(
                text,
                ", the last {} of them after process {parent} forked it while it paged",
                grouped(log.own)
            );
        }
        message::line(format_args!(
            "outpage: {}: {text}{}",
            to.display(),
            how_it_ended(extent, log.bytes.len())
        ));
    }
    Ok(())
}

/// What is to be said of the end of a log.
const fn how_it_ended(extent: &Extent, length: usize) -> &'static str {
    if extent.ended {
        ""
    } else if extent.whole < length {
        ", cut short within an entry: the process was ended while it was written"
    } else {
        ", cut short: the process ended by a signal, _exit or exec, or a write failed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::contract::Access;

    #[test]
    fn the_error_is_that_of_the_coarser_trace() {
        let loops = |pages: u64, rounds: u64| -> PageString {
            (0..pages * rounds)
                .map(|at| (at % pages, Access::Read))
                .collect()
        };
        // A loop over 100 pages misses every time below 100 frames; the coarser saw half as many rounds.
        let text = error_table(&loops(100, 4), &loops(100, 2), 40);
        assert!(
            text.contains("400") && text.contains("200") && text.contains("-50.0 %"),
            "{text}"
        );
        assert!(text.contains("at most -50.0 %"), "{text}");
        let small = error_table(&loops(10, 4), &loops(10, 4), 40);
        assert!(small.contains("no error can be measured"), "{small}");
    }
}
