//! The processes of a run, seen from outside: who they are, what is in RAM, how much CPU they used.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// A process by number and start: numbers are used again.
type Starts = BTreeMap<u32, u64>;

/// The program, its children, theirs, and those that were seen before their parents ended.
#[derive(Debug)]
pub struct Tree {
    seen: Starts,
}

/// What one process has in RAM, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Private memory, its copies of file pages included.
    pub anonymous: u64,
    /// Shared memory: anonymous, memfd, System V, tmpfs.
    pub shared: u64,
    /// Huge pages of hugetlbfs.
    pub huge: u64,
    /// Of those, what other processes may have too.
    pub huge_shared: u64,
}

impl Tree {
    /// The tree of `program`.
    pub fn of(program: u32) -> Self {
        let seen = started(program).map(|at| (program, at));
        Self {
            seen: seen.into_iter().collect(),
        }
    }

    /// Looks who is there now; in order of their numbers.
    pub fn look(&mut self) -> Vec<u32> {
        let mut found = Starts::new();
        let here = |&(&pid, &at): &(&u32, &u64)| started(pid) == Some(at);
        let mut waiting: Vec<(u32, u64)> = self
            .seen
            .iter()
            .filter(here)
            .map(|(&p, &at)| (p, at))
            .collect();
        while let Some((pid, at)) = waiting.pop() {
            if found.insert(pid, at).is_none() {
                waiting.extend(children(pid).filter_map(|pid| Some((pid, started(pid)?))));
            }
        }
        self.seen = found;
        self.seen.keys().copied().collect()
    }
}

/// Fields of `/proc/PID/.../stat` behind the name, which can hold anything: the first is the state.
fn stat(path: PathBuf) -> Option<Vec<String>> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let after_name = text.rsplit(')').next()?;
    Some(after_name.split_whitespace().map(str::to_owned).collect())
}

fn proc(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// When process `pid` was started, in ticks (proc(5): field 22); `None` when it is gone or only waited for.
fn started(pid: u32) -> Option<u64> {
    let fields = stat(proc(pid).join("stat"))?;
    (!matches!(fields.first()?.as_str(), "Z" | "X")).then_some(fields.get(22 - 3)?.parse().ok()?)
}

/// Whether process `pid` runs.
pub fn is_there(pid: u32) -> bool {
    started(pid).is_some()
}

/// Generations that are looked at: a chain of processes may change meanwhile, and even come round where numbers are used again.
const GENERATIONS_MAX: usize = 1000;

/// Whether process `pid` is a descendant of `ancestor`, as far as it and those between are there, if only to be waited for.
pub fn descends(pid: u32, ancestor: u32) -> bool {
    let parent =
        |&pid: &u32| -> Option<u32> { stat(proc(pid).join("stat"))?.get(4 - 3)?.parse().ok() };
    let forefathers = std::iter::successors(parent(&pid), parent);
    let mut known = forefathers.take(GENERATIONS_MAX).take_while(|&pid| pid > 0);
    known.any(|pid| pid == ancestor)
}

/// Children that any thread of process `pid` has (`CONFIG_PROC_CHILDREN`).
fn children(pid: u32) -> impl Iterator<Item = u32> {
    let threads = fs::read_dir(proc(pid).join("task"));
    let texts = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = texts.flat_map(|text| {
        let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.collect::<Vec<u32>>()
    });
    pids.collect::<Vec<_>>().into_iter()
}

/// The sum of the lines that begin with one of `names`, of a file with lines such as `RssAnon: 12 kB`.
fn kib(text: &str, names: &[&str]) -> u64 {
    let value = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let named = names.contains(&name).then_some(rest)?;
        named.split_whitespace().next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(value).sum()
}

/// What `/proc/PID/status` says: pages that processes share count in each of them.
pub fn resident(pid: u32) -> Option<Resident> {
    let text = fs::read_to_string(proc(pid).join("status")).ok()?;
    let bytes = |name| kib(&text, &[name]) << 10;
    let huge = bytes("HugetlbPages");
    Some(Resident {
        anonymous: bytes("RssAnon"),
        shared: bytes("RssShmem"),
        huge,
        huge_shared: huge,
    })
}

/// What `/proc/PID/smaps_rollup` says: of a page that several have, each its part. It takes the kernel a
/// walk over all pages. `None` for processes that may not be looked into.
pub fn proportional(pid: u32) -> Option<Resident> {
    let text = fs::read_to_string(proc(pid).join("smaps_rollup")).ok()?;
    let bytes = |names: &[&str]| kib(&text, names) << 10;
    Some(Resident {
        anonymous: bytes(&["Pss_Anon"]),
        shared: bytes(&["Pss_Shmem"]),
        huge: bytes(&["Private_Hugetlb", "Shared_Hugetlb"]),
        huge_shared: bytes(&["Shared_Hugetlb"]),
    })
}

/// Whether the preloaded library is in process `pid`; `None` where that cannot be seen.
pub fn has_library(pid: u32, name: &str) -> Option<bool> {
    let maps = fs::read_to_string(proc(pid).join("maps")).ok()?;
    Some(maps.lines().any(|line| line.ends_with(name)))
}

/// CPU time that process `pid` used, the pager's threads left out, in ticks.
pub fn cpu_ticks(pid: u32) -> u64 {
    let used = |path: PathBuf| {
        let fields = stat(path).unwrap_or_default();
        // proc(5): fields 14 and 15, user and system time.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        field(14).unwrap_or(0) + field(15).unwrap_or(0)
    };
    let threads = fs::read_dir(proc(pid).join("task"));
    let of_pager = |path: &PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("outpage"))
    };
    let paths = threads.into_iter().flatten().flatten().map(|t| t.path());
    let pager: u64 = paths
        .filter(of_pager)
        .map(|path| used(path.join("stat")))
        .sum();
    used(proc(pid).join("stat")).saturating_sub(pager)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn lines_are_summed_by_their_names() {
        let text = "Pss_Anon:  12 kB\nPss_AnonX: 5 kB\nShared_Hugetlb: 3 kB\nEmpty:\n";
        assert_eq!(kib(text, &["Pss_Anon", "Shared_Hugetlb"]), 15);
        assert_eq!(kib(text, &["Empty", "Absent"]), 0);
    }

    #[test]
    fn children_are_found_and_the_dead_are_not() {
        let mut child = Command::new("sh")
            .args(["-c", "cat; :"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut tree = Tree::of(child.id());
        // sh, and cat once sh has started it.
        while tree.look().len() < 2 {
            std::thread::yield_now();
        }
        let memory = resident(child.id()).expect("status");
        assert!(memory.anonymous > 0 && memory.huge == 0, "{memory:?}");
        assert_eq!(has_library(child.id(), "/no-such-library"), Some(false));
        drop(child.stdin.take());
        assert!(child.wait().expect("wait").success());
        assert_eq!(tree.look(), [0; 0]);
        assert_eq!(resident(child.id()), None);
    }
}
