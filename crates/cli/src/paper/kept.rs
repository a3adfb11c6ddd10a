//! Finished runs in a directory: a file each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use outpage_sim::paper::Keep;

use crate::error::CliError;

/// A directory with finished runs.
pub struct Directory {
    path: PathBuf,
    /// How many could not be written, and why the first.
    unkept: Mutex<(u64, Option<io::Error>)>,
}

impl Directory {
    /// The directory at `path`, made if there is none.
    ///
    /// # Errors
    /// [`code::IO`](crate::error::code::IO) when it cannot be made.
    pub fn at(path: &Path) -> Result<Self, CliError> {
        fs::create_dir_all(path).map_err(|e| CliError::unwritten(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            unkept: Mutex::default(),
        })
    }

    /// What has to be said of runs that could not be kept.
    pub fn complaint(self) -> Option<String> {
        let (count, first) = self.unkept.into_inner().expect("nobody panics with it");
        let first = first?;
        Some(format!(
            "{count} runs could not be kept in {}: {first}",
            self.path.display()
        ))
    }

    /// A reader, or a run that is cut short, sees all of a file or nothing: it gets its name when it is whole.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let whole = self.path.join(format!("{name}.json"));
        let part = self.path.join(format!("{name}.{}", std::process::id()));
        fs::write(&part, bytes)
            .and_then(|()| fs::rename(&part, &whole))
            .inspect_err(|_| drop(fs::remove_file(&part)))
    }
}

impl Keep for Directory {
    fn found(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path.join(format!("{name}.json"))).ok()
    }

    fn keep(&self, name: &str, bytes: &[u8]) {
        if let Err(error) = self.write(name, bytes) {
            let mut unkept = self.unkept.lock().expect("nobody panics with it");
            unkept.0 += 1;
            unkept.1.get_or_insert(error);
        }
    }
}
