//! What a program's pages look like in its swap file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{self, outpage};

/// Twice its limit in pages that each begin with these words, of which it says when they are written, then reads them all
/// again when told, in a child too.
const PROGRAM: &str = "\
import mmap, os, sys
pages = 8192
memory = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
words = lambda i: b'nobody else may read this, page %6d ' % i * 100
for i in range(pages):
    memory[i * 4096:(i + 1) * 4096] = words(i)[:4096].ljust(4096, b'.')
print('written', flush=True)
sys.stdin.read(1)
child = os.fork()
right = all(memory[i * 4096:(i + 1) * 4096] == words(i)[:4096].ljust(4096, b'.') for i in range(pages))
if child == 0:
    os._exit(0 if right else 1)
print(right, os.waitpid(child, 0)[1], flush=True)
";
const PATTERN: &[u8] = b"nobody else may read this, page ";

/// The program, stopped where its pages are written.
struct Written {
    child: Child,
    swap: PathBuf,
}

fn written(directory: &Path, how: &[&str]) -> Written {
    let script = directory.join("script.py");
    fs::write(&script, PROGRAM).expect("write");
    let mut child = outpage(&["run", "--memory", "16M", "--swap"])
        .arg(directory)
        .args(how)
        .args(["--", "/usr/bin/python3"])
        .arg(&script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("outpage");
    let mut line = [0; 8];
    let out = child.stdout.as_mut().expect("a pipe");
    out.read_exact(&mut line)
        .expect("the program writes its pages");
    assert_eq!(&line, b"written\n");
    let swap = swap_file(directory);
    Written { child, swap }
}

/// A descriptor of the swap file, which has no name: among those of the processes of this test's program.
fn swap_file(directory: &Path) -> PathBuf {
    let device = fs::metadata(directory).expect("directory").dev();
    let deleted = |path: &PathBuf| {
        let link = fs::read_link(path).unwrap_or_default();
        let inside = link.starts_with(directory);
        let file = fs::metadata(path);
        inside && file.is_ok_and(|file| file.is_file() && file.nlink() == 0 && file.dev() == device)
    };
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let tables = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok());
    let mut files = tables.flat_map(|table| table.flatten().map(|entry| entry.path()));
    files
        .find(deleted)
        .expect("somebody has the swap file open")
}

/// How often the pattern is in the file, as whoever takes the disk sees it.
fn found(swap: &Path) -> usize {
    let file = File::open(swap).expect("swap file");
    let (mut count, mut at, mut page) = (0, 0, [0; 4096]);
    while let Ok(4096) = file.read_at(&mut page, at) {
        count += usize::from(page.windows(PATTERN.len()).any(|part| part == PATTERN));
        at += 4096;
    }
    count
}

impl Written {
    /// Lets the program read its pages; they must be right, in its child as well.
    fn finish(mut self) -> String {
        let mut stdin = self.child.stdin.take().expect("a pipe");
        stdin.write_all(b"x").expect("the program reads");
        drop(stdin);
        let output = self.child.wait_with_output().expect("output");
        let (out, err) = (output.stdout, output.stderr);
        let err = String::from_utf8_lossy(&err).into_owned();
        assert_eq!(String::from_utf8_lossy(&out), "True 0\n", "{err}");
        err
    }
}

fn with_directory(test: fn(&Path)) {
    if !common::can_page() {
        return super::harness::skipped("programs cannot be paged here");
    }
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    test(directory.path());
}

#[test]
fn plain_pages_lie_open() {
    with_directory(|directory| {
        let program = written(directory, &["--encrypt", "off"]);
        // Half of the pages do not fit, and what is in RAM may be in the file as well.
        assert!(found(&program.swap) > 4000);
        let summary = program.finish();
        assert!(summary.contains(", not encrypted, page-out"), "{summary}");
    });
}

#[test]
fn encrypted_pages_do_not() {
    with_directory(|directory| {
        for how in [
            &["--encrypt"][..],
            &["--encrypt", "on", "--mechanism", "write-protect"],
        ] {
            let program = written(directory, how);
            let blocks = fs::metadata(&program.swap).expect("swap file").blocks();
            assert!(blocks * 512 > 16 << 20, "pages were written");
            assert_eq!(found(&program.swap), 0, "{how:?}");
            let summary = program.finish();
            assert!(summary.contains(", encrypted, page-out"), "{summary}");
        }
    });
}

/// The key's page is locked in the keeper, which outlives every process that needs it.
#[test]
fn the_keeper_holds_the_key_in_ram() {
    with_directory(|directory| {
        let program = written(directory, &["--encrypt"]);
        let keeper = keeper_of(program.child.id());
        let status = fs::read_to_string(format!("/proc/{keeper}/status")).expect("keeper");
        let locked = status.lines().find(|line| line.starts_with("VmLck:"));
        assert_eq!(
            locked.map(|line| line.split_whitespace().nth(1)),
            Some(Some("4")),
            "{status}"
        );
        program.finish();
    });
}

/// The keeper that `launcher` made, which is a copy of it, once it waits for the end.
fn keeper_of(launcher: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"));
    let children = children.expect("children");
    let mut numbers = children
        .split_whitespace()
        .map(|n| n.parse().expect("a number"));
    let stat = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).expect("a child");
    let keeper = numbers
        .find(|&pid| stat(pid).contains("(outpage)"))
        .expect("a keeper");
    // It sleeps nowhere before.
    while !stat(keeper).contains(") S ") {
        std::thread::yield_now();
    }
    keeper
}

/// Without RAM to lock: refused where encryption was asked for, told where it is the default.
#[test]
fn without_lockable_ram_it_says_so() {
    if !common::can_page() {
        return super::harness::skipped("programs cannot be paged here");
    }
    let run = |how: &str| {
        let script = format!("ulimit -l 0; exec \"$@\" --encrypt {how} -- /bin/echo here");
        // SAFETY: takes nothing, cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        // Root may lock whatever it likes.
        let less = [
            "setpriv",
            "--bounding-set",
            "-ipc_lock",
            "--inh-caps",
            "-ipc_lock",
        ];
        let words = less.into_iter().filter(|_| root);
        let words: Vec<&str> = words.chain(["sh", "-c", &script, "sh"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command.args([
            common::OUTPAGE,
            "run",
            "--memory",
            "16M",
            "--swap",
            "/var/tmp",
        ]);
        command.output()
    };
    let Ok(on) = run("on") else {
        return super::harness::skipped("there is no setpriv");
    };
    let text = String::from_utf8_lossy(&on.stderr).into_owned();
    assert_eq!(on.status.code(), Some(69), "{text}");
    assert!(
        text.lines().count() == 1 && text.contains("ulimit -l"),
        "{text}"
    );
    let told = |how: &str| {
        let done = run(how).expect("setpriv");
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && done.stdout == b"here\n", "{text}");
        text.contains("the swap file is not encrypted") && text.contains("ulimit -l")
    };
    assert_eq!(told("auto"), outpage_store::Cipher::is_fast());
    assert!(!told("off"), "as asked for");
}
