//! What programs do against their pager, under each mechanism: the first case of each program of
//! `tests/programs/hostile/cases.txt`. All of them take ten minutes: `tests/programs/hostile.sh`.

use std::path::Path;
use std::process::Command;

mod common;

use common::{OUTPAGE, can_page};

/// Each case of `which` comes as the list says: right, or ended with the line that is promised.
fn cases(mechanism: &str, which: &[&str]) {
    if !can_page() {
        eprintln!("SKIPPED: programs cannot be paged here");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/hostile.sh");
    // 40 MiB are enough for each case's own pages, and little enough to be quick.
    let output = Command::new("bash")
        .arg(script)
        .args(["--outpage", OUTPAGE, "--mechanism", mechanism, "--quiet"])
        .args(["--memory", "16M", "--mib", "40"])
        .args(which)
        .output()
        .expect("bash");
    let told = String::from_utf8_lossy(&output.stdout);
    // What is skipped is said aloud.
    eprint!("{told}");
    assert!(
        output.status.success(),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn moving() {
    cases("move", &["--first"]);
}

#[test]
fn protecting() {
    cases("write-protect", &["--first"]);
}

/// Under write-protect the kernel refuses to throw such a page away, which is only known then. A parent that slept with nothing but locked pages gets
/// frames when it wakes.
#[test]
fn locked() {
    cases("move", &["locks/mlock-raw", "locks/asleep"]);
    cases("write-protect", &["locks/mlock-raw"]);
}

/// What a child is not to have stays free in its own children too; one that gets no pager, or is out of the session's reach, says so.
#[test]
fn of_children() {
    let which = [
        "dontfork/again",
        "seccomp/strict-fork",
        "confined/chroot-before",
        "confined/capabilities-before",
    ];
    cases("move", &which);
}
