//! The pool where it pays: by how well pages compress, how many came back, and how they were touched.
//!
//! Accounts are kept for parts of memory. A page that comes back out of the pool saves what reading it would have cost: a whole read where it is touched by
//! itself, little where touches before it led there, for then it is read along. So touches in the pool are told apart as those of the store are, and the
//! account of a part says the same wherever its pages are: otherwise pages of a stream that lie in both by turns would make each other look far apart.
//! A page in the pool has cost a compression, and so has every page that left for the store unused. Frames of the pool would have held pages: what of its
//! hits so many frames would have saved anyway does not count.
//!
//! What is not known goes to the store: a read that is waited for tells within a few pages that it should not. Then it is thought to compress well until
//! it was tried. Of what does not a sample goes to the pool, in case that it changes; of what would not pay however small it became, nothing: the pages of
//! a stream stay together.

use alloc::boxed::Box;

mod part;

use super::always::SETTINGS;
use super::{Entry, Tier, Touched, Written};
use crate::units::{PAGE_BYTES, PageNo};
pub use part::{BEYOND, Sight};
use part::{Part, Victims};

pub(super) const ENTRY: Entry = Entry {
    name: "auto",
    summary: "victims are kept compressed (LZ4) where that saves more than it costs",
    source: "Outpage",
    codec: "lz4",
    written: Written::Plain,
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
/// One group in so many is a sample: it is tried where others compress too little. A choice: every 2 MiB, for a 32nd of what pooling would cost.
const SAMPLE: u64 = 32;
/// Counts are halved when one of them comes to so many, so that an account follows its part within a few thousand pages.
const MEMORY: u16 = 1024;
/// An account says nothing before so many pages: one in eight of them is an error of 3 in a count of 32.
const PAGES_MIN: u16 = 32;

/// Nanoseconds of CPU for compressing a page by LZ4: 3.5 to 5.4 us on the heaps of seven programs (`store/benches/pool.rs`).
const COMPRESS_NS: u64 = 4_500;
/// A touch of a page in the pool: a fault of its own, the moves, and decompressing it (docs/performance.md).
const TOUCH_NS: u64 = 10_000;
/// A page that comes along with it.
const ALONG_NS: u64 = 2_000;
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
    /// Out of the pool by a touch of their own.
    touched: u16,
    /// Out of the pool with one that was touched.
    along: u16,
    /// Out of the pool, untouched, to the store.
    demoted: u16,
    /// Back from wherever they were, by touches that none before them led to; in the store also by those that reading ahead could have spared and did not.
    apart: u16,
    /// Back from wherever they were, all of them.
    back: u16,
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
                &mut self.touched,
                &mut self.along,
                &mut self.demoted,
                &mut self.apart,
                &mut self.back,
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

    /// Whether it says how pages compress.
    const fn knows_size(&self) -> bool {
        self.tried >= PAGES_MIN
    }

    /// Whether it says how pages come back.
    const fn knows_reads(&self) -> bool {
        self.back >= PAGES_MIN
    }

    /// What a page comes to, in thousandths of a page.
    fn thousandths(&self) -> u64 {
        u64::from(self.size) * 1000 / (u64::from(self.tried.max(1)) * PAGE_UNITS)
    }

    /// Pages that left the pool by a touch, in thousandths of those that left it, and what one of these costs, in nanoseconds.
    fn used(&self) -> (u64, u64) {
        let [touched, along, demoted] = [self.touched, self.along, self.demoted].map(u64::from);
        let hits = touched + along;
        if hits + demoted < u64::from(PAGES_MIN) {
            return (1000, TOUCH_NS);
        }
        let cost = (touched * TOUCH_NS + along * ALONG_NS) / hits.max(1);
        (hits * 1000 / (hits + demoted), cost)
    }

    /// What a page costs that comes back from the store, in nanoseconds.
    fn read_ns(&self) -> u64 {
        READ_NS * u64::from(self.apart) / u64::from(self.back.max(1)) + READ_ALONG_NS
    }
}

