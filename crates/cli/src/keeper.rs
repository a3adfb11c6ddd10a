//! The keeper: a process that keeps a session's descriptors open after the launcher is gone.
//!
//! Programs find their session as `/proc/KEEPER/fd/N`. Daemons outlive the launcher, so the
//! descriptors must too: this process ends when the launcher and every process of the tree have. It is a
//! copy of the launcher: to execute this program once more would take longer than all else at the start.

use std::ffi::CString;
use std::fs;
use std::io::{PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use outpage_engine::session::{Keeper, Session, SessionError};
use outpage_sys::{fd, launch, libc};

use crate::error::{CliError, code};

mod stops;

/// How often /proc is searched for processes that have not joined, once the launcher is gone.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

/// A look takes 8 KiB of it in a release build (/proc/PID/smaps); a choice, with room for one that is built for tests.
const STOPS_STACK_BYTES: usize = 128 << 10;

/// Room for an environment; longer ones are read in pieces.
const ENVIRONMENT_BYTES: usize = 64 << 10;

/// Starts the keeper of `session`, whose memfd and swap file have these numbers in this process, and there
/// too. It keeps `lifeline` open as long as it lives.
///
/// # Errors
/// [`code::OS`]; [`code::UNAVAILABLE`] where /proc is not this pid namespace's.
pub fn start(
    session: &Session,
    file: i32,
    swap: i32,
    lifeline: Option<i32>,
) -> Result<Keeper, CliError> {
    const START: &str = "start the session's keeper";
    let (mut ready, tells) = std::io::pipe().map_err(|e| CliError::os(START, e))?;
    let pid =
        launch::fork(|| keep(file, swap, lifeline, tells)).map_err(|e| CliError::os(START, e))?;
    let Some(keeper) = Keeper::of(pid) else {
        // It would end by itself as well, but not before this process.
        let _ = launch::send(pid, libc::SIGKILL);
        return Err(CliError::new(
            code::UNAVAILABLE,
            "/proc does not show the processes of this pid namespace: mount it there (mount -t proc proc /proc)",
        ));
    };
    session.keep(keeper);
    // A program may give up its own capabilities at once.
    let _ = ready.read_to_end(&mut Vec::new());
    Ok(keeper)
}

/// The life of the keeper; returns its exit code.
///
/// It holds the key of the swap file in RAM meanwhile, with a lock of its own, for a copy inherits none, and
/// wipes it then. `tells` is closed once everybody may find the session here.
fn keep(file: i32, swap: i32, lifeline: Option<i32>, tells: PipeWriter) -> u8 {
    // Among the others is what the launcher's lock hangs on, and its standard streams.
    let kept = [file, swap, tells.as_raw_fd()];
    let kept: Vec<i32> = kept.into_iter().chain(lifeline).collect();
    let alone = fd::close_all_except(&kept);
    // Later descriptors must not become standard streams. They take the lowest numbers.
    let streams: Vec<_> = (0..3)
        .filter_map(|_| fd::open(c"/dev/null", libc::O_RDWR).ok())
        .collect();
    // The launcher may lead its group, but not this copy, so this cannot fail.
    let _ = launch::new_session();
    let _ = std::env::set_current_dir("/");
    let ended = alone
        .map_err(|e| CliError::os("close the launcher's descriptors", e))
        .and_then(|()| wait_beside(file, tells));
    drop(streams);
    ended.map_or_else(|error| error.code, |()| 0)
}

/// Waits for the end on a thread, and looks after stops on another, while this one, whose rights are the process's in /proc, gives up its capabilities.
///
/// Who has given up its own, as a browser's processes do, may open descriptors of a process that has none, where the user is
/// the same (`PTRACE_MODE_READ_FSCREDS`, ptrace(2)). The threads keep them: they look at processes that may have them.
fn wait_beside(file: i32, tells: PipeWriter) -> Result<(), CliError> {
    // Without it a program can mostly be stopped all the same.
    let attends = std::thread::Builder::new().stack_size(STOPS_STACK_BYTES);
    let _ = attends.spawn(move || Session::from_fd(file).map(|session| stops::attend(&session)));
    let Ok(thread) = std::thread::Builder::new().spawn(move || wait_for_end(file)) else {
        drop(tells);
        return wait_for_end(file);
    };
    // Without, those processes run without a limit.
    let _ = launch::drop_capabilities();
    drop(tells);
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn wait_for_end(file: i32) -> Result<(), CliError> {
    let session = Session::from_fd(file)?;
    let key = session.hold_key()?;
    // A launcher that is gone already has processes to keep the session for all the same.
    session.wait_launcher_gone()?;
    loop {
        // A session that is damaged says nothing about its members: they end by themselves.
        match session.wait_members_gone() {
            Ok(()) | Err(SessionError::Damaged(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if !in_use() {
            if let Some(key) = key {
                key.wipe();
            }
            return Ok(());
        }
        std::thread::sleep(SEARCH_INTERVAL);
    }
}

/// Whether any process has this keeper in its environment: one too small to have joined, or one
/// that its parent has just started.
fn in_use() -> bool {
    let needle = format!("OUTPAGE_SESSION=/proc/{}/fd/", std::process::id());
    let mut room = vec![0; ENVIRONMENT_BYTES];
    let mut uses = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let number = name.as_bytes().iter().all(u8::is_ascii_digit);
        // Zombies have an empty environment; other users' processes cannot be read and are not ours.
        number
            && CString::new(entry.path().join("environ").into_os_string().as_bytes())
                .is_ok_and(|path| has_variable(&path, needle.as_bytes(), &mut room))
    };
    fs::read_dir("/proc").is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(&mut uses)))
}

/// Whether the environment in the file at `path` has an entry that starts with `start`, which is much
/// shorter than `room`.
fn has_variable(path: &CString, start: &[u8], room: &mut [u8]) -> bool {
    let Ok(file) = fd::open(path, libc::O_RDONLY) else {
        return false;
    };
    // What an entry that is cut off by the end of a piece begins with is moved to the next one's start.
    let mut kept = 0;
    while let Ok(got @ 1..) = fd::read(file.number(), &mut room[kept..]) {
        let piece = &room[..kept + got];
        if piece
            .split(|&byte| byte == 0)
            .any(|entry| entry.starts_with(start))
        {
            return true;
        }
        let entry = piece
            .iter()
            .rposition(|&byte| byte == 0)
            .map_or(0, |at| at + 1);
        let begun = entry..piece.len().min(entry + start.len());
        kept = begun.len();
        room.copy_within(begun, 0);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_at_the_start_of_an_entry_only() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("environ");
        let block = b"A=1\0OUTPAGE_SESSION=/proc/7/fd/3\0B=OUTPAGE_SESSION=/proc/8/fd/3\0";
        fs::write(&path, block).expect("write");
        let path = CString::new(path.as_os_str().as_bytes()).expect("path");
        // In one piece, and in many.
        for len in [4096, 64, 41, 40] {
            let mut room = vec![0; len];
            let mut has = |start: &[u8]| has_variable(&path, start, &mut room);
            assert!(has(b"OUTPAGE_SESSION=/proc/7/fd/"), "{len}");
            assert!(!has(b"OUTPAGE_SESSION=/proc/8/fd/"), "{len}");
            assert!(has(b"A=") && !has(b"=1"), "{len}");
        }
    }
}
