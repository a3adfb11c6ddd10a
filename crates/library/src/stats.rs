//! What was counted, and where pages are.

use std::fmt;

use outpage_engine::Counts;
use outpage_engine::scope::Traffic;
use outpage_engine::tell::Place;

use crate::PAGE_BYTES;

/// Declares the figures that come from counters of the same name.
macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident: $counter:ident,)+) => {
        /// What a pager counted since it was opened, all of its regions together. Pages are of 4 KiB.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            /// The limit in bytes.
            pub limit_bytes: u64,
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Stats {
            pub(crate) fn new(counts: &Counts, limit_bytes: u64) -> Self {
                Self { limit_bytes, $($name: counts.$counter,)+ }
            }

            /// Every figure but the limit, by its name.
            #[must_use]
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

stats! {
    /// Pages in the program now.
    resident_pages: resident_pages,
    /// Pages out of the program and in RAM now.
    staged_pages: staged_pages,
    /// Most pages in RAM at once.
    peak_pages: peak_pages,
    /// Pages of the swap file that hold something now.
    swap_pages: swap_slots_used,
    /// Touches that found their page out of the program and in RAM.
    minor_faults: minor_faults,
    /// Touches that waited for a read.
    major_faults: major_faults,
    /// Nanoseconds that threads waited for their pages, added up.
    fault_ns: fault_ns,
    /// First touches of pages.
    zero_fills: zero_fills,
    /// Pages read from the swap file.
    page_ins: page_ins,
    /// Reads that brought them.
    page_in_reads: page_in_reads,
    /// Pages written to the swap file.
    page_outs: page_outs,
    /// Writes that took them.
    page_out_writes: page_out_writes,
    /// Pages that left without a write, for the swap file had them already.
    clean_drops: clean_drops,
    /// Pages that left without a write, for they were all zero.
    zero_drops: zero_drops,
    /// Pages that were read before they were touched.
    read_ahead_pages: read_ahead_pages,
    /// Of those, the ones that were touched afterwards.
    read_ahead_hits: read_ahead_hits,
    /// Reads and writes that failed.
    store_errors: store_errors,
    /// Pages that were read and were not what had been written.
    checksum_errors: checksum_errors,
    /// RAM beside the limit, in bytes.
    overhead_bytes: overhead_bytes,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |pages: u64| (pages * PAGE_BYTES as u64) >> 20;
        write!(
            f,
            "{} of {} MiB in RAM, {} MiB in the swap file; {} pages in, {} out; {} major faults, {} minor",
            mib(self.resident_pages + self.staged_pages),
            self.limit_bytes >> 20,
            mib(self.swap_pages),
            self.page_ins,
            self.page_outs,
            self.major_faults,
            self.minor_faults
        )
    }
}

/// What is known of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RegionStats {
    /// Where its pages are.
    pub residency: Residency,
    /// Pages that went out and came back and touches that were served since it was subscribed to; `None` where it is not ([`crate::Memory::subscribe`]).
    pub traffic: Option<Traffic>,
}

/// How many pages of a range are where, at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Residency {
    /// Never touched, or given back.
    pub untouched: usize,
    /// In the program: a touch costs nothing.
    pub resident: usize,
    /// Out of the program and in RAM.
    pub staged: usize,
    /// In the swap file alone: a touch waits for a read.
    pub paged_out: usize,
    /// Lost: a touch is a signal.
    pub lost: usize,
}

impl Residency {
    pub(crate) fn count(places: impl IntoIterator<Item = Place>) -> Self {
        let mut counted = Self::default();
        for place in places {
            match place {
                Place::Untouched => counted.untouched += 1,
                // What is not managed is ordinary memory.
                Place::Resident | Place::Unmanaged => counted.resident += 1,
                Place::Staged => counted.staged += 1,
                Place::PagedOut => counted.paged_out += 1,
                Place::Lost => counted.lost += 1,
            }
        }
        counted
    }

    /// Pages that take RAM.
    #[must_use]
    pub const fn in_ram(&self) -> usize {
        self.resident + self.staged
    }
}
