//! The managed address ranges of the program, and which memory object backs each.
//!
//! A page's index is its address. Its object stands for the mapping that it is in: a mapping that is made
//! beside another of equal protection goes to that one's object, as the kernel joins the two. What becomes one
//! mapping later, by `mprotect` or when a hole is filled, stays two objects. Memory that `mremap` moved keeps
//! its numbers; a later mapping whose numbers are taken that way goes to another object.

use std::collections::BTreeMap;

use outpage_core::units::{ObjectId, PAGE_SHIFT, PageNo, PageRange};

/// A managed range: half-open, page-aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// First address.
    pub start: usize,
    /// First address after it.
    pub end: usize,
    /// The page at `start`.
    pub first: PageNo,
    /// `PROT_*` bits.
    pub prot: i32,
    /// Locked in memory (`mlock`): no page of it is a victim.
    pub locked: bool,
    /// Device reads into it that are under way: no page of it is a victim meanwhile.
    pub pins: u32,
    /// Empty in forked children (`MADV_WIPEONFORK`).
    pub wiped_by_fork: bool,
    /// Not there in forked children (`MADV_DONTFORK`, as the program set it).
    pub not_forked: bool,
    /// Nobody said that it was mapped: it was found.
    pub found: bool,
    /// A touch is an error (`MADV_GUARD_INSTALL`): no neighbour's fault may fill it.
    pub guarded: bool,
    /// Which view of it the pager has, if it is shared memory; 0 for private memory.
    pub view: u32,
}

impl Region {
    /// Its pages.
    #[must_use]
    pub fn pages(&self) -> PageRange {
        PageRange::new(self.first, ((self.end - self.start) >> PAGE_SHIFT) as u64)
    }

    /// The page at `address`, which lies in the region.
    #[must_use]
    pub fn page(&self, address: usize) -> PageNo {
        PageNo::from_raw(self.first.raw() + ((address - self.start) >> PAGE_SHIFT) as u64)
    }

    /// Whether `UFFDIO_MOVE` may act on it: not locked, and of the protection of the staging area.
    #[must_use]
    pub const fn is_like(&self, staging: i32) -> bool {
        self.prot == staging && !self.locked
    }

    /// Whether no page of it may leave.
    #[must_use]
    pub const fn holds_no_victim(&self) -> bool {
        self.locked || self.pins > 0
    }

    /// Whether its index is not its address.
    const fn was_moved(&self) -> bool {
        self.first.index() != (self.start >> PAGE_SHIFT) as u64
    }

    fn cut(&self, start: usize, end: usize) -> Self {
        Self {
            start,
            end,
            first: self.page(start),
            ..*self
        }
    }

    fn joins(&self, next: &Self) -> bool {
        self.end == next.start
            && self.first.raw() + ((self.end - self.start) >> PAGE_SHIFT) as u64 == next.first.raw()
            && (self.prot, self.locked, self.pins) == (next.prot, next.locked, next.pins)
            && (self.wiped_by_fork, self.not_forked) == (next.wiped_by_fork, next.not_forked)
            && (self.found, self.guarded) == (next.found, next.guarded)
            && self.view == next.view
    }
}

/// `PROT_*`, as `mmap(2)` has them.
pub mod libc_prot {
    /// `PROT_READ`.
    pub const READ: i32 = 1;
    /// `PROT_WRITE`.
    pub const WRITE: i32 = 2;
}

/// All managed ranges. Lookups by address and by page, additions and removals cost the logarithm of their number, whatever was moved;
/// what acts on a range costs that for each region in it.
#[derive(Default)]
pub struct Regions {
    /// By first address.
    by_address: BTreeMap<usize, Region>,
    /// First addresses of those whose index is not their address, by first page.
    moved: BTreeMap<PageNo, usize>,
    /// The number of the last object.
    objects: u32,
}

/// Objects are numbered up to this, then from 1 again: what wears one number far apart in memory
/// is told apart by its index. Any number below 2^28 does; programs that map and unmap all the time
/// reach this one in hours.
const OBJECTS: u32 = 1 << 20;

impl Regions {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All of them, ascending.
    pub fn all(&self) -> impl Iterator<Item = &Region> + Clone {
        self.by_address.values()
    }

