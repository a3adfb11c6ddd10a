//! The pool where it pays: by how well pages compress, how many came back, and what reading them would have cost.
//!
//! Accounts are kept for parts of memory. A page that comes back out of the pool saves what reading it costs: little where a stream is read
//! in long windows, a whole read where each page is read by itself. It has cost a compression, and so has every page that left for the store unused. Frames of
//! the pool would have held pages: what of its hits so many frames would have saved anyway does not count.
//!
//! Where that does not pay, a sample of pages goes to the pool still, so that a change is seen.

use alloc::boxed::Box;

use super::always::SETTINGS;
use super::{Entry, Tier};
use crate::units::{PAGE_BYTES, PageNo};

pub(super) const ENTRY: Entry = Entry {
    name: "auto",
    summary: "victims are kept compressed (LZ4) where that saves more than it costs",
    source: "Outpage",
    codec: "lz4",
    settings: SETTINGS,
    build: |values| Some(Box::new(Auto::new(values.of("pool")))),
};

/// Pages of a part of memory, as a power of two: 16 MiB. A program's arrays and heaps are larger, what differs within them is not.
const PART_SHIFT: u32 = 12;
/// Accounts; parts that share one are taken for one. 4 GiB have one each.
const ACCOUNTS: usize = 1024;
/// Pages of a group, as a power of two: 16. A page that was tried leaves later than its neighbours, into another slot. Apart they were holes in
/// every stream: clusters of 10 pages where there had been 64, and sixteen times the major faults of SOR.
const GROUP_SHIFT: u32 = 4;
/// One group in so many is a sample: it is pooled where others are not. A choice: every 2 MiB, for a 32nd of what pooling would cost.
const SAMPLE: u64 = 32;
/// Counts are halved when one of them comes to so many, so that an account follows its part within a few thousand pages.
const MEMORY: u16 = 1024;
/// An account says nothing before so many pages: one in eight of them is an error of 3 in a count of 32.
const PAGES_MIN: u16 = 32;

/// Nanoseconds of CPU for compressing a page by LZ4: 3.5 to 5.4 us on the heaps of seven programs (`store/benches/pool.rs`).
const COMPRESS_NS: u64 = 4_500;
/// For a touch of a page in the pool: a fault of its own (docs/performance.md), where pages that are read along cost none.
const HIT_NS: u64 = 10_000;
/// A read of one page and what waiting for it costs: 60 to 85 us on the disks that the default store was measured on (docs/performance.md).
const READ_NS: u64 = 75_000;
/// A page that is read with others: 1.5 GB/s and its part of the calls.
const READ_ALONG_NS: u64 = 5_000;

/// What is known of a part of memory. Counts of pages, halved now and then.
#[derive(Clone, Copy, Default)]
struct Account {
    /// Compressed, in the pool or too large for it.
    tried: u16,
    /// What they came to, a page that did not fit counting as a whole one, in units of 64 bytes.
    size: u16,
    /// Out of the pool by a touch.
    hits: u16,
    /// Out of the pool, untouched, to the store.
    demoted: u16,
    /// Read from the store: faults, and pages.
    faults: u16,
    read: u16,
}

/// Bytes of the unit of [`Account::size`].
const SIZE_UNIT: u16 = 64;
const PAGE_UNITS: u64 = PAGE_BYTES as u64 / SIZE_UNIT as u64;

impl Account {
    /// One more in a count.
    fn count(&mut self, what: fn(&mut Self) -> &mut u16) {
        *what(self) += 1;
        if *what(self) >= MEMORY {
            for count in [
                &mut self.tried,
                &mut self.size,
                &mut self.hits,
                &mut self.demoted,
                &mut self.faults,
                &mut self.read,
            ] {
                *count /= 2;
            }
        }
    }

    /// A page was compressed to so many bytes.
    fn tried(&mut self, bytes: u16) {
        // 1024 pages of 64 units are as many as there is room for.
        self.size = self.size.saturating_add(bytes.div_ceil(SIZE_UNIT));
        self.count(|account| &mut account.tried);
    }

    /// What a page comes to, in thousandths of a page.
    fn thousandths(&self) -> u64 {
        if self.tried < PAGES_MIN {
            return 0;
        }
        u64::from(self.size) * 1000 / (u64::from(self.tried) * PAGE_UNITS)
    }

    /// Pages that left the pool by a touch, in thousandths of those that left it.
    fn used(&self) -> u64 {
        let left = self.hits + self.demoted;
        if left < PAGES_MIN {
            return 1000;
        }
        u64::from(self.hits) * 1000 / u64::from(left)
    }

