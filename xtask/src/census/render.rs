//! What is written from the census: `docs/compatibility.md`.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use super::table::{Census, Row, Seen};

const COMPATIBILITY: &str = "docs/compatibility.md";

const HEAD: &str = "\
# Compatibility

A program under `outpage run` calls `mlockall`. As long as it fits its limit, the call does what it always does. Once
it is paged, the call is refused with `ENOMEM`, for pages that are out cannot be locked in RAM. So this chapter has two
parts: [what changes for a program](#what-changes-for-a-program), and [every system call](#every-system-call) with the
test that holds what is said of it.

This file is written from `docs/census/` by `cargo xtask census --write`. `cargo xtask census` fails when a system call
or flag of the installed kernel headers is missing there, a named test does not exist, the hooks of the shim are
others, or this file is out of date.

## What changes for a program

\"Paging\" means: from the moment the program no longer fits. What is not in this table is as without Outpage.

";

const CALLS: &str = "
## Every system call

What every system call of x86-64 Linux, up to 6.18, does to memory, address spaces, processes and descriptors that
Outpage relies on, how Outpage comes to know of it, and which test holds that. For example, `munmap` by a hand-written
`syscall` instruction is made by the kernel, which tells the pager; `tests/programs/hostile.sh rawcalls/munmap` runs it
on memory that is paged out.

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

/// Writes the file.
///
/// # Errors
/// When it cannot be written.
pub fn write(root: &Path, census: &Census) -> io::Result<()> {
    fs::write(root.join(COMPATIBILITY), compatibility(census))
}

/// What is not as [`write()`] would write it.
pub fn drift(root: &Path, census: &Census) -> Option<String> {
    let found = super::read(root, COMPATIBILITY).unwrap_or_default();
    (found != compatibility(census))
        .then(|| format!("{COMPATIBILITY} is out of date: cargo xtask census --write"))
}

fn exceptions(census: &Census) -> String {
    let mut table = String::from("| what | under Outpage |\n|---|---|\n");
    for exception in &census.exceptions {
        let _ = writeln!(table, "| {} | {} |", exception.what, exception.under);
    }
    table
}

fn compatibility(census: &Census) -> String {
    let mut text = format!("{HEAD}{}{CALLS}", exceptions(census));
    for family in &census.families {
        let _ = write!(text, "\n### {}\n", family.title);
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
