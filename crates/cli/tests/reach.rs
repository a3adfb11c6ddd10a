//! Programs that fit and what they may do, programs that leave their session's reach, sessions that break.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

mod common;

use common::{can_page, compiled, outpage};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `alone`, compiled; `None` where nothing can be paged.
fn alone(directory: &Path) -> Option<String> {
    can_page().then(|| {
        let program = compiled(directory, "alone");
        program.to_str().expect("UTF-8").to_owned()
    })
}

fn run(memory: &str, program: &[&str]) -> Output {
    let mut command = outpage(&["run", "--memory", memory, "--"]);
    command.args(program).output().expect("outpage")
}

/// Runs a shell's script under a limit, with `$alone` set.
fn script(memory: &str, alone: &str, text: &str) -> Output {
    let mut command = outpage(&["run", "--memory", memory, "--", "sh", "-c", text]);
    command.env("alone", alone).output().expect("outpage")
}

const STAYED: &str = "the program stayed within";

/// Ended well, and nothing was paged.
fn assert_fits(output: &Output) {
    let errors = text(&output.stderr);
    // A shell may have something to say of its own.
    let ours: Vec<&str> = errors.lines().filter(|l| l.contains("outpage")).collect();
    assert!(
        output.status.success() && ours.len() == 1 && ours[0].contains(STAYED),
        "{:?}: {errors}",
        output.status
    );
}

#[test]
fn a_program_that_fits_sees_what_it_sees_alone() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(program) = alone(directory.path()) else {
        return;
    };
    let (out, errors) = (
        directory.path().join("out"),
        directory.path().join("errors"),
    );
    let watch = |command: &mut Command| {
        let create = |path| fs::File::create(path).expect("create");
        command.stdin(Stdio::null()).stdout(create(&out));
        let status = command.stderr(create(&errors)).status().expect("program");
        let read = |path| fs::read_to_string(path).expect("read");
        (read(&out), read(&errors), status)
    };
    let (native, ..) = watch(Command::new(&program).args(["watch", "64"]));
    let managed = ["run", "--memory", "256M", "--", &program, "watch", "64"];
    let (managed, said, status) = watch(&mut outpage(&managed));
    assert!(status.success() && said.lines().count() == 1, "{said}");
    let (native, managed) = (
        native.lines().collect::<Vec<_>>(),
        managed.lines().collect::<Vec<_>>(),
    );
    assert_eq!(managed.len(), 17, "{managed:?}");
    for (alone, here) in native.iter().zip(&managed).take(16) {
        assert_eq!(here.matches(" thread").count(), 1, "{here}");
        assert_eq!(alone, here);
    }
    if native[16] == "unshared" {
        assert_eq!(managed[16], "unshared");
    } else {
        eprintln!(
            "SKIPPED: user namespaces are forbidden here: {}",
            native[16]
        );
    }
}

#[test]
fn what_a_program_was_lent_comes_back_when_it_ends() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(alone) = alone(directory.path()) else {
        return;
    };
    let ends = "$alone fill 40 && $alone fill 40 && $alone fill 40";
    assert_fits(&script("64M", &alone, ends));
    let ready = directory.path().join("ready");
    let killed = format!(
        "$alone fill 40 {ready} & child=$!
        while ! test -e {ready}; do sleep 0.02; done
        kill -9 $child; wait $child; $alone fill 40",
        ready = ready.display()
    );
    assert_fits(&script("64M", &alone, &killed));
}

#[test]
fn a_program_that_another_takes_the_place_of_gives_its_part_back() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(alone) = alone(directory.path()) else {
        return;
    };
    // The shell has the number and start of the program before it, and a child that needs all.
    let small = "$alone exec 40 sh -c '$alone fill 40; :'";
    assert_fits(&script("64M", &alone, small));
    let large = "$alone exec 40 $alone exec 40 $alone fill 40";
    assert_fits(&script("64M", &alone, large));
}

#[test]
fn several_programs_at_once_share_what_there_is() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(alone) = alone(directory.path()) else {
        return;
    };
    let stats = directory.path().join("stats.json");
    let stats = stats.to_str().expect("UTF-8");
    let all = "for i in 1 2 3 4 5 6; do $alone fill 24 & done; wait";
    let options = ["run", "--memory", "64M", "--stats", stats, "--"];
    let mut command = outpage(&options);
    let output = command
        .args(["sh", "-c", all])
        .env("alone", &alone)
        .output();
    assert!(output.expect("outpage").status.success());
    let stats: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(stats).expect("stats")).expect("JSON");
    let peak = stats["peak_bytes"].as_u64().expect("a number");
    assert!(peak > 32 << 20 && peak <= 64 << 20, "{peak}");
}

/// Whether this process may do what a program does to leave its session's reach.
fn can_leave(alone: &str, how: &str) -> bool {
    let native = Command::new(alone).args(["leave", how, "1", "1"]).output();
    let native = native.expect("alone");
    tidy_up(&native);
    if !native.status.success() {
        eprintln!("SKIPPED: leaving by {how}: {}", text(&native.stderr));
    }
    native.status.success()
}

/// Removes the directory that the program made for itself.
fn tidy_up(output: &Output) {
    let said = text(&output.stdout);
    if said.starts_with("/var/tmp/alone-") {
        let _ = fs::remove_dir(said.trim_end());
    }
}

