//! Waiting for the program, and passing on to it what is meant for it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};

use outpage_sys::launch::{self, Signals};
use outpage_sys::libc;

use crate::error::CliError;

/// Signals that another process sends to the launcher and means the program.
const FORWARDED: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
];

/// Takes over the launcher's signals, to be called before the program is started.
///
/// # Errors
/// [`crate::error::code::OS`].
pub fn take_signals() -> Result<Signals, CliError> {
    let mut all = FORWARDED.to_vec();
    all.push(libc::SIGCHLD);
    Signals::take(&all).map_err(|e| CliError::os("take over signals", e))
}

/// Waits for the end of `child`; signals that arrive meanwhile go to it.
///
/// # Errors
/// [`crate::error::code::OS`].
pub fn wait(child: &mut Child, signals: &Signals) -> Result<ExitStatus, CliError> {
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|e| CliError::os("wait for the program", e))?
        {
            return Ok(status);
        }
        let arrived = signals
            .next()
            .map_err(|e| CliError::os("read signals", e))?;
        // What a terminal's key makes went to the whole process group: the program has it already.
        if arrived.signal != libc::SIGCHLD && !arrived.from_kernel {
            // The program may just have ended; the next round sees it.
            let _ = launch::send(child.id(), arrived.signal);
        }
    }
}

/// Ends as the program did: with its exit code, or by its signal.
pub fn end_like(status: ExitStatus, signals: Signals) -> ExitCode {
    drop(signals);
    if let Some(signal) = status.signal() {
        launch::die_of(signal);
        return ExitCode::from(128 + signal as u8);
    }
    ExitCode::from(status.code().unwrap_or(0) as u8)
}
