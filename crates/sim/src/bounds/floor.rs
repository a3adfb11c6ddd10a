//! The fewest transfers, and the time that they take.

use outpage_core::units::{Nanos, PAGE_BYTES};
use serde::Serialize;

use super::keep::{Keep, next_counted};
use crate::trace::PageString;

/// Transfers that no policy can save, on anonymous memory: a page that was never written comes as
/// zeroes and costs nothing, a written page that leaves must be written out and read back.
///
/// One policy need not reach both counts; any weighted cost is at least the weighted sum of the
/// two. The exact optimum of such a sum is NP-hard (Farach-Colton and Liberatore, On local register
/// allocation, Journal of Algorithms 37, 2000; Beckmann, Gibbons, Haeupler and McGuffey,
/// Writeback-aware caching, APOCS 2020), which is why the floor is not the optimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Floor {
    /// Pages that must be read: the exact minimum over all policies.
    pub page_ins: u64,
    /// Pages that must be written; what is dirty when the string ends need not be. A lower bound
    /// of the minimum over all policies, which in turn is at most this bound for one frame less.
    /// Exact when every reference writes.
    pub page_outs: u64,
}

/// The floor of `string` with `frames` frames. Every write is taken to change its page.
/// O(n log frames) time, 16 bytes a reference.
///
/// A page-in is saved by keeping a page that was written from one reference to the next; a
/// page-out by keeping it from one write to the next, or from the last write to the end. The second
/// kind of span has references inside, at which its page needs no frame beside its own. The
/// greedy rule cannot tell such spans apart, so the bound leaves those references out: reads of
/// pages that were written before take no frame. They would take one at a time, hence the
/// difference of at most one frame.
///
/// # Panics
/// When there is no frame.
#[must_use]
pub fn transfers(string: &PageString, frames: u32) -> Floor {
    assert!(frames > 0, "no policy without a frame");
    Floor {
        page_ins: page_ins(string, frames),
        page_outs: page_outs(string, frames),
    }
}

fn page_ins(string: &PageString, frames: u32) -> u64 {
    let next = next_counted(string.references(), string.distinct(), |_| true);
    let mut keep = Keep::new(frames, string.distinct());
    let mut written = vec![false; string.distinct()];
    let mut count = 0;
    for ((page, wrote), next) in string.references().zip(next) {
        let kept = keep.reference(page);
        let written = &mut written[page as usize];
        count += u64::from(*written && !kept);
        *written |= wrote;
        keep.keep(page, if *written { next } else { None });
    }
    count
}

fn page_outs(string: &PageString, frames: u32) -> u64 {
    let next_write = next_counted(string.references(), string.distinct(), |wrote| wrote);
    let end = string.len() as u64;
    let mut keep = Keep::new(frames, string.distinct());
    let mut written = vec![false; string.distinct()];
    let mut writes = 0;
    let mut saved = 0;
    for ((page, wrote), next) in string.references().zip(next_write) {
        if wrote {
            writes += 1;
            saved += u64::from(keep.reference(page));
            written[page as usize] = true;
            // Kept to the end of the string, all pages end at the same time: none is preferred.
            keep.keep(page, Some(next.unwrap_or(end)));
        } else if !written[page as usize] {
            keep.reference(page);
        }
    }
    writes - saved - keep.kept() as u64
}

/// What a disk moves at best.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bandwidth {
    /// Bytes read a second.
    pub read: f64,
    /// Bytes written a second.
    pub write: f64,
}

impl Floor {
    /// Bytes that must move.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.page_ins + self.page_outs) * PAGE_BYTES as u64
    }

    /// The time that a disk which does one thing at a time needs for them.
    #[must_use]
    pub fn time(&self, bandwidth: Bandwidth) -> Nanos {
        let page = PAGE_BYTES as f64;
        let reading = self.page_ins as f64 * page / bandwidth.read;
        let writing = self.page_outs as f64 * page / bandwidth.write;
        Nanos(((reading + writing) * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_bytes_by_bandwidth() {
        let floor = Floor {
            page_ins: 1000,
            page_outs: 500,
        };
        assert_eq!(floor.bytes(), 1500 * 4096);
        let disk = Bandwidth {
            read: 4_096_000.0,
            write: 2_048_000.0,
        };
        assert_eq!(floor.time(disk), Nanos(2_000_000_000));
    }
}
