//! References to the program's pages that the kernel takes without pinning them.
//!
//! A page in a pipe (vmsplice) or on its way to the network (`MSG_ZEROCOPY`) is read later, by way
//! of a plain reference, and the kernel lets a page with such a reference be moved. Its frame would
//! come to hold another page's bytes before they are read. So the first is done by copying, in
//! every mode, as what is in the pipe may stay there until the pager runs; and sockets are not told
//! to do the second, which leads programs to send by copy.
//!
//! A request for zero-copy sending made through an io_uring is not seen. Pages that are pinned
//! are the business of `pins`.

use outpage_sys::fd as descriptor;

use crate::checked::{self, Reader};
use crate::raw;

/// What `POLLOUT` promises a pipe takes at once, whatever its flags (pipe(7)): a page.
const PIPE_BUF: usize = 4096;

const EAGAIN: isize = -(libc::EAGAIN as isize);
const EFAULT: isize = -(libc::EFAULT as isize);
const EOPNOTSUPP: isize = -(libc::EOPNOTSUPP as isize);

/// `SPLICE_F_ALL` of include/linux/splice.h: other flags are refused (`EINVAL`).
const SPLICE_F_ALL: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// vmsplice(2): into a pipe by copying, out of a pipe as it is.
///
/// Like the original, waits only while nothing at all fits, and returns how much did.
pub fn vmsplice(fd: i32, parts: *const libc::iovec, count: usize, flags: i32) -> isize {
    let args = [fd as usize, parts as usize, count, flags as usize, 0, 0];
    let mode = descriptor::open_flags(fd).unwrap_or(libc::O_RDONLY);
    let is_out = mode & libc::O_ACCMODE == libc::O_RDONLY || !is_pipe(fd);
    if is_out || flags as u32 & !SPLICE_F_ALL != 0 {
        // SAFETY: the program's own call: it copies out of the pipe, or fails.
        return unsafe { raw::call(libc::SYS_vmsplice, args) };
    }
    loop {
        match write_what_fits(fd, parts, count) {
            EAGAIN => {}
            result => return result,
        }
        // Whether the pipe itself may wait does not count.
        if flags as u32 & libc::SPLICE_F_NONBLOCK != 0 {
            return EAGAIN;
        }
        let waited = wait_writable(fd, -1);
        if waited < 0 {
            return waited;
        }
    }
}

fn is_pipe(fd: i32) -> bool {
    // SAFETY: an all-zero `stat` is a valid value.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let args = [fd as usize, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: on x86-64 the kernel's structure for this call is libc's `stat`.
    let result = unsafe { raw::call(libc::SYS_fstat, args) };
    result == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// pwritev2(2) into a pipe, which does not wait: `-EAGAIN` when it is full.
fn write_now(fd: i32, parts: *const libc::iovec, count: usize) -> isize {
    // Offset -1: the file has none.
    let none = usize::MAX;
    let now = libc::RWF_NOWAIT as usize;
    // SAFETY: the kernel reads the program's own buffers, as the program asked.
    unsafe {
        raw::call(
            libc::SYS_pwritev2,
            [fd as usize, parts as usize, count, none, none, now],
        )
    }
}

/// Copies into the pipe without waiting; `-EAGAIN` when it is full.
fn write_what_fits(fd: i32, parts: *const libc::iovec, count: usize) -> isize {
    let result = write_now(fd, parts, count);
    // Pipes take RWF_NOWAIT since Linux 5.13 or so, and no more once splice(2) or tee(2) used them (`pipe_clear_nowait`, Linux 5.16). And of a page of the pipe's
    // nothing is written where some of it cannot be read, where vmsplice(2) takes what lies before.
    match result {
        EOPNOTSUPP | EFAULT => write_by_pieces(fd, parts, count, 0),
        some if some > 0 => write_by_pieces(fd, parts, count, some as usize),
        _ => result,
    }
}

/// Copies what lies behind `written` bytes into the pipe, as much as surely fits, page by page; returns how much there is then, `-EAGAIN` for nothing.
fn write_by_pieces(fd: i32, parts: *const libc::iovec, count: usize, written: usize) -> isize {
    let mut list = Reader::default();
    let part = |list: &mut Reader, i| list.value::<libc::iovec>(parts.wrapping_add(i) as usize);
    // The kernel looks at all of them first.
    if !(0..count).all(|i| part(&mut list, i).is_some_and(|part| checked::may_lie_at(&part))) {
        return some_or(written, EFAULT);
    }
    let (mut all, mut skip) = (written, written);
    for part in (0..count).filter_map(|i| part(&mut list, i)) {
        let mut done = skip.min(part.iov_len);
        skip -= done;
        while done < part.iov_len {
            if wait_writable(fd, 0) <= 0 {
                return some_or(all, EAGAIN);
            }
            let from = part.iov_base as usize + done;
            let in_page = (PIPE_BUF - from % PIPE_BUF).min(part.iov_len - done);
            let result = write_piece(fd, from, in_page);
            if result <= 0 {
                return some_or(all, result);
            }
            all += result as usize;
            done += result as usize;
        }
    }
    all as isize
}

/// Copies bytes within a page, for which there was room: another writer may have taken it.
fn write_piece(fd: i32, from: usize, len: usize) -> isize {
    let piece = libc::iovec {
        iov_base: from as *mut _,
        iov_len: len,
    };
    match write_now(fd, &raw const piece, 1) {
        // SAFETY: the kernel reads the program's own buffer.
        EOPNOTSUPP => unsafe { raw::call(libc::SYS_write, [fd as usize, from, len, 0, 0, 0]) },
        result => result,
    }
}

/// What was written, if anything was, else `result`.
const fn some_or(written: usize, result: isize) -> isize {
    if written > 0 {
        written as isize
    } else {
        result
    }
}

/// poll(2) for room in the pipe; 0 if there is none within `timeout_ms` (-1: for ever).
fn wait_writable(fd: i32, timeout_ms: i32) -> isize {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    let args = [
        (&raw mut poll) as usize,
        1,
        timeout_ms as isize as usize,
        0,
        0,
        0,
    ];
    // SAFETY: one valid `pollfd`.
    unsafe { raw::call(libc::SYS_poll, args) }
}

/// setsockopt(2): `SO_ZEROCOPY` cannot be switched on, as on a socket type that lacks it. What else is wrong with the call the kernel says first.
pub fn setsockopt(fd: i32, level: i32, name: i32, value: *const u8, len: u32) -> isize {
    let off = 0i32;
    let is_zerocopy = level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY;
    let switches_on =
        is_zerocopy && len >= 4 && Reader::default().value::<i32>(value as usize) == Some(1);
    let value = if switches_on {
        (&raw const off) as usize
    } else {
        value as usize
    };
    let args = [
        fd as usize,
        level as usize,
        name as usize,
        value,
        len as usize,
        0,
    ];
    // SAFETY: the program's own call, but for a value of ours, which the kernel reads.
    match unsafe { raw::call(libc::SYS_setsockopt, args) } {
        0 if switches_on => -(libc::EOPNOTSUPP as isize),
        result => result,
    }
}
