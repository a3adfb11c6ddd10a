//! `outpage bench programs`: what it refuses, and a small comparison where this machine can make one. `outpage bench faults`: that the pager's
//! choices leave there what it measures.

use std::process::Output;

mod common;
use common::{can_page, outpage};
use serde_json::Value;

fn programs(arguments: &[&str]) -> Output {
    let all = [&["bench", "programs"], arguments].concat();
    outpage(&all).output().expect("outpage")
}

#[test]
fn what_contradicts_is_refused_in_one_line() {
    for (arguments, parts) in [
        (&["--programs", "perl"][..], &["'perl'", "perl-hash"][..]),
        (&["--at", "0"], &["'0'", "--at"]),
        (&["--at", "101"], &["'101'", "1..=100"]),
        (&["--scale", "0"], &["'0'", "0.01 to 100"]),
        (&["--scale", "huge"], &["'huge'"]),
        (&["--rounds", "0"], &["'0'", "--rounds"]),
        (&["--systems", "windows"], &["'windows'", "zram"]),
    ] {
        let output = programs(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let arguments = ["--swap", "/nonexistent", "--systems", "unlimited"];
    let output = programs(&arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(
        text.contains("/nonexistent") && text.contains("--swap"),
        "{text}"
    );
}

/// A round that has too few touches of the kind that it measures fails, whatever they took.
#[test]
fn faults_are_of_the_kind_that_is_measured() {
    if !can_page() {
        return;
    }
    let arguments = ["bench", "faults", "--memory", "24M", "--rounds", "1"];
    let output = outpage(&arguments).output().expect("outpage");
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(69) {
        eprintln!("SKIPPED: {text}");
        return;
    }
    assert!(output.status.success(), "{text}");
    let table = String::from_utf8_lossy(&output.stdout);
    let rescues = table.lines().filter(|line| line.starts_with("rescue"));
    assert_eq!(rescues.count(), 3, "{table}");
}

/// Whether memory cgroups, swap and zram can be had here; says aloud what cannot.
fn systems() -> Option<&'static str> {
    let root = std::fs::metadata("/proc/self").map(|me| std::os::unix::fs::MetadataExt::uid(&me));
    let cgroups = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/cgroup.controllers"];
    let writable = cgroups
        .iter()
        .any(|path| std::path::Path::new(path).exists());
    if root.ok() != Some(0) || !writable {
        eprintln!("SKIPPED: comparing with kernel swap needs root and memory cgroups");
        return None;
    }
    if !std::path::Path::new("/sys/class/zram-control/hot_add").exists() {
        eprintln!("SKIPPED in part: this kernel has no zram");
        return Some("unlimited,outpage,kernel");
    }
    Some("unlimited,outpage,kernel,zram")
}

#[test]
fn a_small_comparison_ends_with_the_same_output_everywhere_and_leaves_nothing() {
    if !can_page() {
        return;
    }
    let Some(systems) = systems() else {
        return;
    };
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let (json, svg) = (
        directory.path().join("r.json"),
        directory.path().join("r.svg"),
    );
    let output = programs(&[
        "--programs=python-dict",
        "--scale=0.3",
        "--at=90",
        "--rounds=1",
        "--keep-going",
        "--run-args=--readahead none",
        "--systems",
        systems,
        "--swap",
        directory.path().to_str().expect("a name"),
        "--json",
        json.to_str().expect("a name"),
        "--svg",
        svg.to_str().expect("a name"),
    ]);
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(69) {
        eprintln!("SKIPPED: {text}");
        return;
    }
    assert!(output.status.success(), "{text}");
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(&json).expect("JSON")).expect("JSON");
    let runs = result["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), systems.split(',').count(), "{text}");
    let checksum = &result["references"][0]["checksum"];
    for run in runs {
        if run["ending"]["how"] == "finished" {
            assert_eq!(&run["ending"]["report"]["checksum"], checksum, "{run}");
        }
    }
    let paged = runs
        .iter()
        .find(|run| run["system"] == "outpage --readahead none");
    let paged = paged.expect("Outpage's run");
    assert_eq!(paged["ending"]["how"], "finished", "{paged}");
    assert!(
        paged["outpage_stats"]["page_outs"].as_u64() > Some(0),
        "{paged}"
    );
    assert!(
        std::fs::read_to_string(&svg)
            .expect("picture")
            .contains("python-dict 90 %")
    );
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("geometric mean"), "{table}");
    drop(output);
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .expect("directory")
        .collect();
    assert_eq!(
        left.len(),
        2,
        "the result and the picture alone are left: {left:?}"
    );
    let swaps = std::fs::read_to_string("/proc/swaps").expect("swaps");
    assert!(
        !swaps.contains(directory.path().to_str().expect("a name")),
        "{swaps}"
    );
}
