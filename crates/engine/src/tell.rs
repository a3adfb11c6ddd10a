//! What the program of a scope asks to be told: where its pages are, which of those that it gave up were dropped, what was counted.
//!
//! The answers are longer than a number. They go into words that the asking thread laid ready (`Calls::offer`), which the
//! pager's thread writes while the other waits.

use std::sync::atomic::Ordering::Relaxed;

use outpage_core::contract::{Advice, Event};
use outpage_core::page::State;
use outpage_core::units::{PAGE_BYTES, PageRange};
use outpage_stats::{COUNTERS, Counts};
use outpage_sys::clock;
use outpage_sys::raw::Errno;
use outpage_sys::shared::Words;

use crate::adopt::whole_pages;
use crate::call::Call;
use crate::live::Live;

/// Where a page of a scope is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// Never touched, or given back: it reads as zeroes and takes neither RAM nor disk.
    Untouched,
    /// In the program: a touch costs nothing.
    Resident,
    /// Out of the program and in RAM, or on its way in or out: a touch costs a minor fault, or what is left of the way.
    Staged,
    /// In the store alone: a touch waits for a read.
    PagedOut,
    /// It could not be read back: a touch is a signal.
    Lost,
    /// No page of this scope.
    Unmanaged,
}

/// Bits of a page's place, and the pages of a word.
const PLACE_BITS: u32 = 4;
const PLACES_A_WORD: usize = (u32::BITS / PLACE_BITS) as usize;

impl Place {
    /// By number.
    const ALL: [Self; 6] = [
        Self::Untouched,
        Self::Resident,
        Self::Staged,
        Self::PagedOut,
        Self::Lost,
        Self::Unmanaged,
    ];

    const fn of(state: State) -> Self {
        match state {
            State::Untouched => Self::Untouched,
            State::Resident => Self::Resident,
            State::Detaching | State::Staged | State::Writing | State::Reading | State::Mapping => {
                Self::Staged
            }
            State::PagedOut => Self::PagedOut,
            State::Poisoned => Self::Lost,
        }
    }

    /// Words that the places of `pages` pages take.
    pub(crate) const fn words(pages: usize) -> usize {
        pages.div_ceil(PLACES_A_WORD)
    }

    /// Of the page with number `page`, from what the pager wrote.
    pub(crate) fn read(words: &Words, page: usize) -> Self {
        let word = words[page / PLACES_A_WORD].load(Relaxed);
        let number = (word >> Self::shift(page)) & ((1 << PLACE_BITS) - 1);
        Self::ALL[number as usize]
    }

    const fn shift(page: usize) -> u32 {
        (page % PLACES_A_WORD) as u32 * PLACE_BITS
    }

    fn write(self, words: &Words, page: usize) {
        let bits = (self as u32) << Self::shift(page);
        words[page / PLACES_A_WORD].fetch_or(bits, Relaxed);
    }
}

/// Words that the bits of `pages` pages take.
pub(crate) const fn bit_words(pages: usize) -> usize {
    pages.div_ceil(u32::BITS as usize)
}

/// Bit `page` of what the pager wrote.
pub(crate) fn bit(words: &Words, page: usize) -> bool {
    words[page / 32].load(Relaxed) & (1 << (page % 32)) != 0
}

/// Words that the counters take: two each.
pub(crate) const COUNTS_WORDS: usize = 2 * COUNTERS.len();

/// Words that what became of a subscription's pages takes: what went out and came back, major and minor faults.
pub(crate) const TRAFFIC_WORDS: usize = 8;

/// Number `at` of those that take two words each.
pub(crate) fn wide(words: &Words, at: usize) -> u64 {
    let [low, high] = [2 * at, 2 * at + 1].map(|word| u64::from(words[word].load(Relaxed)));
    low | high << 32
}

fn write_wide(words: &Words, at: usize, value: u64) {
    words[2 * at].store(value as u32, Relaxed);
    words[2 * at + 1].store((value >> 32) as u32, Relaxed);
}

/// The counters from what the pager wrote. Without the sizes of writes.
pub(crate) fn counts(words: &Words) -> Counts {
    let mut counts = Counts::default();
    for (i, definition) in COUNTERS.iter().enumerate() {
        if let Some(counter) = counts.named(definition.name) {
            *counter = wide(words, i);
        }
    }
    counts
}

impl Live {
    /// What the managed pages of the range hold may be dropped, until they are wanted again.
    fn discardable(&mut self, addr: usize, len: usize) -> Result<(), Errno> {
        for (_, range) in self.told_ranges(addr, len)? {
            self.pager.handle(clock::now(), Event::Discardable(range));
            self.drive();
        }
        Ok(())
    }

    /// The program says what it will do with the managed pages of the range.
    fn advise(&mut self, addr: usize, len: usize, advice: Advice) -> Result<(), Errno> {
        for (_, range) in self.told_ranges(addr, len)? {
            self.pager
                .handle(clock::now(), Event::Advise(advice, range));
            self.drive();
        }
        Ok(())
    }

