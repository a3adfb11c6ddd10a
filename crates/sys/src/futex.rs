//! Sleeping until a word changes.

use core::sync::atomic::AtomicU32;

use outpage_core::units::Nanos;

use crate::clock;
use crate::raw::{Errno, syscall6};

/// Who may share the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Threads of this process only (cheaper).
    Process,
    /// Any process that maps the word; also the kernel's own wake-up when a thread ends.
    System,
}

impl Scope {
    const fn flag(self) -> i32 {
        match self {
            Self::Process => libc::FUTEX_PRIVATE_FLAG,
            Self::System => 0,
        }
    }
}

/// Why a wait ended. Any of them but `TimedOut` can be spurious: look at the word again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Somebody called [`wake`], or a signal handler ran.
    Woken,
    /// The word was not `expected` to begin with.
    Changed,
    /// The time was up.
    TimedOut,
}

/// Sleeps while `word` holds `expected`, for `timeout` at most (`None`: for ever).
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Nanos>, scope: Scope) -> Wait {
    let span = timeout.map(clock::timespec);
    let span_at = span
        .as_ref()
        .map_or(0, |span| core::ptr::from_ref(span) as usize);
    let op = (libc::FUTEX_WAIT | scope.flag()) as usize;
    // SAFETY: the word and the time span live across the call; the kernel only reads them.
    let result = unsafe {
        syscall6(
            libc::SYS_futex,
            word.as_ptr() as usize,
            op,
            expected as usize,
            span_at,
            0,
            0,
        )
    };
    match result {
        Err(Errno::EAGAIN) => Wait::Changed,
        Err(Errno::ETIMEDOUT) => Wait::TimedOut,
        _ => Wait::Woken,
    }
}

/// Wakes at most `count` waiters of `word`; returns how many.
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> u32 {
    let op = (libc::FUTEX_WAKE | scope.flag()) as usize;
    let count = count.min(i32::MAX as u32) as usize;
    // SAFETY: the kernel uses the word's address only as a key.
    let woken = unsafe { syscall6(libc::SYS_futex, word.as_ptr() as usize, op, count, 0, 0, 0) };
    woken.unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;
    use std::thread;

    #[test]
    fn a_changed_word_and_a_timeout_end_the_wait() {
        let word = AtomicU32::new(7);
        assert_eq!(wait(&word, 6, None, Scope::Process), Wait::Changed);
        assert_eq!(
            wait(&word, 7, Some(Nanos(1000)), Scope::System),
            Wait::TimedOut
        );
    }

    #[test]
    fn a_waiter_is_woken() {
        for scope in [Scope::Process, Scope::System] {
            let word = AtomicU32::new(0);
            thread::scope(|threads| {
                threads.spawn(|| {
                    while word.load(Ordering::Acquire) == 0 {
                        wait(&word, 0, None, scope);
                    }
                });
                // Set only once the sleeper is there to be woken, so that `wake` is what ends it.
                while wake(&word, 1, scope) == 0 {
                    thread::yield_now();
                }
                word.store(1, Ordering::Release);
                wake(&word, u32::MAX, scope);
            });
        }
    }
}
