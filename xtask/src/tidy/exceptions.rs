//! The file of exceptions: every one has a reason, and none is left over.

use std::fs;
use std::io;
use std::path::Path;

use super::Finding;
use super::tree::Tree;

const FILE: &str = "xtask/exceptions.txt";

struct Exception {
    line: usize,
    rule: String,
    place: String,
    used: bool,
}

/// What may break which rule.
pub struct Exceptions {
    list: Vec<Exception>,
    malformed: Vec<Finding>,
}

impl Exceptions {
    /// Reads the file of the repository at `root`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(root.join(FILE))?))
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut this = Self {
            list: Vec::new(),
            malformed: Vec::new(),
        };
        for (line, content) in (1..).zip(text.lines()) {
            let mut fields = content.split_whitespace();
            match (fields.next(), fields.next(), fields.next()) {
                (None, ..) => {}
                (Some(mark), ..) if mark.starts_with('#') => {}
                (Some(rule), Some(place), Some(_)) => {
                    this.list.push(Exception {
                        line,
                        rule: rule.into(),
                        place: place.into(),
                        used: false,
                    });
                }
                _ => this
                    .malformed
                    .push(Finding::new(FILE, line, "write: rule, path, reason")),
            }
        }
        this
    }

    /// Whether `place` may break `rule`. A place that ends in a slash covers all below it.
    pub fn allow(&mut self, rule: &str, place: &str) -> bool {
        let covers = |e: &Exception| {
            e.rule == rule
                && (e.place == place || e.place.ends_with('/') && place.starts_with(&e.place))
        };
        match self.list.iter_mut().find(|e| covers(e)) {
            Some(exception) => {
                exception.used = true;
                true
            }
            None => false,
        }
    }
}

/// Exceptions that nothing needs, and lines that are none.
pub fn leftovers(_: &Tree, exceptions: &mut Exceptions) -> Vec<Finding> {
    let unused = exceptions.list.iter().filter(|e| !e.used);
    let unused = unused.map(|e| {
        Finding::new(
            FILE,
            e.line,
            format!("{} {} is not needed any more", e.rule, e.place),
        )
    });
    unused.chain(exceptions.malformed.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_unused_and_malformed() {
        let mut exceptions = Exceptions::parse(
            "# note\n\nunsafe crates/sys/ why\nunsafe a.rs why not\nunsafe b.rs\n",
        );
        assert!(exceptions.allow("unsafe", "crates/sys/src/raw.rs"));
        assert!(!exceptions.allow("unsafe", "a.rs.bak"));
        assert!(!exceptions.allow("file-length", "crates/sys/src/raw.rs"));
        let left = leftovers(&Tree::default(), &mut exceptions);
        assert_eq!(left.iter().map(|f| f.line).collect::<Vec<_>>(), [4, 5]);
    }
}
