//! One run of a workload: start it (in a cgroup or not), watch it, say how it ended.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use outpage_sys::process;
use serde::Serialize;

use super::cgroup::Cgroup;
use super::{BenchError, tools};
use crate::workload::{self, Report};

/// How often swap use is looked at; short enough to catch it before a killed process is gone.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How much of a failed program's last words is kept, in bytes.
const LAST_WORDS_BYTES: usize = 600;
/// Exit status of the wrapper when a process cannot be moved into the cgroup.
const NOT_MOVED: i32 = 125;
/// Moves itself into the cgroup whose `cgroup.procs` is the first argument, then becomes the rest.
const INTO_CGROUP: &str = "echo $$ >\"$1\" || exit 125; shift; exec \"$@\"";
/// SIGKILL on every Linux port.
const SIGKILL: i32 = 9;

/// A workload and the options that fix it, by the short name of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// As given: `sor`, `moc4`, `lu-sparse`.
    pub label: String,
    arguments: Vec<String>,
}

impl Spec {
    /// Memory that the workload touches with this footprint, in bytes: MOC's microbenchmark touches the
    /// pages that it skipped as well, a transform a power of two.
    pub fn touches_bytes(&self, footprint_mib: u32) -> u64 {
        let bytes = u64::from(footprint_mib) << 20;
        match self.label.split(':').next() {
            Some(name) if name.starts_with("moc") => 2 * bytes,
            Some("fft") => 1 << bytes.ilog2(),
            _ => bytes,
        }
    }

    /// Parses a short name: a workload's name; `moc1` to `moc16` name the cluster size as well,
    /// `lu-sparse` starts from nbench's almost empty rows. Options of the workload may follow, as in
    /// `column:arrays=2:writes`.
    ///
    /// # Errors
    /// A sentence that lists the names, or why there is no such option.
    pub fn parse(label: &str) -> Result<Self, String> {
        let mut parts = label.split(':');
        let mut arguments = Self::named(parts.next().unwrap_or_default())?;
        for option in parts {
            let (key, value) = option
                .split_once('=')
                .map_or((option, None), |(k, v)| (k, Some(v)));
            arguments.push(format!("--{key}"));
            arguments.extend(value.map(str::to_owned));
        }
        workload::check(&arguments).map_err(|why| format!("{label}: {why}"))?;
        Ok(Self {
            label: label.to_owned(),
            arguments,
        })
    }

    /// The name and the options that a name without options stands for.
    fn named(name: &str) -> Result<Vec<String>, String> {
        const PLAIN: [&str; 17] = [
            "sor",
            "lu",
            "random",
            "seq",
            "hotset",
            "graph",
            "alloc",
            "compute",
            "latency",
            "column",
            "transpose",
            "fft",
            "zigzag",
            "join",
            "merge",
            "runs",
            "phases",
        ];
        let words = |text: &[&str]| Ok(text.iter().map(|&word| word.to_owned()).collect());
        let cluster = name.strip_prefix("moc").and_then(|n| n.parse::<u32>().ok());
        match cluster {
            Some(cluster @ 1..=16) => words(&["moc", "--cluster", &cluster.to_string()]),
            _ if name == "lu-sparse" => words(&["lu", "--sparse"]),
            _ if PLAIN.contains(&name) => words(&[name]),
            _ => Err(format!(
                "no workload {name:?}; there are moc1 to moc16, lu-sparse, {}",
                PLAIN.join(", ")
            )),
        }
    }

    /// This program as the workload, touching `mib` MiB.
    ///
    /// # Errors
    /// When this program's own file cannot be found.
    pub fn command(&self, mib: u32) -> Result<Vec<OsString>, BenchError> {
        let mut command = vec![this_program()?.into_os_string(), "workload".into()];
        command.extend(self.arguments.iter().map(OsString::from));
        command.extend(["--mib".into(), mib.to_string().into()]);
        Ok(command)
    }
}

/// This program's own file.
///
/// # Errors
/// When it cannot be found.
pub fn this_program() -> Result<PathBuf, BenchError> {
    std::env::current_exe().map_err(|error| {
        BenchError::Failed(format!("cannot find this program's own file: {error}"))
    })
}

/// How `outpage run` is to be called.
#[derive(Clone, Debug)]
pub struct OutpageRun<'a> {
    /// The limit, in bytes.
    pub limit_bytes: u64,
    /// Directory of the swap file.
    pub swap: &'a Path,
    /// Further options, as given.
    pub options: &'a [String],
    /// Where the counters go.
    pub stats: &'a Path,
}

