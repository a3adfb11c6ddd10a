//! What programs do against their pager, under each mechanism: the first case of each program of
//! `tests/programs/hostile/cases.txt`. All of them take ten minutes: `tests/programs/hostile.sh`.

use std::path::Path;
use std::process::Command;

mod common;

use common::{OUTPAGE, can_page};

/// Each case comes as the list says: right, or ended with the line that is promised.
fn first_cases(mechanism: &str) {
    if !can_page() {
        eprintln!("SKIPPED: programs cannot be paged here");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/hostile.sh");
    // 60 MiB are enough for each case's own pages, and little enough to be quick.
    let output = Command::new("bash")
        .arg(script)
        .args(["--outpage", OUTPAGE, "--mechanism", mechanism, "--quiet"])
        .args(["--first", "--memory", "24M", "--mib", "60"])
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
    first_cases("move");
}

#[test]
fn protecting() {
    first_cases("write-protect");
}
