use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use outpage_sys::fd::Fd;
use outpage_sys::shared::{self, Mapped};

use super::*;
use crate::layout::{Board, MAGIC, State, VERSION};
use crate::liveness;

fn session(limit_pages: u64) -> (Fd, Mapped<Board>) {
    let file = shared::create(FILE_NAME, size_of::<Board>() as u64).expect("memfd");
    let board: Mapped<Board> = shared::map(file.number()).expect("map");
    board.head.magic.store(MAGIC, Relaxed);
    board.head.version.store(VERSION, Relaxed);
    board.head.limit_pages.store(limit_pages, Relaxed);
    (file, board)
}

/// A process that waits until its standard input ends, with this in its environment.
fn waiting(variable: &str) -> Child {
    let mut command = Command::new("cat");
    command.env_clear().env("OUTPAGE_SESSION", variable);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().expect("cat")
}

fn limit(found: Result<Run, NotFound>) -> Result<u64, NotFound> {
    found.map(|run| run.look().expect("a look").limit_pages)
}

#[test]
fn a_run_is_found_by_who_has_it_open_by_name_and_by_membership() {
    let (file, board) = session(4711);
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.number());
    let limits = |runs: Runs| -> Vec<u64> {
        let seen = runs.seen.into_iter();
        seen.filter_map(|(_, run)| Some(run.ok()?.look().ok()?.limit_pages))
            .collect()
    };
    let all = limits(all().expect("/proc"));
    assert_eq!(all.iter().filter(|&&limit| limit == 4711).count(), 1);
    let named = waiting(&path);
    assert_eq!(limit(of(named.id())), Ok(4711));
    // Nothing leads from it to the session, but the session knows it.
    let joined = waiting("");
    assert_eq!(limit(of(joined.id())), Err(NotFound::NoRun));
    board.members[9].pid.store(joined.id(), Relaxed);
    let elsewhere = liveness::pid_namespace() + 1;
    board.members[9].pid_namespace.store(elsewhere, Relaxed);
    board.members[9].state.store(State::Live as u32, Relaxed);
    assert_eq!(limit(of(joined.id())), Err(NotFound::NoRun));
    let here = liveness::pid_namespace();
    board.members[9].pid_namespace.store(here, Relaxed);
    assert_eq!(limit(of(joined.id())), Ok(4711));
    for mut child in [named, joined] {
        drop(child.stdin.take());
        assert!(child.wait().expect("wait").success());
    }
}

#[test]
fn paths_that_lead_elsewhere_are_not_opened() {
    let other = shared::create(c"outpage-sessions", 4096).expect("memfd");
    let link = PathBuf::from(format!("/proc/self/fd/{}", other.number()));
    assert!(session_at(&link).is_none());
    for path in [
        "/dev/null",
        "/proc/1/fd/../../self/fd/0",
        "/proc/self/fd/0",
        "/proc/7/fd/",
        "",
    ] {
        assert!(!is_descriptor(Path::new(path)), "{path}");
    }
    assert!(is_descriptor(Path::new("/proc/7/fd/3")));
}

#[test]
fn processes_without_a_run_say_so() {
    let child = waiting("/proc/1/fd/0");
    assert_eq!(of(child.id()).err(), Some(NotFound::NoRun));
    let pid = child.id();
    let mut child = child;
    drop(child.stdin.take());
    assert!(child.wait().expect("wait").success());
    assert!(!liveness::exists(pid), "its number is free");
    assert_eq!(of(pid).err(), Some(NotFound::NoProcess));
}