impl OutpageRun<'_> {
    /// Puts `outpage run` in front of a program.
    ///
    /// # Errors
    /// When this program's own file cannot be found.
    pub fn wrap(&self, program: Vec<OsString>) -> Result<Vec<OsString>, BenchError> {
        let mut command = vec![this_program()?.into_os_string(), "run".into()];
        command.extend([
            "--memory".into(),
            format!("{}K", self.limit_bytes >> 10).into(),
        ]);
        command.extend([
            "--swap".into(),
            self.swap.into(),
            "--stats".into(),
            self.stats.into(),
            "--quiet".into(),
        ]);
        command.extend(self.options.iter().map(OsString::from));
        command.push("--".into());
        command.extend(program);
        Ok(command)
    }
}

/// How a run ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ending {
    /// The workload reported.
    Finished {
        /// What it printed.
        report: Report,
    },
    /// The kernel's OOM killer ended it.
    OomKilled {
        /// KiB of swap in use the last time before the end that it was looked at.
        swap_used_kib: u64,
    },
    /// It was killed because it took longer than allowed.
    TimedOut,
    /// It failed, or printed no report.
    Failed {
        /// Exit status or signal, and its last words.
        what: String,
    },
}

/// One run, measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// How it ended.
    pub ending: Ending,
    /// Elapsed seconds from the start of the command to its end.
    pub wall_seconds: f64,
    /// CPU seconds, user and system, of the command and all its descendants that were waited for.
    pub cpu_seconds: f64,
    /// The most KiB of kernel swap that were seen in use.
    pub swap_peak_kib: u64,
    /// The most memory charged to the cgroup, in bytes.
    pub cgroup_peak_bytes: Option<u64>,
}

/// Runs the workload `command`, in `cgroup` if given, and measures it. Kills it after `timeout`.
///
/// # Errors
/// When it cannot be started or moved into the cgroup. A program that fails is no error here.
pub fn launch(
    command: &[OsString],
    cgroup: Option<&Cgroup>,
    timeout: Duration,
) -> Result<Run, BenchError> {
    launch_as(command, cgroup, timeout, Speaks::Report)
}

/// What a program prints on standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// A workload's report.
    Report,
    /// Anything; the report says what it was, as a checksum, and how long the program took.
    Anything,
}

/// As [`launch`], for any program.
///
/// # Errors
/// As [`launch`].
pub fn launch_as(
    command: &[OsString],
    cgroup: Option<&Cgroup>,
    timeout: Duration,
    speaks: Speaks,
) -> Result<Run, BenchError> {
    let cpu_before = process::children_cpu();
    let start = Instant::now();
    let mut child = spawn(command, cgroup)?;
    let (done, ended) = mpsc::channel::<()>();
    let pid = child.id();
    let errors = child.stderr.take();
    let (output, last_words, watched, status) = std::thread::scope(|scope| {
        let last_words = scope.spawn(move || read_all(errors));
        let watch = scope.spawn(move || {
            watch(&ended, start + timeout, || {
                cgroup.map_or_else(|| tools::descendants(pid), Cgroup::pids)
            })
        });
        let output = read_all(child.stdout.take());
        let status = child.wait();
        drop(done);
        (
            output,
            last_words.join().unwrap_or_default(),
            watch.join().unwrap_or_default(),
            status,
        )
    });
    let status = status.map_err(|error| BenchError::Failed(format!("lost a run: {error}")))?;
    if cgroup.is_some() && status.code() == Some(NOT_MOVED) {
        return Err(BenchError::Lacks(format!(
            "cannot move a process into the memory cgroup: {}",
            last_words.trim()
        )));
    }
    let wall_seconds = start.elapsed().as_secs_f64();
    let report = match speaks {
        Speaks::Report => said(&output),
        Speaks::Anything => Some(Report::of_output(&output, wall_seconds)),
    };
    Ok(Run {
        ending: ending(status, report, &last_words, &watched, cgroup),
        wall_seconds,
        cpu_seconds: (process::children_cpu().0 - cpu_before.0) as f64 / 1e9,
        swap_peak_kib: watched.swap_peak_kib,
        cgroup_peak_bytes: cgroup.and_then(Cgroup::peak_bytes),
    })
}

fn spawn(command: &[OsString], cgroup: Option<&Cgroup>) -> Result<Child, BenchError> {
    let mut process = match cgroup {
        None => Command::new(&command[0]),
        Some(cgroup) => {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", INTO_CGROUP, "sh"])
                .arg(cgroup.procs())
                .arg(&command[0]);
            shell
        }
    };
    process
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            BenchError::Failed(format!("cannot start {}: {error}", command[0].display()))
        })
}

