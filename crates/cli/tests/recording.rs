//! `outpage trace`: what is recorded of live programs, charted, replayed and simulated.

use std::fs;
use std::path::{Path, PathBuf};

use outpage_core::contract::{Access, Action};
use outpage_core::record::{Logged, Reader};
use serde_json::Value;

mod common;
use common::asked::{json, refused, run, words};
use common::can_page;

/// What is said of a log whose events lead to the same actions again.
fn replayed(log: &Path) -> String {
    let same = run(&["replay", "--identical", words(log)]);
    assert!(same.status.success(), "{same:?}");
    String::from_utf8_lossy(&same.stdout).into_owned()
}

/// What goes to the pool, and how large that is, follows from measured waits and distances.
#[test]
fn the_log_of_a_run_with_a_pool_replays_identically() {
    if !can_page() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let log = dir.path().join("log");
    let to_log = ["trace", "--log", "--memory", "24M", "-o", words(&log), "--"];
    let program = [common::OUTPAGE, "workload", "random", "--mib", "48"];
    let output = run(&[&to_log[..], &program].concat());
    assert!(output.status.success(), "{output:?}");
    let said = replayed(&log);
    assert!(said.contains("tier auto"), "{said}");
    let bytes = fs::read(&log).expect("log");
    let mut reader = Reader::new(&bytes).expect("a log");
    let mut pooled = [0_u32; 2];
    while let Some(entry) = reader.next_entry().expect("whole") {
        match entry {
            Logged::Action(Action::Compress { .. }) => pooled[0] += 1,
            Logged::Action(Action::Decompress { .. }) => pooled[1] += 1,
            _ => {}
        }
    }
    assert!(pooled.iter().all(|&actions| actions > 100), "{pooled:?}");
}

#[test]
fn a_live_log_replays_identically_and_is_charted() {
    if !can_page() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let [log, charts] = ["log", "charts"].map(|name| dir.path().join(name));
    let own = common::OUTPAGE;
    let arguments = [
        "trace",
        "--log",
        "--memory",
        "16M",
        "--reclaim",
        "two-queue:in=20",
        "-o",
        words(&log),
        "--events",
        words(&charts),
        "--",
    ];
    let output = run(&[
        &arguments[..],
        // More pages than there is room for at first, in what is kept of them.
        &[own, "workload", "seq", "--mib", "96", "--passes", "2"],
    ]
    .concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = replayed(&log);
    let whole = said.contains("identical") && !said.contains("cut short");
    assert!(whole, "{said}");
    let perfetto = fs::read(charts.join("trace.json")).expect("trace");
    let events: Value = serde_json::from_slice(&perfetto).expect("JSON");
    assert!(
        events["traceEvents"]
            .as_array()
            .is_some_and(|e| e.len() > 1000)
    );
    assert!(
        fs::read_to_string(charts.join("report.html"))
            .expect("report")
            .contains("<svg")
    );
    // Every page read is of some object.
    let sum = |file: &str, column: &str| {
        let text = fs::read_to_string(charts.join(file)).expect(file);
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().expect("a head");
        let at = head.iter().position(|name| *name == column).expect(column);
        lines
            .map(|line| line[at].parse::<u64>().expect("a number"))
            .sum::<u64>()
    };
    for column in [
        "page_ins",
        "read_ahead",
        "read_ahead_hits",
        "read_ahead_waste",
    ] {
        assert_eq!(
            sum("objects.csv", column),
            sum("events.csv", column),
            "{column}"
        );
    }
    assert!(sum("objects.csv", "page_ins") > 0);
    let bytes = fs::read(&log).expect("log");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&log, damaged).expect("file");
    refused(
        &["replay", "--identical", words(&log)],
        65,
        &["damaged at byte"],
    );
    // Without its end mark it is that of a process that a signal ended.
    fs::write(&log, &bytes[..bytes.len() - 5]).expect("file");
    let said = replayed(&log);
    assert!(said.contains("cut short"), "{said}");
    fs::write(&log, &bytes[..bytes.len() - 3]).expect("file");
    refused(
        &["replay", "--identical", words(&log)],
        65,
        &["breaks off at byte"],
    );
}

