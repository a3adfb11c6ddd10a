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

use crate::checked::Reader;
use crate::raw;

/// What `POLLOUT` promises a pipe takes at once, whatever its flags (pipe(7)).
const PIPE_BUF: usize = 4096;

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
            again if again == -(libc::EAGAIN as isize) => {}
            result => return result,
        }
        // Whether the pipe itself may wait does not count.
        if flags as u32 & libc::SPLICE_F_NONBLOCK != 0 {
            return -(libc::EAGAIN as isize);
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

/// Copies into the pipe without waiting; `-EAGAIN` when it is full.
fn write_what_fits(fd: i32, parts: *const libc::iovec, count: usize) -> isize {
    // Offset -1: the file has none.
    let args = [
        fd as usize,
        parts as usize,
        count,
        usize::MAX,
        usize::MAX,
        libc::RWF_NOWAIT as usize,
    ];
    // SAFETY: the kernel reads the program's own buffers, as the program asked.
    let result = unsafe { raw::call(libc::SYS_pwritev2, args) };
    // Of parts that follow each other in one page of the pipe none is written where one cannot be read; vmsplice(2) takes those before.
    let partly = count > 1 && result == -(libc::EFAULT as isize);
    if result != -(libc::EOPNOTSUPP as isize) && !partly {
        return result;
    }
    // Pipes take RWF_NOWAIT since Linux 5.13 or so, and no more once splice(2) or tee(2) used them (`pipe_clear_nowait`, Linux 5.16).
    write_by_pieces(fd, parts, count)
}

/// Copies into the pipe as many pieces as surely fit, one by one; `-EAGAIN` when none does.
fn write_by_pieces(fd: i32, parts: *const libc::iovec, count: usize) -> isize {
    let (mut list, mut written) = (Reader::default(), 0_isize);
    for i in 0..count {
        let Some(part) = list.value::<libc::iovec>(parts.wrapping_add(i) as usize) else {
            return some_or(written, -(libc::EFAULT as isize));
        };
        let mut done = 0;
        while done < part.iov_len {
            if wait_writable(fd, 0) <= 0 {
                return some_or(written, -(libc::EAGAIN as isize));
            }
            let (from, len) = (part.iov_base as usize + done, part.iov_len - done);
            let args = [fd as usize, from, len.min(PIPE_BUF), 0, 0, 0];
            // SAFETY: the kernel reads the program's own buffer.
            let result = unsafe { raw::call(libc::SYS_write, args) };
            if result <= 0 {
                return some_or(written, result);
            }
            written += result;
            done += result as usize;
        }
    }
    written
}

/// What was written, if anything was, else `result`.
const fn some_or(written: isize, result: isize) -> isize {
    if written > 0 { written } else { result }
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

/// setsockopt(2): `SO_ZEROCOPY` cannot be switched on, as on a socket type that lacks it.
pub fn setsockopt(fd: i32, level: i32, name: i32, value: *const u8, len: u32) -> isize {
    if level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY && len >= 4 {
        let on = Reader::default().value::<i32>(value as usize);
        if on.is_some_and(|on| on != 0) {
            return -(libc::EOPNOTSUPP as isize);
        }
    }
    let args = [
        fd as usize,
        level as usize,
        name as usize,
        value as usize,
        len as usize,
        0,
    ];
    // SAFETY: the program's own call, unchanged.
    unsafe { raw::call(libc::SYS_setsockopt, args) }
}
