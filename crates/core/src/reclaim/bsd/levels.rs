//! The levels at which the daemon wakes, stops and holds those who ask for memory.
//!
//! FreeBSD `vm/vm_pageout.c:vm_pageout` and the tests of `sys/vmmeter.h`.

use super::Release;

/// The most clusters that MOC's and BSD's daemon put on their way at once; part of the reserve.
const CLUSTER_PAGES: usize = 16;
/// Below so many pages of memory clusters have half that size.
const SMALL_PAGES: usize = 2000;
/// `v_pageout_free_min`: two buffers of 64 KiB, and `v_interrupt_free_min`.
const PAGEOUT_FREE_MIN: usize = 2 * 16 + 2;

/// Levels in pages; free and cached pages together are measured by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels {
    /// `vm_pageout_page_count`: the largest cluster.
    pub cluster: usize,
    /// `v_free_reserved`: what only the daemon may take.
    pub reserved: usize,
    /// `v_free_severe`: below it faults wait.
    pub severe: usize,
    /// `v_free_min`: at it they go on.
    pub min: usize,
    /// `v_free_target`.
    pub target: usize,
    /// `v_cache_min`.
    pub cache_min: usize,
    /// `v_cache_max`.
    pub cache_max: usize,
    /// `v_inactive_target`.
    pub inactive_target: usize,
}

impl Levels {
    /// For `frames` pages of memory (`v_page_count`), all of them free when the daemon starts.
    /// `colours` counts in 6.2 only.
    #[must_use]
    pub const fn new(frames: usize, release: Release, colours: usize) -> Self {
        let cluster = if frames < SMALL_PAGES {
            CLUSTER_PAGES / 2
        } else {
            CLUSTER_PAGES
        };
        let base = if frames <= 1024 {
            4
        } else {
            4 + (frames - 1024) / 200
        };
        let colours = match release {
            Release::V6_2 => colours,
            Release::V8_2 => 0,
        };
        let reserved = cluster + PAGEOUT_FREE_MIN + frames / 768 + colours;
        let min = base + reserved;
        let target = if frames > 6144 {
            4 * min + reserved
        } else {
            2 * min + reserved
        };
        let (cache_min, wanted) = if frames > 2048 {
            (target, 3 * target / 2)
        } else {
            (0, frames / 4)
        };
        let third = frames / 3;
        Self {
            cluster,
            reserved,
            severe: base / 2 + reserved,
            min,
            target,
            cache_min,
            cache_max: 2 * cache_min,
            inactive_target: if wanted < third { wanted } else { third },
        }
    }

    /// Below this the daemon is woken (`vm_paging_needed`).
    #[must_use]
    pub const fn wake(&self) -> usize {
        self.reserved + self.cache_min
    }

    /// How many pages are missing when `available` are free or cached (`vm_paging_target`).
    #[must_use]
    pub const fn missing(&self, available: usize) -> i64 {
        (self.target + self.cache_min) as i64 - available as i64
    }
}
