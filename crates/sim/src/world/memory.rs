//! The mapped memory of a program.

use std::cell::Cell;
use std::collections::BTreeMap;

use outpage_core::units::{PageNo, PageRange};

/// Ranges of pages that do not overlap. A recorded program may have tens of thousands, and every
/// fault asks for the one around it.
#[derive(Default)]
pub(super) struct Memory {
    /// By their first pages.
    ranges: BTreeMap<PageNo, u64>,
    pages: u64,
    /// The one that was asked for last.
    last: Cell<Option<PageRange>>,
}

impl Memory {
    /// Adds `range`; what was mapped of it before is part of it now.
    pub fn map(&mut self, range: PageRange) {
        self.unmap(range);
        self.insert(range.start.raw(), range.start.raw() + range.pages);
    }

    /// Takes `range` out.
    pub fn unmap(&mut self, range: PageRange) {
        self.last.set(None);
        let (start, end) = (range.start.raw(), range.start.raw() + range.pages);
        // The last one that begins before the end, as long as it reaches in.
        while let Some(old) = self.last_from(end.checked_sub(1).map(PageNo::from_raw)) {
            let (from, to) = (old.start.raw(), old.start.raw() + old.pages);
            if to <= start {
                return;
            }
            self.ranges.remove(&old.start);
            self.pages -= old.pages;
            self.insert(end, to);
            self.insert(from, start.min(to));
            if from < start {
                return;
            }
        }
    }

    /// The mapped span around `page`; the page alone when the program never mapped it.
    pub fn extent(&self, page: PageNo) -> PageRange {
        let holds = |range: &PageRange| range.contains(page);
        let around = self.last.get().filter(holds);
        let around = around.or_else(|| {
            let found = self.last_from(Some(page)).filter(holds);
            self.last.set(found);
            found
        });
        around.unwrap_or(PageRange::one(page))
    }

    /// Mapped pages.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = PageRange> {
        self.ranges
            .iter()
            .map(|(&start, &pages)| PageRange::new(start, pages))
    }

    fn last_from(&self, page: Option<PageNo>) -> Option<PageRange> {
        let (&start, &pages) = self.ranges.range(..=page?).next_back()?;
        Some(PageRange::new(start, pages))
    }

    fn insert(&mut self, start: u64, end: u64) {
        if start < end {
            self.pages += end - start;
            self.ranges.insert(PageNo::from_raw(start), end - start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::units::ObjectId;

    fn run(from: u64, to: u64) -> PageRange {
        PageRange::new(PageNo::new(ObjectId(1), from), to - from)
    }

    fn spans(memory: &Memory) -> Vec<(u64, u64)> {
        let ends = |r: PageRange| (r.start.index(), r.start.index() + r.pages);
        memory.ranges().map(ends).collect()
    }

    #[test]
    fn what_is_unmapped_leaves_holes() {
        let mut memory = Memory::default();
        memory.map(run(10, 20));
        memory.map(run(30, 40));
        memory.map(run(40, 50));
        memory.unmap(run(12, 14));
        assert_eq!(spans(&memory), [(10, 12), (14, 20), (30, 40), (40, 50)]);
        memory.unmap(run(18, 45));
        assert_eq!(spans(&memory), [(10, 12), (14, 18), (45, 50)]);
        assert_eq!(memory.pages(), 11);
        memory.unmap(run(0, 100));
        assert_eq!((spans(&memory), memory.pages()), (vec![], 0));
    }

    #[test]
    fn a_page_has_the_span_that_holds_it() {
        let mut memory = Memory::default();
        memory.map(run(0, 20));
        memory.map(run(10, 30));
        let page = |index| PageNo::new(ObjectId(1), index);
        assert_eq!(memory.extent(page(9)), run(0, 10));
        assert_eq!(memory.extent(page(10)), run(10, 30));
        assert_eq!(memory.extent(page(29)), run(10, 30));
        assert_eq!(memory.extent(page(30)), run(30, 31), "it is not mapped");
        assert_eq!(memory.pages(), 30);
    }
}
