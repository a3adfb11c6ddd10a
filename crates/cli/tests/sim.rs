//! `outpage sim`, `paper`, `replay`, `trace convert`, `disk`: results and bad input.

use std::fs;
use std::path::{Path, PathBuf};

mod common;
use common::asked::{json, refused, run, words};

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
    refused(
        &with("--scheduler", "cfq:slice=9"),
        64,
        &["slice=9", "idle-ms"],
    );
    refused(
        &with("--scheduler", "cfq:idle-ms=x"),
        64,
        &["idle-ms", "0 to 10000"],
    );
    refused(
        &with("--readahead", "asp:window=64"),
        64,
        &["window is 64", "max"],
    );
    refused(&with("--tier", "zip"), 64, &["'zip'", "none, lz4"]);
    refused(&with("--tier", "lz4:pool=99"), 64, &["pool", "5 to 90"]);
    refused(
        &with("--ratio", "17"),
        64,
        &["'17'", "1 to 16, heap or trace"],
    );
    refused(&with("--pool-loss", "51"), 64, &["'51'", "0 to 50"]);
    let daemon = ["sim", SMALL, "--system=bsd-8.2", "--tier=none,lz4"];
    refused(&daemon, 64, &["bsd-8.2", "no tier but none"]);
    refused(&with("--system", "minix"), 64, &["minix", "bsd-6.2"]);
    refused(&with("--memory", "half"), 64, &["half", "50%"]);
    refused(&with("--memory", "4K"), 64, &["memory", "256"]);
    refused(&with("--chunk", "0"), 64, &["'0'", "1 to 1024"]);
    refused(&with("--window", "257"), 64, &["'257'", "1 to 256"]);
    refused(&with("--swap-cap", "1K"), 64, &["64K"]);
    refused(&["sim", "trace:/no/such/file"], 66, &["/no/such/file"]);
    refused(&["paper", "acm"], 64, &["moc", "mclustering"]);
    refused(&["paper", "moc", "--only", "su"], 64, &["sor", "micro 16"]);
    refused(&["paper", "hsn", "--resume", "x"], 64, &["hsn", "--resume"]);
    refused(&["paper", "hsn", "--live"], 64, &["--live FILE", "vm.py"]);
    refused(
        &["paper", "discard", "--live", "x"],
        64,
        &["without a file"],
    );
    refused(&["paper", "moc", "--live"], 64, &["hsn and discard"]);
    refused(
        &["disk", "measure", "--swap", "/no/such"],
        66,
        &["/no/such"],
    );
    refused(&["disk", "measure", "--size", "1M"], 64, &["16M to 64G"]);
}

#[test]
fn a_benchmark_that_cannot_be_is_refused_at_the_start() {
    refused(&["bench"], 64, &["no command", "kernel, fit, events"]);
    refused(&["disk"], 64, &["no command", "measure"]);
    let bench = |name: &'static str, option: &'static str| ["bench", name, option];
    for name in ["events", "fit", "faults", "pageout", "kernel"] {
        refused(&bench(name, "--memory=1M"), 64, &["'1M'", "8 MiB"]);
        refused(&bench(name, "--memory=lots"), 64, &["'lots'", "256M"]);
    }
    refused(&bench("pageout", "--chunk=0"), 64, &["'0'", "1 to 1024"]);
    refused(
        &bench("pageout", "--policies=moc,lifo"),
        64,
        &["'lifo'", "mclustering"],
    );
    refused(
        &bench("events", "--workloads=sor,dance"),
        64,
        &["dance", "moc16"],
    );
    refused(&bench("events", "--pairs=0"), 64, &["'0'"]);
}

