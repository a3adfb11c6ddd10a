//! Everything a user can get wrong with `outpage run`: one clear line, its exit code, nothing left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod common;
use common::{OUTPAGE, compiled, outpage};

/// One line on standard error that starts with "outpage: " and has these parts, and the exit code.
fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("outpage: "), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(output.stdout.is_empty(), "the program ran");
}

fn refused(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = outpage(arguments).output().expect("outpage");
    assert_refused(&output, code, parts);
}

fn run_with<'a>(option: &'a [&'a str]) -> Vec<&'a str> {
    [&["run"], option, &["--", "echo", "it ran"]].concat()
}

#[test]
fn sizes() {
    for (size, parts) in [
        ("0", ["'0'", "8 MiB"]),
        ("0G", ["'0G'", "8 MiB"]),
        ("8191K", ["'8191K'", "8 MiB"]),
        ("256", ["'256'", "256M"]),
        ("lots", ["'lots'", "256M"]),
        ("-1G", ["'-1G'", "negative"]),
        ("4X", ["'4X'", "K, M, G, T"]),
        (
            "99999999999999999999G",
            ["'99999999999999999999G'", "too large"],
        ),
    ] {
        refused(&run_with(&[&format!("--memory={size}")]), 64, &parts);
    }
    refused(
        &run_with(&["--memory", "64M", "--swap-cap", "1M"]),
        64,
        &["'1M'", "16 MiB"],
    );
}

#[test]
fn options() {
    let memory = ["--memory", "64M"];
    let with = |option: &'static str, value: &'static str| [&memory[..], &[option, value]].concat();
    refused(
        &run_with(&with("--pageout", "lifo")),
        64,
        &["lifo", "mclustering", "moc"],
    );
    for option in ["--swap", "--stats", "--faults", "--pageout"] {
        refused(&run_with(&with(option, "")), 64, &[option]);
    }
    refused(
        &run_with(&with("--reclaim", "bsd-6.2")),
        64,
        &["referenced bits", "s3-fifo"],
    );
    refused(
        &run_with(&with("--reclaim", "s3-fifo:small=100")),
        64,
        &["small", "'100'", "1 to 99"],
    );
    refused(
        &run_with(&with("--readahead", "psychic")),
        64,
        &["psychic", "linux-slot"],
    );
    refused(&run_with(&with("--slots", "heap")), 64, &["heap", "blist"]);
    refused(
        &run_with(&with("--mechanism", "magic")),
        64,
        &["magic", "auto, move, write-protect"],
    );
    refused(
        &run_with(&with("--store", "tape")),
        64,
        &["tape", "auto, uring, pool"],
    );
    refused(
        &run_with(&with("--encrypt", "rot13")),
        64,
        &["rot13", "auto, on, off"],
    );
    refused(&run_with(&with("--window", "0")), 64, &["'0'", "1 to 256"]);
    refused(
        &run_with(&with("--window", "257")),
        64,
        &["'257'", "1 to 256"],
    );
    refused(
        &run_with(&with("--chunk", "1025")),
        64,
        &["'1025'", "1 to 1024"],
    );
    refused(
        &run_with(&with("--chunk", "many")),
        64,
        &["'many'", "1 to 1024"],
    );
    refused(&run_with(&["--memory"]), 64, &["--memory"]);
    refused(&run_with(&with("--frobnicate", "1")), 64, &["--frobnicate"]);
    refused(&["frobnicate"], 64, &["frobnicate", "see `outpage --help`"]);
    refused(
        &["bench", "kernel", "--frobnicate"],
        64,
        &["see `outpage bench kernel --help`"],
    );
}

#[test]
fn no_limit_and_no_program() {
    refused(&run_with(&[]), 64, &["--memory 4G"]);
    refused(&["run", "--memory", "64M"], 64, &["PROGRAM"]);
    refused(&["run", "--memory", "64M", "--"], 64, &["PROGRAM"]);
}

#[test]
fn bad_variables_are_named() {
    for (name, value) in [
        ("OUTPAGE_MEMORY", "zero"),
        ("OUTPAGE_PAGEOUT", "lifo"),
        ("OUTPAGE_WINDOW", "0"),
    ] {
        let output = outpage(&run_with(&[]))
            .env("OUTPAGE_MEMORY", "64M")
            .env(name, value)
            .output();
        assert_refused(&output.expect("outpage"), 64, &[name, value]);
    }
}

#[test]
fn programs_that_cannot_run() {
    let directory = tempfile::tempdir().expect("directory");
    let write = |name: &str, content: &str, mode| {
        let path = directory.path().join(name);
        fs::write(&path, content).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        path.to_str().expect("UTF-8").to_owned()
    };
    let run = |program: &str, code, parts: &[&str]| {
        refused(&["run", "--memory", "64M", "--", program], code, parts)
    };
    run(
        "no-such-program-anywhere",
        127,
        &["no-such-program-anywhere"],
    );
    run(
        &format!("{}/absent", directory.path().display()),
        127,
        &["absent"],
    );
    run(
        directory.path().to_str().expect("UTF-8"),
        126,
        &["directory"],
    );
    run(
        &write("data", "#!/bin/sh\n", 0o644),
        126,
        &["execute permission"],
    );
    run(&write("text", "text", 0o755), 126, &["#!"]);
    run(
        &write("orphan", "#!/no/such/interpreter\n", 0o755),
        126,
        &["/no/such/interpreter"],
    );
}

#[test]
fn programs_that_cannot_be_managed() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("fixed");
    // The header of a 64-bit x86-64 program without segments, so without a dynamic loader.
    let mut header = [0_u8; 64];
    header[..5].copy_from_slice(b"\x7fELF\x02");
    header[18] = 62;
    fs::write(&path, header).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    let path = path.to_str().expect("UTF-8");
    let parts = ["statically linked", "--allow-unmanaged"];
    refused(&["run", "--memory", "64M", "--", path], 126, &parts);
}

