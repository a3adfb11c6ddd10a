//! Lines for whoever runs the program, on its standard error.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use outpage_core::units::Nanos;

use crate::fd::{self, Fd, Identity, PollFd};
use crate::process::{self, program};
use crate::raw::{Errno, syscall3};
use crate::{mask, pagers, proc, tasks};

/// Signals that writing may bring upon the writer, which would end or stop a program that wrote nothing: nobody reads (pipe(7)), a file is
/// too long (setrlimit(2)), or the terminal is another job's (termios(3)).
const BY_WRITING: u64 =
    mask::bit(libc::SIGPIPE) | mask::bit(libc::SIGXFSZ) | mask::bit(libc::SIGTTOU);

/// How long a line waits where a pipe is full or a terminal stopped, and then is not written. A choice: who reads at all reads within that,
/// and a program whose pager waits stands still.
const PATIENCE: Nanos = Nanos(1_000_000_000);

/// Device and inode of what descriptor 2 was when it was noted; no file has [`UNKNOWN`] for both.
static STANDARD_ERROR: [AtomicU64; 2] = [AtomicU64::new(UNKNOWN), AtomicU64::new(UNKNOWN)];
const UNKNOWN: u64 = u64::MAX;

/// Notes that descriptor 2 is standard error as it is now, or none if it is closed; the first note counts. A program that closes it and
/// opens its data may get that number, and a line has no place there: what is said from now on goes to descriptor 2 only while that is
/// the same file, or is open as descriptor 1 too. Before, it goes there always.
pub fn note_standard_error() {
    const CLOSED: Identity = Identity {
        device: UNKNOWN,
        inode: 0,
    };
    let now = fd::identity(libc::STDERR_FILENO).unwrap_or(CLOSED);
    let inode = &STANDARD_ERROR[1];
    if inode.compare_exchange(UNKNOWN, now.inode, Relaxed, Relaxed) == Ok(UNKNOWN) {
        STANDARD_ERROR[0].store(now.device, Relaxed);
    }
}

/// Whether `error`, a thread's descriptor 2, is what it had for standard error; `output` is its descriptor 1.
fn is_standard_error(error: i32, output: Option<i32>) -> bool {
    let [device, inode] = [0, 1].map(|part: usize| STANDARD_ERROR[part].load(Relaxed));
    let noted = Identity { device, inode };
    let unknown = [device, inode] == [UNKNOWN; 2];
    unknown
        || match fd::identity(error) {
            Ok(now) => now == noted || output.is_some_and(|output| is_log(error, output)),
            // A sandbox does not let it be seen.
            Err(why) => why != Errno::EBADF,
        }
}

/// Whether both descriptors are one opened file, as who logs has them, and no connection to somebody else.
fn is_log(error: i32, output: i32) -> bool {
    fd::is_same_opened(error, output) && fd::is_socket(error).is_ok_and(|socket| !socket)
}

/// Writes `parts` and a line end to standard error, in one call, so that lines of several threads do not
/// mix. Errors and the signals that writing brings are ignored; only the first 15 parts are written, and nothing where descriptor 2 is
/// another file by now ([`note_standard_error`]) or nobody reads for a second.
pub fn say(parts: &[&str]) {
    if is_standard_error(libc::STDERR_FILENO, Some(libc::STDOUT_FILENO)) {
        write_line(libc::STDERR_FILENO, parts);
    }
}

/// The same for the program's first thread, from a thread with a table of its own; one without it has that descriptor. Where the first
/// thread has ended, for another one.
pub fn say_for_main(parts: &[&str]) {
    if !pagers::is_pagers() {
        return say(parts);
    }
    let found = standard_error_of(program(), 0).or_else(standard_error_of_another);
    if let Some(file) = found {
        write_line(file.number(), parts);
    }
}

/// Standard error of a thread of the program that is none of the pager's: those have tables of their own, with other files there.
fn standard_error_of_another() -> Option<Fd> {
    let mut found = None;
    let _ = process::each_thread(|tid| {
        if found.is_none() && !tasks::is_named_as_pagers(tid) {
            found = standard_error_of(tid.0, process::THREAD);
        }
    });
    found
}

/// Descriptor 2 of a thread of the program, copied or else opened anew, if it is still what it was noted as.
fn standard_error_of(tid: u32, flags: i32) -> Option<Fd> {
    let copied = |number| process::copy_descriptor(tid, flags, number).ok();
    let (error, output) = (copied(libc::STDERR_FILENO), copied(libc::STDOUT_FILENO));
    // Opened anew a file would have another offset, and one writer would overwrite the other.
    let error = error.or_else(|| {
        let mut path = [0; 40];
        let path = tasks::file_of(tid, b"/fd/2", &mut path)?;
        proc::open(path, libc::O_WRONLY | libc::O_APPEND | libc::O_NOCTTY).ok()
    })?;
    is_standard_error(error.number(), output.as_ref().map(Fd::number)).then_some(error)
}

fn write_line(number: i32, parts: &[&str]) {
    let mut ready = [PollFd {
        fd: number,
        events: libc::POLLOUT,
        revents: 0,
    }];
    if fd::poll(&mut ready, Some(PATIENCE)) != Ok(0) {
        mask::without(BY_WRITING, || write_at_once(number, parts));
    }
}

fn write_at_once(number: i32, parts: &[&str]) {
    let mut vectors = [libc::iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    }; 16];
    let pieces = parts.iter().take(vectors.len() - 1).chain([&"\n"]);
    for (vector, piece) in vectors.iter_mut().zip(pieces) {
        *vector = libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        };
    }
    let (at, count) = (vectors.as_ptr() as usize, vectors.len());
    // SAFETY: the kernel only reads the pieces, which outlive the call; unused vectors are empty.
    let written = unsafe { syscall3(libc::SYS_writev, number as usize, at, count) };
    if written.is_err() {
        // A filter may allow write(2) alone.
        for piece in parts.iter().chain([&"\n"]) {
            let _ = fd::write(number, piece.as_bytes());
        }
    }
}

/// Says why on descriptor 2 and kills the whole process at once (SIGKILL, exit status 137 in a shell;
/// [`process::kill`] says what becomes of process 1).
///
/// SIGKILL because threads of the program can be blocked in faults that nobody will ever resolve, and
/// no handler of the program may run on memory whose content is gone.
pub fn die(parts: &[&str]) -> ! {
    say(parts);
    process::kill()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_go_to_standard_error_and_to_logs_and_to_no_other_file() {
        note_standard_error();
        let copy = fd::copy(libc::STDERR_FILENO).expect("descriptor 2");
        assert!(is_standard_error(copy.number(), None));
        let open = || File::open(std::env::current_exe().expect("own file")).expect("a file");
        let file = open();
        let with = |output: i32| is_standard_error(file.as_raw_fd(), Some(output));
        assert!(!is_standard_error(file.as_raw_fd(), None));
        assert!(!with(open().as_raw_fd()), "the same file, opened twice");
        let twin = file.try_clone().expect("a copy");
        // Linux 6.10 can tell.
        assert_eq!(
            with(twin.as_raw_fd()),
            fd::is_same_opened(file.as_raw_fd(), twin.as_raw_fd())
        );
        let (socket, _other) = UnixStream::pair().expect("sockets");
        let twin = socket.try_clone().expect("a copy");
        let said = is_standard_error(socket.as_raw_fd(), Some(twin.as_raw_fd()));
        assert!(!said, "a connection to somebody else");
        note_standard_error();
        assert!(is_standard_error(copy.number(), None), "noted once");
    }
}
