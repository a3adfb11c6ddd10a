//! A program hears of pages before they leave: they were taken out of its memory, and their frames still have their bytes.
//!
//! They are told of by an area as `docs/notify.md` has it, in which a page that is "out" is one that leaves, or left:
//! who listens late hears of it all the same. The word behind that area is the bell of who listens. The pager rings, and never waits.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use outpage_core::contract::PageOutcome;
use outpage_core::notify::Guest;
use outpage_core::units::{PAGE_BYTES, PageRange};
use outpage_sys::futex::{self, Scope};
use outpage_sys::shared::Words;

use crate::notify::Notifier;

/// What a program hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topic {
    /// Pages that went out and came back.
    Out,
    /// Pages that are about to leave.
    Leaving,
}

impl Topic {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Out, Self::Leaving];
}

/// What the bell says: somebody looks, or will before sleeping.
const AWAKE: u32 = 0;
/// Somebody sleeps, and is to be woken.
const ASLEEP: u32 = 1;
/// Nobody is to listen any more.
const ENDED: u32 = 2;

/// Words of the bell.
pub(crate) const BELL_WORDS: usize = 1;

/// The pager's side: who is told.
#[derive(Default)]
pub(crate) struct Listeners(Vec<Notifier>);

impl Listeners {
    /// All of them.
    pub(crate) const fn all(&mut self) -> &mut Vec<Notifier> {
        &mut self.0
    }

    /// Pages of `run` were taken out of the program, as far as they fared so.
    pub(crate) fn taken(&mut self, run: PageRange, fared: &[PageOutcome]) {
        for listener in &mut self.0 {
            let taken = run.iter().zip(fared);
            for (page, _) in
                taken.filter(|(_, fared)| matches!(fared, PageOutcome::Detached { .. }))
            {
                // Where its end was not heard of it would not be told of anew.
                listener.paged_in(page);
                listener.paged_out(page);
            }
        }
    }

    /// Pages of `run` are in the program again, as far as they fared so.
    pub(crate) fn came_back(&mut self, run: PageRange, fared: &[PageOutcome]) {
        for listener in &mut self.0 {
            let back = run.iter().zip(fared);
            back.filter(|(_, fared)| **fared == PageOutcome::Done)
                .for_each(|(page, _)| listener.paged_in(page));
        }
    }

    /// Wakes who sleeps and was told of something.
    pub(crate) fn ring(&self) {
        for area in self.0.iter().filter_map(Notifier::area) {
            let bell = bell(area);
            if bell.compare_exchange(ASLEEP, AWAKE, SeqCst, SeqCst).is_ok() {
                futex::wake(bell, 1, Scope::Process);
            }
        }
    }
}

/// The program's side: hears of pages of a range before they leave.
#[derive(Debug)]
pub struct Leaving {
    area: Arc<Words>,
    guest: Guest,
    start: usize,
}

impl Leaving {
    /// Of pages from `start` on, by an area that the pager made.
    pub(crate) const fn new(area: Arc<Words>, guest: Guest, start: usize) -> Self {
        Self { area, guest, start }
    }

    /// Sleeps until pages are about to leave, and hands over the addresses of each run of them, ascending. After thousands that nobody heard of these may be pages
    /// that were on their way earlier. False, with nothing handed over, once [`Ear::close`] was called.
    pub fn wait(&mut self, mut each: impl FnMut(Range<usize>)) -> bool {
        let mut pages = Vec::new();
        while self.bell().load(SeqCst) != ENDED {
            // Before the look: what is told after it rings.
            let _ = self.bell().compare_exchange(AWAKE, ASLEEP, SeqCst, SeqCst);
            let _ = self.guest.drain(&self.area, |page, leaves| {
                if leaves {
                    pages.push(page);
                }
            });
            if !pages.is_empty() {
                let _ = self.bell().compare_exchange(ASLEEP, AWAKE, SeqCst, SeqCst);
                runs(&mut pages, |first, end| {
                    let at = |page: u32| self.start + page as usize * PAGE_BYTES;
                    each(at(first)..at(end));
                });
                return true;
            }
            futex::wait(self.bell(), ASLEEP, None, Scope::Process);
        }
        false
    }

    /// By which another thread ends the listening.
    #[must_use]
    pub fn ear(&self) -> Ear {
        Ear(self.area.clone())
    }

    fn bell(&self) -> &AtomicU32 {
        bell(&self.area)
    }
}

