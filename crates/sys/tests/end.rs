//! The end that the pager makes of a process: an end, whatever the process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use outpage_sys::process;

mod common;
use common::skipped;

/// Not a test: the process that the test starts.
#[test]
#[ignore = "ends the process"]
fn ends() {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    process::kill()
}

/// How this program ends with [`ends`] alone, started by `words`.
fn end_under(words: &[&str]) -> ExitStatus {
    let own = std::env::current_exe().expect("own file");
    // A process that does not end is ended, so that none is left to spin.
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).args(words).arg(own);
    command.args(["--exact", "ends", "--ignored", "--quiet"]);
    command.output().expect("timeout, of coreutils").status
}

#[test]
fn a_process_is_killed() {
    // timeout(1) ends by the signal that ended the process.
    assert_eq!(end_under(&[]).signal(), Some(libc::SIGKILL));
}

/// The kernel shields process 1 of a pid namespace, such as a container's, from its own SIGKILL.
#[test]
fn process_1_of_a_pid_namespace_exits() {
    let unshare = ["unshare", "-rpf", "--kill-child"];
    let may = Command::new(unshare[0])
        .args(&unshare[1..])
        .arg("true")
        .status();
    if !may.is_ok_and(|status| status.success()) {
        return skipped("no pid namespace can be made here");
    }
    assert_eq!(end_under(&unshare).code(), Some(137));
}
