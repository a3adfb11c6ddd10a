//! Writes to pinned pages of managed memory, which the write-protect mechanism cannot see.
//!
//! With `O_DIRECT` a device writes to the pages of the buffer without passing through the page
//! table. The move mechanism refuses such pages; write-protecting one stops the program's writes
//! only, and what the device writes after the pager took its copy is lost. So `read`, `pread`,
//! `readv`, `preadv` and `preadv2` pin their buffers ([`Call::Pin`]) as long as the call lasts. What
//! is neither `O_DIRECT` nor a file or block device goes to libc, which has the calls' cancellation. Some file systems read past the page cache
//! without being asked to by the descriptor: their files are taken for `O_DIRECT` ([`MAY_READ_DIRECTLY`]).
//!
//! `process_vm_writev` pins too (`process_vm_rw_single_vec` in mm/process_vm_access.c): a page that is protected
//! between the pin and the copy is written all the same. So what a process writes to itself in this way is pinned as well.
//!
//! Not seen: reads by io_uring or libaio; those of an overlayfs above such a file system, and of FUSE on a block device; lists of buffers that no word boundary begins; what another process writes by `process_vm_writev`, where its page leaves at that moment; a read that is under way while the pager starts, unless
//! `OUTPAGE_MECHANISM` names the mechanism; under the move mechanism, reads into memory that is
//! writable and executable, which is copied as well.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_engine::Engine;
use outpage_engine::call::Call;
use outpage_sys::{clock, fd as descriptor, process};

use crate::checked::{Reader, may_lie_at};
use crate::mode::{self, Path};
use crate::raw::{self, SignalsBlocked};
use crate::{files, status};

/// Whether reads must be looked at; the hooks read it as a byte.
pub static NEEDED: AtomicBool = AtomicBool::new(false);

/// Most bytes of one buffer that are pinned at once; a larger one is read piece by piece. All
/// kernels take requests of this size whole.
const PIECE_BYTES: usize = 256 << 10;
/// Most buffers that are pinned together.
const PARTS_MAX: usize = 15;
/// What the pager lets one read pin under the smallest limit: pages are counted whole.
const _: () = assert!(PIECE_BYTES + (PARTS_MAX + 1) * 2 * PAGE_BYTES <= 384 << 10);
/// `UIO_MAXIOV` of include/uapi/linux/uio.h.
const VECTOR_MAX: usize = 1024;

/// Says that the pager copies (`true`) or moves.
pub fn need(needed: bool) {
    NEEDED.store(needed, Ordering::Release);
}

/// File systems that may read past the page cache, into the buffer's pages themselves, with no `O_DIRECT` on the descriptor: magic numbers of
/// include/uapi/linux/magic.h and fs/smb/client, and those of what is built outside the kernel.
const MAY_READ_DIRECTLY: [libc::c_long; 7] = [
    // FOPEN_DIRECT_IO of fs/fuse/file.c: sshfs, rclone and others by their option `direct_io`; virtiofs.
    libc::FUSE_SUPER_MAGIC,
    // `cache=none` of fs/9p, the default.
    0x0102_1997,
    // `cache=none` of fs/smb/client: SMB 1, CIFS, SMB 2 and later.
    libc::SMB_SUPER_MAGIC,
    0xff53_4d42,
    0xfe53_4d42,
    // OpenZFS since 2.3 where a data set has `direct=always`.
    0x2fc1_2fc1,
    // Lustre since 2.16, which reads so what is large.
    0x0bd0_0bd0,
];

/// Of devices without a number of their own, by minor number, what was found in this second: the minor number and one, a bit for what was found, and
/// the second. A choice: a few file systems at once, so that a server of one is not asked for each read; a second, since what is mounted later may
/// get the number of what is gone.
static FOUND: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Whether a read of `fd` may be a device's work. What is read has its bytes then, if it is a file of RAM.
pub extern "C" fn is_device_read(fd: i32) -> bool {
    if files::LENDS.load(Ordering::Acquire) {
        files::touched(fd);
    }
    let Ok(flags) = descriptor::open_flags(fd) else {
        return false;
    };
    // A pipe may be `O_DIRECT` as well, and keep its reader waiting for ever.
    let device = device_of_file(fd);
    device.is_some_and(|device| flags & libc::O_DIRECT != 0 || may_read_directly(fd, device))
}

/// The device where `fd` lies, if that is a file, or a block device.
fn device_of_file(fd: i32) -> Option<libc::dev_t> {
    let stat = status::of(fd)?;
    let is_file = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK);
    is_file.then_some(stat.st_dev)
}

