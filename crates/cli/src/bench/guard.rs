//! Undoing what a benchmark changes on the machine, however the benchmark ends.
//!
//! Before anything is created or changed, the way back is written as a line of JSON to the guard:
//! this program again, in a process group of its own, so that Ctrl-C does not reach it. When the
//! benchmark ends, by itself, by a signal or by a kill, the pipe closes and the guard undoes every
//! line, last one first. There is no other clean-up code.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BenchError, tools};

use crate::message;

/// One change, named by what undoes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Undo {
    /// Kill what runs in the cgroup, then remove its directory.
    Cgroup(PathBuf),
    /// Stop swapping to the file.
    Swapoff(PathBuf),
    /// Remove the file, or the directory with all that is in it.
    Remove(PathBuf),
    /// Stop swapping to the zram device of this number, and remove it.
    Zram(u32),
    /// Write the value back into a file of `/proc` or `/sys`.
    Restore(PathBuf, String),
}

impl Undo {
    /// Undoes the change. Nothing to undo (already gone, never made) is success.
    fn undo(&self) -> Result<(), String> {
        let named = |path: &Path, error: String| format!("{}: {error}", path.display());
        match self {
            Self::Cgroup(path) => tools::remove_cgroup(path).map_err(|e| named(path, e)),
            Self::Swapoff(path) if tools::is_swap(path) => {
                tools::call("swapoff", &[path.as_os_str()]).map_err(|e| e.to_string())
            }
            Self::Swapoff(_) => Ok(()),
            Self::Remove(path) => match remove(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(named(path, error.to_string()))
                }
                _ => Ok(()),
            },
            Self::Zram(number) => tools::remove_zram(*number),
            Self::Restore(path, value) => {
                std::fs::write(path, value).map_err(|e| named(path, e.to_string()))
            }
        }
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    }
}

/// The running guard, seen from the benchmark.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    journal: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard.
    ///
    /// # Errors
    /// When this program cannot be started again.
    pub fn start() -> Result<Self, BenchError> {
        let start = || -> std::io::Result<Self> {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["bench", "guard"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .process_group(0)
                .spawn()?;
            let journal = child.stdin.take();
            Ok(Self { child, journal })
        };
        start().map_err(|error| {
            BenchError::Failed(format!("cannot start the process that cleans up: {error}"))
        })
    }

    /// Notes how to undo a change that is about to be made.
    ///
    /// # Errors
    /// When the guard is gone; the change must then not be made.
    pub fn note(&mut self, undo: &Undo) -> Result<(), BenchError> {
        let line = serde_json::to_string(undo).map_err(std::io::Error::from);
        let journal = self.journal.as_mut().expect("open until finish");
        line.and_then(|line| writeln!(journal, "{line}"))
            .map_err(|error| {
                BenchError::Failed(format!("the process that cleans up is gone: {error}"))
            })
    }

    /// Has everything undone and waits for it.
    ///
    /// # Errors
    /// When something could not be undone; the guard has said what.
    pub fn finish(mut self) -> Result<(), BenchError> {
        self.close()
    }

    fn close(&mut self) -> Result<(), BenchError> {
        if self.journal.take().is_none() {
            return Ok(());
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(BenchError::Failed(
                "not everything could be cleaned up (see above)".into(),
            )),
            Err(error) => Err(BenchError::Failed(format!(
                "lost the process that cleans up: {error}"
            ))),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error on the way out is being reported already; the guard has named what it left.
        let _ = self.close();
    }
}

/// The guard's own life: reads the journal to its end, then undoes it backwards.
///
/// # Errors
/// When something could not be undone.
pub fn watch(journal: impl BufRead) -> Result<(), BenchError> {
    let mut undos: Vec<Undo> = Vec::new();
    for line in journal.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(undo) => undos.push(undo),
            // The last line is cut when the benchmark is killed while it writes; its change was not made.
            Err(error) => message::line(format_args!(
                "outpage bench: ignored the line {line:?}: {error}"
            )),
        }
    }
    let mut left = 0;
    for undo in undos.iter().rev() {
        // A killed process takes a moment to let go of its swap and its cgroup.
        let first = undo.undo();
        let result = first.or_else(|_| {
            std::thread::sleep(Duration::from_millis(500));
            undo.undo()
        });
        if let Err(error) = result {
            message::line(format_args!("outpage bench: could not clean up: {error}"));
            left += 1;
        }
    }
    if left == 0 {
        Ok(())
    } else {
        Err(BenchError::Failed(format!(
            "{left} things could not be cleaned up"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undoes_backwards_and_survives_a_cut_line() {
        let dir = std::env::temp_dir().join(format!("outpage-guard-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let (setting, file) = (dir.join("setting"), dir.join("file"));
        std::fs::write(&setting, "changed twice").unwrap();
        std::fs::write(&file, "x").unwrap();
        let inner = dir.join("directory");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("log"), "x").unwrap();
        let undos = [
            Undo::Restore(setting.clone(), "first".into()),
            Undo::Restore(setting.clone(), "second".into()),
            Undo::Remove(file.clone()),
            Undo::Remove(dir.join("never made")),
            Undo::Remove(inner.clone()),
        ];
        let mut journal: String = undos
            .iter()
            .map(|u| serde_json::to_string(u).unwrap() + "\n")
            .collect();
        journal.push_str("{\"Remove\":\"/cut");
        watch(journal.as_bytes()).unwrap();
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "first");
        assert!(!file.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn says_when_something_is_left() {
        let undo = Undo::Restore("/nonexistent/setting".into(), "1".into());
        let journal = serde_json::to_string(&undo).unwrap();
        assert!(watch(journal.as_bytes()).is_err());
    }
}
