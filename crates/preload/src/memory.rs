//! The program's memory calls, with the kernel's own results (errors negative).
//!
//! In `Direct` mode a call is counted and made. In `Managed` mode it is made too, one thread at a time ([`Order`]), and the
//! pager learns of what is new; the kernel itself tells it of what is unmapped, moved or emptied. What is not managed:
//!
//! - file mappings, private ones included but for those of `/dev/zero` ([`zero`]), and shared memory, but for what is anonymous if `OUTPAGE_SHARED` says so;
//! - `MAP_HUGETLB`: its pages cannot be moved one by one, and never leave RAM anyway;
//! - `MAP_GROWSDOWN`: the kernel moves its start without telling anybody.
//!
//! `MAP_STACK` has no effect in the kernel; thread stacks are managed like other memory.

use core::sync::atomic::{AtomicBool, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_engine::Engine;
use outpage_engine::call::Call;
use outpage_sys::own;

use crate::files::{LENDS, LENT_MIN};
use crate::mode::{self, AtWork, Path};
use crate::order::Order;
use crate::raw::SignalsBlocked;
use crate::{budget, checked, files, lifecycle, raw, trace, zero};

mod lent;

/// Runs a hook: `direct` in the calling thread after `bytes` were counted, or `managed` with the pager.
fn run(
    bytes: impl Fn() -> u64,
    direct: impl Fn() -> isize,
    managed: impl Fn(&'static Engine) -> isize,
) -> isize {
    loop {
        match mode::enter() {
            Path::Raw => return direct(),
            Path::Managed(engine) => {
                // A handler that jumps away would leave the call's place taken.
                let _signals = SignalsBlocked::of_others();
                return managed(engine);
            }
            Path::Direct(at_work) => {
                if fits(&at_work, bytes()) {
                    return direct();
                }
            }
        }
        lifecycle::start_pager();
    }
}

/// No mapping is this large (47-bit addresses): the kernel refuses the call, and nothing is counted.
const TOO_LARGE_BYTES: u64 = 1 << 47;

/// Counts; a hook within a hook goes on even if it does not fit, for the pager cannot start then.
fn fits(at_work: &AtWork, bytes: u64) -> bool {
    bytes == 0 || bytes >= TOO_LARGE_BYTES || budget::charge(at_work, bytes) || at_work.is_nested()
}

/// What an mmap call maps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Private anonymous memory that the pager can manage.
    Pageable,
    /// Private anonymous memory that it cannot.
    Anonymous,
    /// Memory that can be shared with children alone, and that the pager can manage.
    SharedAnonymous,
    /// Memory shared with other processes, or that can be.
    Shared,
    /// Private pages of a file.
    File,
}

impl Kind {
    fn of(flags: i32) -> Self {
        let anonymous = flags & libc::MAP_ANONYMOUS != 0;
        match flags & libc::MAP_TYPE {
            libc::MAP_PRIVATE if !anonymous => Self::File,
            libc::MAP_PRIVATE if flags & (libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) != 0 => {
                Self::Anonymous
            }
            libc::MAP_PRIVATE => Self::Pageable,
            libc::MAP_SHARED if anonymous && flags & libc::MAP_HUGETLB == 0 => {
                Self::SharedAnonymous
            }
            _ => Self::Shared,
        }
    }
}

/// mmap(2).
pub fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: i32, off: usize) -> isize {
    let trace = trace::begin(trace::Hook::Mmap);
    // Whatever is mapped, as the kernel has it.
    if !off.is_multiple_of(PAGE_BYTES) {
        return -(libc::EINVAL as isize);
    }
    let (flags, fd) = match zero::without_device(prot, flags, fd, off) {
        Some(flags) => (flags, -1),
        None => (flags, fd),
    };
    let kind = Kind::of(flags);
    let anonymous = matches!(kind, Kind::Pageable | Kind::Anonymous);
    let shared = kind == Kind::SharedAnonymous && SHARED.load(Ordering::SeqCst);
    if shared {
        budget::will_share(len as u64);
    }
    let lent = kind == Kind::SharedAnonymous && len >= LENT_MIN && LENDS.load(Ordering::SeqCst);
    if lent {
        lent::have_pager();
    }
    let bytes = || {
        if (anonymous || shared) && prot & libc::PROT_WRITE != 0 {
            len as u64
        } else {
            0
        }
    };
    // SAFETY: the program's own call, or one that makes the same memory.
    let direct = || unsafe { raw::mmap(addr, len, prot, flags, fd, off) };
    let kept = (flags & libc::MAP_ANONYMOUS == 0 && LENDS.load(Ordering::SeqCst))
        .then(|| files::before_mmap(fd, kind == Kind::Shared))
        .flatten();
    if kept.is_some() {
        lent::have_pager();
    }
    let without_pager = || {
        if kept.is_some() {
            files::touched(fd);
        }
        direct()
    };
    let result = run(bytes, without_pager, |engine| {
        let _order = Order::take();
        if let Some(id) = kept {
            return lent::map_kept(engine, id, [addr, len], [prot, flags], (fd, off));
        }
        match kind {
            Kind::Pageable => engine.mmap(addr, len, prot, flags),
            Kind::SharedAnonymous if engine.manages_shared() => {
                engine.mmap_shared(addr, len, prot, flags)
            }
            Kind::SharedAnonymous if lent => lent::lend(engine, [addr, len], prot, flags),
            _ => engine.placing(direct),
        }
    });
    if result >= 0 {
        trace.mapped(result as usize, len, anonymous);
    } else if flags & libc::MAP_FIXED != 0 && LENDS.load(Ordering::SeqCst) {
        lent::not_replaced(addr, len);
    }
    result
}