/// Ends a [`Leaving`].
#[derive(Debug)]
pub struct Ear(Arc<Words>);

impl Ear {
    /// The next [`Leaving::wait`], and one that sleeps, returns false.
    pub fn close(&self) {
        let bell = bell(&self.0);
        bell.store(ENDED, SeqCst);
        futex::wake(bell, 1, Scope::Process);
    }
}

/// The last word of an area for listeners.
fn bell(area: &[AtomicU32]) -> &AtomicU32 {
    area.last().expect("an area has words")
}

/// Hands over the runs of `pages`, half-open and ascending, each page once.
fn runs(pages: &mut [u32], mut each: impl FnMut(u32, u32)) {
    pages.sort_unstable();
    let mut pages = pages.iter().copied();
    let Some(mut first) = pages.next() else {
        return;
    };
    let mut last = first;
    for page in pages {
        if page > last + 1 {
            each(first, last + 1);
            first = page;
        }
        last = page;
    }
    each(first, last + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::{Pages, subscription};
    use outpage_core::contract::Refusal;
    use outpage_core::page::ContentHash;
    use outpage_core::units::PageNo;
    use outpage_sys::shared;

    const PAGES: u64 = 100;
    const START: usize = 1 << 40;
    const TAKEN: PageOutcome = PageOutcome::Detached {
        hash: ContentHash([1, 2, 3]),
        zero: false,
    };

    fn pair() -> (Listeners, Leaving) {
        let layout = subscription(PAGES).expect("pages");
        let words = shared::new_words(layout.words() + BELL_WORDS).expect("memory");
        let area = Arc::new(words);
        let pages = Pages::of([run(1000, PAGES)]);
        let notifier = Notifier::subscribed(area.clone(), pages).expect("an area");
        let guest = Guest::attach(&area).expect("an area that was made");
        (Listeners(vec![notifier]), Leaving::new(area, guest, START))
    }

    fn run(first: u64, pages: u64) -> PageRange {
        PageRange::new(PageNo::from_raw(first), pages)
    }

    fn heard(leaving: &mut Leaving) -> Vec<(usize, usize)> {
        let mut heard = Vec::new();
        let page = |at: usize| (at - START) / PAGE_BYTES;
        assert!(leaving.wait(|bytes| heard.push((page(bytes.start), page(bytes.end)))));
        heard
    }

    #[test]
    fn what_was_taken_and_is_not_back_is_heard_of_in_runs() {
        let (mut listeners, mut leaving) = pair();
        let refused = PageOutcome::Refused(Refusal::Busy);
        listeners.taken(run(1010, 4), &[TAKEN, TAKEN, refused, TAKEN]);
        listeners.taken(run(1002, 2), &[TAKEN; 2]);
        listeners.taken(run(1098, 4), &[TAKEN; 4]);
        listeners.came_back(run(1002, 2), &[PageOutcome::Done, refused]);
        assert_eq!(heard(&mut leaving), [(3, 4), (10, 12), (13, 14), (98, 100)]);
        // Of the return of these nobody told.
        listeners.taken(run(1010, 2), &[TAKEN; 2]);
        assert_eq!(heard(&mut leaving), [(10, 12)]);
    }

    #[test]
    fn who_sleeps_is_woken_and_an_end_is_one() {
        let (mut listeners, mut leaving) = pair();
        let ear = leaving.ear();
        let thread = std::thread::spawn(move || {
            let mut pages = 0;
            while leaving.wait(|bytes| pages += bytes.len() / PAGE_BYTES) {}
            pages
        });
        for page in 0..PAGES {
            listeners.taken(run(1000 + page, 1), &[TAKEN]);
            listeners.ring();
            if page % 10 == 0 {
                std::thread::yield_now();
            }
        }
        let area = listeners.0[0].area().expect("an area");
        while bell(area).load(SeqCst) != ASLEEP {
            std::thread::yield_now();
        }
        ear.close();
        assert_eq!(thread.join().ok(), Some(PAGES as usize));
    }

    #[test]
    fn more_than_the_ring_holds_is_heard_of_all_the_same() {
        let (mut listeners, mut leaving) = pair();
        for _ in 0..100 {
            listeners.taken(run(1000, PAGES), &[TAKEN; PAGES as usize]);
        }
        assert_eq!(heard(&mut leaving), [(0, PAGES as usize)]);
        let ear = leaving.ear();
        ear.close();
        assert!(!leaving.wait(|_| panic!("nobody is told any more")));
    }
}
