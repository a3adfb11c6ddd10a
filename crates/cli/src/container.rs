//! The memory limit that a control group sets on this process: that of a container, usually.

use std::fs;
use std::path::{Path, PathBuf};

/// The lowest memory limit of the caller's control groups, and the file that sets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// In bytes.
    pub bytes: u64,
    /// Where it is written.
    pub file: PathBuf,
}

/// Finds the limit in force: the lowest of the group's own and those of the groups around it.
#[must_use]
pub fn memory_limit() -> Option<Limit> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let candidates = directories(&groups, &mounts);
    let limits = candidates
        .into_iter()
        .filter_map(|(mount, group, name)| lowest(&mount, &group, name));
    limits.min_by_key(|limit| limit.bytes)
}

/// Mount points of memory controllers, the caller's path below each, and the limit's file name.
fn directories(groups: &str, mounts: &str) -> Vec<(PathBuf, PathBuf, &'static str)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        // hierarchy:controllers:path (cgroups(7)); version 2 has no controllers there.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (kind, option, name) = match controllers {
            "" => ("cgroup2", "", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => {
                ("cgroup", "memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        if let Some((root, mount)) = mount_of(mounts, kind, option) {
            // Inside a container the mount shows the container's group as its root.
            let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
            found.push((mount, below.to_owned(), name));
        }
    }
    found
}

/// Root and mount point of the first file system of `kind` that has `option` (proc(5), mountinfo).
fn mount_of(mounts: &str, kind: &str, option: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (place, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let matches = system.next()? == kind;
        let options = system.nth(1)?;
        let has_option = option.is_empty() || options.split(',').any(|o| o == option);
        let mut place = place.split(' ').skip(3);
        let (root, mount) = (place.next()?, place.next()?);
        (matches && has_option).then(|| (root.into(), mount.into()))
    })
}

/// The lowest limit from `group` up to `mount`.
fn lowest(mount: &Path, group: &Path, name: &str) -> Option<Limit> {
    let group = group.strip_prefix("/").unwrap_or(group);
    let limits = group.ancestors().filter_map(|directory| {
        let file = mount.join(directory).join(name);
        let bytes = parse(&fs::read_to_string(&file).ok()?)?;
        Some(Limit { bytes, file })
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// A limit in bytes; `None` for "max" and for version 1's way to say so, which is near 2^63.
fn parse(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&bytes| bytes < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let groups = "5:cpu,memory:/docker/x\n1:name=systemd:/\n0::/user.slice/a.scope\n";
        let mounts = "30 20 0:1 /docker/x /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
                      31 20 0:2 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = directories(groups, mounts);
        assert_eq!(
            found,
            [
                (
                    "/sys/fs/cgroup/memory".into(),
                    "".into(),
                    "memory.limit_in_bytes"
                ),
                (
                    "/sys/fs/cgroup/unified".into(),
                    "user.slice/a.scope".into(),
                    "memory.max"
                ),
            ]
        );
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().expect("directory");
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).expect("directories");
        fs::write(inner.join("memory.max"), "max\n").expect("write");
        fs::write(root.path().join("a/memory.max"), "1048576\n").expect("write");
        let limit = lowest(root.path(), Path::new("/a/b"), "memory.max");
        assert_eq!(
            limit,
            Some(Limit {
                bytes: 1 << 20,
                file: root.path().join("a/memory.max")
            })
        );
        assert_eq!(lowest(root.path(), Path::new("/"), "memory.max"), None);
    }

    #[test]
    fn unlimited_is_no_limit() {
        assert_eq!(parse("max"), None);
        assert_eq!(parse("9223372036854771712"), None);
        assert_eq!(parse("536870912\n"), Some(512 << 20));
    }
}
