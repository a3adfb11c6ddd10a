//! Runs of pages that one action is about: those that are mapped along with a page, and those that grow page by page.

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

/// Adds `page` to `run` where it is its neighbour. Otherwise `run` begins anew with it, and what it
/// was is returned.
pub(super) fn extend(run: &mut Option<PageRange>, page: PageNo) -> Option<PageRange> {
    let longer = run.and_then(|run| join(run, page));
    let full = if longer.is_some() { None } else { *run };
    *run = longer.or(Some(PageRange::one(page)));
    full
}

/// `run` longer by `page`, if that is its neighbour on either side and it may grow.
fn join(run: PageRange, page: PageNo) -> Option<PageRange> {
    if run.pages >= RUN_PAGES_MAX || run.start.object() != page.object() {
        None
    } else if page.raw() == run.start.raw() + run.pages {
        Some(PageRange::new(run.start, run.pages + 1))
    } else if page.raw() + 1 == run.start.raw() {
        Some(PageRange::new(page, run.pages + 1))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ObjectId;
    use alloc::vec::Vec;

    /// The runs that pages of objects make, in the order in which they end.
    fn runs(pages: impl IntoIterator<Item = (u32, u64)>) -> Vec<PageRange> {
        let mut run = None;
        let pages = pages.into_iter();
        let pages = pages.map(|(object, index)| PageNo::new(ObjectId(object), index));
        let mut all: Vec<_> = pages.filter_map(|page| extend(&mut run, page)).collect();
        all.extend(run);
        all
    }

    fn run(object: u32, start: u64, pages: u64) -> PageRange {
        PageRange::new(PageNo::new(ObjectId(object), start), pages)
    }

    #[test]
    fn runs_grow_on_either_side_within_their_object() {
        assert_eq!(runs([]), []);
        assert_eq!(runs([5, 6, 4, 7].map(|index| (1, index))), [run(1, 4, 4)]);
        assert_eq!(runs([(1, 5), (1, 7)]), [run(1, 5, 1), run(1, 7, 1)]);
        assert_eq!(runs([(1, 5), (2, 6)]), [run(1, 5, 1), run(2, 6, 1)]);
        let most = RUN_PAGES_MAX;
        let long = (0..=most).map(|index| (1, index));
        assert_eq!(runs(long), [run(1, 0, most), run(1, most, 1)]);
    }
}