/// Whether the file system of `fd`, on `device`, may do without `O_DIRECT` what that asks for. Those of a disk do not, so a filter of the program's that
/// does not let this ask is seldom met.
fn may_read_directly(fd: i32, device: libc::dev_t) -> bool {
    if libc::major(device) != 0 {
        return false;
    }
    let minor = u64::from(libc::minor(device));
    let this_second = (clock::now().0 / 1_000_000_000) as u32;
    let key = (minor + 1) << 33 | u64::from(this_second);
    let found = &FOUND[minor as usize % FOUND.len()];
    let known = found.load(Ordering::Relaxed);
    if known & !DIRECTLY == key {
        return known & DIRECTLY != 0;
    }
    // SAFETY: an all-zero `statfs` is a valid value.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    let args = [fd as usize, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: on x86-64 the kernel's structure for this call is libc's.
    let told = unsafe { raw::call(libc::SYS_fstatfs, args) } == 0;
    // What does not say is taken for one: that costs time, the other way bytes.
    let directly = !told || MAY_READ_DIRECTLY.contains(&stat.f_type);
    found.store(key | if directly { DIRECTLY } else { 0 }, Ordering::Relaxed);
    directly
}

/// In [`FOUND`]: it may read directly.
const DIRECTLY: u64 = 1 << 32;

/// A read into one buffer: `call` makes it, given address, length and bytes already read.
pub fn read(at: usize, len: usize, call: impl Fn(usize, usize, usize) -> isize) -> isize {
    let all = libc::iovec {
        iov_base: at as *mut _,
        iov_len: len,
    };
    if !may_lie_at(&all) {
        // Refused as a whole (`access_ok` of vfs_read in fs/read_write.c).
        return call(at, len, 0);
    }
    match mode::enter() {
        Path::Managed(engine) => pinned(engine, at, len, call),
        // The pager does not start meanwhile.
        Path::Direct(_at_work) => call(at, len, 0),
        Path::Raw => call(at, len, 0),
    }
}

fn pinned(
    engine: &Engine,
    at: usize,
    len: usize,
    call: impl Fn(usize, usize, usize) -> isize,
) -> isize {
    let mut done = 0;
    // What is more than whole pieces comes first: where a length does not suit the device, nothing is read (`EINVAL`), as of the whole.
    let mut next = len % PIECE_BYTES;
    loop {
        if next == 0 {
            next = (len - done).min(PIECE_BYTES);
        }
        let piece = (at.wrapping_add(done), core::mem::take(&mut next));
        let got = with_pins(engine, &[piece], || call(piece.0, piece.1, done));
        if got < 0 {
            return if done > 0 { done as isize } else { got };
        }
        done += got as usize;
        if (got as usize) < piece.1 || done >= len {
            return done as isize;
        }
    }
}

/// A read into several buffers: `call` makes it, given the buffers and bytes already read.
pub fn vectored(
    parts: *const libc::iovec,
    count: usize,
    call: impl Fn(*const libc::iovec, usize, usize) -> isize,
) -> isize {
    let list = list_at(parts as usize, count).filter(|list| list.iter().all(may_lie_at));
    let Some(list) = list else {
        return call(parts, count, 0);
    };
    let total = list
        .iter()
        .fold(0_usize, |sum, part| sum.saturating_add(part.iov_len));
    if count <= PARTS_MAX && total <= PIECE_BYTES {
        let mut ranges = [(0, 0); PARTS_MAX];
        for (range, part) in ranges.iter_mut().zip(list) {
            *range = (part.iov_base as usize, part.iov_len);
        }
        return match mode::enter() {
            Path::Managed(engine) => with_pins(engine, &ranges[..count], || call(parts, count, 0)),
            // The pager does not start meanwhile.
            Path::Direct(_at_work) => call(parts, count, 0),
            Path::Raw => call(parts, count, 0),
        };
    }
    let mut done = 0;
    for part in list {
        let got = read(part.iov_base as usize, part.iov_len, |at, len, before| {
            let part = libc::iovec {
                iov_base: at as *mut _,
                iov_len: len,
            };
            call(&raw const part, 1, done + before)
        });
        if got < 0 {
            return if done > 0 { done as isize } else { got };
        }
        done += got as usize;
        if (got as usize) < part.iov_len {
            break;
        }
    }
    done as isize
}

/// `process_vm_writev(2)`, as the system call takes it: where the target is this process and pages are copied, what is written cannot
/// be a victim meanwhile. In another process that cannot be had, so each page is written by a call of its own: the fewer are pinned at
/// once, the fewer does that process's pager take for the others.
pub fn write_process(args: [usize; 6]) -> isize {
    let [pid, local, locals, remote, remotes, flags] = args;
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_process_vm_writev, args) };
    if flags != 0 || !NEEDED.load(Ordering::Acquire) {
        return direct();
    }
    let from = list_at(local, locals).filter(|list| list.iter().all(may_lie_at));
    let Some((from, to)) = from.zip(list_at(remote, remotes)) else {
        return direct();
    };
    if !is_own(pid) {
        let to_page_end = |at: usize| PAGE_BYTES - at % PAGE_BYTES;
        return in_pieces(from, to, to_page_end, |pair| write_pair(pid, pair));
    }
    match mode::enter() {
        Path::Managed(engine) => in_pieces(
            from,
            to,
            |_| PIECE_BYTES,
            |pair| {
                let target = (pair[1].iov_base as usize, pair[1].iov_len);
                with_pins(engine, &[target], || write_pair(pid, pair))
            },
        ),
        // The pager does not start meanwhile.
        Path::Direct(_at_work) => direct(),
        Path::Raw => direct(),
    }
}

