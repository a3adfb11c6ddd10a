//! Signals under `outpage run`: the program gets what it would have had without, once.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

mod common;
use common::{OUTPAGE, can_page, compiled, outpage};

/// HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CONT, TSTP, WINCH and a real-time signal.
const PASSED_ON: [i32; 11] = [1, 2, 3, 10, 12, 14, 15, 18, 20, 28, 40];

/// A program that says which signals it gets, in a process group of its own; its end is that of its input.
struct Told {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// What it found blocked and ignored.
    masks: [String; 2],
}

impl Told {
    fn start(mut command: Command) -> Self {
        command.process_group(0);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().expect("a program");
        let mut told = Self {
            lines: BufReader::new(child.stdout.take().expect("stdout")),
            child,
            masks: Default::default(),
        };
        told.masks = [told.line(), told.line()];
        assert_eq!(told.line(), "ready");
        told
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn kill(&self, signal: &str) {
        kill(signal, &self.child.id().to_string());
    }

    /// Ends the program; returns what it has said beyond what was read.
    fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("wait").success());
        self.lines.lines().map(|line| line.expect("text")).collect()
    }
}

fn kill(signal: &str, pid: &str) {
    let done = Command::new("kill").args([signal, "--", pid]).status();
    assert!(done.expect("kill").success(), "kill {signal} {pid}");
}

fn numbers() -> Vec<String> {
    PASSED_ON.iter().map(i32::to_string).collect()
}

/// Whether the tests can run, and where the program is.
fn program(directory: &tempfile::TempDir) -> Option<String> {
    let program = compiled(directory.path(), "signals");
    can_page().then(|| program.to_str().expect("UTF-8").to_owned())
}

const RUN: [&str; 5] = ["run", "--memory", "64M", "--quiet", "--"];

/// As a script starts a job in the background, nohup a program, and Python any: with signals ignored.
#[test]
fn a_signal_ignored_at_the_start_reaches_a_handler_installed_since() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(program) = program(&directory) else {
        return;
    };
    let ignoring = |words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP INT QUIT TERM PIPE; exec \"$@\"", "sh"]);
        command.args(words).arg(&program).args(numbers());
        Told::start(command)
    };
    let free = ignoring(&[]);
    let mut told = ignoring(&[&[OUTPAGE], &RUN[..]].concat());
    assert_eq!(
        told.masks, free.masks,
        "the program starts with other dispositions"
    );
    free.end();
    for signal in numbers() {
        told.kill(&format!("-{signal}"));
        assert_eq!(told.line(), signal);
    }
    assert_eq!(told.end(), [""; 0], "a signal arrived twice");
}

#[test]
fn queued_values_and_blocked_masks_pass_through() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(program) = program(&directory) else {
        return;
    };
    let blocking = |words: &[&str]| {
        // env(1) of coreutils 8.31.
        let mut command = Command::new("env");
        command.args(["--block-signal=USR1,CHLD,TERM", "--ignore-signal=USR2"]);
        command.args(words).arg(&program).args(numbers());
        Told::start(command)
    };
    let free = blocking(&[]);
    let mut told = blocking(&[&[OUTPAGE], &RUN[..]].concat());
    assert_eq!(
        told.masks, free.masks,
        "the program starts with another mask"
    );
    free.end();
    // kill(1) of util-linux or procps 3.3.16: -q queues a value.
    let pid = told.child.id().to_string();
    let queued = Command::new("/bin/kill")
        .args(["-q", "77", "-s", "USR1", &pid])
        .status();
    if queued.is_ok_and(|status| status.success()) {
        assert_eq!(told.line(), "10 77");
    } else {
        eprintln!("SKIPPED: this kill queues no value");
    }
    told.kill("-TERM");
    assert_eq!(told.line(), "15");
    assert_eq!(told.end(), [""; 0]);
}

#[test]
fn the_two_signals_of_the_c_library_are_as_they_were() {
    if !can_page() {
        return;
    }
    let me = std::fs::metadata("/proc/self").expect("/proc").uid();
    let ignored = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        // Has the standard library start it by fork: by posix_spawn(3) it would ignore them itself.
        command.uid(me);
        let output = command.output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let set = text
            .trim()
            .strip_prefix("SigIgn:\t")
            .expect("a set of signals");
        u64::from_str_radix(set, 16).expect("hexadecimal")
    };
    let look = ["grep", "SigIgn", "/proc/self/status"];
    let free = ignored(&look);
    if free >> 31 & 3 == 3 {
        return eprintln!("SKIPPED: this test is run by a program that ignores both");
    }
    let paged = ignored(&[&[OUTPAGE], &RUN[..], &look].concat());
    assert_eq!(paged, free);
}

