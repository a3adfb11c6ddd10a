//! Memory cgroups, version 1 or 2: one fresh cgroup for every run.

use std::path::{Path, PathBuf};

use super::guard::{Guard, Undo};
use super::{BenchError, tools};

/// Which interface the memory controller has on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// `memory.limit_in_bytes` and so on, in a hierarchy of its own.
    V1,
    /// `memory.max` and so on, in the unified hierarchy.
    V2,
}

/// The memory controller of this machine.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Where its hierarchy is mounted.
    root: PathBuf,
    /// Its interface.
    pub version: Version,
}

impl Controller {
    /// Finds the controller and, on version 2, has it enabled for children of the root.
    ///
    /// # Errors
    /// When there is none, or it cannot be used from here.
    pub fn find(guard: &mut Guard) -> Result<Self, BenchError> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let has_memory = |root: &Path| {
            let controllers =
                std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            controllers
                .split_ascii_whitespace()
                .any(|name| name == "memory")
        };
        let controller = choose(&mounts, has_memory).ok_or_else(|| {
            BenchError::Lacks(
                "this machine has no memory cgroup controller mounted; on most systems: mount -t cgroup2 none \
                 /sys/fs/cgroup (in a container: run it with --privileged, or run the benchmark outside)"
                    .into(),
            )
        })?;
        if controller.version == Version::V2 {
            controller.enable_for_children(guard)?;
        }
        Ok(controller)
    }

    fn enable_for_children(&self, guard: &mut Guard) -> Result<(), BenchError> {
        let file = self.root.join("cgroup.subtree_control");
        let enabled = std::fs::read_to_string(&file).unwrap_or_default();
        if enabled
            .split_ascii_whitespace()
            .any(|name| name == "memory")
        {
            return Ok(());
        }
        guard.note(&Undo::Restore(file.clone(), "-memory".into()))?;
        std::fs::write(&file, "+memory").map_err(|error| {
            BenchError::Lacks(format!(
                "cannot enable the memory controller in {} ({error}); run the benchmark outside of the container",
                file.display()
            ))
        })
    }

    /// Makes a fresh cgroup with a limit of `limit_bytes`; with `swap` false, nothing in it may be
    /// swapped out by the kernel, whatever swap the machine has.
    ///
    /// # Errors
    /// When it cannot be made or limited.
    pub fn create(
        &self,
        name: &str,
        limit_bytes: u64,
        swap: bool,
        guard: &mut Guard,
    ) -> Result<Cgroup, BenchError> {
        let dir = self.root.join(name);
        guard.note(&Undo::Cgroup(dir.clone()))?;
        let lacks = |what: &Path, error: std::io::Error| {
            BenchError::Lacks(format!(
                "cannot set up a memory cgroup: {}: {error}; in a container, run it with --privileged",
                what.display()
            ))
        };
        std::fs::create_dir(&dir).map_err(|error| lacks(&dir, error))?;
        let cgroup = Cgroup {
            dir,
            version: self.version,
        };
        let (limit, swap_limit, no_swap) = match self.version {
            // memsw counts memory and swap together; the file is absent without swap accounting.
            Version::V1 => (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                limit_bytes,
            ),
            Version::V2 => ("memory.max", "memory.swap.max", 0),
        };
        let limit = cgroup.dir.join(limit);
        std::fs::write(&limit, limit_bytes.to_string()).map_err(|error| lacks(&limit, error))?;
        let swap_limit = cgroup.dir.join(swap_limit);
        if !swap && swap_limit.exists() {
            std::fs::write(&swap_limit, no_swap.to_string())
                .map_err(|error| lacks(&swap_limit, error))?;
        }
        Ok(cgroup)
    }
}

/// The controller among the mounts: version 2 when it has memory, else version 1.
fn choose(mounts: &str, has_memory: impl Fn(&Path) -> bool) -> Option<Controller> {
    let mut v1 = None;
    for line in mounts.lines() {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(root), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let root = PathBuf::from(root);
        match kind {
            "cgroup2" if has_memory(&root) => {
                return Some(Controller {
                    root,
                    version: Version::V2,
                });
            }
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                v1 = Some(Controller {
                    root,
                    version: Version::V1,
                });
            }
            _ => {}
        }
    }
    v1
}

/// One memory cgroup; the guard removes it at the latest.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
    version: Version,
}

impl Cgroup {
    /// The file that moves a process into the cgroup.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The processes in it.
    pub fn pids(&self) -> Vec<u32> {
        tools::cgroup_pids(&self.dir)
    }

    /// The most memory that was charged to it, in bytes; `None` before kernel 5.19 on version 2.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.number(match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        })
    }

    /// Memory that is charged to it now, in bytes.
    pub fn current_bytes(&self) -> Option<u64> {
        self.number(match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        })
    }

    /// Anonymous memory of its processes now, in bytes.
    pub fn anonymous_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.dir.join("memory.stat")).ok()?;
        keyed(
            &text,
            match self.version {
                Version::V1 => "total_rss",
                Version::V2 => "anon",
            },
        )
    }

    /// Memory of it that the kernel cannot take back without swap, in bytes: all but files and what it keeps of its own in case it is wanted again.
    pub fn kept_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.dir.join("memory.stat")).ok()?;
        let of = |key| keyed(&text, key).unwrap_or(0);
        Some(match self.version {
            Version::V1 => {
                let kernel = self.number("memory.kmem.usage_in_bytes").unwrap_or(0);
                of("total_rss") + of("total_shmem") + kernel
            }
            Version::V2 => {
                of("anon") + of("shmem") + of("kernel").saturating_sub(of("slab_reclaimable"))
            }
        })
    }

    /// Changes its limit; the kernel pages out what is above it.
    ///
    /// # Errors
    /// On version 1 when so much cannot be paged out.
    pub fn set_limit(&self, bytes: u64) -> std::io::Result<()> {
        let file = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        std::fs::write(self.dir.join(file), bytes.to_string())
    }

    /// How many of its processes the OOM killer has ended.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        keyed(&text, "oom_kill").unwrap_or(0)
    }

    fn number(&self, file: &str) -> Option<u64> {
        std::fs::read_to_string(self.dir.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Kills what is left in it and removes it.
    ///
    /// # Errors
    /// When it stays busy.
    pub fn remove(self) -> Result<(), BenchError> {
        tools::remove_cgroup(&self.dir).map_err(|error| {
            BenchError::Failed(format!("cannot remove {}: {error}", self.dir.display()))
        })
    }
}

/// The value of `key` in lines of "key value".
pub fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn hybrid_machine_uses_the_hierarchy_that_has_memory() {
        let v1 = choose(HYBRID, |_| false).unwrap();
        assert_eq!(
            (v1.version, v1.root.to_str()),
            (Version::V1, Some("/sys/fs/cgroup/memory"))
        );
        let v2 = choose(HYBRID, |_| true).unwrap();
        assert_eq!(
            (v2.version, v2.root.to_str()),
            (Version::V2, Some("/sys/fs/cgroup/unified"))
        );
        assert!(choose("proc /proc proc rw 0 0\n", |_| true).is_none());
    }

    #[test]
    fn oom_kills_are_told_from_similar_keys() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        assert_eq!(keyed(v1, "oom_kill"), Some(2));
        let v2 = "low 0\nhigh 0\nmax 31\noom 4\noom_kill 3\noom_group_kill 1\n";
        assert_eq!(keyed(v2, "oom_kill"), Some(3));
        assert_eq!(keyed(v2, "absent"), None);
    }
}
