//! Small helpers around the machine: util-linux commands, sizes, killing, memory cgroup removal.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::BenchError;

/// Where Debian, Fedora and Alpine keep `swapon` and friends; often not in a user's PATH.
const SYSTEM_DIRS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The highest priority of swap: pages go there even where the machine has other swap.
pub const PRIORITY: &str = "32767";

/// The device of a zram number.
pub fn zram_device(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/zram{number}"))
}

/// A file of `/sys` of a zram device.
pub fn zram_setting(number: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/zram{number}/{file}"))
}

/// Removes a zram device, and all that it holds; one that does not exist is success.
///
/// # Errors
/// When it is still in use.
pub fn remove_zram(number: u32) -> Result<(), String> {
    let device = zram_device(number);
    if is_swap(&device) {
        call("swapoff", &[device.as_os_str()]).map_err(|error| error.to_string())?;
    }
    let reset = zram_setting(number, "reset");
    if !reset.exists() {
        return Ok(());
    }
    let remove = "/sys/class/zram-control/hot_remove";
    std::fs::write(&reset, "1")
        .and_then(|()| std::fs::write(remove, number.to_string()))
        .map_err(|error| format!("{}: {error}", device.display()))
}

/// The path of a command from PATH or the system directories.
///
/// # Errors
/// When it is nowhere, with the package that has it.
pub fn find(command: &str) -> Result<PathBuf, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRS.map(PathBuf::from))
        .map(|dir| dir.join(command))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            BenchError::Lacks(format!(
                "the command {command} is missing; it is in the package util-linux \
                 (apt-get install util-linux)"
            ))
        })
}

/// Runs a command to its end, its output kept back unless it fails.
///
/// # Errors
/// When it is missing or fails, with what it said.
pub fn call(command: &str, args: &[&OsStr]) -> Result<(), BenchError> {
    let output = Command::new(find(command)?)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| BenchError::Failed(format!("{command} did not start: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr)
        .trim()
        .replace('\n', "; ");
    Err(BenchError::Failed(format!("{command} failed: {said}")))
}

/// Whether the kernel swaps to this file now.
pub fn is_swap(path: &Path) -> bool {
    let path = path.to_string_lossy();
    active_swaps().iter().any(|(file, _)| *file == path)
}

/// Active swap areas: (file, KiB in use), from `/proc/swaps`. Empty where it cannot be read.
pub fn active_swaps() -> Vec<(String, u64)> {
    std::fs::read_to_string("/proc/swaps")
        .map(|text| parse_swaps(&text))
        .unwrap_or_default()
}

fn parse_swaps(text: &str) -> Vec<(String, u64)> {
    // Filename, type, size, used, priority; the kernel writes a blank in a name as \040.
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let name = fields.next()?.replace("\\040", " ");
            Some((name, fields.nth(2)?.parse().ok()?))
        })
        .collect()
}

/// Kills processes (SIGKILL) by number; the ones already gone are no error.
pub fn kill(pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    // `kill` is built into every POSIX shell, so no package is needed.
    let _ = Command::new("sh")
        .args(["-c", "kill -KILL \"$@\"", "sh"])
        .args(pids.iter().map(u32::to_string))
        .stderr(Stdio::null())
        .status();
}

/// The processes in a cgroup.
pub fn cgroup_pids(dir: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills what runs in the cgroup and removes it; a cgroup that does not exist is success.
///
/// # Errors
/// What `rmdir` says, for one that stays busy.
pub fn remove_cgroup(dir: &Path) -> Result<(), String> {
    const TRIES: u32 = 50;
    for attempt in 1..=TRIES {
        kill(&cgroup_pids(dir));
        match std::fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if attempt == TRIES => return Err(error.to_string()),
            // Exiting processes keep the cgroup busy for as long as freeing their memory takes.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    Ok(())
}

/// A process and all its descendants, by the parents that `/proc` shows.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rfind(')').and_then(|end| {
            stat[end + 1..]
                .split_ascii_whitespace()
                .nth(1)?
                .parse()
                .ok()
        });
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(
            parents
                .iter()
                .filter(|&&(_, parent)| parent == member)
                .map(|&(pid, _)| pid),
        );
        next += 1;
    }
    family
}

/// Anonymous memory of the descendants of a process, in bytes; what they share since a fork counts for each.
pub fn anonymous_of_descendants(root: u32) -> u64 {
    let of = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))?;
        Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    let family = descendants(root).into_iter();
    family.filter(|&pid| pid != root).filter_map(of).sum()
}

/// Calls `run`, and beside it `look` every `interval`, until it returns.
pub fn while_looking<T>(
    interval: Duration,
    mut look: impl FnMut() + Send,
    run: impl FnOnce() -> T,
) -> T {
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                look();
            }
        });
        let out = run();
        drop(done);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_with_a_blank_in_the_name() {
        let text = "Filename\tType\tSize\tUsed\tPriority\n\
                    /a\\040b file 4194300\t\t123\t\t-2\n\
                    /dev/sda2 partition 8 0 5\n";
        assert_eq!(
            parse_swaps(text),
            [("/a b".to_owned(), 123), ("/dev/sda2".to_owned(), 0)]
        );
    }

    #[test]
    fn a_missing_command_names_its_package() {
        let error = find("no-such-command-here").unwrap_err();
        assert_eq!(error.exit_code(), 69);
        assert!(error.to_string().contains("util-linux"));
    }
}