/// munmap(2).
pub fn munmap(addr: usize, len: usize) -> isize {
    let trace = trace::begin(trace::Hook::Munmap);
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::munmap(addr, len) };
    let result = run(none, direct, |engine| {
        let _order = Order::take();
        engine.munmap(addr, len)
    });
    if result == 0 {
        trace.unmapped(addr, len);
    }
    result
}

fn none() -> u64 {
    0
}

/// mremap(2).
pub fn mremap(old: usize, old_len: usize, new_len: usize, flags: i32, new_addr: usize) -> isize {
    let trace = trace::begin(trace::Hook::Mremap);
    let keeps_old = flags & libc::MREMAP_DONTUNMAP != 0 || old_len == 0;
    let bytes = || {
        if keeps_old {
            new_len as u64
        } else {
            new_len.saturating_sub(old_len) as u64
        }
    };
    let args = [old, old_len, new_len, flags as usize, new_addr, 0];
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_mremap, args) };
    let result = run(bytes, direct, |engine| {
        let _order = Order::take();
        engine.mremap(old, old_len, new_len, flags, new_addr)
    });
    if result >= 0 {
        trace.moved(old, old_len, result as usize, new_len, keeps_old);
    }
    result
}

/// The program has marked memory for forks; before there is a pager nobody else remembers where.
pub static ADVISED: AtomicBool = AtomicBool::new(false);

/// Shared memory is part of the limit.
pub static SHARED: AtomicBool = AtomicBool::new(false);

/// madvise(2).
pub fn madvise(addr: usize, len: usize, advice: i32) -> isize {
    let _trace = trace::begin(trace::Hook::Madvise);
    if matches!(advice, libc::MADV_DONTFORK | libc::MADV_WIPEONFORK) {
        ADVISED.store(true, Ordering::SeqCst);
    }
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_madvise, [addr, len, advice as usize, 0, 0, 0]) };
    run(none, direct, |engine| {
        if manages(engine, addr, len) {
            engine.madvise(addr, len, advice)
        } else {
            direct()
        }
    })
}

/// `PIDFD_SELF_THREAD` and `PIDFD_SELF_THREAD_GROUP` of include/uapi/linux/pidfd.h (Linux 6.14): the caller, without a descriptor.
const PIDFD_SELF: [i32; 2] = [-10_000, -10_001];

/// `PIDFD_GET_INFO` with the 64 bytes of `struct pidfd_info` in its first version (include/uapi/linux/pidfd.h, Linux 6.13).
const PIDFD_GET_INFO: usize = 0xC040_FF0B;

