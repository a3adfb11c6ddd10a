//! What the server says of clients that it serves no more, so many lines at most: whoever connects can make it say something.

use outpage_core::units::Nanos;

/// Lines at once. A choice: a burst of failing clients is told one by one.
const LINES_MAX: u32 = 20;
/// One line more may be said after each second. A choice: a log of 100 bytes a line grows by 9 MB a day at most.
const EVERY: Nanos = Nanos(1_000_000_000);

/// How much may be said now, and what was not.
#[derive(Debug)]
pub(crate) struct Complaints {
    left: u32,
    /// When the last line became free.
    since: Nanos,
    unsaid: u64,
}

impl Complaints {
    pub(crate) const fn new() -> Self {
        Self {
            left: LINES_MAX,
            since: Nanos(0),
            unsaid: 0,
        }
    }

    /// The line to say at `now` of the process `peer`, if there may be one. It tells how many were left out before it.
    pub(crate) fn line(&mut self, now: Nanos, peer: i32, why: &str) -> Option<String> {
        let earned = now.0.saturating_sub(self.since.0) / EVERY.0;
        if earned > 0 {
            let left = u64::from(self.left).saturating_add(earned);
            self.left = left.min(u64::from(LINES_MAX)) as u32;
            self.since = now;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.unsaid += 1;
            return None;
        };
        self.left = left;
        let before = match std::mem::take(&mut self.unsaid) {
            0 => String::new(),
            unsaid => format!(" ({unsaid} others were not told)"),
        };
        Some(format!(
            "process {peer} is not served any more: {why}{before}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_by_a_line_a_second_that_counts_the_rest() {
        let mut complaints = Complaints::new();
        let mut said = |now| complaints.line(Nanos(now), 7, "it is malformed");
        let start = 5 * EVERY.0;
        let lines: Vec<_> = (0..1000).filter_map(|_| said(start)).collect();
        assert_eq!(lines.len(), LINES_MAX as usize);
        assert_eq!(
            lines[0],
            "process 7 is not served any more: it is malformed"
        );
        assert_eq!(said(start + EVERY.0 - 1), None);
        let next = said(start + EVERY.0).expect("a second is over");
        assert!(next.ends_with("(981 others were not told)"), "{next}");
        assert_eq!(said(start + EVERY.0), None);
    }

    #[test]
    fn after_a_while_a_burst_is_told_again() {
        let mut complaints = Complaints::new();
        let mut burst = |now| {
            (0..100)
                .filter_map(|_| complaints.line(Nanos(now), 7, ""))
                .count()
        };
        assert_eq!(burst(0), LINES_MAX as usize);
        assert_eq!(burst(3 * EVERY.0), 3);
        assert_eq!(burst(3600 * EVERY.0), LINES_MAX as usize);
    }
}
