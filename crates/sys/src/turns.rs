//! A lock whose owner has a name, so that it does not stay locked when that thread is killed.
//!
//! Whoever waits sleeps, and looks now and then whether the owner still lives. Nothing is allocated, and a forked child can
//! [forget](Turns::forget) what was.

use core::sync::atomic::{AtomicU32, Ordering};

use outpage_core::units::Nanos;

use crate::clock;
use crate::futex::{self, Scope};
use crate::process::{self, Tid};

/// How long a waiter sleeps until it looks whether the owner still lives: far longer than a system call takes.
const LOOK: Nanos = Nanos(20_000_000);

/// The lock. One thread at a time has a [`Turn`].
#[derive(Debug, Default)]
pub struct Turns {
    /// The task whose turn it is; 0 for none.
    owner: AtomicU32,
    /// Others wait.
    waiters: AtomicU32,
    /// Turns begun so far, modulo 2^32.
    begun: AtomicU32,
}

/// The lock, held.
#[derive(Debug)]
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// It is nobody's turn.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            owner: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            begun: AtomicU32::new(0),
        }
    }

    /// Waits for its turn. A thread that has one waits for ever.
    pub fn take(&self) -> Turn<'_> {
        loop {
            let owner = match self.try_take() {
                Ok(turn) => return turn,
                Err(owner) => owner,
            };
            self.waiters.fetch_add(1, Ordering::SeqCst);
            let woken = futex::wait(&self.owner, owner, Some(LOOK), Scope::Process);
            self.waiters.fetch_sub(1, Ordering::SeqCst);
            if woken == futex::Wait::TimedOut {
                self.end_if_dead(owner);
            }
        }
    }

    /// Waits for `patience` at most, and calls `meanwhile` again and again. `None` when it was another's turn all the time.
    pub fn take_within(&self, patience: Nanos, mut meanwhile: impl FnMut()) -> Option<Turn<'_>> {
        let begun = clock::now();
        loop {
            let owner = match self.try_take() {
                Ok(turn) => return Some(turn),
                Err(owner) => owner,
            };
            if clock::now().0 - begun.0 >= patience.0 {
                self.end_if_dead(owner);
                return self.try_take().ok();
            }
            meanwhile();
        }
    }

    /// How many turns were begun so far: the same number as before while a turn lasts.
    #[must_use]
    pub fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    /// The same, or `None` while it is somebody's turn.
    #[must_use]
    pub fn begun_and_over(&self) -> Option<u32> {
        // In this order: who begins after the look at the owner is counted at the next call.
        let begun = self.begun();
        (self.owner.load(Ordering::SeqCst) == 0).then_some(begun)
    }

    fn try_take(&self) -> Result<Turn<'_>, u32> {
        let (me, order) = (process::tid().0, Ordering::SeqCst);
        self.owner.compare_exchange(0, me, order, order)?;
        self.begun.fetch_add(1, order);
        Ok(Turn(self))
    }

    fn end_if_dead(&self, owner: u32) {
        if !process::task_exists(Tid(owner)) {
            let order = Ordering::SeqCst;
            let _ = self.owner.compare_exchange(owner, 0, order, order);
        }
    }

    /// In a forked child, by its only thread: it is nobody's turn. Its own has another number there.
    pub fn forget(&self) {
        self.waiters.store(0, Ordering::SeqCst);
        self.owner.store(0, Ordering::SeqCst);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turns { owner, waiters, .. } = self.0;
        owner.store(0, Ordering::SeqCst);
        if waiters.load(Ordering::SeqCst) > 0 {
            futex::wake(owner, 1, Scope::Process);
        }
    }
}

#[cfg(test)]
mod tests;
