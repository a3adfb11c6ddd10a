//! What a run says of itself while it lasts and however it ends: counters, memory beside the limit, waiting.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

mod common;
use common::{OUTPAGE, can_page, compiled, outpage};

const SIGTERM: i32 = 15;

/// A run that says nothing for so long hangs: what is waited for comes every few seconds.
const HUNG: Duration = Duration::from_secs(240);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn words(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The counters in `file`, which holds whole ones at every moment.
fn counters(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("counters");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text:?}"))
}

/// Waits until the counters of a run that lasts are as `wanted`.
fn wait_for(file: &Path, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let now = counters(file);
        assert_eq!(now["complete"], false, "{now}");
        if wanted(&now) {
            return now;
        }
        assert!(began.elapsed() < HUNG, "{now}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A run of a program that says "ready" and goes on to the end of its input.
struct Run {
    child: Child,
    stats: PathBuf,
}

impl Run {
    fn start(directory: &Path, options: &[&str], program: &[&str]) -> Self {
        let stats = directory.join("stats.json");
        let mut command = outpage(&["run", "--stats", words(&stats)]);
        command.args(options).arg("--").args(program);
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("outpage");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("stdout");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { child, stats }
    }

    fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        self.child.wait_with_output().expect("outpage")
    }
}

/// `sh` that says its number and is ready; `cat` keeps it until the end of its input.
const READY: [&str; 3] = ["sh", "-c", "echo ready; cat; :"];

#[test]
fn counters_outlive_a_launcher_that_is_killed() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let mut run = Run::start(directory.path(), &["--memory", "64M"], &READY);
    let first = counters(&run.stats);
    assert_eq!(first["complete"], false);
    wait_for(&run.stats, |now| {
        now["elapsed_seconds"].as_f64() > Some(0.0)
    });
    run.child.kill().expect("kill");
    assert_eq!(run.child.wait().expect("wait").signal(), Some(9));
    let last = counters(&run.stats);
    assert_eq!(last["complete"], false);
    assert_eq!(
        (&last["exit_code"], &last["exit_signal"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(last["program"][0], "sh");
    let left = fs::read_dir(directory.path()).expect("directory").count();
    assert_eq!(left, 1, "something was left beside the counters");
}

#[test]
fn counters_of_a_program_that_is_killed_are_complete() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    for (signal, number) in [("KILL", 9), ("TERM", 15)] {
        let script = format!("echo ready; kill -{signal} $$; cat");
        let run = Run::start(
            directory.path(),
            &["--memory", "64M"],
            &["sh", "-c", &script],
        );
        let stats = run.stats.clone();
        assert_eq!(run.end().status.signal(), Some(number));
        let last = counters(&stats);
        assert_eq!(
            (&last["complete"], &last["exit_signal"]),
            (&Value::Bool(true), &number.into())
        );
    }
}

#[test]
fn counters_that_cannot_be_written_are_said_before_the_program_starts() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let place = words(directory.path());
    let script = "mount -t tmpfs -o size=4k none \"$1\" && shift && exec \"$@\"";
    let in_full = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", script, "sh", place])
            .args(program);
        command.output().expect("unshare")
    };
    if !in_full(&["true"]).status.success() {
        eprintln!("SKIPPED: no file system can be mounted here");
        return;
    }
    let file = format!("{place}/stats.json");
    let run = [
        "run", "--memory", "64M", "--stats", &file, "--", "echo", "it ran",
    ];
    let output = in_full(&[&[OUTPAGE], &run[..]].concat());
    let said = text(&output.stderr);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(74), String::new()),
        "{said}"
    );
    assert!(said.contains(&file) && said.lines().count() == 1, "{said}");
}

const MIB: u64 = 1 << 20;

/// The launcher is not to wait for ever for a reader, as one that is told to end.
#[test]
fn a_pipe_gets_its_counters_once_somebody_reads_and_a_signal_ends_the_wait() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let pipe = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let start = || {
        // Whoever runs the tests may ignore signals.
        let mut command = Command::new("env");
        command.args(["--default-signal", OUTPAGE, "run", "--stats"]);
        command
            .arg(&pipe)
            .args(["--memory", "64M", "--", "echo", "it ran"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("outpage");
        let mut said = [0; 7];
        let mut from = child.stdout.take().expect("stdout");
        from.read_exact(&mut said).expect("what it says");
        assert_eq!(&said, b"it ran\n");
        child
    };
    let mut read = start();
    let counters = fs::read_to_string(&pipe).expect("read");
    let counters: Value = serde_json::from_str(&counters).expect("one object");
    assert_eq!(counters["complete"], true);
    assert!(read.wait().expect("wait").success());
    let mut unread = start();
    let pid = unread.id().to_string();
    // The first ones may still be the program's.
    let ended = loop {
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("kill").success());
        std::thread::sleep(Duration::from_millis(20));
        if let Some(status) = unread.try_wait().expect("wait") {
            break status;
        }
    };
    assert_eq!(ended.signal(), Some(SIGTERM));
}

