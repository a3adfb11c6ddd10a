//! How many bytes the pages of a program come to when they are compressed.

use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};

/// What LZ4 made of each page that a recording saw leave, in bytes: 0 where it was one word again and again, 4096 where it does not
/// compress.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Neighbouring pages, ascending, and where in `bytes` those of the first are.
    extents: Vec<(PageRange, usize)>,
    bytes: Vec<u16>,
}

impl Sizes {
    /// Those of `pages`; of a page that comes twice the last one, of one that comes to more than it has, all that it has.
    #[must_use]
    pub fn new(pages: impl IntoIterator<Item = (PageNo, u16)>) -> Self {
        let mut all: Vec<_> = pages.into_iter().collect();
        // Stable, so that the last of equals stays the last.
        all.sort_by_key(|(page, _)| *page);
        let mut sizes = Self::default();
        let mut all = all.into_iter().peekable();
        while let Some((page, bytes)) = all.next() {
            if all.peek().is_none_or(|next| next.0 != page) {
                sizes.push(page, bytes.min(PAGE_BYTES as u16));
            }
        }
        sizes
    }

    /// Appends a page, which comes to `bytes` of no more than a page has, above all before it.
    pub(crate) fn push(&mut self, page: PageNo, bytes: u16) {
        let joins = |(run, _): &&mut (PageRange, usize)| {
            let next = run.start.raw().checked_add(run.pages);
            run.start.object() == page.object() && next == Some(page.raw())
        };
        match self.extents.last_mut().filter(joins) {
            Some((run, _)) => run.pages += 1,
            None => self.extents.push((PageRange::one(page), self.bytes.len())),
        }
        self.bytes.push(bytes);
    }

    /// How many pages have one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no page has one.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What `page` comes to. A page without a size has that of the nearest one below it, else of the first one: neighbours hold the
    /// like. `None` where no page has one.
    #[must_use]
    pub fn near(&self, page: PageNo) -> Option<u16> {
        let above = self.extents.partition_point(|(run, _)| run.start <= page);
        let Some(&(run, at)) = above.checked_sub(1).map(|below| &self.extents[below]) else {
            return self.bytes.first().copied();
        };
        let within = (page.raw() - run.start.raw()).min(run.pages - 1);
        Some(self.bytes[at + within as usize])
    }

    /// Each page and what it comes to, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (PageNo, u16)> {
        self.extents().flat_map(|(start, bytes)| {
            // By offsets: the last page of all has no number after it.
            let page = move |n: usize| PageNo::from_raw(start.raw() + n as u64);
            bytes
                .iter()
                .enumerate()
                .map(move |(n, &bytes)| (page(n), bytes))
        })
    }

    /// The last page that has one.
    pub(crate) fn last(&self) -> Option<PageNo> {
        let (run, _) = self.extents.last()?;
        Some(PageNo::from_raw(run.start.raw() + (run.pages - 1)))
    }

    /// Neighbouring pages, as far as they reach, and what each comes to; in ascending order.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (PageNo, &[u16])> {
        let extents = self.extents.iter();
        extents.map(|&(run, at)| (run.start, &self.bytes[at..at + run.pages as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_core::units::ObjectId;

    #[test]
    fn a_page_without_a_size_has_that_of_its_neighbour() {
        let at = |object, index| PageNo::new(ObjectId(object), index);
        let sizes = Sizes::new([
            (at(1, 6), 600),
            (at(1, 5), 1),
            (at(1, 9), 900),
            (at(1, 5), 500),
        ]);
        assert_eq!(sizes.len(), 3);
        let near = [0, 5, 6, 8, 9, 1 << 20].map(|index| sizes.near(at(1, index)));
        assert_eq!(near, [500, 500, 600, 600, 900, 900].map(Some));
        assert_eq!(Sizes::default().near(at(1, 0)), None);
        assert_eq!(Sizes::new([(at(1, 0), 9000)]).near(at(1, 0)), Some(4096));
    }
}
