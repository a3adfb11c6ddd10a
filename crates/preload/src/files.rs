//! Files of RAM that have no name, such as memfds, where the home of the run keeps them (`--shared tree`).
//!
//! One is kept from its first mapping on, or from the first call that reserves memory for it. What is out of it is a hole, which its descriptors read as zeroes.
//! So every call that reads or writes a file, hands one to another process or changes its size has the home give a kept one up before, and all of it is in RAM
//! then. One that is mapped otherwise or handed over before it is kept is never to be. The file itself says either ([`ram_file`]), whatever way its descriptor came here.
//!
//! Not seen: calls that are not made through libc; io_uring and libaio; a path of /proc that leads to the file, where it is opened with `O_TRUNC`, executed, loaded or given
//! another mode by it.

use core::ffi::CStr;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::ffi::CString;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::call;
use outpage_engine::home::errand::{self, Errand};
use outpage_sys::fd as descriptor;
use outpage_sys::ram_file::{self, RamFile};
use outpage_sys::raw::Errno;
use outpage_sys::{proc, process, say};

use crate::checked::Reader;
use crate::mode::{self, Path};
use crate::raw::{self, SignalsBlocked};
use crate::{apart, status};

/// Shared memory is kept by the home of the run.
pub static LENDS: AtomicBool = AtomicBool::new(false);

/// Shared memory, or a file of RAM, below this stays with the kernel, in bytes. A choice: a process that has some needs a pager, which takes as much as that itself.
pub const LENT_MIN: usize = 1 << 20;

/// The home's name; null where none keeps files.
static HOME: AtomicPtr<CString> = AtomicPtr::new(core::ptr::null_mut());

/// The home of this name keeps files.
pub fn set_up(home: &CStr) {
    let home = Box::into_raw(Box::new(home.to_owned()));
    HOME.store(home, Ordering::Release);
}

fn look(fd: i32) -> Option<RamFile> {
    RamFile::of(&status::of(fd)?)
}

/// Before mmap(2) of the file behind `fd`: the number of the file where the home keeps it. One that has a name may have lost it by the next time.
pub fn before_mmap(fd: i32, shared: bool) -> Option<u64> {
    let found = look(fd).filter(|_| !mode::is_pager())?;
    let may_be = found.bytes >= LENT_MIN as u64 && found.may_be_kept(fd);
    let kept = (shared && (may_be || found.is_marked())).then(|| keep(fd, &found));
    let kept = kept.flatten();
    if kept.is_none() {
        leave(fd, &found);
    }
    kept
}

/// Has the home keep a file, if it can: its number.
fn keep(fd: i32, found: &RamFile) -> Option<u64> {
    match ask(Errand::Keep, fd) {
        Ok(id) => Some(id),
        Err(Errno::EOPNOTSUPP) => None,
        // The home cannot be reached by way of this thread. By that of the pager it can, if it was before.
        Err(_) => ram_file::is_kept(fd).then_some(found.id),
    }
}

/// The file is the kernel's, and is not to be kept: somebody comes to it unseen from now on. The home marks a file and looks then whether that was said.
fn leave(fd: i32, found: &RamFile) {
    ram_file::never_keep(fd, found);
    give_up(fd);
}

/// Gives a file up that is kept.
fn give_up(fd: i32) {
    if let Some(found) = look(fd).filter(RamFile::is_marked)
        && !mode::is_pager()
    {
        have_given_up(fd, &found);
    }
}

/// Has the home give up a file that is marked.
fn have_given_up(fd: i32, found: &RamFile) {
    if is_others(found) && !ram_file::is_kept(fd) {
        return;
    }
    for _ in 0..TRIES {
        let asked = match ask(Errand::GiveUp, fd) {
            // A process that has no descriptors left, or another network namespace or user by now, may have a pager that the home knows.
            Err(error) => by_pager(found.id).ok_or(error),
            told => told,
        };
        match asked {
            // It is being tried whether it can be kept.
            Ok(0) if is_kept_still(fd) => process::yield_now(),
            Ok(0) => return OTHERS[place(found)].store(found.id, Ordering::Relaxed),
            Ok(_) => return,
            Err(error) => end(&error),
        }
    }
    end(&"another run keeps it");
}

/// So often the home is asked about a file that somebody keeps, and not this home: its own looks at one end sooner. A choice.
const TRIES: u32 = 100;

fn is_kept_still(fd: i32) -> bool {
    look(fd).is_some_and(|now| now.is_marked()) && ram_file::is_kept(fd)
}