/// Whether `pidfd` names this process. A kernel that cannot tell (before Linux 6.13) gives no such advice either.
fn is_own(pidfd: i32, advice: i32) -> bool {
    if PIDFD_SELF.contains(&pidfd) {
        return true;
    }
    // Advice about nothing: another kind of descriptor is refused, and asked nothing that it might take for something else.
    let nothing = [pidfd as usize, 0, 0, advice as usize, 0, 0];
    // Mask, cgroup, then pid and tgid as the caller's namespace has them.
    let mut info = [0_u32; 16];
    let ask = [
        pidfd as usize,
        PIDFD_GET_INFO,
        (&raw mut info) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes 64 bytes where there are 64, and tells a pid.
    unsafe {
        raw::call(libc::SYS_process_madvise, nothing) == 0
            && raw::call(libc::SYS_ioctl, ask) == 0
            && info[5] as isize == raw::call(libc::SYS_getpid, [0; 6])
    }
}

/// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE` of include/uapi/asm-generic/mman-common.h (Linux 6.13).
const MADV_GUARDS: [i32; 2] = [102, 103];

/// process_madvise(2). What concerns forks and guards the kernel tells nobody, and of shared memory it does not tell which advice it was: of this process
/// it is done as [`madvise`] does it, part by part, up to one that fails.
pub fn process_madvise(pidfd: i32, parts: usize, count: usize, advice: i32, flags: u32) -> isize {
    let mut reader = checked::Reader::default();
    let forks = matches!(
        advice,
        libc::MADV_DONTFORK | libc::MADV_DOFORK | libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK
    );
    let shares = SHARED.load(Ordering::SeqCst) || LENDS.load(Ordering::SeqCst);
    let untold = forks || MADV_GUARDS.contains(&advice) || shares;
    let readable = count <= libc::UIO_MAXIOV as usize
        && reader.covers(parts, count * size_of::<libc::iovec>());
    if !(untold && flags == 0 && readable && is_own(pidfd, advice)) {
        let args = [
            pidfd as usize,
            parts,
            count,
            advice as usize,
            flags as usize,
            0,
        ];
        // SAFETY: the program's own call, unchanged.
        return unsafe { raw::call(libc::SYS_process_madvise, args) };
    }
    let mut done = 0;
    for i in 0..count {
        // SAFETY: all of them can be read.
        let part = unsafe { (parts as *const libc::iovec).add(i).read_unaligned() };
        match madvise(part.iov_base as usize, part.iov_len, advice) {
            failed if failed < 0 => return if done > 0 { done } else { failed },
            _ => done += part.iov_len as isize,
        }
    }
    done
}

/// `MADV_FREE`, where there is a pager; nothing else.
pub fn discardable(addr: usize, len: usize) -> isize {
    if len == 0 {
        return 0;
    }
    run(
        none,
        || 0,
        |engine| {
            if manages(engine, addr, len) {
                engine.madvise(addr, len, libc::MADV_FREE)
            } else {
                0
            }
        },
    )
}

/// Bytes that the program may dirty once `len` bytes have the rights `prot`.
fn room_for(len: usize, prot: i32) -> u64 {
    if prot & libc::PROT_WRITE != 0 {
        len as u64
    } else {
        0
    }
}

/// Makes `call`, after which `len` bytes have the rights `prot`.
fn protected(len: usize, prot: i32, call: impl FnOnce() -> isize) -> isize {
    if prot & libc::PROT_WRITE != 0 || len as u64 >= TOO_LARGE_BYTES {
        call()
    } else {
        budget::protecting(len as u64, call)
    }
}

/// mprotect(2).
pub fn mprotect(addr: usize, len: usize, prot: i32) -> isize {
    let _trace = trace::begin(trace::Hook::Mprotect);
    let bytes = || room_for(len, prot);
    // SAFETY: the program's own call, unchanged.
    let direct = || protected(len, prot, || unsafe { raw::mprotect(addr, len, prot) });
    run(bytes, direct, |engine| {
        if manages(engine, addr, len) {
            engine.call(Call::Mprotect { addr, len, prot })
        } else {
            direct()
        }
    })
}

/// pkey_mprotect(2): the pager learns the protection, the calling thread sets it with its key.
pub fn pkey_mprotect(addr: usize, len: usize, prot: i32, key: i32) -> isize {
    if key == -1 {
        return mprotect(addr, len, prot);
    }
    let _trace = trace::begin(trace::Hook::Mprotect);
    let bytes = || room_for(len, prot);
    let args = [addr, len, prot as usize, key as usize, 0, 0];
    // SAFETY: the program's own call, unchanged.
    let call = || unsafe { raw::call(libc::SYS_pkey_mprotect, args) };
    let direct = || protected(len, prot, call);
    run(bytes, direct, |engine| {
        if manages(engine, addr, len) {
            let told = engine.call(Call::Mprotect { addr, len, prot });
            if told < 0 {
                return told;
            }
        }
        direct()
    })
}

/// shmat(2). Over managed memory (`SHM_REMAP`) the kernel tells the pager nothing, so the hook does.
pub fn shmat(id: i32, addr: usize, flags: i32) -> isize {
    let trace = trace::begin(trace::Hook::Mmap);
    let len = if flags & libc::SHM_REMAP != 0 {
        segment_bytes(id)
    } else {
        0
    };
    let args = [id as usize, addr, flags as usize, 0, 0, 0];
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_shmat, args) };
    let result = run(none, direct, |engine| {
        let _order = Order::take();
        let at = engine.placing(direct);
        if at >= 0 && len > 0 {
            let addr = at as usize;
            engine.call(Call::Replaced { addr, len });
        }
        at
    });
    if result >= 0 {
        trace.mapped(result as usize, len, false);
    }
    result
}

