//! Runs a program under a limit, watches its memory, and looks at what was counted.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::outpage;

/// What a process may use beside its pages, in bytes: the pager's arena and stack, the loader, libc,
/// data segments too small to be managed, the main thread's stack.
pub const OVERHEAD_BYTES: u64 = 8 << 20;
/// State that the pager keeps of a page that was ever touched, in bytes.
pub const PAGE_STATE_BYTES: u64 = 32;
/// A run that takes longer hangs: the longest takes a tenth of it.
const HUNG: Duration = Duration::from_secs(240);
/// Between two looks at the program's memory.
const LOOK: Duration = Duration::from_millis(10);

/// Compiles `tests/programs/NAME.c` once for this run of the tests.
pub fn compiled(directory: &Path, name: &str) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/programs/{name}.c"));
    let program = directory.join(name);
    let cc = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(
        cc.expect("cc, which Rust needs too").success(),
        "{name}.c does not compile"
    );
    program
}

/// What came of a run.
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub stats: Value,
    /// The most anonymous memory that the programs had at one look, less the overhead of each.
    pub anonymous_bytes: u64,
}

impl Done {
    /// A counter of the summary.
    pub fn count(&self, name: &str) -> u64 {
        self.stats[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name} in {}", self.stats))
    }

    /// The program ended well, and pages really went out and came back.
    pub fn paged_well(&self) -> &Self {
        assert!(
            self.status.success(),
            "{}: {}{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self.paged()
    }

    /// Pages went out and came back.
    pub fn paged(&self) -> &Self {
        assert!(
            self.count("page_outs") > 0 && self.count("page_ins") > 0,
            "nothing was paged: {}",
            self.stats
        );
        self
    }

    /// The limit held at every look.
    pub fn within_limit(&self) -> &Self {
        let limit = self.count("limit_bytes") + PAGE_STATE_BYTES * self.count("peak_touched_pages");
        assert!(
            self.anonymous_bytes <= limit,
            "{} KiB of anonymous memory, {} KiB allowed: {}",
            self.anonymous_bytes >> 10,
            limit >> 10,
            self.stats
        );
        self
    }
}

/// `outpage run OPTIONS --stats FILE -- PROGRAM`, with the swap file in `directory`.
pub fn run(directory: &Path, options: &[&str], program: &[&str]) -> Done {
    let (stats, swap) = (directory.join("stats.json"), directory.join("swap"));
    let _ = fs::remove_file(&stats);
    fs::create_dir_all(&swap).expect("directory");
    let mut command = outpage(&["run", "--quiet", "--swap"]);
    command
        .arg(&swap)
        .arg("--stats")
        .arg(&stats)
        .args(options)
        .arg("--")
        .args(program);
    let (output, anonymous_bytes) = watched(command);
    let left = fs::read_dir(&swap).expect("directory").count();
    assert_eq!(left, 0, "the swap file has no name");
    let text = fs::read_to_string(&stats).expect("statistics");
    Done {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        stats: serde_json::from_str(&text).expect("JSON"),
        anonymous_bytes,
    }
}

/// Runs `command` in a process group of its own, whose memory is looked at every 10 ms.
fn watched(mut command: Command) -> (Output, u64) {
    let pipes = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = pipes.spawn().expect("outpage");
    let group = child.id();
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let looker = threads.spawn(|| {
            let (mut most, began) = (0, Instant::now());
            while !over.load(Ordering::Relaxed) {
                most = most.max(anonymous_bytes(group));
                if began.elapsed() > HUNG {
                    let _ = Command::new("kill")
                        .args(["-KILL", "--", &format!("-{group}")])
                        .status();
                    panic!("the program hangs");
                }
                thread::sleep(LOOK);
            }
            most
        });
        let output = child.wait_with_output().expect("output");
        over.store(true, Ordering::Relaxed);
        (output, looker.join().expect("looker"))
    })
}

/// Anonymous memory of the processes of a group, launcher and keeper apart, less each one's overhead.
fn anonymous_bytes(group: u32) -> u64 {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let mut sum = 0;
    for process in processes {
        let path = process.path();
        let belongs = fs::read_to_string(path.join("stat")).is_ok_and(|stat| {
            // proc(5): the name in parentheses, then state, parent and group.
            let after_name = stat.rsplit(')').next().unwrap_or("");
            !stat.contains("(outpage)")
                && after_name.split_whitespace().nth(2) == Some(&group.to_string())
        });
        if belongs && let Ok(status) = fs::read_to_string(path.join("status")) {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("RssAnon:"));
            let kib = line
                .and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
                .unwrap_or(0);
            sum += (kib << 10).saturating_sub(OVERHEAD_BYTES);
        }
    }
    sum
}

/// Says aloud that something was not tested.
pub fn skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
}

/// Whether `program` can be run here; says so if not.
pub fn have(program: &str) -> bool {
    let found = Command::new("which")
        .arg(program)
        .output()
        .is_ok_and(|o| o.status.success());
    if !found {
        skipped(&format!("{program} is not installed"));
    }
    found
}
