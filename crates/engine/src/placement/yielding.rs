//! Waiting for a read by yielding the CPU.

use outpage_core::units::Nanos;
use outpage_sys::{clock, process};

/// How long a read is awaited by yielding before the pager sleeps: twice a 4 KiB read of a
/// fast device, after which a sleep's wake-up no longer matters.
const YIELD_FOR: Nanos = Nanos(150_000);
/// A yield that took longer let a thread run, which may have faulted: with nobody to run it takes
/// 0.5 us.
const YIELD_ALONE: Nanos = Nanos(10_000);
/// A yield that took longer let a thread run that does not wait for pages: a quarter of a tick of the
/// slowest clock (`CONFIG_HZ=250`), many times what a program needs from one fault to the next.
const YIELD_CROWDED: Nanos = Nanos(1_000_000);

/// How a wait by yielding ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Yielded {
    /// What was awaited has happened.
    Done,
    /// A thread ran meanwhile that may have faulted.
    Ran,
    /// As [`Self::Ran`], for so long that it is one that does not wait for pages.
    Crowded,
    /// Nothing happened for 150 us.
    Late,
}

/// Yields until `done`, which is asked before each yield, or one of the other ends.
pub fn await_by_yielding(mut done: impl FnMut() -> bool) -> Yielded {
    let mut now = clock::now();
    let until = now.0 + YIELD_FOR.0;
    while now.0 < until {
        if done() {
            return Yielded::Done;
        }
        let before = now;
        process::yield_now();
        now = clock::now();
        let took = now.0 - before.0;
        if took > YIELD_CROWDED.0 {
            return Yielded::Crowded;
        }
        if took > YIELD_ALONE.0 {
            return Yielded::Ran;
        }
    }
    Yielded::Late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_what_was_awaited_and_asks_before_the_first_yield() {
        assert_eq!(await_by_yielding(|| true), Yielded::Done);
        let mut asked = 0;
        let end = await_by_yielding(|| {
            asked += 1;
            false
        });
        assert!(end != Yielded::Done && asked > 0, "{end:?} after {asked}");
    }
}
