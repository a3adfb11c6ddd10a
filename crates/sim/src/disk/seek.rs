//! How long the arm takes.

use serde::{Deserialize, Serialize};

/// Seek time over distance: `fixed + root * sqrt(d) + linear * d`, with `d` the share of the full
/// stroke; nothing for `d = 0`.
///
/// The square root is the part where the arm accelerates, the linear one where it coasts (Ruemmler
/// and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeekCurve {
    fixed_ns: f64,
    root_ns: f64,
    linear_ns: f64,
}

impl SeekCurve {
    /// The curve through a drive's three published times: to the next track, on average over
    /// random pairs of tracks, and over the full stroke. All in microseconds.
    ///
    /// Between two tracks chosen at random the mean distance is 1/3 of the stroke and the mean of
    /// its root 8/15, which gives two equations for the two unknown coefficients.
    ///
    /// # Panics
    /// When the times do not rise.
    #[must_use]
    pub fn through(track_us: u32, average_us: u32, full_us: u32) -> Self {
        assert!(track_us <= average_us && average_us <= full_us);
        let [track, average, full] = [track_us, average_us, full_us].map(|us| f64::from(us) * 1e3);
        let root = 5.0 * ((average - track) - (full - track) / 3.0);
        Self {
            fixed_ns: track,
            root_ns: root,
            linear_ns: full - track - root,
        }
    }

    /// The time for `tracks` of a stroke of `stroke` tracks, in nanoseconds.
    #[must_use]
    pub fn time_ns(&self, tracks: u64, stroke: u64) -> u64 {
        if tracks == 0 {
            return 0;
        }
        let d = tracks as f64 / stroke as f64;
        (self.fixed_ns + self.root_ns * d.sqrt() + self.linear_ns * d) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_meets_the_published_times() {
        let curve = SeekCurve::through(800, 8500, 16000);
        assert_eq!(curve.time_ns(0, 1000), 0);
        assert_eq!(curve.time_ns(1_000_000, 1_000_000), 16_000_000);
        assert!(curve.time_ns(1, 1_000_000_000) < 850_000);
        // The mean over all pairs of 600 tracks.
        let stroke = 600;
        let sum: u64 = (0..=stroke)
            .map(|d| curve.time_ns(d, stroke) * (stroke + 1 - d) * if d == 0 { 1 } else { 2 })
            .sum();
        let mean = sum as f64 / ((stroke + 1) * (stroke + 1)) as f64;
        assert!((mean / 8.5e6 - 1.0).abs() < 0.01, "{mean}");
    }
}
