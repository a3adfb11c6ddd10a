//! The tests that the census names, and whether the tree has them.
//!
//! `hostile PROGRAM VARIANT` is a case of `tests/programs/hostile/cases.txt`, `torture OPERATION` one of
//! `tests/programs/torture/`, `live NAME` one of the live suite of the program, and `CRATE FILE NAME` or `run NAME` a
//! function of a crate's tests.

use std::fs;
use std::io;
use std::path::Path;

use super::table::Census;

const CASES: &str = "tests/programs/hostile/cases.txt";
const TORTURE: &str = "tests/programs/torture";
const LIVE: &str = "crates/cli/tests/live";

/// Tests that are named and do not exist, and hostile cases without a program.
///
/// # Errors
/// When a directory or file of tests cannot be read.
pub fn missing(root: &Path, census: &Census) -> io::Result<Vec<String>> {
    let tests = Tests::read(root)?;
    let of_rows = census
        .rows()
        .flat_map(|row| row.tests.iter().map(|test| (row.name(), test)));
    let of_exceptions = census
        .exceptions
        .iter()
        .flat_map(|e| e.tests.iter().map(|test| (e.key.as_str(), test)));
    let mut findings = Vec::new();
    for (row, test) in of_rows.chain(of_exceptions) {
        if !tests.has(root, test) {
            findings.push(format!("{row}: there is no test \"{test}\""));
        }
    }
    for (program, variant) in &tests.cases {
        let source = format!("tests/programs/hostile/{program}.c");
        // A variant is told by a word of the program's first lines.
        let known = fs::read_to_string(root.join(&source))
            .is_ok_and(|text| text.lines().take(HEAD_LINES).any(|l| has_word(l, variant)));
        if !known {
            findings.push(format!("{CASES}: {source} tells of no variant {variant}"));
        }
    }
    Ok(findings)
}

/// The comment at the head of a case says its variants within so many lines.
const HEAD_LINES: usize = 12;

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    line.split(|c| !part(c)).any(|found| found == word)
}

/// What there is of suites that are not Rust's.
struct Tests {
    cases: Vec<(String, String)>,
    torture: String,
    live: String,
}

impl Tests {
    fn read(root: &Path) -> io::Result<Self> {
        let cases = super::read(root, CASES)?;
        let cases = cases.lines().filter(|line| !line.starts_with('#'));
        let cases = cases.filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        });
        Ok(Self {
            cases: cases.collect(),
            torture: all_of(root, TORTURE, ".c")?,
            live: all_of(root, LIVE, ".rs")?,
        })
    }

    fn has(&self, root: &Path, test: &str) -> bool {
        let words: Vec<&str> = test.split_whitespace().collect();
        match words[..] {
            ["hostile", program, variant] => {
                let named = |(p, v): &(String, String)| p == program && v == variant;
                self.cases.iter().any(named)
            }
            ["torture", name] => self.torture.contains(&format!("{{\"{name}\", op_")),
            ["live", name] => has_function(&self.live, name),
            ["run", name] => in_file(root, "crates/cli/tests/run.rs", name),
            [krate, file, name] => in_file(root, &format!("crates/{krate}/tests/{file}.rs"), name),
            _ => false,
        }
    }
}

fn in_file(root: &Path, path: &str, name: &str) -> bool {
    super::read(root, path).is_ok_and(|text| has_function(&text, name))
}

fn has_function(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}("))
}

/// The files of a directory with this ending, one after the other.
fn all_of(root: &Path, directory: &str, ending: &str) -> io::Result<String> {
    let mut all = String::new();
    let entries = fs::read_dir(root.join(directory))
        .map_err(|error| io::Error::new(error.kind(), format!("{directory}: {error}")))?;
    for entry in entries {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            all.push_str(&fs::read_to_string(path)?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert!(has_word("// raw, raw-fork: by hand", "raw-fork"));
        assert!(has_word("// raw, raw-fork: by hand", "raw"));
        assert!(!has_word("// raw-fork: by hand", "raw"));
    }
}
