//! Kernel swap on zram, with what zram takes counted inside the limit.
//!
//! A cgroup does not count the memory in which zram keeps compressed pages. So while a program runs, the
//! limit of its cgroup is lowered by what zram holds at the time, and raised again when that shrinks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::super::BenchError;
use super::super::cgroup::Cgroup;
use super::super::guard::{Guard, Undo};
use super::super::tools::{self, PRIORITY};

/// Where devices are made and removed (kernel: Documentation/admin-guide/blockdev/zram.rst).
const CONTROL: &str = "/sys/class/zram-control";
/// How often the limit follows what zram holds: a program that fills 500 MiB in a second is 5 MiB further
/// after it, of which zram keeps a third.
pub const FOLLOW_INTERVAL: Duration = Duration::from_millis(10);
/// The part of the limit that zram may not take: with nothing left the program could not run at all.
const LEFT_PART: u64 = 16;

/// A run is over its limit when it took more than a part in so many above it: the limit follows what zram takes 100
/// times a second, which leaves 2 or 3 % where the machine is quiet.
const OVER_PART: u64 = 20;
/// How often a run that finished, but was over its limit, is tried again with more slack.
pub const TRIES: u32 = 3;

/// A zram device of our own.
#[derive(Debug)]
pub struct Zram {
    number: u32,
    bytes: u64,
}

/// What was seen of zram during a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Seen {
    /// The most memory that zram took, in bytes.
    pub zram_peak_bytes: u64,
    /// The most that cgroup and zram took together, in bytes.
    pub together_peak_bytes: u64,
    /// The most that it held, uncompressed, in bytes.
    pub held_peak_bytes: u64,
    /// What the cgroup's limit was lowered by beside what zram took, in bytes.
    pub slack_bytes: u64,
}

impl Seen {
    /// By how much cgroup and zram took more than the limit, in bytes; 0 for less than a part in so many of it.
    pub const fn over(self, limit_bytes: u64) -> u64 {
        match self.together_peak_bytes.saturating_sub(limit_bytes) {
            over if over > limit_bytes / OVER_PART => over,
            _ => 0,
        }
    }
}

impl Zram {
    /// Makes a device of `bytes`; the guard removes it.
    ///
    /// # Errors
    /// When this kernel has no zram with lz4, or it cannot be used from here.
    pub fn create(bytes: u64, guard: &mut Guard) -> Result<Self, BenchError> {
        let add = Path::new(CONTROL).join("hot_add");
        let number = std::fs::read_to_string(&add)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| {
                BenchError::Lacks(format!(
                    "cannot make a zram device ({}); it needs root and the module: modprobe zram (or leave it out: \
                     --systems unlimited,outpage,kernel)",
                    add.display()
                ))
            })?;
        // Reading the file makes the device, so its number cannot be noted before.
        guard.note(&Undo::Zram(number))?;
        let zram = Self { number, bytes };
        // What is wrong with it is found out now, not after the first runs.
        zram.on(bytes)?;
        zram.off()?;
        Ok(zram)
    }

    /// Has the kernel swap to the empty device, which takes less than `limit_bytes`.
    ///
    /// # Errors
    /// When the device or the kernel refuses.
    pub fn on(&self, limit_bytes: u64) -> Result<(), BenchError> {
        let set = |file: &str, value: &str| {
            let path = tools::zram_setting(self.number, file);
            std::fs::write(&path, value).map_err(|error| {
                BenchError::Lacks(format!(
                    "cannot write {value} to {}: {error}",
                    path.display()
                ))
            })
        };
        set("reset", "1")?;
        set("comp_algorithm", "lz4")?;
        set("disksize", &self.bytes.to_string())?;
        set(
            "mem_limit",
            &(limit_bytes - limit_bytes / LEFT_PART).to_string(),
        )?;
        let device = self.device();
        tools::call("mkswap", &[device.as_os_str()])?;
        tools::call(
            "swapon",
            &["-p".as_ref(), PRIORITY.as_ref(), device.as_os_str()],
        )
    }

    /// Stops swapping to it.
    ///
    /// # Errors
    /// When the kernel keeps it.
    pub fn off(&self) -> Result<(), BenchError> {
        tools::call("swapoff", &[self.device().as_os_str()])
    }

    fn device(&self) -> PathBuf {
        tools::zram_device(self.number)
    }

    /// Sets the limit of `cgroup` to what zram and `slack_bytes` leave of `limit_bytes`, and notes what is taken.
    pub fn follow(&self, cgroup: &Cgroup, limit_bytes: u64, slack_bytes: u64, seen: &mut Seen) {
        let path = tools::zram_setting(self.number, "mm_stat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let Some((held, used)) = held_and_used(&text) else {
            return;
        };
        let together = used + cgroup.current_bytes().unwrap_or(0);
        seen.zram_peak_bytes = seen.zram_peak_bytes.max(used);
        seen.held_peak_bytes = seen.held_peak_bytes.max(held);
        seen.together_peak_bytes = seen.together_peak_bytes.max(together);
        let left = limit_bytes.saturating_sub(used + slack_bytes);
        // Refused while the cgroup cannot be shrunk so far; then it is tried again the next time.
        let _ = cgroup.set_limit(left.max(limit_bytes / LEFT_PART));
    }
}

/// Bytes held, uncompressed, and memory used, of `mm_stat`.
fn held_and_used(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace();
    let held = fields.next()?.parse().ok()?;
    let used = fields.nth(1)?.parse().ok()?;
    Some((held, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zram_says_what_it_holds_and_takes() {
        let text =
            " 16384     7000    12288  104857600    20480        2        0        0        0\n";
        assert_eq!(held_and_used(text), Some((16384, 12288)));
        assert_eq!(held_and_used(""), None);
    }
}