/// A part of the program's own call: from where, and to where.
fn write_pair(pid: usize, pair: &[libc::iovec; 2]) -> isize {
    let [local, remote] = [0, 1].map(|i| (&raw const pair[i]) as usize);
    // SAFETY: a part of the program's own call; the pair outlives it.
    unsafe { raw::call(libc::SYS_process_vm_writev, [pid, local, 1, remote, 1, 0]) }
}

/// The `count` parts at `at`, as the program says. `None` where the kernel has an error for them.
fn list_at<'a>(at: usize, count: usize) -> Option<&'a [libc::iovec]> {
    if at == 0 || !at.is_multiple_of(size_of::<usize>()) || count > VECTOR_MAX {
        return None;
    }
    let there = Reader::default().covers(at, count * size_of::<libc::iovec>());
    // SAFETY: it can be read, and belongs to the program's call as long as that lasts.
    let list =
        there.then(|| unsafe { core::slice::from_raw_parts(at as *const libc::iovec, count) })?;
    // Such lists are refused before anything is copied (`EINVAL`).
    let fits = |part: &libc::iovec| part.iov_len <= isize::MAX as usize;
    list.iter().all(fits).then_some(list)
}

/// Whether `pid` is a thread of this process.
fn is_own(pid: usize) -> bool {
    let args = [process::pid() as usize, pid, 0, 0, 0, 0];
    // SAFETY: takes numbers only; signal 0 is sent to nobody.
    unsafe { raw::call(libc::SYS_tgkill, args) == 0 }
}

/// Copies what is in `from` to `to` by `write`, in pieces that lie in one part of either and have at most `most` bytes, which may depend on
/// the target's address. Returns the bytes copied, as the kernel does: an error only where there are none.
fn in_pieces(
    from: &[libc::iovec],
    to: &[libc::iovec],
    most: impl Fn(usize) -> usize,
    write: impl Fn(&[libc::iovec; 2]) -> isize,
) -> isize {
    let (mut from, mut to) = (Rest::of(from), Rest::of(to));
    let mut done = 0;
    while let (Some(source), Some(target)) = (from.part(), to.part()) {
        let len = source.1.min(target.1).min(most(target.0));
        let pair = [source.0, target.0].map(|at| libc::iovec {
            iov_base: at as *mut _,
            iov_len: len,
        });
        let got = write(&pair);
        if got < 0 {
            return if done > 0 { done } else { got };
        }
        done += got;
        if (got as usize) < len {
            break;
        }
        from.skip(len);
        to.skip(len);
    }
    done
}

/// What is left of a list of parts.
struct Rest<'a> {
    parts: &'a [libc::iovec],
    /// Bytes of the first part that are done.
    done: usize,
}

impl<'a> Rest<'a> {
    const fn of(parts: &'a [libc::iovec]) -> Self {
        Self { parts, done: 0 }
    }

    /// Address and length of the next bytes that lie together, at least one.
    fn part(&mut self) -> Option<(usize, usize)> {
        while let [part, rest @ ..] = self.parts {
            if self.done < part.iov_len {
                let at = (part.iov_base as usize).wrapping_add(self.done);
                return Some((at, part.iov_len - self.done));
            }
            (self.parts, self.done) = (rest, 0);
        }
        None
    }

    const fn skip(&mut self, bytes: usize) {
        self.done += bytes;
    }
}

/// Makes `call` while nothing of `ranges` can be a victim.
///
/// Signals wait: a handler that jumps away would leave the pins behind.
fn with_pins(engine: &Engine, ranges: &[(usize, usize)], call: impl Fn() -> isize) -> isize {
    let _signals = SignalsBlocked::new();
    while !pin(engine, ranges) {
        process::yield_now();
    }
    let result = call();
    unpin(engine, ranges);
    result
}

/// Pins all of `ranges` or nothing, so that no two reads wait for each other.
fn pin(engine: &Engine, ranges: &[(usize, usize)]) -> bool {
    for (index, &(addr, len)) in ranges.iter().enumerate() {
        if len > 0 && engine.call(Call::Pin { addr, len }) < 0 {
            unpin(engine, &ranges[..index]);
            return false;
        }
    }
    true
}

fn unpin(engine: &Engine, ranges: &[(usize, usize)]) {
    for &(addr, len) in ranges {
        if len > 0 {
            engine.call(Call::Unpin { addr, len });
        }
    }
}
