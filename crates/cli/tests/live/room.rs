//! Room of the swap file that is not needed any more goes back, to the file system and to other processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
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

/// `room`, which is small now; its file.
struct Small {
    run: Child,
    file: PathBuf,
    large_bytes: u64,
}

impl Small {
    /// Of 96 MiB and then `what`, with so many megabytes for the swap file.
    fn new(case: &Case, cap: &str, what: &str) -> Self {
        let swap = case.directory.join("swap");
        fs::create_dir_all(&swap).expect("directory");
        let swap = swap.canonicalize().expect("directory");
        let program = case.compiled("room");
        let mut command = outpage(&["run", "--quiet", "--memory", "24M", "--swap-cap", cap]);
        let command = command.arg("--swap").arg(&swap).args(case.how).arg("--");
        let command = command.args([&program, "96", "4", what]);
        let mut run = (command.stdin(Stdio::piped()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("outpage");
        let mut line = String::new();
        let told = run.stdout.take().expect("a pipe");
        BufReader::new(told).read_line(&mut line).expect("a line");
        assert_eq!(line, "small\n");
        let file = swap_file(run.id(), &swap);
        let large_bytes = disk_bytes(&file);
        assert!(large_bytes >= 64 << 20, "{large_bytes} bytes of disk");
        Self {
            run,
            file,
            large_bytes,
        }
    }

    fn becomes_small(&self) {
        let (large, began) = (self.large_bytes, Instant::now());
        // Two extents: what is kept may be in several of the others.
        let most = large - (32 << 20);
        while disk_bytes(&self.file) > most && began.elapsed() < NEVER {
            thread::sleep(Duration::from_millis(100));
        }
        let small = disk_bytes(&self.file);
        assert!(small <= most, "{small} bytes of disk, {large} before");
    }

    fn goes_on_well(mut self) {
        let mut input = self.run.stdin.take().expect("a pipe");
        input.write_all(b"\n").expect("the program waits");
        assert!(self.run.wait().expect("wait").success());
    }
}

/// A program that was large and is small: its file becomes smaller, and a child that is as large finds room where both together would find none.
pub fn room_comes_back(case: &Case) {
    let small = Small::new(case, "160M", "child");
    small.becomes_small();
    small.goes_on_well();
}

/// One that had all the room that there is, and is as large again.
pub fn room_is_had_again(case: &Case) {
    let small = Small::new(case, "96M", "again");
    small.becomes_small();
    small.goes_on_well();
}

/// Where a child holds what its parent needs no more, nobody else could have it: the parent has it again.
pub fn room_that_a_child_holds_is_had_again(case: &Case) {
    let small = Small::new(case, "128M", "beside");
    // Longer than it takes until room is given up. Where this machine is slower than that, there is nothing to be seen.
    thread::sleep(Duration::from_secs(8));
    small.goes_on_well();
}
