//! Shared anonymous memory of several processes (`--shared tree`): one limit, every byte right in each of them, whoever made it and whoever is gone.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::Case;
use crate::common::outpage;

/// What a process may use beside its pages, as in `harness`.
const PROCESS_BYTES: u64 = 2 << 20;

fn tree(case: &Case, how: &[&str]) {
    let program = case.compiled("tree");
    let arguments = [&[program.as_str(), "14", "3", "3", "7"], how].concat();
    let done = case.run(&["--memory", "9M", "--shared", "tree"], &arguments);
    let right = done.stdout.contains(" 0 wrong,");
    assert!(right, "{how:?}: {}{}", done.stdout, done.stderr);
    done.paged_well();
    // What is counted is a moment old.
    let unpaged = done.count("peak_unpaged_shared_bytes");
    assert!(unpaged < 1 << 20, "{how:?}: {unpaged} bytes");
}

/// Each page is written by one and read by another, and counters are raised by all at once.
pub fn processes_share_what_is_paged(case: &Case) {
    for how in [&["move"][..], &["move", "again"]] {
        tree(case, how);
    }
}

/// What is done to the memory is seen as it is without Outpage.
pub fn shared_memory_of_several_is_as_without(case: &Case) {
    let program = case.compiled("lent");
    let alone = Command::new(&program)
        .args(["16", "all"])
        .current_dir(case.directory)
        .output()
        .expect("the program");
    assert!(alone.status.success());
    let done = case.run(
        &["--memory", "10M", "--shared", "tree"],
        &[&program, "16", "all"],
    );
    let expected = String::from_utf8_lossy(&alone.stdout);
    assert_eq!(done.stdout, expected, "{}", done.stderr);
    done.paged_well();
}

/// What only one process has is paged so as well, and what no hook sees ends the process before it could see a wrong byte.
pub fn shared_memory_of_one_at_home(case: &Case) {
    let program = case.compiled("shared");
    let run = |what: &str| {
        let options = ["--memory", "8M", "--shared", "tree"];
        case.run(&options, &[&program, "32", what])
    };
    for what in [
        "threads",
        "advice",
        "partly",
        "direct",
        "forkearly",
        "alias",
        "cut",
        "rawfork",
    ] {
        let done = run(what);
        assert!(
            done.status.success() && done.stdout.ends_with("ok\n"),
            "{what}: {}{}",
            done.stdout,
            done.stderr
        );
        done.paged_well();
    }
    for (what, said) in [
        ("rawremove", "may have emptied it"),
        ("rawdontneed", "may have emptied it"),
        ("rawalias", "mapped it a second time"),
    ] {
        let done = run(what);
        let ended = done.status.signal() == Some(libc::SIGKILL);
        let told = done.stderr.contains(said) && done.stderr.lines().count() == 1;
        assert!(ended && told, "{what}: {}{}", done.stdout, done.stderr);
    }
}

/// What cannot be read back is a signal to each process that touches it, and no zeroes.
pub fn lost_shared_memory_signals(case: &Case) {
    let program = case.compiled("tree");
    let faults = ["--tier", "none", "--faults", "seed=7,read=1000"];
    let options = [&["--memory", "9M", "--shared", "tree"][..], &faults].concat();
    let done = case.run(&options, &[&program, "24", "2", "3", "7"]);
    assert_eq!(done.stdout, "a process ended badly\n", "{}", done.stderr);
    assert!(!done.stderr.contains("page "), "{}", done.stderr);
    assert!(done.count("poisoned") > 0, "{}", done.stats);
}

/// A line of /proc/PID/status, in bytes.
fn status_bytes(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.map_or(0, |kib| kib.parse::<u64>().expect("a number") << 10)
}

/// Those whose parent is `pid`.
fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    let numbers = text.split_whitespace();
    numbers.map(|pid| pid.parse().expect("a number")).collect()
}

/// The child of the launcher that has memory mapped which is shared.
fn home_of(launcher: u32) -> Option<u32> {
    children(launcher).into_iter().find(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
        name.is_ok_and(|name| name == "outpage\n")
            && maps.is_ok_and(|maps| maps.contains("/memfd:outpage-shared"))
    })
}

/// `tree` with 48 MiB under 24M; it runs for long enough.
fn started(case: &Case) -> Child {
    let program = case.compiled("tree");
    let swap = case.directory.join("swap");
    fs::create_dir_all(&swap).expect("directory");
    outpage(&["run", "--quiet", "--memory", "24M", "--shared", "tree"])
        .arg("--swap")
        .arg(&swap)
        .args(case.how)
        .args(["--", &program, "48", "3", "4", "9"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("outpage")
}

/// The home has a frame of the limit for each page, and all pages that are in RAM.
pub fn shared_memory_keeps_to_the_limit(case: &Case) {
    let mut run = started(case);
    let (mut most, mut looks) = (0, 0);
    while run.try_wait().expect("wait").is_none() {
        if let Some(home) = home_of(run.id()) {
            let bytes = |pid| status_bytes(pid, "RssAnon:").saturating_sub(PROCESS_BYTES);
            let program = children(run.id()).into_iter().filter(|&pid| pid != home);
            let all = program.flat_map(|pid| [children(pid), vec![pid]].concat());
            let private: u64 = all.map(bytes).sum();
            let now = private + bytes(home) + status_bytes(home, "RssShmem:");
            most = most.max(now);
            looks += 1;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let done = run.wait_with_output().expect("output");
    assert!(done.status.success(), "{done:?}");
    assert!(looks > 10, "{looks} looks");
    assert!(most > 12 << 20, "{most} bytes: something was looked at");
    assert!(most <= 25 << 20, "{most} bytes within 24 MiB and a half");
}

/// Who keeps the memory is gone: each process ends with a line, and none with a byte that it did not write.
pub fn without_its_home_a_process_ends(case: &Case) {
    let run = started(case);
    let home = loop {
        if let Some(home) = home_of(run.id()) {
            break home;
        }
        thread::sleep(Duration::from_millis(10));
    };
    thread::sleep(Duration::from_secs(1));
    let killed = Command::new("kill")
        .args(["-KILL", &home.to_string()])
        .status();
    assert!(killed.expect("kill").success());
    let done = run.wait_with_output().expect("output");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.signal(), Some(libc::SIGKILL), "{said}");
    let line = "the process that keeps the run's shared memory has ended; the program ends";
    assert!(said.lines().all(|said| said.ends_with(line)), "{said}");
    assert!(said.lines().count() >= 3, "{said}");
    assert!(!said.contains("page "), "{said}");
}
