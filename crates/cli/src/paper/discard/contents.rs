//! What is in the pages of a live run.
//!
//! A page's first words say how often it was written, all others when it held zeroes last. So a write costs a line of the cache, and a page that is another one, or an
//! older one of itself, is told by either. Each touch looks at the first words, each eighth at all of the page, and the end at all pages.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of 8 bytes of a page.
pub const WORDS: usize = 512;
/// Words that each write changes: a line of the cache.
const LINE: usize = 8;
/// Of the touches, one in so many looks at the whole page. A choice: a page is compared as fast as it is read.
const WHOLE: u64 = 8;

/// What a page is to hold.
#[derive(Clone, Copy, Default, Debug)]
struct Page {
    /// How often it was written, ever.
    count: u32,
    /// The write that filled it, after zeroes; 0 for zeroes.
    filled: u32,
    /// It may hold zeroes as well: it was given up, and nobody has said whether it was dropped.
    perhaps_zero: bool,
    given_up: bool,
}

impl Page {
    /// What a word of page `number` is; odd multiples of 2^64 by the golden ratio tell neighbours apart.
    const fn word(self, number: usize, word: usize) -> u64 {
        let write = match self.filled {
            0 => return 0,
            _ if word < LINE => self.count,
            filled => filled,
        };
        let place = (write as u64) << 40 ^ (number as u64) << 10 ^ word as u64;
        place.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
}

/// What all pages are to hold.
pub struct Contents<'a> {
    words: &'a [AtomicU64],
    pages: Vec<Page>,
    touches: u64,
    /// Pages of which all was compared.
    pub verified: u64,
}

/// A page that holds something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrong {
    page: usize,
    word: usize,
    found: u64,
    expected: u64,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "wrong contents: page {}, word {}: found {:#018x} where {:#018x} was written",
            self.page, self.word, self.found, self.expected
        )
    }
}

