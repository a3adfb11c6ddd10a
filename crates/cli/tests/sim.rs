//! `outpage sim`, `replay`, `trace`, `disk`: results, bad input, and a live run simulated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

mod common;
use common::{can_page, outpage};

fn run(arguments: &[&str]) -> Output {
    outpage(arguments).output().expect("outpage")
}

fn words(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

/// One line on standard error that has these parts, and the exit code.
fn refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

const SMALL: &str = "sor:n=1000,sweeps=3";

#[test]
fn what_there_is_not_is_named() {
    refused(&["sim"], 64, &["sor", "trace:FILE"]);
    refused(&["sim", "vi"], 64, &["vi", "ns2"]);
    refused(&["sim", "sor:n=2"], 64, &["n is 2", "3 to"]);
    refused(&["sim", "sor:rows=9"], 64, &["rows", "sweeps"]);
    let with = |option: &'static str, value: &'static str| ["sim", SMALL, option, value];
    refused(&with("--pageout", "lifo"), 64, &["lifo", "mclustering"]);
    refused(
        &with("--reclaim", "psychic"),
        64,
        &["psychic", "second-chance"],
    );
    refused(
        &with("--readahead", "none,psychic"),
        64,
        &["psychic", "linux-slot"],
    );
    refused(&with("--disk", "floppy"), 64, &["floppy", "nvme"]);
    refused(&with("--scheduler", "noop"), 64, &["noop", "elevator"]);
    refused(&with("--system", "minix"), 64, &["minix", "bsd-6.2"]);
    refused(&with("--memory", "half"), 64, &["half", "50%"]);
    refused(&with("--memory", "4K"), 64, &["frames", "256"]);
    refused(
        &with("--chunk", "0"),
        64,
        &["pages of a write", "1 to 1024"],
    );
    refused(&with("--swap-cap", "1K"), 64, &["64K"]);
    refused(&["sim", "trace:/no/such/file"], 66, &["/no/such/file"]);
    refused(&["paper", "acm"], 64, &["moc", "mclustering"]);
    refused(&["paper", "moc", "--only", "su"], 64, &["sor", "micro 16"]);
    refused(
        &["disk", "measure", "--swap", "/no/such"],
        66,
        &["/no/such"],
    );
    refused(&["disk", "measure", "--size", "1M"], 64, &["16M to 64G"]);
}

#[test]
fn a_sweep_crosses_everything_and_threads_change_nothing() {
    let sweep = |threads| {
        json(&[
            "sim",
            SMALL,
            "--sweep",
            "--disk",
            "nvme",
            "--threads",
            threads,
            "--json",
            "-",
        ])
    };
    let (one, four) = (sweep("1"), sweep("4"));
    assert_eq!(one, four);
    let runs = one["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), outpage_core::pageout::REGISTRY.len() * 3);
    for run in runs {
        let moved = run["report"]["page_ins"].as_u64().expect("page-ins");
        let floor = run["bounds"]["floor"]["page_ins"].as_u64().expect("floor");
        assert!(moved >= floor, "{run:#}");
    }
    let csv = run(&["sim", SMALL, "--memory", "25%,50%", "--csv", "-"]);
    let text = String::from_utf8(csv.stdout).expect("text");
    assert_eq!(text.lines().count(), 3, "{text}");
    // The program's name, which has commas of its own, is quoted.
    let cells = text.replace(&format!("\"{SMALL}\""), "sor");
    assert!(
        cells.lines().all(|line| line.matches(',').count() == 21),
        "{text}"
    );
}

#[test]
fn a_paper_evaluated_again_is_the_same_byte_by_byte() {
    let dir = tempfile::tempdir().expect("directory");
    let evaluated = |name: &str, threads: &str| {
        let out = dir.path().join(name);
        let part = ["--only", "micro 16", "--threads", threads];
        let output = run(&[&["paper", "moc", "--out", words(&out)], &part[..]].concat());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        ["moc.html", "moc.md", "moc.csv", "moc-runs.csv"]
            .map(|file| fs::read_to_string(out.join(file)).expect("it was written"))
    };
    let (one, again) = (evaluated("one", "1"), evaluated("again", "3"));
    assert_eq!(one, again);
    // The part has what its runs answer, and nothing else.
    let [html, _, rows, runs] = one;
    assert!(html.contains("<svg"));
    assert!(
        !rows.contains("no result") && !rows.contains("/ sor /"),
        "{rows}"
    );
    assert!(
        runs.lines().count() > 2 && runs.lines().skip(1).all(|run| run.contains("micro 16")),
        "{runs}"
    );
}

#[test]
fn a_settings_file_says_the_same_as_options() {
    let dir = tempfile::tempdir().expect("directory");
    let toml = dir.path().join("a.toml");
    let text = format!(
        "programs = [\"{SMALL}\"]\n[machine]\nmemory = [\"50%\"]\npageout = [\"bsd\"]\ndisk = [\"nvme\"]\n"
    );
    fs::write(&toml, text).expect("file");
    let by_file = json(&["sim", "--config", words(&toml), "--json", "-"]);
    let by_options = json(&[
        "sim",
        SMALL,
        "--memory",
        "50%",
        "--pageout",
        "bsd",
        "--disk",
        "nvme",
        "--json",
        "-",
    ]);
    assert_eq!(by_file, by_options);
    fs::write(
        &toml,
        "programs = [\"sor\"]\n[machine]\nmemroy = [\"1G\"]\n",
    )
    .expect("file");
    refused(
        &["sim", "--config", words(&toml)],
        65,
        &["memroy", "line 3"],
    );
}

/// Text of lackey's that loops over 600 pages four times, and writes each.
fn lackey(dir: &Path) -> PathBuf {
    let path = dir.join("lackey.txt");
    let lines: Vec<String> = (0..2400)
        .map(|at| format!(" S {:x},8\n", 0x10_0000 + (at % 600) * 4096))
        .collect();
    fs::write(&path, lines.concat()).expect("file");
    path
}

#[test]
fn traces_are_converted_replayed_and_refused_with_the_offset() {
    let dir = tempfile::tempdir().expect("directory");
    let text = lackey(dir.path());
    let [refs, oracle, again] = ["refs", "oracle", "again"].map(|name| dir.path().join(name));
    let convert = |arguments: &[&str]| {
        let output = run(&[&["trace", "convert"], arguments].concat());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    convert(&[words(&text), words(&refs), "--format", "lackey"]);
    convert(&[words(&refs), words(&oracle), "--as", "oracle"]);
    convert(&[words(&oracle), words(&again), "--format", "oracle"]);
    assert_eq!(fs::metadata(&oracle).expect("file").len(), 2400 * 24);
    let options = ["--memory", "300p"];
    refused(
        &[&["replay", words(&refs)], &options[..]].concat(),
        64,
        &["300p"],
    );
    let value = json(&[
        "replay",
        words(&refs),
        "--memory",
        "1200K",
        "--disk",
        "nvme",
        "--json",
        "-",
    ]);
    let run_ = &value["runs"][0];
    // A loop over twice the memory: LRU misses always, the optimum keeps what it can.
    assert_eq!(
        (
            run_["bounds"]["references"].as_u64(),
            run_["bounds"]["lru_misses"].as_u64()
        ),
        (Some(2400), Some(2400))
    );
    let cell = |policy: &str| {
        let cells = value["rivals"]["cells"].as_array().expect("cells");
        cells
            .iter()
            .find(|c| c["policy"] == policy)
            .expect("policy")["misses"]
            .as_u64()
            .expect("misses")
    };
    assert_eq!(cell("lru"), 2400);
    assert_eq!(Some(cell("opt")), run_["bounds"]["opt_misses"].as_u64());
    assert!(cell("opt") < cell("lirs") && cell("lirs") < 2400);
    let both = run(&[
        "replay",
        words(&refs),
        words(&again),
        "--readahead",
        "none,stream",
        "--disk",
        "nvme",
        "--no-rivals",
        "--no-bounds",
    ]);
    let table = String::from_utf8_lossy(&both.stdout).into_owned();
    let rows = |name: &str| table.lines().filter(|l| l.starts_with(name)).count();
    assert_eq!((rows("refs"), rows("again")), (2, 2), "{table}");
    let head = table
        .lines()
        .find(|l| l.starts_with("program"))
        .expect("head");
    assert!(head.contains("hits") && head.contains("waste"), "{table}");
    let bytes = fs::read(&refs).expect("trace");
    fs::write(&again, &bytes[..bytes.len() - 5]).expect("file");
    refused(
        &["replay", words(&again)],
        65,
        &["byte", "ends in the middle"],
    );
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 4;
    fs::write(&again, &damaged).expect("file");
    refused(&["replay", words(&again)], 65, &["at byte", "corrupt"]);
    fs::write(&again, b"hello, world").expect("file");
    refused(&["replay", words(&again)], 65, &["--format"]);
    refused(
        &["replay", words(&again), "--format", "oracle"],
        65,
        &["at byte 0"],
    );
    refused(
        &["replay", "--identical", words(&refs)],
        65,
        &["not a trace"],
    );
}

#[test]
fn a_measured_disk_is_one_to_simulate() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("directory");
    let file = dir.path().join("disk.json");
    let swap = words(dir.path());
    let output = run(&[
        "disk",
        "measure",
        "--swap",
        swap,
        "--size",
        "16M",
        "--requests",
        "10",
        "--json",
        words(&file),
    ]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let value = json(&["sim", SMALL, "--disk", words(&file), "--json", "-"]);
    assert_eq!(value["runs"][0]["disk"], "disk");
    assert!(
        value["runs"][0]["setup"]["disk"]["solid"]["read_ns"]
            .as_u64()
            .is_some()
    );
    fs::write(&file, "{\"solid\": 3}").expect("file");
    refused(&["sim", SMALL, "--disk", words(&file)], 65, &["is no disk"]);
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
        "-o",
        words(&log),
        "--events",
        words(&charts),
        "--",
    ];
    let output = run(&[
        &arguments[..],
        &[own, "workload", "seq", "--mib", "32", "--passes", "2"],
    ]
    .concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let same = run(&["replay", "--identical", words(&log)]);
    let text = String::from_utf8_lossy(&same.stdout);
    assert!(
        same.status.success() && text.contains("identical") && !text.contains("cut short"),
        "{text}{}",
        String::from_utf8_lossy(&same.stderr)
    );
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
    let cut = run(&["replay", "--identical", words(&log)]);
    let text = String::from_utf8_lossy(&cut.stdout);
    assert!(cut.status.success() && text.contains("cut short"), "{text}");
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
        let log = log.expect("entry").path();
        let same = run(&["replay", "--identical", words(&log)]);
        assert!(same.status.success(), "{same:?}");
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
        "--no-rivals",
        "--json",
        "-",
    ]);
    let report = &value["runs"][0]["report"];
    for mechanism in ["auto", "write-protect"] {
        let given = ["--mechanism", mechanism, "--stats", words(&stats)];
        runs(&[&["run", "--memory", "32M"], &given[..]].concat());
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
