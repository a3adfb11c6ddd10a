//! `outpage trace -- PROGRAM`: a program's page references, or its pager's whole event log.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::rc::Rc;

use outpage_core::record::Why;
use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::{self, Config, DEFAULT_SWAP_DIR, Mechanism, ReadAhead, format_size};
use outpage_sim::bounds::Curve;
use outpage_sim::trace::{Header, PageString};
use outpage_sys::fd::Fd;
use outpage_sys::launch::Signals;

use super::references::{Recording, ended, of_log};
use super::{convert, events, load, with_suffix};
use crate::bench::summary::table;
use crate::error::{CliError, code};
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
    /// With --log or --events: how pages are grouped for writing
    #[arg(long, value_name = "NAME", value_parser = config::parse_pageout)]
    pageout: Option<&'static str>,
    /// With --log or --events: what else is read with a page
    #[arg(long, value_name = "NAME[:SETTING=VALUE,...]")]
    readahead: Option<ReadAhead>,
    /// With --log or --events: where in the swap file pages go
    #[arg(long, value_name = "NAME", value_parser = config::parse_slots)]
    slots: Option<&'static str>,
    /// The program and its arguments, best after "--"
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Memory for logs when none is said: room for most small programs' working sets.
const LOG_MEMORY: u64 = 64 << 20;

