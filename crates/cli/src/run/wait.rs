//! Waiting for the program, and passing on to it what is meant for it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::Instant;

use outpage_core::units::Nanos;
use outpage_sys::launch::{self, Arrived, Signals};
use outpage_sys::libc;

use super::watch::tree;
use crate::error::CliError;

/// Signals that go on to the program: all that somebody sends to end, tell or stop it. Not those that the
/// launcher's own faults would cause (SIGSEGV ...), nor those that no program can take.
const FORWARDED: [i32; 12] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGIO,
    libc::SIGPWR,
];

/// Real-time signals; 32 and 33 are glibc's own (nptl(7)).
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// Takes over the launcher's signals, to be called before the program is started.
///
/// # Errors
/// [`crate::error::code::OS`].
pub fn take_signals() -> Result<Signals, CliError> {
    let all = FORWARDED.into_iter().chain(REAL_TIME);
    Signals::take(all.chain([libc::SIGCHLD])).map_err(|e| CliError::os("take over signals", e))
}

/// Waits for the end of `child`; signals that arrive meanwhile go to it.
///
/// # Errors
/// [`crate::error::code::OS`].
pub fn wait(child: &mut Child, signals: &Signals) -> Result<ExitStatus, CliError> {
    wait_looking(child, signals, || None)
}

/// The same; meanwhile `look` is called at once and then whenever the moment is there that it named.
///
/// # Errors
/// [`crate::error::code::OS`].
pub fn wait_looking(
    child: &mut Child,
    signals: &Signals,
    mut look: impl FnMut() -> Option<Instant>,
) -> Result<ExitStatus, CliError> {
    let mut due = look();
    let mut stopped = false;
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|e| CliError::os("wait for the program", e))?
        {
            return Ok(status);
        }
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            due = look();
            continue;
        }
        let arrived = signals
            .next(left.map(|left| Nanos(left.as_nanos() as u64)))
            .map_err(|e| CliError::os("read signals", e))?;
        match arrived {
            Some(Arrived { signal, .. }) if signal == libc::SIGCHLD => {
                stopped |= stop_along(child.id(), signals)?;
            }
            Some(arrived) => pass_on(child.id(), arrived, &mut stopped),
            None => {}
        }
    }
}

/// Signals that stop a job: what Ctrl-Z sends, and what a job in the background gets from the terminal.
const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Stops as `child` was stopped by job control, so that the shell sees the job stop; returns, once the
/// job goes on, whether it was. SIGSTOP is none: who stops the program by its number continues
/// it so too. But a shell that waits for a job in the foreground is to see it stop, as when the program, a shell itself, says `suspend`.
fn stop_along(child: u32, signals: &Signals) -> Result<bool, CliError> {
    let by = launch::stopped_by(child).filter(|signal| {
        STOPS.contains(signal) || *signal == libc::SIGSTOP && launch::is_foreground_job(child)
    });
    if let Some(signal) = by {
        let stop = signals.stop_by(signal);
        stop.map_err(|e| CliError::os("stop as the program did", e))?;
    }
    Ok(by.is_some())
}

/// Sends `child` what arrived, unless it has it already. `stopped`: the launcher was stopped along with it.
fn pass_on(child: u32, arrived: Arrived, stopped: &mut bool) {
    // What a terminal makes goes to a whole process group. An alarm goes to the launcher alone: whoever
    // executed `outpage` had set it for the program.
    let by_terminal = arrived.from_kernel && arrived.signal != libc::SIGALRM;
    // A shell continues the whole group.
    let continued = arrived.signal == libc::SIGCONT && std::mem::take(stopped);
    // And what a process of the program's sends to its group: `kill(0, ...)`, or `kill 0` in a script.
    let by_itself = arrived.sender != 0
        && launch::in_own_group(arrived.sender)
        && tree::descends(arrived.sender, std::process::id());
    let has_it = (by_terminal || by_itself) && launch::in_own_group(child);
    if has_it || continued && !launch::is_stopped(child) {
        return;
    }
    // The program may just have ended; the next round of waiting sees it.
    let _ = match arrived.value {
        Some(value) => launch::queue(child, arrived.signal, value),
        None => launch::send(child, arrived.signal),
    };
}

/// Ends as the program did: with its exit code, or by its signal. The launcher's signals are given back before.
pub fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        launch::die_of(signal);
        return ExitCode::from(128 + signal as u8);
    }
    ExitCode::from(status.code().unwrap_or(0) as u8)
}
