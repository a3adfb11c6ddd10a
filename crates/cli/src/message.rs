//! Standard error, which may be a full disk, or a pipe that nobody reads any more: the standard library's macros would end the command there.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes a line to standard error. What becomes of it changes nothing about the command.
pub fn line(line: Arguments<'_>) {
    text(format_args!("{line}\n"));
}

/// Writes `text` to standard error, as [`line()`] does.
pub fn text(text: Arguments<'_>) {
    // In one piece, for others write there too.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}
