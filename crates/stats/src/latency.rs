//! Histograms of latencies: counts by logarithm, with linear steps inside.
//!
//! The shape is that of HDR histograms (Tene, hdrhistogram.org): each power of two has
//! [`STEPS`] buckets of equal width, so that a bucket is at most a sixteenth of its values wide.
//! Recording is one addition and allocates nothing.

use outpage_sys::shareable;

use crate::counters::Counter;

/// Buckets of each power of two.
pub const STEPS: usize = 16;
/// Powers of two: the first holds all below 128 ns, the last all from 2^37 ns (137 s) on.
pub const POWERS: usize = 32;

/// Values below this are told apart by 8 ns.
const FIRST_POWER: u32 = 7;

/// The bucket of a latency of `ns` nanoseconds: power and step.
#[must_use]
pub const fn bucket(ns: u64) -> (usize, usize) {
    if ns >> FIRST_POWER == 0 {
        return (0, (ns >> 3) as usize);
    }
    let log = ns.ilog2();
    let power = (log - FIRST_POWER + 1) as usize;
    if power >= POWERS {
        return (POWERS - 1, STEPS - 1);
    }
    (power, (ns >> (log - 4)) as usize - STEPS)
}

/// The first latency beyond bucket (`power`, `step`), in nanoseconds. The last one holds all longer
/// latencies too.
#[must_use]
pub const fn bucket_end(power: usize, step: usize) -> u64 {
    if power == 0 {
        return (step as u64 + 1) * 8;
    }
    let log = power as u32 + FIRST_POWER - 1;
    ((STEPS + step + 1) as u64) << (log - 4)
}

shareable! {
    /// How long the threads of a process waited for faults.
    #[derive(Debug, Default)]
    pub struct Latencies {
        /// Faults that were answered without reading the store.
        pub minor: Latency,
        /// Faults that waited for a read.
        pub major: Latency,
    }
}

shareable! {
    /// A histogram in shared memory. One thread writes, anybody reads.
    #[derive(Debug, Default)]
    pub struct Latency {
        counts: [[Counter; STEPS]; POWERS],
    }
}

impl Latency {
    /// Counts one latency.
    #[inline]
    pub fn record(&self, ns: u64) {
        let (power, step) = bucket(ns);
        self.counts[power][step].add(1);
    }

    /// The counts now.
    #[must_use]
    pub fn read(&self) -> Histogram {
        let count = |power: usize| std::array::from_fn(|step| self.counts[power][step].get());
        Histogram {
            counts: std::array::from_fn(count),
        }
    }

    /// Replaces all counts.
    pub fn write(&self, histogram: &Histogram) {
        let all = self
            .counts
            .iter()
            .flatten()
            .zip(histogram.counts.iter().flatten());
        all.for_each(|(counter, &count)| counter.set(count));
    }
}

/// [`Latencies`] at one moment, or the total of several processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Faults that were answered without reading the store.
    pub minor: Histogram,
    /// Faults that waited for a read.
    pub major: Histogram,
}

impl Latencies {
    /// The counts now.
    #[must_use]
    pub fn read(&self) -> Waits {
        Waits {
            minor: self.minor.read(),
            major: self.major.read(),
        }
    }

    /// Replaces all counts.
    pub fn write(&self, waits: &Waits) {
        self.minor.write(&waits.minor);
        self.major.write(&waits.major);
    }
}

impl Waits {
    /// Takes those of another process in.
    pub fn merge(&mut self, other: &Self) {
        self.minor.merge(&other.minor);
        self.major.merge(&other.major);
    }
}

/// A histogram of latencies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: [[u64; STEPS]; POWERS],
}

impl Histogram {
    /// Counts one latency.
    pub const fn record(&mut self, ns: u64) {
        let (power, step) = bucket(ns);
        self.counts[power][step] += 1;
    }

    /// Takes another histogram in.
    pub fn merge(&mut self, other: &Self) {
        let all = self
            .counts
            .iter_mut()
            .flatten()
            .zip(other.counts.iter().flatten());
        all.for_each(|(mine, &theirs)| *mine = mine.saturating_add(theirs));
    }

    /// How many latencies were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter().flatten();
        counts.fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The latency that `share` of all (0 to 1) do not exceed, in nanoseconds, at most a sixteenth too
    /// high; `None` without any.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (power, steps) in self.counts.iter().enumerate() {
            for (step, &count) in steps.iter().enumerate() {
                seen = u64::saturating_add(seen, count);
                if count > 0 && seen >= wanted {
                    return Some(bucket_end(power, step) - 1);
                }
            }
        }
        None
    }

    /// Half-open spans of nanoseconds and the counts in them, those without any left out.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let mut from = 0;
        let steps = (0..POWERS).flat_map(|power| (0..STEPS).map(move |step| (power, step)));
        steps.filter_map(move |(power, step)| {
            let end = bucket_end(power, step);
            let span = (
                core::mem::replace(&mut from, end),
                end,
                self.counts[power][step],
            );
            (span.2 > 0).then_some(span)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_its_bucket() {
        for ns in (0..5000).chain([1 << 20, (1 << 20) + 1, 999_999_937, (1 << 37) - 1]) {
            let (power, step) = bucket(ns);
            let end = bucket_end(power, step);
            assert!(ns < end, "{ns} {end}");
            assert!(
                end as f64 <= (ns as f64 * 17.0 / 16.0).max(ns as f64 + 8.0),
                "{ns} {end}"
            );
        }
        assert_eq!(bucket(u64::MAX), (POWERS - 1, STEPS - 1));
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        for (share, exact) in [
            (0.5, 500_000),
            (0.9, 900_000),
            (0.99, 990_000),
            (0.999, 999_000),
        ] {
            let got = histogram.quantile(share).expect("counted");
            assert!((exact..=exact * 17 / 16).contains(&got), "{share}: {got}");
        }
        assert_eq!(histogram.buckets().map(|b| b.2).sum::<u64>(), 1000);
    }

    #[test]
    fn shared_and_merged_counts_agree() {
        let shared = Latency::default();
        [5, 5000, 5_000_000]
            .into_iter()
            .for_each(|ns| shared.record(ns));
        let mut sum = shared.read();
        sum.merge(&shared.read());
        assert_eq!(sum.count(), 6);
        let copy = Latency::default();
        copy.write(&sum);
        assert_eq!(copy.read(), sum);
    }
}
