//! What the hooks of this process do at the moment.
//!
//! | mode | entered | the hooks |
//! |---|---|---|
//! | `Uninitialised` | at load; stays without `OUTPAGE_MEMORY` | are not installed |
//! | `Direct` | the constructor has patched libc | make the system call themselves and count |
//! | `Starting` | the count no longer fits the limit | wait, all but those of the starting thread |
//! | `Managed` | the pager runs | let the pager change managed memory |
//! | `Disabled` | libc cannot be patched, or the pager could not start | make the system call |
//!
//! The step to `Starting` waits until no hook is between its count and the end of its system call:
//! the pager then finds the list of mappings complete, and nothing changes while it takes them over.
//! Every hook in `Direct` mode therefore stands in [`SLOTS`] while it works. A signal handler
//! that interrupts such a hook, and calls one itself, is recognised by its thread and not made to
//! wait for itself; nor may it start the pager, which the next hook does.
//!
//! No thread waits here with a lock held, and no hook touches managed memory between taking a slot
//! and giving it back: in `Direct` mode nothing is managed.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use outpage_core::units::Nanos;
use outpage_engine::Engine;
use outpage_sys::futex::{self, Scope};
use outpage_sys::{own, process};

use crate::raw::{SignalsBlocked, thread_pointer};

/// The modes; the table is in the module's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mode {
    /// Nothing was set up.
    Uninitialised = 0,
    /// Everything fits the limit.
    Direct = 1,
    /// The pager is being started.
    Starting = 2,
    /// The pager runs.
    Managed = 3,
    /// This process is not paged; why was said when it came so.
    Disabled = 4,
}

static MODE: AtomicU32 = AtomicU32::new(Mode::Uninitialised as u32);
static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(core::ptr::null_mut());
/// The thread that starts the pager, by thread pointer; 0 for none.
static STARTER: AtomicUsize = AtomicUsize::new(0);

/// Hooks that can be at work at once; more threads than these take turns.
const SLOTS_COUNT: usize = 64;
/// How long the starter sleeps between two looks at the slots.
const LOOK_NS: u64 = 20_000;

/// One hook at work, alone on its cache line.
#[repr(align(64))]
struct Slot {
    /// Thread pointer of its thread; 0 when free.
    owner: AtomicUsize,
    /// Bytes that it counted and may not have mapped yet.
    pending_bytes: AtomicU64,
}

/// Beside what else a fork writes ([`crate::fork`]).
#[unsafe(link_section = "outpage_forks")]
static SLOTS: [Slot; SLOTS_COUNT] = [const {
    Slot {
        owner: AtomicUsize::new(0),
        pending_bytes: AtomicU64::new(0),
    }
}; SLOTS_COUNT];

/// How the calling hook is to do its work.
pub enum Path {
    /// Make the system call; neither count nor ask.
    Raw,
    /// Make the system call while holding this; count first.
    Direct(AtWork),
    /// The pager changes managed memory.
    Managed(&'static Engine),
}

/// The mode at this moment.
pub fn current() -> Mode {
    match MODE.load(Ordering::SeqCst) {
        1 => Mode::Direct,
        2 => Mode::Starting,
        3 => Mode::Managed,
        4 => Mode::Disabled,
        _ => Mode::Uninitialised,
    }
}

/// Goes to `to`, from the constructor or the starter, which are alone then; wakes who waits.
pub fn set(to: Mode) {
    MODE.store(to as u32, Ordering::SeqCst);
    futex::wake(&MODE, u32::MAX, Scope::Process);
}

/// Called first by every hook.
pub fn enter() -> Path {
    loop {
        match current() {
            // Libraries that the pager uses call libc as well, and it cannot ask itself.
            Mode::Managed | Mode::Starting if is_pager() => return Path::Raw,
            Mode::Managed => return Path::Managed(engine()),
            Mode::Uninitialised | Mode::Disabled => return Path::Raw,
            Mode::Direct => {
                let at_work = AtWork::take();
                if current() == Mode::Direct {
                    return Path::Direct(at_work);
                }
            }
            Mode::Starting => {
                let me = thread_pointer();
                if STARTER.load(Ordering::SeqCst) == me || slots_of(me) > 0 {
                    return Path::Raw;
                }
                futex::wait(&MODE, Mode::Starting as u32, None, Scope::Process);
            }
        }
    }
}

/// Whether the caller is a thread of the pager: its thread block is in the pager's own memory.
pub fn is_pager() -> bool {
    own::contains(thread_pointer())
}

fn engine() -> &'static Engine {
    // SAFETY: `Managed` is set only after the pointer, which then never changes again.
    unsafe { &*ENGINE.load(Ordering::Acquire) }
}

