//! `outpage keeper`: a process that keeps a session's descriptors open after the launcher is gone.
//!
//! Programs find their session as `/proc/KEEPER/fd/N`. Daemons outlive the launcher, so the
//! descriptors must too: this process ends when the launcher and every process of the tree have.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use outpage_engine::session::Session;
use outpage_sys::launch;

use crate::error::CliError;

/// Options of `outpage keeper`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Descriptor of the session
    #[arg(long)]
    session: i32,
}

/// How often /proc is searched for processes that have not joined, once the launcher is gone.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

/// Says "ready" on stdout, then waits for the end of the session.
///
/// Holds the key of the swap file in RAM meanwhile and wipes it then.
///
/// # Errors
/// When the descriptor is no session, or its key cannot be held.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let session = Session::from_fd(args.session)?;
    let key = session.hold_key()?;
    // The launcher made this process for the purpose, so it leads no group and this cannot fail.
    let _ = launch::new_session();
    let _ = std::env::set_current_dir("/");
    // A launcher that is gone already has processes to keep the session for all the same.
    let _ = std::io::stdout().write_all(b"ready\n");
    session.wait_launcher_gone()?;
    loop {
        session.wait_members_gone()?;
        if !in_use() {
            if let Some(key) = key {
                key.wipe();
            }
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(SEARCH_INTERVAL);
    }
}

/// Whether any process has this keeper in its environment: one too small to have joined, or one
/// that its parent has just started.
fn in_use() -> bool {
    let needle = format!("OUTPAGE_SESSION=/proc/{}/fd/", std::process::id());
    let uses = |entry: fs::DirEntry| {
        let number = entry.file_name().as_bytes().iter().all(u8::is_ascii_digit);
        // Zombies have an empty environment; other users' processes cannot be read and are not ours.
        number
            && fs::read(entry.path().join("environ"))
                .is_ok_and(|env| has_variable(&env, needle.as_bytes()))
    };
    fs::read_dir("/proc").is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(uses)))
}

/// Whether an environment block has an entry that starts with `start`.
fn has_variable(block: &[u8], start: &[u8]) -> bool {
    block
        .split(|&byte| byte == 0)
        .any(|entry| entry.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_at_the_start_of_an_entry_only() {
        let block = b"A=1\0OUTPAGE_SESSION=/proc/7/fd/3\0B=OUTPAGE_SESSION=/proc/8/fd/3\0";
        assert!(has_variable(block, b"OUTPAGE_SESSION=/proc/7/fd/"));
        assert!(!has_variable(block, b"OUTPAGE_SESSION=/proc/8/fd/"));
        assert!(!has_variable(b"", b"OUTPAGE_SESSION=/proc/8/fd/"));
    }
}
