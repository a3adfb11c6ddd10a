//! What programs do against their pager: every case of `tests/programs/hostile/cases.txt`, under each mechanism.

use std::path::Path;
use std::process::Command;

mod common;

use common::{OUTPAGE, can_page};

/// Every case comes as the list says: right, or ended with the line that is promised.
fn all_cases(mechanism: &str) {
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
    all_cases("move");
}

#[test]
fn protecting() {
    all_cases("write-protect");
}
