//! Page-reference strings: what rivals and bounds work on.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use outpage_core::contract::Access;

/// The bit of a packed reference that says that it wrote.
const WROTE: u32 = 1 << 31;

/// A string of references, with its distinct pages numbered in the order of their first
/// reference: 4 bytes a reference, so that tables of pages can be plain arrays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageString {
    /// The number of the page; the uppermost bit says that the reference wrote.
    packed: Vec<u32>,
    /// The page that each number stands for.
    pages: Vec<u64>,
    numbers: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
}

impl PageString {
    /// The empty string.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a reference to `page`.
    ///
    /// # Panics
    /// When there are more than 2^31 distinct pages.
    pub fn push(&mut self, page: u64, access: Access) {
        let next = self.pages.len() as u32;
        let number = *self.numbers.entry(page).or_insert(next);
        if number == next {
            assert!(next < WROTE, "more than 2^31 pages in one string");
            self.pages.push(page);
        }
        let wrote = if access == Access::Write { WROTE } else { 0 };
        self.packed.push(number | wrote);
    }

    /// The number of references.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packed.len()
    }

    /// Whether there are no references.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// The number of distinct pages.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.pages.len()
    }

    /// The page that `number` stands for.
    ///
    /// # Panics
    /// When no page has that number.
    #[must_use]
    pub fn page(&self, number: u32) -> u64 {
        self.pages[number as usize]
    }

    /// The numbers of the pages, in the order of reference.
    pub fn numbers(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + Clone {
        self.packed.iter().map(|packed| packed & !WROTE)
    }

    /// The references: number of the page, and whether the reference wrote.
    pub fn references(
        &self,
    ) -> impl DoubleEndedIterator<Item = (u32, bool)> + ExactSizeIterator + Clone {
        let apart = |packed: &u32| (packed & !WROTE, packed & WROTE != 0);
        self.packed.iter().map(apart)
    }
}

impl FromIterator<(u64, Access)> for PageString {
    fn from_iter<I: IntoIterator<Item = (u64, Access)>>(references: I) -> Self {
        let mut string = Self::new();
        for (page, access) in references {
            string.push(page, access);
        }
        string
    }
}

/// References that only read.
impl FromIterator<u64> for PageString {
    fn from_iter<I: IntoIterator<Item = u64>>(pages: I) -> Self {
        pages.into_iter().map(|page| (page, Access::Read)).collect()
    }
}

/// Multiplicative hashing of one number (Knuth, The Art of Computer Programming 3, section 6.4):
/// the constant is 2^64 divided by the golden ratio, made odd. Page numbers are no attacker's.
#[derive(Clone, Copy, Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The map takes the low bits, which a product mixes least.
        self.0 = mixed ^ mixed >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered_as_they_come() {
        let string: PageString = [
            (70, Access::Read),
            (7, Access::Write),
            (70, Access::Write),
            (u64::MAX, Access::Read),
        ]
        .into_iter()
        .collect();
        assert_eq!((string.len(), string.distinct()), (4, 3));
        assert_eq!(string.numbers().collect::<Vec<_>>(), [0, 1, 0, 2]);
        let wrote: Vec<bool> = string.references().map(|(_, wrote)| wrote).collect();
        assert_eq!(wrote, [false, true, true, false]);
        assert_eq!((string.page(0), string.page(2)), (70, u64::MAX));
    }
}
