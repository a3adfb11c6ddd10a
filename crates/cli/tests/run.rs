//! `outpage run` on real programs: same result, same end, and what it says about it.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

mod common;
use common::{can_page, outpage};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `program` under `options`.
fn run(options: &[&str], program: &[&str]) -> Output {
    outpage(&[&["run"], options, &["--"], program].concat())
        .output()
        .expect("outpage")
}

fn stats(file: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(file).expect("stats")).expect("JSON")
}

#[test]
fn exit_codes_and_signals_pass_through() {
    if !can_page() {
        return;
    }
    let end = |script| run(&["--memory", "64M", "--quiet"], &["sh", "-c", script]);
    assert_eq!(end("exit 0").status.code(), Some(0));
    assert_eq!(end("exit 7").status.code(), Some(7));
    assert_eq!(end("kill -TERM $$").status.signal(), Some(15));
    assert_eq!(end("kill -KILL $$").status.signal(), Some(9));
    let quiet = end("echo out; echo err >&2");
    assert_eq!(
        (text(&quiet.stdout), text(&quiet.stderr)),
        ("out\n".into(), "err\n".into())
    );
}

/// A standard descriptor that was closed is closed in the program too.
#[test]
fn closed_streams_stay_closed() {
    if !can_page() {
        return;
    }
    // What a shell closes for one command is open again after it.
    let look = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] || printf $n >&9; done";
    for (closing, closed) in [
        ("<&-", "0"),
        (">&-", "1"),
        ("2>&-", "2"),
        ("<&- >&- 2>&-", "012"),
    ] {
        let outpage = format!("\"$0\" run --memory 64M --quiet -- sh -c '{look}' 9>&1 {closing}");
        let file = env!("CARGO_BIN_EXE_outpage");
        let end = Command::new("sh").args(["-c", &outpage, file]).output();
        let end = end.expect("sh");
        assert_eq!(text(&end.stdout), closed, "{closing}: {}", end.status);
    }
}

/// A pipe that nobody reads.
fn unread() -> std::io::PipeWriter {
    std::io::pipe().expect("a pipe").1
}

#[test]
fn streams_that_nobody_reads_change_no_exit_code() {
    let code = |words: &[&str]| {
        let mut command = outpage(words);
        command.stdout(unread()).stderr(unread());
        command.status().expect("outpage").code()
    };
    assert_eq!(code(&["run", "--memory", "much", "--", "true"]), Some(64));
    assert_eq!(
        code(&["run", "--memory", "64M", "--", "/missing"]),
        Some(127)
    );
    assert_eq!(code(&["workload", "sor", "--mib", "2"]), Some(0));
    if can_page() {
        let end = |words: &[&str]| code(&[&["run", "--memory", "64M", "--"], words].concat());
        assert_eq!(end(&["sh", "-c", "exit 3"]), Some(3));
        assert_eq!(code(&["doctor"]), Some(0));
    }
}

#[test]
fn signals_to_the_launcher_reach_the_program() {
    if !can_page() {
        return;
    }
    let script = "trap 'echo got it; exit 9' USR1; echo ready; while :; do sleep 0.05; done";
    let mut child = outpage(&[
        "run", "--memory", "64M", "--quiet", "--", "sh", "-c", script,
    ])
    .stdout(Stdio::piped())
    .spawn()
    .expect("outpage");
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-USR1", &pid])
            .status()
            .expect("kill")
            .success()
    );
    assert_eq!(child.wait().expect("wait").code(), Some(9));
}

#[test]
fn a_program_that_fits_gets_one_line() {
    if !can_page() {
        return;
    }
    let output = run(&["--memory", "64M"], &["echo", "--memory", "hello"]);
    assert_eq!(text(&output.stdout), "--memory hello\n");
    let expected = "outpage: the program stayed within its 64 MiB; nothing was paged\n";
    assert_eq!(text(&output.stderr), expected);
}

/// Lines in a fixed disorder, about 40 MiB.
fn disordered_lines() -> String {
    let mut value = 12345_u64;
    let mut next = || {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        value >> 11
    };
    (0..2_500_000)
        .map(|_| format!("{:016}\n", next()))
        .collect()
}

