//! The runs that are mapped along with a page.

use super::RUN_PAGES_MAX;
use crate::units::{PageNo, PageRange};

/// The most runs that are mapped for one page.
const PARTS_MAX: usize = 16;

/// Disjoint runs of one object, the first of which holds the page that is awaited.
pub(super) struct Parts {
    parts: [PageRange; PARTS_MAX],
    len: usize,
    /// The part that grows.
    at: usize,
    page: PageNo,
    pages: u64,
}

impl Parts {
    pub(super) const fn new(page: PageNo) -> Self {
        Self {
            parts: [PageRange::one(page); PARTS_MAX],
            len: 1,
            at: 0,
            page,
            pages: 1,
        }
    }

    /// The page that is awaited.
    pub(super) const fn page(&self) -> PageNo {
        self.page
    }

    /// Whether one more page can be added.
    pub(super) const fn has_room(&self) -> bool {
        self.pages < RUN_PAGES_MAX && self.len < PARTS_MAX
    }

    /// The next page is added next to the first part, if it is its neighbour.
    pub(super) const fn back_to_first(&mut self) {
        self.at = 0;
    }

    /// Adds a page: to the last part that grew where it is a neighbour of it, else as one more.
    pub(super) const fn add(&mut self, page: PageNo) {
        let part = &mut self.parts[self.at];
        if page.raw() == part.start.raw() + part.pages {
            part.pages += 1;
        } else if page.raw() + 1 == part.start.raw() {
            *part = PageRange::new(page, part.pages + 1);
        } else {
            self.parts[self.len] = PageRange::one(page);
            self.at = self.len;
            self.len += 1;
        }
        self.pages += 1;
    }

    /// The runs by page; none is added any more.
    pub(super) fn sorted(&mut self) -> &[PageRange] {
        let parts = &mut self.parts[..self.len];
        parts.sort_unstable_by_key(|part| part.start);
        parts
    }

    /// From the lowest page to the highest.
    pub(super) fn hull(&self) -> PageRange {
        let ends = |part: &PageRange| (part.start.raw(), part.start.raw() + part.pages);
        let hull = self.parts[..self.len].iter().map(ends);
        let (low, high) = hull.fold((u64::MAX, 0), |hull, part| {
            (hull.0.min(part.0), hull.1.max(part.1))
        });
        PageRange::new(PageNo::from_raw(low), high - low)
    }
}
