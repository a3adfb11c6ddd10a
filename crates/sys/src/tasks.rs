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

/// Whether a thread is one of the pager's or a worker of the kernel's (io_uring), by its name and by having all signals blocked, as no thread that
/// libc made can.
fn is_bare(tid: Tid) -> bool {
    const ALL: u64 = !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    /// Of io_uring/io-wq.c, Linux 5.12.
    const WORKER: &[u8] = b"iou-wrk-";
    let (mut name, mut status) = ([0; 16], [0; 2048]);
    let blocked = read(tid.0, b"/status", &mut status).and_then(blocked);
    let name = read(tid.0, b"/comm", &mut name).unwrap_or(b"");
    (name.starts_with(thread::NAME_PREFIX) || name.starts_with(WORKER)) && blocked == Some(ALL)
}

/// The mask in proc_pid_status(5).
fn blocked(status: &[u8]) -> Option<u64> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let mask = lines.find_map(|line| line.strip_prefix(b"SigBlk:"))?;
    u64::from_str_radix(core::str::from_utf8(mask).ok()?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
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
        let text = b"Name:\tsh\nSigBlk:\tfffffffffffbfeff\nSigIgn:\t0\n";
        assert_eq!(blocked(text), Some(0xffff_ffff_fffb_feff));
        // The thread of the test is no first one.
        assert!(any_goes_on());
    }
}
