//! The threads of the program, as /proc shows them.

use core::ffi::CStr;

use crate::fd;
use crate::mask::bit;
use crate::proc;
use crate::process::{self, Tid, program};
use crate::thread;

/// Where /proc has `file` of a thread of the program.
pub(crate) fn file_of<'a>(tid: u32, file: &[u8], path: &'a mut [u8; 40]) -> Option<&'a CStr> {
    let mut tasks = [0; 24];
    fd::numbered(&mut tasks, b"", program(), b"/task/");
    let tasks = CStr::from_bytes_until_nul(&tasks).ok()?.to_bytes();
    fd::numbered(path, tasks, tid, file);
    CStr::from_bytes_until_nul(path).ok()
}

fn read<'a>(tid: u32, file: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 40];
    let path = file_of(tid, file, &mut path)?;
    let file = proc::open(path, libc::O_RDONLY).ok()?;
    let len = fd::read(file.number(), text).ok()?;
    Some(&text[..len])
}

/// Whether a thread of the program has a name as the pager's have; true where that cannot be told.
pub(crate) fn is_named_as_pagers(tid: Tid) -> bool {
    let mut name = [0; 16];
    let name = read(tid.0, b"/comm", &mut name);
    name.is_none_or(|name| name.starts_with(thread::NAME_PREFIX))
}

/// How the program's first thread ended, as wait(2) has it; `None` while it goes on, and where /proc does not tell.
#[must_use]
pub fn first_ended() -> Option<i32> {
    let mut stat = [0; 1024];
    ended(read(program(), b"/stat", &mut stat)?)
}

/// From the line of proc_pid_stat(5): the state follows the name, which may be any bytes, and the last field is the status.
fn ended(stat: &[u8]) -> Option<i32> {
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = stat[name_ends + 1..].trim_ascii();
    let last = rest.rsplit(|&byte| byte == b' ').next()?;
    let status = core::str::from_utf8(last).ok()?.parse().ok()?;
    rest.starts_with(b"Z").then_some(status)
}

/// Whether a thread of the program goes on beside its first and the pager's; true where that cannot be told. One that begins meanwhile may be
/// missed.
#[must_use]
pub fn any_goes_on() -> bool {
    let mut any = false;
    let seen = process::each_thread(|tid| any |= tid.0 != program() && !is_bare(tid));
    any || seen.is_err()
}

/// Whether a thread is one of the pager's or the kernel's.
fn is_bare(tid: Tid) -> bool {
    has(tid, |status| status.is_pagers() || status.is_kernels())
}

/// Whether a tracer, such as a debugger, has the thread; false where /proc does not tell.
#[must_use]
pub fn is_traced(tid: Tid) -> bool {
    has(tid, |status| status.traced)
}

/// What `of` finds of a thread's status; false where /proc does not tell.
fn has(tid: Tid, of: impl FnOnce(&Status<'_>) -> bool) -> bool {
    let mut text = [0; 2048];
    let status = read(tid.0, b"/status", &mut text).and_then(Status::parse);
    status.is_some_and(|status| of(&status))
}

/// What proc_pid_status(5) says of a thread.
#[derive(Debug)]
pub struct Status<'a> {
    name: &'a [u8],
    /// `T`: stopped, `t`: stopped by a tracer, and so on.
    pub state: u8,
    /// Every signal that can be blocked is, as in no thread that libc made.
    blocks_all: bool,
    /// A tracer has it.
    traced: bool,
}

impl<'a> Status<'a> {
    /// From the file's text; `None` where that lacks a line.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        const ALL: u64 = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
        let field = |name: &[u8]| {
            let mut lines = text.split(|&byte| byte == b'\n');
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(<[u8]>::trim_ascii)
        };
        let blocked = core::str::from_utf8(field(b"SigBlk:")?).ok()?;
        Some(Self {
            name: field(b"Name:")?,
            state: *field(b"State:")?.first()?,
            blocks_all: u64::from_str_radix(blocked, 16).ok()? == ALL,
            traced: field(b"TracerPid:").is_some_and(|pid| pid != b"0"),
        })
    }

    /// Whether it is one of a pager's threads.
    #[must_use]
    pub fn is_pagers(&self) -> bool {
        self.blocks_all && self.name.starts_with(thread::NAME_PREFIX)
    }

    /// Whether it is the thread that serves.
    #[must_use]
    pub fn is_pager(&self) -> bool {
        self.blocks_all && self.name == thread::NAME_PREFIX
    }

    /// Whether it is one of the kernel's for an io_uring (io_uring/io-wq.c and sqpoll.c, Linux 5.12).
    #[must_use]
    pub fn is_kernels(&self) -> bool {
        self.blocks_all && self.name.starts_with(b"iou-")
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn the_end_of_a_first_thread_is_read_behind_its_name() {
        assert_eq!(ended(b"17 (a) Z 0) Z 1 17 0 1792\n"), Some(1792));
        assert_eq!(ended(b"17 (sh) S 1 17 0 1792\n"), None);
        assert_eq!(ended(b"17 (sh"), None);
        assert_eq!(first_ended(), None, "this one goes on");
    }

    #[test]
    fn threads_of_the_program_are_none_of_the_pagers() {
        let told = |name: &str, blocked: &str| {
            let text =
                format!("Name:\t{name}\nState:\tT (stopped)\nSigBlk:\t{blocked}\nSigIgn:\t0\n");
            let status = Status::parse(text.as_bytes()).expect("all lines");
            assert_eq!(status.state, b'T');
            [status.is_pager(), status.is_pagers(), status.is_kernels()]
        };
        const ALL: &str = "fffffffffffbfeff";
        assert_eq!(told("outpage", ALL), [true, true, false]);
        assert_eq!(told("outpage-drop", ALL), [false, true, false]);
        assert_eq!(told("iou-wrk-7", ALL), [false, false, true]);
        assert_eq!(told("sh", ALL), [false; 3]);
        // Without a word of a tracer there is none.
        let traced = |pid: &str| {
            let text = format!("Name:\tg\nState:\tS (sleeping)\n{pid}SigBlk:\t{ALL}\n");
            Status::parse(text.as_bytes()).expect("all lines").traced
        };
        assert_eq!(
            ["TracerPid:\t0\n", "TracerPid:\t17\n", ""].map(traced),
            [false, true, false]
        );
        // A name can be anybody's.
        assert_eq!(told("outpage", "0000000000000000"), [false; 3]);
        assert!(Status::parse(b"Name:\tsh\n").is_none());
        // The thread of the test is no first one.
        assert!(any_goes_on());
    }
}
