//! What reading costs: a page alone, and one more page along with others, as reads turned out.

use crate::units::Nanos;

/// Reads of at least so many pages tell what one more page costs; of fewer, the scatter of a read's
/// start is larger than that.
const LONG: u32 = 8;

/// Averages forget with every observation by one in so many.
const MEMORY: u64 = 8;

/// An observation counts at most so many times the average: a thread that was not scheduled says
/// nothing about the store.
const OUTLIER: u64 = 4;

/// What one more page costs at least, in nanoseconds: the CPU decrypts (0.65 us, docs/bench.md), hashes, moves and maps
/// it, and where nobody waits for that, no read tells. An estimate; plausible are 1 to 4 us.
const ALONG_LEAST: u64 = 2000;

/// Running averages, in nanoseconds; 0 for nothing observed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    alone: u64,
    along: u64,
    /// A long read was seen.
    long: bool,
}

impl Cost {
    /// A read of `pages` pages took so long.
    pub(super) fn observe(&mut self, pages: u32, took: Nanos) {
        if pages == 1 {
            average(&mut self.alone, took.0);
        } else if pages >= LONG && self.alone > 0 {
            let rest = took.0.saturating_sub(self.alone) / u64::from(pages - 1);
            average(&mut self.along, rest);
            self.long = true;
        }
    }

    /// A page alone, and one more page, if both are known.
    pub(super) fn known(&self) -> Option<(u64, u64)> {
        (self.alone > 0 && self.long).then_some((self.alone, self.along.max(ALONG_LEAST)))
    }
}

fn average(of: &mut u64, next: u64) {
    *of = match *of {
        0 => next,
        old => (old * (MEMORY - 1) + next.min(old.saturating_mul(OUTLIER))) / MEMORY,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_costs_are_found() {
        let mut cost = Cost::default();
        assert_eq!(cost.known(), None);
        for n in 0..100 {
            cost.observe(1, Nanos(50_000 + n % 7 * 100));
            cost.observe(64, Nanos(50_000 + 63 * 5_000));
        }
        let (alone, along) = cost.known().unwrap();
        assert!((49_000..52_000).contains(&alone), "{alone}");
        assert!((4_800..5_200).contains(&along), "{along}");
        let mut cheap = Cost::default();
        (0..100).for_each(|n| cheap.observe(1 + n % 2 * 63, Nanos(9000)));
        assert_eq!(cheap.known(), Some((9000, ALONG_LEAST)), "the CPU's part");
        cost.observe(1, Nanos(1_000_000_000));
        assert!(cost.known().unwrap().0 < 2 * alone, "one outlier");
    }
}
