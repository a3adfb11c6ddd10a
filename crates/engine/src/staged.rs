//! Which staged page is in which frame: a hash table.

use outpage_core::units::PageNo;

use crate::frames::FrameNo;

/// Pages out of the program, by number. At most three quarters full; as a rule an eighth of the frames
/// is staged, so it is made for a quarter and grows when more are.
pub struct Staged {
    pages: Vec<u64>,
    places: Vec<FrameNo>,
    used: usize,
}

/// No page has this number.
const VACANT: u64 = u64::MAX;

impl Staged {
    /// For what is staged of `frames` frames.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        Self::with_cells((frames / 4).max(64).next_power_of_two())
    }

    /// `cells` is a power of two.
    fn with_cells(cells: usize) -> Self {
        Self {
            pages: vec![VACANT; cells],
            places: vec![FrameNo(0); cells],
            used: 0,
        }
    }

    fn grow(&mut self) {
        let larger = Self::with_cells(self.pages.len() * 2);
        let old = std::mem::replace(self, larger);
        let cells = old.pages.into_iter().zip(old.places);
        cells
            .filter(|cell| cell.0 != VACANT)
            .for_each(|(page, place)| self.insert(PageNo::from_raw(page), place));
    }

    /// Pages in the table.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Whether no page is staged.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4).
    fn home(&self, page: u64) -> usize {
        (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.pages.len().trailing_zeros()))
            as usize
    }

    fn find(&self, page: u64) -> usize {
        let mask = self.pages.len() - 1;
        let mut at = self.home(page);
        while self.pages[at] != page && self.pages[at] != VACANT {
            at = (at + 1) & mask;
        }
        at
    }

    /// The frame of a staged page.
    #[must_use]
    pub fn get(&self, page: PageNo) -> Option<FrameNo> {
        let at = self.find(page.raw());
        (self.pages[at] == page.raw()).then(|| self.places[at])
    }

    /// `page` is staged in `place`.
    ///
    /// # Panics
    /// When it is staged already.
    pub fn insert(&mut self, page: PageNo, place: FrameNo) {
        if (self.used + 1) * 4 > self.pages.len() * 3 {
            self.grow();
        }
        let at = self.find(page.raw());
        assert!(self.pages[at] == VACANT, "{page:?} staged twice");
        (self.pages[at], self.places[at]) = (page.raw(), place);
        self.used += 1;
    }

    /// `page` is not staged any more; backward-shift deletion keeps probes short.
    pub fn remove(&mut self, page: PageNo) -> Option<FrameNo> {
        let mask = self.pages.len() - 1;
        let mut hole = self.find(page.raw());
        if self.pages[hole] != page.raw() {
            return None;
        }
        let place = self.places[hole];
        let mut at = (hole + 1) & mask;
        while self.pages[at] != VACANT {
            let home = self.home(self.pages[at]);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                (self.pages[hole], self.places[hole]) = (self.pages[at], self.places[at]);
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.pages[hole] = VACANT;
        self.used -= 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let mut staged = Staged::new(1000);
        for round in 0..10u64 {
            (0..1000u32).for_each(|i| {
                staged.insert(PageNo::from_raw(u64::from(i) * 64 + round), FrameNo(i))
            });
            for i in 0..1000u32 {
                assert_eq!(
                    staged.remove(PageNo::from_raw(u64::from(i) * 64 + round)),
                    Some(FrameNo(i))
                );
                assert_eq!(
                    staged.get(PageNo::from_raw(u64::from(i) * 64 + round)),
                    None
                );
            }
            assert!(staged.is_empty());
        }
    }
}
