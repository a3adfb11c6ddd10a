//! Facts about the machine that a number means nothing without, and its I/O counters.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cgroup::keyed;
use super::tools;

/// Bytes of a sector in the block layer's counters, whatever the disk's own sector size.
const SECTOR_BYTES: u64 = 512;

/// What is printed above the results and kept in the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// MiB of memory.
    pub memory_mib: u64,
    /// Name of the disk that holds the swap directory; `None` where it has none (btrfs, overlay).
    pub disk: Option<String>,
    /// The disk's `rotational` flag: with 0 the kernel reads ahead by address, with 1 by slot.
    pub rotational: Option<bool>,
    /// `vma_ra_enabled`: whether the kernel may read ahead by address at all.
    pub vma_ra_enabled: Option<bool>,
    /// Transparent huge pages: the chosen word.
    pub transparent_hugepages: String,
    /// Whether zswap is on: it would answer from RAM what should go to the disk.
    pub zswap: bool,
    /// `vm.swappiness`.
    pub swappiness: String,
    /// Other swap areas in use while the benchmark ran.
    pub other_swap: Vec<String>,
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The sysfs directory of the disk (not of the partition) that a directory lives on.
fn disk_of(directory: &Path) -> Option<PathBuf> {
    let device = std::fs::metadata(directory).ok()?.dev();
    // The split of a device number into major and minor is that of makedev(3).
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    let path = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if path.join("partition").exists() {
        path.parent().map(Path::to_owned)
    } else {
        Some(path)
    }
}

impl Machine {
    /// Looks at the machine; `swap` is the directory that both swap files go to.
    pub fn look(swap: &Path) -> Self {
        let disk = disk_of(swap);
        let chosen = |text: String| {
            text.split_ascii_whitespace()
                .find_map(|word| word.strip_prefix('[')?.strip_suffix(']').map(str::to_owned))
        };
        let rotational = disk
            .as_ref()
            .and_then(|disk| read(disk.join("queue/rotational")));
        let memory = read("/proc/meminfo").unwrap_or_default();
        Self {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: meminfo_bytes(&memory, "MemTotal:").unwrap_or(0) >> 20,
            disk: disk
                .as_ref()
                .and_then(|disk| Some(disk.file_name()?.to_str()?.to_owned())),
            rotational: rotational.map(|flag| flag == "1"),
            vma_ra_enabled: read("/sys/kernel/mm/swap/vma_ra_enabled").map(|flag| flag == "true"),
            transparent_hugepages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(chosen)
                .unwrap_or_else(|| "never".into()),
            zswap: read("/sys/module/zswap/parameters/enabled").is_some_and(|flag| flag == "Y"),
            swappiness: read("/proc/sys/vm/swappiness").unwrap_or_default(),
            other_swap: tools::active_swaps()
                .into_iter()
                .map(|(file, _)| file)
                .collect(),
        }
    }

    /// Lines for people.
    pub fn describe(&self) -> String {
        let flag = |flag: Option<bool>| flag.map_or("unknown", |flag| if flag { "1" } else { "0" });
        let mut text = format!(
            "kernel {}, {} CPUs, {} MiB; transparent huge pages {}, zswap {}, swappiness {}\n\
             disk {}, rotational {}, vma_ra_enabled {}\n",
            self.kernel,
            self.cpus,
            self.memory_mib,
            self.transparent_hugepages,
            if self.zswap { "on" } else { "off" },
            self.swappiness,
            self.disk.as_deref().unwrap_or("unknown"),
            flag(self.rotational),
            flag(self.vma_ra_enabled),
        );
        if !self.other_swap.is_empty() {
            text += &format!("other swap is active: {}\n", self.other_swap.join(", "));
        }
        text
    }
}

/// A value of `/proc/meminfo`, in bytes.
fn meminfo_bytes(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(rest.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Memory that a new program could use without anything being swapped, in bytes.
pub fn available_bytes() -> Option<u64> {
    meminfo_bytes(&read("/proc/meminfo")?, "MemAvailable:")
}

/// The load average over one minute.
pub fn load_average() -> f64 {
    let text = read("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace()
        .next()
        .and_then(|field| field.parse().ok())
        .unwrap_or(0.0)
}

/// Counters of the disk and of the kernel's swap; all zero where they cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct IoCounts {
    /// Read requests that the disk completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests that the disk completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Pages the kernel swapped in.
    pub pswpin: u64,
    /// Pages the kernel swapped out.
    pub pswpout: u64,
}

impl IoCounts {
    /// The counters now, of the disk that holds `directory`.
    pub fn read(directory: &Path) -> Self {
        let stat = disk_of(directory)
            .and_then(|disk| read(disk.join("stat")))
            .unwrap_or_default();
        let vmstat = read("/proc/vmstat").unwrap_or_default();
        Self::parse(&stat, &vmstat)
    }

    /// Parses a disk's `stat` (kernel: Documentation/block/stat.rst) and `/proc/vmstat`.
    fn parse(stat: &str, vmstat: &str) -> Self {
        let fields: Vec<u64> = stat
            .split_ascii_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Self {
            reads: field(0),
            read_bytes: field(2) * SECTOR_BYTES,
            writes: field(4),
            write_bytes: field(6) * SECTOR_BYTES,
            pswpin: keyed(vmstat, "pswpin").unwrap_or(0),
            pswpout: keyed(vmstat, "pswpout").unwrap_or(0),
        }
    }

    /// What was counted since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            pswpin: self.pswpin.saturating_sub(earlier.pswpin),
            pswpout: self.pswpout.saturating_sub(earlier.pswpout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_disk_and_of_swap() {
        let stat = "  10  1  80  5  20  2  400  6  0 0 0 0 0 0 0 0 0";
        let vmstat = "nr_free_pages 1\npswpin 7\npswpout 9\n";
        let counts = IoCounts::parse(stat, vmstat);
        let expected = IoCounts {
            reads: 10,
            read_bytes: 40_960,
            writes: 20,
            write_bytes: 204_800,
            pswpin: 7,
            pswpout: 9,
        };
        assert_eq!(counts, expected);
        assert_eq!(counts.since(counts), IoCounts::default());
    }

    #[test]
    fn meminfo_is_in_kib() {
        assert_eq!(
            meminfo_bytes("MemTotal:    2048 kB\nMemAvailable: 1 kB\n", "MemTotal:"),
            Some(2 << 20)
        );
        assert_eq!(meminfo_bytes("", "MemTotal:"), None);
    }
}
