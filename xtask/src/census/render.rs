//! What is written from the census: README's table of exceptions, and `docs/compatibility.md`.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use super::table::{Census, Row, Seen};

const README: &str = "README.md";
const BEGIN: &str = "<!-- docs/census/exceptions.toml: cargo xtask census --write -->";
const END: &str = "<!-- end -->";
const COMPATIBILITY: &str = "docs/compatibility.md";

const HEAD: &str = "\
# Compatibility

What every system call of x86-64 Linux, up to 6.18, does to memory, address spaces, processes and descriptors that
Outpage relies on, how Outpage comes to know of it, and which test holds that. For example, `munmap` by a hand-written
`syscall` instruction is made by the kernel, which tells the pager; `tests/programs/hostile.sh rawcalls/munmap` runs it
on memory that is paged out.

This file is written from `docs/census/` by `cargo xtask census --write`. `cargo xtask census` fails when a system call
or flag of the installed kernel headers is missing there, a named test does not exist, the hooks of the shim are
others, or this file or README is out of date.

| how it is seen | meaning |
|---|---|
| hooked | libc's function is patched, and so is libc's `syscall` for its number |
| event | the kernel tells the pager before the call returns, whoever made it: libc, another library or a hand-written `syscall` instruction |
| tick | a check of the process, made at the pager's ticks, finds it |
| harmless | nothing has to be known |
| refused | the call fails |
| unseen | nobody sees it; what comes of it is an exception |

Tests: `hostile PROGRAM VARIANT` is a case of `tests/programs/hostile.sh`, `torture OPERATION` one that
`tests/programs/torture.sh` draws, `live NAME` and `run NAME` are in `crates/cli/tests`, `CRATE FILE NAME` in that
crate's tests.
";

/// Writes both files.
///
/// # Errors
/// When a file cannot be read or written, or README has no place for the table.
pub fn write(root: &Path, census: &Census) -> io::Result<()> {
    fs::write(root.join(COMPATIBILITY), compatibility(census))?;
    let readme = super::read(root, README)?;
    let new = with_table(&readme, &exceptions(census)).ok_or_else(no_markers)?;
    fs::write(root.join(README), new)
}

/// Files that are not as [`write()`] would write them.
///
/// # Errors
/// When README cannot be read or has no place for the table.
pub fn drift(root: &Path, census: &Census) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    let found = super::read(root, COMPATIBILITY).unwrap_or_default();
    if found != compatibility(census) {
        findings.push(format!(
            "{COMPATIBILITY} is out of date: cargo xtask census --write"
        ));
    }
    let readme = super::read(root, README)?;
    if with_table(&readme, &exceptions(census)).ok_or_else(no_markers)? != readme {
        findings.push(format!(
            "{README}: the table of exceptions is out of date: cargo xtask census --write"
        ));
    }
    Ok(findings)
}

fn no_markers() -> io::Error {
    let text = format!("{README}: the lines \"{BEGIN}\" and \"{END}\" are missing");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The text with `table` between the markers.
fn with_table(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

fn exceptions(census: &Census) -> String {
    let mut table = String::from("| what | under Outpage |\n|---|---|\n");
    for exception in &census.exceptions {
        let _ = writeln!(table, "| {} | {} |", exception.what, exception.under);
    }
    table
}

fn compatibility(census: &Census) -> String {
    let mut text = String::from(HEAD);
    for family in &census.families {
        let _ = write!(text, "\n## {}\n", family.title);
        let _ = write!(
            text,
            "\n| call or flag | what it does | seen | under Outpage | tests |\n|---|---|---|---|---|\n"
        );
        for row in &family.rows {
            text.push_str(&line(census, row));
        }
    }
    text
}

fn line(census: &Census, row: &Row) -> String {
    let calls = row.calls.iter().map(|call| {
        let (name, number) = call.split_once(' ').unwrap_or((call, ""));
        format!("`{name}` {number}")
    });
    let flags = row.flags.iter().map(|flag| format!("`{flag}`"));
    let mut names = calls.chain(flags).collect::<Vec<_>>().join(", ");
    if let Some(of) = &row.of {
        names = format!("{of}: {names}");
    }
    let seen: Vec<&str> = row.seen.iter().map(|seen| word(*seen)).collect();
    let mut how = row.how.clone();
    for key in &row.exceptions {
        if let Some(exception) = census.exceptions.iter().find(|e| e.key == *key) {
            let _ = write!(how, " Exception: {}.", exception.what);
        }
    }
    let tests = row.tests.join("; ");
    let (does, seen) = (&row.does, seen.join(", "));
    format!("| {names} | {does} | {seen} | {how} | {tests} |\n")
}

fn word(seen: Seen) -> &'static str {
    match seen {
        Seen::Hooked => "hooked",
        Seen::Event => "event",
        Seen::Tick => "tick",
        Seen::Harmless => "harmless",
        Seen::Refused => "refused",
        Seen::Unseen => "unseen",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = with_table(&text, "new\n").expect("markers");
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert_eq!(with_table("a", "new\n"), None);
    }
}