fn slots_of(thread: usize) -> usize {
    SLOTS
        .iter()
        .filter(|slot| slot.owner.load(Ordering::SeqCst) == thread)
        .count()
}

/// A hook at work in `Direct` mode; dropped when its system call is done. Signals wait meanwhile: a handler may jump away, and the slot would be taken for ever.
pub struct AtWork {
    slot: &'static Slot,
    // Dropped after the slot was given back.
    _signals: SignalsBlocked,
}

impl AtWork {
    fn take() -> Self {
        let signals = SignalsBlocked::of_others();
        let me = thread_pointer();
        let first = (me >> 12) ^ (me >> 18);
        loop {
            for i in 0..SLOTS_COUNT {
                let slot = &SLOTS[first.wrapping_add(i) % SLOTS_COUNT];
                let free = slot.owner.load(Ordering::Relaxed) == 0;
                // SeqCst orders this before the second look at the mode, and the starter's change
                // of the mode before its look at the slots: one of the two sees the other.
                if free
                    && slot
                        .owner
                        .compare_exchange(0, me, Ordering::SeqCst, Ordering::Relaxed)
                        .is_ok()
                {
                    return Self {
                        slot,
                        _signals: signals,
                    };
                }
            }
            process::yield_now();
        }
    }

    /// Whether this hook runs in a signal handler that interrupted another hook of its thread.
    pub fn is_nested(&self) -> bool {
        slots_of(thread_pointer()) > 1
    }

    /// Says how many bytes this hook is about to map.
    pub fn announce(&self, bytes: u64) {
        self.slot.pending_bytes.store(bytes, Ordering::SeqCst);
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.slot.pending_bytes.store(0, Ordering::SeqCst);
        self.slot.owner.store(0, Ordering::SeqCst);
    }
}

/// Bytes that hooks at work have counted and may not have mapped yet.
pub fn pending_bytes() -> u64 {
    SLOTS
        .iter()
        .map(|slot| slot.pending_bytes.load(Ordering::SeqCst))
        .sum()
}

/// Starts the pager: `Direct` to `Starting`, then to what `start` leads to.
///
/// Returns when the mode is no longer `Direct`, whichever thread did it. The caller holds no slot
/// and has its signals blocked.
pub fn start(start: impl FnOnce() -> Option<&'static Engine>) {
    let (from, to) = (Mode::Direct as u32, Mode::Starting as u32);
    if MODE
        .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
        .is_err()
    {
        return;
    }
    STARTER.store(thread_pointer(), Ordering::SeqCst);
    while SLOTS
        .iter()
        .any(|slot| slot.owner.load(Ordering::SeqCst) != 0)
    {
        futex::wait(&MODE, to, Some(Nanos(LOOK_NS)), Scope::Process);
    }
    let mode = match start() {
        Some(engine) => {
            ENGINE.store(core::ptr::from_ref(engine).cast_mut(), Ordering::Release);
            Mode::Managed
        }
        None => Mode::Disabled,
    };
    STARTER.store(0, Ordering::SeqCst);
    set(mode);
}

/// Called in a forked child by its only thread: the hooks of the parent's other threads are not here.
pub fn forget_other_threads() {
    // What is read only stays shared with the parent.
    for slot in SLOTS
        .iter()
        .filter(|slot| slot.owner.load(Ordering::SeqCst) != 0)
    {
        slot.pending_bytes.store(0, Ordering::SeqCst);
        slot.owner.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
pub mod tests;
