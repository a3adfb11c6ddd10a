//! How many threads a program finds that it has.
//!
//! Sandboxes must be entered by a process of one thread, and the links of the directory `/proc/self/task` are how some make sure of
//! it (Chromium's `ThreadHelpers::IsSingleThreaded`: three links are one thread). The pager's threads are none of the
//! program's: nothing that a sandbox shuts out can come in by them. So they are left out of that number. They stay in the list of
//! the directory's entries.

use core::ffi::{CStr, c_long};

use outpage_sys::process;
use outpage_sys::thread::NAME_PREFIX;

use crate::raw;

/// What the names of io_uring's workers begin with; the number of the thread that they serve follows (`io_uring/io-wq.c`).
const WORKER: &[u8] = b"iou-wrk-";
/// A name and its newline (`TASK_COMM_LEN`).
const NAME_BYTES: usize = 16;
/// Links of the directory without any thread: those of itself and of its parent.
const LINKS: u64 = 2;

/// newfstatat(2), but that the links of this process's `task` directory are those without the pager's threads.
pub fn fstatat(dir: i32, path: *const u8, stat: *mut libc::stat, flags: i32) -> isize {
    let [at, name, into, flags] = [dir as usize, path as usize, stat as usize, flags as usize];
    let args = [at, name, into, flags, 0, 0];
    look(libc::SYS_newfstatat, args, dir, path, stat, leave_out)
}

/// fstat(2) by its number, with the same exception.
pub fn fstat(file: i32, stat: *mut libc::stat) -> isize {
    let args = [file as usize, stat as usize, 0, 0, 0, 0];
    let none = core::ptr::null();
    look(libc::SYS_fstat, args, file, none, stat, leave_out)
}

/// The kernel said `stat` of an open file: leaves the pager's threads out of the links.
pub fn seen(file: i32, stat: &mut libc::stat) {
    leave_out(file, c"", stat);
}

/// statx(2), with the same exception.
pub fn statx(dir: i32, path: *const u8, flags: i32, mask: u32, found: *mut libc::statx) -> isize {
    let [at, name, into] = [dir as usize, path as usize, found as usize];
    let args = [at, name, flags as usize, mask as usize, into, 0];
    look(libc::SYS_statx, args, dir, path, found, leave_out_of_statx)
}

/// Makes the call, which says `found` of `path` in `dir`, and has `leave_out` see what it said. No path is as good as an empty one
/// (Linux 6.11, with `AT_EMPTY_PATH`).
fn look<T>(
    number: c_long,
    args: [usize; 6],
    dir: i32,
    path: *const u8,
    found: *mut T,
    leave_out: fn(i32, &CStr, &mut T),
) -> isize {
    // SAFETY: the program's own call.
    let result = unsafe { raw::call(number, args) };
    if result == 0 {
        let path = if path.is_null() {
            c"".as_ptr()
        } else {
            path.cast()
        };
        // SAFETY: the kernel has read the path, a C string, and written the structure, which is libc's on x86-64.
        let (path, found) = unsafe { (CStr::from_ptr(path), &mut *found) };
        leave_out(dir, path, found);
    }
    result
}

fn leave_out_of_statx(dir: i32, path: &CStr, found: &mut libc::statx) {
    let links = Links {
        mode: u32::from(found.stx_mode),
        bytes: found.stx_size,
        links: u64::from(found.stx_nlink),
    };
    found.stx_nlink -= links.of_pagers(dir, path) as u32;
}

fn leave_out(dir: i32, path: &CStr, stat: &mut libc::stat) {
    let links = Links {
        mode: stat.st_mode,
        bytes: stat.st_size as u64,
        links: stat.st_nlink,
    };
    stat.st_nlink -= links.of_pagers(dir, path);
}

/// What the kernel says of a file.
struct Links {
    mode: u32,
    bytes: u64,
    links: u64,
}

impl Links {
    /// How many of the links are those of the pager's threads.
    fn of_pagers(&self, dir: i32, path: &CStr) -> u64 {
        // Those of procfs have no size.
        let may_be = self.mode & libc::S_IFMT == libc::S_IFDIR && self.bytes == 0;
        if may_be && self.links > LINKS + 1 && is_own(dir, path) {
            self.counted(dir, path)
        } else {
            0
        }
    }

    /// How many, of the directory of this process's threads. Apart, for it takes more stack than a coroutine may have.
    #[cold]
    #[inline(never)]
    fn counted(&self, dir: i32, path: &CStr) -> u64 {
        let path = if path.is_empty() { c"." } else { path };
        let (mut all, mut pagers) = (0u64, 0u64);
        each_task(dir, path, |directory, tid| {
            all += 1;
            pagers += u64::from(is_pagers(directory, tid));
        });
        // With a thread that came or went meanwhile the number is what the kernel said.
        if self.links == LINKS + all && pagers < all {
            pagers
        } else {
            0
        }
    }
}

/// Whether this is the directory of this process's threads: by its path, or by what the open one is called.
fn is_own(dir: i32, path: &CStr) -> bool {
    if !path.is_empty() {
        return is_task(path.to_bytes()) || is_own_where_it_leads(dir, path);
    }
    let mut link = [0u8; 48];
    join(&mut link, b"/proc/thread-self/fd/", dir.unsigned_abs(), b"");
    let mut name = [0u8; 64];
    let (link, into) = (link.as_ptr() as usize, name.as_mut_ptr() as usize);
    let args = [libc::AT_FDCWD as usize, link, into, name.len(), 0, 0];
    // SAFETY: a C string, for the rest of the array is zero; the kernel writes at most the length.
    let got = unsafe { raw::call(libc::SYS_readlinkat, args) };
    is_task(&name[..got.max(0) as usize])
}

