//! Where unsafe code is. Tests are free: they fork, map and break things on purpose.

use super::Finding;
use super::exceptions::Exceptions;
use super::tree::Tree;

/// Unsafe code outside the places that the exceptions name.
pub fn check(tree: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        for (number, line) in (1..).zip(file.code.lines().take(file.production_lines())) {
            if has_word(line, "unsafe") && !exceptions.allow("unsafe", &file.path) {
                findings.push(Finding::new(
                    &file.path,
                    number,
                    "unsafe code does not belong here",
                ));
            }
        }
    }
    findings
}

/// Whether `word` stands alone in `line`; `unsafe_code` is another word.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|w| w == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_alone() {
        assert!(has_word("let x = unsafe { y() };", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
    }
}