struct Auto {
    part: Part,
    /// Victims since the part was weighed last, and those of them that were to be kept.
    victims: [u32; 2],
    accounts: Box<[Account]>,
    /// Of all parts together: for those that have none of their own yet.
    all: Account,
}

/// Fibonacci hashing, as in [`crate::page`].
const fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

impl Auto {
    fn new(percent: u32) -> Self {
        Self {
            part: Part::new(percent),
            victims: [0; 2],
            accounts: alloc::vec![Account::default(); ACCOUNTS].into_boxed_slice(),
            all: Account::default(),
        }
    }

    /// Whether the page's group is one of those that are tried.
    const fn samples(page: PageNo) -> bool {
        let (part, group) = (page.raw() >> PART_SHIFT, page.raw() >> GROUP_SHIFT);
        (group.wrapping_add(mixed(part))).is_multiple_of(SAMPLE)
    }

    const fn index(page: PageNo) -> usize {
        mixed(page.raw() >> PART_SHIFT) as usize % ACCOUNTS
    }

    /// How many thousandths of a page the page may come to, for keeping it to save more than it costs; `None` if it does not at any size, or
    /// nothing is known.
    fn pays_below(&self, page: PageNo) -> Option<u64> {
        let own = &self.accounts[Self::index(page)];
        let reads = self.known(own, Account::knows_reads)?;
        let (used, cost) = own.used();
        let saved = used * reads.read_ns();
        let costs = 1000 * COMPRESS_NS + used * cost;
        (saved > costs).then(|| 1000 - costs * 1000 / saved)
    }

    /// How many thousandths of a page it will come to, as far as is known.
    fn size(&self, page: PageNo) -> u64 {
        let own = &self.accounts[Self::index(page)];
        self.known(own, Account::knows_size)
            .map_or(0, Account::thousandths)
    }

    /// The part's own account, or that of all, if it says enough.
    fn known<'a>(&'a self, own: &'a Account, knows: fn(&Account) -> bool) -> Option<&'a Account> {
        [own, &self.all].into_iter().find(|account| knows(account))
    }

    /// Tells the account of the page's part, and that of all.
    fn tell(&mut self, page: PageNo, tell: impl Fn(&mut Account)) {
        tell(&mut self.accounts[Self::index(page)]);
        tell(&mut self.all);
    }
}

impl Tier for Auto {
    fn pools(&mut self, victim: PageNo) -> bool {
        let below = self.pays_below(victim);
        let pays = below.is_some_and(|below| self.size(victim) < below);
        self.victims[0] += 1;
        self.victims[1] += u32::from(pays);
        pays || below.is_some() && Self::samples(victim)
    }

    fn kept(&mut self, victim: PageNo, bytes: u16) {
        self.tell(victim, |account| account.tried(bytes));
    }

    fn unfit(&mut self, victim: PageNo) {
        self.tell(victim, |account| account.tried(PAGE_BYTES as u16));
    }

    fn hit(&mut self, page: PageNo, how: Touched) {
        self.tell(page, |account| {
            account.count(|account| &mut account.back);
            match how {
                Touched::Apart => {
                    account.count(|account| &mut account.apart);
                    account.count(|account| &mut account.touched);
                }
                Touched::Next => account.count(|account| &mut account.touched),
                Touched::Along => account.count(|account| &mut account.along),
            }
        });
    }

    fn missed(&mut self, page: PageNo, how: Touched) {
        if how == Touched::Apart {
            self.tell(page, |account| account.count(|account| &mut account.apart));
        }
    }

    fn read(&mut self, page: PageNo) {
        self.tell(page, |account| account.count(|account| &mut account.back));
    }

    fn demoted(&mut self, page: PageNo) {
        self.tell(page, |account| {
            account.count(|account| &mut account.demoted)
        });
    }

    fn weigh(&mut self, sight: &Sight<'_>) {
        let [all, pooled] = self.victims.map(u64::from);
        let victims = Victims {
            size: self.all.thousandths(),
            pooled: pooled * 1000 / all.max(1),
        };
        self.part.weigh(sight, victims);
        self.victims = self.victims.map(|count| count / 2);
    }