/// Asks by way of the pager, where there is one.
fn by_pager(id: u64) -> Option<u64> {
    let Path::Managed(engine) = mode::enter() else {
        return None;
    };
    u64::try_from(engine.call(call::Call::GiveUp { id })).ok()
}

/// Files whose sticky bit is the program's own: the home has said that it does not keep them. A choice, for a few such files at a time.
static OTHERS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

const fn place(found: &RamFile) -> usize {
    found.id as usize % OTHERS.len()
}

fn is_others(found: &RamFile) -> bool {
    OTHERS[place(found)].load(Ordering::Relaxed) == found.id
}

/// Whoever read on would find zeroes.
fn end(why: &dyn core::fmt::Display) -> ! {
    let (pid, why) = (process::pid().to_string(), why.to_string());
    say::die(&[
        "outpage: ",
        &pid,
        ": a memfd that is paged cannot be brought in, the program ends: ",
        &why,
    ])
}

/// Before another program is executed that finds out nothing: what it inherits is given up, and not to be kept.
pub fn inherited_unseen() {
    let open = |fd: i32| {
        let flags = descriptor::flags(fd);
        if flags.is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
            && let Some(found) = look(fd)
        {
            leave(fd, &found);
        }
    };
    // Where /proc does not tell, as many as a process may have unless it asks for more (`INR_OPEN_CUR` of include/uapi/linux/fs.h).
    let numbers = proc::table_size().unwrap_or(1024);
    (0..numbers as i32).for_each(open);
}

/// Before a call that reads or writes the file behind `fd`.
pub extern "C" fn touched(fd: c_int) {
    give_up(fd);
}

/// Before a call that does so with two files.
pub extern "C" fn both_touched(one: c_int, other: c_int) {
    give_up(one);
    give_up(other);
}

/// The same, the second file being the third argument.
pub extern "C" fn first_and_third_touched(one: c_int, _: usize, other: c_int) {
    both_touched(one, other);
}

/// Before lseek(2): where data and holes are, a kept file does not say.
pub extern "C" fn sought(fd: c_int, _: i64, whence: c_int) {
    if matches!(whence, libc::SEEK_DATA | libc::SEEK_HOLE) {
        give_up(fd);
    }
}

/// Before sendmsg(2): files that go along may be mapped unseen.
pub extern "C" fn sent(_: c_int, message: usize) {
    let mut reader = Reader::default();
    if let Some(header) = reader.value::<libc::msghdr>(message) {
        handed_over(&mut reader, &header);
    }
}

/// Before sendmmsg(2).
pub extern "C" fn many_sent(_: c_int, messages: usize, count: u32) {
    let mut reader = Reader::default();
    for i in 0..(count as usize).min(libc::UIO_MAXIOV as usize) {
        let at = messages.wrapping_add(i * size_of::<libc::mmsghdr>());
        let Some(message) = reader.value::<libc::mmsghdr>(at) else {
            return;
        };
        handed_over(&mut reader, &message.msg_hdr);
    }
}

/// Files that a message takes along (cmsg(3)).
fn handed_over(reader: &mut Reader, header: &libc::msghdr) {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let mut at = header.msg_control as usize;
    let end = at.saturating_add(header.msg_controllen);
    while at != 0 && end.saturating_sub(at) >= HEAD {
        let Some(head) = reader.value::<libc::cmsghdr>(at) else {
            return;
        };
        // The kernel refuses what is shorter or longer.
        if head.cmsg_len < HEAD || head.cmsg_len > end - at {
            return;
        }
        if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for place in (at + HEAD..at + head.cmsg_len).step_by(size_of::<c_int>()) {
                if let Some(fd) = reader.value::<c_int>(place)
                    && let Some(found) = look(fd)
                {
                    leave(fd, &found);
                }
            }
        }
        at += head.cmsg_len.next_multiple_of(size_of::<usize>());
    }
}

/// Whether the home keeps the file behind `fd`, or can.
pub extern "C" fn is_one(fd: c_int) -> bool {
    let is_one = |found: RamFile| found.is_marked() || found.may_be_kept(fd);
    look(fd).is_some_and(is_one) && !mode::is_pager()
}

/// ftruncate(2).
pub fn truncate(fd: i32, bytes: i64) -> isize {
    give_up(fd);
    // SAFETY: the program's own call.
    changed(fd, || unsafe {
        raw::call(
            libc::SYS_ftruncate,
            [fd as usize, bytes as usize, 0, 0, 0, 0],
        )
    })
}