    /// Answers into words that were offered; gives what the call does besides.
    pub(crate) fn tell(&mut self, call: Call) -> Result<usize, Errno> {
        match call {
            Call::Discardable { addr, len } => self.discardable(addr, len).map(|()| 0),
            Call::Wanted { addr, len } => self.wanted(addr, len),
            Call::Places { addr, len } => self.places(addr, len).map(|()| 0),
            Call::Counts => self.counts().map(|()| 0),
            Call::Advise { addr, len, advice } => self.advise(addr, len, advice).map(|()| 0),
            Call::Traffic { addr } => self.traffic(addr).map(|()| 0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What they hold is wanted. Sets the bits of those that were dropped; how many those are.
    fn wanted(&mut self, addr: usize, len: usize) -> Result<usize, Errno> {
        let words = self.calls.take_offer().ok_or(Errno::EAGAIN)?;
        let mut count = 0;
        for (at, range) in self.told_ranges(addr, len)? {
            self.pager.handle(clock::now(), Event::TakeBack(range));
            self.drive();
            let lost = self.taken_back.take();
            for page in lost.iter().flat_map(|lost| lost.iter()) {
                let index = (at - addr) / PAGE_BYTES + (page.raw() - range.start.raw()) as usize;
                let word = words.get(index / 32).ok_or(Errno::EINVAL)?;
                word.fetch_or(1 << (index % 32), Relaxed);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Writes where each page of the range is.
    fn places(&mut self, addr: usize, len: usize) -> Result<(), Errno> {
        let words = self.calls.take_offer().ok_or(Errno::EAGAIN)?;
        if words.len() < Place::words(len / PAGE_BYTES) {
            return Err(Errno::EINVAL);
        }
        let end = whole_pages(addr, len)?;
        let mut next = addr;
        let unmanaged = |from: usize, to: usize| {
            for at in (from..to).step_by(PAGE_BYTES) {
                Place::Unmanaged.write(&words, (at - addr) / PAGE_BYTES);
            }
        };
        for (at, range) in self.told_ranges(addr, len)? {
            unmanaged(next, at);
            for (i, page) in range.iter().enumerate() {
                let place = Place::of(self.pager.state(page));
                place.write(&words, (at - addr) / PAGE_BYTES + i);
            }
            next = at + range.pages as usize * PAGE_BYTES;
        }
        unmanaged(next, end);
        Ok(())
    }

    /// Writes the counters.
    fn counts(&mut self) -> Result<(), Errno> {
        let words = self.calls.take_offer().ok_or(Errno::EAGAIN)?;
        if words.len() < COUNTS_WORDS {
            return Err(Errno::EINVAL);
        }
        self.publish();
        let counts = self.session.counters().read();
        for (i, (_, value)) in counts.each().enumerate() {
            write_wide(&words, i, value);
        }
        Ok(())
    }

    /// Writes what became of the pages of a subscription.
    fn traffic(&mut self, addr: usize) -> Result<(), Errno> {
        let words = self.calls.take_offer().ok_or(Errno::EAGAIN)?;
        self.attend_to_changes();
        let page = self.world.space.at(addr).map(|region| region.page(addr));
        let page = page.ok_or(Errno::EINVAL)?;
        let mut notifiers = self.world.notifiers.iter();
        let found = notifiers.find(|notifier| notifier.is_of(page));
        let notifier = found.ok_or(Errno::EINVAL)?;
        let (told, faults) = (notifier.since_subscribed(), notifier.faults());
        if words.len() < TRAFFIC_WORDS {
            return Err(Errno::EINVAL);
        }
        let figures = [told.out, told.back, faults.major, faults.minor];
        for (i, value) in figures.into_iter().enumerate() {
            write_wide(&words, i, value);
        }
        Ok(())
    }

    /// The managed parts of whole pages: where each begins, and its pages.
    fn told_ranges(&mut self, addr: usize, len: usize) -> Result<Vec<(usize, PageRange)>, Errno> {
        let end = whole_pages(addr, len)?;
        self.attend_to_changes();
        let parts = self.world.space.parts(addr, end);
        let ranges = parts.iter().map(|part| (part.start, part.pages()));
        let ranges = ranges.collect();
        self.world.space.take_list(parts);
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outpage_sys::shared;

    #[test]
    fn places_and_bits_are_read_as_they_were_written() {
        let words = shared::new_words(Place::words(20)).expect("memory");
        for page in 0..20 {
            Place::ALL[page % 6].write(&words, page);
        }
        for page in 0..20 {
            assert_eq!(Place::read(&words, page), Place::ALL[page % 6]);
        }
        assert_eq!((Place::words(8), Place::words(9)), (1, 2));
        assert_eq!((bit_words(32), bit_words(33)), (1, 2));
        let words = shared::new_words(2).expect("memory");
        words[1].store(4, Relaxed);
        let set: Vec<usize> = (0..64).filter(|&page| bit(&words, page)).collect();
        assert_eq!(set, [34]);
    }

    #[test]
    fn counters_come_through_words() {
        let words = shared::new_words(COUNTS_WORDS).expect("memory");
        let third = COUNTERS[2].name;
        words[4].store(7, Relaxed);
        words[5].store(1, Relaxed);
        assert_eq!(counts(&words).named(third).copied(), Some(7 | (1 << 32)));
    }
}
