//! Lines for whoever runs the program, on its standard error.

use core::ffi::CStr;

use crate::fd::{self, Fd};
use crate::process::{self, Tid, program};
use crate::raw::syscall3;
use crate::{pagers, proc, thread};

/// Writes `parts` and a line end to descriptor 2, in one call, so that lines of several threads do not
/// mix. Errors are ignored; only the first 15 parts are written.
pub fn say(parts: &[&str]) {
    write_line(libc::STDERR_FILENO, parts);
}

/// The same on descriptor 2 of the program's first thread, for a thread with a table of its own; one without it has that descriptor. Where the first
/// thread has ended, on that of another one.
pub fn say_for_main(parts: &[&str]) {
    if !pagers::is_pagers() {
        return say(parts);
    }
    let found = descriptor_of_task(program(), 0).or_else(descriptor_of_another);
    if let Some(file) = found {
        write_line(file.number(), parts);
    }
}

/// Descriptor 2 of a thread of the program that is none of the pager's: those have tables of their own, with other files there.
fn descriptor_of_another() -> Option<Fd> {
    let mut found = None;
    let _ = process::each_thread(|tid| {
        if found.is_none() && !is_pagers(tid) {
            found = descriptor_of_task(tid.0, process::THREAD);
        }
    });
    found
}

/// Whether a thread of the program has a name as the pager's have; true where that cannot be told.
fn is_pagers(tid: Tid) -> bool {
    let (mut path, mut name) = ([0; 40], [0; 16]);
    let read = file_of(tid.0, b"/comm", &mut path)
        .and_then(|path| proc::open(path, libc::O_RDONLY).ok())
        .and_then(|file| fd::read(file.number(), &mut name).ok());
    read.is_none_or(|len| name[..len].starts_with(thread::NAME_PREFIX))
}

/// Descriptor 2 of a thread of the program, copied or else opened anew.
fn descriptor_of_task(tid: u32, flags: i32) -> Option<Fd> {
    let copied = process::copy_descriptor(tid, flags, libc::STDERR_FILENO).ok();
    // Opened anew a file would have another offset, and one writer would overwrite the other.
    copied.or_else(|| {
        let mut path = [0; 40];
        let path = file_of(tid, b"/fd/2", &mut path)?;
        proc::open(path, libc::O_WRONLY | libc::O_APPEND | libc::O_NOCTTY).ok()
    })
}

/// Where /proc has `file` of a thread of the program.
fn file_of<'a>(tid: u32, file: &[u8], path: &'a mut [u8; 40]) -> Option<&'a CStr> {
    let mut tasks = [0; 24];
    fd::numbered(&mut tasks, b"", program(), b"/task/");
    let tasks = CStr::from_bytes_until_nul(&tasks).ok()?.to_bytes();
    fd::numbered(path, tasks, tid, file);
    CStr::from_bytes_until_nul(path).ok()
}

fn write_line(number: i32, parts: &[&str]) {
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
