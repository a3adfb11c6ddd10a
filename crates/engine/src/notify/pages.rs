//! The pages that a program is told of. It knows them by their place in its memory, the pager by numbers that need not follow each other: memory that
//! was grown where other memory was beside it lies in pieces.

use outpage_core::units::{PageNo, PageRange};

/// Pages that follow each other, and the place of the first of them.
#[derive(Clone, Copy)]
struct Piece {
    pages: PageRange,
    place: u32,
}

/// The number behind the last of `pages`.
const fn end(pages: PageRange) -> u64 {
    pages.start.raw() + pages.pages
}

/// The pages of a range of memory. Finding one takes time in the logarithm of its pieces.
pub(crate) struct Pages {
    /// By the pager's numbers, ascending.
    pieces: Vec<Piece>,
}

impl Pages {
    /// The pages of a range, in the order of their places: 2^32 at most, of which the area that tells of them takes half.
    pub(crate) fn of(runs: impl IntoIterator<Item = PageRange>) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        for pages in runs {
            match pieces.last_mut() {
                Some(last) if end(last.pages) == pages.start.raw() => {
                    last.pages = PageRange::new(last.pages.start, last.pages.pages + pages.pages);
                }
                last => {
                    let place = last.map_or(0, |last| last.place + last.pages.pages as u32);
                    pieces.push(Piece { pages, place });
                }
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.pages.start);
        Self { pieces }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.pages.pages).sum()
    }

    /// The place of `page`, counted in pages; `None` where it is none of them.
    pub(crate) fn place(&self, page: PageNo) -> Option<u32> {
        let after = self
            .pieces
            .partition_point(|piece| piece.pages.start <= page);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let offset = page.raw() - piece.pages.start.raw();
        (offset < piece.pages.pages).then(|| piece.place + offset as u32)
    }

    /// Whether a page of `range` is one of them.
    pub(crate) fn meets(&self, range: PageRange) -> bool {
        self.first_of(range).is_some()
    }

    /// The first place that has a page of `range`.
    pub(crate) fn first_of(&self, range: PageRange) -> Option<u32> {
        let met = self.pieces.iter().filter_map(|piece| {
            let start = piece.pages.start.max(range.start);
            let offset = start.raw() - piece.pages.start.raw();
            let meets = start.raw() < end(piece.pages).min(end(range));
            meets.then(|| piece.place + offset as u32)
        });
        met.min()
    }

    /// Forgets those from `place` on.
    pub(crate) fn cut(&mut self, place: u32) {
        self.pieces.retain_mut(|piece| {
            let left = u64::from(place.saturating_sub(piece.place));
            piece.pages = PageRange::new(piece.pages.start, piece.pages.pages.min(left));
            left > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, pages: u64) -> PageRange {
        PageRange::new(PageNo::from_raw(first), pages)
    }

    #[test]
    fn pieces_are_one_memory_in_the_order_of_their_places() {
        let mut pages = Pages::of([range(500, 10), range(510, 5), range(100, 20), range(300, 5)]);
        assert_eq!((pages.pieces.len(), pages.count()), (3, 40));
        let place = |pages: &Pages, page| pages.place(PageNo::from_raw(page));
        assert_eq!(place(&pages, 1 << 40), None);
        let all = [99, 100, 119, 120, 300, 304, 305, 499, 500, 514, 515];
        let places = all.map(|page| place(&pages, page));
        let some = [Some(15), Some(34), None, Some(35), Some(39), None, None];
        assert_eq!(places[1..8], some);
        assert_eq!(places[8..], [Some(0), Some(14), None]);
        assert_eq!(places[0], None);
        assert_eq!(pages.first_of(range(110, 1000)), Some(0));
        assert_eq!(pages.first_of(range(110, 300)), Some(25));
        assert_eq!(pages.first_of(range(305, 195)), None);
        assert_eq!(pages.first_of(range(1 << 40, 5)), None);
        pages.cut(25);
        assert_eq!((pages.count(), place(&pages, 109)), (25, Some(24)));
        assert!(!pages.meets(range(110, 300)) && pages.meets(range(109, 1)));
        pages.cut(0);
        assert_eq!(pages.count(), 0);
    }
}
