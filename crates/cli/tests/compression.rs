//! What is known of how far pages compress, and what is made of it in the simulator.

use std::fs;
use std::path::{Path, PathBuf};

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PageNo};
use outpage_sim::sizes::Sizes;
use outpage_sim::trace::{Header, Recorded, Run, Writer};
use serde_json::{Value, json};

mod common;
use common::asked::{self, refused, run, words};
use common::can_page;

const PAGES: u64 = 8192;

/// Standard output.
fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A column of the lines of `csv`.
fn column<'a>(csv: &'a str, name: &str) -> Vec<&'a str> {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().expect("a head");
    let at = head
        .iter()
        .position(|head| *head == name)
        .expect("a column");
    lines.map(|line| line[at]).collect()
}

/// Five passes over [`PAGES`] pages, up and down; what each comes to is said by `bytes`.
fn trace(dir: &Path, name: &str, bytes: impl Fn(u64) -> Option<u16>) -> PathBuf {
    let path = dir.join(name);
    let header = Header {
        page_bytes: 4096,
        recorded: Recorded::Exact,
        program: name.to_owned(),
    };
    let page = |index| PageNo::new(ObjectId(0), (1 << 20) + index);
    let mut writer = Writer::new(Vec::new(), &header).expect("a header");
    for pass in 0..5 {
        let (first, stride) = if pass % 2 == 0 {
            (0, 1)
        } else {
            (PAGES - 1, -1)
        };
        let run = Run {
            start: page(first),
            stride,
            count: PAGES as u32,
            access: Access::Write,
            gap: Nanos(500),
        };
        writer.run(run).expect("a run");
    }
    let sizes = (0..PAGES).filter_map(|index| Some((page(index), bytes(index)?)));
    let whole = writer.finish_with(&Sizes::new(sizes)).expect("memory");
    fs::write(&path, whole).expect("a file");
    path
}

#[test]
fn recorded_sizes_are_what_pages_compress_to() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    // A quarter of the pages do not compress, and the last ones are not known.
    let bytes = |index| match index {
        8000.. => None,
        _ if index % 4 == 0 => Some(4096),
        _ => Some(1000),
    };
    let with = trace(dir.path(), "with.trace", bytes);
    let program = format!("trace:{}", words(&with));
    let options = ["--tier=none,lz4", "--no-bounds", "--threads=1"];
    let text = said(&["sim", &program, "--tier=lz4", "--no-bounds"]);
    for part in [
        "ratio trace",
        "compressed sizes of 8,000 of its 8,192 pages",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let csv = said(&[&["sim", &program], &options[..], &["--csv=-"]].concat());
    assert_eq!(column(&csv, "ratio"), ["-", "trace"]);
    let number = |name| column(&csv, name)[1].parse::<u64>().expect("a number");
    let (unfit, kept) = (number("unfit"), number("compressed"));
    assert!(
        unfit > 1000 && kept > 3000 && unfit < kept,
        "{unfit} unfit, {kept} kept"
    );
    let crossed = "--ratio=trace,heap,2";
    let csv = said(&[&["replay", words(&with), crossed, "--csv=-"], &options[..]].concat());
    assert_eq!(column(&csv, "ratio"), ["-", "trace", "heap", "2"]);
}

#[test]
fn a_trace_without_sizes_has_those_of_heaps() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let without = trace(dir.path(), "without.trace", |_| None);
    let options = ["--tier=lz4", "--no-bounds", "--threads=1"];
    let csv = said(&[&["replay", words(&without), "--csv=-"], &options[..]].concat());
    assert_eq!(column(&csv, "ratio"), ["heap"]);
    let asked = ["replay", words(&without), "--tier=lz4", "--ratio=trace"];
    refused(&asked, 64, &["--ratio trace", "no trace here has"]);
    refused(
        &["sim", "sor:n=512", "--tier=lz4", "--ratio=trace"],
        64,
        &["--ratio trace"],
    );
}

#[test]
fn damaged_sizes_are_refused_with_the_byte() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let path = trace(dir.path(), "damaged.trace", |index| {
        Some(index as u16 % 4000)
    });
    let whole = fs::read(&path).expect("a trace");
    let mut changed = whole.clone();
    let at = whole.len() - 500;
    changed[at] ^= 1;
    for (bytes, why) in [
        (&changed[..], "the trace is corrupt"),
        (&whole[..at], "in the middle"),
    ] {
        fs::write(&path, bytes).expect("a file");
        for command in ["replay", "sim"] {
            let program = match command {
                "sim" => format!("trace:{}", words(&path)),
                _ => words(&path).to_owned(),
            };
            refused(&[command, &program], 65, &["at byte", why]);
        }
    }
}

