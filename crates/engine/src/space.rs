//! The program's address space as the pager knows it: its regions, and what calls leave of them.
//!
//! Nothing here asks the kernel or the pager. A call is made elsewhere (`ask`, `serve`), what it means for pages is told elsewhere
//! (`changes`); here is what holds for a range afterwards, and where nothing may be relied on for now.

use std::collections::VecDeque;
use std::mem;
use std::ops::Deref;

use outpage_core::units::PAGE_BYTES;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::Change;

use crate::regions::Region;
use crate::regions::Regions;

/// The end of the last page of `len` bytes.
pub(crate) const fn page_up(len: usize) -> usize {
    match len.checked_next_multiple_of(PAGE_BYTES) {
        Some(whole) => whole,
        None => usize::MAX & !(PAGE_BYTES - 1),
    }
}

/// The end of `len` bytes from `addr` on, in whole pages; `None` where the kernel takes no such range (`EINVAL`, `ENOMEM`).
pub(crate) fn end_of(addr: usize, len: usize) -> Option<usize> {
    let len = len.checked_next_multiple_of(PAGE_BYTES)?;
    let end = addr.checked_add(len)?;
    addr.is_multiple_of(PAGE_BYTES).then_some(end)
}

/// The pages that have a byte in `len` bytes from `addr` on: first address, first one after them.
const fn pages_of(addr: usize, len: usize) -> (usize, usize) {
    (addr & !(PAGE_BYTES - 1), page_up(addr.saturating_add(len)))
}

/// A piece of a range: a region's part in it, or what lies between regions.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) region: Option<Region>,
}

impl Piece {
    fn gap(start: usize, end: usize) -> Option<Self> {
        let region = None;
        (start < end).then_some(Self { start, end, region })
    }
}

/// Regions, and what is happening to them. Look-ups are those of [`Regions`]; ranges are half-open and consist of whole pages unless said otherwise.
#[derive(Default)]
pub struct Space {
    regions: Regions,
    /// A list that is lent.
    parts: Vec<Region>,
    /// Changes that are being attended to: first address, first one after it, and where it moved; `None` where it was removed.
    changing: Vec<(usize, usize, Option<usize>)>,
    /// Where faults are not served for now, beside where mappings change.
    withheld: Vec<(usize, usize)>,
    /// Pages found to be mapped over, which nobody has told of.
    covered: VecDeque<usize>,
}

/// So many pages found to be mapped over are kept at most: a few writes' worth between two rounds of the loop. A choice; one beyond them is known as before,
/// until read-ahead reads it.
const COVERED_MAX: usize = 256;

impl Deref for Space {
    type Target = Regions;

    fn deref(&self) -> &Regions {
        &self.regions
    }
}

impl Space {
    /// With room for what is usual.
    #[must_use]
    pub fn new() -> Self {
        Self {
            regions: Regions::new(),
            parts: Vec::with_capacity(256),
            changing: Vec::with_capacity(16),
            withheld: Vec::with_capacity(4),
            covered: VecDeque::with_capacity(COVERED_MAX),
        }
    }

    /// Something else was found to be mapped over the page at `address`.
    pub(crate) fn found_covered(&mut self, address: usize) {
        if self.covered.len() < COVERED_MAX {
            self.covered.push_back(address);
        }
    }

    /// How many were found so and not attended to.
    pub(crate) fn covered(&self) -> usize {
        self.covered.len()
    }

    /// The one that was found first.
    pub(crate) fn next_covered(&mut self) -> Option<usize> {
        self.covered.pop_front()
    }

    /// The parts of regions within `start..end`, ascending. The list is lent: [`Self::take_list`] takes it again.
    pub(crate) fn parts(&mut self, start: usize, end: usize) -> Vec<Region> {
        let mut parts = mem::take(&mut self.parts);
        self.regions.within(start, end, &mut parts);
        parts
    }

    /// Takes a list again that was lent.
    pub(crate) fn take_list(&mut self, parts: Vec<Region>) {
        if parts.capacity() > self.parts.capacity() {
            self.parts = parts;
        }
    }

    /// All of `start..end`, cut where regions begin and end, ascending.
    pub(crate) fn pieces(&mut self, start: usize, end: usize) -> Vec<Piece> {
        let parts = self.parts(start, end);
        let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
        let mut at = start;
        for part in &parts {
            pieces.extend(Piece::gap(at, part.start));
            pieces.push(Piece {
                start: part.start,
                end: part.end,
                region: Some(*part),
            });
            at = part.end;
        }
        pieces.extend(Piece::gap(at, end));
        self.take_list(parts);
        pieces
    }

