//! What no policy can do better, for each program and memory size.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use outpage_sim::bounds::{Curve, Floor, opt, transfers};
use serde::Serialize;

use super::programs::Source;
use crate::bar;

/// Programs with more references have no bounds: they take 36 bytes a reference.
const REFERENCES_MAX: usize = 100_000_000;

/// The bounds of all programs together at one memory size. Each program is given the whole
/// memory, so that the sums hold for programs that share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bound {
    /// References to pages.
    pub references: u64,
    /// Pages referenced.
    pub distinct: u64,
    /// Misses of Belady's optimum, first references included.
    pub opt_misses: u64,
    /// Misses of LRU, from the miss-ratio curve.
    pub lru_misses: u64,
    /// Transfers that no policy can save.
    pub floor: Floor,
}

/// The bounds by memory size in frames.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    by_frames: BTreeMap<u64, Bound>,
}

impl Bounds {
    /// The bounds of `sources` at every one of `sizes`, in frames; none for a program with too many
    /// references.
    #[must_use]
    pub fn of(sources: &[Source], mut sizes: Vec<u64>, threads: usize) -> Self {
        let strings: Option<Vec<_>> = sources.iter().map(|s| s.string(REFERENCES_MAX)).collect();
        let Some(strings) = strings else {
            return Self::default();
        };
        sizes.sort_unstable();
        sizes.dedup();
        let bar = bar::steps("bounds", (sizes.len() * strings.len()) as u64);
        let curves: Vec<Curve> = strings.iter().map(Curve::new).collect();
        let found = Mutex::new(BTreeMap::new());
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(&size) = sizes.get(next.fetch_add(1, Relaxed)) {
                let frames = u32::try_from(size).unwrap_or(u32::MAX).max(1);
                let mut sum = Bound::default();
                for (string, curve) in strings.iter().zip(&curves) {
                    let floor = transfers(string, frames);
                    sum.references += string.len() as u64;
                    sum.distinct += string.distinct() as u64;
                    sum.opt_misses += opt(string, frames).misses;
                    sum.lru_misses += curve.misses(frames);
                    sum.floor.page_ins += floor.page_ins;
                    sum.floor.page_outs += floor.page_outs;
                    bar.inc(1);
                }
                found
                    .lock()
                    .expect("nobody panics with the lock")
                    .insert(size, sum);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.min(sizes.len()) {
                scope.spawn(work);
            }
        });
        bar.finish_and_clear();
        Self {
            by_frames: found.into_inner().expect("the threads are gone"),
        }
    }

    /// The bound with `frames` frames.
    #[must_use]
    pub fn at(&self, frames: u64) -> Option<Bound> {
        self.by_frames.get(&frames).copied()
    }
}