/// A program that pages and then executes another, which pages too.
const EXECUTES: &str = "
import os, sys
filled = bytearray(40 << 20)
for at in range(0, len(filled), 4096):
    filled[at] = 1
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn each_program_that_a_process_executes_has_its_log() {
    if !can_page() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let log = dir.path().join("log");
    let to_log = ["trace", "--log", "--memory", "16M", "-o", words(&log), "--"];
    let python = ["python3", "-c", EXECUTES, common::OUTPAGE];
    let program = ["workload", "seq", "--mib", "32"];
    let output = run(&[&to_log[..], &python, &program].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(127) {
        return eprintln!("SKIPPED: {text}");
    }
    assert!(output.status.success(), "{text}");
    let logs: Vec<_> = fs::read_dir(dir.path()).expect("directory").collect();
    assert_eq!(logs.len(), 2, "{logs:?}, {text}");
    for log in logs {
        replayed(&log.expect("entry").path());
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_with_a_message_and_the_program_goes_on() {
    if !can_page() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let script = "mount -t tmpfs -o size=128k none \"$1\" || exit 77; shift; exec \"$@\"";
    let log = dir.path().join("log");
    let to_log = ["trace", "--log", "--memory", "16M", "-o", words(&log), "--"];
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(common::OUTPAGE)
        .args(to_log)
        .args([common::OUTPAGE, "workload", "seq", "--mib", "32"])
        .output()
        .expect("unshare");
    let text = String::from_utf8_lossy(&output.stderr);
    if [Some(77), Some(1)].contains(&output.status.code()) {
        return eprintln!("SKIPPED: needs root and a mount namespace: {text}");
    }
    assert_eq!(output.status.code(), Some(74), "{text}");
    assert!(
        text.contains("cannot write the trace: no space left"),
        "{text}"
    );
    let result: Value = serde_json::from_slice(&output.stdout).expect("the program's result");
    assert!(result["verified"].as_u64() > Some(0), "{result}");
}

/// SOR under half of its memory, live, by either mechanism; and its trace, recorded with less,
/// simulated at the limit.
#[test]
fn a_live_run_and_its_simulation_move_as_much() {
    if !can_page() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let [stats, trace] = ["stats", "trace"].map(|name| dir.path().join(name));
    let own = common::OUTPAGE;
    let sor = [own, "workload", "sor", "--mib", "64", "--sweeps", "3"];
    let runs = |arguments: &[&str]| {
        let output = run(&[arguments, &["--"], &sor].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    };
    runs(&["trace", "--once", "-o", words(&trace)]);
    let value = json(&[
        "replay",
        words(&trace),
        "--memory",
        "32M",
        "--disk",
        "nvme",
        // Early eviction learns from what depends on times.
        "--reclaim",
        "second-chance",
        "--no-rivals",
        "--json",
        "-",
    ]);
    let report = &value["runs"][0]["report"];
    for mechanism in ["auto", "write-protect"] {
        // A governed policy reads by what touches it sees and when; that differs.
        let policy = [
            "--readahead",
            "stream:govern=off",
            "--reclaim",
            "second-chance",
        ];
        let given = ["--mechanism", mechanism, "--stats", words(&stats)];
        runs(&[&["run", "--memory", "32M"], &policy[..], &given[..]].concat());
        let stats: Value = serde_json::from_slice(&fs::read(&stats).expect("stats")).expect("JSON");
        for figure in ["page_ins", "page_outs"] {
            let [live, simulated] =
                [&stats[figure], &report[figure]].map(|v| v.as_f64().expect("a number"));
            let off = 100.0 * (simulated / live - 1.0);
            assert!(
                off.abs() <= 5.0,
                "{mechanism}, {figure}: {live} live, {simulated} simulated, {off:+.1} %"
            );
        }
    }
}

/// Two processes page at once: a trace of each, replayed one by one and at once in one memory.
#[test]
fn every_process_gives_a_trace_and_they_run_at_once() {
    if !can_page() {
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let trace = dir.path().join("trace");
    let own = common::OUTPAGE;
    let both = format!(
        "{own} workload seq --mib 24 --passes 2 & {own} workload seq --mib 16 --passes 2; wait"
    );
    let recorded = run(&[
        "trace",
        "--once",
        "-o",
        words(&trace),
        "--",
        "sh",
        "-c",
        &both,
    ]);
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success(), "{said}");
    let files = fs::read_dir(dir.path()).expect("directory");
    let mut traces: Vec<PathBuf> = files.map(|file| file.expect("file").path()).collect();
    traces.sort();
    // The most references under the name that was asked for, the other with its process number.
    assert_eq!(traces.len(), 2, "{traces:?}: {said}");
    assert_eq!(traces[0], trace);
    let paths = [words(&traces[0]), words(&traces[1])];

    let alone = json(&[
        "replay",
        paths[0],
        paths[1],
        "--memory",
        "8M",
        "--disk",
        "nvme",
        "--no-rivals",
        "--no-bounds",
        "--json",
        "-",
    ]);
    let alone = alone["traces"].as_array().expect("one for each trace");
    let touched = |run: &Value| {
        run["runs"][0]["report"]["programs"][0]["footprint_pages"]
            .as_u64()
            .expect("pages")
    };
    assert_eq!(alone.len(), 2);
    let pages = [touched(&alone[0]), touched(&alone[1])];
    // 24 and 16 MiB and little else.
    assert!(
        (6144..6800).contains(&pages[0]) && (4096..4700).contains(&pages[1]),
        "{pages:?}"
    );

    let programs = paths.map(|path| format!("trace:{path}"));
    let at_once = |memory: &str| {
        let value = json(&[
            "sim",
            &programs[0],
            &programs[1],
            "--memory",
            memory,
            "--disk",
            "nvme",
            "--no-bounds",
            "--json",
            "-",
        ]);
        value["runs"][0]["report"].clone()
    };
    let report = at_once("8M");
    let of =
        |program: usize, what: &str| report["programs"][program][what].as_u64().expect("a count");
    assert_eq!([of(0, "footprint_pages"), of(1, "footprint_pages")], pages);
    for what in ["page_ins", "page_outs"] {
        let each = if what == "page_ins" {
            "pages_in"
        } else {
            "pages_out"
        };
        let (one, other) = (of(0, each), of(1, each));
        assert!(one > 0 && other > 0, "{report:#}");
        assert_eq!(report[what].as_u64(), Some(one + other));
    }
    // Both fit: nobody pages.
    assert_eq!(at_once("1G")["page_outs"], 0);
}

/// What `tests/programs/forks.c` says of itself: the page number of its memory, how far apart a process's
/// pages are, and the process of each number.
fn forks(stdout: &[u8]) -> (u64, u64, Vec<(u64, String)>) {
    let text = String::from_utf8_lossy(stdout);
    let mut lines = text.lines().map(|line| {
        let (number, rest) = line.split_once(' ').expect("two words");
        (number.parse::<u64>().expect("a number"), rest.to_owned())
    });
    let (memory, apart) = lines.next().expect("a first line");
    (memory, apart.parse().expect("a number"), lines.collect())
}

/// The references of a trace: page numbers, and whether they are writes.
fn references(trace: &Path) -> Vec<(u64, bool)> {
    let file = fs::File::open(trace).expect("the trace");
    let reader = outpage_sim::trace::Reader::new(std::io::BufReader::new(file)).expect("a trace");
    let runs = reader.map(|run| run.expect("a whole trace"));
    let references = runs.flat_map(|run| run.references().collect::<Vec<_>>());
    references
        .map(|r| (r.page.index(), r.access == Access::Write))
        .collect()
}

/// The first number in `text`, commas left out.
fn first_number(text: &str) -> usize {
    let digits: String = text.chars().take_while(|c| *c != ' ').collect();
    digits.replace(',', "").parse().expect("a number")
}

/// tests/programs/forks.c, and where it is; `None` where nothing can page.
fn program_that_forks() -> Option<(tempfile::TempDir, PathBuf)> {
    if !can_page() {
        return None;
    }
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let program = common::compiled(dir.path(), "forks");
    Some((dir, program))
}

/// Children forked while their parent pages, one of which forks itself, one executes a program, one is killed:
/// each has its trace, and what it touched is in it.
#[test]
fn each_forked_child_has_its_own_references() {
    let Some((dir, program)) = program_that_forks() else {
        return;
    };
    let trace = dir.path().join("trace");
    const PAGES: u64 = 32 * 256;
    let to_trace = ["trace", "--once", "-o", words(&trace), "--"];
    let recorded = run(&[&to_trace[..], &[words(&program), "32", "3"]].concat());
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success(), "{said}");
    let (memory, apart, processes) = forks(&recorded.stdout);
    assert_eq!((apart, processes.len()), (8, 8), "{said}");
    // What had left memory for sure before the first fork: the limit is 2048 pages.
    let sure = memory..memory + PAGES - 2048;
    for (number, pid) in &processes {
        let line = said
            .lines()
            .find(|line| line.contains(&format!(".{pid}: ")));
        let path = match number {
            0 => trace.clone(),
            _ => dir.path().join(format!("trace.{pid}")),
        };
        let all = references(&path);
        let inherited = line.map_or(0, |line| {
            first_number(line.split("the first ").nth(1).expect("its parent's pages"))
        });
        let (left, own) = all.split_at(inherited);
        let of_pattern = |part: &[(u64, bool)]| -> Vec<(u64, bool)> {
            let mine = |page: &u64| sure.contains(page) && (page - memory) % apart == *number;
            part.iter()
                .copied()
                .filter(|(page, _)| mine(page))
                .collect()
        };
        let expected: Vec<(u64, bool)> = (0..)
            .map(|turn: u64| (memory + number + turn * apart, turn % 2 == 1))
            .take_while(|(page, _)| sure.contains(page))
            .collect();
        let mut touched = of_pattern(own);
        // A page may leave between being read and being written.
        touched.dedup_by(|again, first| {
            first.1 |= first.0 == again.0 && again.1;
            first.0 == again.0
        });
        match number {
            // It filled them first.
            0 => {
                let again = touched.split_off(touched.len() - expected.len());
                assert_eq!(again, expected, "the parent: {said}");
            }
            // Ended by a signal, `_exit` and `exec`: what was not written yet is missing, and said to be.
            1 | 3 | 4 => assert!(
                expected.starts_with(&touched)
                    && touched.len() > expected.len() / 2
                    && line.is_some_and(|line| line.contains("may be missing")),
                "{} of {}: {said}",
                touched.len(),
                expected.len()
            ),
            _ => assert_eq!(touched, expected, "number {number}: {said}"),
        }
        if *number > 0 {
            let found = of_pattern(left).into_iter().map(|touch| touch.0);
            assert!(found.eq(touched.iter().map(|touch| touch.0)), "{said}");
            assert!(left.iter().all(|touch| touch.1), "number {number}: {said}");
            // Nobody else's.
            let foreign = |page: u64| sure.contains(&page) && (page - memory) % apart != *number;
            assert!(!own.iter().any(|touch| foreign(touch.0)), "{said}");
        }
    }
    let of = |number: u64| &processes.iter().find(|p| p.0 == number).expect("it ran").1;
    // What a child executes has a trace that nobody left anything in.
    let executed = format!("trace.{}.1: 8,", of(4));
    assert!(said.contains(&executed), "{executed}: {said}");
    let forked = |child: u64, parent: u64| {
        let part = format!("forked by process {}", of(parent));
        let line = said
            .lines()
            .find(|l| l.contains(&format!(".{}: ", of(child))));
        assert!(
            line.is_some_and(|line| line.contains(&part)),
            "{part}: {said}"
        );
    };
    forked(2, 0);
    forked(3, 2);
    // Both replayed, the pages that the child found are there to be read.
    let child = dir.path().join(format!("trace.{}", of(5)));
    let value = json(&[
        "replay",
        words(&trace),
        words(&child),
        "--memory",
        "4M",
        "--disk",
        "nvme",
        "--no-rivals",
        "--no-bounds",
        "--readahead",
        "none",
        "--reclaim",
        "second-chance",
        "--json",
        "-",
    ]);
    let page_ins = value["traces"][1]["runs"][0]["report"]["page_ins"].as_u64();
    let found = PAGES / apart;
    assert!(page_ins.is_some_and(|pages| pages * 2 > found), "{value:#}");
}

/// The logs of children begin with their parents' and replay to the same actions, all of them.
#[test]
fn the_logs_of_many_forked_children_replay_identically() {
    let Some((dir, program)) = program_that_forks() else {
        return;
    };
    let [log, charts] = ["log", "charts"].map(|name| dir.path().join(name));
    let to_log = [
        "trace",
        "--log",
        "-m",
        "16M",
        "-o",
        words(&log),
        "--events",
        words(&charts),
        "--",
    ];
    let recorded = run(&[&to_log[..], &[words(&program), "32", "20"]].concat());
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success(), "{said}");
    let (_, _, processes) = forks(&recorded.stdout);
    for (number, pid) in &processes {
        let of_child = dir.path().join(format!("log.{pid}"));
        let path = if *number == 0 { &log } else { &of_child };
        // Whoever ends at once by a signal, `_exit` or `exec` may have written nothing yet.
        if (1..=4).contains(number) && number != &2 && !path.exists() {
            continue;
        }
        let same = run(&["replay", "--identical", words(path)]);
        let text = String::from_utf8_lossy(&same.stdout);
        assert!(same.status.success(), "number {number}: {same:?}, {said}");
        let in_order = *number == 0 || *number == 2 || *number > 4;
        assert_eq!(
            text.contains("cut short"),
            !in_order,
            "number {number}: {text}"
        );
        if *number == 0 {
            continue;
        }
        // A child's charts begin at its fork: what the parent had read and written is not in them.
        let events = fs::read_to_string(charts.join(pid).join("events.csv")).expect("charts");
        let zero_fills = events.lines().skip(1).map(|line| {
            let of_interval = line.split(',').nth(8).expect("zero-fills");
            of_interval.parse::<u64>().expect("a number")
        });
        assert!(zero_fills.sum::<u64>() < 1000, "number {number}: {events}");
    }
}
