//! The managed address ranges of the program, and which memory object backs each.
//!
//! A page's index is its address. Its object stands for the mapping that it is in: a mapping that is made
//! beside another of equal protection goes to that one's object, as the kernel joins the two. What becomes one
//! mapping later, by `mprotect` or when a hole is filled, stays two objects. Memory that `mremap` moved keeps
//! its numbers; a later mapping whose numbers are taken that way goes to another object.

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
    /// The kernel refused to give pages of it up: no page of it is a victim for now.
    pub stays: bool,
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

    /// Readable, writable, not executable and not locked: `UFFDIO_MOVE` may act on it.
    #[must_use]
    pub fn plain(&self) -> bool {
        self.prot == libc_prot::READ | libc_prot::WRITE && !self.locked
    }

    /// Whether no page of it may leave.
    #[must_use]
    pub const fn holds_no_victim(&self) -> bool {
        self.locked || self.stays || self.pins > 0
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
            && (self.found, self.guarded, self.stays) == (next.found, next.guarded, next.stays)
    }
}

/// `PROT_*`, as `mmap(2)` has them.
pub mod libc_prot {
    /// `PROT_READ`.
    pub const READ: i32 = 1;
    /// `PROT_WRITE`.
    pub const WRITE: i32 = 2;
}

/// All managed ranges, by address. Lookups cost the logarithm of their number.
#[derive(Default)]
pub struct Regions {
    list: Vec<Region>,
    /// Some region's index is not its address.
    moved: bool,
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
        Self {
            list: Vec::with_capacity(1024),
            moved: false,
            objects: 0,
        }
    }

    /// All of them, ascending.
    #[must_use]
    pub fn all(&self) -> &[Region] {
        &self.list
    }

    fn position(&self, address: usize) -> usize {
        self.list.partition_point(|r| r.end <= address)
    }

    /// The region that holds `address`.
    #[must_use]
    pub fn at(&self, address: usize) -> Option<&Region> {
        self.list
            .get(self.position(address))
            .filter(|r| r.start <= address)
    }

    /// Whether a region has a byte in `start..end`.
    #[must_use]
    pub fn any_within(&self, start: usize, end: usize) -> bool {
        let next = self.list.get(self.position(start));
        next.is_some_and(|region| region.start < end)
    }

    /// The parts of regions within `start..end`, ascending, copied to `out`.
    pub fn within(&self, start: usize, end: usize, out: &mut Vec<Region>) {
        out.clear();
        let from = self.position(start);
        out.extend(
            self.list[from..]
                .iter()
                .take_while(|r| r.start < end)
                .map(|r| r.cut(r.start.max(start), r.end.min(end))),
        );
    }

    /// The address of `page` and how many pages follow it, itself included, in the same region.
    ///
    /// Constant for memory that never moved; otherwise all regions are looked at.
    #[must_use]
    pub fn address(&self, page: PageNo) -> Option<(usize, u64)> {
        let inside = |r: &Region| {
            let skip = page.raw().wrapping_sub(r.first.raw());
            let pages = ((r.end - r.start) >> PAGE_SHIFT) as u64;
            (skip < pages).then(|| (r.start + ((skip as usize) << PAGE_SHIFT), pages - skip))
        };
        let here = self.at((page.index() as usize) << PAGE_SHIFT);
        if let Some(found) = here.and_then(inside) {
            return Some(found);
        }
        if self.moved {
            self.list.iter().find_map(inside)
        } else {
            None
        }
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
            stays: false,
        };
        self.insert(region);
        region
    }

    /// The object of the mapping that `start..end` is joined to, if there is one.
    fn joined(&self, start: usize, end: usize, prot: i32) -> Option<ObjectId> {
        let at = self.position(start);
        let below = at.checked_sub(1).and_then(|below| self.list.get(below));
        let below = below.filter(|r| r.end == start && r.prot == prot);
        let above = self
            .list
            .get(at)
            .filter(|r| r.start == end && r.prot == prot);
        below.or(above).map(|r| r.first.object())
    }

    fn numbers_taken(&self, first: PageNo, pages: usize) -> bool {
        // An index that is the address is taken by nobody else.
        self.moved
            && self.list.iter().any(|r| {
                let theirs = ((r.end - r.start) >> PAGE_SHIFT) as u64;
                r.first.raw() < first.raw() + pages as u64 && first.raw() < r.first.raw() + theirs
            })
    }

    /// Adds a region under the numbers it has: memory that was moved here.
    pub fn insert(&mut self, region: Region) {
        self.moved |= region.first.index() != (region.start >> PAGE_SHIFT) as u64;
        let at = self.position(region.start);
        assert!(
            self.list.get(at).is_none_or(|r| region.end <= r.start),
            "regions overlap"
        );
        if at > 0 && self.list[at - 1].joins(&region) {
            self.list[at - 1].end = region.end;
            self.join_next(at - 1);
        } else {
            self.list.insert(at, region);
            self.join_next(at);
        }
    }

    fn join_next(&mut self, at: usize) {
        if self.list.len() > at + 1 && self.list[at].joins(&self.list[at + 1].clone()) {
            self.list[at].end = self.list[at + 1].end;
            self.list.remove(at + 1);
        }
    }

    /// Takes `start..end` out; the parts taken are copied to `out`.
    pub fn remove(&mut self, start: usize, end: usize, out: &mut Vec<Region>) {
        self.within(start, end, out);
        let mut at = self.position(start);
        while self.list.get(at).is_some_and(|r| r.start < end) {
            let region = self.list.remove(at);
            if region.start < start {
                self.list.insert(at, region.cut(region.start, start));
                at += 1;
            }
            if region.end > end {
                self.list.insert(at, region.cut(end, region.end));
                at += 1;
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
        for region in &mut self.list {
            (region.pins, region.locked, region.stays) = (0, false, false);
        }
    }

    /// Managed bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.list.iter().map(|r| r.end - r.start).sum()
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
        assert_eq!(regions.all().len(), 1);
        let mut out = Vec::new();
        regions.remove(0x18_000, 0x19_000, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(regions.all().len(), 2);
        assert!(regions.at(0x18_000).is_none());
        assert_eq!(regions.at(0x19_000).map(|r| r.start), Some(0x19_000));
        regions.update(0x10_000, 0x12_000, &mut out, |r| r.prot = libc_prot::READ);
        assert_eq!(regions.all().len(), 3);
        regions.update(0x10_000, 0x12_000, &mut out, |r| r.prot = RW);
        assert_eq!(regions.all().len(), 2);
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
        assert_eq!(regions.all().len(), 3);
    }

    #[test]
    fn a_child_has_no_locks_and_no_pins() {
        let mut regions = Regions::new();
        let mut out = Vec::new();
        regions.add(0x10_000, 0x20_000, RW, true);
        regions.update(0x12_000, 0x14_000, &mut out, |r| r.pins = 1);
        regions.update(0x18_000, 0x1A_000, &mut out, |r| r.stays = true);
        assert!(regions.all().iter().all(Region::holds_no_victim));
        regions.let_all_leave();
        assert!(!regions.all().iter().any(Region::holds_no_victim));
        assert!(regions.all().iter().all(Region::plain));
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
}
