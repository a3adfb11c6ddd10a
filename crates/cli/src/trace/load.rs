//! Reading traces of any kind as references.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use outpage_core::units::Nanos;
use outpage_sim::sizes::Sizes;
use outpage_sim::trace::{
    Error, Header, Lackey, LackeyOptions, OracleReader, Reader, Recorded, Run,
};

use super::references;
use crate::bar;
use crate::error::{CliError, code};

/// What a trace file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// Told from the file's beginning: reference traces and event logs
    #[default]
    Auto,
    /// Page references, as `outpage trace` writes them
    Refs,
    /// A pager's event log, as `outpage trace --log` writes it
    Log,
    /// The text of valgrind --tool=lackey --trace-mem=yes
    Lackey,
    /// libCacheSim's oracleGeneral
    Oracle,
}

/// The first bytes of our own files.
const REFS_MAGIC: &[u8] = b"OUTPREFS";
const LOG_MAGIC: &[u8] = b"OUTPAGE\0";

/// What kind of file it is, when `format` leaves it open.
fn told(path: &Path, format: Format) -> Result<Format, CliError> {
    if format != Format::Auto {
        return Ok(format);
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(|e| CliError::unread(path, e))?;
    file.take(8)
        .read_to_end(&mut start)
        .map_err(|e| CliError::unread(path, e))?;
    match start.as_slice() {
        s if s == LOG_MAGIC => Ok(Format::Log),
        s if s == REFS_MAGIC => Ok(Format::Refs),
        // A trace of ours that was cut this short is still one.
        s if REFS_MAGIC.starts_with(s) || LOG_MAGIC.starts_with(s) => {
            Err(damaged(path, "at byte 0: the trace ends in the middle"))
        }
        _ => Err(damaged(
            path,
            "neither a trace of page references nor an event log; --format lackey or oracle reads others",
        )),
    }
}

/// `path` cannot be used because of `why`.
pub fn damaged(path: &Path, why: impl std::fmt::Display) -> CliError {
    CliError::new(code::DATA, format!("{}: {why}", path.display()))
}

/// What a trace says, in memory.
pub struct Trace {
    /// The references.
    pub runs: Vec<Run>,
    /// What the pages come to when LZ4 compresses them, of those of which that was recorded.
    pub sizes: Sizes,
}

/// References alone.
impl From<Vec<Run>> for Trace {
    fn from(runs: Vec<Run>) -> Self {
        let sizes = Sizes::default();
        Self { runs, sizes }
    }
}

/// What the file at `path` says.
///
/// # Errors
/// [`code::NO_INPUT`] when it cannot be read; [`code::DATA`] with the offset when it is damaged or cut short.
pub fn trace(path: &Path, format: Format) -> Result<Trace, CliError> {
    let format = told(path, format)?;
    let file = File::open(path).map_err(|e| CliError::unread(path, e))?;
    let length = file
        .metadata()
        .map_err(|e| CliError::unread(path, e))?
        .len();
    let bar = bar::bytes("reading", length);
    let source = BufReader::with_capacity(1 << 20, bar.wrap_read(file));
    let refused = |error: Error| match error {
        Error::Io(error) => CliError::unread(path, error),
        error @ Error::Unreadable { .. } => damaged(path, error),
    };
    let trace = match format {
        Format::Auto | Format::Refs => {
            let mut reader = Reader::new(source).map_err(refused)?;
            let runs = reader.by_ref().collect::<Result<Vec<_>, _>>();
            let runs = runs.map_err(refused)?;
            let sizes = reader.into_sizes();
            Trace { runs, sizes }
        }
        Format::Log => {
            let bytes = std::fs::read(path).map_err(|e| CliError::unread(path, e))?;
            let recording = references::of_log(&bytes).map_err(|e| damaged(path, e))?;
            let (runs, sizes) = (recording.runs, recording.sizes);
            Trace { runs, sizes }
        }
        Format::Lackey => {
            let options = LackeyOptions {
                instructions: true,
                instruction: Nanos(0),
            };
            let mut runs = Vec::new();
            for reference in Lackey::new(source, options) {
                references::append(&mut runs, reference.map_err(|e| damaged(path, e))?);
            }
            runs.into()
        }
        Format::Oracle => {
            let mut runs = Vec::new();
            for reference in OracleReader::new(source).references() {
                references::append(&mut runs, reference.map_err(refused)?);
            }
            runs.into()
        }
    };
    bar.finish_and_clear();
    if trace.runs.is_empty() {
        return Err(damaged(path, "the trace has no references"));
    }
    Ok(trace)
}

/// How faithful the trace at `path` is: what its header says, else what its format is.
///
/// # Errors
/// As [`trace()`].
pub fn recorded(path: &Path, format: Format) -> Result<Recorded, CliError> {
    Ok(match told(path, format)? {
        Format::Auto | Format::Refs => header(path)?.recorded,
        Format::Log => {
            let bytes = std::fs::read(path).map_err(|e| CliError::unread(path, e))?;
            let resident = references::of_log(&bytes)
                .map_err(|e| damaged(path, e))?
                .resident;
            Recorded::Filtered { resident }
        }
        Format::Lackey | Format::Oracle => Recorded::Exact,
    })
}

/// The program that was recorded: what the header says, else the file's name.
///
/// # Errors
/// As [`trace()`].
pub fn program(path: &Path, format: Format) -> Result<String, CliError> {
    match told(path, format)? {
        Format::Auto | Format::Refs => Ok(header(path)?.program),
        _ => {
            let name = path
                .file_name()
                .unwrap_or(path.as_os_str())
                .to_string_lossy();
            Ok(name.chars().take(1000).collect())
        }
    }
}

fn header(path: &Path) -> Result<Header, CliError> {
    let file = File::open(path).map_err(|e| CliError::unread(path, e))?;
    let reader = Reader::new(BufReader::new(file)).map_err(|e| damaged(path, e))?;
    Ok(reader.header().clone())
}
