//! Whether a process still lives, for members that hold no lock: those in direct mode, and those being
//! forked.

use std::ffi::CString;

use outpage_sys::raw::Errno;
use outpage_sys::{fd, launch, libc, process};

/// A process as a /proc has it. A number is used again, but not with the same start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its number there.
    pub pid: u32,
    /// Clock ticks from the machine's start to the process's.
    pub started: u64,
}

/// What /proc tells of a process number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A process runs that started then.
    Running(Identity),
    /// It has ended, and nobody waited for it.
    Ended(Identity),
    /// There is none.
    Absent,
    /// The kernel does not say.
    Unknown,
}

/// The inode of the caller's pid namespace; 0 where /proc does not tell.
#[must_use]
pub fn pid_namespace() -> u64 {
    let inode = fd::open(c"/proc/self/ns/pid", libc::O_PATH).and_then(|ns| fd::inode(ns.number()));
    inode.unwrap_or(0)
}

/// The caller as its /proc has it; `None` without a /proc, or with one that leaves it out.
#[must_use]
pub fn own() -> Option<Identity> {
    match look_at(c"/proc/self/stat") {
        Seen::Running(identity) => Some(identity),
        _ => None,
    }
}

/// What /proc tells of process `pid`.
#[must_use]
pub fn look(pid: u32) -> Seen {
    CString::new(format!("/proc/{pid}/stat")).map_or(Seen::Unknown, |path| look_at(&path))
}

fn look_at(path: &std::ffi::CStr) -> Seen {
    /// Up to the 22nd field: 19 numbers of at most 20 digits, a name of at most 64 bytes.
    const STAT_BYTES: usize = 512;
    let mut text = [0; STAT_BYTES];
    let read = fd::open(path, libc::O_RDONLY).and_then(|file| fd::read(file.number(), &mut text));
    match read {
        Ok(len) => parse(&text[..len]).unwrap_or(Seen::Unknown),
        Err(Errno::ENOENT | Errno::ESRCH) => Seen::Absent,
        Err(_) => Seen::Unknown,
    }
}

/// Reads `pid (name) state ...`. The name may hold any byte, so the fields count from its last parenthesis.
///
/// proc(5): `num_threads` is the 20th field, `starttime` the 22nd.
fn parse(stat: &[u8]) -> Option<Seen> {
    let (before, after) = stat.split_at(stat.iter().rposition(|&byte| byte == b')')?);
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse().ok();
    let mut fields = after.split(|&byte| byte == b' ').skip(1);
    let state = fields.next()?;
    let threads = fields.nth(16)?;
    let started: u64 = number(fields.nth(1)?)?;
    let pid: u64 = number(before.split(|&byte| byte == b' ').next()?)?;
    let identity = Identity {
        pid: u32::try_from(pid).ok()?,
        started,
    };
    // A first thread that ended waits as a zombie for the others.
    let ended = matches!(state, b"Z" | b"X") && number(threads)? <= 1_u64;
    Some(if ended {
        Seen::Ended(identity)
    } else {
        Seen::Running(identity)
    })
}

/// Whether the /proc that is mounted here numbers processes as the caller does.
#[must_use]
pub fn proc_is_own() -> bool {
    own().is_some_and(|identity| identity.pid == process::pid())
}

/// Whether the caller's own numbering has a process `pid`. A zombie is one.
#[must_use]
pub fn exists(pid: u32) -> bool {
    launch::send(pid, 0) != Err(Errno::ESRCH)
}

/// Whether `identity` is gone for certain, by a /proc that is the session's.
#[must_use]
pub fn is_gone(identity: Identity) -> bool {
    match look(identity.pid) {
        Seen::Running(found) => found != identity,
        Seen::Ended(_) => true,
        // Where /proc hides other users' processes (hidepid), one that changed its user is hidden.
        Seen::Absent => !(proc_is_own() && exists(identity.pid)),
        Seen::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_running_process_lives_and_a_zombie_does_not() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat");
        let Seen::Running(identity) = look(child.id()) else {
            panic!("{:?}", look(child.id()));
        };
        assert!(!is_gone(identity));
        let earlier = Identity {
            started: identity.started - 1,
            ..identity
        };
        assert!(is_gone(earlier), "its number was used again");
        drop(child.stdin.take());
        // Waits for the end without reaping: a zombie stays until wait().
        while !is_gone(identity) {
            std::thread::yield_now();
        }
        assert_eq!(look(child.id()), Seen::Ended(identity));
        assert!(child.wait().expect("wait").success());
        assert!(is_gone(identity));
    }

    #[test]
    fn this_process_is_known_by_both_ways() {
        let own = own().expect("/proc");
        assert_eq!(own.pid, std::process::id());
        assert_eq!(look(own.pid), Seen::Running(own));
        assert!(proc_is_own() && exists(own.pid));
    }

    #[test]
    fn names_cannot_mislead() {
        let line = |name: &str, state: char, threads: u32| {
            format!(
                "77 ({name}) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 4242 9 9"
            )
        };
        let identity = Identity {
            pid: 77,
            started: 4242,
        };
        for name in ["cat", "a) Z 1", "(", ") ) )"] {
            let seen = parse(line(name, 'S', 1).as_bytes());
            assert_eq!(seen, Some(Seen::Running(identity)), "{name}");
        }
        assert_eq!(
            parse(line("cat", 'Z', 1).as_bytes()),
            Some(Seen::Ended(identity))
        );
        let others_run = parse(line("cat", 'Z', 2).as_bytes());
        assert_eq!(others_run, Some(Seen::Running(identity)));
        assert_eq!(parse(b"77 (cat) S 1 2"), None);
    }

    #[test]
    fn the_pid_namespace_has_a_number() {
        let link = std::fs::read_link("/proc/self/ns/pid").expect("link");
        let text = format!("pid:[{}]", pid_namespace());
        assert_eq!(link.to_str(), Some(text.as_str()));
    }
}