/// `perl -e 'alarm 5; exec ...'`: the alarm is the launcher's, and meant for the program.
#[test]
fn an_alarm_set_before_the_launcher_reaches_the_program() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(program) = program(&directory) else {
        return;
    };
    if !Command::new("perl")
        .args(["-e", "1"])
        .status()
        .is_ok_and(|s| s.success())
    {
        eprintln!("SKIPPED: perl is not installed");
        return;
    }
    let mut command = Command::new("perl");
    command.args(["-e", "alarm 2; exec @ARGV", "--", OUTPAGE]);
    command.args(RUN).arg(&program).arg("14");
    let mut told = Told::start(command);
    assert_eq!(told.line(), "14");
    told.end();
}

/// `kill 0` in a script, and what a process that it started sends to the group: the program has it as a member of the group.
#[test]
fn what_the_program_sends_to_its_group_arrives_once() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(program) = program(&directory) else {
        return;
    };
    let mut command = outpage(&RUN);
    command.args([&program, "10", "12"]);
    let mut told = Told::start(command);
    for by in [b"g", b"c"] {
        let input = told.child.stdin.as_mut().expect("its input");
        input.write_all(by).expect("it reads");
        assert_eq!(told.line(), "10");
        // What the launcher passed on before would come before.
        told.kill("-USR2");
        assert_eq!(told.line(), "12");
    }
    assert!(told.end().is_empty());
}

/// The state letter of process `pid`.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or("");
    after_name.chars().next().unwrap_or('?')
}

fn child_of(pid: u32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let mut pids = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    let is_cat = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "cat\n")
    };
    pids.find(is_cat).unwrap_or(0)
}

/// Ctrl-Z and fg, as a shell sees and does them.
#[test]
fn a_stopped_program_stops_its_launcher_and_goes_on_with_it() {
    if !can_page() {
        return;
    }
    let mut command = outpage(&[&RUN[..], &["cat"]].concat());
    command.process_group(0).stdin(Stdio::piped());
    let mut child = command.spawn().expect("outpage");
    let launcher = child.id();
    while child_of(launcher) == 0 {
        std::thread::yield_now();
    }
    let program = child_of(launcher);
    // To the launcher alone, and to the group, as a terminal's key.
    for (to, back) in [
        (launcher.to_string(), launcher.to_string()),
        (format!("-{launcher}"), format!("-{launcher}")),
    ] {
        kill("-TSTP", &to);
        while (state(launcher), state(program)) != ('T', 'T') {
            std::thread::yield_now();
        }
        kill("-CONT", &back);
        while state(launcher) == 'T' || state(program) == 'T' {
            std::thread::yield_now();
        }
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("wait").success());
}

/// A shell's terminal, by `script` of util-linux; what is said there, a line at a time.
struct Terminal {
    shell: Child,
    said: mpsc::Receiver<String>,
}

/// A shell that waits in vain says nothing more.
const PATIENCE: Duration = Duration::from_secs(120);

impl Terminal {
    fn open() -> Self {
        let shell = Command::new("script")
            .args(["-qec", "bash --norc --noprofile -i", "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut shell = shell.expect("script, which Debian never lacks (bsdutils)");
        let (says, said) = mpsc::channel();
        let lines = BufReader::new(shell.stdout.take().expect("stdout")).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| says.send(line))
        });
        Self { shell, said }
    }

    fn say(&mut self, line: &str) {
        let input = self.shell.stdin.as_mut().expect("its input");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Waits for a line with `text`.
    fn hears(&self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line = self.said.recv_timeout(PATIENCE).expect(text);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// `suspend` in a shell, and whatever else stops itself by SIGSTOP in the foreground: the shell outside goes on, and `fg` continues it.
#[test]
fn a_job_that_stops_itself_in_the_foreground_gives_the_terminal_back() {
    if !can_page() {
        return;
    }
    let mut terminal = Terminal::open();
    let run = format!("{OUTPAGE} {}", RUN.join(" "));
    let stops = "sh -c 'kill -STOP $$; echo goes-$((40+2))'";
    terminal.say(&format!("{run} {stops}"));
    terminal.say("echo outside-$((40+3))");
    terminal.hears("outside-43");
    terminal.say("fg");
    terminal.hears("goes-42");
    terminal.say("exit 0");
    assert!(terminal.shell.wait().expect("wait").success());
}

#[test]
fn a_server_that_is_told_to_end_takes_its_socket_along() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    for signal in ["-TERM", "-INT", "-HUP"] {
        // Whoever runs the tests may ignore some, and a server leaves that so.
        let mut command = Command::new("env");
        let settings = ["--default-signal", OUTPAGE, "serve", "--memory", "4M"];
        let settings = command.args(settings).arg("--socket").arg(&socket);
        let mut child = settings.stderr(Stdio::piped()).spawn().expect("a server");
        let mut line = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("stderr"));
        lines.read_line(&mut line).expect("a line");
        assert!(line.contains("clients"), "{line}");
        assert!(socket.exists());
        kill(signal, &child.id().to_string());
        assert_eq!(child.wait().expect("an end").code(), Some(0));
        assert!(!socket.exists(), "{signal}");
    }
}