/// fchmod(2): what says that a file is kept stays.
pub fn set_mode(fd: i32, mode: u32) -> isize {
    let kept = look(fd).is_some_and(|found| found.is_marked()) && ram_file::is_kept(fd);
    let mode = if kept { mode | libc::S_ISVTX } else { mode };
    // SAFETY: the program's own call.
    unsafe { raw::call(libc::SYS_fchmod, [fd as usize, mode as usize, 0, 0, 0, 0]) }
}

/// truncate(2): a file may be named by a path of /proc.
pub fn truncate_by_path(path: usize, bytes: i64) -> isize {
    let flags = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let open = [path, flags as usize, 0, 0, 0, 0];
    // SAFETY: an all-zero `stat` is a valid value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let look = [path, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: the program's own path, which the kernel reads; it fills the structure, which is libc's on x86-64.
    let there = unsafe { raw::call(libc::SYS_stat, look) } == 0;
    if there && RamFile::of(&stat).is_some_and(|found| found.is_marked()) {
        // SAFETY: as above; the descriptor is this function's.
        let fd = unsafe { raw::call(libc::SYS_open, open) };
        if fd >= 0 {
            give_up(fd as i32);
            drop(descriptor::Fd::adopt(fd as i32));
        }
    }
    // SAFETY: the program's own call.
    unsafe { raw::call(libc::SYS_truncate, [path, bytes as usize, 0, 0, 0, 0]) }
}

/// Makes a call that may take all memory from a file that had a name, and is not to be kept: it has some still.
fn changed(fd: i32, call: impl FnOnce() -> isize) -> isize {
    let had = look(fd).is_some_and(|found| found.has_memory && found.has_name());
    let result = call();
    if let Some(found) = look(fd).filter(|_| had) {
        ram_file::never_keep(fd, &found);
    }
    result
}

/// fallocate(2). A kept file has no memory reserved: what is reserved is paged as what is written.
pub fn allocate(fd: i32, how: i32, offset: i64, len: i64) -> isize {
    let args = [
        fd as usize,
        how as usize,
        offset as usize,
        len as usize,
        0,
        0,
    ];
    // SAFETY: the program's own call.
    let by_kernel = || unsafe { raw::call(libc::SYS_fallocate, args) };
    let range = offset.checked_add(len).filter(|_| offset >= 0 && len > 0);
    let (Some(end), Some(found)) = (range, look(fd)) else {
        return by_kernel();
    };
    if descriptor::open_flags(fd).is_ok_and(|flags| flags & libc::O_ACCMODE == libc::O_RDONLY) {
        return by_kernel();
    }
    let (start, end) = (offset as u64, end as u64);
    let done = match how {
        0 => reserve(fd, end, &found),
        libc::FALLOC_FL_KEEP_SIZE if end <= found.bytes => reserve(fd, end, &found),
        PUNCHES => punch(fd, start, end, &found),
        _ => None,
    };
    done.unwrap_or_else(|| {
        give_up(fd);
        changed(fd, by_kernel)
    })
}

const PUNCHES: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// Memory for a file up to `end`, if it is kept or can be.
fn reserve(fd: i32, end: u64, found: &RamFile) -> Option<isize> {
    if found.is_marked() {
        return (end <= found.bytes && keep(fd, found).is_some()).then_some(0);
    }
    let mut grown = *found;
    grown.bytes = end.max(found.bytes);
    if grown.bytes < LENT_MIN as u64 || !grown.may_be_kept(fd) {
        return None;
    }
    if end > found.bytes {
        descriptor::set_len(fd, end).ok()?;
    }
    let kept = keep(fd, found);
    if kept.is_none() && end > found.bytes {
        // The kernel says what it thinks of it.
        let _ = descriptor::set_len(fd, found.bytes);
    }
    kept.map(|_| 0)
}

/// A hole in a file, if it is kept.
fn punch(fd: i32, start: u64, end: u64, found: &RamFile) -> Option<isize> {
    let page = PAGE_BYTES as u64;
    let whole = start.is_multiple_of(page) && end.is_multiple_of(page);
    if !found.is_marked() || !whole {
        return None;
    }
    let end = end.min(found.bytes.next_multiple_of(page));
    if start >= end {
        return Some(0);
    }
    match ask(Errand::Hole { start, end }, fd) {
        Ok(_) => Some(0),
        Err(_) => None,
    }
}

/// Asks the home.
fn ask(errand: Errand, fd: i32) -> Result<u64, Errno> {
    let _signals = SignalsBlocked::new();
    // SAFETY: null, or set once and never freed.
    let home = unsafe { HOME.load(Ordering::Acquire).as_ref() }.ok_or(Errno::EOPNOTSUPP)?;
    apart::carry_out(c"outpage-file", Some(fd), move || {
        errand::ask(home, errand, fd)
    })?
}
