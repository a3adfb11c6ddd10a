//! How far runs go on: what [`stream`](super::stream) learns to choose its windows.
//!
//! A window is a bet that the run of touched slots goes on to the window's end. Touches inside a
//! window may be invisible, so only that end tells: the next fault comes there or it does not. The
//! outcomes are averaged for every window size, apart for every age of the run, because rows of a
//! matrix, say, all go on for 16 slots and then stop.
//!
//! The window for an age is the largest of which at least half is used at least half the time. For
//! a run that always ends just inside the window, that shows only in windows half as large, so one
//! such probe is made now and then.

/// Window sizes: powers of two from 1 to 256.
const SIZES: usize = 9;

/// Age classes: 0, 1, 2 to 3, 4 to 7 ... 256 and more slots into the run.
const AGES: usize = 10;

/// One in full, as a fixed-point share.
const ONE: u16 = 256;

/// First estimate for the first window of a run: just too low, so that one run that goes on is
/// enough to try a window of two.
const FIRST_ESTIMATE: u16 = 96;

/// First estimate for later windows: a run that went on is expected to go on.
const LATER_ESTIMATE: u16 = 192;

/// At most this many windows that did not pay in full between two probes.
const PROBE_INTERVAL_MAX: u8 = 8;

/// A window whose outcome is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bet {
    age: usize,
    slots: u32,
    probe: bool,
}

/// The estimates for one age.
#[derive(Clone, Copy)]
struct Age {
    /// How often a run goes on for 2^i slots, as a share of [`ONE`].
    goes_on: [u16; SIZES],
    /// Windows that did not pay in full since the last probe.
    misses: u8,
    /// Misses until the next probe.
    interval: u8,
}

/// Estimates for all ages.
pub(super) struct Learner {
    ages: [Age; AGES],
}

impl Learner {
    pub(super) const fn new() -> Self {
        let later = Age {
            goes_on: [LATER_ESTIMATE; SIZES],
            misses: 0,
            interval: 1,
        };
        let mut ages = [later; AGES];
        ages[0].goes_on = [FIRST_ESTIMATE; SIZES];
        Self { ages }
    }

    /// The window for a run that is `age` slots old, at most `most` slots, as a bet.
    pub(super) fn choose(&mut self, age: u32, most: u32) -> Bet {
        let class = age_class(age);
        let age = &mut self.ages[class];
        let paying = age
            .goes_on
            .iter()
            .take_while(|share| **share >= ONE / 2)
            .count();
        let slots = most.min(1 << paying);
        let proven = paying > slots.ilog2() as usize;
        let probe = slots > 1 && !proven && age.misses >= age.interval;
        if probe {
            age.misses = 0;
        }
        Bet {
            age: class,
            slots: if probe { slots / 2 } else { slots },
            probe,
        }
    }

    /// Whether the run is more likely than not to go on to the end of the window.
    pub(super) fn likely(&self, bet: Bet) -> bool {
        self.ages[bet.age].goes_on[bet.slots.ilog2() as usize] >= ONE / 2
    }

    /// The run went on to the end of the window, or it did not.
    pub(super) fn settle(&mut self, bet: Bet, went_on: bool) {
        let age = &mut self.ages[bet.age];
        let size = if went_on {
            bet.slots
        } else {
            bet.slots.next_power_of_two()
        };
        let size = size.ilog2() as usize;
        let share = age.goes_on[size];
        let share = if went_on {
            share + (ONE - share).div_ceil(4)
        } else {
            share - share.div_ceil(4)
        };
        // Only the size itself: what a window that failed says of smaller ones is unknown, so
        // counting its successes for them would make them look better than they are. But a run
        // goes on for fewer slots at least as often as for more.
        age.goes_on[size] = share;
        age.goes_on[..size]
            .iter_mut()
            .for_each(|fewer| *fewer = (*fewer).max(share));
        age.goes_on[size..]
            .iter_mut()
            .for_each(|more| *more = (*more).min(share));
        match (bet.probe, went_on) {
            (true, true) => age.interval = (age.interval * 2).clamp(1, PROBE_INTERVAL_MAX),
            (true, false) => age.interval = 0,
            (false, true) => {}
            (false, false) => age.misses = age.misses.saturating_add(1),
        }
    }
}

impl Bet {
    /// The window.
    pub(super) const fn slots(self) -> u32 {
        self.slots
    }

    /// The bet on a window that was cut to `slots` slots.
    pub(super) fn cut(self, slots: u32) -> Self {
        Self {
            slots,
            probe: self.probe && slots == self.slots,
            ..self
        }
    }
}

fn age_class(age: u32) -> usize {
    ((u32::BITS - age.leading_zeros()) as usize).min(AGES - 1)
}