    /// What is left of `start..end` without the regions, ascending.
    pub(crate) fn gaps(&mut self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let pieces = self.pieces(start, end).into_iter();
        pieces
            .filter(|piece| piece.region.is_none())
            .map(|piece| (piece.start, piece.end))
            .collect()
    }

    /// As [`Regions::add`].
    ///
    /// # Panics
    /// When it overlaps a region.
    pub fn add(&mut self, start: usize, end: usize, prot: i32, locked: bool) -> Region {
        self.regions.add(start, end, prot, locked)
    }

    /// `start..end` is not managed any more.
    pub(crate) fn remove(&mut self, start: usize, end: usize) {
        let mut parts = mem::take(&mut self.parts);
        self.regions.remove(start, end, &mut parts);
        self.parts = parts;
    }

    /// What was at `from` lies at `to`, with its numbers and all that holds for it, but for devices that read into where it was.
    ///
    /// # Panics
    /// When a region is at `to`.
    pub(crate) fn relocate(&mut self, from: usize, to: usize, len: usize) {
        let mut parts = mem::take(&mut self.parts);
        self.regions.remove(from, from + len, &mut parts);
        for part in &parts {
            self.regions.insert(Region {
                start: to + (part.start - from),
                end: to + (part.end - from),
                pins: 0,
                ..*part
            });
        }
        self.parts = parts;
    }

    /// Notes a change of all parts of regions in `len` bytes from `addr`, the beginning of a page, on.
    pub(crate) fn change(&mut self, addr: usize, len: usize, change: impl Fn(&mut Region)) {
        self.update((addr, addr.saturating_add(page_up(len))), change);
    }

    fn update(&mut self, (start, end): (usize, usize), change: impl Fn(&mut Region)) {
        let mut parts = mem::take(&mut self.parts);
        self.regions.update(start, end, &mut parts, change);
        self.parts = parts;
    }

    /// Whether a region has a byte of the pages from `addr` on.
    pub(crate) fn manages_any(&self, addr: usize, len: usize) -> bool {
        self.any_within(addr, addr.saturating_add(page_up(len)))
    }

    /// Any `len` bytes from `addr` on are locked, or not any more. All that is locked, `besides` bytes among it, is to be `pages_max` pages at most.
    ///
    /// # Errors
    /// `ENOMEM`: nothing is locked that was not.
    pub(crate) fn lock(
        &mut self,
        addr: usize,
        len: usize,
        locked: bool,
        (besides, pages_max): (usize, usize),
    ) -> Result<(), Errno> {
        let (start, end) = pages_of(addr, len);
        if locked {
            let parts = self.parts(start, end);
            let unlocked = parts.iter().filter(|r| !r.locked);
            let more: usize = unlocked.map(|r| r.end - r.start).sum();
            self.take_list(parts);
            if (self.locked_bytes() + besides + more) / PAGE_BYTES > pages_max {
                return Err(Errno::ENOMEM);
            }
        }
        self.update((start, end), |r| r.locked = locked);
        Ok(())
    }

    /// Bytes locked by `mlock`.
    pub(crate) fn locked_bytes(&self) -> usize {
        let locked = self.all().filter(|r| r.locked);
        locked.map(|r| r.end - r.start).sum()
    }

    /// A device is about to write to any `len` bytes from `addr` on. What is pinned, `besides` bytes not counted, is to be `pages_max` pages at
    /// most, unless it is the only such range or all of it is pinned already.
    ///
    /// # Errors
    /// `EAGAIN` while too much is pinned.
    pub(crate) fn pin(
        &mut self,
        addr: usize,
        len: usize,
        (besides, pages_max): (usize, usize),
    ) -> Result<(), Errno> {
        let (start, end) = pages_of(addr, len);
        let (mut pinned, mut more) = (0, end - start);
        for region in self.all().filter(|r| r.pins > 0) {
            pinned += region.end - region.start;
            more -= (region.end.min(end)).saturating_sub(region.start.max(start));
        }
        let pinned = pinned.saturating_sub(besides);
        if pinned > 0 && more > 0 && (pinned + more) / PAGE_BYTES > pages_max {
            return Err(Errno::EAGAIN);
        }
        self.hold(start, end);
        Ok(())
    }

    /// No page of `start..end` leaves until [`Self::unpin`].
    pub(crate) fn hold(&mut self, start: usize, end: usize) {
        self.update((start, end), |r| r.pins += 1);
    }

