//! `outpage status` on runs that last: found from outside by any of their processes, whatever becomes of these.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

mod common;
use common::asked::{json, refused, run};
use common::{OUTPAGE, can_page, outpage};

/// Held by whoever lists all runs, and by whoever has one that cannot be listed.
fn all_runs() -> MutexGuard<'static, ()> {
    static ALL: Mutex<()> = Mutex::new(());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run whose program does something and then waits.
struct Lasting {
    launcher: Child,
    input: Option<std::process::ChildStdin>,
}

impl Lasting {
    /// Starts `outpage run` of a shell that executes `command` and then waits for a line.
    fn new(command: &str) -> Self {
        let script = format!("{command}; echo ready; read line");
        let words = [
            "run", "--memory", "64M", "--quiet", "--", "sh", "-c", &script,
        ];
        let mut launcher = outpage(&words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("outpage");
        let lines = BufReader::new(launcher.stdout.take().expect("stdout")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the program ended");
        let input = launcher.stdin.take();
        Self { launcher, input }
    }

    fn status(&self, pid: u32) -> Value {
        json(&["status", "--json", "--pid", &pid.to_string()])
    }

    /// The process of the program, and the keeper.
    fn processes(&self) -> (u32, u32) {
        let launcher = self.launcher.id();
        let program = self.status(launcher)["pid"].as_u64().expect("a number") as u32;
        let children = format!("/proc/{launcher}/task/{launcher}/children");
        let children = fs::read_to_string(children).expect("children");
        let mut pids = children
            .split_whitespace()
            .map(|pid| pid.parse().expect("pid"));
        let keeper = pids.find(|&pid: &u32| pid != program).expect("a keeper");
        (program, keeper)
    }

    fn end(mut self) {
        // The program may have ended by itself.
        let _ = self.input.take().map(|mut input| input.write_all(b"\n"));
        self.launcher.wait().expect("wait");
    }
}

fn kill(pid: u32) {
    // SAFETY: sends a signal.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGKILL) }, 0);
    // A process that nobody waits for keeps its entry, but nothing that was open in it.
    let links = || fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |links| links.count());
    while links() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_run_is_seen_by_each_of_its_processes_with_all_its_counters() {
    if !can_page() {
        return;
    }
    let _all = all_runs();
    let lasting = Lasting::new(&format!("{OUTPAGE} workload sor --mib 96 >/dev/null"));
    let (program, keeper) = lasting.processes();
    for pid in [lasting.launcher.id(), keeper, program] {
        let seen = lasting.status(pid);
        assert_eq!(seen["pid"], program, "{seen}");
        assert_eq!(seen["program"][0], "sh", "{seen}");
        assert_eq!(seen["limit_bytes"], 64 << 20);
        // Of a process that is gone.
        assert!(seen["page_outs"].as_u64() > Some(0), "{seen}");
        assert!(seen["minor_fault_latency"]["count"].as_u64() > Some(0));
        assert_eq!(seen["resident_pages"], 0, "of those that live");
    }
    let all = json(&["status", "--json"]);
    let runs = all["runs"].as_array().expect("an array");
    assert_eq!(runs.iter().filter(|run| run["pid"] == program).count(), 1);
    let table = String::from_utf8(run(&["status"]).stdout).expect("UTF-8");
    let of_run = |line: &&str| line.trim_start().starts_with(&format!("{program} "));
    assert_eq!(table.lines().filter(of_run).count(), 1, "{table}");
    let whole = run(&["status", "--pid", &program.to_string()]).stdout;
    let whole = String::from_utf8(whole).expect("UTF-8");
    assert!(
        whole.contains("limit 64 MiB") && whole.contains("page_outs"),
        "{whole}"
    );
    let launcher = lasting.launcher.id();
    lasting.end();
    refused(
        &["status", "--pid", &launcher.to_string()],
        1,
        &["no such process"],
    );
}

#[test]
fn who_only_asks_for_memory_has_a_pager_and_who_uses_it_has_none() {
    if !can_page() || !common::has_python() {
        return;
    }
    // Of 64 MiB: 30 that are touched as they are asked for, few that are not touched, and many.
    let grower = "import time\nheap = [bytes(65536) + b'x' for _ in range(480)]";
    let asker =
        |mib: u32| format!("import mmap, time\nm = mmap.mmap(-1, {mib} << 20, mmap.MAP_PRIVATE)");
    let programs = [grower.to_owned(), asker(1), asker(48)].map(|program| {
        format!("python3 -c \"{program}\nopen('{{}}', 'w')\ntime.sleep(600)\" & pids=\"$pids $!\"")
    });
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let script: String = (programs.iter().enumerate())
        .map(|(at, program)| {
            let there = directory.path().join(at.to_string());
            let there = there.display().to_string();
            let program = program.replace("{}", &there);
            format!("{program}\nwhile kill -0 $! && ! [ -e {there} ]; do sleep 0.01; done\n")
        })
        .collect();
    let lasting = Lasting::new(&format!("pids=; {script} trap 'kill $pids' EXIT"));
    let seen = lasting.status(lasting.launcher.id());
    let processes = seen["processes"].as_array().expect("an array");
    let paging = processes.iter().filter(|one| one["state"] == "paging");
    assert_eq!(paging.count(), 1, "{seen}");
    let lent = |one: &Value| one["lent_bytes"].as_u64().expect("a number") >> 20;
    let without = processes.iter().filter(|one| one["state"] != "paging");
    assert!(without.map(lent).any(|mib| mib >= 30), "{seen}");
    lasting.end();
}

#[test]
fn a_run_without_a_keeper_is_seen_by_its_launcher() {
    if !can_page() {
        return;
    }
    let _all = all_runs();
    let lasting = Lasting::new(":");
    let (program, keeper) = lasting.processes();
    kill(keeper);
    assert_eq!(lasting.status(lasting.launcher.id())["pid"], program);
    let all = json(&["status", "--json"]);
    let runs = all["runs"].as_array().expect("an array");
    assert!(runs.iter().any(|run| run["pid"] == program), "{all}");
    lasting.end();
}

#[test]
fn a_session_that_a_process_wrote_over_is_one_line() {
    if !can_page() {
        return;
    }
    let _all = all_runs();
    let lasting = Lasting::new(":");
    let (program, keeper) = lasting.processes();
    let links = fs::read_dir(format!("/proc/{keeper}/fd")).expect("descriptors");
    let mut paths = links.map(|link| link.expect("a link").path());
    let is_session = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("outpage-session"))
    };
    let path = paths.find(is_session).expect("the session");
    let session = File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("open");
    let mut head = [0; 16];
    session.read_exact_at(&mut head, 0).expect("read");
    let pid = program.to_string();
    let mut condemned = head;
    condemned[..8].fill(0);
    for (damage, part) in [(condemned, "its head"), ([0xff; 16], "its head")] {
        session.write_all_at(&damage, 0).expect("write");
        refused(&["status", "--pid", &pid], 65, &["damaged", part]);
    }
    let mut newer = head;
    newer[8] += 1;
    session.write_all_at(&newer, 0).expect("write");
    refused(
        &["status", "--pid", &pid],
        65,
        &["another version of outpage"],
    );
    session.write_all_at(&head, 0).expect("write");
    assert_eq!(lasting.status(program)["pid"], program);
    lasting.end();
}

#[test]
fn what_cannot_be_printed_is_one_line_and_a_reader_that_left_is_none() {
    let printed = |what: &[&str], out: Stdio| {
        let mut command = outpage(what);
        let output = command.stdout(out).stderr(Stdio::piped()).spawn();
        let output = output.and_then(Child::wait_with_output).expect("outpage");
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        (output.status.code(), text.lines().count())
    };
    for what in [
        &["completions", "bash"][..],
        &["--help"],
        &["run", "--help"],
    ] {
        let full = File::options().write(true).open("/dev/full");
        assert_eq!(
            printed(what, full.expect("/dev/full").into()),
            (Some(74), 1)
        );
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(printed(what, writer.into()), (Some(0), 0));
    }
}

#[test]
fn processes_without_a_run_are_one_line() {
    let own = std::process::id().to_string();
    refused(&["status", "--pid", &own], 1, &[&own, "no run"]);
    // Beyond the largest number that Linux gives (proc(5): pid_max).
    refused(&["status", "--pid", "4194305"], 1, &["no such process"]);
    refused(&["status", "--pid=-1"], 64, &["--pid"]);
    refused(&["status", "--pid", "job"], 64, &["--pid"]);
}