fn read_all(source: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // An error ends the output early; a report that was cut does not parse.
    let _ = source.map(|mut source| source.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the watching thread saw.
#[derive(Clone, Copy, Default, Debug)]
struct Watched {
    swap_peak_kib: u64,
    swap_last_kib: u64,
    timed_out: bool,
}

/// Looks at the machine's swap until the run has ended, and ends it at `deadline`.
fn watch(ended: &mpsc::Receiver<()>, deadline: Instant, family: impl Fn() -> Vec<u32>) -> Watched {
    let mut watched = Watched::default();
    while ended.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let used = tools::active_swaps().iter().map(|(_, kib)| kib).sum();
        if used > 0 {
            watched.swap_last_kib = used;
        }
        watched.swap_peak_kib = watched.swap_peak_kib.max(used);
        if Instant::now() >= deadline {
            watched.timed_out = true;
            tools::kill(&family());
        }
    }
    watched
}

/// The report of a workload, its last words.
fn said(output: &str) -> Option<Report> {
    let mut lines = output.lines().rev();
    lines.find_map(|line| serde_json::from_str::<Report>(line).ok())
}

fn ending(
    status: ExitStatus,
    report: Option<Report>,
    last_words: &str,
    watched: &Watched,
    cgroup: Option<&Cgroup>,
) -> Ending {
    let oom_killed = cgroup.is_some_and(|cgroup| cgroup.oom_kills() > 0);
    match report {
        // Of a pipeline one process may have been killed, and the last one end well.
        Some(report) if status.success() && !oom_killed => return Ending::Finished { report },
        _ if watched.timed_out => return Ending::TimedOut,
        _ if oom_killed => {
            return Ending::OomKilled {
                swap_used_kib: watched.swap_last_kib,
            };
        }
        _ => {}
    }
    let tail = last_words.trim();
    let start = (0..=tail.len().saturating_sub(LAST_WORDS_BYTES))
        .rev()
        .find(|&at| tail.is_char_boundary(at))
        .unwrap_or(0);
    let how = match (status.code(), status.signal()) {
        (Some(0), _) => "it printed no report".to_owned(),
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(SIGKILL)) => {
            "killed (SIGKILL), by somebody else than the OOM killer of its cgroup".to_owned()
        }
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    };
    Ending::Failed {
        what: format!("{how}: {}", &tail[start..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names() {
        assert_eq!(
            Spec::parse("moc16").unwrap().arguments,
            ["moc", "--cluster", "16"]
        );
        assert_eq!(
            Spec::parse("lu-sparse").unwrap().arguments,
            ["lu", "--sparse"]
        );
        assert_eq!(
            Spec::parse("column:arrays=2:writes").unwrap().arguments,
            ["column", "--arrays", "2", "--writes"]
        );
        let touches = |label, mib| Spec::parse(label).unwrap().touches_bytes(mib) >> 20;
        assert_eq!(touches("fft:breadth", 100), 64);
        assert_eq!((touches("moc4", 100), touches("join", 100)), (200, 100));
        for bad in [
            "moc",
            "moc0",
            "moc17",
            "",
            "SOR",
            "column:arrays=3",
            "column:colour=2",
            "seq:mib=3=4",
        ] {
            assert!(Spec::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_program_without_a_report_has_failed() {
        let run = |script: &str, timeout| {
            let command: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
            launch(&command, None, timeout).unwrap().ending
        };
        let minute = Duration::from_secs(60);
        let silent = run("exit 0", minute);
        assert!(
            matches!(&silent, Ending::Failed { what } if what.contains("no report")),
            "{silent:?}"
        );
        let failed = run("echo bad luck >&2; exit 3", minute);
        assert!(
            matches!(&failed, Ending::Failed { what } if what == "exit status 3: bad luck"),
            "{failed:?}"
        );
        assert_eq!(run("sleep 50 & wait", Duration::ZERO), Ending::TimedOut);
    }

    #[test]
    fn what_another_program_prints_is_its_checksum() {
        let run = |script: &str| {
            let command: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
            let minute = Duration::from_secs(60);
            let run = launch_as(&command, None, minute, Speaks::Anything).unwrap();
            match run.ending {
                Ending::Finished { report } => Some((report.checksum, report.total.seconds > 0.0)),
                _ => None,
            }
        };
        let one = run("echo one").unwrap();
        assert!(one.1);
        assert_eq!(run("printf 'one\\n'").unwrap().0, one.0);
        assert_ne!(run("echo two").unwrap().0, one.0);
        assert_eq!(run("echo one; exit 1"), None);
    }
}