/// One line about it, by the process that left, and whatever it needs.
fn assert_runs_without_limit(alone: &str, how: &str, before: &str) {
    let output = run("16M", &[alone, "leave", how, before, "48"]);
    tidy_up(&output);
    let errors = text(&output.stderr);
    assert!(
        output.status.success(),
        "{how}: {:?}: {errors}",
        output.status
    );
    let left = "the session cannot be reached any more, after a change of user, root directory, \
                namespace or Landlock rules: this process runs without a limit";
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines[0].ends_with(left), "{how}: {errors}");
    // What it had in RAM beside the limit may have a row of its own.
    let rows = &lines[2..];
    assert!(
        lines[1].contains("nothing was paged")
            && rows.iter().all(|row| row.starts_with("  not paged")),
        "{how}: {errors}"
    );
}

#[test]
fn a_process_that_leaves_its_sessions_reach_says_so_once_and_goes_on() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(alone) = alone(directory.path()) else {
        return;
    };
    for how in ["user", "root", "userns", "pidns"] {
        if !can_leave(&alone, how) {
            continue;
        }
        // One that never asked for a part of the limit, and one that has one.
        for before in ["1", "8"] {
            assert_runs_without_limit(&alone, how, before);
        }
    }
    let stays = run("16M", &[&alone, "leave", "nothing", "8", "48"]);
    assert!(
        !text(&stays.stderr).contains("nothing was paged"),
        "it pages"
    );
}

/// A program under a limit that waits, having touched `mib`; its session's memfd and the launcher.
struct Waiting {
    launcher: std::process::Child,
    session: PathBuf,
}

impl Waiting {
    /// `after` is what the program does when the file `go` is there.
    fn start(directory: &Path, alone: &str, memory: &str, mib: &str, after: &str) -> Self {
        let text = format!(
            "echo $OUTPAGE_SESSION
            $alone fill {mib} {directory}/ready & child=$!
            while ! test -e {directory}/ready; do sleep 0.02; done; echo ready
            while ! test -e {directory}/go; do sleep 0.02; done
            {after}",
            directory = directory.display()
        );
        let mut command = outpage(&["run", "--memory", memory, "--", "sh", "-c", &text]);
        command.env("alone", alone).stdout(Stdio::piped());
        let mut launcher = command.stderr(Stdio::piped()).spawn().expect("outpage");
        let out = launcher.stdout.as_mut().expect("stdout");
        let lines: Vec<String> = BufReader::new(out)
            .lines()
            .map_while(Result::ok)
            .take(2)
            .collect();
        assert_eq!(lines[1], "ready");
        let session = PathBuf::from(&lines[0]);
        Self { launcher, session }
    }

    fn keeper(&self) -> PathBuf {
        self.session.ancestors().nth(2).expect("/proc/N").to_owned()
    }

    fn go(self, directory: &Path) -> Output {
        fs::write(directory.join("go"), "").expect("go");
        self.launcher.wait_with_output().expect("outpage")
    }
}

/// Waits until the process at this place of /proc has ended.
fn await_end(process: &Path) {
    let runs = || fs::read_to_string(process.join("comm")).is_ok_and(|name| name == "outpage\n");
    while runs() && !is_zombie(process) {
        std::thread::yield_now();
    }
}

fn is_zombie(process: &Path) -> bool {
    fs::read_to_string(process.join("stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn a_killed_keeper_ends_who_would_join_with_a_line() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(alone) = alone(directory.path()) else {
        return;
    };
    let after = "$alone fill 8; echo $?; kill -9 $child; wait $child; :";
    let waiting = Waiting::start(directory.path(), &alone, "64M", "8", after);
    let keeper = waiting.keeper();
    let number = keeper.file_name().expect("a number");
    let killed = Command::new("kill").arg("-9").arg(number).status();
    assert!(killed.expect("kill").success());
    await_end(&keeper);
    let output = waiting.go(directory.path());
    let errors = text(&output.stderr);
    assert!(errors.contains("keeper was killed"), "{errors}");
    assert!(!errors.contains("runs without a limit"), "{errors}");
}

#[test]
fn a_session_that_was_written_to_ends_its_pagers_with_a_line() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(alone) = alone(directory.path()) else {
        return;
    };
    let ready = directory.path().join("ready");
    let after = format!("touch {}.again; wait $child; :", ready.display());
    let waiting = Waiting::start(directory.path(), &alone, "16M", "32", &after);
    let keeper = waiting.keeper();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&waiting.session)
        .expect("the session");
    assert!(file.set_len(0).is_err(), "nobody makes it shorter");
    // All of it but the file's end: entries, counters, extents.
    let len = file.metadata().expect("length").len();
    let noise: Vec<u8> = (0..4096_u64)
        .map(|i| ((i * 2_654_435_761) >> 7) as u8)
        .collect();
    use std::os::unix::fs::FileExt;
    for at in (0..len - 4096).step_by(4096) {
        file.write_all_at(&noise, at).expect("write");
    }
    let output = waiting.go(directory.path());
    let errors = text(&output.stderr);
    assert!(errors.contains("the session is damaged"), "{errors}");
    assert!(errors.contains("the program ends"), "{errors}");
    assert_eq!(output.status.signal(), None, "{errors}");
    await_end(&keeper);
}

#[test]
fn a_fork_while_paging_without_proc_leaves_no_keeper() {
    let directory = tempfile::tempdir().expect("directory");
    let Some(alone) = alone(directory.path()) else {
        return;
    };
    if !can_leave(&alone, "root") {
        return;
    }
    let program = format!("echo $OUTPAGE_SESSION; {alone} forks 32");
    let output = run("16M", &["sh", "-c", &program]);
    let said = text(&output.stdout);
    let mut lines = said.lines();
    let session = lines.next().expect("the session's path");
    if let Some(root) = lines.next() {
        let _ = fs::remove_dir(root);
    }
    await_end(Path::new(session).ancestors().nth(2).expect("/proc/N"));
}
