//! Errors that end a command, and their exit codes.

use std::ffi::OsString;
use std::fmt::{self, Write as _};

use clap::error::ErrorKind;

/// Exit codes of outpage itself, from `sysexits.h` and the shells.
///
/// The help texts print [`EXIT_CODES`]; both change together.
pub mod code {
    /// A command did what it was asked, and the answer is no (a checksum differed).
    pub const FAILED: u8 = 1;
    /// Wrong option, or a value that cannot be used.
    pub const USAGE: u8 = 64;
    /// A file that was to be read is damaged, cut short or of another kind.
    pub const DATA: u8 = 65;
    /// The swap directory is missing or unusable, or a file to read is missing.
    pub const NO_INPUT: u8 = 66;
    /// This machine or container lacks something.
    pub const UNAVAILABLE: u8 = 69;
    /// The operating system refused something that should work.
    pub const OS: u8 = 71;
    /// Input or output failed: a full disk, a file that cannot be written.
    pub const IO: u8 = 74;
    /// The program cannot be executed, or not under a limit.
    pub const CANNOT_EXECUTE: u8 = 126;
    /// There is no such program.
    pub const NOT_FOUND: u8 = 127;
}

/// The table of exit codes in the help.
pub const EXIT_CODES: &str = "\
Exit codes:
  Those of PROGRAM; a signal that ends PROGRAM also ends outpage. Outpage's own:
    1  the answer is no: results differ, a replay diverged, a simulated run came to no end,
       no run was found
   64  wrong option or value
   65  a trace, settings or result file, or the session of a run, is damaged, cut short
       or of another kind
   66  the swap directory is missing or unusable, or a file to read is missing
   69  this machine lacks something: see `outpage doctor`
   71  the operating system refused something
   74  input or output failed, for example a full disk
  126  PROGRAM cannot be executed, or its memory cannot be managed
  127  PROGRAM was not found";

/// One clear line and an exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CliError {
    /// One of [`code`].
    pub code: u8,
    /// What is wrong, and the remedy.
    pub text: String,
}

impl CliError {
    /// An error with one of the [`code`]s.
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// `file` cannot be read.
    pub fn unread(file: &std::path::Path, error: impl fmt::Display) -> Self {
        Self::new(
            code::NO_INPUT,
            format!("cannot read {}: {error}", file.display()),
        )
    }

    /// The text of `file` cannot be read: it is not there, or is no text.
    pub fn no_text(file: &std::path::Path, error: std::io::Error) -> Self {
        let mut said = Self::unread(file, &error);
        if error.kind() == std::io::ErrorKind::InvalidData {
            said.code = code::DATA;
        }
        said
    }

    /// `file` cannot be written.
    pub fn unwritten(file: &std::path::Path, error: impl fmt::Display) -> Self {
        Self::new(
            code::IO,
            format!("cannot write {}: {error}", file.display()),
        )
    }

    /// The operating system refused `what`.
    pub fn os(what: &str, error: impl fmt::Display) -> Self {
        Self::new(code::OS, format!("cannot {what}: {error}"))
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one line, whatever was given.
        for letter in self.text.chars() {
            match letter {
                control if control.is_control() => write!(f, "{}", control.escape_default())?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for CliError {}

impl From<outpage_engine::session::SessionError> for CliError {
    fn from(error: outpage_engine::session::SessionError) -> Self {
        Self::new(code::OS, error.to_string())
    }
}

impl From<crate::workload::WorkloadError> for CliError {
    fn from(error: crate::workload::WorkloadError) -> Self {
        Self::new(code::FAILED, error.to_string())
    }
}

/// The first paragraph of clap's message, as one line.
///
/// Clap writes usage and hints in further paragraphs; the help has them, that of the command that `words`
/// name.
pub fn usage_line(
    error: &clap::Error,
    outpage: clap::Command,
    words: impl Iterator<Item = OsString>,
) -> CliError {
    let help = format!("see `{} --help`", named(outpage, words));
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // The text is the whole help, with a line for each command; wrapped summaries are indented further.
        let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names: Vec<&str> = lines
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("  "))
            .filter(|line| !line.starts_with(' ') && !line.starts_with("help "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let text = format!("no command named; there are {}", names.join(", "));
        return CliError::new(code::USAGE, format!("{text}; {help}"));
    }
    let paragraphs = text.trim().split("\n\n");
    let first: Vec<&str> = paragraphs.take(1).flat_map(str::split_whitespace).collect();
    let line = first.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    CliError::new(code::USAGE, format!("{line}; {help}"))
}

/// The name of the command that `words` begin with, as in `outpage bench kernel`.
fn named(mut command: clap::Command, words: impl Iterator<Item = OsString>) -> String {
    let mut name = command.get_name().to_owned();
    for word in words {
        let Some(next) = command.find_subcommand(word).cloned() else {
            break;
        };
        name = format!("{name} {}", next.get_name());
        command = next;
    }
    name
}
