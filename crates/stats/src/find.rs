//! Which runs there are on this machine, and which of them a process belongs to.
//!
//! A run has no file. Its session is a memfd that the launcher, the keeper and each pager's thread keep open, and what
//! they keep open is seen under /proc, by who may trace them: the same user, and root.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use outpage_sys::{fd, libc};

use crate::layout::FILE_NAME;
use crate::run::{Process, Run, Unreadable};

/// The variable that names the session's file to the processes of a run.
const VARIABLE: &[u8] = b"OUTPAGE_SESSION=";

/// Why no run is told of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotFound {
    /// There is no such process.
    NoProcess,
    /// It belongs to no run, or to one that nobody keeps open any more.
    NoRun,
    /// What it has open may not be seen: it belongs to another user, as a rule.
    Forbidden,
    /// Its run has a session that says nothing.
    Unreadable(Unreadable),
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => write!(f, "there is no such process"),
            Self::NoRun => write!(f, "it belongs to no run of outpage"),
            Self::Forbidden => write!(f, "it may not be looked into: ask as its user, or as root"),
            Self::Unreadable(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for NotFound {}

/// The runs that can be seen.
#[derive(Debug, Default)]
pub struct Runs {
    /// Each run once, or why it says nothing, with the lowest process that keeps its session open; in order of these.
    pub seen: Vec<(u32, Result<Run, Unreadable>)>,
    /// Whether an `outpage` of another user runs, of which nothing can be seen.
    pub others: bool,
}

/// Every run whose processes may be looked into. Takes time in proportion to the descriptors of all processes.
///
/// # Errors
/// Those of reading /proc.
pub fn all() -> io::Result<Runs> {
    let mut runs = Runs::default();
    let mut known = Vec::new();
    for pid in processes()? {
        let Ok(files) = sessions_open_in(pid) else {
            runs.others |= comm(&process(pid)).as_deref() == Some("outpage");
            continue;
        };
        for file in files {
            let Ok(identity) = fd::identity(file.as_raw_fd()) else {
                continue;
            };
            if !known.contains(&identity) {
                known.push(identity);
                let run = Run::new(file);
                if run.as_ref().err() != Some(&Unreadable::NotBegun) {
                    runs.seen.push((pid, run));
                }
            }
        }
    }
    Ok(runs)
}

/// The run that process `pid` belongs to: as its launcher, keeper, program, or any other process of its tree.
///
/// # Errors
/// [`NotFound`].
pub fn of(pid: u32) -> Result<Run, NotFound> {
    if !process(pid).exists() {
        return Err(NotFound::NoProcess);
    }
    let open = sessions_open_in(pid);
    let named = session_named_in(pid);
    let forbidden = [open.as_ref().err(), named.as_ref().err()]
        .into_iter()
        .flatten()
        .any(|error| error.kind() == ErrorKind::PermissionDenied);
    // A launcher within a run has its own session open and that of the outer run in its environment.
    let mut files = open.into_iter().flatten();
    let file = files.next().or_else(|| named.ok().flatten());
    if let Some(file) = file {
        return Run::new(file).map_err(|why| match why {
            Unreadable::NotBegun => NotFound::NoRun,
            why => NotFound::Unreadable(why),
        });
    }
    let belongs = |run: &Run| {
        run.look().is_ok_and(|seen| {
            let is_it = |process: &Process| process.here && process.pid == pid;
            let member = seen.processes.iter().any(is_it);
            member || seen.program == Some(pid)
        })
    };
    let runs = all().unwrap_or_default().seen.into_iter();
    let found = runs.filter_map(|(_, run)| run.ok()).find(belongs);
    found.ok_or(if forbidden {
        NotFound::Forbidden
    } else {
        NotFound::NoRun
    })
}

/// The numbers of all processes, ascending.
fn processes() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    Ok(pids)
}

fn process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The name of a process or thread.
fn comm(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join("comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// Sessions that process `pid` has open, those of its pager's thread, which has a table of its own, included.
///
/// # Errors
/// Those of reading its descriptors.
fn sessions_open_in(pid: u32) -> io::Result<Vec<File>> {
    let mut files = sessions_in(&process(pid).join("fd"))?;
    let threads = fs::read_dir(process(pid).join("task"))
        .into_iter()
        .flatten();
    for thread in threads.flatten().map(|thread| thread.path()) {
        if comm(&thread).as_deref() == Some("outpage") {
            files.extend(sessions_in(&thread.join("fd")).unwrap_or_default());
        }
    }
    Ok(files)
}

fn sessions_in(directory: &Path) -> io::Result<Vec<File>> {
    let links = fs::read_dir(directory)?.flatten();
    Ok(links.filter_map(|link| session_at(&link.path())).collect())
}

/// The session whose path process `pid` was given.
///
/// # Errors
/// Those of reading its environment.
fn session_named_in(pid: u32) -> io::Result<Option<File>> {
    let environment = fs::read(process(pid).join("environ"))?;
    let mut entries = environment.split(|&byte| byte == 0);
    let path = entries.find_map(|entry| entry.strip_prefix(VARIABLE));
    // Anybody may have written it: only what looks like the path of a descriptor is looked at.
    let path = path.map(|path| Path::new(OsStr::from_bytes(path)));
    Ok(path.filter(|path| is_descriptor(path)).and_then(session_at))
}

/// Whether `path` is `/proc/PID/fd/N`.
fn is_descriptor(path: &Path) -> bool {
    let number = |part: &OsStr| {
        let bytes = part.as_bytes();
        !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
    };
    let parts: Vec<&OsStr> = path.iter().collect();
    matches!(parts[..], [root, proc, pid, fd, n]
        if root == "/" && proc == "proc" && number(pid) && fd == "fd" && number(n))
}

/// The file behind a descriptor's link, if that is called as sessions are. Others are not opened: opening a device or a
/// pipe does something.
fn session_at(link: &Path) -> Option<File> {
    let target = fs::read_link(link).ok()?;
    let name = target.as_os_str().as_bytes().strip_prefix(b"/memfd:")?;
    let rest = name.strip_prefix(FILE_NAME.to_bytes())?;
    if !matches!(rest, b"" | b" (deleted)") {
        return None;
    }
    // The descriptor may be another by now: what it is is held first, without opening it.
    let open = |path: &Path, flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let held = open(link, libc::O_PATH).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    if fs::read_link(&path).ok()? != target {
        return None;
    }
    open(&path, libc::O_NONBLOCK | libc::O_NOCTTY).ok()
}

#[cfg(test)]
mod tests;