    /// What a page costs that comes from the store, in nanoseconds.
    fn read_ns(&self) -> u64 {
        if self.read < PAGES_MIN {
            return READ_NS;
        }
        READ_NS * u64::from(self.faults) / u64::from(self.read) + READ_ALONG_NS
    }

    /// Whether keeping its pages saves more than it costs.
    fn pays(&self) -> bool {
        let (size, used) = (self.thousandths(), self.used());
        let saved = used * 1000u64.saturating_sub(size) / 1000 * self.read_ns();
        saved > 1000 * COMPRESS_NS + used * HIT_NS
    }
}

struct Auto {
    percent: u32,
    accounts: Box<[Account]>,
}

/// Fibonacci hashing, as in [`crate::page`].
const fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

impl Auto {
    fn new(percent: u32) -> Self {
        Self {
            percent,
            accounts: alloc::vec![Account::default(); ACCOUNTS].into_boxed_slice(),
        }
    }

    /// Whether the page's group is one of those that are tried.
    const fn samples(page: PageNo) -> bool {
        let (part, group) = (page.raw() >> PART_SHIFT, page.raw() >> GROUP_SHIFT);
        (group.wrapping_add(mixed(part))).is_multiple_of(SAMPLE)
    }

    fn of(&mut self, page: PageNo) -> &mut Account {
        let part = page.raw() >> PART_SHIFT;
        &mut self.accounts[mixed(part) as usize % ACCOUNTS]
    }
}

impl Tier for Auto {
    fn pools(&mut self, victim: PageNo) -> bool {
        Self::samples(victim) || self.of(victim).pays()
    }

    fn kept(&mut self, victim: PageNo, bytes: u16) {
        self.of(victim).tried(bytes);
    }

    fn unfit(&mut self, victim: PageNo) {
        self.of(victim).tried(PAGE_BYTES as u16);
    }

    fn hit(&mut self, page: PageNo) {
        self.of(page).count(|account| &mut account.hits);
    }

    fn missed(&mut self, page: PageNo) {
        self.of(page).count(|account| &mut account.faults);
    }

    fn read(&mut self, page: PageNo) {
        self.of(page).count(|account| &mut account.read);
    }

    fn demoted(&mut self, page: PageNo) {
        self.of(page).count(|account| &mut account.demoted);
    }

    fn pool_frames(&self, frames: usize) -> usize {
        frames * self.percent as usize / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ObjectId;

    /// Pages of one part that are no sample.
    fn others() -> impl Iterator<Item = PageNo> {
        let pages = (0..1 << PART_SHIFT).map(|index| PageNo::new(ObjectId(1), index));
        pages.filter(|&page| !Auto::samples(page))
    }

    fn auto() -> (Auto, PageNo) {
        (Auto::new(75), others().next().expect("most are none"))
    }

    #[test]
    fn what_is_not_known_is_tried() {
        let (mut auto, page) = auto();
        assert!(auto.pools(page));
    }

    #[test]
    fn what_does_not_compress_goes_to_the_store_but_for_a_sample() {
        let (mut auto, page) = auto();
        for page in others().take(100) {
            auto.unfit(page);
        }
        assert!(!auto.pools(page));
        let pages = (0..2048).map(|index| PageNo::new(ObjectId(1), index));
        let sampled: alloc::vec::Vec<_> = pages.filter(|&page| auto.pools(page)).collect();
        assert_eq!(sampled.len(), 64, "four groups of sixteen");
        let next = sampled
            .windows(2)
            .filter(|two| two[0].checked_add(1) == Some(two[1]));
        assert_eq!(next.count(), 60, "they lie together");
        // It compresses now: the sample tells.
        for page in others().take(2000) {
            auto.kept(page, 800);
        }
        assert!(auto.pools(page));
    }

    #[test]
    fn what_leaves_unused_or_is_read_in_long_windows_is_not_kept() {
        let fill = |hits, demoted, faults, read| {
            let (mut auto, page) = auto();
            for page in others().take(200) {
                auto.kept(page, 1200);
            }
            (0..hits).for_each(|_| auto.hit(page));
            (0..demoted).for_each(|_| auto.demoted(page));
            (0..faults).for_each(|_| auto.missed(page));
            (0..read).for_each(|_| auto.read(page));
            auto.pools(page)
        };
        assert!(fill(500, 0, 0, 0), "all of it fits");
        assert!(
            fill(100, 400, 300, 300),
            "one in five comes back, by a read each"
        );
        assert!(
            !fill(5, 500, 300, 300),
            "a scan that is larger than all there is"
        );
        assert!(!fill(100, 400, 8, 500), "a stream");
        assert!(!fill(500, 0, 8, 500), "even of what always comes back");
    }
}
