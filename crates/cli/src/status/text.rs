//! Runs as people read them.

use std::fmt::Write;

use outpage_core::swap_cache::Rate;

use super::{Seen, state};
use crate::run::report::{cache, grouped, pages_size, quantiles};

/// A line for each run.
const HEAD: [&str; 10] = [
    "PID",
    "LIMIT",
    "IN USE",
    "IN SWAP",
    "PAGE-INS",
    "PAGE-OUTS",
    "MINOR",
    "MAJOR",
    "HIT RATE",
    "PROGRAM",
];

/// The runs below each other.
pub fn table(runs: &[Seen]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(runs.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let (program, numbers) = row.split_last().expect("columns");
        for (cell, width) in numbers.iter().zip(&widths) {
            let _ = write!(text, "{cell:>width$}  ");
        }
        let _ = writeln!(text, "{program}");
    }
    text
}

fn row(seen: &Seen) -> [String; 10] {
    let (run, counts) = (&seen.snapshot, &seen.snapshot.totals);
    let hit_rate = cache(counts).hit_rate().map_or("-".into(), percent);
    [
        seen.pid.map_or("-".into(), |pid| pid.to_string()),
        pages_size(run.limit_pages),
        pages_size(run.lent_pages),
        pages_size(counts.swap_slots_used),
        grouped(counts.page_ins),
        grouped(counts.page_outs),
        grouped(counts.minor_faults),
        grouped(counts.major_faults),
        hit_rate,
        program(&short(&seen.words)),
    ]
}

fn percent(rate: Rate) -> String {
    format!("{:.0} %", 100.0 * rate.share)
}

/// The words without the program's directory.
fn short(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some((_, name)) = words.first().and_then(|path| path.rsplit_once('/')) {
        words[0] = name.to_owned();
    }
    words
}

/// The words of a program on one line, whatever they hold.
fn program(words: &[String]) -> String {
    /// What a line of the table leaves of a screen of 160 columns.
    const LETTERS_MAX: usize = 60;
    let whole = words.join(" ");
    if whole.is_empty() {
        return "-".into();
    }
    let mut text = String::new();
    for letter in whole.chars().take(LETTERS_MAX) {
        match letter {
            control if control.is_control() => text.extend(control.escape_default()),
            letter => text.push(letter),
        }
    }
    if whole.chars().count() > LETTERS_MAX {
        text += "...";
    }
    text
}

/// Everything of one run.
pub fn whole(seen: &Seen) -> String {
    let (run, counts) = (&seen.snapshot, &seen.snapshot.totals);
    let pid = seen.pid.map_or("-".into(), |pid| pid.to_string());
    let mut text = format!(
        "process {pid}: {}\n  limit {}, {} in use, peak {} ({})\n",
        program(&seen.words),
        pages_size(run.limit_pages),
        pages_size(run.lent_pages),
        pages_size(run.peak_pages),
        run.mechanism
    );
    for process in &run.processes {
        let gone = if process.alive { "" } else { ", ended" };
        let _ = writeln!(
            text,
            "  process {}: {}{gone}, {} in use, {} page-ins, {} page-outs, {} minor, {} major",
            process.pid,
            state(process),
            pages_size(process.held_pages),
            grouped(process.counts.page_ins),
            grouped(process.counts.page_outs),
            grouped(process.counts.minor_faults),
            grouped(process.counts.major_faults)
        );
    }
    for (name, histogram) in [("minor", &run.waits.minor), ("major", &run.waits.major)] {
        if let Some(quantiles) = quantiles(histogram) {
            let _ = writeln!(text, "  {name} faults waited {quantiles}");
        }
    }
    if let Some(rate) = cache(counts).hit_rate() {
        let _ = writeln!(text, "  read-ahead hit rate {}", percent(rate));
    }
    for (counter, value) in counts.each() {
        let (name, unit) = (counter.name, counter.unit.name());
        let _ = writeln!(text, "  {name:<26}{:>20} {unit}", grouped(value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_write_over_the_screen() {
        let words = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            program(&words)
        };
        assert_eq!(words(&["a\u{1b}[2J", "b\n"]), "a\\u{1b}[2J b\\n");
        assert_eq!(words(&[]), "-");
        let path = short(&["/usr/bin/sort".to_owned(), "/a/b".to_owned()]);
        assert_eq!(path, ["sort", "/a/b"]);
        let long = words(&["x".repeat(70).as_str()]);
        assert_eq!((long.len(), long.ends_with("x...")), (63, true));
    }
}
