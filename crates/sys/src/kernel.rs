//! What this kernel and this process's limits allow: the facts behind `doctor`.

use core::ffi::CStr;
use core::fmt;

use crate::fd::{self, Fd};
use crate::raw::{Errno, syscall3, syscall5};
use crate::uffd::{Features, Route};

/// A kernel release, such as 6.8 of `6.8.0-45-generic`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// The running kernel's; 0.0 if its release string is odd.
    #[must_use]
    pub fn running() -> Self {
        // SAFETY: all-zero is a valid `utsname`.
        let mut name: libc::utsname = unsafe { core::mem::zeroed() };
        // SAFETY: the kernel fills the structure, which is libc's on x86-64.
        let result = unsafe { syscall3(libc::SYS_uname, (&raw mut name) as usize, 0, 0) };
        let release = name.release.map(|letter| letter as u8);
        result
            .ok()
            .and_then(|_| Self::parse(&release))
            .unwrap_or(Self { major: 0, minor: 0 })
    }

    fn parse(release: &[u8]) -> Option<Self> {
        let mut numbers = release.split(|letter| !letter.is_ascii_digit());
        let major = decimal(numbers.next()?)? as u32;
        let minor = decimal(numbers.next()?)? as u32;
        Some(Self { major, minor })
    }
}

/// A limit: what applies, and what the process could raise it to. `u64::MAX` is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// In force.
    pub soft: u64,
    /// Ceiling for it.
    pub hard: u64,
}

/// What was found. Errors are kept: they say what to change.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The kernel's release.
    pub version: Version,
    /// A userfaultfd by an inherited descriptor of the device, if one was named.
    pub uffd_inherited: Option<Result<(), Errno>>,
    /// By opening /dev/userfaultfd.
    pub uffd_device: Result<(), Errno>,
    /// By the system call, kernel faults included.
    pub uffd_call: Result<(), Errno>,
    /// By the system call, for faults in user mode only (not enough: read(2) would fail with `EFAULT`).
    pub uffd_user_only: Result<(), Errno>,
    /// Features, by the first of the full routes that works.
    pub uffd_features: Option<Features>,
    /// vm.unprivileged_userfaultfd; `None` where the kernel has no such setting.
    pub unprivileged_userfaultfd: Option<u64>,
    /// io_uring_setup.
    pub io_uring: Result<(), Errno>,
    /// kernel.io_uring_disabled (6.6).
    pub io_uring_disabled: Option<u64>,
    /// `RLIMIT_MEMLOCK`, in bytes.
    pub memlock: Result<Limit, Errno>,
    /// `RLIMIT_AS`, in bytes.
    pub address_space: Result<Limit, Errno>,
    /// `RLIMIT_FSIZE`, in bytes.
    pub file_size: Result<Limit, Errno>,
    /// vm.overcommit_memory: 0 heuristic, 1 always, 2 never.
    pub overcommit: Option<u64>,
    /// vm.max_map_count: mappings per process.
    pub mappings_max: Option<u64>,
}

impl Report {
    /// Asks the kernel. `inherited` is the number of a descriptor of /dev/userfaultfd, if there is one.
    #[must_use]
    pub fn gather(inherited: Option<i32>) -> Self {
        let works = |route: Route| route.create(false).map(drop);
        let inherited = inherited.map(Route::Inherited);
        let routes = [inherited, Some(Route::Device), Some(Route::Call)];
        Self {
            version: Version::running(),
            uffd_inherited: inherited.map(works),
            uffd_device: works(Route::Device),
            uffd_call: works(Route::Call),
            uffd_user_only: Route::Call.create(true).map(drop),
            uffd_features: routes
                .into_iter()
                .flatten()
                .find_map(|route| route.features().ok()),
            unprivileged_userfaultfd: setting(c"/proc/sys/vm/unprivileged_userfaultfd"),
            io_uring: io_uring(),
            io_uring_disabled: setting(c"/proc/sys/kernel/io_uring_disabled"),
            memlock: limit(libc::RLIMIT_MEMLOCK as usize),
            address_space: limit(libc::RLIMIT_AS as usize),
            file_size: file_size(),
            overcommit: setting(c"/proc/sys/vm/overcommit_memory"),
            mappings_max: setting(c"/proc/sys/vm/max_map_count"),
        }
    }
}

/// The number that a file of /proc/sys holds.
#[must_use]
pub fn setting(path: &CStr) -> Option<u64> {
    let file = fd::open(path, libc::O_RDONLY).ok()?;
    let mut text = [0u8; 32];
    let len = fd::read(file.number(), &mut text).ok()?;
    decimal(text[..len].trim_ascii())
}

/// The number that `digits` spell.
fn decimal(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// The process's limit on `resource` (`RLIMIT_*`).
///
/// # Errors
/// Those of prlimit(2).
pub fn limit(resource: usize) -> Result<Limit, Errno> {
    let mut pair = [0u64; 2];
    let at = pair.as_mut_ptr() as usize;
    // SAFETY: `struct rlimit64` is two u64, which the kernel writes; pid 0 is the caller, nothing is set.
    unsafe { syscall5(libc::SYS_prlimit64, 0, resource, 0, at, 0) }?;
    Ok(Limit {
        soft: pair[0],
        hard: pair[1],
    })
}

/// `RLIMIT_FSIZE`, in bytes: how far the process may let a file grow.
///
/// # Errors
/// Those of prlimit(2).
pub fn file_size() -> Result<Limit, Errno> {
    limit(libc::RLIMIT_FSIZE as usize)
}

/// `RLIMIT_STACK`, in bytes: how far the stack of a process's first thread may grow.
///
/// # Errors
/// Those of prlimit(2).
pub fn stack() -> Result<Limit, Errno> {
    limit(libc::RLIMIT_STACK as usize)
}

/// Whether io_uring can be had.
fn io_uring() -> Result<(), Errno> {
    /// `struct io_uring_params` is 120 bytes, all zero for the defaults.
    const PARAMS_WORDS: usize = 15;
    let mut params = [0u64; PARAMS_WORDS];
    let at = params.as_mut_ptr() as usize;
    // SAFETY: the kernel reads and writes the parameters, which have the structure's size.
    let number = unsafe { syscall3(libc::SYS_io_uring_setup, 1, at, 0) }?;
    drop(Fd::adopt(number as i32));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_parsed() {
        let version = |major, minor| Some(Version { major, minor });
        assert_eq!(Version::parse(b"6.8.0-45-generic\0\0"), version(6, 8));
        assert_eq!(Version::parse(b"5.10-rc1"), version(5, 10));
        assert_eq!(Version::parse(b"7.0+\0"), version(7, 0));
        assert_eq!(Version::parse(b"linux"), None);
        assert!(
            Version {
                major: 6,
                minor: 10
            } > Version { major: 6, minor: 8 }
        );
    }

    #[test]
    fn the_report_agrees_with_itself() {
        let report = Report::gather(None);
        assert!(report.version > Version { major: 4, minor: 0 });
        assert_eq!(report.uffd_inherited, None);
        let any = report.uffd_device.is_ok() || report.uffd_call.is_ok();
        assert_eq!(report.uffd_features.is_some(), any);
        assert!(report.memlock.unwrap().soft <= report.memlock.unwrap().hard);
        assert!(report.overcommit.is_some_and(|mode| mode <= 2));
    }

    #[test]
    fn a_wrong_inherited_descriptor_is_reported() {
        let report = Report::gather(Some(i32::MAX));
        assert_eq!(report.uffd_inherited, Some(Err(Errno::EBADF)));
    }
}
