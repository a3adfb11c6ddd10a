//! What frames are worth to this process, as measured: by it a limit that is too small is divided.

use outpage_core::refaults::{Refaults, SPANS};
use outpage_core::units::Nanos;

use crate::session::{Claim, Worth};

/// Until one was measured, a read takes so long: that of a fast disk. A guess.
const READ: u64 = 100_000;
/// The same for a page of the pool.
const UNPACK: u64 = 5_000;
/// A wait counts by so much in the mean of those before it.
const WAIT_WEIGHT: u64 = 16;
/// No wait counts as longer: a process that was stopped did not wait for its page.
const WAIT_MAX: u64 = 1_000_000_000;
/// Shorter spans say nothing of a rate.
const SPAN_MIN: u64 = 5_000_000;
/// How fast a rate that rises is believed, and one that falls: in the second is what a process did a moment ago, which it may do again. Choices.
const RISES_IN: u64 = 50_000_000;
const FALLS_IN: u64 = 1_000_000_000;
/// A process is asleep that did nothing for so long. A choice: one that waits for a person or another process is, one between two requests is not.
const ASLEEP_AFTER: u64 = 1_000_000_000;
/// It did nothing where it ran for less than this part of the time: a timer that looks around costs less.
const RAN_PART: u64 = 200;

/// What the program's threads did until now.
#[derive(Clone, Copy, Default)]
pub(crate) struct Did {
    /// Faults that were served.
    pub faults: u64,
    /// CPU time, in ns.
    pub ran: u64,
    /// One of them waits for a page, which may be for a frame that another process has.
    pub wait: bool,
}

/// What is measured, and what follows from it.
pub(crate) struct Measured {
    seen: Refaults,
    at: Nanos,
    /// In ns a second, as in [`Worth`].
    gains: [u64; SPANS],
    near: u64,
    /// Mean waits, in ns.
    read: u64,
    unpack: u64,
    /// Of a page that had to be fetched, from wherever that was.
    fetch: Option<u64>,
    /// Pages left in the last span that was looked at.
    pages: bool,
    did: Did,
    awake_at: Nanos,
    /// For [`crate::session::Session::target`].
    pub claims: Vec<Claim>,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            seen: Refaults::default(),
            at: Nanos(0),
            gains: [0; SPANS],
            near: 0,
            read: READ,
            unpack: UNPACK,
            fetch: None,
            pages: false,
            did: Did::default(),
            awake_at: Nanos(0),
            claims: Vec::with_capacity(16),
        }
    }
}

/// The rate of `events` in `span` ns, each worth `each` ns: in ns a second.
fn rate(events: u64, each: u64, span: u64) -> u64 {
    let worth = u128::from(events) * u128::from(each) * 1_000_000_000 / u128::from(span);
    u64::try_from(worth).unwrap_or(u64::MAX)
}