/// Tiers and ratios are crossed as other options are, but where nothing is compressed the ratio is of no matter.
#[test]
fn pools_of_compressed_pages_are_columns_of_their_own() {
    let options = [
        "--tier=none,lz4:pool=50,lz4",
        "--ratio=2,heap",
        "--no-bounds",
    ];
    let program = "moc:pages=8192";
    let with = |output| [&["sim", program], &options[..], &[output]].concat();
    let said = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let csv = said(&with("--csv=-"));
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{csv}");
    let column = |name: &str| {
        let at = rows[0].iter().position(|head| *head == name);
        let at = at.expect("a column");
        rows[1..].iter().map(|row| row[at]).collect::<Vec<_>>()
    };
    let tiers = ["none", "lz4:pool=50", "lz4:pool=50", "lz4", "lz4"];
    assert_eq!(column("tier"), tiers);
    assert_eq!(column("ratio"), ["-", "2", "heap", "2", "heap"]);
    let compressed = column("compressed");
    assert_eq!(compressed[0], "0");
    assert!(compressed[1..].iter().all(|pages| *pages != "0"), "{csv}");

    let text = said(&with("--threads=1"));
    for head in ["tier", "ratio", "pool hits", "compressed", "demoted"] {
        assert!(text.contains(head), "{text}");
    }
    let plain = said(&["sim", program, "--no-bounds"]);
    assert!(
        plain.contains("tier none") && !plain.contains("ratio"),
        "{plain}"
    );
}

/// README's picture is what the command draws, byte for byte, from the result that is stored beside it.
#[test]
fn a_stored_benchmark_is_drawn_as_it_stands_in_the_documents() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let result = docs.join("results/kernel.json");
    let result = result.to_str().expect("UTF-8");
    let directory = tempfile::tempdir().expect("directory");
    let drawn = directory.path().join("kernel.svg");
    let phases =
        "sor sweeps,lu build,moc1 p0,moc1 gaps,moc1 p1,moc4 p1,random touches,random check";
    let output = common::outpage(&["bench", "plot", result, "--phases", phases, "-o"])
        .arg(&drawn)
        .output()
        .expect("outpage");
    assert!(output.status.success(), "{output:?}");
    let read = |path: &Path| fs::read_to_string(path).expect("a picture");
    assert!(
        read(&drawn) == read(&docs.join("kernel.svg")),
        "docs/kernel.svg is out of date: docs/performance.md has the command that draws it"
    );
}

#[test]
fn what_is_no_stored_benchmark_is_not_drawn() {
    let plot = |result: &'static str| ["bench", "plot", result, "-o", "/no/such/x.svg"];
    refused(&plot("/no/such"), 66, &["/no/such"]);
    refused(&plot("/proc/self/comm"), 65, &["comm", "bench kernel"]);
    let stored = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/results/kernel.json"
    );
    refused(&plot(stored), 74, &["/no/such/x.svg"]);
    let phase = [
        "bench",
        "plot",
        stored,
        "--phases=sor dances",
        "-o",
        "x.svg",
    ];
    refused(&phase, 64, &["'sor dances'", "sor sweeps, lu build"]);
}

/// As `run` refuses them: in the words of the policy, with what is allowed.
#[test]
fn settings_of_read_ahead_that_cannot_be_are_refused() {
    for (settings, parts) in [
        ("asp:window=0", ["window", "1 to 256"]),
        ("none,asp:step=64,max=32", ["step is 64", "at most 32"]),
        ("asp:max=8,max=16", ["max", "twice"]),
        (
            "linux-slot:max=8,page-cluster=4",
            ["max and page-cluster", "one of them"],
        ),
        ("asp:windows=4", ["windows=4", "mdis"]),
        ("none:max=4", ["max=4", "no setting"]),
        ("max=4", ["'max=4'", "linux-vma"]),
        ("", ["''", "linux-vma"]),
    ] {
        let option = format!("--readahead={settings}");
        refused(&["sim", SMALL, "--no-bounds", &option], 64, &parts);
    }
    let small = ["sim", SMALL, "--readahead", "asp", "--window", "4"];
    refused(&small, 64, &["window is 8", "at most 4"]);
}

