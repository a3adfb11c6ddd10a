//! One change of the address space at a time.
//!
//! The kernel tells the pager of what is unmapped when that is done, and another thread's new mapping may lie there by then.
//! So whoever changes mappings, or forks, has this lock from before the call until the pager knows all of it.
//!
//! Signals wait meanwhile: a handler may jump away, or change mappings itself. The lock of a task that was killed with it, as a
//! child that shares the memory may be, is taken over.

use core::sync::atomic::{AtomicU32, Ordering};

use outpage_core::units::Nanos;
use outpage_sys::futex::{self, Scope};
use outpage_sys::process::{self, Tid};

use crate::raw::SignalsBlocked;

/// The task that has the lock; 0 for none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Others wait.
static WAITERS: AtomicU32 = AtomicU32::new(0);

/// How long a waiter sleeps until it looks whether the owner still lives: far longer than a call takes.
const LOOK: Nanos = Nanos(20_000_000);

/// The lock, held.
pub struct Order {
    _signals: SignalsBlocked,
}

impl Order {
    /// Waits for its turn.
    pub fn take() -> Self {
        let signals = SignalsBlocked::new();
        let me = process::tid().0;
        loop {
            let taken = OWNER.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
            let Err(owner) = taken else {
                return Self { _signals: signals };
            };
            WAITERS.fetch_add(1, Ordering::SeqCst);
            let woken = futex::wait(&OWNER, owner, Some(LOOK), Scope::Process);
            WAITERS.fetch_sub(1, Ordering::SeqCst);
            if woken == futex::Wait::TimedOut && !process::task_exists(Tid(owner)) {
                let _ = OWNER.compare_exchange(owner, 0, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
    }

    /// Called in a forked child by its only thread, which had the lock, under another number, or did not need it.
    pub fn forget_in_child() {
        WAITERS.store(0, Ordering::SeqCst);
        OWNER.store(0, Ordering::SeqCst);
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        OWNER.store(0, Ordering::SeqCst);
        if WAITERS.load(Ordering::SeqCst) > 0 {
            futex::wake(&OWNER, 1, Scope::Process);
        }
    }
}

#[cfg(test)]
mod tests;