#[test]
fn swap_directories() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("write");
    let swap = |path: &str, parts: &[&str]| {
        refused(&run_with(&["--memory", "64M", "--swap", path]), 66, parts)
    };
    swap(
        "/no/such/directory",
        &["/no/such/directory", "does not exist", "--swap"],
    );
    swap(file.to_str().expect("UTF-8"), &["no directory"]);
    swap("/dev/shm", &["/dev/shm", "tmpfs", "--swap"]);
    swap("/proc", &["/proc", "no file can be made", "--swap"]);
    let circle = directory.path().join("circle");
    std::os::unix::fs::symlink(&circle, &circle).expect("link");
    swap(circle.to_str().expect("UTF-8"), &["circle", "--swap"]);
    swap(&"x".repeat(5000), &["name too long", "--swap"]);
}

/// Runs `script` as root in mount namespace of its own; `None`, said aloud, where that cannot be.
fn in_own_mounts(script: &str, directory: &Path) -> Option<Output> {
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(OUTPAGE)
        .arg(directory)
        .output();
    match output {
        Ok(output) if output.status.code() != Some(77) && output.status.code() != Some(1) => {
            Some(output)
        }
        _ => {
            eprintln!("SKIPPED: needs root, unshare, mkfs.ext4 and loop devices");
            None
        }
    }
}

#[test]
fn a_read_only_swap_directory() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let script =
        "{ mount --bind \"$2\" \"$2\" && mount -o remount,bind,ro \"$2\"; } 2>/dev/null || exit 77
                  exec \"$1\" run --memory 64M --swap \"$2\" -- echo it ran";
    if let Some(output) = in_own_mounts(script, directory.path()) {
        assert_refused(&output, 66, &["read-only", "--swap"]);
    }
}

#[test]
fn a_full_swap_directory() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let script = "{ cd \"$2\" && mkdir m && truncate -s 8M disk && mkfs.ext4 -q disk && mount -o loop disk m; } >/dev/null 2>&1 || exit 77
                  exec \"$1\" run --memory 64M --swap \"$2/m\" -- echo it ran";
    if let Some(output) = in_own_mounts(script, directory.path()) {
        assert_refused(&output, 74, &["full", "16 MiB", "--swap"]);
    }
}

#[test]
fn a_stack_too_small_for_rust_is_none_for_the_command() {
    // Of the stack arguments and environment have their part.
    let script = "ulimit -s 64; \"$0\" --version >&2 && exec \"$0\" run -m 64M -- no-such-program";
    let mut command = Command::new("sh");
    command.env_clear().args(["-c", script, OUTPAGE]);
    let output = command.output().expect("sh");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(
        said.starts_with("outpage ") && said.contains("no-such-program"),
        "{said}"
    );
}

#[test]
fn a_limit_on_the_size_of_files() {
    let script = "ulimit -f 2000; exec \"$0\" run --memory 64M -- echo it ran";
    let mut command = Command::new("sh");
    let output = command.args(["-c", script, OUTPAGE]).output();
    assert_refused(&output.expect("sh"), 69, &["16 MiB", "ulimit -f"]);
}

/// A copy that another user may execute, with any file in place of the library, and a swap directory.
fn copied(directory: &Path) -> (PathBuf, PathBuf) {
    let (program, swap) = (directory.join("outpage"), directory.join("swap"));
    // By a process of its own: what this one has open for writing while another test forks cannot be executed.
    let copy = Command::new("cp").arg(OUTPAGE).arg(&program).status();
    assert!(copy.expect("cp").success());
    fs::write(directory.join("liboutpage_preload.so"), "").expect("write");
    fs::create_dir(&swap).expect("mkdir");
    for open in [directory, &swap] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    (program, swap)
}

fn assert_empty(directory: &Path) {
    let left = fs::read_dir(directory).expect("directory").count();
    assert_eq!(left, 0, "something is left in {}", directory.display());
}

