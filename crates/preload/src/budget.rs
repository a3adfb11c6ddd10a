//! `Direct` mode's count of what the program may dirty, against what the session lent it.
//!
//! The count is an upper bound of the bytes of private writable memory: hooks add what they map,
//! and never subtract. Shared anonymous memory counts where it is paged as well, and so does memory that was written and then
//! protected from writing, as collectors do to see writes. When it exceeds the reservation, three ever dearer steps follow, under a
//! lock that is held with all signals blocked:
//!
//! 1. The kernel's own sum of private writable mappings (`/proc/thread-self/statm`, 2 us) replaces the
//!    count. It includes private writable file mappings, so it is an upper bound as well. What may not be written is added
//!    (`/proc/thread-self/smaps`, 0.2 ms and more, where it can be more than 1 MiB).
//! 2. The session is asked to lend more.
//! 3. The list of mappings gives the exact figure (50 us and more).
//!
//! Bytes that other hooks have counted and not mapped yet are added each time, and those that they are about to protect.

use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use outpage_core::units::PAGE_BYTES;
use outpage_engine::session::SessionError;
use outpage_sys::futex::{self, Scope};
use outpage_sys::maps::{self, Kind};
use outpage_sys::process;

use crate::mode::{self, AtWork};
use crate::raw::SignalsBlocked;
use crate::statm::{private_writable_bytes, touched_pages};
use crate::{share, target};

/// Reservations grow in steps of this size at most, so that a growing program asks seldom.
const STEP_BYTES: u64 = 16 << 20;
/// Where the limit is less than so many steps, they are smaller: what one process is lent and does not use the others lack. Of at least
/// 1 MiB: a step costs 0.2 ms.
const STEPS: u64 = 32;
const LEAST_STEP_BYTES: u64 = 1 << 20;
/// Where protected memory is looked for, a reservation grows by steps that are so many times as large, and before the last of it is used. A look took
/// 0.15 ms with few mappings, 6 ms with 195 MiB touched and 87 ms with 25,000 mappings (the least of nine, beside a build). A choice: with 1, and no room
/// left over, a collector that protects page by page within its limit took 1.1 s for 0.7, with 4 0.8 s.
const STEPS_AT_ONCE: u64 = 4;

/// At least the bytes that this process has mapped shared and that are part of the limit: what is unmapped stays counted here.
static SHARED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Protected bytes of at most this much are taken as the hooks count them, too many rather than too few.
const PROTECTED_UNSEEN_BYTES: u64 = 1 << 20;

/// At least the bytes in RAM that the program may not write any more.
#[unsafe(link_section = "outpage_forks")]
static PROTECTED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Those that hooks are about to protect: the kernel counts them still, or no longer.
#[unsafe(link_section = "outpage_forks")]
static PROTECTING_BYTES: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = "outpage_forks")]
static COUNTED_BYTES: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = "outpage_forks")]
static RESERVED_BYTES: AtomicU64 = AtomicU64::new(0);
/// The process that counts.
#[unsafe(link_section = "outpage_forks")]
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
    // A child of vfork is not the process whose memory this is. The parent's next hook finds the count
    // as high.
    process::pid() != PROCESS.load(Ordering::SeqCst) || locked(recount)
}

/// The hook is about to map `bytes` of shared memory that is part of the limit.
pub fn will_share(bytes: u64) {
    SHARED_BYTES.fetch_add(bytes, Ordering::SeqCst);
}

/// Makes `call`, which takes the right to write away from `bytes`.
pub fn protecting(bytes: u64, call: impl FnOnce() -> isize) -> isize {
    PROTECTING_BYTES.fetch_add(bytes, Ordering::SeqCst);
    let result = call();
    PROTECTED_BYTES.fetch_add(bytes, Ordering::SeqCst);
    PROTECTING_BYTES.fetch_sub(bytes, Ordering::SeqCst);
    result
}

/// At least the bytes that are there and that the program may not write.
///
/// To be called after the kernel said what it may write: what is protected in between counts twice then, never not at all.
fn protected_bytes(buffer: &mut [u8]) -> u64 {
    let protecting = PROTECTING_BYTES.load(Ordering::SeqCst);
    let counted = PROTECTED_BYTES.load(Ordering::SeqCst);
    if counted > PROTECTED_UNSEEN_BYTES
        && let Ok(exact) = maps::protected_bytes(buffer)
    {
        // A difference, as below.
        PROTECTED_BYTES.fetch_sub(counted.saturating_sub(exact), Ordering::SeqCst);
    }
    let most = protecting.saturating_add(PROTECTED_BYTES.load(Ordering::SeqCst));
    if most <= PROTECTED_UNSEEN_BYTES {
        return most;
    }
    // Address space that is only reserved is protected too.
    most.min(touched_pages() * PAGE_BYTES as u64)
}

