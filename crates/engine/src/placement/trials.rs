//! On which CPU a read takes least time: tried out, one CPU after another.

use outpage_core::units::Nanos;
use outpage_sys::process::CpuSet;

/// Reads that a CPU is judged by. A choice, not a measurement: single reads differ by as much as the
/// CPUs do, and the mean of 128 by a tenth of that.
const READS: u32 = 128;
/// A read that took longer counts as this long: another program had the CPU, or the device was busy.
const LONGEST: u64 = 500_000;
/// CPUs that are tried. Where there are more, devices have a queue for each and none is better.
const CPUS_MAX: u32 = 8;
/// Another CPU is better if its reads take less than 15/16 of the time.
const BETTER: (u64, u64) = (15, 16);
/// How long a choice holds. A choice, not a measurement: interrupts are moved seldom, and a round of
/// trials on eight CPUs is about a thousand reads.
const HOLDS: Nanos = Nanos(10_000_000_000);

/// The trials of one process.
#[derive(Default)]
pub struct Trials {
    /// Reads of this trial, and their time in ns.
    reads: u32,
    sum_ns: u64,
    /// The CPU that is being tried.
    on: Option<u32>,
    /// Where the first trial was, and which CPU is to be tried next.
    next: u32,
    /// The best CPU so far, and what a read takes there, in ns.
    best: Option<(u32, u64)>,
    /// When to begin again.
    until: Nanos,
}

impl Trials {
    /// The CPU to be on; `None` while nothing is known.
    pub fn cpu(&self) -> Option<u32> {
        self.on.or(self.best.map(|best| best.0))
    }

    /// A read awaited on `cpu` took so long. Whether [`Self::cpu`] says something new.
    pub fn took(&mut self, cpu: u32, took: Nanos, now: Nanos, all: &CpuSet) -> bool {
        if self.on.is_none() && now < self.until {
            return false;
        }
        if self.on.is_some_and(|on| on != cpu) {
            return false; // On its way there.
        }
        (self.reads, self.sum_ns) = (self.reads + 1, self.sum_ns + took.0.min(LONGEST));
        if self.reads < READS {
            return false;
        }
        self.judge(cpu, now, all);
        true
    }

    fn judge(&mut self, cpu: u32, now: Nanos, all: &CpuSet) {
        let mean = self.sum_ns / u64::from(self.reads);
        (self.reads, self.sum_ns) = (0, 0);
        if self.on.is_none() {
            // A new round; what was known may not hold any more.
            (self.best, self.next) = (None, 0);
        }
        let better = |best: (u32, u64)| mean * BETTER.1 < best.1 * BETTER.0;
        if self.best.is_none_or(better) {
            self.best = Some((cpu, mean));
        }
        // The first trial of a round was where the thread happened to be: that CPU comes again, so
        // that all are judged alike, after the jump.
        self.on = (self.next..CPUS_MAX).find(|&next| all.contains(next));
        match self.on {
            Some(on) => self.next = on + 1,
            None => self.until = Nanos(now.0 + HOLDS.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times a whole round, each CPU's reads taking what `cost` says; returns the choice.
    fn round(trials: &mut Trials, from: u64, cost: impl Fn(u32) -> u64) -> Option<u32> {
        let mut all = CpuSet::one(0);
        (1..4).for_each(|cpu| all = all.with(cpu));
        let mut at = 2;
        for read in 0..u64::from(READS) * 6 {
            if trials.took(at, Nanos(cost(at)), Nanos(from + read), &all) {
                at = trials.cpu().expect("chosen");
            }
        }
        assert_eq!(trials.on, None, "the round is over");
        trials.cpu()
    }

    #[test]
    fn the_cpu_with_the_shortest_reads_is_kept_until_the_next_round() {
        let mut trials = Trials::default();
        let on_one = |cpu| if cpu == 1 { 55_000 } else { 72_000 };
        assert_eq!(round(&mut trials, 1, on_one), Some(1));
        let on_three = |cpu| if cpu == 3 { 55_000 } else { 72_000 };
        assert_eq!(round(&mut trials, 1000, on_three), Some(1), "too early");
        assert_eq!(round(&mut trials, 2 * HOLDS.0, on_three), Some(3));
    }

    #[test]
    fn a_difference_within_the_noise_moves_nobody() {
        let mut trials = Trials::default();
        assert_eq!(
            round(&mut trials, 1, |cpu| 60_000 - u64::from(cpu)),
            Some(2)
        );
    }
}
