//! Room of the swap file that is not needed any more goes back, to the file system and to other processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::Case;
use crate::common::outpage;

/// A file that has not become smaller after this time never does: it takes 7 s on an idle machine.
const NEVER: Duration = Duration::from_secs(120);

/// The swap file in `directory`, by a descriptor of process `pid`: it has no name.
fn swap_file(pid: u32, directory: &Path) -> PathBuf {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let mut links = links.map(|link| link.expect("a link").path());
    let within = |link: &PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(directory));
    links.find(within).expect("the launcher has the swap file")
}

fn disk_bytes(file: &Path) -> u64 {
    fs::metadata(file).expect("the swap file").blocks() * 512
}

/// A program that was large and is small: its file becomes smaller, and a child that is as large finds room where both together would find none.
pub fn room_comes_back(case: &Case) {
    let swap = case.directory.join("swap");
    fs::create_dir_all(&swap).expect("directory");
    let swap = swap.canonicalize().expect("directory");
    let program = case.compiled("room");
    let mut command = outpage(&["run", "--quiet", "--memory", "24M", "--swap-cap", "160M"]);
    let command = command.arg("--swap").arg(&swap).args(case.how).arg("--");
    let command = command.args([&program, "96", "8"]);
    let mut run = (command.stdin(Stdio::piped()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("outpage");
    let mut line = String::new();
    let told = run.stdout.take().expect("a pipe");
    BufReader::new(told).read_line(&mut line).expect("a line");
    assert_eq!(line, "small\n");
    let file = swap_file(run.id(), &swap);
    let (large, began) = (disk_bytes(&file), Instant::now());
    assert!(large >= 64 << 20, "{large} bytes of disk");
    while disk_bytes(&file) > large / 2 && began.elapsed() < NEVER {
        thread::sleep(Duration::from_millis(100));
    }
    let small = disk_bytes(&file);
    assert!(small <= large / 2, "{small} bytes of disk, {large} before");
    let mut input = run.stdin.take().expect("a pipe");
    input.write_all(b"\n").expect("the program waits");
    assert!(run.wait().expect("wait").success());
}
