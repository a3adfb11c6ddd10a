//! `outpage status`: the runs of this machine, seen from outside.

mod text;

use std::process::ExitCode;

use outpage_core::units::PAGE_BYTES;
use outpage_stats::find::{self, NotFound};
use outpage_stats::layout::State;
use outpage_stats::run::{Process, Run, Snapshot, Unreadable};
use serde_json::{Map, Value, json};

use crate::error::{CliError, code};
use crate::output::print;
use crate::run::report::fields::{self, Counted, Field, SCHEMA};

/// Options of `outpage status`. Exit code 1 where there is no run, or the process belongs to none.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// All counters of the run of this process: its launcher, its program, or anything that the program started
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A run at one moment, and the words of its program.
pub struct Seen {
    snapshot: Snapshot,
    /// The program's process, or where that has ended one that it left.
    pid: Option<u32>,
    /// The program of that process and its arguments; none where they cannot be read.
    words: Vec<String>,
}

/// The value of a field of a run that is seen.
pub type OfSeen = fn(&Seen) -> Option<Value>;

/// The fields of a run that are no counters; [`fields::counted`] has those.
pub const FIELDS: &[Field<OfSeen>] = fields::fields! {
    "schema", "-", "version of this layout",
        |_| Some(json!(SCHEMA));
    "pid", "-", "the process of the program, or where it has ended one that it left; null where none is seen",
        |seen| Some(json!(seen.pid));
    "program", "-", "what that process executes, and its arguments",
        |seen| Some(json!(seen.words));
    "mechanism", "-", "`move` or `write-protect`; `auto` as long as no pager has started",
        |seen| Some(json!(seen.snapshot.mechanism));
    "limit_bytes", "bytes", "the limit",
        |seen| Some(bytes(seen.snapshot.limit_pages));
    "lent_bytes", "bytes", "what the processes have of it now",
        |seen| Some(bytes(seen.snapshot.lent_pages));
    "peak_bytes", "bytes", "most that they had of it at once",
        |seen| Some(bytes(seen.snapshot.peak_pages));
    "processes", "-", "array of the processes that have a part of the limit: `pid`, `state` (`paging`, `fits` or \
        `forking`), `alive`, `lent_bytes`, and all counters",
        |seen| Some(seen.snapshot.processes.iter().map(process).collect());
};

/// Prints what runs.
///
/// # Errors
/// [`code::FAILED`] where nothing runs, or the process belongs to no run; [`code::OS`] for processes of others;
/// [`code::DATA`] for a session that says nothing; [`code::IO`].
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    match args.pid {
        Some(pid) => one(pid, args.json),
        None => all(args.json),
    }
}

fn one(pid: u32, as_json: bool) -> Result<ExitCode, CliError> {
    let found = find::of(pid).and_then(|run| run.look().map_err(NotFound::Unreadable));
    let seen = Seen::new(found.map_err(|why| refused(pid, why))?);
    if as_json {
        print(&format!("{:#}\n", Value::Object(seen.json())))?;
    } else {
        print(&text::whole(&seen))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn all(as_json: bool) -> Result<ExitCode, CliError> {
    let runs = find::all().map_err(|error| CliError::os("look through /proc", error))?;
    let (mut seen, mut unreadable) = (Vec::new(), Vec::new());
    for (pid, run) in runs.seen {
        match run.and_then(|run: Run| run.look()) {
            Ok(snapshot) => seen.push(Seen::new(snapshot)),
            Err(why) => unreadable.push(refused(pid, NotFound::Unreadable(why))),
        }
    }
    if as_json {
        let runs: Vec<Value> = seen.iter().map(|run| Value::Object(run.json())).collect();
        print(&format!("{:#}\n", json!({"schema": SCHEMA, "runs": runs})))?;
    } else if !seen.is_empty() {
        print(&text::table(&seen))?;
    }
    let texts: Vec<&str> = unreadable.iter().map(|error| error.text.as_str()).collect();
    match unreadable.first() {
        Some(first) => Err(CliError::new(first.code, texts.join("; "))),
        None if seen.is_empty() => {
            let others = if runs.others {
                "; those of other users are not seen"
            } else {
                ""
            };
            let text = format!("no program runs under outpage{others}");
            Err(CliError::new(code::FAILED, text))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Why nothing is told of process `pid`.
fn refused(pid: u32, why: NotFound) -> CliError {
    let code = match why {
        NotFound::NoProcess | NotFound::NoRun => code::FAILED,
        NotFound::Forbidden | NotFound::Unreadable(Unreadable::Os(_)) => code::OS,
        NotFound::Unreadable(_) => code::DATA,
    };
    CliError::new(code, format!("process {pid}: {why}"))
}

impl Seen {
    fn new(snapshot: Snapshot) -> Self {
        let is_left = |process: &&Process| process.alive && process.here && process.pid != 0;
        let left = || snapshot.processes.iter().find(is_left);
        let pid = snapshot
            .program
            .or_else(|| left().map(|process| process.pid));
        let line = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
        let line = line.unwrap_or_default();
        let words = line
            .strip_suffix(b"\0")
            .unwrap_or(&line)
            .split(|&byte| byte == 0);
        let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        let words = if line.is_empty() {
            Vec::new()
        } else {
            words.collect()
        };
        Self {
            snapshot,
            pid,
            words,
        }
    }

    fn json(&self) -> Map<String, Value> {
        let mut map = fields::object(FIELDS, |value| value(self));
        let Snapshot {
            totals,
            waits,
            objects,
            ..
        } = &self.snapshot;
        map.extend(fields::counted(&Counted {
            counts: totals,
            waits,
            objects: Some(objects),
        }));
        map
    }
}

/// The name of a state for people and programs.
const fn state(process: &Process) -> &'static str {
    match process.state {
        State::Live => "paging",
        State::Direct => "fits",
        State::Free | State::Forking => "forking",
    }
}

fn process(process: &Process) -> Value {
    let mut map = fields::counted(&Counted {
        counts: &process.counts,
        waits: &process.waits,
        objects: None,
    });
    map.insert("pid".into(), json!(process.pid));
    map.insert("state".into(), json!(state(process)));
    map.insert("alive".into(), json!(process.alive));
    map.insert("lent_bytes".into(), bytes(process.held_pages));
    Value::Object(map)
}

fn bytes(pages: u64) -> Value {
    json!(pages.saturating_mul(PAGE_BYTES as u64))
}
