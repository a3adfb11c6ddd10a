//! `Direct` mode's count of what the program may dirty, against what the session lent it.
//!
//! The count is an upper bound of the bytes of private writable memory: hooks add what they map,
//! and never subtract. When it exceeds the reservation, three ever dearer steps follow, under a
//! lock that is held with all signals blocked:
//!
//! 1. The kernel's own sum of private writable mappings (`/proc/self/statm`, 2 us) replaces the
//!    count. It includes private writable file mappings, so it is an upper bound as well.
//! 2. The session is asked to lend more.
//! 3. The list of mappings gives the exact figure (50 us and more).
//!
//! Bytes that other hooks have counted and not mapped yet are added each time.

use core::cell::UnsafeCell;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::futex::{self, Scope};
use outpage_sys::maps::{self, Kind};
use outpage_sys::{fd, process};

use crate::mode::{self, AtWork};
use crate::raw::SignalsBlocked;
use crate::share;

/// Reservations grow in steps of this size, so that a growing program asks seldom.
const STEP_BYTES: u64 = 16 << 20;

static COUNTED_BYTES: AtomicU64 = AtomicU64::new(0);
static RESERVED_BYTES: AtomicU64 = AtomicU64::new(0);
/// The process that counts.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Adds `bytes` that the hook is about to map; returns whether everything still fits.
pub fn charge(at_work: &AtWork, bytes: u64) -> bool {
    at_work.announce(bytes);
    let counted = COUNTED_BYTES
        .fetch_add(bytes, Ordering::SeqCst)
        .saturating_add(bytes);
    if counted <= RESERVED_BYTES.load(Ordering::SeqCst) {
        return true;
    }
    // A child of vfork, on its parent's memory, must not start threads for it: they would end with
    // the child. The parent's next hook finds the count as high.
    process::pid() != PROCESS.load(Ordering::SeqCst) || locked(recount)
}

/// Replaces the count by something closer to the truth; returns whether it fits then.
fn recount(buffer: &mut [u8]) -> bool {
    let counted = COUNTED_BYTES.load(Ordering::SeqCst);
    if counted <= RESERVED_BYTES.load(Ordering::SeqCst) {
        return true;
    }
    // Read before the kernel's figure: what is mapped in between counts twice, never not at all.
    let pending = mode::pending_bytes();
    let Some(mut bytes) = private_writable_bytes().map(|b| b.saturating_add(pending)) else {
        return false;
    };
    let mut reserved = RESERVED_BYTES.load(Ordering::SeqCst);
    if bytes > reserved {
        reserved = share::raise_to(reserved, bytes, STEP_BYTES);
        RESERVED_BYTES.store(reserved, Ordering::SeqCst);
    }
    if bytes > reserved {
        let Some(exact) = private_anonymous_bytes(buffer) else {
            return false;
        };
        bytes = exact.saturating_add(pending);
    }
    // A difference, not a store: other hooks add to the count meanwhile.
    COUNTED_BYTES.fetch_sub(counted.saturating_sub(bytes), Ordering::SeqCst);
    bytes <= reserved
}

/// Bytes of private writable mappings and stacks, files included, by the kernel's own count.
///
/// proc(5): the sixth field of statm, "data + stack", in pages.
pub fn private_writable_bytes() -> Option<u64> {
    let mut text = [0u8; 128];
    let file = fd::open(c"/proc/self/statm", libc::O_RDONLY).ok()?;
    let len = fd::read(file.number(), &mut text).ok()?;
    let field = text[..len].split(|&byte| byte == b' ').nth(5)?;
    let pages: u64 = core::str::from_utf8(field).ok()?.trim().parse().ok()?;
    Some(pages * PAGE_BYTES as u64)
}

/// Bytes of private anonymous writable mappings, the main thread's stack included.
fn private_anonymous_bytes(buffer: &mut [u8]) -> Option<u64> {
    let mut bytes = 0;
    let visited = maps::for_each(buffer, |entry| {
        let anonymous = entry.is_private_anonymous() || entry.kind() == Kind::Stack;
        if anonymous && entry.prot & libc::PROT_WRITE != 0 {
            bytes += entry.len() as u64;
        }
        ControlFlow::Continue(())
    });
    visited.ok().map(|()| bytes)
}

/// Called by the constructor before the first hook, and in a child that fork made.
///
/// The child's reservation starts empty: what it shares with its parent is charged once it grows.
pub fn restart() {
    PROCESS.store(process::pid(), Ordering::SeqCst);
    RESERVED_BYTES.store(0, Ordering::SeqCst);
    COUNTED_BYTES.store(
        private_writable_bytes().unwrap_or(u64::MAX / 2),
        Ordering::SeqCst,
    );
    LIST.state.store(FREE, Ordering::SeqCst);
}

/// Bytes lent to this process.
pub fn reserved_bytes() -> u64 {
    RESERVED_BYTES.load(Ordering::SeqCst)
}

/// Bytes counted.
pub fn counted_bytes() -> u64 {
    COUNTED_BYTES.load(Ordering::SeqCst)
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// Room for a piece of the list of mappings: stacks can be as small as 16 KiB.
const LIST_BYTES: usize = 16 << 10;

/// The lock on recounting, and the buffer that goes with it.
struct List {
    state: AtomicU32,
    buffer: UnsafeCell<[u8; LIST_BYTES]>,
}

// SAFETY: the buffer is reached through `locked` only, which lets one thread in at a time.
unsafe impl Sync for List {}

static LIST: List = List {
    state: AtomicU32::new(FREE),
    buffer: UnsafeCell::new([0; LIST_BYTES]),
};

/// Runs `work` with the buffer, one thread at a time, its signals blocked.
fn locked<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    let _signals = SignalsBlocked::new();
    while LIST.state.swap(TAKEN, Ordering::SeqCst) == TAKEN {
        futex::wait(&LIST.state, TAKEN, None, Scope::Process);
    }
    // SAFETY: this thread has the lock, and no signal handler can call in again.
    let result = work(unsafe { &mut *LIST.buffer.get() });
    LIST.state.store(FREE, Ordering::SeqCst);
    futex::wake(&LIST.state, 1, Scope::Process);
    result
}
