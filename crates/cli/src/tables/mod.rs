//! `outpage tables`: what the documents say of settings, counters and policies, written from their declarations.
//!
//! A table of a document stands between two marks, `<!-- table: NAME -->` and `<!-- end of table -->`. Hidden:
//! `cargo xtask tables` calls it.

mod counters;
mod policies;
mod settings;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::{CliError, code};

/// Options of `outpage tables`. Exit code 1 when a document says something else than the code.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The repository
    root: PathBuf,
    /// Write the tables to the documents
    #[arg(long)]
    write: bool,
}

/// A table: its document, its name there, and its text.
type Table = (&'static str, &'static str, fn() -> String);

const TABLES: &[Table] = &[
    ("docs/run.md", "settings", settings::table),
    ("docs/statistics.md", "summary", counters::summary),
    ("docs/statistics.md", "fields", counters::fields),
    ("docs/statistics.md", "status", counters::status),
    ("docs/policies.md", "reclaim", policies::reclaim),
    (
        "docs/policies.md",
        "reclaim settings",
        policies::reclaim_settings,
    ),
    ("docs/policies.md", "pageout", policies::pageout),
    ("docs/policies.md", "slots", policies::slots),
    ("docs/policies.md", "tier", policies::tier),
    ("docs/policies.md", "tier settings", policies::tier_settings),
    ("docs/policies.md", "discard", policies::discard),
    (
        "docs/policies.md",
        "discard settings",
        policies::discard_settings,
    ),
    ("docs/policies.md", "readahead", policies::readahead),
    ("docs/policies.md", "readahead settings", policies::settings),
];

const END: &str = "<!-- end of table -->";

/// Compares the documents with the code, or writes them.
///
/// # Errors
/// [`code::NO_INPUT`] without a document, [`code::DATA`] where one lacks a mark, [`code::IO`] when one cannot be written.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut stale = Vec::new();
    for &(path, name, text) in TABLES {
        let file = args.root.join(path);
        let found = fs::read_to_string(&file).map_err(|error| CliError::unread(&file, error))?;
        let Some(wanted) = replaced(&found, name, &text()) else {
            let what = format!("{path} has no place for the table \"{name}\"");
            return Err(CliError::new(code::DATA, what));
        };
        if wanted == found {
            continue;
        }
        if args.write {
            fs::write(&file, wanted).map_err(|error| CliError::unwritten(&file, error))?;
        } else {
            stale.push(format!("{path}: the table \"{name}\""));
        }
    }
    if stale.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let stale = stale.join(", ");
    let text = format!("out of date: {stale}: `cargo xtask tables --write` writes it");
    Err(CliError::new(code::FAILED, text))
}

/// `document` with `text` between the marks of table `name`; `None` without them.
fn replaced(document: &str, name: &str, text: &str) -> Option<String> {
    let mark = format!("<!-- table: {name} -->\n");
    let start = document.find(&mark)? + mark.len();
    let end = start + document[start..].find(END)?;
    Some(format!("{}{text}{}", &document[..start], &document[end..]))
}

/// A table in Markdown.
fn markdown(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.map(|cells| line(&cells)).collect();
    line(&head) + &rule + &rows
}

/// Words in code quotes, apart by commas.
fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// The repository that this was built from.
#[cfg(test)]
fn repository() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_say_what_the_code_says() {
        let args = Args {
            root: repository().to_owned(),
            write: false,
        };
        assert_eq!(run(&args).map(drop), Ok(()));
    }

    #[test]
    fn a_table_stands_between_its_marks() {
        let document = "a\n<!-- table: x -->\nold\n<!-- end of table -->\nb\n";
        let wanted = "a\n<!-- table: x -->\nnew\n<!-- end of table -->\nb\n";
        assert_eq!(replaced(document, "x", "new\n").as_deref(), Some(wanted));
        assert_eq!(replaced(document, "y", "new\n"), None);
        assert_eq!(replaced("<!-- table: x -->\nold\n", "x", "new\n"), None);
    }

    #[test]
    fn what_is_stale_is_named_and_written() {
        let root = tempfile::tempdir().expect("directory");
        fs::create_dir(root.path().join("docs")).expect("docs");
        for (path, ..) in TABLES {
            fs::copy(repository().join(path), root.path().join(path)).expect("copy");
        }
        let statistics = root.path().join("docs/statistics.md");
        let text = fs::read_to_string(&statistics).expect("read");
        let spoiled = text.replace("| `poisoned` | pages |", "| `poisoned` | events |");
        assert_ne!(spoiled, text);
        fs::write(&statistics, spoiled).expect("write");
        let (root, checks) = (root.path().to_owned(), |write| write);
        let tables = |write| {
            run(&Args {
                root: root.clone(),
                write: checks(write),
            })
            .map(drop)
        };
        let error = tables(false).expect_err("it is stale");
        assert_eq!(error.code, code::FAILED);
        assert!(
            error
                .text
                .contains("docs/statistics.md: the table \"fields\""),
            "{error}"
        );
        assert_eq!((tables(true), tables(false)), (Ok(()), Ok(())));
        assert_eq!(fs::read_to_string(&statistics).expect("read"), text);
    }

    #[test]
    fn cells_cannot_break_a_row() {
        let text = markdown(&["a", "b"], [vec!["x|y".into(), "z".into()]].into_iter());
        assert_eq!(text, "| a | b |\n|---|---|\n| x\\|y | z |\n");
    }
}
