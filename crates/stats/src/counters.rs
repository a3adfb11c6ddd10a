//! The counters: one declaration for the shared memory, the JSON, the summary and the documents.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use outpage_sys::shareable;

use crate::table::{Definition, Kind, Line, Unit};

/// Write sizes are counted by power of two: entry `i` holds writes of 2^i to 2^(i+1)-1 pages.
pub const WRITE_SIZES: usize = 11;

/// Counts `n` in a word that `load` reads and `store` writes. Not atomic against a second writer: there is none, and who
/// folds the counts of a process that is gone into others comes after its last.
#[inline]
pub fn count(n: u64, load: impl FnOnce() -> u64, store: impl FnOnce(u64)) {
    store(load().wrapping_add(n));
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
        count(n, || self.get(), |value| self.set(value));
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

/// Declares the counters: a name, how several processes add up, the unit; the line of the summary where it stands, and what
/// that says where it is a warning; what it counts.
macro_rules! counters {
    ($($name:ident: $kind:ident $unit:ident $(on $line:ident $(warns $warning:literal)?)?, $meaning:literal;)+) => {
        shareable! {
            /// The counters of one process, in shared memory.
            #[derive(Debug, Default)]
            pub struct Counters {
                $(#[doc = $meaning] pub $name: Counter,)+
                /// Writes by size: entry `i` counts writes of 2^i to 2^(i+1)-1 pages.
                pub write_sizes: [Counter; WRITE_SIZES],
            }
        }

        /// A copy of [`Counters`] at one moment, or the total of several.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts {
            $(#[doc = $meaning] pub $name: u64,)+
            /// Writes by size: entry `i` counts writes of 2^i to 2^(i+1)-1 pages.
            pub write_sizes: [u64; WRITE_SIZES],
        }

        /// What each counter but the write sizes is, in their order in the shared memory.
        pub const COUNTERS: &[Definition] = &[
            $(Definition {
                name: stringify!($name),
                kind: Kind::$kind,
                unit: Unit::$unit,
                line: [$(Some(Line::$line),)? None][0],
                warning: [$($(Some($warning),)?)? None][0],
                meaning: $meaning,
            },)+
        ];

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

            /// Every counter but the write sizes and its value, in the order of [`COUNTERS`].
            pub fn each(&self) -> impl Iterator<Item = (&'static Definition, u64)> {
                COUNTERS.iter().zip([$(self.$name),+])
            }

            /// The counter called `name`, to be changed; `None` where there is none.
            #[must_use]
            pub fn named(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

counters! {
    page_ins: Sum Pages on PageIns,
        "pages read from the swap file, because they were touched or are expected to be";
    page_in_reads: Sum Requests on PageIns,
        "reads that brought them";
    page_outs: Sum Pages on PageOuts,
        "pages written to the swap file";
    page_out_writes: Sum Requests on PageOuts,
        "writes that took them";
    clusters: Sum Clusters on PageOuts,
        "runs of neighbouring pages that were written, one or more with a write";
    bytes_in: Sum Bytes,
        "`page_ins` in bytes";
    bytes_out: Sum Bytes,
        "`page_outs` in bytes";
    read_ahead_pages: Sum Pages on ReadAhead,
        "of the pages read, those that nobody had asked for";
    read_ahead_mapped: Sum Pages on ReadAhead,
        "of those, mapped along with a touched page; a sample tells of their use";
    read_ahead_hits: Sum Pages on ReadAhead,
        "of those read ahead, touched while staged or being read";
    read_ahead_late: Sum Pages on ReadAhead,
        "of the hits, touched while still being read";
    read_ahead_waste: Sum Pages on ReadAhead,
        "of those read ahead, evicted untouched";
    read_ahead_along_used: Sum Pages on ReadAhead,
        "of those mapped along, the ones that touched pages of the sample stand for";
    read_ahead_along_unused: Sum Pages on ReadAhead,
        "of those mapped along, the ones that pages of the sample stand for that were not touched in time";
    read_ahead_along_squares: Sum SquarePages on ReadAhead,
        "what each page of the sample stands for, squared and summed: how sure the two are";
    minor_faults: Sum Faults on Faults,
        "faults that were answered without a read";
    major_faults: Sum Faults on Faults,
        "faults that waited for a read";
    spurious_faults: Sum Faults,
        "minor faults whose page was there already";
    fault_ns: Sum Nanoseconds on Faults,
        "time that the program's threads waited for faults, added over the threads";
    zero_fills: Sum Pages,
        "mapped as zeroes on a first touch or around one";
    zero_drops: Sum Pages on NotWritten,
        "evicted all zero, and so not written";
    clean_drops: Sum Pages on NotWritten,
        "evicted equal to their slot, and so not written";
    rescues: Sum Pages on NotWritten,
        "mapped again out of a frame, those that read-ahead had brought included";
    freed_pages: Sum Pages on Freed,
        "mapped, and freed until they are written again (MADV_FREE)";
    freed_drops: Sum Pages on Freed,
        "of them, dropped because frames were wanted, and so not written";
    freed_kept: Sum Pages on Freed,
        "of them, to be dropped, and written since";
    compressed_pages: Sum Pages on Compressed,
        "put into the pool of compressed pages";
    compressed_bytes: Sum Bytes on Compressed,
        "what those came to";
    compressed_hits: Sum Pages on Compressed,
        "of them, taken out because they were touched: minor faults";
    compressed_demoted: Sum Pages on Compressed,
        "of them, left to the swap file, where they are written unless they are there, the pool being full";
    compressed_unfit: Sum Pages on Compressed,
        "tried, and not kept, because they hardly get smaller";
    detached_pages: Sum Pages,
        "taken out of the program";
    detach_calls: Sum Calls,
        "calls that took pages out of the program, many at a time";
    refused_busy: Sum Pages,
        "victims refused because they were pinned, locked or shared by fork";
    cow_duplicates: Sum Pages on Attention warns "pages were duplicated by fork beyond the limit",
        "duplicated by the pager while a fork's child shared them: to detach them, or as frames for reads";
    notified_out: Sum Pages,
        "told to the guest of a virtual machine as paged out";
    notified_in: Sum Pages,
        "told to it as paged in again";
    notified_lost: Sum Pages,
        "of both, those that found their ring full: the guest looks at all of its pages instead";
    poisoned: Sum Pages on Attention warns "pages were lost to failed reads",
        "lost: every try to read them failed or gave a wrong checksum, and a touch raises `SIGBUS`";
    store_errors: Sum Requests on Attention warns "requests to the swap file failed",
        "reads and writes of the swap file that failed, those that a second try made good included";
    checksum_errors: Sum Pages on Attention warns "pages read had a wrong checksum",
        "read with a wrong checksum, those that a second try made good included";
    swap_full: Sum Events on Attention warns "page-outs found the swap file full: raise --swap-cap or free disk space",
        "times that a page found no slot in a swap file that could not grow, and stayed in its frame";
    resident_pages: Level Pages,
        "mapped in the program";
    staged_pages: Level Pages,
        "out of the program and still in a frame";
    shared_pages: Level Pages,
        "frames of shared memory that is paged: of the limit, though in no process's anonymous memory";
    swap_slots_used: Level Slots,
        "slots of the swap file in use";
    overhead_bytes: Level Bytes,
        "memory of the pager itself: tables of pages and slots, frames left out";
    pool_pages: Level Pages,
        "frames that the pool of compressed pages takes, its tables among them";
    peak_pool_pages: Peak Pages on Compressed,
        "`pool_pages` at once";
    unmanaged_shared_bytes: Peak Bytes,
        "shared anonymous memory and memfd mapped at once and not paged: address space";
    peak_pages: Peak Pages,
        "frames in use at once";
    peak_overhead_bytes: Peak Bytes,
        "`overhead_bytes` at once";
    peak_swap_slots: Peak Slots on Head,
        "`swap_slots_used` at once";
    peak_touched_pages: Peak Pages on Attention,
        "pages touched at once, whether resident or paged out";
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

    #[test]
    fn every_counter_is_found_by_its_name_in_its_order() {
        let mut counts = Counts::default();
        for (n, definition) in (1_u64..).zip(COUNTERS) {
            *counts.named(definition.name).expect(definition.name) = n;
        }
        let values: Vec<u64> = counts.each().map(|(_, value)| value).collect();
        assert!(values.iter().copied().eq(1..=COUNTERS.len() as u64));
        assert_eq!(counts.named("no_such_counter"), None);
    }

    #[test]
    fn a_warning_stands_where_warnings_do() {
        for definition in COUNTERS.iter().filter(|counter| counter.warning.is_some()) {
            assert_eq!(
                definition.line,
                Some(Line::Attention),
                "{}",
                definition.name
            );
        }
    }
}
