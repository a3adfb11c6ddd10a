//! A real guest, under QEMU's TCG: `guest/vm.py` builds and boots it. Every word that its workload wrote is verified in the guest.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::{OUTPAGE, can_page};
use serde_json::Value;

/// Exit code of `vm.py` where the machine lacks something.
const LACKING: i32 = 69;
/// A guest of 128 MiB, of which its kernel and first program leave 78: 88 MiB do not fit.
const SIZES: [&str; 6] = [
    "--ram",
    "128",
    "--guest-swap",
    "256",
    "--workload",
    "pass,88,2",
];

fn vm(words: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/vm.py");
    let directory: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let mut command = Command::new("python3");
    command.arg(script).args(words).arg("--dir").arg(directory);
    command.env("OUTPAGE", OUTPAGE).output().expect("python3")
}

/// Builds the guest, once; says aloud why not where the machine lacks something.
fn can_boot() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let built = vm(&["build"]);
        let said = String::from_utf8_lossy(&built.stderr);
        if built.status.code() == Some(LACKING) {
            eprintln!("SKIPPED: no guest: {said}");
            return false;
        }
        assert!(built.status.success(), "{said}");
        can_page()
    })
}

/// Boots it once. Its workload is through, its contents are verified, and its kernel has no complaint.
fn booted(words: &[&str]) -> Value {
    let done = vm(&[&["run"][..], &SIZES, words].concat());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&done.stdout)
    );
    let result: Value = serde_json::from_slice(&done.stdout).expect("one JSON object");
    assert_eq!(result["complaints"], Value::Array(Vec::new()), "{said}");
    result
}

fn count(result: &Value, of: &str, name: &str) -> u64 {
    let of = of.split('.').fold(result, |value, part| &value[part]);
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} of {result}"))
}

#[test]
fn a_notified_guest_pages_few_pages_twice() {
    if !can_boot() {
        return;
    }
    // By what each counts of itself: the plain guest writes as many pages to its swap space that the host has out.
    let plain = booted(&["--memory", "64", "--notify", "0"]);
    let notified = booted(&["--memory", "64", "--after", "unload"]);
    let twice = |result| count(result, "guest.after", "double_paged");
    assert!(twice(&plain) > 1000, "nothing to gain: {plain}");
    // A third, where 2 to 5 % are usual on a machine that has nothing else to do: a drain that is late costs some.
    assert!(twice(&notified) * 3 < twice(&plain), "{notified}");
    assert!(
        count(&notified, "host", "notified_out") > 1000
            && count(&notified, "host", "notified_in") > 1000
    );
    assert!(
        count(&notified, "guest.after", "hidden_ever") > 1000,
        "{notified}"
    );
    // Unloaded: its file in /proc is gone, and no page is mlocked by it. The kernel counts on each CPU by itself, in steps.
    assert!(
        notified["guest"]["unloaded"]["hidden"].is_null(),
        "it was not unloaded"
    );
    assert!(
        count(&notified, "guest.unloaded", "nr_mlock") < 128,
        "{notified}"
    );
}

#[test]
fn a_guest_that_hid_everything_gets_its_memory_back_before_a_program_is_killed() {
    if !can_boot() {
        return;
    }
    let result = booted(&[
        "--memory", "0", "--meddle", "all-out", "--cap", "100", "--rest", "1000",
    ]);
    assert!(count(&result, "guest.after", "rescued") > 1000, "{result}");
    assert_eq!(count(&result, "guest.after", "oom_kill"), 0, "{result}");
}

#[test]
fn whoever_scribbles_over_the_area_stops_neither_side() {
    if !can_boot() {
        return;
    }
    let result = booted(&[
        "--memory", "80", "--meddle", "scribble", "--after", "unload",
    ]);
    assert!(
        result["meddled"].as_u64() > Some(0) && count(&result, "host", "page_outs") > 1000,
        "{result}"
    );
    let result = booted(&["--memory", "0", "--meddle", "garbage", "--after", "unload"]);
    assert!(count(&result, "guest.after", "hidden_ever") > 0, "{result}");
}
