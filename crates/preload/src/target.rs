//! Programs about to be executed into which the shim cannot follow: one line says so.
//!
//! The caller may be a child of vfork, on its parent's memory: only system calls and the stack are
//! used, and whatever fails is left to the execution itself to report.

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;

use outpage_sys::say;

use crate::mode::{self, Mode};
use crate::{files, raw};

/// Bytes at the start of a file that decide: the kernel reads as many for `#!`.
const HEAD_BYTES: usize = 256;
/// Files to look at: a program behind the four interpreters that the kernel allows.
const FILES_MAX: usize = 5;

// From <elf.h>.
const CLASS_64: u8 = 2;
const MACHINE_X86_64: u16 = 62;
const PT_INTERP: u32 = 3;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

/// What a look at a file tells.
#[expect(clippy::large_enum_variant, reason = "nothing may be allocated here")]
enum Look {
    /// The shim follows, or nothing is known.
    Fine,
    /// Why it does not.
    Unmanaged(&'static str),
    /// A script; this is its interpreter, ended by a zero.
    Script([u8; HEAD_BYTES]),
}

/// Says it if the execution of `path`, as execveat(2) takes it, leads out of the limit.
pub fn tell(dir: i32, path: *const c_char, flags: i32) {
    if !matches!(mode::current(), Mode::Direct | Mode::Managed) {
        return;
    }
    if flags & libc::AT_EMPTY_PATH != 0 && files::LENDS.load(Ordering::Acquire) {
        files::touched(dir);
    }
    if let Some(what) = unmanaged(dir, path, flags) {
        if files::LENDS.load(Ordering::Acquire) {
            files::inherited_unseen();
        }
        // SAFETY: the kernel has read the name without a fault.
        let name = unsafe { CStr::from_ptr(path) }.to_str().unwrap_or("");
        let name = if name.is_empty() { "the program" } else { name };
        say::say(&["outpage: ", name, " is ", what, ": it runs without a limit"]);
    }
}

/// Why the shim cannot follow into `path`, or into what interprets it, to follow "PROGRAM is ".
fn unmanaged(dir: i32, path: *const c_char, flags: i32) -> Option<&'static str> {
    let mut look = look(dir, path, flags);
    for _ in 1..FILES_MAX {
        let Look::Script(interpreter) = look else {
            break;
        };
        look = self::look(libc::AT_FDCWD, interpreter.as_ptr().cast(), 0);
    }
    match look {
        Look::Unmanaged(what) => Some(what),
        Look::Fine | Look::Script(_) => None,
    }
}

/// Whether the kernel would let the caller execute `path`, as execveat(2) takes it.
pub fn may_execute(dir: i32, path: *const c_char, flags: i32) -> bool {
    let known = flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) | libc::AT_EACCESS;
    let args = [
        dir as usize,
        path as usize,
        libc::X_OK as usize,
        known as usize,
        0,
        0,
    ];
    // SAFETY: the kernel checks the name.
    let answer = unsafe { raw::call(libc::SYS_faccessat2, args) };
    // Before Linux 5.8 there is no such call: in doubt it would.
    answer == 0 || answer == -(libc::ENOSYS as isize)
}

fn look(dir: i32, path: *const c_char, flags: i32) -> Look {
    // SAFETY: an all-zero `stat` is a valid value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let at = (&raw mut stat) as usize;
    let known = flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW);
    let args = [dir as usize, path as usize, at, known as usize, 0, 0];
    // SAFETY: the kernel checks the name, and writes a `stat`.
    let found = unsafe { raw::call(libc::SYS_newfstatat, args) } == 0;
    // Opening what is no file may wait, or do something.
    if !found || stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_mode & 0o111 == 0 {
        return Look::Fine;
    }
    // SAFETY: the kernel has just read it without a fault.
    if unsafe { *path } == 0 {
        return read(dir, path, &stat);
    }
    let open = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
    // SAFETY: a name, which the kernel checks.
    let file = unsafe {
        raw::call(
            libc::SYS_openat,
            [dir as usize, path as usize, open, 0, 0, 0],
        )
    };
    if file < 0 {
        return Look::Fine;
    }
    let look = read(file as i32, path, &stat);
    // SAFETY: the descriptor opened above.
    unsafe { raw::call(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]) };
    look
}

/// Fills `to` from `offset`; returns how much there is.
fn read_at(file: i32, to: &mut [u8], offset: u64) -> usize {
    let args = [
        file as usize,
        to.as_mut_ptr() as usize,
        to.len(),
        offset as usize,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most so many bytes to the buffer.
    unsafe { raw::call(libc::SYS_pread64, args) }.max(0) as usize
}

fn read(file: i32, path: *const c_char, stat: &libc::stat) -> Look {
    let mut head = [0; HEAD_BYTES];
    let len = read_at(file, &mut head, 0);
    if let Some(line) = head[..len].strip_prefix(b"#!") {
        return interpreter(line).map_or(Look::Fine, Look::Script);
    }
    if !head.starts_with(b"\x7fELF") {
        return Look::Fine;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if let Some(how) = privileged(stat) {
        Look::Unmanaged(how)
    } else if len < HEADER_BYTES || head[4] != CLASS_64 || half(18) != MACHINE_X86_64 {
        Look::Unmanaged("not an x86-64 program")
    } else if has_loader(file, &head) || is_loader(path) {
        Look::Fine
    } else {
        Look::Unmanaged("statically linked")
    }
}

/// The interpreter in a script's first line, `#!` taken off.
fn interpreter(line: &[u8]) -> Option<[u8; HEAD_BYTES]> {
    let line = line.split(|&byte| byte == b'\n').next()?;
    let word = line
        .trim_ascii_start()
        .split(|byte| byte.is_ascii_whitespace() || *byte == 0)
        .next()?;
    let mut name = [0; HEAD_BYTES];
    name.get_mut(..word.len())?.copy_from_slice(word);
    (!word.is_empty()).then_some(name)
}

/// How the file changes the identity of whoever executes it, after which the loader preloads nothing.
fn privileged(stat: &libc::stat) -> Option<&'static str> {
    // SAFETY: take nothing.
    let (user, group) = unsafe {
        (
            raw::call(libc::SYS_getuid, [0; 6]),
            raw::call(libc::SYS_getgid, [0; 6]),
        )
    };
    if stat.st_mode & libc::S_ISUID != 0 && stat.st_uid as isize != user {
        Some("set-user-id")
    } else if stat.st_mode & 0o2010 == 0o2010 && stat.st_gid as isize != group {
        Some("set-group-id")
    } else {
        None
    }
}

/// Whether the program names a dynamic loader; true when in doubt.
fn has_loader(file: i32, head: &[u8; HEAD_BYTES]) -> bool {
    let word = |at: usize| core::array::from_fn(|i| head[at + i]);
    let table = u64::from_le_bytes(word(32));
    let count = u16::from_le_bytes([head[56], head[57]]);
    for index in 0..u64::from(count) {
        let mut kind = [0; 4];
        let at = table.saturating_add(index * PROGRAM_HEADER_BYTES as u64);
        if read_at(file, &mut kind, at) < kind.len() || u32::from_le_bytes(kind) == PT_INTERP {
            return true;
        }
    }
    false
}

/// The dynamic loader itself has no loader, and preloads when it is executed.
fn is_loader(path: *const c_char) -> bool {
    // SAFETY: the kernel has read the name without a fault.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    file.starts_with(b"ld-linux") || file.starts_with(b"ld.so")
}

#[cfg(test)]
mod tests;