/// Runs the program and writes what was asked for; ends as the program did.
///
/// # Errors
/// What keeps the program from running, or the result from being written.
pub fn run(options: &Options, device: Option<Fd>) -> Result<ExitCode, CliError> {
    let device = device.map(Rc::new);
    if options.log || options.events.is_some() {
        return log(options, device);
    }
    let policy = options.pageout.or(options.slots);
    if policy.is_some() || options.readahead.is_some() {
        let text = "--pageout, --readahead and --slots need --log or --events: a trace of references does not depend on them";
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
    for (at, (process, recording)) in first.recordings.iter().enumerate() {
        let path = if at == 0 {
            output.clone()
        } else {
            with_suffix(&output, &format!(".{process}"))
        };
        let header = Header {
            page_bytes: PAGE_BYTES as u32,
            recorded: convert::filtered(recording.resident),
            program: name.clone(),
        };
        convert::write_refs(&path, &header, &recording.runs)?;
        eprintln!("outpage: {}", describe(&path, recording));
    }
    // A run that failed or was interrupted is not worth another.
    if !options.once && first.status.success() {
        let recorded = |memory| recorded(options, memory, &output, device.clone(), &signals);
        compare(options, memory, &first, recorded)?;
    }
    Ok(wait::end_like(first.status, signals))
}

/// A program that was run, and the references of its processes, the most first.
struct Recorded {
    status: ExitStatus,
    recordings: Vec<(String, Recording)>,
}

fn recorded(
    options: &Options,
    memory: u64,
    output: &Path,
    device: Option<Rc<Fd>>,
    signals: &Signals,
) -> Result<Recorded, CliError> {
    let config = Config {
        readahead: ReadAhead::plain("none"),
        record_each: true,
        ..base(options, memory)
    };
    let logs = Logs::beside(output)?;
    let status = run_program(options, config, &logs, device, signals)?;
    let mut recordings = Vec::new();
    for (process, path) in logs.list()? {
        let bytes = std::fs::read(&path).map_err(|e| CliError::unread(&path, e))?;
        // A process that was ended while its pager wrote leaves a part of an entry.
        let recording = match of_log(&bytes) {
            Err(torn) if torn.why == Why::Truncated => of_log(&bytes[..torn.offset]),
            other => other,
        };
        let recording = recording.map_err(|e| load::damaged(&path, e))?;
        if recording.references > 0 {
            recordings.push((process, recording));
        }
    }
    recordings.sort_by_key(|r| std::cmp::Reverse(r.1.references));
    if recordings.is_empty() {
        let text = format!(
            "nothing was recorded: the program stayed within {}, so that no touch of its memory was seen",
            format_size(memory)
        );
        return Err(CliError::new(code::FAILED, text));
    }
    Ok(Recorded { status, recordings })
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
        .for_each(|warning| eprintln!("outpage: {warning}"));
    let mut running = plan.start(&options.program[0], &options.program[1..], |_| {})?;
    wait::wait(&mut running.child, signals)
}

/// The directory that the processes' logs are written to; removed at the end.
struct Logs(PathBuf);

impl Logs {
    fn beside(output: &Path) -> Result<Self, CliError> {
        let path = with_suffix(output, &format!(".logs-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| CliError::unwritten(&path, e))?;
        // The program may change its directory before its pager starts.
        let path = std::path::absolute(&path).map_err(|e| CliError::unwritten(&path, e))?;
        Ok(Self(path))
    }

    fn prefix(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The logs, in order of their names, which say the process: its number, and behind a point how many
    /// programs it had executed before.
    fn list(&self) -> Result<Vec<(String, PathBuf)>, CliError> {
        let failed = |e| CliError::unread(&self.0, e);
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix("log."));
            logs.extend(process.map(|process| (process.to_owned(), entry.path())));
        }
        logs.sort_unstable();
        Ok(logs)
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        // What cannot be removed is named after this program and lies beside the output.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn describe(path: &Path, recording: &Recording) -> String {
    let mut text = format!(
        "{}: {} references that missed {} of RAM",
        path.display(),
        grouped(recording.references),
        format_size(recording.resident * PAGE_BYTES as u64)
    );
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
    eprintln!(
        "outpage: once more with {}, to see how much the trace misses",
        format_size(more)
    );
    let second = match again(more) {
        Ok(second) => second,
        Err(error) if error.code == code::FAILED => {
            eprintln!("outpage: {error}: there is nothing to compare");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let (fine, coarse) = (&first.recordings[0].1, &second.recordings[0].1);
    eprint!(
        "{}",
        error_table(&string(fine), &string(coarse), coarse.resident)
    );
    Ok(())
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
    config.pageout = options.pageout.unwrap_or(config.pageout);
    config.readahead = options.readahead.clone().unwrap_or(config.readahead);
    config.slots = options.slots.unwrap_or(config.slots);
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| "outpage.log".into());
    let logs = Logs::beside(&output)?;
    let signals = wait::take_signals()?;
    let status = run_program(options, config, &logs, device, &signals)?;
    let mut found = logs.list()?;
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    found.sort_by_key(|(_, path)| std::cmp::Reverse(size(path)));
    if found.is_empty() {
        let text = "nothing was recorded: the program stayed within its memory";
        return Err(CliError::new(code::FAILED, text));
    }
    for (at, (process, path)) in found.iter().enumerate() {
        if let Some(dir) = &options.events {
            let dir = if at == 0 {
                dir.clone()
            } else {
                dir.join(process)
            };
            events::report(path, &dir)?;
        }
        if options.log {
            let to = if at == 0 {
                output.clone()
            } else {
                with_suffix(&output, &format!(".{process}"))
            };
            std::fs::copy(path, &to).map_err(|e| CliError::unwritten(&to, e))?;
            eprintln!(
                "outpage: {}: {} bytes of events{}",
                to.display(),
                grouped(size(&to)),
                how_it_ended(&to)?
            );
        }
    }
    drop(logs);
    Ok(wait::end_like(status, signals))
}

/// What is to be said of the end of a log.
fn how_it_ended(path: &Path) -> Result<&'static str, CliError> {
    let bytes = std::fs::read(path).map_err(|e| CliError::unread(path, e))?;
    Ok(match ended(&bytes) {
        Ok(true) => "",
        Ok(false) => ", cut short: the process ended by a signal, _exit or exec, or a write failed",
        Err(torn) if torn.why == Why::Truncated => {
            ", cut short within an entry: the process was ended while it was written"
        }
        Err(damage) => return Err(load::damaged(path, damage)),
    })
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
