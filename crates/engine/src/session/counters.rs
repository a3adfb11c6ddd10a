//! The counters of the closing summary: one definition for shared memory, JSON and the summary.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use outpage_sys::shareable;

use super::word;

/// Write sizes are counted by power of two: entry `i` holds writes of 2^i to 2^(i+1)-1 pages.
pub const WRITE_SIZES: usize = 11;

/// How the counters of several processes become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number of events or bytes: added, also from processes that are gone.
    Sum,
    /// A present amount: added over the processes that live.
    Level,
    /// The most that there was at once in one process: the largest counts.
    Peak,
}

shareable! {
    /// One counter in shared memory. One thread (its process's pager) writes, anybody reads.
    #[derive(Debug, Default)]
    pub struct Counter {
        value: AtomicU64,
    }
}

impl Counter {
    /// Adds `n`. Not atomic against a second writer: there is none.
    #[inline]
    pub fn add(&self, n: u64) {
        word::count(&self.value, n);
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
    }

    /// Raises the value to `value` if it is lower.
    #[inline]
    pub fn raise(&self, value: u64) {
        if value > self.get() {
            self.set(value);
        }
    }

    /// The value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident),+ $(,)?) => {
        shareable! {
            /// The counters of one process, in shared memory.
            #[derive(Debug, Default)]
            pub struct Counters {
                $($(#[doc = $doc])+ pub $name: Counter,)+
                /// Writes by size: entry `i` counts writes of 2^i to 2^(i+1)-1 pages.
                pub write_sizes: [Counter; WRITE_SIZES],
            }
        }

        /// A copy of [`Counters`] at one moment, or the total of several.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Writes by size: entry `i` counts writes of 2^i to 2^(i+1)-1 pages.
            pub write_sizes: [u64; WRITE_SIZES],
        }

        impl Counters {
            /// The values now. Counters that change meanwhile may be a few events apart.
            #[must_use]
            pub fn read(&self) -> Counts {
                Counts {
                    $($name: self.$name.get(),)+
                    write_sizes: std::array::from_fn(|i| self.write_sizes[i].get()),
                }
            }

            /// Replaces all values.
            pub fn write(&self, counts: &Counts) {
                $(self.$name.set(counts.$name);)+
                for (counter, &value) in self.write_sizes.iter().zip(&counts.write_sizes) {
                    counter.set(value);
                }
            }
        }

        impl Counts {
            /// Takes the counters of another process in; `alive` says whether its levels still hold.
            pub fn merge(&mut self, other: &Counts, alive: bool) {
                $(merge_one(&mut self.$name, other.$name, Kind::$kind, alive);)+
                for (mine, theirs) in self.write_sizes.iter_mut().zip(&other.write_sizes) {
                    *mine = mine.saturating_add(*theirs);
                }
            }

            /// Name, kind and value of every counter but the write sizes, in order.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, Kind, u64)> {
                vec![$((stringify!($name), Kind::$kind, self.$name)),+]
            }
        }
    };
}

