//! Tables of fixed size that take RAM only where they were written.

use outpage_core::units::PAGE_BYTES;

/// A table whose entries are zero, and take no RAM, until they are written. Nothing is allocated after construction.
///
/// What is counted are its pages that were ever written. One that begins within a page takes one more.
pub(super) struct Table<T> {
    entries: Vec<T>,
    /// A bit for each page that was written.
    written: Vec<u64>,
    pages: usize,
}

/// What a table may hold: an allocation of zeroed ones is not written by whoever makes it.
pub(super) trait Zeroed: Copy {
    fn zeroed(len: usize) -> Vec<Self>;
}

impl Zeroed for u64 {
    fn zeroed(len: usize) -> Vec<Self> {
        vec![0; len]
    }
}

impl Zeroed for u8 {
    fn zeroed(len: usize) -> Vec<Self> {
        vec![0; len]
    }
}

impl Zeroed for [u64; 2] {
    fn zeroed(len: usize) -> Vec<Self> {
        vec![[0; 2]; len]
    }
}

impl<T: Zeroed> Table<T> {
    const PER_PAGE: usize = PAGE_BYTES / size_of::<T>();

    pub(super) fn new(len: usize) -> Self {
        const { assert!(PAGE_BYTES.is_multiple_of(size_of::<T>())) };
        Self {
            entries: T::zeroed(len),
            written: vec![0; len.div_ceil(Self::PER_PAGE).div_ceil(64)],
            pages: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, at: usize) -> T {
        self.entries[at]
    }

    pub(super) fn set(&mut self, at: usize, entry: T) {
        self.entries[at] = entry;
        let page = at / Self::PER_PAGE;
        let (word, bit) = (&mut self.written[page / 64], 1 << (page % 64));
        self.pages += usize::from(*word & bit == 0);
        *word |= bit;
    }

    /// Pages that writing `start..end`, at least one entry and at most a page of them, would add.
    pub(super) fn fresh(&self, start: usize, end: usize) -> usize {
        let (first, last) = (start / Self::PER_PAGE, (end - 1) / Self::PER_PAGE);
        let fresh = |page: usize| usize::from(self.written[page / 64] >> (page % 64) & 1 == 0);
        fresh(first) + if last == first { 0 } else { fresh(last) }
    }

    /// The next entry from `at` on in a page that was written, before `end`. Takes a step for 64 pages that were not.
    pub(super) fn next_written(&self, mut at: usize, end: usize) -> Option<usize> {
        while at < end {
            let page = at / Self::PER_PAGE;
            let left = self.written[page / 64] >> (page % 64);
            if left & 1 == 1 {
                return Some(at);
            }
            let skipped = match left {
                0 => 64 - page % 64,
                left => left.trailing_zeros() as usize,
            };
            at = (page + skipped) * Self::PER_PAGE;
        }
        None
    }

    /// Pages that were ever written.
    pub(super) const fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes that it takes beside, written or not.
    pub(super) const fn fixed_bytes(&self) -> usize {
        self.written.len() * 8
    }
}
