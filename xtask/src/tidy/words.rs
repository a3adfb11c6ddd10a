//! Words that have a better one here, and what must not stay in finished code.

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::Tree;

/// What not to write, and what instead. Compared without case.
const BANNED: &[(&str, &str)] = &[
    ("swap-in", "page-in"),
    ("swap_in", "page_in"),
    ("swapin", "page-in"),
    ("swap-out", "page-out"),
    ("swap_out", "page_out"),
    ("swapout", "page-out"),
    ("swapped out", "paged out"),
    ("swapped in", "paged in"),
    ("todo", "an issue"),
    ("fixme", "an issue"),
    ("xxx", "an issue"),
    ("unimplemented!", "code"),
    ("dbg!", "nothing"),
];

/// Files about the kernel's own words: its counters, its swap.
const EXEMPT: &[&str] = &["xtask/", "crates/cli/src/bench/"];

/// Banned words in Rust files, comments included.
pub fn check(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .rust()
        .filter(|file| !EXEMPT.iter().any(|e| file.path.starts_with(e)))
    {
        for (number, line) in (1..).zip(file.text.lines()) {
            let lower = line.to_lowercase();
            for (word, instead) in BANNED.iter().filter(|(word, _)| stands_alone(&lower, word)) {
                findings.push(Finding::new(
                    &file.path,
                    number,
                    format!("write {instead} instead of {word}"),
                ));
            }
        }
    }
    findings
}

fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        // Names of the kernel's functions are no words of ours.
        let in_name = |c: char| c.is_alphanumeric() || c == '_';
        !before.is_some_and(in_name) && !after.is_some_and(in_name)
    })
}

/// Source files that do not begin by saying what they are.
pub fn module_docs(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    let sources = tree.rust().filter(|file| !file.path.ends_with("tests.rs"));
    let silent = sources.filter(|file| !file.text.starts_with("//! "));
    silent
        .map(|file| {
            Finding::new(
                &file.path,
                1,
                "begin with a line that says what this file is (//! ...)",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_do_not_count() {
        assert!(stands_alone("the swap-in of", "swap-in"));
        assert!(!stands_alone("swap-inside", "swap-in"));
        assert!(!stands_alone("as in swapin_nr_pages()", "swapin"));
        assert!(stands_alone("// todo: x", "todo"));
    }
}