/// remap_file_pages(2), which maps pages of a shared mapping in another order, as a mapping that the pager knows nothing of: they go back before.
pub fn remap_pages(addr: usize, len: usize, prot: i32, page: usize, flags: i32) -> isize {
    let _trace = trace::begin(trace::Hook::Mmap);
    let args = [addr, len, prot as usize, page, flags as usize, 0];
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_remap_file_pages, args) };
    run(none, direct, |engine| {
        let _order = Order::take();
        if engine.call(Call::Reorder { addr, len }) < 0 {
            return -(libc::ENOMEM as isize);
        }
        engine.placing(direct)
    })
}

/// The size of a System V segment; 0 where the kernel does not say, as it will not let it be attached either.
fn segment_bytes(id: i32) -> usize {
    let mut told = core::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    let args = [
        id as usize,
        libc::IPC_STAT as usize,
        told.as_mut_ptr() as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel fills the structure, or leaves its zeroes.
    unsafe {
        raw::call(libc::SYS_shmctl, args);
        told.assume_init().shm_segsz
    }
}

/// The system call brk, from the break `before`: the new break, or the old one if it could not move.
pub fn brk(addr: usize, before: usize) -> isize {
    let trace = trace::begin(trace::Hook::Brk);
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_brk, [addr, 0, 0, 0, 0, 0]) };
    let bytes = || addr.saturating_sub(before) as u64;
    let result = run(bytes, direct, |engine| {
        let _order = Order::take();
        engine.brk(addr)
    });
    trace.break_moved(before, result as usize);
    result
}

/// The present break, asked of the kernel.
pub fn current_break() -> usize {
    // SAFETY: 0 is never a valid break: this only asks.
    unsafe { raw::call(libc::SYS_brk, [0; 6]) as usize }
}

/// Whether the pager has to be asked about `len` bytes at `addr`.
fn manages(engine: &Engine, addr: usize, len: usize) -> bool {
    engine.manages(addr, addr.saturating_add(len))
}

/// mlock(2) and mlock2(2).
pub fn mlock(addr: usize, len: usize, flags: i32) -> isize {
    let _trace = trace::begin(trace::Hook::Mlock);
    let direct = || {
        let flags = flags as usize;
        // SAFETY: the program's own call; mlock2 exists since Linux 4.4, so plain mlock stays itself.
        unsafe {
            if flags == 0 {
                raw::call(libc::SYS_mlock, [addr, len, 0, 0, 0, 0])
            } else {
                raw::call(libc::SYS_mlock2, [addr, len, flags, 0, 0, 0])
            }
        }
    };
    run(none, direct, |engine| {
        if manages(engine, addr, len) {
            let allowed = engine.call(Call::Mlock { addr, len });
            if allowed < 0 {
                return allowed;
            }
        }
        let result = direct();
        if result < 0 && manages(engine, addr, len) {
            engine.call(Call::Munlock { addr, len });
        }
        result
    })
}

/// munlock(2).
pub fn munlock(addr: usize, len: usize) -> isize {
    let _trace = trace::begin(trace::Hook::Mlock);
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_munlock, [addr, len, 0, 0, 0, 0]) };
    run(none, direct, |engine| {
        let result = direct();
        if result == 0 && manages(engine, addr, len) {
            engine.call(Call::Munlock { addr, len });
        }
        result
    })
}

/// mlockall(2). Refused once the pager runs: the program has outgrown the RAM that it may lock, as
/// it would with `RLIMIT_MEMLOCK`.
pub fn mlockall(flags: i32) -> isize {
    let _trace = trace::begin(trace::Hook::Mlock);
    let direct = || {
        // SAFETY: the program's own call, unchanged.
        let result = unsafe { raw::call(libc::SYS_mlockall, [flags as usize, 0, 0, 0, 0, 0]) };
        if result == 0 {
            own::locks_future(flags & libc::MCL_FUTURE != 0);
        }
        result
    };
    let all = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    let is_valid = flags & !all == 0 && flags & !libc::MCL_ONFAULT != 0;
    run(none, direct, |_| {
        let refusal = if is_valid { libc::ENOMEM } else { libc::EINVAL };
        -(refusal as isize)
    })
}

/// munlockall(2).
pub fn munlockall() -> isize {
    let _trace = trace::begin(trace::Hook::Mlock);
    // SAFETY: the program's own call, unchanged.
    let direct = || unsafe { raw::call(libc::SYS_munlockall, [0; 6]) };
    own::locks_future(false);
    run(none, direct, |engine| {
        let result = direct();
        engine.call(Call::Munlock {
            addr: 0,
            len: TOO_LARGE_BYTES as usize,
        });
        result
    })
}
