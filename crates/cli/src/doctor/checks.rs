//! What `doctor` looks at.

use std::fs;
use std::path::Path;

use outpage_engine::config::{MIN_LIMIT, format_size};
use outpage_engine::encryption::EncryptionError;
use outpage_engine::session::EXTENT_BYTES;
use outpage_store::{Cipher, SwapFile};
use outpage_sys::fd::Fd;
use outpage_sys::kernel::{Report, Version};
use outpage_sys::raw::Errno;
use outpage_sys::secret;
use outpage_sys::uffd::Features;
use serde::Serialize;

use super::remedy;
use crate::container;
use crate::run::shim;

/// How one check came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// `run` works, but less well than it could.
    Note,
    /// `run` does not work.
    Missing,
}

/// One line of the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it; absent where all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check {
        name,
        state: State::Ok,
        found: found.into(),
        remedy: None,
    }
}

fn note(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check {
        name,
        state: State::Note,
        found: found.into(),
        remedy: Some(remedy.into()),
    }
}

fn missing(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check {
        name,
        state: State::Missing,
        found: found.into(),
        remedy: Some(remedy.into()),
    }
}

/// The first kernel with write-protection of anonymous memory.
const OLDEST: Version = Version { major: 5, minor: 7 };
/// The first kernel with `UFFDIO_MOVE`.
const MOVE_SINCE: Version = Version { major: 6, minor: 8 };

/// All checks, in the order of the table.
#[must_use]
pub fn all(swap: &Path, device: Option<&Fd>) -> Vec<Check> {
    let report = Report::gather(device.map(Fd::number));
    let mut checks = vec![kernel(report.version)];
    checks.extend(userfaultfd(&report));
    checks.extend(features(&report));
    checks.push(io_uring(&report));
    checks.push(library());
    checks.push(swap_directory(swap));
    checks.push(encryption(Cipher::is_fast(), secret::can_lock()));
    checks.push(container_limit());
    checks.push(huge_pages());
    checks.extend(limits(&report));
    checks
}

fn kernel(version: Version) -> Check {
    let name = "kernel";
    if version < OLDEST {
        missing(
            name,
            format!("Linux {version}"),
            format!("Linux {OLDEST} or later is needed"),
        )
    } else if version < MOVE_SINCE {
        note(
            name,
            format!("Linux {version}"),
            format!("Linux {MOVE_SINCE} or later is faster (mechanism move)"),
        )
    } else {
        ok(name, format!("Linux {version}"))
    }
}

/// The routes to a userfaultfd. One of them is enough; the others are told as they are.
fn userfaultfd(report: &Report) -> Vec<Check> {
    let device = report
        .uffd_device
        .and(Ok(()))
        .or_else(|e| report.uffd_inherited.unwrap_or(Err(e)));
    let setting = match report.unprivileged_userfaultfd {
        Some(value) => format!("vm.unprivileged_userfaultfd is {value}"),
        None => "no vm.unprivileged_userfaultfd".into(),
    };
    let route = |name, result: Result<(), Errno>, extra: String| match result {
        Ok(()) => ok(name, format!("works{extra}")),
        Err(error) => ok(name, format!("{error}{extra}; not needed")),
    };
    let extra = format!(" ({setting})");
    let (by_device, by_call) = ("/dev/userfaultfd", "userfaultfd(2)");
    match (device, report.uffd_call) {
        (Err(device), Err(call)) => vec![
            missing(
                by_device,
                device.to_string(),
                remedy::no_route(device, call),
            ),
            missing(
                by_call,
                format!("{call}{extra}"),
                "one of the two is enough",
            ),
        ],
        (device, call) => vec![
            route(by_device, device, String::new()),
            route(by_call, call, extra),
        ],
    }
}

fn features(report: &Report) -> Vec<Check> {
    let Some(features) = report.uffd_features else {
        return Vec::new();
    };
    let has = |feature| features.has(feature);
    let mechanism = match (has(Features::MOVE), has(Features::PAGEFAULT_FLAG_WP)) {
        (true, true) => ok("mechanism", "move (write-protect works too)"),
        (true, false) => ok("mechanism", "move"),
        (false, true) => note(
            "mechanism",
            "write-protect",
            "Linux 6.8 or later has the faster one, move",
        ),
        (false, false) => missing(
            "mechanism",
            "neither move nor write-protect",
            "Linux 5.7 or later is needed",
        ),
    };
    let poison = if has(Features::POISON) {
        ok("lost pages", "signal whoever touches them")
    } else {
        note(
            "lost pages",
            "end the program",
            "Linux 6.6 or later signals only whoever touches a page whose read failed",
        )
    };
    vec![mechanism, poison, reference_bits(features)]
}

/// Whether touches of mapped pages could be seen. Nothing uses them yet.
fn reference_bits(features: Features) -> Check {
    let offered = features.has(Features::RWP.plus(Features::RWP_ASYNC));
    ok(
        "reference bits",
        match offered {
            true => "offered by this kernel (read-write protection); not used yet",
            false => "not offered by this kernel; not needed",
        },
    )
}

fn io_uring(report: &Report) -> Check {
    match report.io_uring {
        Ok(()) => ok("io_uring", "works"),
        Err(error) => {
            let remedy = match report.io_uring_disabled {
                Some(1 | 2) => {
                    "a pool of threads does the I/O instead; as root: sysctl -w kernel.io_uring_disabled=0"
                }
                _ => {
                    "a pool of threads does the I/O instead; a container needs a seccomp profile that allows io_uring"
                }
            };
            note("io_uring", error.to_string(), remedy)
        }
    }
}

fn library() -> Check {
    match shim::find() {
        Ok(path) => ok("library", path.display().to_string()),
        Err(error) => missing("library", "not found", error.text),
    }
}