    /// Ends one [`Self::pin`] or [`Self::hold`]. Whatever was mapped there meanwhile has none.
    pub(crate) fn unpin(&mut self, addr: usize, len: usize) {
        self.update(pages_of(addr, len), |r| r.pins = r.pins.saturating_sub(1));
    }

    /// As [`Regions::let_all_leave`].
    pub(crate) fn let_all_leave(&mut self) {
        self.regions.let_all_leave();
    }

    /// What was at `start..end` is gone, which is being attended to until [`Self::attended`].
    pub(crate) fn attend_to_removal(&mut self, start: usize, end: usize) {
        self.changing.push((start, end, None));
    }

    /// What was at `start..end` lies from `to` on, which is being attended to until [`Self::attended`].
    pub(crate) fn attend_to_move(&mut self, start: usize, end: usize, to: usize) {
        self.changing.push((start, end, Some(to)));
    }

    /// What was attended to last is.
    pub(crate) fn attended(&mut self) {
        self.changing.pop();
    }

    /// What is being attended to of the mapping at `address`.
    pub(crate) fn change_at(&self, address: usize) -> Option<Change> {
        let moved =
            |c: &(usize, usize, Option<usize>)| c.2.map_or(Change::Removed, |_| Change::Moved);
        self.attended_at(address).map(moved)
    }

    /// Where what is known at `address` lies after what is being attended to. What is attended to within a move made room for it,
    /// and came before it.
    pub(crate) fn moved_to(&self, address: usize) -> usize {
        match self.attended_at(address) {
            Some(&(start, _, Some(to))) => to + (address - start),
            _ => address,
        }
    }

    fn attended_at(&self, address: usize) -> Option<&(usize, usize, Option<usize>)> {
        self.changing.iter().find(|c| (c.0..c.1).contains(&address))
    }

    /// Whether nothing is being attended to.
    pub(crate) fn is_calm(&self) -> bool {
        self.changing.is_empty()
    }

    /// No fault in `start..end` is to be served until [`Self::serve_again`].
    pub(crate) fn withhold(&mut self, start: usize, end: usize) {
        self.withheld.push((start, end));
    }

    /// Ends the last [`Self::withhold`].
    pub(crate) fn serve_again(&mut self) {
        self.withheld.pop();
    }