#[test]
fn settings_of_read_ahead_stand_in_the_table() {
    let given = "asp:window=4,step=4,none,linux-slot:page-cluster=4";
    let output = run(&[
        "sim",
        SMALL,
        "--no-bounds",
        "--csv",
        "-",
        "--readahead",
        given,
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    for policy in [
        "\"asp:window=4,step=4\"",
        "none",
        "linux-slot:page-cluster=4",
    ] {
        assert!(text.contains(&format!(",{policy},")), "{policy}: {text}");
    }
}

#[test]
fn settings_of_schedulers_and_read_ahead_change_what_they_name() {
    let runs = json(&[
        "sim",
        "sor:n=1000,sweeps=3",
        "sor:n=1001,sweeps=3",
        "--no-bounds",
        "--scheduler",
        "cfq,cfq:idle-ms=8,slice-ms=100,cfq:idle-ms=0",
        "--readahead",
        "asp:window=4,max=8,asp",
        "--json",
        "-",
    ]);
    let runs = runs["runs"].as_array().expect("runs");
    let names: Vec<_> = runs
        .iter()
        .map(|r| r["setup"]["scheduler"].as_str().expect("a name"))
        .collect();
    let three = ["cfq", "cfq:idle-ms=8,slice-ms=100", "cfq:idle-ms=0"];
    assert_eq!(names, [three, three].concat());
    let [default, same, other] = [0, 1, 2].map(|at| &runs[at]["report"]);
    assert_eq!(default, same, "the defaults");
    assert_ne!(default, other);
    assert_ne!(default, &runs[3]["report"], "the window");
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
    let columns = |line: &str| line.split(',').count();
    let (head, lines) = cells.split_once('\n').expect("a heading");
    assert!(head.ends_with(",error"), "{text}");
    assert!(
        lines.lines().all(|line| columns(line) == columns(head)),
        "{text}"
    );
}

#[test]
fn a_paper_evaluated_again_is_the_same_byte_by_byte_kept_or_run() {
    let dir = tempfile::tempdir().expect("directory");
    let kept = dir.path().join("kept");
    let evaluated = |name: &str, threads: &str, resume: &[&str]| {
        let out = dir.path().join(name);
        let part = ["--only", "micro 16", "--threads", threads];
        let output = run(&[&["paper", "moc", "--out", words(&out)], &part[..], resume].concat());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        ["moc.html", "moc.md", "moc.csv", "moc-runs.csv"]
            .map(|file| fs::read_to_string(out.join(file)).expect("it was written"))
    };
    let (one, again) = (evaluated("one", "1", &[]), evaluated("again", "3", &[]));
    assert_eq!(one, again);
    let resume = ["--resume", words(&kept)];
    assert_eq!(evaluated("kept", "2", &resume), one);
    // What is kept is believed, and what is damaged is not: a run that is gone and one that was cut short come anew.
    let listed = || fs::read_dir(&kept).expect("it was made");
    let mut files: Vec<_> = listed().map(|file| file.expect("listed").path()).collect();
    files.sort();
    assert!(files.len() > 20, "{files:?}");
    fs::remove_file(&files[0]).expect("it is there");
    fs::write(&files[1], "{").expect("it is there");
    let whole = fs::read(&files[2]).expect("it is there");
    assert_eq!(evaluated("anew", "2", &resume), one);
    assert_eq!(listed().count(), files.len());
    assert!(fs::read(&files[1]).expect("written again").len() > 100);
    assert_eq!(fs::read(&files[2]).expect("it is there"), whole);
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
    fs::write(&toml, [0xff, 0xfe]).expect("file");
    refused(&["sim", "--config", words(&toml)], 65, &["UTF-8"]);
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
fn decisions_are_compared_run_by_run() {
    let stored = include_str!("../../sim/src/decisions/decisions.txt");
    let file = std::env::temp_dir().join(format!("outpage-decisions-{}", std::process::id()));
    fs::write(&file, stored).unwrap();
    let asked = ["decisions", "--runs", "4", "--against", words(&file)];
    let same = run(&asked);
    let text = String::from_utf8_lossy(&same.stdout);
    assert!(same.status.success() && text.contains("the same decisions in 4 runs"));
    let others = stored.lines().map(|line| match line.strip_prefix("2 ") {
        Some(_) => "2 0 0 0 0\n".to_owned(),
        None => format!("{line}\n"),
    });
    fs::write(&file, others.collect::<String>()).unwrap();
    refused(&asked, 1, &["1 of 4 runs", "run 2"]);
    fs::write(&file, "0 1\n").unwrap();
    refused(&asked, 65, &["no line of decisions"]);
    fs::remove_file(&file).unwrap();
    refused(&asked, 66, &["outpage-decisions"]);
}