/// Runs Outpage where there is no `/dev/userfaultfd` and userfaultfd(2) gives `error`.
fn without_userfaultfd(error: i32, container: bool, parts: &[&str]) {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let (program, swap) = copied(directory.path());
    let mut command = Command::new(compiled(directory.path(), "forbid"));
    command.arg(error.to_string()).arg(&program);
    command
        .args(["run", "--memory", "64M", "--swap"])
        .arg(&swap);
    command.args(["--", "echo", "it ran"]);
    // Container managers that follow systemd's interface set it.
    command.env_remove("container");
    command.envs(container.then_some(("container", "test")));
    let output = command.output().expect("forbid");
    if output.status.code() == Some(77) {
        return eprintln!("SKIPPED: needs root, mount namespaces and seccomp");
    }
    assert_refused(&output, 69, parts);
    assert_empty(&swap);
}

#[test]
fn a_kernel_without_userfaultfd() {
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        return eprintln!("SKIPPED: a container is given another remedy");
    }
    let parts = ["no userfaultfd", "CONFIG_USERFAULTFD"];
    without_userfaultfd(libc::ENOSYS, false, &parts);
}

#[test]
fn a_container_that_forbids_userfaultfd() {
    let parts = ["no userfaultfd", "--device /dev/userfaultfd"];
    without_userfaultfd(libc::EPERM, true, &parts);
}

/// Makes a memory cgroup of 32 MiB under either version's interface and joins it; the subshell leaves it
/// with its end, so that it can be removed.
const IN_SMALL_CGROUP: &str = r#"
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    for file in memory.limit_in_bytes memory.max; do
        group=$root/outpage-test-$$
        mkdir $group 2>/dev/null || continue
        if echo 32M 2>/dev/null >$group/$file; then
            (echo 0 >$group/cgroup.procs && exec "$@"); code=$?
            rmdir $group
            exit $code
        fi
        rmdir $group
    done
done
exit 77"#;

#[test]
fn a_container_limit_below_what_is_asked_for() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let (program, swap) = copied(directory.path());
    let mut command = Command::new("sh");
    command.args(["-c", IN_SMALL_CGROUP, "sh"]).arg(&program);
    command
        .args(["run", "--memory", "64M", "--swap"])
        .arg(&swap);
    let output = { command.args(["--", "echo", "it ran"]) }.output();
    let output = output.expect("sh");
    if output.status.code() == Some(77) {
        return eprintln!("SKIPPED: needs root and a memory cgroup controller");
    }
    let parts = ["64 MiB", "32 MiB", "container's limit", "outpage-test-"];
    assert_refused(&output, 69, &parts);
    assert_empty(&swap);
}

#[test]
fn a_kernel_that_forbids_userfaultfd() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let (program, swap) = copied(directory.path());
    let nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
    ];
    let mut command = Command::new("setpriv");
    command
        .args(nobody)
        .arg(&program)
        .args(["run", "--memory", "64M", "--swap"])
        .arg(&swap);
    let output = command.args(["--", "echo", "it ran"]).output();
    let may_open =
        fs::metadata("/dev/userfaultfd").is_ok_and(|m| m.permissions().mode() & 0o006 == 0o006);
    let unprivileged =
        fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|s| s.trim() == "1");
    match output {
        Ok(output) if output.status.code() != Some(1) && !may_open && !unprivileged => {
            assert_refused(&output, 69, &["userfaultfd", "as root", "setfacl"]);
            assert_empty(&swap);
        }
        _ => {
            eprintln!("SKIPPED: needs root, setpriv, and a machine that forbids others userfaultfd")
        }
    }
}

#[test]
fn a_file_for_counters_that_cannot_be_written() {
    let output = outpage(&run_with(&[
        "--memory",
        "64M",
        "--stats",
        "/no/such/directory/f",
    ]));
    let output = { output }.output().expect("outpage");
    // 69 where the library is not built or userfaultfd is missing: those come first.
    if output.status.code() != Some(69) {
        assert_refused(&output, 74, &["--stats", "/no/such/directory/f"]);
    }
}

#[test]
fn nothing_is_left_behind() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let swap = directory.path().to_str().expect("UTF-8");
    refused(
        &[
            "run",
            "--memory",
            "64M",
            "--swap",
            swap,
            "--",
            "no-such-program-anywhere",
        ],
        127,
        &[],
    );
    assert_empty(directory.path());
}

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = outpage(arguments).output().expect("outpage");
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty());
    }
    let help = outpage(&["run", "--help"]).output().expect("outpage");
    let help = String::from_utf8_lossy(&help.stdout);
    for part in [
        "Exit codes",
        "126",
        "--swap-cap",
        "mclustering",
        "linux-slot",
    ] {
        assert!(help.contains(part), "{part:?} is not in the help");
    }
}