#[test]
fn sort_in_a_third_of_its_memory() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let (input, counters) = (
        directory.path().join("in"),
        directory.path().join("stats.json"),
    );
    fs::write(&input, disordered_lines()).expect("write");
    let input = input.to_str().expect("UTF-8");
    // With -S, sort keeps everything in memory and writes no temporary files of its own.
    let sort = ["sort", "-S", "300M", "--parallel=2", input];
    let free = Command::new(sort[0])
        .args(&sort[1..])
        .env("LC_ALL", "C")
        .output()
        .expect("sort");
    let swap = directory.path().to_str().expect("UTF-8");
    let file = counters.to_str().expect("UTF-8");
    let limited = outpage(&[
        "run", "--memory", "64M", "--swap", swap, "--stats", file, "--",
    ])
    .args(sort)
    .env("LC_ALL", "C")
    .output()
    .expect("outpage");
    assert!(limited.status.success(), "{}", text(&limited.stderr));
    assert!(free.stdout == limited.stdout, "the outputs differ");
    let stats = stats(&counters);
    assert!(
        stats["page_outs"].as_u64() > Some(0) && stats["page_ins"].as_u64() > Some(0),
        "{stats}"
    );
    assert!(stats["peak_bytes"].as_u64() <= Some(64 << 20), "{stats}");
    assert_eq!(stats["exit_code"], 0);
    assert_eq!(stats["config"]["memory"], (64 << 20).to_string());
    for part in [
        "page-outs",
        "page-ins",
        "mean cluster",
        "read-ahead",
        "minor",
        "major",
    ] {
        assert!(
            text(&limited.stderr).contains(part),
            "{}",
            text(&limited.stderr)
        );
    }
    let left: Vec<_> = fs::read_dir(directory.path()).expect("directory").collect();
    assert_eq!(left.len(), 2, "the swap file has no name: {left:?}");
}

#[test]
fn the_demo_comes_to_the_same_result() {
    if !can_page() {
        return;
    }
    for mechanism in ["move", "write-protect"] {
        let output = outpage(&["demo", "--mib", "64", "--mechanism", mechanism])
            .output()
            .expect("outpage");
        assert!(
            output.status.success(),
            "{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        assert!(
            text(&output.stdout).contains("The results are the same."),
            "{}",
            text(&output.stdout)
        );
    }
}

#[test]
fn a_session_lives_as_long_as_its_last_process() {
    if !can_page() {
        return;
    }
    let script = "sleep 30 >/dev/null 2>&1 & echo $! $OUTPAGE_SESSION";
    let output = run(&["--memory", "64M", "--quiet"], &["sh", "-c", script]);
    let printed = text(&output.stdout);
    let (daemon, session) = printed.trim().split_once(' ').expect("two words");
    let keeper = Path::new(session).ancestors().nth(2).expect("/proc/N");
    assert!(keeper.exists(), "the launcher is gone and the daemon lives");
    assert!(
        Command::new("kill")
            .arg(daemon)
            .status()
            .expect("kill")
            .success()
    );
    // The keeper looks for processes that never joined every half second.
    while fs::read_to_string(keeper.join("comm")).is_ok_and(|name| name == "outpage\n") {
        std::thread::yield_now();
    }
}

#[test]
fn programs_that_cannot_be_managed_run_when_that_is_allowed() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let (source, program) = (directory.path().join("a.c"), directory.path().join("fixed"));
    fs::write(&source, "int main(void) { return 5; }\n").expect("write");
    let built = Command::new("cc")
        .arg("-static")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    if !built.is_ok_and(|b| b.status.success()) {
        eprintln!("SKIPPED: needs a C compiler that links statically");
        return;
    }
    let program = program.to_str().expect("UTF-8");
    let output = run(
        &["--memory", "64M", "--allow-unmanaged", "--quiet"],
        &[program],
    );
    assert_eq!(output.status.code(), Some(5));
    let expected = format!(
        "outpage: {program} is statically linked: its memory cannot be managed; it runs without a limit\n"
    );
    assert_eq!(text(&output.stderr), expected);
}

/// A pager in a process of its own has the program's memory, which is looked at from outside.
#[test]
fn a_pager_in_a_process_of_its_own_is_no_memory_beside_the_limit() {
    if !can_page() {
        return;
    }
    let options = ["--memory", "16M", "--tier", "none", "--debuggable"];
    let program = [common::OUTPAGE, "workload", "random", "--mib", "48"];
    let output = run(&options, &program);
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("page-ins"),
        "{said}"
    );
    assert!(!said.contains("not paged"), "{said}");
}