    /// Those that end behind `address`, ascending.
    fn from(&self, address: usize) -> impl Iterator<Item = &Region> {
        let first = self.at(address).map_or(address, |r| r.start);
        self.by_address.range(first..).map(|(_, region)| region)
    }

    /// The last region that starts at `address` or below.
    fn below(&self, address: usize) -> Option<&Region> {
        let below = self.by_address.range(..=address).next_back();
        below.map(|(_, region)| region)
    }

    /// The region that holds `address`.
    #[must_use]
    pub fn at(&self, address: usize) -> Option<&Region> {
        self.below(address).filter(|r| address < r.end)
    }

    /// Whether a region has a byte in `start..end`.
    #[must_use]
    pub fn any_within(&self, start: usize, end: usize) -> bool {
        let last = end.checked_sub(1).and_then(|last| self.below(last));
        start < end && last.is_some_and(|region| start < region.end)
    }

    /// The parts of regions within `start..end`, ascending, copied to `out`.
    pub fn within(&self, start: usize, end: usize, out: &mut Vec<Region>) {
        out.clear();
        out.extend(
            self.from(start)
                .take_while(|r| r.start < end)
                .map(|r| r.cut(r.start.max(start), r.end.min(end))),
        );
    }

    /// The address of `page` and how many pages follow it, itself included, in the same region.
    #[must_use]
    pub fn address(&self, page: PageNo) -> Option<(usize, u64)> {
        let inside = |r: &Region| {
            let skip = page.raw().wrapping_sub(r.first.raw());
            let pages = r.pages().pages;
            (skip < pages).then(|| (r.start + ((skip as usize) << PAGE_SHIFT), pages - skip))
        };
        let here = self.at((page.index() as usize) << PAGE_SHIFT);
        here.and_then(inside)
            .or_else(|| self.moved_below(page).and_then(inside))
    }

    /// Of the regions that were moved, the last one that begins with `page` or one below.
    fn moved_below(&self, page: PageNo) -> Option<&Region> {
        let (_, start) = self.moved.range(..=page).next_back()?;
        self.by_address.get(start)
    }

    /// Adds `start..end`, which overlaps nothing, under numbers that nobody else has; returns it.
    ///
    /// # Panics
    /// When it overlaps a region.
    pub fn add(&mut self, start: usize, end: usize, prot: i32, locked: bool) -> Region {
        let (index, pages) = ((start >> PAGE_SHIFT) as u64, (end - start) >> PAGE_SHIFT);
        let mut object = self.joined(start, end, prot);
        while object.is_none_or(|id| self.numbers_taken(PageNo::new(id, index), pages)) {
            self.objects = self.objects % OBJECTS + 1;
            object = Some(ObjectId(self.objects));
        }
        let region = Region {
            start,
            end,
            first: PageNo::new(object.unwrap_or(ObjectId(0)), index),
            prot,
            locked,
            pins: 0,
            wiped_by_fork: false,
            not_forked: false,
            found: false,
            guarded: false,
            view: 0,
        };
        self.insert(region);
        region
    }

    /// The object of the mapping that `start..end` is joined to, if there is one.
    fn joined(&self, start: usize, end: usize, prot: i32) -> Option<ObjectId> {
        let below = self.below(start);
        let below = below.filter(|r| r.end == start && r.prot == prot);
        let above = self.by_address.get(&end).filter(|r| r.prot == prot);
        below.or(above).map(|r| r.first.object())
    }

    /// Whether a moved region has one of so many pages. An index that is the address is taken by nobody else.
    fn numbers_taken(&self, first: PageNo, pages: usize) -> bool {
        let last = PageNo::from_raw(first.raw() + pages as u64 - 1);
        let nearest = self.moved_below(last);
        nearest.is_some_and(|r| first.raw() < r.first.raw() + r.pages().pages)
    }

    /// Adds a region under the numbers it has: memory that was moved here.
    ///
    /// # Panics
    /// When it overlaps a region.
    pub fn insert(&mut self, mut region: Region) {
        assert!(
            !self.any_within(region.start, region.end),
            "regions overlap"
        );
        let below = self.below(region.start).copied();
        if let Some(below) = below.filter(|below| below.joins(&region)) {
            self.take(below.start);
            region = Region {
                end: region.end,
                ..below
            };
        }
        let above = self.by_address.get(&region.end).copied();
        if let Some(above) = above.filter(|above| region.joins(above)) {
            self.take(above.start);
            region.end = above.end;
        }
        self.put(region);
    }