    fn pool_frames(&self, frames: usize) -> usize {
        self.part.frames(frames)
    }

    fn pool_frames_max(&self, frames: usize) -> usize {
        self.part.most(frames)
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
    fn what_is_not_known_goes_to_the_store() {
        let (mut auto, _) = auto();
        assert!((0..2048).all(|index| !auto.pools(PageNo::new(ObjectId(1), index))));
    }

    #[test]
    fn of_what_does_not_compress_a_sample_is_tried() {
        let (mut auto, page) = auto();
        for page in others().take(200) {
            auto.unfit(page);
            auto.missed(page, Touched::Apart);
            auto.read(page);
        }
        assert!(!auto.pools(page));
        let pages = (0..2048).map(|index| PageNo::new(ObjectId(1), index));
        let sampled: alloc::vec::Vec<_> = pages.filter(|&page| auto.pools(page)).collect();
        assert_eq!(sampled.len(), 64, "four groups of sixteen");
        let next = sampled
            .windows(2)
            .filter(|two| two[0].checked_add(1) == Some(two[1]));
        assert_eq!(next.count(), 60, "they lie together");
    }

    #[test]
    fn pages_that_are_read_one_by_one_are_kept_if_they_compress() {
        let (mut auto, page) = auto();
        for page in others().take(40) {
            auto.missed(page, Touched::Apart);
            auto.read(page);
        }
        assert!(auto.pools(page), "how they compress will be seen");
        for page in others().take(100) {
            auto.unfit(page);
        }
        assert!(!auto.pools(page));
        // It compresses now: the sample tells.
        for page in others().take(2000) {
            auto.kept(page, 800);
            auto.hit(page, Touched::Apart);
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
            (0..hits).for_each(|_| auto.hit(page, Touched::Apart));
            (0..demoted).for_each(|_| auto.demoted(page));
            (0..faults).for_each(|_| auto.missed(page, Touched::Apart));
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
        assert!(!fill(0, 0, 8, 500), "a stream");
    }

    #[test]
    fn a_stream_has_no_holes() {
        let (mut auto, _) = auto();
        for (n, page) in others().take(1000).enumerate() {
            if n % 16 == 0 {
                auto.missed(page, Touched::Apart);
            }
            auto.read(page);
        }
        assert!((0..2048).all(|index| !auto.pools(PageNo::new(ObjectId(1), index))));
    }

    #[test]
    fn a_stream_is_one_in_the_pool_too() {
        let (mut auto, page) = auto();
        for page in others().take(800) {
            auto.kept(page, 1200);
            auto.hit(page, Touched::Apart);
        }
        assert!(auto.pools(page), "at random");
        for (n, page) in others().take(3000).enumerate() {
            let how = if n % 8 == 0 {
                Touched::Next
            } else {
                Touched::Along
            };
            auto.hit(page, how);
        }
        assert!(!auto.pools(page), "one after another");
    }

    #[test]
    fn what_reading_ahead_would_have_brought_is_no_page_apart() {
        let kept = |how| {
            let (mut auto, page) = auto();
            for page in others().take(200) {
                auto.kept(page, 1200);
                auto.missed(page, how);
                auto.read(page);
            }
            auto.pools(page)
        };
        assert!(kept(Touched::Apart) && !kept(Touched::Next));
    }

    #[test]
    fn parts_without_an_account_go_by_that_of_all() {
        let (mut auto, page) = auto();
        let mut elsewhere = (others()).map(|page| PageNo::new(ObjectId(2), page.index()));
        for page in elsewhere.by_ref().take(100) {
            auto.kept(page, 1200);
            auto.missed(page, Touched::Apart);
            auto.read(page);
        }
        assert!(auto.pools(page));
        for page in others().take(100) {
            auto.read(page);
        }
        assert!(!auto.pools(page), "its own says otherwise");
    }
}