#[test]
fn a_replay_crosses_tiers_with_policies() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let path = trace(dir.path(), "crossed.trace", |_| Some(900));
    let crossed = ["--tier=none,lz4,auto", "--reclaim=second-chance,early"];
    let rest = ["--no-bounds", "--no-rivals", "--threads=1"];
    let arguments = [&["replay", words(&path)], &crossed[..], &rest[..]].concat();
    let text = said(&arguments);
    for head in ["reclaim", "tier", "pool hits", "compressed"] {
        assert!(text.contains(head), "{head}: {text}");
    }
    let csv = said(&[&arguments[..], &["--csv=-"]].concat());
    let two = ["second-chance", "early"].map(|policy| vec![policy; 3]);
    assert_eq!(column(&csv, "reclaim"), two.concat());
    assert_eq!(column(&csv, "tier"), ["none", "lz4", "auto"].repeat(2));
    let hits = column(&csv, "pool_hits");
    for (tier, hits) in column(&csv, "tier").into_iter().zip(hits) {
        // `auto` may find that a pool does not pay.
        assert!(tier == "auto" || (hits != "0") == (tier == "lz4"), "{csv}");
    }
}

/// A policy that needs a store which there is not.
#[test]
fn swap_compression_is_simulated_and_nothing_else() {
    refused(
        &["run", "--memory=64M", "--tier=cervera", "--", "true"],
        64,
        &["cervera is for the simulator alone", "there are: auto,"],
    );
    assert!(!said(&["run", "--help"]).contains("cervera"));
    let program = ["sim", "moc:pages=8192", "--no-bounds", "--ratio=3"];
    let csv = said(
        &[
            &program[..],
            &["--tier=none,cervera,cervera:pool=10", "--csv=-"],
        ]
        .concat(),
    );
    assert_eq!(column(&csv, "tier"), ["none", "cervera", "cervera:pool=10"]);
    let demoted = column(&csv, "demoted");
    assert!(demoted[1] != "0" && demoted[2] != "0", "{csv}");
    refused(
        &[&program[..], &["--tier=cervera:pool=0"]].concat(),
        64,
        &["pool", "1 to 90"],
    );
}

/// What was measured of compression is taken with the disk, unless the settings file says what costs are.
#[test]
fn costs_of_compression_are_measured_with_the_disk() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let [file, old, config] =
        ["disk.json", "old.json", "settings.toml"].map(|name| dir.path().join(name));
    let small = ["--swap", words(dir.path()), "--size=16M", "--requests=10"];
    let text = said(&[&["disk", "measure", "--json", words(&file)], &small[..]].concat());
    for part in ["LZ4 takes", "Zstandard", "refused in"] {
        assert!(text.contains(part), "{text}");
    }
    let mut value: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    let names = [
        "compress_ns",
        "unfit_ns",
        "decompress_ns",
        "zstd_compress_ns",
        "zstd_decompress_ns",
    ];
    let measured = names.map(|name| value["codecs"][name].as_u64().expect(name));
    assert!(measured.iter().all(|&ns| ns > 0), "{value}");
    let taken = |options: &[&str]| {
        let program = ["sim", "sor:n=512,sweeps=1", "--no-bounds", "--json=-"];
        let value = asked::json(&[&program[..], options].concat());
        let costs = &value["runs"][0]["setup"]["costs"];
        names.map(|name| costs[name].as_u64().expect(name))
    };
    assert_eq!(taken(&["--disk", words(&file)]), measured);
    let own = taken(&["--disk=nvme"]);
    value.as_object_mut().expect("an object").remove("codecs");
    fs::write(&old, value.to_string()).expect("a file");
    assert_eq!(taken(&["--disk", words(&old)]), own);
    fs::write(&config, "[machine.costs]\nunfit_ns = 7\n").expect("a file");
    let given = taken(&["--disk", words(&file), "--config", words(&config)]);
    assert_eq!((given[0], given[1]), (own[0], 7));
    value["codecs"] = json!({"compress_ns": -1});
    fs::write(&old, value.to_string()).expect("a file");
    refused(
        &["sim", "sor:n=512", "--disk", words(&old)],
        65,
        &["is no disk", "codecs"],
    );
}

/// A live program whose pages are made like those of the heaps that `--ratio heap` has.
#[test]
fn a_recording_has_the_sizes_of_pages() {
    if !can_page() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let path = dir.path().join("live.trace");
    let program = ["workload", "random", "--mib", "48", "--data", "heap"];
    let to = ["trace", "--once", "-o", words(&path), "--", common::OUTPAGE];
    let output = run(&[&to[..], &program].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("compressed sizes of"),
        "{text}"
    );
    let options = [
        "--tier=lz4",
        "--ratio=trace,heap",
        "--csv=-",
        "--no-bounds",
        "--no-rivals",
    ];
    let csv = said(&[&["replay", words(&path)], &options[..]].concat());
    let compressed: Vec<f64> = ["compressed", "unfit", "pool_bytes"]
        .iter()
        .flat_map(|name| column(&csv, name))
        .map(|cell| cell.parse().expect("a number"))
        .collect();
    let [recorded, heap, ..] = compressed[..] else {
        panic!("{csv}")
    };
    // All of its pages leave, and what LZ4 makes of them is what was measured of such heaps.
    assert!((recorded / heap - 1.0).abs() < 0.1, "{csv}");
}