/// `mean` after `span` ns in which it was `now`.
fn follow(mean: &mut u64, now: u64, span: u64) {
    let moved = |by: u64, within: u64| {
        let part = u128::from(by) * u128::from(span) / u128::from(span + within);
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    if now > *mean {
        *mean += moved(now - *mean, RISES_IN);
    } else {
        *mean -= moved(*mean - now, FALLS_IN);
    }
}

impl Measured {
    /// Somebody waited so long for a page from the store, or from the pool.
    pub(crate) fn waited(&mut self, took: u64, pooled: bool) {
        let mean = if pooled {
            &mut self.unpack
        } else {
            &mut self.read
        };
        let took = took.min(WAIT_MAX);
        *mean = (*mean * (WAIT_WEIGHT - 1) + took) / WAIT_WEIGHT;
    }

    /// Takes in what was counted until `now`: refaults since the pager began, and what its threads did.
    pub(crate) fn look(&mut self, now: Nanos, counts: &Refaults, did: &Did) {
        let span = now.0.saturating_sub(self.at.0);
        if span < SPAN_MIN {
            return;
        }
        let (mut fetched, mut waited) = (0, 0);
        for at in 0..SPANS {
            // Less than before where the counts began anew, as in a forked child.
            let read = counts.read[at].saturating_sub(self.seen.read[at]);
            let unpacked = counts.unpacked[at].saturating_sub(self.seen.unpacked[at]);
            let worth = read * self.read + unpacked * self.unpack;
            follow(&mut self.gains[at], rate(1, worth, span), span);
            (fetched, waited) = (fetched + read + unpacked, waited + worth);
        }
        self.fetch = waited.checked_div(fetched).or(self.fetch);
        let rescued = counts.rescued.saturating_sub(self.seen.rescued);
        let fetch = self.fetch.unwrap_or(self.read);
        follow(&mut self.near, rate(rescued, fetch, span), span);
        self.pages = counts.departures > self.seen.departures;
        (self.seen, self.at) = (*counts, now);
        let still = did.faults == self.did.faults
            && did.ran.saturating_sub(self.did.ran) < span / RAN_PART
            && !did.wait;
        if !still {
            self.awake_at = now;
        }
        self.did = *did;
    }

    /// Whether pages left lately so that others could come.
    pub(crate) fn pages(&self) -> bool {
        self.pages
    }

    /// Whether the process did nothing for a while.
    pub(crate) fn asleep(&self) -> bool {
        self.at.0.saturating_sub(self.awake_at.0) >= ASLEEP_AFTER
    }

    /// What frames are worth: of those that the process has `frames` says more.
    pub(crate) fn worth(&self, frames: &Worth) -> Worth {
        Worth {
            gains: self.gains,
            near: self.near,
            asleep: self.asleep(),
            ..*frames
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ran(faults: u64, ran: u64) -> Did {
        Did {
            faults,
            ran,
            wait: false,
        }
    }

    fn counts(read: u64, rescued: u64) -> Refaults {
        let mut counts = Refaults {
            rescued,
            ..Refaults::default()
        };
        counts.read[2] = read;
        counts
    }

    #[test]
    fn a_rate_is_reached_and_left_by_and_by() {
        let mut measured = Measured::default();
        for _ in 0..100 {
            measured.waited(200_000, false);
        }
        let mut now = SECOND;
        measured.look(Nanos(now), &counts(0, 0), &Did::default());
        for tick in 1..=40 {
            now += SECOND / 40;
            measured.look(Nanos(now), &counts(tick * 25, tick * 5), &ran(tick * 30, 0));
        }
        let staged = Worth {
            near_pages: 10,
            ..Worth::default()
        };
        let worth = measured.worth(&staged);
        // 1000 refaults a second of 200 us each; 200 rescues.
        assert!(
            (195..=200).contains(&(worth.gains[2] / 1_000_000)),
            "{worth:?}"
        );
        assert!((38..=40).contains(&(worth.near / 1_000_000)), "{worth:?}");
        assert_eq!(worth.gains[3], 0);
        for _ in 0..40 {
            now += SECOND / 40;
            measured.look(Nanos(now), &counts(1000, 200), &ran(1200, 0));
        }
        let after = measured.worth(&staged).gains[2];
        assert!(
            after < worth.gains[2] / 2 && after > worth.gains[2] / 4,
            "{after}"
        );
        // A forked child counts anew.
        now += SECOND;
        measured.look(Nanos(now), &counts(0, 0), &Did::default());
        assert!(measured.worth(&staged).gains[2] < after);
    }

    #[test]
    fn whoever_does_nothing_falls_asleep_and_wakes_at_a_fault_or_when_it_runs() {
        let mut measured = Measured::default();
        let mut now = SECOND;
        let mut look = |measured: &mut Measured, did| {
            now += SECOND / 10;
            measured.look(Nanos(now), &counts(0, 0), &did);
        };
        look(&mut measured, ran(1, 0));
        for tick in 1..=10 {
            assert!(!measured.asleep(), "after {tick} looks");
            look(&mut measured, ran(1, tick * 400_000));
        }
        assert!(measured.asleep(), "4 ms a second are nothing");
        look(&mut measured, ran(2, 4_000_000));
        assert!(!measured.asleep(), "a fault");
        (0..10).for_each(|_| look(&mut measured, ran(2, 4_000_000)));
        assert!(measured.asleep());
        look(&mut measured, ran(2, 5_000_000));
        assert!(!measured.asleep(), "it ran for 1 ms in 100");
        let waits = Did {
            wait: true,
            ..ran(2, 5_000_000)
        };
        (0..20).for_each(|_| look(&mut measured, waits));
        assert!(!measured.asleep(), "one that waits for a frame wants one");
    }
}
