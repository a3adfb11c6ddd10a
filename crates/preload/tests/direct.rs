//! Programs in direct mode: the hooks see everything, and change nothing that a program can tell.
//!
//! The programs are C, compiled when the tests run; each checks itself. Without a C compiler the
//! tests are skipped, and say so.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

mod common;

use common::{Program, succeed, under_shim};

fn run(program: &Program, arguments: &[&str]) -> Vec<Trace> {
    succeed(program.command().args(arguments));
    traces(&program.trace_file())
}

/// One line of the trace: a process that exited.
type Trace = HashMap<String, String>;

fn traces(file: &Path) -> Vec<Trace> {
    let text = std::fs::read_to_string(file).expect("trace file");
    let pair = |word: &str| {
        word.split_once('=')
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
    };
    text.lines()
        .map(|line| line.split(' ').filter_map(pair).collect())
        .collect()
}

fn number(trace: &Trace, name: &str) -> u64 {
    trace[name].parse().expect("a number")
}

/// Every mapping was seen to come, and every one that went was seen to go.
fn assert_nothing_missed(trace: &Trace) {
    assert_eq!(
        (number(trace, "missed_bytes"), number(trace, "stale_bytes")),
        (0, 0),
        "{trace:?}"
    );
    assert_eq!(trace["mode"], "Direct");
}

#[test]
fn memory_that_libc_asks_for_itself_is_seen() {
    let Some(program) = Program::compile("allocate") else {
        return;
    };
    let traces = run(&program, &[]);
    let [trace] = &traces[..] else {
        panic!("one process: {traces:?}")
    };
    assert_nothing_missed(trace);
    // 20 large blocks, 100 stacks; 3 MB of small ones; 6 doublings of 1 MiB.
    assert!(number(trace, "mmap") >= 120, "{trace:?}");
    assert!(number(trace, "brk") >= 10, "{trace:?}");
    assert!(number(trace, "mremap") >= 6, "{trace:?}");
    assert!(number(trace, "mprotect") >= 100, "{trace:?}");
    // What it still holds: ten large blocks, the small ones, and the one that grew to 64 MiB.
    // How much is reserved beside it depends on how many arenas the threads met in.
    const HELD_BYTES: u64 = (10 << 20) + 3000 * 1000 + (64 << 20);
    assert!(number(trace, "counted_bytes") >= HELD_BYTES, "{trace:?}");
}

#[test]
fn results_and_errno_are_those_of_libc() {
    let Some(program) = Program::compile("results") else {
        return;
    };
    let plain = Command::new(program.path()).output().expect("program");
    assert!(
        plain.status.success(),
        "without the shim: {}",
        String::from_utf8_lossy(&plain.stderr)
    );
    assert_nothing_missed(&run(&program, &[])[0]);
}

#[test]
fn pages_that_the_kernel_reads_later_are_copied() {
    let Some(program) = Program::compile("references") else {
        return;
    };
    run(&program, &[]);
}

#[test]
fn children_of_every_kind_run_and_count_for_themselves() {
    let Some(program) = Program::compile("children") else {
        return;
    };
    let traces = run(&program, &[]);
    // The child and the grandchild that exit; the others leave by _exit. The parent is last.
    assert_eq!(traces.len(), 3, "{traces:?}");
    traces.iter().for_each(assert_nothing_missed);
    // fork, twice by number, and clone.
    assert_eq!(number(&traces[2], "fork"), 4, "{traces:?}");
    let pids: std::collections::HashSet<_> = traces.iter().map(|t| &t["pid"]).collect();
    assert_eq!(pids.len(), 3);
}

#[test]
fn programs_started_with_any_environment_have_the_shim() {
    let Some(program) = Program::compile("execute") else {
        return;
    };
    let output = program
        .command()
        .env_remove("OUTPAGE_TRACE_HOOKS")
        .output()
        .expect("program");
    let errors = String::from_utf8_lossy(&output.stderr);
    // The loader complains about the library that does not exist, and goes on.
    let complaints = errors
        .lines()
        .filter(|line| !line.contains("/lib/none.so"))
        .count();
    assert!(
        output.status.success() && complaints == 0,
        "{:?}: {errors}",
        output.status
    );
}

#[test]
fn handlers_may_interrupt_hooks() {
    let Some(program) = Program::compile("signals") else {
        return;
    };
    run(&program, &[]);
    succeed(program.command().env_remove("OUTPAGE_TRACE_HOOKS"));
}

#[test]
fn large_data_segments_become_anonymous() {
    let Some(program) = Program::compile("data") else {
        return;
    };
    run(&program, &[]);
    // Without the shim they belong to the file.
    succeed(Command::new(program.path()).arg("plain"));
}

#[test]
fn without_a_limit_libc_is_untouched() {
    let Some(program) = Program::compile("unpatched") else {
        return;
    };
    succeed(program.command().env_remove("OUTPAGE_MEMORY"));
    assert!(!program.trace_file().exists());
    let patched = program.command().status().expect("program");
    assert!(!patched.success(), "the program does not notice the patch");
}

#[test]
fn a_bad_setting_is_one_line_and_the_program_runs() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut command = under_shim(Path::new("/bin/echo"), &folder.path().join("trace"));
    let output = command
        .arg("fine")
        .env("OUTPAGE_MEMORY", "3 bananas")
        .output()
        .expect("echo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"fine\n");
    assert!(
        errors.lines().count() == 1 && errors.contains("OUTPAGE_MEMORY"),
        "{errors}"
    );
}

#[test]
fn common_programs_are_seen_whole() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let numbers: String = (0..400_000_u32)
        .map(|n| format!("{}\n", n.reverse_bits()))
        .collect();
    let (input, trace) = (folder.path().join("numbers"), folder.path().join("trace"));
    std::fs::write(&input, numbers).expect("input");
    let sort = |command: &mut Command| succeed(command.arg("-n").arg(&input)).stdout;
    let plain = sort(&mut Command::new("sort"));
    assert!(
        sort(&mut under_shim(Path::new("sort"), &trace)) == plain,
        "sort's output differs"
    );
    let traces = traces(&trace);
    assert_nothing_missed(&traces[0]);
}