impl<'a> Contents<'a> {
    /// Pages of zeroes.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self {
            words,
            pages: vec![Page::default(); words.len() / WORDS],
            touches: 0,
            verified: 0,
        }
    }

    /// Compares words of a page.
    fn check(&self, number: usize, which: Range<usize>) -> Result<(), Wrong> {
        let page = self.pages[number];
        let words = &self.words[number * WORDS..][..WORDS];
        let found = |word: usize| words[word].load(Ordering::Relaxed);
        let Some(word) = which.clone().find(|&at| found(at) != page.word(number, at)) else {
            return Ok(());
        };
        if page.perhaps_zero && which.into_iter().all(|at| found(at) == 0) {
            return Ok(());
        }
        Err(Wrong {
            page: number,
            word,
            found: found(word),
            expected: page.word(number, word),
        })
    }

    /// Where a look at a page ends.
    fn end(&mut self, whole: bool) -> usize {
        self.touches += 1;
        if !whole && !self.touches.is_multiple_of(WHOLE) {
            return LINE;
        }
        self.verified += 1;
        WORDS
    }

    /// Reads a page.
    pub fn read(&mut self, number: usize) -> Result<(), Wrong> {
        let end = self.end(self.pages[number].perhaps_zero);
        self.check(number, 0..end)
    }

    /// Writes it: a word first, so that the touch is a write, then others are compared and written.
    pub fn write(&mut self, number: usize) -> Result<(), Wrong> {
        let before = self.pages[number];
        let fill = before.filled == 0 || before.perhaps_zero;
        let count = before.count + 1;
        let after = Page {
            count,
            filled: if fill { count } else { before.filled },
            perhaps_zero: before.given_up,
            ..before
        };
        let words = &self.words[number * WORDS..][..WORDS];
        words[0].store(after.word(number, 0), Ordering::Relaxed);
        let end = self.end(fill);
        self.check(number, 1..end)?;
        let written = if fill { WORDS } else { LINE };
        for (at, word) in words[..written].iter().enumerate().skip(1) {
            word.store(after.word(number, at), Ordering::Relaxed);
        }
        self.pages[number] = after;
        Ok(())
    }

    /// The pages are given up.
    pub fn mark(&mut self, pages: Range<usize>) {
        for page in &mut self.pages[pages] {
            page.given_up = true;
            page.perhaps_zero = true;
        }
    }

    /// The pages are wanted again. `lost` says whether the page at an index in the range was dropped; without it each page holds what it did or zeroes, until it is written.
    pub fn take_back(&mut self, pages: Range<usize>, lost: Option<&dyn Fn(usize) -> bool>) {
        for (index, page) in self.pages[pages].iter_mut().enumerate() {
            page.given_up = false;
            if let Some(lost) = lost {
                page.perhaps_zero = false;
                if lost(index) {
                    page.filled = 0;
                }
            }
        }
    }

    /// Compares all of every page that is not given up.
    pub fn check_all(&mut self) -> Result<(), Wrong> {
        for number in 0..self.pages.len() {
            if !self.pages[number].given_up {
                self.verified += 1;
                self.check(number, 0..WORDS)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(pages: usize) -> Vec<AtomicU64> {
        (0..pages * WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn zero(words: &[AtomicU64], page: usize) {
        for word in &words[page * WORDS..][..WORDS] {
            word.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn zeroes_are_right_only_where_somebody_said_so() {
        let words = memory(4);
        let mut contents = Contents::new(&words);
        (0..4).for_each(|page| contents.write(page).unwrap());
        zero(&words, 1);
        assert!(contents.read(1).is_err() && contents.write(1).is_err());

        // Given up, and dropped or not.
        zero(&words, 2);
        contents.mark(2..4);
        contents.read(2).unwrap();
        contents.read(3).unwrap();
        contents.take_back(2..4, Some(&|index| index == 0));
        contents.read(2).unwrap();
        contents.read(3).unwrap();
        zero(&words, 3);
        assert!(contents.read(3).is_err(), "it was kept");
        contents.write(2).unwrap();
        zero(&words, 2);
        assert!(contents.read(2).is_err(), "it was taken back");
    }

    #[test]
    fn without_an_answer_a_page_may_be_zero_until_it_is_written() {
        let words = memory(1);
        let mut contents = Contents::new(&words);
        contents.write(0).unwrap();
        contents.mark(0..1);
        contents.take_back(0..1, None);
        zero(&words, 0);
        contents.read(0).unwrap();
        contents.write(0).unwrap();
        contents.check_all().unwrap();
        zero(&words, 0);
        assert!(contents.check_all().is_err());
    }

    #[test]
    fn one_wrong_word_and_another_page_and_an_older_one_are_found() {
        let words = memory(2);
        let mut contents = Contents::new(&words);
        (0..2).for_each(|page| contents.write(page).unwrap());
        words[WORDS + 511].fetch_xor(1 << 63, Ordering::Relaxed);
        let wrong = contents.check_all().unwrap_err();
        assert_eq!((wrong.page, wrong.word), (1, 511));
        // One look of eight finds it.
        assert!((0..WHOLE).any(|_| contents.read(1).is_err()));
        words[WORDS + 511].fetch_xor(1 << 63, Ordering::Relaxed);
        contents.check_all().unwrap();

        let copy = |from: usize, to: usize| {
            for word in 0..WORDS {
                let of = words[from * WORDS + word].load(Ordering::Relaxed);
                words[to * WORDS + word].store(of, Ordering::Relaxed);
            }
        };
        let old: Vec<u64> = words[WORDS..]
            .iter()
            .map(|w| w.load(Ordering::Relaxed))
            .collect();
        contents.write(1).unwrap();
        contents.check_all().unwrap();
        for (word, old) in words[WORDS..].iter().zip(old) {
            word.store(old, Ordering::Relaxed);
        }
        assert!(contents.read(1).is_err(), "an older one");
        copy(0, 1);
        assert!(contents.read(1).is_err(), "another page");
    }

    #[test]
    fn what_was_there_before_zeroes_is_not_taken_for_what_was_written_since() {
        let words = memory(1);
        let mut contents = Contents::new(&words);
        contents.write(0).unwrap();
        let old: Vec<u64> = words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        contents.mark(0..1);
        zero(&words, 0);
        contents.take_back(0..1, Some(&|_| true));
        contents.write(0).unwrap();
        for (word, old) in words.iter().zip(old).skip(LINE) {
            word.store(old, Ordering::Relaxed);
        }
        assert!(contents.check_all().is_err());
        // Half of a page dropped is no page dropped.
        let mut contents = Contents::new(&words);
        zero(&words, 0);
        contents.write(0).unwrap();
        contents.mark(0..1);
        words[300].store(0, Ordering::Relaxed);
        assert!(contents.read(0).is_err());
    }
}