counters! {
    /// Pages read from the store because they were touched or are expected to be.
    page_ins: Sum,
    /// Read requests.
    page_in_reads: Sum,
    /// Pages written to the store.
    page_outs: Sum,
    /// Write requests.
    page_out_writes: Sum,
    /// Clusters that were written: runs of neighbouring pages, one or more a write.
    clusters: Sum,
    /// Bytes read from the store.
    bytes_in: Sum,
    /// Bytes written to the store.
    bytes_out: Sum,
    /// Pages read that nobody had touched yet.
    read_ahead_pages: Sum,
    /// Of them, pages mapped along with a touched one: of their use a sample tells.
    read_ahead_mapped: Sum,
    /// Of them, pages touched later.
    read_ahead_hits: Sum,
    /// Of these hits, those that came while the page was still being read.
    read_ahead_late: Sum,
    /// Of the pages read ahead, those evicted untouched.
    read_ahead_waste: Sum,
    /// Of the pages mapped along, those that touched pages of the sample stand for.
    read_ahead_along_used: Sum,
    /// Of them, those that pages of the sample stand for that were not touched in time.
    read_ahead_along_unused: Sum,
    /// What each page of the sample stands for, squared and summed: how sure the two are.
    read_ahead_along_squares: Sum,
    /// Faults answered without reading the store.
    minor_faults: Sum,
    /// Faults that waited for a read.
    major_faults: Sum,
    /// Faults whose page was already there.
    spurious_faults: Sum,
    /// Nanoseconds that the program's threads waited for faults, added over its threads.
    fault_ns: Sum,
    /// Pages mapped as zeroes on a first touch or around one.
    zero_fills: Sum,
    /// Pages evicted that held only zeroes and so were not written.
    zero_drops: Sum,
    /// Pages evicted that still equalled their slot and so were not written.
    clean_drops: Sum,
    /// Staged pages touched before they were released, and mapped again without a read.
    rescues: Sum,
    /// Pages moved out of the program.
    detached_pages: Sum,
    /// Calls that moved them.
    detach_calls: Sum,
    /// Victims refused because they were pinned, locked or shared by fork.
    refused_busy: Sum,
    /// Pages that copy-on-write duplicated outside the limit while a fork's child lived.
    cow_duplicates: Sum,
    /// Pages whose content was lost to a failed read.
    poisoned: Sum,
    /// Store requests that failed.
    store_errors: Sum,
    /// Reads that gave a page with a wrong checksum; most are read again well.
    checksum_errors: Sum,
    /// Times that a page could not be evicted because the swap file was full.
    swap_full: Sum,
    /// Pages mapped in the program.
    resident_pages: Level,
    /// Pages out of the program and still in a frame.
    staged_pages: Level,
    /// Swap slots in use.
    swap_slots_used: Level,
    /// Bytes of anonymous memory that the pager itself uses, frames excepted.
    overhead_bytes: Level,
    /// Most bytes of shared anonymous memory and memfd at once in one process; they are not paged.
    unmanaged_shared_bytes: Peak,
    /// Most frames held at once, in pages.
    peak_pages: Peak,
    /// Most [`Counts::overhead_bytes`] at once.
    peak_overhead_bytes: Peak,
    /// Most [`Counts::swap_slots_used`] at once.
    peak_swap_slots: Peak,
    /// Most pages ever touched at once, resident or paged out.
    peak_touched_pages: Peak,
}

impl Counters {
    /// Counts one write of `pages` pages (at least one).
    pub fn count_write(&self, pages: u64) {
        self.page_outs.add(pages);
        self.page_out_writes.add(1);
        self.bytes_out.add(pages << outpage_core::units::PAGE_SHIFT);
        self.write_sizes[(pages.max(1).ilog2() as usize).min(WRITE_SIZES - 1)].add(1);
    }

    /// Counts one read of `pages` pages.
    pub fn count_read(&self, pages: u64) {
        self.page_ins.add(pages);
        self.page_in_reads.add(1);
        self.bytes_in.add(pages << outpage_core::units::PAGE_SHIFT);
    }
}

fn merge_one(mine: &mut u64, theirs: u64, kind: Kind, alive: bool) {
    match kind {
        Kind::Sum => *mine = mine.saturating_add(theirs),
        Kind::Level if alive => *mine = mine.saturating_add(theirs),
        Kind::Level => {}
        Kind::Peak => *mine = (*mine).max(theirs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_power_of_two() {
        let counters = Counters::default();
        for pages in [1, 2, 3, 16, 31, 1023, 1024] {
            counters.count_write(pages);
        }
        let counts = counters.read();
        assert_eq!(counts.page_outs, 1 + 2 + 3 + 16 + 31 + 1023 + 1024);
        assert_eq!(counts.page_out_writes, 7);
        assert_eq!(counts.bytes_out, counts.page_outs * 4096);
        assert_eq!(counts.write_sizes, [1, 2, 0, 0, 2, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn the_dead_leave_sums_and_peaks_but_no_levels() {
        let mut total = Counts::default();
        let one = Counts {
            page_ins: 5,
            resident_pages: 7,
            peak_pages: 9,
            ..Counts::default()
        };
        total.merge(&one, true);
        total.merge(&one, false);
        assert_eq!(
            (total.page_ins, total.resident_pages, total.peak_pages),
            (10, 7, 9)
        );
    }

    #[test]
    fn counts_travel_through_shared_counters() {
        let counters = Counters::default();
        let mut counts = Counts {
            fault_ns: 3,
            checksum_errors: 1,
            ..Counts::default()
        };
        counts.write_sizes[4] = 8;
        counters.write(&counts);
        assert_eq!(counters.read(), counts);
    }
}