/// Memory that needs no pager to be seen: the summary names it, and claims no limit that did not hold.
#[test]
fn memory_that_is_not_paged_is_named() {
    let directory = tempfile::tempdir().expect("directory");
    let program = compiled(directory.path(), "unpaged");
    if !can_page() {
        return;
    }
    let file = directory.path().join("file");
    fs::write(&file, vec![1; 100 * MIB as usize]).expect("write");
    let stack = "ulimit -s 200000 && exec \"$0\" stack 100";
    // The limit lends itself to no stack and no file: what goes beyond it is 36 MiB at least.
    let cases: [(&str, &[&str], &str); 3] = [
        (
            "shared",
            &[words(&program), "shared", "100"],
            "shared memory",
        ),
        (
            "private",
            &[words(&program), "file", "100", words(&file)],
            "private memory",
        ),
        (
            "private",
            &["sh", "-c", stack, words(&program)],
            "private memory",
        ),
    ];
    for (kind, program, said) in cases {
        let run = Run::start(directory.path(), &["--memory", "64M"], program);
        let field = format!("peak_unpaged_{kind}_bytes");
        // Up to all of the limit is lent for what was mapped: 36 MiB at least go beyond it.
        wait_for(&run.stats, |now| {
            now[&field].as_u64() >= Some(30 * MIB)
                && now["peak_resident_bytes"].as_u64() >= Some(100 * MIB)
        });
        let stats = run.stats.clone();
        let output = run.end();
        let summary = text(&output.stderr);
        assert!(output.status.success(), "{summary}");
        assert!(!summary.contains("stayed within"), "{summary}");
        assert!(
            summary.contains("not paged") && summary.contains(said),
            "{summary}"
        );
        let last = counters(&stats);
        assert!(
            last["peak_unpaged_bytes"].as_u64() >= last[&field].as_u64(),
            "{last}"
        );
        assert_eq!(last["page_outs"], 0, "{last}");
    }
}

/// A program without a limit that a managed one starts.
#[test]
fn programs_without_a_limit_are_named() {
    if !can_page() {
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/unpaged.c");
    let program = directory.path().join("fixed");
    let built = Command::new("cc")
        .arg("-static")
        .arg(source)
        .arg("-o")
        .arg(&program)
        .output();
    if !built.is_ok_and(|b| b.status.success()) {
        eprintln!("SKIPPED: needs a C compiler that links statically");
        return;
    }
    let script = format!("{} heap 100; :", words(&program));
    let run = Run::start(
        directory.path(),
        &["--memory", "64M"],
        &["sh", "-c", &script],
    );
    wait_for(&run.stats, |now| {
        now["peak_unpaged_unlimited_bytes"].as_u64() >= Some(80 * MIB)
    });
    let summary = text(&run.end().stderr);
    assert!(
        summary.contains("programs that run without a limit"),
        "{summary}"
    );
    assert!(!summary.contains("stayed within"), "{summary}");
}

/// The same pages in several processes count once.
#[test]
fn memory_that_processes_share_counts_once() {
    let directory = tempfile::tempdir().expect("directory");
    if !can_page() {
        return;
    }
    let file = tempfile::NamedTempFile::new_in("/dev/shm");
    let Ok(file) = file else {
        eprintln!("SKIPPED: no /dev/shm");
        return;
    };
    fs::write(file.path(), vec![1; 40 * MIB as usize]).expect("write");
    let script = "exec python3 -c 'import mmap, os, sys\n\
         m = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 40 << 20)\n\
         forks = [os.fork() for i in range(3)]\n\
         sum(m[::4096]); all(forks) and print(\"ready\", flush=True); sys.stdin.read()' \"$1\"";
    if !common::has_python() {
        return;
    }
    let shared = ["sh", "-c", script, "sh", words(file.path())];
    let run = Run::start(directory.path(), &["--memory", "256M"], &shared);
    let now = wait_for(&run.stats, |now| {
        now["peak_unpaged_shared_bytes"].as_u64() >= Some(36 * MIB)
    });
    assert!(
        now["peak_unpaged_shared_bytes"].as_u64() <= Some(41 * MIB),
        "{now}"
    );
    let summary = text(&run.end().stderr);
    assert!(summary.contains("stayed within its 256 MiB"), "{summary}");
}

#[test]
fn a_run_that_thrashes_says_so_on_standard_error() {
    if !can_page() {
        return;
    }
    let random = [
        "workload",
        "random",
        "--mib",
        "64",
        "--touches",
        "100000000",
    ];
    let mut command = outpage(&["run", "--memory", "16M", "--", OUTPAGE]);
    let pipes = command
        .args(random)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("outpage");
    let stderr = BufReader::new(child.stderr.take().expect("stderr"));
    let mut lines = stderr.lines().map(|line| line.expect("text"));
    let line = lines.find(|line| line.starts_with("outpage: the program waits for pages"));
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill")
            .success()
    );
    let mut rest = String::new();
    lines.for_each(|line| rest += &line);
    assert_eq!(child.wait().expect("wait").signal(), Some(15));
    let line = line.unwrap_or_default();
    for part in ["page-ins a second", "16 MiB", "--memory"] {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    assert!(rest.contains("page-ins"), "the summary is complete: {rest}");
}
