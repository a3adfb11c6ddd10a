//! Solid-state disks: a latency and a price a block, several commands at once.

use serde::{Deserialize, Serialize};

use super::models::within;
use super::{Device, Op, Request};

/// The parameters of a solid-state disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SolidParams {
    /// A read of no block, nanoseconds.
    pub read_ns: u64,
    /// Each block of a read, nanoseconds.
    pub read_block_ns: u64,
    /// A write of no block, nanoseconds.
    pub write_ns: u64,
    /// Each block of a write, nanoseconds.
    pub write_block_ns: u64,
    /// Commands at once that do not slow each other.
    pub channels: u32,
}

/// The line `latency = base + block * blocks` through measured (blocks, nanoseconds) points, by
/// least squares of the relative errors, so that small requests count as much as large ones.
/// Returns (base, a block), neither below 0. `None` with less than two different sizes.
#[must_use]
pub fn fit(points: &[(u32, u64)]) -> Option<(u64, u64)> {
    let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(blocks, ns) in points.iter().filter(|p| p.1 > 0) {
        let (x, y) = (f64::from(blocks), ns as f64);
        let w = 1.0 / (y * y);
        s += w;
        sx += w * x;
        sy += w * y;
        sxx += w * x * x;
        sxy += w * x * y;
    }
    let det = s * sxx - sx * sx;
    if det <= f64::EPSILON * s * sxx {
        return None;
    }
    let slope = (s * sxy - sx * sy) / det;
    let base = (sy - slope * sx) / s;
    let (base, slope) = if base < 0.0 {
        (0.0, sxy / sxx)
    } else if slope < 0.0 {
        (sy / s, 0.0)
    } else {
        (base, slope)
    };
    Some((base.round() as u64, slope.round() as u64))
}

/// Longer than any request, or block of one, takes: sums stay far below the end of time.
const NS_MAX: u64 = 1_000_000_000_000;

impl SolidParams {
    pub(super) fn check(&self) -> Result<(), String> {
        within("read_ns", self.read_ns, 0..=NS_MAX)?;
        within("read_block_ns", self.read_block_ns, 0..=NS_MAX)?;
        within("write_ns", self.write_ns, 0..=NS_MAX)?;
        within("write_block_ns", self.write_block_ns, 0..=NS_MAX)?;
        within(
            "channels",
            u64::from(self.channels),
            1..=u64::from(u32::MAX),
        )
    }

    /// Parameters from measured (blocks, nanoseconds) of reads and of writes.
    #[must_use]
    pub fn fitted(reads: &[(u32, u64)], writes: &[(u32, u64)], channels: u32) -> Option<Self> {
        let (read_ns, read_block_ns) = fit(reads)?;
        let (write_ns, write_block_ns) = fit(writes)?;
        Some(Self {
            read_ns,
            read_block_ns,
            write_ns,
            write_block_ns,
            channels,
        })
    }
}

/// The device.
pub struct SolidState(pub SolidParams);

impl Device for SolidState {
    fn begin(&mut self, now: u64, request: &Request) -> u64 {
        let p = &self.0;
        let (base, block) = match request.op {
            Op::Read => (p.read_ns, p.read_block_ns),
            Op::Write => (p.write_ns, p.write_block_ns),
        };
        now + base + block * u64::from(request.blocks)
    }

    fn depth(&self) -> u32 {
        self.0.channels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fit_finds_the_line_that_made_the_points() {
        let points: Vec<_> = [1, 2, 8, 16, 64]
            .map(|b| (b, 80_000 + 2_500 * u64::from(b)))
            .into();
        assert_eq!(fit(&points), Some((80_000, 2_500)));
    }

    #[test]
    fn the_fit_gives_nothing_negative_and_needs_two_sizes() {
        let (base, block) = fit(&[(1, 10), (10, 200)]).expect("two sizes");
        assert!(base == 0 && block >= 10, "{base} {block}");
        assert_eq!(fit(&[(4, 10), (4, 12)]), None);
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn service_times_are_those_of_the_line() {
        let params = SolidParams {
            read_ns: 80,
            read_block_ns: 3,
            write_ns: 20,
            write_block_ns: 5,
            channels: 4,
        };
        let mut disk = SolidState(params);
        let read = Request {
            id: 0,
            op: Op::Read,
            block: 0,
            blocks: 10,
            from: 0,
        };
        assert_eq!(disk.begin(1000, &read), 1000 + 80 + 30);
        assert_eq!(
            disk.begin(
                1000,
                &Request {
                    op: Op::Write,
                    ..read
                }
            ),
            1000 + 20 + 50
        );
    }
}
