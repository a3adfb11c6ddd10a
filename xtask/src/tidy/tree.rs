//! The repository's text files.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use super::lex;

/// A text file.
pub struct Source {
    /// Path relative to the repository, with slashes.
    pub path: String,
    /// All of it.
    pub text: String,
    /// Rust only: the text with comments and literals blanked out, line for line.
    pub code: String,
}

/// Everything that is written in words or code, in order of paths.
#[derive(Default)]
pub struct Tree {
    /// Rust, Markdown, TOML, scripts and other programs.
    pub files: Vec<Source>,
    /// The paths of all files, whatever they hold, and of all directories.
    pub paths: BTreeSet<String>,
}

/// How the names of text files end; those of `.ci` end in nothing.
const TEXTS: &[&str] = &[".rs", ".md", ".toml", ".sh", ".c", ".h", ".py", ".java"];
/// Directories that hold nothing of ours.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "shared"];

impl Tree {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.visit(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// The Rust files below `crates/` and `xtask/`.
    pub fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    fn visit(&mut self, directory: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{prefix}{name}");
            self.paths.insert(path.clone());
            if entry.file_type()?.is_dir() {
                self.visit(&entry.path(), &format!("{path}/"))?;
            } else if prefix == ".ci/" || TEXTS.iter().any(|end| name.ends_with(end)) {
                let text = fs::read_to_string(entry.path())?;
                let code = if name.ends_with(".rs") {
                    lex::code_only(&text)
                } else {
                    String::new()
                };
                self.files.push(Source { path, text, code });
            }
        }
        Ok(())
    }
}

impl Source {
    /// Whether the whole file is tests.
    pub fn is_test(&self) -> bool {
        let directory = ["/tests/", "/benches/", "/fuzz/"]
            .iter()
            .any(|part| self.path.contains(part));
        directory || self.path.starts_with("fuzz/") || self.path.ends_with("/tests.rs")
    }

    /// Lines of the file before its inline tests.
    pub fn production_lines(&self) -> usize {
        let mut lines = self.text.lines().enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            let module = lines
                .peek()
                .is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{'));
            if line == "#[cfg(test)]" && module {
                return number;
            }
        }
        self.text.lines().count()
    }
}