    fn put(&mut self, region: Region) {
        if region.was_moved() {
            self.moved.insert(region.first, region.start);
        }
        self.by_address.insert(region.start, region);
    }

    fn take(&mut self, start: usize) -> Option<Region> {
        let region = self.by_address.remove(&start)?;
        if region.was_moved() {
            self.moved.remove(&region.first);
        }
        Some(region)
    }

    /// Takes `start..end` out; the parts taken are copied to `out`.
    pub fn remove(&mut self, start: usize, end: usize, out: &mut Vec<Region>) {
        self.within(start, end, out);
        for part in &*out {
            let whole = self.below(part.start).map(|whole| whole.start);
            let Some(region) = whole.and_then(|whole| self.take(whole)) else {
                continue;
            };
            if region.start < part.start {
                self.put(region.cut(region.start, part.start));
            }
            if part.end < region.end {
                self.put(region.cut(part.end, region.end));
            }
        }
    }

    /// Changes what `change` sets on all of `start..end`.
    pub fn update(
        &mut self,
        start: usize,
        end: usize,
        scratch: &mut Vec<Region>,
        change: impl Fn(&mut Region),
    ) {
        self.remove(start, end, scratch);
        for mut region in scratch.drain(..) {
            change(&mut region);
            self.insert(region);
        }
    }

    /// In a forked child, which has neither the threads that pinned memory nor its parent's locks (mlock(2)): every page may leave.
    pub fn let_all_leave(&mut self) {
        for region in self.by_address.values_mut() {
            (region.pins, region.locked) = (0, false);
        }
    }

    /// Managed bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.all().map(|r| r.end - r.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: i32 = libc_prot::READ | libc_prot::WRITE;

