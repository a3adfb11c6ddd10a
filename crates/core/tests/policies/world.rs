//! What the tests share: an inactive list and a swap store as plain sets.

use std::collections::{BTreeMap, BTreeSet};

use outpage_core::pageout::{self, Chunk, Inactive, PageOut};
use outpage_core::readahead::{self, Choice, ReadAhead, SlotView, Touch};
use outpage_core::slots::{Blist, place};
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};

/// Page `index` of object `object`.
pub fn page(object: u32, index: u64) -> PageNo {
    PageNo::new(ObjectId(object), index)
}

/// Pages `indices` of object `object`.
pub fn pages(object: u32, indices: impl IntoIterator<Item = u64>) -> Vec<PageNo> {
    indices
        .into_iter()
        .map(|index| page(object, index))
        .collect()
}

/// The dirty, inactive pages.
#[derive(Clone, Default)]
pub struct Dirty(pub BTreeSet<PageNo>);

impl Dirty {
    pub fn new(pages: impl IntoIterator<Item = PageNo>) -> Self {
        Self(pages.into_iter().collect())
    }

    pub fn remove(&mut self, range: PageRange) {
        for page in range.iter() {
            assert!(
                self.0.remove(&page),
                "{page:?} was collected but did not take part"
            );
        }
    }
}

impl Inactive for Dirty {
    fn takes_part(&self, page: PageNo) -> bool {
        self.0.contains(&page)
    }
}

/// Read-ahead `name` with `settings`, not governed unless they say so.
pub fn read_ahead(name: &str, settings: &str) -> Box<dyn ReadAhead> {
    let entry = readahead::find(name).unwrap();
    let choice = Choice::ungoverned(entry).with(settings);
    choice.unwrap().build()
}

/// The policy `name` with a buffer of `buffer_pages`, otherwise as in its source.
pub fn page_out(name: &str, buffer_pages: u32) -> Box<dyn PageOut> {
    let entry = pageout::find(name).unwrap();
    (entry.build)(pageout::Params {
        buffer_pages,
        ..entry.params()
    })
}

/// Collects `victims` in order, except those that an earlier cluster took. Returns the chunks
/// written on the way; what is still buffered stays there.
pub fn walk(policy: &mut dyn PageOut, victims: &[PageNo], dirty: &mut Dirty) -> Vec<Chunk> {
    let mut written = Vec::new();
    for &victim in victims {
        if !dirty.takes_part(victim) {
            continue;
        }
        let mut ready = Chunk::with_capacity(policy.buffer_pages());
        let taken = policy.collect(victim, dirty, &mut ready);
        assert!(taken.contains(victim));
        dirty.remove(taken);
        if !ready.is_empty() {
            written.push(ready);
        }
    }
    written
}

/// As [`walk`], and the scan ends.
pub fn scan(policy: &mut dyn PageOut, victims: &[PageNo], dirty: &mut Dirty) -> Vec<Chunk> {
    let mut written = walk(policy, victims, dirty);
    let mut ready = Chunk::with_capacity(policy.buffer_pages());
    policy.finish(&mut ready);
    if !ready.is_empty() {
        written.push(ready);
    }
    written
}

/// The numbers of pages in `chunks`.
pub fn sizes(chunks: &[Chunk]) -> Vec<u32> {
    chunks.iter().map(Chunk::len).collect()
}

/// A chunk of the given clusters.
pub fn chunk(placement: pageout::Placement, clusters: &[u32]) -> Chunk {
    let pages = clusters.iter().sum::<u32>();
    Chunk {
        pages: self::pages(1, 0..u64::from(pages)),
        clusters: clusters.to_vec(),
        placement,
    }
}

/// An allocator over `slots` slots of which the first two are never used, as at swapon.
pub fn fresh_device(slots: u32) -> Blist {
    let mut blist = Blist::new(slots);
    blist.add(SlotRange::new(SlotNo(2), slots - 2));
    blist
}

/// A touch of `page`, which is in `slot`, by source 0.
pub fn touch(page: PageNo, slot: u32) -> Touch {
    Touch {
        now: Nanos(0),
        page,
        slot: SlotNo(slot),
        source: outpage_core::contract::Source(0),
    }
}

/// Which page is only in which slot.
#[derive(Clone, Default)]
pub struct Store {
    by_slot: BTreeMap<u32, PageNo>,
    by_page: BTreeMap<PageNo, SlotNo>,
}

impl Store {
    pub fn put(&mut self, slot: SlotNo, page: PageNo) {
        self.by_slot.insert(slot.0, page);
        self.by_page.insert(page, slot);
    }

    /// Pages out `chunks`; all of it must find space.
    pub fn write(&mut self, chunks: &[Chunk], slots: &mut Blist) {
        for chunk in chunks {
            let mut placed = Vec::new();
            place(chunk, slots, &mut placed);
            assert_eq!(
                placed.iter().map(|p| p.slots.slots).sum::<u32>(),
                chunk.len()
            );
            for placed in placed {
                for (page, slot) in chunk.pages[placed.first..].iter().zip(placed.slots.iter()) {
                    self.put(slot, *page);
                }
            }
        }
    }

    /// Makes `page` resident.
    pub fn take(&mut self, page: PageNo) {
        let slot = self.by_page.remove(&page).unwrap();
        self.by_slot.remove(&slot.0);
    }

    /// The fault on `page`.
    pub fn fault(&self, page: PageNo) -> Touch {
        touch(page, self.by_page[&page].0)
    }

    /// The pages in `range`.
    pub fn pages(&self, range: SlotRange) -> Vec<PageNo> {
        range.iter().map(|slot| self.by_slot[&slot.0]).collect()
    }
}

impl SlotView for Store {
    fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
        self.by_slot.get(&slot.0).copied()
    }

    fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
        self.by_page.get(&page).copied()
    }
}

/// A small generator of repeatable pseudo-random numbers (xorshift64*).
pub struct Random(pub u64);

impl Random {
    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high * u64::from(end)) >> 32) as u32
    }
}
