//! Policies say which, never when or how.

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::Tree;

/// Where policies are.
const DIRECTORIES: &[&str] = &["pageout", "slots", "readahead", "reclaim"];

/// Words of threads, locks, files, system calls and clocks. (A policy gets the time as a value;
/// "clock" itself is also the name of an algorithm.)
const BANNED: &[&str] = &[
    "thread",
    "threads",
    "spawn",
    "mutex",
    "rwlock",
    "condvar",
    "atomic",
    "lock",
    "unlock",
    "file",
    "fd",
    "path",
    "syscall",
    "ioctl",
    "libc",
    "mmap",
    "madvise",
    "uffd",
    "userfaultfd",
    "std",
    "instant",
    "systemtime",
    "sleep",
];

/// Code of policies that names what only a body has.
pub fn check(tree: &Tree, _: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let in_policy = |path: &str| {
        DIRECTORIES
            .iter()
            .any(|d| path.starts_with(&format!("crates/core/src/{d}/")))
    };
    for file in tree
        .rust()
        .filter(|file| in_policy(&file.path) && !file.is_test())
    {
        for (number, line) in (1..).zip(file.code.lines().take(file.production_lines())) {
            for word in words(line).filter(|word| BANNED.contains(&word.as_str())) {
                let text =
                    format!("a policy names no {word}: the pager says when, the body says how");
                findings.push(Finding::new(&file.path, number, text));
            }
        }
    }
    findings
}

/// The words of a line, names taken apart at underscores.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let found: Vec<String> = words("let x = page_lock(std::Instant);").collect();
        assert_eq!(found, ["let", "x", "page", "lock", "std", "instant"]);
    }
}