/// Replaces the count by something closer to the truth; returns whether it fits then.
fn recount(buffer: &mut [u8]) -> bool {
    let counted = COUNTED_BYTES.load(Ordering::SeqCst);
    if counted <= RESERVED_BYTES.load(Ordering::SeqCst) {
        return true;
    }
    // Read before the kernel's figure: what is mapped in between counts twice, never not at all.
    let pending = mode::pending_bytes();
    let shared = SHARED_BYTES.load(Ordering::SeqCst);
    let Some(writable) = private_writable_bytes() else {
        return false;
    };
    let beside = pending.saturating_add(shared);
    let protected = protected_bytes(buffer);
    let mut bytes = (writable.saturating_add(beside)).saturating_add(protected);
    let mut reserved = RESERVED_BYTES.load(Ordering::SeqCst);
    let (step, room) = step_bytes(protected);
    if bytes.saturating_add(room) > reserved {
        let raised = share::raise_to(reserved, bytes.saturating_add(room), step);
        remember_refusal(raised.err());
        reserved = raised.unwrap_or(reserved);
        RESERVED_BYTES.store(reserved, Ordering::SeqCst);
    }
    if bytes > reserved {
        let Some(exact) = anonymous_bytes(buffer, shared) else {
            return false;
        };
        bytes = (exact.saturating_add(pending)).saturating_add(protected_bytes(buffer));
    }
    // A difference, not a store: other hooks add to the count meanwhile.
    COUNTED_BYTES.fetch_sub(counted.saturating_sub(bytes), Ordering::SeqCst);
    bytes <= reserved
}

/// By how much a reservation grows, and how much of it shall be left then, where so many bytes are protected.
fn step_bytes(protected: u64) -> (u64, u64) {
    let step = (share::limit_bytes() / STEPS).clamp(LEAST_STEP_BYTES, STEP_BYTES) >> 20 << 20;
    if protected > PROTECTED_UNSEEN_BYTES {
        (step * STEPS_AT_ONCE, step)
    } else {
        (step, 0)
    }
}

/// Why the session lent nothing when it was last asked; null where it did not refuse.
static REFUSED: AtomicPtr<SessionError> = AtomicPtr::new(core::ptr::null_mut());

fn remember_refusal(error: Option<SessionError>) {
    let new = error.map_or(core::ptr::null_mut(), |error| {
        Box::into_raw(Box::new(error))
    });
    let old = REFUSED.swap(new, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: made from a box above, and nobody else has it after the exchange.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Why the session lends this process nothing, if it was asked and that is so.
///
/// To be called by the starter, when no hook is at work.
pub fn refusal() -> Option<SessionError> {
    // SAFETY: null, or a box that only a hook at work takes away.
    unsafe { REFUSED.load(Ordering::Acquire).as_ref() }.copied()
}

/// What is lent to this process, given back because another program takes its place; while this lives.
///
/// If the execution fails, dropping it asks for it again. What others took meanwhile the program lacks,
/// and its next request starts the pager.
pub struct GivenBack(());

impl GivenBack {
    /// Before the execution of `path`, as execveat(2) takes it. `None` where there is nothing to give back,
    /// the caller is a child of vfork, or no such program can be executed: a search along `PATH` tries many.
    pub fn before(dir: i32, path: *const c_char, flags: i32) -> Option<Self> {
        let own = || process::pid() == PROCESS.load(Ordering::SeqCst);
        if !share::is_member() || !own() || !target::may_execute(dir, path, flags) {
            return None;
        }
        // The pager of another thread must not start from what is given back meanwhile.
        let mode::Path::Direct(_at_work) = mode::enter() else {
            return None;
        };
        locked(|_| {
            RESERVED_BYTES.store(0, Ordering::SeqCst);
            share::leave();
        });
        Some(Self(()))
    }
}

impl Drop for GivenBack {
    fn drop(&mut self) {
        if let mode::Path::Direct(_at_work) = mode::enter() {
            locked(recount);
        }
    }
}

/// Bytes of private anonymous writable mappings, the main thread's stack included, and of shared ones up to so many bytes: what a fork left is its parent's.
fn anonymous_bytes(buffer: &mut [u8], shared_max: u64) -> Option<u64> {
    let (mut bytes, mut shared) = (0, 0);
    let visited = maps::for_each(buffer, |entry| {
        let anonymous = entry.is_private_anonymous() || entry.kind() == Kind::Stack;
        if anonymous && entry.prot & libc::PROT_WRITE != 0 {
            bytes += entry.len() as u64;
        } else if entry.shared && entry.name.starts_with(b"/dev/zero") {
            shared += entry.len() as u64;
        }
        ControlFlow::Continue(())
    });
    visited.ok().map(|()| bytes + shared.min(shared_max))
}

/// A count that is above every other: the next request has it replaced.
const UNKNOWN: u64 = u64::MAX / 2;

/// Called by the constructor before the first hook.
pub fn start() {
    begin(private_writable_bytes().unwrap_or(UNKNOWN));
}

/// Called in a child that fork made. Most execute a program or end before they ask for anything.
///
/// The child's reservation starts empty: what it shares with its parent is charged once it grows.
pub fn restart_in_child() {
    begin(UNKNOWN);
}

fn begin(counted: u64) {
    PROCESS.store(process::pid(), Ordering::SeqCst);
    RESERVED_BYTES.store(0, Ordering::SeqCst);
    COUNTED_BYTES.store(counted, Ordering::SeqCst);
    // Other threads are not in the child, and what they were about to protect may be protected.
    let protecting = PROTECTING_BYTES.swap(0, Ordering::SeqCst);
    PROTECTED_BYTES.fetch_add(protecting, Ordering::SeqCst);
    // What is read only stays shared with the parent.
    if SHARED_BYTES.load(Ordering::SeqCst) != 0 {
        SHARED_BYTES.store(0, Ordering::SeqCst);
    }
    if !REFUSED.load(Ordering::SeqCst).is_null() {
        remember_refusal(None);
    }
    if LIST.state.load(Ordering::SeqCst) != FREE {
        LIST.state.store(FREE, Ordering::SeqCst);
    }
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

#[cfg(test)]
mod tests;
