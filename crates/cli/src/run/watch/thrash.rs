//! Whether a run waits for its pages instead of working.

use std::time::Duration;

use outpage_engine::config::format_size;
use outpage_stats::Counts;

use crate::run::report::grouped;

/// A run thrashes when its threads wait for pages for this share of the time that they do not sleep: at a
/// quarter of its speed or less. The bundled SOR, LU and MOC in half of their memory are past that within
/// seconds; a program of which it is true for long is worth a word.
const SHARE: f64 = 0.75;
/// And when that lasted for so many spans in a row: 10 s, longer than starts and changes of phase.
const SPANS: u32 = 2;
/// From one line to the next.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a span is.
pub const SPAN: Duration = Duration::from_secs(5);

/// The totals of a run at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Since the start of the run.
    pub at: Duration,
    /// Pages read.
    pub page_ins: u64,
    /// Time that threads waited, summed.
    pub waited: Duration,
    /// CPU time of the program's threads.
    pub worked: Duration,
    /// The swap file is full: some pages had no slot, and nearly as many slots are in use as ever were.
    pub full: bool,
}

impl Moment {
    /// From the counters, at `at`, with the CPU time that the program used.
    pub const fn new(at: Duration, counts: &Counts, worked: Duration) -> Self {
        Self {
            at,
            page_ins: counts.page_ins,
            waited: Duration::from_nanos(counts.fault_ns),
            worked,
            full: counts.swap_full > 0
                && counts.swap_slots_used >= counts.peak_swap_slots / 16 * 15,
        }
    }
}

/// Judges one span after the other.
#[derive(Debug, Default)]
pub struct Thrash {
    last: Moment,
    spans: u32,
    said: Option<Duration>,
}

impl Thrash {
    /// Judges the span that ends `now`; returns what is to be said about it under a limit of `limit` bytes.
    pub fn judge(&mut self, now: Moment, limit: u64) -> Option<String> {
        let before = std::mem::replace(&mut self.last, now);
        let span = now.at.saturating_sub(before.at).as_secs_f64();
        let waited = now.waited.saturating_sub(before.waited).as_secs_f64();
        let worked = now.worked.saturating_sub(before.worked).as_secs_f64();
        let page_ins = now.page_ins.saturating_sub(before.page_ins);
        let share = waited / (waited + worked);
        // One thread at least waits most of the time, and does so for pages that are read.
        let thrashes = waited >= SHARE * span && share >= SHARE && page_ins > 0;
        self.spans = if thrashes { self.spans + 1 } else { 0 };
        let silent = self.said.is_some_and(|said| now.at - said < SILENCE);
        if self.spans < SPANS || silent {
            return None;
        }
        self.said = Some(now.at);
        let limit = format_size(limit);
        let why = if now.full {
            format!(
                "the swap file is full, and few pages in {limit} can leave; \
                 give it more with --swap-cap, a --swap directory with more space, or --memory"
            )
        } else {
            format!("{limit} are too little for what it uses at once; give it more with --memory")
        };
        Some(format!(
            "the program waits for pages {:.0} % of the time ({} page-ins a second): {why}",
            100.0 * share,
            grouped((page_ins as f64 / span) as u64),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said in each span when a thread waits `waited` and works `worked` thousandths of it.
    fn said(spans: &[(u64, u64, u64)]) -> Vec<Option<String>> {
        let (mut thrash, mut now) = (Thrash::default(), Moment::default());
        let mut judge = |&(waited, worked, page_ins): &(u64, u64, u64)| {
            let part = |thousandths: u64| SPAN * thousandths as u32 / 1000;
            now.at += SPAN;
            now.waited += part(waited);
            now.worked += part(worked);
            now.page_ins += page_ins;
            thrash.judge(now, 64 << 20)
        };
        spans.iter().map(&mut judge).collect()
    }

    #[test]
    fn one_line_after_ten_seconds_and_then_one_a_minute() {
        let lines = said(&[(950, 50, 20_000); 16]);
        let at: Vec<_> = (0..lines.len()).filter(|&i| lines[i].is_some()).collect();
        assert_eq!(at, [1, 13]);
        let line = lines[1].as_deref().unwrap_or_default();
        for part in ["95 %", "4,000 page-ins", "64 MiB", "--memory"] {
            assert!(line.contains(part), "{part:?} is not in {line}");
        }
    }

    #[test]
    fn of_a_full_swap_file_it_is_said_what_is_missing() {
        let counts = |swap_slots_used| Counts {
            swap_full: 7,
            swap_slots_used,
            peak_swap_slots: 4096,
            ..Counts::default()
        };
        for (used, full) in [(4000, true), (2000, false)] {
            let mut thrash = Thrash::default();
            let lines: Vec<_> = (1..=SPANS)
                .map(|span| {
                    let mut now = Moment::new(SPAN * span, &counts(used), Duration::ZERO);
                    (now.waited, now.page_ins) = (SPAN * span, u64::from(span));
                    thrash.judge(now, 64 << 20)
                })
                .collect();
            let line = lines[1].as_deref().unwrap_or_default();
            assert_eq!(line.contains("--swap-cap"), full, "{line}");
            assert!(line.contains("--memory"));
        }
    }

    #[test]
    fn nothing_is_said_of_runs_that_work() {
        // Half and half; seven threads that work beside one that waits; one that sleeps; a change of phase.
        for spans in [
            [(500, 500, 9_000); 4],
            [(950, 7_000, 9_000); 4],
            [(100, 1, 9_000); 4],
            [(950, 0, 0); 4],
            [
                (950, 50, 9_000),
                (300, 700, 900),
                (950, 50, 9_000),
                (0, 1_000, 0),
            ],
        ] {
            assert_eq!(said(&spans), [None, None, None, None], "{spans:?}");
        }
    }
}
