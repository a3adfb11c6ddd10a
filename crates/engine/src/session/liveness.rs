//! Whether a process still lives, for members that hold no lock: those being forked.

use std::ffi::CString;

use outpage_sys::{fd, libc};

/// The inode of the caller's pid namespace; 0 where /proc does not tell.
pub(super) fn pid_namespace() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").ok();
    let text = link.as_ref().and_then(|l| l.to_str());
    let number = text.and_then(|t| t.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.unwrap_or(0)
}

/// Whether process `pid` of the caller's pid namespace runs; a zombie does not.
pub(super) fn is_alive(pid: u32) -> bool {
    /// `pid (comm) state`: comm has at most 15 bytes, the rest of the line does not matter.
    const STAT_BYTES: usize = 64;
    let Ok(path) = CString::new(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let Ok(file) = fd::open(&path, libc::O_RDONLY) else {
        return false;
    };
    let mut stat = [0; STAT_BYTES];
    let Ok(len) = fd::read(file.number(), &mut stat) else {
        return false;
    };
    // The name may hold any byte, so the state follows the last parenthesis.
    let after_name = stat[..len].iter().rposition(|&b| b == b')');
    let state = after_name.and_then(|at| stat.get(at + 2));
    !matches!(state, None | Some(b'Z' | b'X' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_running_process_lives_and_a_zombie_does_not() {
        assert!(is_alive(std::process::id()));
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat");
        assert!(is_alive(child.id()));
        drop(child.stdin.take());
        // Waits for the end without reaping: a zombie stays until wait().
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        assert!(child.wait().expect("wait").success());
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn the_pid_namespace_has_a_number() {
        assert_ne!(pid_namespace(), 0);
    }
}
