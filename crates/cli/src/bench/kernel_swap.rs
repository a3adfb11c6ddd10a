//! The kernel's side of the comparison: a swap file of our own, and `vm.page-cluster`.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup::{Cgroup, Controller};
use super::guard::{Guard, Undo};
use super::launch::{Run, Speaks, launch_as};
use super::machine::IoCounts;
use super::tools::PRIORITY;
use super::{BenchError, tools};

/// Where `vm.page-cluster` lives.
const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
/// Bytes written at a time while the swap file is filled.
const PIECE_BYTES: usize = 1 << 20;

/// What the kernel's runs need: a memory cgroup for each, a swap file, `vm.page-cluster`.
#[derive(Debug)]
pub struct Kernel {
    controller: Controller,
    swap_file: Option<SwapFile>,
    directory: PathBuf,
    runs: u32,
}

/// A run in a memory cgroup.
#[derive(Debug)]
pub struct Measured {
    /// The run.
    pub run: Run,
    /// Disk and swap counters over it.
    pub io: IoCounts,
    /// `vm.page-cluster` as read before and after it.
    pub page_cluster: [u32; 2],
}

impl Kernel {
    /// With a swap file of `swap_bytes` in `directory`. The guard undoes it all.
    ///
    /// # Errors
    /// When the user is not root, or the machine lacks something.
    pub fn prepare(
        directory: &Path,
        swap_bytes: u64,
        guard: &mut Guard,
    ) -> Result<Self, BenchError> {
        let mut kernel = Self::without_swap(directory, guard)?;
        kernel.make_swap(swap_bytes, guard)?;
        Ok(kernel)
    }

    /// Without a swap file so far.
    ///
    /// # Errors
    /// When the user is not root, or the machine lacks something.
    pub fn without_swap(directory: &Path, guard: &mut Guard) -> Result<Self, BenchError> {
        need_root()?;
        let controller = Controller::find(guard)?;
        keep_page_cluster(guard)?;
        Ok(Self {
            controller,
            swap_file: None,
            directory: directory.to_owned(),
            runs: 0,
        })
    }

    /// Makes the swap file. The guard removes it.
    ///
    /// # Errors
    /// When the machine lacks something.
    pub fn make_swap(&mut self, swap_bytes: u64, guard: &mut Guard) -> Result<(), BenchError> {
        self.swap_file = Some(SwapFile::create(&self.directory, swap_bytes, guard)?);
        Ok(())
    }

    /// One run of `command` in a fresh cgroup with a limit of `limit_bytes`: with the kernel's swap at
    /// this setting of `vm.page-cluster`, or with none.
    ///
    /// # Errors
    /// When the cgroup, the swap file or the setting cannot be had.
    pub fn run(
        &mut self,
        (command, speaks): (&[OsString], Speaks),
        limit_bytes: u64,
        swap: Option<u32>,
        timeout: Duration,
        guard: &mut Guard,
    ) -> Result<Measured, BenchError> {
        if swap.is_some() {
            self.swap_file().on()?;
        }
        let measured = self.within(limit_bytes, swap, guard, |cgroup| {
            launch_as(command, Some(cgroup), timeout, speaks)
        })?;
        if swap.is_some() {
            self.swap_file().off()?;
        }
        Ok(measured)
    }

    fn swap_file(&self) -> &SwapFile {
        self.swap_file.as_ref().expect("made before runs that swap")
    }

    /// Has `body` run something in a fresh cgroup with a limit of `limit_bytes`, which may be swapped to what is
    /// switched on at this setting of `vm.page-cluster`, or not at all.
    ///
    /// # Errors
    /// When the cgroup or the setting cannot be had, and those of `body`.
    pub fn within(
        &mut self,
        limit_bytes: u64,
        swap: Option<u32>,
        guard: &mut Guard,
        body: impl FnOnce(&Cgroup) -> Result<Run, BenchError>,
    ) -> Result<Measured, BenchError> {
        if let Some(page_cluster) = swap {
            set_page_cluster(page_cluster)?;
        }
        let name = format!("outpage-bench-{}-{}", std::process::id(), self.runs);
        self.runs += 1;
        let cgroup = self
            .controller
            .create(&name, limit_bytes, swap.is_some(), guard)?;
        let before = page_cluster()?;
        let io = IoCounts::read(&self.directory);
        let run = body(&cgroup)?;
        let io = IoCounts::read(&self.directory).since(io);
        cgroup.remove()?;
        Ok(Measured {
            run,
            io,
            page_cluster: [before, page_cluster()?],
        })
    }
}

/// # Errors
/// When the effective user is not root.
fn need_root() -> Result<(), BenchError> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap_or_default();
    match uids.split_ascii_whitespace().nth(1) {
        Some("0") => Ok(()),
        _ => Err(BenchError::Lacks(
            "comparing with kernel swap needs root (it makes a swap file and memory cgroups); run it with sudo".into(),
        )),
    }
}

/// A swap file, written once and switched on for the kernel's runs only.
#[derive(Debug)]
struct SwapFile {
    path: PathBuf,
}

impl SwapFile {
    /// Writes a swap file of `bytes` in `directory`. Every block is written, because the first write
    /// to a block that is only allocated costs half as much again.
    ///
    /// # Errors
    /// When the commands are missing, there is no room, or the kernel cannot swap to a file there.
    fn create(directory: &Path, bytes: u64, guard: &mut Guard) -> Result<Self, BenchError> {
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
    fn on(&self) -> Result<(), BenchError> {
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
    fn off(&self) -> Result<(), BenchError> {
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
fn page_cluster() -> Result<u32, BenchError> {
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
fn keep_page_cluster(guard: &mut Guard) -> Result<(), BenchError> {
    guard.note(&Undo::Restore(
        PAGE_CLUSTER.into(),
        page_cluster()?.to_string(),
    ))
}

/// Sets `vm.page-cluster` and reads it back.
///
/// # Errors
/// When it cannot be written, or another value is read back.
fn set_page_cluster(value: u32) -> Result<(), BenchError> {
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
