//! What Linux's schedulers remember of a reader: how long it thinks and how far it seeks.
//!
//! CFQ and the anticipatory scheduler keep the same two decaying means (Linux 2.6.28,
//! `cfq_update_io_thinktime`, `cfq_update_io_seektime`, and their models in `as-iosched.c`).

use super::Request;

/// A mean in which each sample weighs an eighth. As in the kernel, 1 is 256.
#[derive(Clone, Copy, Default)]
pub(super) struct Mean {
    samples: u64,
    total: u64,
}

impl Mean {
    pub const fn add(&mut self, sample: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * sample) / 8;
    }

    /// 0 without samples.
    pub const fn value(self) -> u64 {
        match self.samples {
            0 => 0,
            samples => (self.total + samples / 2) / samples,
        }
    }

    /// Whether CFQ relies on it (`sample_valid`): from the third sample on.
    pub const fn valid(self) -> bool {
        self.samples > 80
    }
}

/// By how much one seek may exceed four times their mean, in blocks: 2 * 1024 * 1024 sectors at
/// first (up to 60 of 256 samples), then 2 * 1024 * 64.
const SEEK_MORE: [u64; 2] = [2 * 1024 * 1024 / 8, 2 * 1024 * 64 / 8];

/// One reader's.
#[derive(Clone, Copy, Default)]
pub(super) struct Habits {
    /// From the end of a read to the next one, nanoseconds.
    pub think: Mean,
    /// From the end of a read's blocks to the next one's, blocks.
    pub seek: Mean,
    last: Option<(u64, u64)>,
}

impl Habits {
    /// It asks for `request` at `now`. Thinking times count up to `think_max` nanoseconds.
    pub fn asks(&mut self, now: u64, request: &Request, think_max: u64) {
        if let Some((done, position)) = self.last {
            self.think.add(now.saturating_sub(done).min(think_max));
            let more = SEEK_MORE[usize::from(self.seek.samples > 60)];
            let most = self.seek.value() * 4 + more;
            self.seek.add(position.abs_diff(request.block).min(most));
        }
        let done = self.last.map_or(now, |last| last.0);
        self.last = Some((done, request.end()));
    }

    /// A read of its is complete.
    pub fn served(&mut self, now: u64) {
        if let Some(last) = &mut self.last {
            last.0 = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Op;

    #[test]
    fn means_follow_the_last_samples_and_need_three_to_be_valid() {
        let mut mean = Mean::default();
        assert_eq!(mean.value(), 0);
        let mut valid = Vec::new();
        for _ in 0..4 {
            mean.add(1_000);
            valid.push(mean.valid());
        }
        assert_eq!(valid, [false, false, true, true]);
        // The kernel rounds samples down: a little more than there was.
        assert!((1_000..1_010).contains(&mean.value()), "{}", mean.value());
        (0..40).for_each(|_| mean.add(10));
        assert!((10..20).contains(&mean.value()), "{}", mean.value());
    }

    #[test]
    fn one_far_seek_counts_for_little() {
        let read = |block| Request {
            id: 0,
            op: Op::Read,
            block,
            blocks: 1,
            from: 0,
        };
        let mut habits = Habits::default();
        for block in 0..20 {
            habits.asks(0, &read(block), 1);
        }
        assert_eq!(habits.seek.value(), 0);
        habits.asks(0, &read(10_000_000), 1);
        let mean = habits.seek.value();
        assert!((1_000..3_000).contains(&mean), "an eighth of 16384: {mean}");
    }
}