fn swap_directory(directory: &Path) -> Check {
    let name = "swap directory";
    let probe = SwapFile::create_in(directory, EXTENT_BYTES);
    let checked = probe.and_then(|file| file.available_bytes().map(|available| (file, available)));
    let (file, available) = match checked {
        Ok(found) => found,
        Err(error) => {
            return missing(
                name,
                directory.display().to_string(),
                format!("{error} (--swap DIR)"),
            );
        }
    };
    let direct = if file.direct() {
        "direct I/O"
    } else {
        "no direct I/O"
    };
    let free = format_size(available);
    let found = format!(
        "{} on {}, {direct}, {free} free",
        directory.display(),
        file.filesystem()
    );
    if available < EXTENT_BYTES {
        return missing(
            name,
            found,
            "free some space, or choose another directory with --swap",
        );
    }
    match file.warnings().next() {
        Some(warning) => note(name, found, warning.to_string()),
        None => ok(name, found),
    }
}

/// What `--encrypt auto` comes to.
fn encryption(fast: bool, lock: Result<(), Errno>) -> Check {
    let name = "encryption";
    match (fast, lock) {
        (true, Ok(())) => ok(
            name,
            "of the swap file by default: the CPU has AES instructions",
        ),
        (_, Err(error)) => note(
            name,
            "not possible",
            EncryptionError::Locked(error).to_string(),
        ),
        (false, Ok(())) => note(
            name,
            "off by default: the CPU has no AES instructions",
            "--encrypt on encrypts the swap file all the same; a page takes some 25 us then, in place of 0.65",
        ),
    }
}

fn container_limit() -> Check {
    let name = "memory cgroup";
    match container::memory_limit() {
        None => ok(name, "no limit"),
        Some(limit) => {
            let found = format!("{} ({})", format_size(limit.bytes), limit.file.display());
            if limit.bytes < MIN_LIMIT {
                missing(
                    name,
                    found,
                    format!("at least {} are needed", format_size(MIN_LIMIT)),
                )
            } else {
                ok(name, format!("{found}; --memory must stay below"))
            }
        }
    }
}

fn huge_pages() -> Check {
    let text =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = text.split(['[', ']']).nth(1).unwrap_or("none");
    ok("huge pages", format!("{mode}; off in memory that is paged"))
}

fn limits(report: &Report) -> Vec<Check> {
    /// The kernel's default of vm.max_map_count.
    const MAPPINGS_DEFAULT: u64 = 65530;
    let mut checks = vec![match report.overcommit {
        Some(2) => note(
            "overcommit",
            "never (vm.overcommit_memory is 2)",
            "a program may be refused memory although its limit is not reached; as root: sysctl -w vm.overcommit_memory=0",
        ),
        _ => ok("overcommit", "allowed"),
    }];
    checks.push(match report.mappings_max {
        Some(count) if count < MAPPINGS_DEFAULT => note(
            "mappings",
            format!("at most {count} a process"),
            format!("as root: sysctl -w vm.max_map_count={MAPPINGS_DEFAULT}"),
        ),
        Some(count) => ok("mappings", format!("at most {count} a process")),
        None => ok("mappings", "unknown"),
    });
    if let Ok(limit) = report.address_space
        && limit.soft != u64::MAX
    {
        let found = format!("{} a process (ulimit -v)", format_size(limit.soft));
        checks.push(note(
            "address space",
            found,
            "ulimit -v unlimited: paged-out memory counts in it",
        ));
    }
    if let Ok(limit) = report.file_size
        && limit.soft != u64::MAX
    {
        let found = format!("at most {} (ulimit -f)", format_size(limit.soft));
        let remedy = "ulimit -f unlimited: the swap file cannot grow beyond it";
        checks.push(if limit.soft < EXTENT_BYTES {
            missing("file size", found, remedy)
        } else {
            note("file size", found, remedy)
        });
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_told() {
        let state = |major, minor| kernel(Version { major, minor }).state;
        assert_eq!(
            (state(5, 4), state(5, 15), state(6, 8)),
            (State::Missing, State::Note, State::Ok)
        );
    }

    #[test]
    fn reference_bits_are_told_where_both_of_their_features_are() {
        let both = Features::RWP.plus(Features::RWP_ASYNC);
        for (features, found) in [
            (Features::MOVE, "not offered"),
            (Features::RWP, "not offered"),
            (Features::MOVE.plus(both), "offered by this kernel (read"),
        ] {
            let check = reference_bits(features);
            assert_eq!(check.state, State::Ok);
            assert!(check.found.starts_with(found), "{check:?}");
        }
    }

    #[test]
    fn encryption_is_told_with_its_remedy() {
        assert_eq!(encryption(true, Ok(())).state, State::Ok);
        for (check, part) in [
            (encryption(false, Ok(())), "--encrypt on"),
            (encryption(true, Err(Errno::ENOMEM)), "ulimit -l"),
            (encryption(false, Err(Errno::EPERM)), "ulimit -l"),
        ] {
            assert_eq!(check.state, State::Note);
            assert!(
                check.remedy.as_ref().is_some_and(|r| r.contains(part)),
                "{check:?}"
            );
        }
    }

    #[test]
    fn a_directory_without_disk_is_missing() {
        let check = swap_directory(Path::new("/nonexistent"));
        assert_eq!(check.state, State::Missing);
        assert!(check.remedy.is_some_and(|r| r.contains("--swap")));
    }

    #[test]
    fn every_flaw_has_a_remedy() {
        for check in all(Path::new("/proc"), None) {
            assert_eq!(
                check.remedy.is_none(),
                check.state == State::Ok,
                "{check:?}"
            );
            assert!(!check.found.is_empty(), "{check:?}");
        }
    }
}
