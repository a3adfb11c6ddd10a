//! The repository's text files.

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

/// All Rust, markdown and Cargo.toml files, in order of their paths.
pub struct Tree {
    /// The files.
    pub files: Vec<Source>,
}

/// Directories that hold nothing of ours.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "shared"];

impl Tree {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        visit(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// The Rust files below `crates/` and `xtask/`.
    pub fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }
}

fn visit(directory: &Path, prefix: &str, files: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                visit(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if name.ends_with(".rs") || name.ends_with(".md") || name == "Cargo.toml" {
            let text = fs::read_to_string(entry.path())?;
            let code = if name.ends_with(".rs") {
                lex::code_only(&text)
            } else {
                String::new()
            };
            files.push(Source { path, text, code });
        }
    }
    Ok(())
}

impl Source {
    /// Whether the whole file is tests.
    pub fn is_test(&self) -> bool {
        let directory = ["/tests/", "/benches/", "/fuzz/"]
            .iter()
            .any(|part| self.path.contains(part));
        directory || self.path.ends_with("/tests.rs")
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
