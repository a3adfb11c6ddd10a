//! Miss-ratio curves in one pass.

use crate::trace::PageString;

/// The misses of LRU at every number of frames.
///
/// LRU keeps the pages of smaller memories in larger ones, so one pass gives all sizes: a
/// reference hits in every memory that is larger than its stack distance, the number of other
/// pages referenced since the last reference to its page (Mattson, Gecsei, Slutz and Traiger,
/// Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970). Exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    references: u64,
    first: u64,
    /// At `d`, the references with stack distance `d`.
    distances: Vec<u64>,
}

impl Curve {
    /// The curve of `string`: O(n log pages) time, O(pages) memory.
    #[must_use]
    pub fn new(string: &PageString) -> Self {
        let mut stack = Stack::new(string.distinct());
        let mut first = 0;
        let mut distances = vec![0; string.distinct()];
        for page in string.numbers() {
            match stack.reference(page) {
                Some(distance) => distances[distance] += 1,
                None => first += 1,
            }
        }
        Self {
            references: string.len() as u64,
            first,
            distances,
        }
    }

    /// The misses of LRU with `frames` frames, first references included.
    #[must_use]
    pub fn misses(&self, frames: u32) -> u64 {
        let hits: u64 = self.distances.iter().take(frames as usize).sum();
        self.references - hits
    }

    /// The misses with 0, 1, 2 ... frames, up to the number of distinct pages.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        let after = |misses: &mut u64, hits: &u64| {
            *misses -= hits;
            Some(*misses)
        };
        let rest = self.distances.iter().scan(self.references, after);
        std::iter::once(self.references).chain(rest)
    }

    /// First references: no memory saves these misses.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }
}

/// "Not referenced yet".
const NEVER: u32 = u32::MAX;

/// The places of pages in the order of their last reference, counted by bits: a word of 64 places,
/// and a Fenwick tree (Fenwick, A new data structure for cumulative frequency tables, 1994) over
/// the words. When the places are used up, those in use move together.
struct Stack {
    /// A bit for each place, set when it is the last reference of some page.
    words: Vec<u64>,
    /// At `i`, the set bits of the `lowest_bit(i + 1)` words up to and with word `i`.
    tree: Vec<u32>,
    /// The place of each page.
    place: Vec<u32>,
    /// The page at each place.
    page: Vec<u32>,
    next: usize,
    /// Places in use.
    used: u32,
}

impl Stack {
    fn new(pages: usize) -> Self {
        // Twice the pages: half of the places are free again after each compaction.
        let words = (2 * pages).div_ceil(64).max(1);
        Self {
            words: vec![0; words],
            tree: vec![0; words],
            place: vec![NEVER; pages],
            page: vec![0; words * 64],
            next: 0,
            used: 0,
        }
    }

    /// The number of other pages since the last reference to `page`, `None` when there is none.
    fn reference(&mut self, page: u32) -> Option<usize> {
        if self.next == self.page.len() {
            self.compact();
        }
        let place = self.place[page as usize];
        let distance = (place != NEVER).then(|| {
            let distance = self.used - self.up_to(place as usize);
            self.clear(place as usize);
            distance as usize
        });
        self.set(page);
        distance
    }

    /// Places in use in `0..=place`.
    fn up_to(&self, place: usize) -> u32 {
        let mut word = place / 64;
        let mut count = (self.words[word] << (63 - place % 64)).count_ones();
        while word > 0 {
            count += self.tree[word - 1];
            word &= word - 1;
        }
        count
    }

    fn add(&mut self, place: usize, by: i32) {
        let mut node = place / 64 + 1;
        while node <= self.tree.len() {
            let count = &mut self.tree[node - 1];
            *count = count.wrapping_add_signed(by);
            node += node & node.wrapping_neg();
        }
    }

    fn clear(&mut self, place: usize) {
        self.words[place / 64] &= !(1 << (place % 64));
        self.add(place, -1);
        self.used -= 1;
    }

    /// Puts `page` at the next free place.
    fn set(&mut self, page: u32) {
        let place = self.next;
        self.words[place / 64] |= 1 << (place % 64);
        self.add(place, 1);
        self.place[page as usize] = place as u32;
        self.page[place] = page;
        self.next += 1;
        self.used += 1;
    }

    fn compact(&mut self) {
        let words = std::mem::replace(&mut self.words, vec![0; self.tree.len()]);
        self.tree.fill(0);
        self.next = 0;
        self.used = 0;
        for (at, mut word) in words.into_iter().enumerate() {
            while word != 0 {
                let place = at * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                // Places only move down, so what is read was not overwritten yet.
                self.set(self.page[place]);
            }
        }
    }
}
