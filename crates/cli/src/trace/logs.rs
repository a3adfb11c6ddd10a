//! The event logs that the processes of a program write while it is recorded.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use outpage_core::record::{Branch, Unreadable, Why};

use super::load::damaged;
use super::with_suffix;
use crate::error::CliError;

/// The directory that the logs are written to; removed at the end.
pub struct Logs(PathBuf);

/// The log of one process.
pub struct Log {
    /// The process: its number, and behind a point how many programs it had executed before.
    pub process: String,
    /// The log, from its header on. That of a forked child begins with its parent's until the fork.
    pub bytes: Vec<u8>,
    /// How many bytes are the process's own.
    pub own: u64,
    /// The process that forked it, if that one paged already.
    pub parent: Option<String>,
    /// Forks between the first process in it and this one.
    pub forks: usize,
}

impl Logs {
    /// A new directory beside `output`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn beside(output: &Path) -> Result<Self, CliError> {
        let path = with_suffix(output, &format!(".logs-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| CliError::unwritten(&path, e))?;
        // The program may change its directory before its pager starts.
        let path = std::path::absolute(&path).map_err(|e| CliError::unwritten(&path, e))?;
        Ok(Self(path))
    }

    /// What the names of the logs begin with, a point left out.
    pub fn prefix(&self) -> PathBuf {
        self.0.join("log")
    }

    fn path(&self, process: &str) -> PathBuf {
        with_suffix(&self.prefix(), &format!(".{process}"))
    }

    /// The processes that have logs, those that wrote most first.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn processes(&self) -> Result<Vec<String>, CliError> {
        let failed = |e| CliError::unread(&self.0, e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let size = entry.metadata().map_err(failed)?.len();
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix("log."));
            found.extend(process.map(|process| (std::cmp::Reverse(size), process.to_owned())));
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, process)| process).collect())
    }

    /// The log of `process`; `None` if it ended before it had written anything.
    ///
    /// # Errors
    /// When a file cannot be read, or is damaged where it says whose log it continues.
    pub fn read(&self, process: &str) -> Result<Option<Log>, CliError> {
        // From the process itself to the one that was not forked while paging, so last to first.
        let mut parts = Vec::new();
        let (mut at, mut most, mut own) = (process.to_owned(), u64::MAX, 0);
        let mut parent = None;
        loop {
            let path = self.path(&at);
            let mut bytes = Vec::new();
            let read = File::open(&path).and_then(|f| f.take(most).read_to_end(&mut bytes));
            read.map_err(|e| CliError::unread(&path, e))?;
            if parts.is_empty() {
                own = bytes.len() as u64;
            }
            let (from, continued) = match Branch::read(&bytes) {
                Ok(None) => (0, None),
                Ok(Some((branch, length))) => {
                    (length, Some((branch.parent.to_owned(), branch.shared)))
                }
                Err(Unreadable {
                    why: Why::Truncated,
                    ..
                }) => return Ok(None),
                Err(damage) => return Err(damaged(&path, damage)),
            };
            bytes.drain(..from);
            parts.push(bytes);
            let Some((before, shared)) = continued else {
                break;
            };
            parent.get_or_insert_with(|| before.clone());
            (at, most) = (before, shared);
        }
        let forks = parts.len() - 1;
        let bytes = parts.into_iter().rev().flatten().collect::<Vec<u8>>();
        Ok((!bytes.is_empty()).then(|| Log {
            process: process.to_owned(),
            bytes,
            own,
            parent,
            forks,
        }))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        // What cannot be removed is named after this program and lies beside the output.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
