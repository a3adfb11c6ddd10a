//! The kernel's side of the comparison: a swap file of our own, and `vm.page-cluster`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::guard::{Guard, Undo};
use super::{BenchError, tools};

/// Where `vm.page-cluster` lives.
const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
/// Bytes written at a time while the swap file is filled.
const PIECE_BYTES: usize = 1 << 20;
/// The highest priority: pages go here even where the machine has other swap.
const PRIORITY: &str = "32767";

/// A swap file, written once and switched on for the kernel's runs only.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
}

impl SwapFile {
    /// Writes a swap file of `bytes` in `directory`. Every block is written, because the first write
    /// to a block that is only allocated costs half as much again.
    ///
    /// # Errors
    /// When the commands are missing, there is no room, or the kernel cannot swap to a file there.
    pub fn create(directory: &Path, bytes: u64, guard: &mut Guard) -> Result<Self, BenchError> {
        for command in ["mkswap", "swapon", "swapoff"] {
            tools::find(command)?;
        }
        let directory = std::fs::canonicalize(directory).map_err(|error| {
            BenchError::Lacks(format!(
                "swap directory {}: {error}; choose one with --swap",
                directory.display()
            ))
        })?;
        let path = directory.join(format!(".outpage-bench-{}.swap", std::process::id()));
        guard.note(&Undo::Remove(path.clone()))?;
        fill(&path, bytes).map_err(|error| {
            BenchError::Lacks(format!(
                "cannot write a swap file of {} MiB in {}: {error}; choose another directory with --swap",
                bytes >> 20,
                directory.display()
            ))
        })?;
        tools::call("mkswap", &[path.as_os_str()])?;
        guard.note(&Undo::Swapoff(path.clone()))?;
        let file = Self { path };
        // A file system that cannot hold swap is found out now, not after the first runs.
        file.on()?;
        file.off()?;
        Ok(file)
    }

    /// Has the kernel swap to the file.
    ///
    /// # Errors
    /// When the kernel refuses it, as it does on tmpfs, overlay and network file systems.
    pub fn on(&self) -> Result<(), BenchError> {
        tools::call("swapon", &["-p".as_ref(), PRIORITY.as_ref(), self.path.as_os_str()]).map_err(|error| {
            BenchError::Lacks(format!(
                "{error}; the swap directory must be on a local ext4 or xfs file system: choose one with --swap (in \
                 a container: run it with --privileged)"
            ))
        })
    }

    /// Stops swapping to the file. The program has ended, so nothing is read back.
    ///
    /// # Errors
    /// When the kernel keeps it.
    pub fn off(&self) -> Result<(), BenchError> {
        tools::call("swapoff", &[self.path.as_os_str()])
    }
}

fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let zeros = vec![0; PIECE_BYTES];
    for _ in 0..bytes.div_ceil(PIECE_BYTES as u64) {
        file.write_all(&zeros)?;
    }
    file.sync_all()
}

/// `vm.page-cluster` now.
///
/// # Errors
/// When it cannot be read.
pub fn page_cluster() -> Result<u32, BenchError> {
    let text = std::fs::read_to_string(PAGE_CLUSTER);
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| {
            BenchError::Lacks(format!(
                "cannot read {PAGE_CLUSTER}: this kernel has no swap"
            ))
        })
}

/// Notes the present `vm.page-cluster` with the guard.
///
/// # Errors
/// When it cannot be read.
pub fn keep_page_cluster(guard: &mut Guard) -> Result<(), BenchError> {
    guard.note(&Undo::Restore(
        PAGE_CLUSTER.into(),
        page_cluster()?.to_string(),
    ))
}

/// Sets `vm.page-cluster` and reads it back.
///
/// # Errors
/// When it cannot be written, or another value is read back.
pub fn set_page_cluster(value: u32) -> Result<(), BenchError> {
    std::fs::write(PAGE_CLUSTER, value.to_string()).map_err(|error| {
        BenchError::Lacks(format!(
            "cannot write {PAGE_CLUSTER}: {error}; in a container, run it with --privileged"
        ))
    })?;
    match page_cluster()? {
        found if found == value => Ok(()),
        found => Err(BenchError::Failed(format!(
            "vm.page-cluster is {found} after {value} was written"
        ))),
    }
}
