//! What the pager counts. Pages unless said.

use crate::swap_cache::SwapCache;

/// A count for each size from 0 to 64 pages; larger ones count as 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes(pub [u64; 65]);

impl Sizes {
    /// One more of `pages` pages.
    pub fn count(&mut self, pages: u32) {
        self.0[pages.min(64) as usize] += 1;
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self([0; 65])
    }
}

/// Counters since the start. What a FreeBSD kernel calls `v_swapout` is `page_out_writes` here,
/// `v_swappgsout` is `page_outs`, `v_swapin` is `page_in_reads` and `v_swappgsin` is `page_ins`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Faults that read the store.
    pub major_faults: u64,
    /// Faults that did not.
    pub minor_faults: u64,
    /// Minor faults on a page that needed nothing any more.
    pub spurious_faults: u64,
    /// Faults that found their page already being read.
    pub late_hits: u64,
    /// Pages mapped as zeroes.
    pub zero_fills: u64,
    /// Staged pages mapped again.
    pub rescues: u64,
    /// Pages read from the store.
    pub page_ins: u64,
    /// Reads that brought them.
    pub page_in_reads: u64,
    /// Of the pages read, those nobody had asked for.
    pub read_ahead: u64,
    /// Of those, mapped along with a touched page: their use cannot be seen.
    pub read_ahead_mapped: u64,
    /// Of those, touched while they were staged or being read.
    pub read_ahead_hits: u64,
    /// Of these hits, those that came while the page was still being read.
    pub read_ahead_late: u64,
    /// Of the pages read ahead, released untouched.
    pub read_ahead_waste: u64,
    /// Of those, unmapped, discarded or lost untouched. What is left of [`Self::read_ahead`] is
    /// staged or being read.
    pub read_ahead_dropped: u64,
    /// Pages mapped along that a sample says were touched, an estimate: those that touched sampled
    /// pages stand for.
    pub along_used: u64,
    /// The same of sampled pages that were not touched in time.
    pub along_unused: u64,
    /// The squares of what each sampled page stands for, summed: how sure the two are.
    pub along_squares: u64,
    /// Windows of major faults by the size that read-ahead chose, before it was cut to what is
    /// paged out, exactly up to 64 pages.
    pub windows: Sizes,
    /// Pages written to the store.
    pub page_outs: u64,
    /// Writes that took them.
    pub page_out_writes: u64,
    /// Clusters they were formed of.
    pub clusters: u64,
    /// Writes by size: bucket k counts those of 2^k to 2^(k+1)-1 pages.
    pub write_sizes: [u64; 11],
    /// Writes by size, exactly, up to 64 pages.
    pub write_pages: Sizes,
    /// Detached.
    pub detached: u64,
    /// Detached and found equal to their slot.
    pub found_clean: u64,
    /// Detached and found all zero: dropped without a write.
    pub found_zero: u64,
    /// Victims that could not be detached.
    pub refused: u64,
    /// Discarded or unmapped.
    pub discarded: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Reads that gave a page whose content did not match its checksum; most are read again well.
    pub checksum_errors: u64,
    /// Pages whose content is lost: whoever touches them gets a signal.
    pub lost: u64,
    /// Times that a page found no slot in a store that cannot grow.
    pub not_placed: u64,
    /// Faults that had to wait for a frame.
    pub waits_for_frame: u64,
    /// Pages that were put into the pool of compressed pages.
    pub compressed: u64,
    /// What they came to, in bytes.
    pub compressed_bytes: u64,
    /// Victims that did not get small enough to be kept there.
    pub unfit: u64,
    /// Faults that found their page there: minor ones.
    pub pool_hits: u64,
    /// Pages that came out of it with these, because touches followed each other.
    pub pool_along: u64,
    /// Pages that went from there to the store.
    pub demoted: u64,
    /// Discardable pages that were dropped in place of a write.
    pub dropped_for_write: u64,
    /// Discardable pages whose frames were given up though a slot had them.
    pub dropped_clean: u64,
    /// Pages that were dropped when they were marked: they were in a slot alone.
    pub dropped_in_slots: u64,
    /// Discardable pages that were flushed, dropped before they would have left.
    pub flushed: u64,
    /// Pages mapped as zeroes that had been dropped.
    pub filled_for_dropped: u64,
    /// Discardable pages that were staged when they were touched or taken back: they are as they were, without zeroes or a read.
    pub given_back: u64,
    /// Mapped pages that the program freed until it writes to them.
    pub freed: u64,
    /// Of those, the ones that were dropped.
    pub freed_dropped: u64,
    /// Of those, the ones that were to be dropped and had been written since.
    pub freed_kept: u64,
    /// Pages that were taken back after they had been dropped.
    pub taken_back_lost: u64,
    /// The most frames in use at once.
    pub frames_peak: u64,
}

impl Stats {
    /// What the swap cache did for the whole program.
    #[must_use]
    pub const fn swap_cache(&self) -> SwapCache {
        SwapCache {
            major_faults: self.major_faults,
            page_ins: self.page_ins,
            read_ahead: self.read_ahead,
            mapped: self.read_ahead_mapped,
            hits: self.read_ahead_hits,
            late: self.read_ahead_late,
            waste: self.read_ahead_waste,
            along_used: self.along_used,
            along_unused: self.along_unused,
            along_squares: self.along_squares,
        }
    }
}
