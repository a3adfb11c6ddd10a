//! Discardable pages leave: in place of a write, ahead of it, when the program asks, or before all others.

use crate::contract::ActionId;
use crate::page::{COLLECTED, DIRTY, PageId, Queue, State};
use crate::pager::drops::{Leaving, is_discardable, leaves_first, lose, mark};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::range::Ranges;
use crate::units::{PageNo, PageRange};

/// The discardable pages that one scan drops.
#[derive(Default)]
pub(super) struct Drops {
    release: Option<ActionId>,
    /// Dropped in place of a write.
    pages: usize,
}

impl Drops {
    /// A staged page that was taken off its queue to be written.
    pub fn in_place_of_write(&mut self, ledger: &mut Ledger, id: PageId) {
        if ledger.discarding.leaves_first() {
            return leaves_first(ledger, id);
        }
        self.pages += 1;
        ledger.stats.dropped_for_write += 1;
        self.drop(ledger, id);
    }

    fn drop(&mut self, ledger: &mut Ledger, id: PageId) {
        let nowhere = PageRange::new(PageNo::from_raw(0), 0);
        let op = *(self.release).get_or_insert_with(|| ledger.start(Kind::Release, nowhere));
        let page = ledger.pages.number(id);
        ledger.ops[op].add(id, page);
        lose(ledger, id);
    }

    /// The scan is over; it sent so many victims: others are dropped with them and with those dropped in their place.
    pub fn with_victims(mut self, ledger: &mut Ledger, sent: usize) {
        let ahead = ledger.discarding.ahead();
        if ahead > 0 && sent + self.pages > 0 {
            self.flush_ready(ledger, ahead);
        }
        ledger.release(self.release);
    }

    fn flush_ready(&mut self, ledger: &mut Ledger, most: usize) {
        let (mut left, mut leaving) = (most, Leaving::by(Kind::Flush));
        while left > 0
            && let Some(page) = ledger.discarding.marks.next_ready()
        {
            let id = ledger.known(page);
            left -= usize::from(self.flush(ledger, &mut leaving, id));
        }
        leaving.end(ledger);
    }

    /// Drops the page: at once if it is staged, with those that are `leaving` once it is out of the program. Not if something else is done with it.
    fn flush(&mut self, ledger: &mut Ledger, leaving: &mut Leaving, id: PageId) -> bool {
        match ledger.pages.state(id) {
            State::Resident => {
                ledger.pages.unqueue(id);
                leaving.add(ledger, id);
            }
            State::Staged if !ledger.pages.has(id, COLLECTED) => {
                ledger.stats.flushed += 1;
                self.drop(ledger, id);
            }
            _ => return false,
        }
        true
    }
}

impl Ranges {
    /// What is in the touched pages of `range` may be dropped.
    pub fn mark(&mut self, ledger: &mut Ledger, range: PageRange) {
        if ledger.discarding.policy.is_none() {
            return;
        }
        let ids = self.gather(&ledger.pages, range);
        mark(ledger, &ids);
        self.put_back(ids);
    }

    /// The program asks for its discardable pages of `range` to be dropped.
    pub fn flush(&mut self, ledger: &mut Ledger, range: PageRange) {
        if !ledger.discarding.follows() {
            return;
        }
        let ids = self.gather(&ledger.pages, range);
        let mut drops = Drops::default();
        let mut leaving = Leaving::by(Kind::Flush);
        for &id in &ids {
            if is_discardable(ledger, id) {
                drops.flush(ledger, &mut leaving, id);
            }
        }
        leaving.end(ledger);
        self.put_back(ids);
        ledger.release(drops.release);
    }

    /// The program frees `range`: what it does not have of it is dropped, frames and slots. The rest is as it is before [`Self::freed`].
    pub fn freeing(&mut self, ledger: &mut Ledger, range: PageRange) {
        if ledger.discarding.policy.is_none() {
            return;
        }
        ledger.discarding.marks.drop_range(range);
        let ids = self.gather(&ledger.pages, range);
        let mut op = None;
        for &id in &ids {
            let page = ledger.pages.number(id);
            match ledger.pages.state(id) {
                State::Resident => continue,
                State::PagedOut | State::Poisoned => {}
                State::Staged => {
                    let op = *op.get_or_insert_with(|| ledger.start(Kind::Release, range));
                    ledger.ops[op].add(id, page);
                }
                busy => panic!("{page:?} freed while {busy:?}"),
            }
            ledger.drop_page(id);
            ledger.stats.discarded += 1;
        }
        self.put_back(ids);
        ledger.release(op);
        ledger.wake_whose_page_is_gone(range);
    }

    /// What the program has of `range` may be dropped until it writes there. What left since it was freed was written then, and is a page like others.
    pub fn freed(&mut self, ledger: &mut Ledger, range: PageRange) {
        if ledger.discarding.policy.is_none() {
            return;
        }
        let ids = self.gather(&ledger.pages, range);
        for &id in &ids {
            if ledger.pages.state(id) == State::Resident {
                ledger.discarding.marks.free(ledger.pages.number(id));
                ledger.stats.freed += 1;
            }
        }
        self.put_back(ids);
    }
}

/// A discardable page leaves for good. Its frame is released by the caller.
pub(super) fn drop_discardable(ledger: &mut Ledger, id: PageId) {
    if ledger.pages.has(id, DIRTY) {
        ledger.stats.dropped_for_write += 1;
    } else {
        ledger.stats.dropped_clean += 1;
    }
    lose(ledger, id);
}

/// Detaches up to `most` discardable pages that are mapped, as far as is known, or asks for them to be dropped. How many.
pub(super) fn detach_discardable(ledger: &mut Ledger, most: usize) -> usize {
    let (mut leaving, mut pages) = (Leaving::by(Kind::Detach), 0);
    while pages < most
        && ledger.discarding.first_is_ready()
        && let Some(page) = ledger.discarding.marks.next_ready()
    {
        let id = ledger.known(page);
        if ledger.pages.state(id) == State::Resident {
            ledger.pages.unqueue(id);
            leaving.add(ledger, id);
            pages += 1;
        }
    }
    leaving.end(ledger);
    pages
}

/// Whether the next page to leave is a discardable one that is staged.
fn first_is_staged(ledger: &Ledger) -> bool {
    let first = ledger.pages.head(Queue::Cache);
    first.is_some_and(|first| is_discardable(ledger, first))
}

/// Whether discardable pages are to be staged: those that were are used up, and frames are.
pub(super) fn first_is_due(ledger: &Ledger) -> bool {
    ledger.discarding.first_is_ready()
        && ledger.frames_free() < ledger.limits.clean_low
        && ledger.pages.count(State::Detaching) == 0
        && !first_is_staged(ledger)
}

/// Stages discardable pages ahead of demand, as many as are to be nearly free.
pub(super) fn stage_first(ledger: &mut Ledger) {
    if first_is_due(ledger) {
        let most = ledger.limits.clean_low.max(ledger.limits.detach_batch);
        detach_discardable(ledger, most);
    }
}

/// Whether a discardable page is left that is to leave before any is written.
pub(super) fn first_is_left(ledger: &Ledger) -> bool {
    ledger.discarding.first_is_ready()
        || ledger.discarding.leaves_first() && first_is_staged(ledger)
}