    /// Whether a fault at `address` may be served, as far as is known here.
    pub(crate) fn is_served(&self, address: usize) -> bool {
        let withheld = (self.withheld.iter()).any(|w| (w.0..w.1).contains(&address));
        !withheld && self.at(address).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const PAGE: usize = PAGE_BYTES;

    /// Regions of pages 16 to 32 and 48 to 64.
    fn two() -> Space {
        let mut space = Space::new();
        space.add(16 * PAGE, 32 * PAGE, RW, false);
        space.add(48 * PAGE, 64 * PAGE, RW, false);
        space
    }

    fn locked(space: &Space) -> usize {
        space.locked_bytes() / PAGE
    }

    #[test]
    fn a_range_is_regions_and_gaps() {
        let mut space = two();
        let pages = |n: (usize, usize)| (n.0 / PAGE, n.1 / PAGE);
        let gaps: Vec<_> = space
            .gaps(8 * PAGE, 72 * PAGE)
            .into_iter()
            .map(pages)
            .collect();
        assert_eq!(gaps, [(8, 16), (32, 48), (64, 72)]);
        assert_eq!(space.gaps(20 * PAGE, 30 * PAGE), []);
        assert_eq!(space.gaps(33 * PAGE, 34 * PAGE).len(), 1);
        let parts = space.parts(30 * PAGE, 50 * PAGE);
        let bounds: Vec<_> = parts.iter().map(|r| pages((r.start, r.end))).collect();
        assert_eq!(bounds, [(30, 32), (48, 50)]);
        space.take_list(parts);
        assert!(space.manages_any(31 * PAGE, 1) && !space.manages_any(32 * PAGE, 1));
        assert!(space.manages_any(31 * PAGE, usize::MAX - 64 * PAGE));
    }

    #[test]
    fn a_lock_counts_what_was_not_locked_and_is_whole_or_not_at_all() {
        let mut space = two();
        assert_eq!(space.lock(16 * PAGE, 4 * PAGE, true, (0, 8)), Ok(()));
        // Bytes of a page lock the page; four of these are locked already.
        assert_eq!(
            space.lock(18 * PAGE + 1, 5 * PAGE - 2, true, (0, 7)),
            Ok(())
        );
        assert_eq!(locked(&space), 7);
        let much = space.lock(16 * PAGE, 16 * PAGE, true, (0, 15));
        assert_eq!((much, locked(&space)), (Err(Errno::ENOMEM), 7));
        let besides = space.lock(24 * PAGE, PAGE, true, (PAGE, 8));
        assert_eq!((besides, locked(&space)), (Err(Errno::ENOMEM), 7));
        assert_eq!(space.lock(16 * PAGE, 48 * PAGE, false, (0, 0)), Ok(()));
        assert_eq!(locked(&space), 0);
        // What is not managed is the kernel's.
        assert_eq!(space.lock(32 * PAGE, 16 * PAGE, true, (0, 0)), Ok(()));
        assert_eq!(locked(&space), 0);
    }

    #[test]
    fn pins_are_counted_and_bounded_but_for_the_first() {
        let mut space = two();
        assert_eq!(space.pin(16 * PAGE, 10 * PAGE, (0, 4)), Ok(()));
        assert_eq!(space.pin(50 * PAGE, 1, (0, 4)), Err(Errno::EAGAIN));
        assert_eq!(
            space.pin(20 * PAGE, 2 * PAGE, (0, 4)),
            Ok(()),
            "pinned already"
        );
        assert_eq!(space.pin(25 * PAGE, 2 * PAGE, (0, 10)), Err(Errno::EAGAIN));
        space.unpin(20 * PAGE, 2 * PAGE);
        assert_eq!(space.pin(50 * PAGE, 1, (10 * PAGE, 4)), Ok(()));
        assert_eq!(space.pin(16 * PAGE, 1, (0, 12)), Ok(()));
        let pins = |space: &Space, page: usize| space.at(page * PAGE).map(|r| r.pins);
        assert_eq!(
            [16, 17, 50, 51].map(|p| pins(&space, p)),
            [2, 1, 1, 0].map(Some)
        );
        space.unpin(16 * PAGE, 10 * PAGE);
        assert_eq!([16, 17].map(|p| pins(&space, p)), [1, 0].map(Some));
        // More often than it was pinned.
        space.unpin(16 * PAGE, 16 * PAGE);
        space.unpin(16 * PAGE, 16 * PAGE);
        assert_eq!(pins(&space, 16), Some(0));
        assert_eq!(space.all().count(), 4, "page 50 is by itself");
    }

    #[test]
    fn what_moves_keeps_all_but_its_pins() {
        let mut space = two();
        assert_eq!(space.lock(20 * PAGE, 2 * PAGE, true, (0, 9)), Ok(()));
        space.hold(20 * PAGE, 21 * PAGE);
        let number = space.at(20 * PAGE).map(|r| r.page(20 * PAGE));
        space.relocate(20 * PAGE, 100 * PAGE, 4 * PAGE);
        assert!(!space.manages_any(20 * PAGE, 4 * PAGE));
        let moved = *space.at(100 * PAGE).expect("moved here");
        assert_eq!((moved.locked, moved.pins), (true, 0));
        assert_eq!(Some(moved.page(100 * PAGE)), number);
        let address = number.and_then(|page| space.address(page));
        assert_eq!(address.map(|found| found.0), Some(100 * PAGE));
        assert!(!space.at(102 * PAGE).expect("moved too").locked);
        space.remove(100 * PAGE, 104 * PAGE);
        assert_eq!(space.bytes(), 28 * PAGE);
    }

    #[test]
    fn the_change_that_came_first_is_the_one_that_counts() {
        let mut space = two();
        space.attend_to_move(16 * PAGE, 32 * PAGE, 64 * PAGE);
        space.attend_to_removal(20 * PAGE, 50 * PAGE);
        let at = |space: &Space, page: usize| space.change_at(page * PAGE);
        assert_eq!(at(&space, 20), Some(Change::Moved));
        assert_eq!(at(&space, 49), Some(Change::Removed));
        assert_eq!(at(&space, 50), None);
        space.attended();
        assert_eq!((at(&space, 49), space.is_calm()), (None, false));
        space.attended();
        assert!(space.is_calm());
    }

    #[test]
    fn faults_are_served_where_something_is_known_and_nothing_withheld() {
        let mut space = two();
        space.withhold(16 * PAGE, 18 * PAGE);
        space.withhold(17 * PAGE, 20 * PAGE);
        let served = [15, 17, 19, 20, 32].map(|page| space.is_served(page * PAGE + 5));
        assert_eq!(served, [false, false, false, true, false]);
        space.serve_again();
        assert!(space.is_served(18 * PAGE) && !space.is_served(17 * PAGE));
    }
}
