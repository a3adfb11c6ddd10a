//! The hooks of calls that come to a file by its descriptor, installed where the home of the run keeps files (`files`).

use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::c_result;
use crate::patch::EntryPoint;
use crate::{files, raw};

/// A hook that has `$before` called with the arguments, and goes on in libc's function: none of our frames is on the stack then, for it may be cancelled.
macro_rules! before_hook {
    ($name:ident, $original:ident, $before:path) => {
        static $original: AtomicUsize = AtomicUsize::new(0);

        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8",
                "call {before}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp qword ptr [rip + {original}]",
                before = sym $before,
                original = sym $original,
            )
        }
    };
}
before_hook!(write, WRITE_ORIGINAL, files::touched);
before_hook!(pwrite, PWRITE_ORIGINAL, files::touched);
before_hook!(writev, WRITEV_ORIGINAL, files::touched);
before_hook!(pwritev, PWRITEV_ORIGINAL, files::touched);
before_hook!(pwritev2, PWRITEV2_ORIGINAL, files::touched);
before_hook!(sendfile, SENDFILE_ORIGINAL, files::both_touched);
before_hook!(splice, SPLICE_ORIGINAL, files::first_and_third_touched);
before_hook!(
    copy_range,
    COPY_RANGE_ORIGINAL,
    files::first_and_third_touched
);
before_hook!(seek, SEEK_ORIGINAL, files::sought);
before_hook!(sendmsg, SENDMSG_ORIGINAL, files::sent);
before_hook!(sendmmsg, SENDMMSG_ORIGINAL, files::many_sent);

static RESERVE_ORIGINAL: AtomicUsize = AtomicUsize::new(0);

/// posix_fallocate(3): libc has ways of its own for other files.
#[unsafe(naked)]
unsafe extern "C" fn reserve() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {is_one}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test al, al",
        "jnz {reserved}",
        "jmp qword ptr [rip + {original}]",
        is_one = sym files::is_one,
        reserved = sym reserved,
        original = sym RESERVE_ORIGINAL,
    )
}

/// Returns the error number.
extern "C" fn reserved(fd: c_int, offset: i64, len: i64) -> c_int {
    -files::allocate(fd, 0, offset, len) as c_int
}

extern "C" fn truncate(fd: c_int, bytes: i64) -> c_int {
    c_result(files::truncate(fd, bytes)) as c_int
}

extern "C" fn truncate_by_path(path: usize, bytes: i64) -> c_int {
    c_result(files::truncate_by_path(path, bytes)) as c_int
}

extern "C" fn allocate(fd: c_int, how: c_int, offset: i64, len: i64) -> c_int {
    c_result(files::allocate(fd, how, offset, len)) as c_int
}

extern "C" fn set_mode(fd: c_int, mode: u32) -> c_int {
    c_result(files::set_mode(fd, mode)) as c_int
}

/// Every entry that is patched beside the others; without one of them a program would find zeroes in its files.
pub fn entries() -> [EntryPoint; 16] {
    [
        entry!(c"write", write, true, Some(&WRITE_ORIGINAL)),
        entry!(c"pwrite64", pwrite, true, Some(&PWRITE_ORIGINAL)),
        entry!(c"writev", writev, true, Some(&WRITEV_ORIGINAL)),
        entry!(c"pwritev64", pwritev, true, Some(&PWRITEV_ORIGINAL)),
        entry!(c"pwritev64v2", pwritev2, true, Some(&PWRITEV2_ORIGINAL)),
        entry!(c"sendfile64", sendfile, true, Some(&SENDFILE_ORIGINAL)),
        entry!(c"splice", splice, true, Some(&SPLICE_ORIGINAL)),
        entry!(
            c"copy_file_range",
            copy_range,
            true,
            Some(&COPY_RANGE_ORIGINAL)
        ),
        entry!(c"lseek64", seek, true, Some(&SEEK_ORIGINAL)),
        entry!(c"sendmsg", sendmsg, true, Some(&SENDMSG_ORIGINAL)),
        entry!(c"sendmmsg", sendmmsg, true, Some(&SENDMMSG_ORIGINAL)),
        entry!(c"posix_fallocate64", reserve, true, Some(&RESERVE_ORIGINAL)),
        entry!(c"ftruncate64", truncate, true),
        entry!(c"truncate64", truncate_by_path, true),
        entry!(c"fallocate64", allocate, true),
        entry!(c"fchmod", set_mode, true),
    ]
}

/// The numbers of these calls.
pub(super) const NUMBERS: [c_long; 15] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    libc::SYS_lseek,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
];

/// Such a call through `syscall(2)`.
pub(super) fn by_number(number: c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, ..] = args;
    let s = |value: usize| value as c_int;
    match number {
        _ if !files::LENDS.load(Ordering::Acquire) => {}
        libc::SYS_ftruncate => return files::truncate(s(a), b as i64),
        libc::SYS_truncate => return files::truncate_by_path(a, b as i64),
        libc::SYS_fallocate => return files::allocate(s(a), s(b), c as i64, d as i64),
        libc::SYS_fchmod => return files::set_mode(s(a), b as u32),
        libc::SYS_sendfile => files::both_touched(s(a), s(b)),
        libc::SYS_splice | libc::SYS_copy_file_range => {
            files::first_and_third_touched(s(a), b, s(c));
        }
        libc::SYS_lseek => files::sought(s(a), b as i64, s(c)),
        libc::SYS_sendmsg => files::sent(s(a), b),
        libc::SYS_sendmmsg => files::many_sent(s(a), b, c as u32),
        _ => files::touched(s(a)),
    }
    // SAFETY: the program's own call.
    unsafe { raw::call(number, args) }
}
