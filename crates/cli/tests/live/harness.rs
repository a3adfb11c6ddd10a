//! Runs a program under a limit, watches its memory, and looks at what was counted.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

pub use crate::common::compiled;
use crate::common::outpage;

/// What a process may use beside its pages and their state, in bytes: the pager's fixed tables and stack,
/// and what is not managed, that is the loader, libc, small data segments and the main thread's stack.
/// `docs/run.md`, "Memory overhead", says as much. Measured at the most: 0.8 MiB in `fill` and `torture`, 1.5 MiB in python3 and sort.
const PROCESS_BYTES: u64 = 2 << 20;
/// State that the pager keeps of a page that was touched, in bytes: `docs/run.md` says how it adds up.
const PAGE_STATE_BYTES: u64 = 36;
/// The launcher, which is one process more. Measured: 0.46 MiB.
const LAUNCHER_BYTES: u64 = 1 << 20;
/// A run that takes longer hangs: the longest takes a tenth of it.
const HUNG: Duration = Duration::from_secs(240);
/// Between two looks at the program's memory.
const LOOK: Duration = Duration::from_millis(10);

/// What came of a run.
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub stats: Value,
    /// The most anonymous memory that the launcher and the programs had together at one look, less what
    /// each may use for itself.
    pub anonymous_bytes: u64,
    /// The same, of a page that a fork left shared each process's part: RSS counts it in both.
    pub proportional_bytes: u64,
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
        self.within(self.anonymous_bytes, 0)
    }

    /// The limit held at every look, pages that the pagers duplicated after a fork left out.
    pub fn within_limit_and_duplicates(&self) -> &Self {
        let duplicates_bytes = self.count("cow_duplicates") * 4096;
        self.within(self.proportional_bytes, duplicates_bytes)
    }

    fn within(&self, bytes: u64, duplicates_bytes: u64) -> &Self {
        let state_bytes = PAGE_STATE_BYTES * self.count("peak_touched_pages");
        let limit = self.count("limit_bytes") + state_bytes + duplicates_bytes;
        assert!(
            bytes <= limit,
            "{} KiB of anonymous memory, {} KiB allowed: {}",
            bytes >> 10,
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
    // Shared memory is part of the limit where it is paged.
    let resident = if options.contains(&"--shared") {
        &WITH_SHARED
    } else {
        &RESIDENT
    };
    let (output, [anonymous_bytes, proportional_bytes]) = watched(command, resident);
    let left = fs::read_dir(&swap).expect("directory").count();
    assert_eq!(left, 0, "the swap file has no name");
    let text = fs::read_to_string(&stats).expect("statistics");
    Done {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        stats: serde_json::from_str(&text).expect("JSON"),
        anonymous_bytes,
        proportional_bytes,
    }
}

/// A file of proc(5) for each process, and the lines of it that are added up.
struct Counted(&'static str, &'static [&'static str]);

const RESIDENT: Counted = Counted("status", &["RssAnon:"]);
const WITH_SHARED: Counted = Counted("status", &["RssAnon:", "RssShmem:"]);
/// It takes the kernel a walk over the page tables: looked at where RSS, which is never less, says that it may be more than before.
const PROPORTIONAL: Counted = Counted("smaps_rollup", &["Pss_Anon:"]);

/// Runs `command` in a process group of its own, whose memory is looked at every 10 ms: the most that is `resident`, and the most by [`PROPORTIONAL`].
fn watched(mut command: Command, resident: &Counted) -> (Output, [u64; 2]) {
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
            let (mut most, began) = ([0; 2], Instant::now());
            while !over.load(Ordering::Relaxed) {
                // Processes are looked at one after the other, and a frame that goes from one to the next meanwhile counts
                // twice. What is there is there the next moment, too.
                let look = |counted| anonymous_bytes(group, counted);
                let seen = look(resident);
                for (most, counted) in most.iter_mut().zip([resident, &PROPORTIONAL]) {
                    if seen > *most {
                        *most = (*most).max(seen.min(look(counted)).min(look(counted)));
                    }
                }
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

/// What these lines count, for the processes of a group together, less what each may use for itself.
fn anonymous_bytes(group: u32, &Counted(file, lines): &Counted) -> u64 {
    let (mut sum, mut count) = (0_u64, 0_u32);
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let path = process.path();
        let belongs = fs::read_to_string(path.join("stat")).is_ok_and(|stat| {
            // proc(5): the name in parentheses, then state, parent and group.
            let after_name = stat.rsplit(')').next().unwrap_or("");
            after_name.split_whitespace().nth(2) == Some(&group.to_string())
        });
        if belongs && let Ok(text) = fs::read_to_string(path.join(file)) {
            let counted = text.lines().filter_map(|line| {
                let rest = lines.iter().find_map(|name| line.strip_prefix(name))?;
                rest.split_whitespace().next()?.parse::<u64>().ok()
            });
            sum += counted.sum::<u64>() << 10;
            count += 1;
        }
    }
    let programs = u64::from(count.max(1) - 1);
    sum.saturating_sub(LAUNCHER_BYTES + programs * PROCESS_BYTES)
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
