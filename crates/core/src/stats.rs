//! What the pager counts. Pages unless said.

/// A count for each size from 0 to 64 pages; larger ones count as 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSizes(pub [u64; 65]);

impl Default for WriteSizes {
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
    /// Of those, mapped along with the demanded page: their use cannot be seen.
    pub read_ahead_mapped: u64,
    /// Of those, touched while staged.
    pub read_ahead_hits: u64,
    /// Of those, released untouched.
    pub read_ahead_waste: u64,
    /// Pages written to the store.
    pub page_outs: u64,
    /// Writes that took them.
    pub page_out_writes: u64,
    /// Clusters they were formed of.
    pub clusters: u64,
    /// Writes by size: bucket k counts those of 2^k to 2^(k+1)-1 pages.
    pub write_sizes: [u64; 11],
    /// Writes by size, exactly, up to 64 pages.
    pub write_pages: WriteSizes,
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
    /// The most frames in use at once.
    pub frames_peak: u64,
}
