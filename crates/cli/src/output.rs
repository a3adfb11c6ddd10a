//! Standard output, which may be a full disk, or a pipe that nobody reads any more: the standard library's macros would end the command there.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use crate::error::{CliError, code};

/// Writes `text` to standard output. A reader that has read enough is no failure.
///
/// # Errors
/// [`code::IO`].
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    judged(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What became of writing to standard output. A reader that has read enough is no failure.
///
/// # Errors
/// [`code::IO`].
pub fn judged(written: io::Result<()>) -> Result<(), CliError> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::new(
            code::IO,
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Writes a line as [`print()`] does.
///
/// # Errors
/// [`code::IO`].
pub fn print_line(text: Arguments<'_>) -> Result<(), CliError> {
    print(&format!("{text}\n"))
}