    #[test]
    fn neighbours_join_and_holes_split() {
        let mut regions = Regions::new();
        regions.add(0x10_000, 0x20_000, RW, false);
        regions.add(0x20_000, 0x30_000, RW, false);
        assert_eq!(regions.all().count(), 1);
        let mut out = Vec::new();
        regions.remove(0x18_000, 0x19_000, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(regions.all().count(), 2);
        assert!(regions.at(0x18_000).is_none());
        assert_eq!(regions.at(0x19_000).map(|r| r.start), Some(0x19_000));
        regions.update(0x10_000, 0x12_000, &mut out, |r| r.prot = libc_prot::READ);
        assert_eq!(regions.all().count(), 3);
        regions.update(0x10_000, 0x12_000, &mut out, |r| r.prot = RW);
        assert_eq!(regions.all().count(), 2);
        assert_eq!(regions.bytes(), 0x1F_000);
    }

    #[test]
    fn a_mapping_is_an_object_and_grows() {
        let mut regions = Regions::new();
        let heap = regions.add(0x10_000, 0x20_000, RW, false).first.object();
        let apart = regions.add(0x30_000, 0x40_000, RW, false).first.object();
        assert_ne!(heap, apart);
        let above = regions.add(0x20_000, 0x28_000, RW, false);
        assert_eq!(above.first.object(), heap);
        let below = regions.add(0x2C_000, 0x30_000, RW, false);
        assert_eq!(below.first.object(), apart);
        let guard = regions.add(0x28_000, 0x2C_000, 0, false);
        assert!(![heap, apart].contains(&guard.first.object()));
        assert_eq!(regions.address(below.first), Some((0x2C_000, 0x14)));
        assert_eq!(regions.all().count(), 3);
    }

    #[test]
    fn a_child_has_no_locks_and_no_pins() {
        let mut regions = Regions::new();
        let mut out = Vec::new();
        regions.add(0x10_000, 0x20_000, RW, true);
        regions.update(0x12_000, 0x14_000, &mut out, |r| r.pins = 1);
        regions.update(0x18_000, 0x1A_000, &mut out, |r| r.locked = true);
        assert!(regions.all().all(Region::holds_no_victim));
        regions.let_all_leave();
        assert!(!regions.all().any(Region::holds_no_victim));
        assert!(regions.all().all(|region| region.is_like(RW)));
    }

    #[test]
    fn moved_memory_keeps_its_numbers_and_new_memory_gets_others() {
        let mut regions = Regions::new();
        let mut out = Vec::new();
        let old = regions.add(0x10_000, 0x20_000, RW, false);
        regions.remove(0x10_000, 0x20_000, &mut out);
        regions.insert(Region {
            start: 0x50_000,
            end: 0x60_000,
            ..old
        });
        assert_eq!(regions.address(old.first), Some((0x50_000, 16)));
        let new = regions.add(0x10_000, 0x20_000, RW, false);
        assert_ne!(new.first.object(), old.first.object());
        assert_eq!(regions.address(new.first), Some((0x10_000, 16)));
        assert_eq!(regions.address(old.page(0x11_000)), Some((0x51_000, 15)));
    }

    /// The same as a list of pages: each address with its page and protection.
    #[derive(Default)]
    struct Plain(std::collections::BTreeMap<usize, (PageNo, i32)>);

    impl Plain {
        fn agrees(&self, regions: &Regions) {
            let mut pages = 0;
            for region in regions.all() {
                for (i, page) in region.pages().iter().enumerate() {
                    let address = region.start + (i << PAGE_SHIFT);
                    assert_eq!(self.0.get(&address), Some(&(page, region.prot)));
                    let left = region.pages().pages - i as u64;
                    assert_eq!(regions.address(page), Some((address, left)));
                    assert_eq!(regions.at(address), Some(region));
                    pages += 1;
                }
            }
            assert_eq!(pages, self.0.len());
            let bounds: Vec<_> = regions.all().map(|r| (r.start, r.end)).collect();
            assert!(bounds.is_sorted() && bounds.windows(2).all(|w| w[0].1 <= w[1].0));
        }

        fn numbers(&self) -> std::collections::BTreeSet<PageNo> {
            self.0.values().map(|page| page.0).collect()
        }
    }

    #[test]
    fn random_mappings_are_found_by_address_and_by_page() {
        const PLACES: usize = 48;
        for seed in 1..=40_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut random = |below: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) as usize % below
            };
            let (mut regions, mut plain, mut out) = (Regions::new(), Plain::default(), Vec::new());
            for _ in 0..400 {
                let (a, pages) = (random(PLACES), 1 + random(8));
                let (start, end) = ((16 + a) << PAGE_SHIFT, (16 + a + pages) << PAGE_SHIFT);
                let taken: Vec<_> = plain.0.range(start..end).map(|(&at, &p)| (at, p)).collect();
                assert_eq!(regions.any_within(start, end), !taken.is_empty());
                match random(4) {
                    0 if taken.is_empty() => {
                        let prot = [RW, libc_prot::READ][random(2)];
                        let before = plain.numbers();
                        let added = regions.add(start, end, prot, false);
                        for (page, at) in added
                            .pages()
                            .iter()
                            .zip((start..end).step_by(1 << PAGE_SHIFT))
                        {
                            assert!(!before.contains(&page), "a number is given twice");
                            plain.0.insert(at, (page, prot));
                        }
                    }
                    1 => {
                        regions.update(start, end, &mut out, |r| r.prot = RW);
                        let changed = taken.iter().map(|&(at, p)| (at, (p.0, RW)));
                        plain.0.extend(changed);
                    }
                    move_or_remove => {
                        regions.remove(start, end, &mut out);
                        let pages: u64 = out.iter().map(|r| r.pages().pages).sum();
                        assert_eq!(pages, taken.len() as u64);
                        plain.0.retain(|at, _| !(start..end).contains(at));
                        let to = (16 + random(PLACES)) << PAGE_SHIFT;
                        let shift = |at: usize| at - start + to;
                        let is_free = plain.0.range(to..shift(end)).next().is_none();
                        if move_or_remove == 2 && is_free {
                            for part in &out {
                                let (start, end) = (shift(part.start), shift(part.end));
                                regions.insert(Region {
                                    start,
                                    end,
                                    ..*part
                                });
                            }
                            plain.0.extend(taken.iter().map(|&(at, p)| (shift(at), p)));
                        }
                    }
                }
                plain.agrees(&regions);
            }
        }
    }
}