/// The same of a path that does not say so, as a relative one.
#[cold]
#[inline(never)]
fn is_own_where_it_leads(dir: i32, path: &CStr) -> bool {
    let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let args = [dir as usize, path.as_ptr() as usize, flags, 0, 0, 0];
    // SAFETY: a C string, and nothing is written.
    let directory = unsafe { raw::call(libc::SYS_openat, args) };
    if directory < 0 {
        return false;
    }
    let own = is_own(directory as i32, c"");
    // SAFETY: opened here.
    unsafe { raw::call(libc::SYS_close, [directory as usize, 0, 0, 0, 0, 0]) };
    own
}

/// Whether a path ends as that of this process's threads.
fn is_task(path: &[u8]) -> bool {
    let mut parts = path.rsplit(|&byte| byte == b'/').filter(|p| !p.is_empty());
    let (last, before) = (parts.next(), parts.next());
    let own = |name: &[u8]| name == b"self" || number(name) == Some(process::pid());
    last == Some(b"task") && before.is_some_and(own)
}

fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

/// Calls `visit` with the open directory and the number of each thread in it.
fn each_task(dir: i32, path: &CStr, mut visit: impl FnMut(usize, u32)) {
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let args = [dir as usize, path.as_ptr() as usize, flags, 0, 0, 0];
    // SAFETY: a C string, and nothing is written.
    let directory = unsafe { raw::call(libc::SYS_openat, args) };
    if directory < 0 {
        return;
    }
    let _ = process::each_in(directory as i32, |tid| visit(directory as usize, tid.0));
    // SAFETY: opened here.
    unsafe { raw::call(libc::SYS_close, [directory as usize, 0, 0, 0, 0, 0]) };
}

/// Whether the thread has one of the pager's names, or is a worker of the kernel's for one that has. The first thread has the
/// program's.
fn is_pagers(directory: usize, tid: u32) -> bool {
    if tid == process::pid() {
        return false;
    }
    let mut name = [0u8; NAME_BYTES];
    let name = name_of(directory, tid, &mut name);
    let served = name.strip_prefix(WORKER).and_then(number);
    name.starts_with(NAME_PREFIX) || served.is_some_and(|served| is_pagers(directory, served))
}

/// The thread's name, without the newline behind it; empty where it is gone.
fn name_of(directory: usize, tid: u32, name: &mut [u8; NAME_BYTES]) -> &[u8] {
    let mut path = [0u8; 48];
    join(&mut path, b"", tid, b"/comm");
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let args = [directory, path.as_ptr() as usize, flags, 0, 0, 0];
    // SAFETY: a C string, for the rest of the array is zero; nothing is written.
    let file = unsafe { raw::call(libc::SYS_openat, args) };
    if file < 0 {
        return &[];
    }
    let args = [
        file as usize,
        name.as_mut_ptr() as usize,
        NAME_BYTES,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes at most the length of the buffer, from a descriptor opened here.
    let got = unsafe {
        let got = raw::call(libc::SYS_read, args);
        raw::call(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]);
        got
    };
    name[..got.max(0) as usize].trim_ascii_end()
}

/// Writes `before`, the digits of `number` and `after` into `path`, whose rest stays as it is.
fn join(path: &mut [u8], before: &[u8], number: u32, after: &[u8]) {
    let mut digits = [0u8; 10];
    let (mut first, mut rest) = (digits.len(), number);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parts = before.iter().chain(&digits[first..]).chain(after);
    path.iter_mut()
        .zip(parts)
        .for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_threads_are_told_from_other_directories() {
        let own = format!("/proc/{}/task", process::pid());
        for path in ["/proc/self/task", "self/task/", "//self//task//", &own] {
            assert!(is_task(path.as_bytes()), "{path}");
        }
        let other = format!("/proc/{}/task", process::pid() + 1);
        for path in [
            "task",
            "/proc/self",
            "/proc/self/tasks",
            "/proc/self/task/1",
            "",
            "/",
            &other,
        ] {
            assert!(!is_task(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn paths_are_put_together() {
        for (number, text) in [
            (0, "a0/b"),
            (7, "a7/b"),
            (1024, "a1024/b"),
            (u32::MAX, "a4294967295/b"),
        ] {
            let mut path = [0; 16];
            join(&mut path, b"a", number, b"/b");
            assert_eq!(
                CStr::from_bytes_until_nul(&path).unwrap().to_str().unwrap(),
                text
            );
        }
    }

    #[test]
    fn threads_with_the_pagers_names_are_left_out_and_no_others() {
        let links = |dir, path: &CStr| {
            // SAFETY: an all-zero `stat` is a valid value.
            let mut stat: libc::stat = unsafe { core::mem::zeroed() };
            let flags = if path.is_empty() {
                libc::AT_EMPTY_PATH
            } else {
                0
            };
            assert_eq!(fstatat(dir, path.as_ptr().cast(), &raw mut stat, flags), 0);
            stat.st_nlink
        };
        let counted = |name: &str| {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let before = std::fs::read_dir("/proc/self/task").unwrap().count();
            let thread = std::thread::Builder::new().name(name.into());
            let thread = thread.spawn(move || ended.recv()).unwrap();
            let open = std::fs::File::open("/proc/self/task").unwrap();
            let number = std::os::fd::AsRawFd::as_raw_fd(&open);
            let both = [
                links(libc::AT_FDCWD, c"/proc/self/task"),
                links(number, c""),
            ];
            drop(end);
            let _ = thread.join();
            (before as u64, both)
        };
        // Other tests' threads come and go: some try is undisturbed.
        let tried = |name, more| {
            (0..1000).any(|_| {
                let (before, both) = counted(name);
                both == [LINKS + before + more; 2]
            })
        };
        assert!(tried("another", 1));
        assert!(tried("outpage-io", 0));
    }
}
