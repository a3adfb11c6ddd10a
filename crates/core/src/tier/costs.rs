//! What a touch costs whose page is out, as measured: in the pool, and in the store.

use crate::units::Nanos;

/// Where a page was that somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// In the pool of compressed pages.
    Pool,
    /// In the store.
    Store,
}

/// Waits until one was measured: a touch in the pool of a quiet machine, and a read on the disks that the default store was measured on
/// (docs/performance.md).
const HIT: u64 = 11_000;
const READ: u64 = 75_000;
/// A wait counts by so much in the mean of those before it: 64 of a size decide. A choice.
const WEIGHT: u64 = 64;
/// No wait counts as more than so many times the mean: a process that was stopped did not wait for its page, and a disk that became slower is followed all
/// the same. A choice.
const AT_MOST: u64 = 8;
/// Beside the wait, a touch takes the CPU for the page that leaves in exchange, in parts of a wait for the pool: nine tenths with a Perl hash, a third with a Python
/// dictionary (docs/performance.md). A choice between them: with a third, by turns, four rounds, a dictionary took 22.6 s [19.6-26.3] for 24.1 [21.5-26.0], and a
/// table of LuaJIT's 31.3 [28.0-33.1] for 28.2 [25.7-31.2].
const LEAVES: (u64, u64) = (9, 10);

/// Means of what was waited for.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    hit: u64,
    read: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            hit: HIT,
            read: READ,
        }
    }
}

impl Costs {
    /// Somebody waited so long for a page, from its fault until it was mapped.
    pub fn waited(&mut self, whence: Whence, took: Nanos) {
        let mean = match whence {
            Whence::Pool => &mut self.hit,
            Whence::Store => &mut self.read,
        };
        let took = took.0.min(*mean * AT_MOST);
        *mean = ((*mean * (WEIGHT - 1) + took) / WEIGHT).max(1);
    }

    /// Nanoseconds from one touch in the pool to the next, were all touches so.
    pub const fn hit_ns(&self) -> u64 {
        self.hit + self.leaves()
    }

    /// The same of touches that are reads.
    pub const fn read_ns(&self) -> u64 {
        self.read + self.leaves()
    }

    const fn leaves(&self) -> u64 {
        self.hit * LEAVES.0 / LEAVES.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_and_a_single_long_wait_is_none() {
        let mut costs = Costs::default();
        assert_eq!((costs.hit_ns(), costs.read_ns()), (20_900, 84_900));
        (0..1000).for_each(|_| costs.waited(Whence::Store, Nanos(8_000_000)));
        let read = costs.read_ns();
        assert!((7_900_000..=8_010_000).contains(&read), "{read}");
        costs.waited(Whence::Pool, Nanos(1_000_000_000));
        let hit = costs.hit_ns();
        assert!(hit < 25_000, "{hit}");
        (0..1000).for_each(|_| costs.waited(Whence::Pool, Nanos(0)));
        assert!(costs.hit_ns() < 500, "down to nothing, too");
    }
}
