//! A discardable page is marked, taken back or dropped, and one that is no longer mapped is forgotten: what holds for every driver.

use alloc::vec::Vec;

use super::ledger::Ledger;
use super::ops::Kind;
use super::parts::extend;
use crate::contract::{Action, PageList};
use crate::page::{DIRTY, PageId, Queue, State};
use crate::units::{PageNo, PageRange};

/// Whether the page is discardable.
#[inline]
pub(super) fn is_discardable(ledger: &Ledger, id: PageId) -> bool {
    ledger.discarding.marks.marked() > 0
        && ledger.discarding.marks.is_marked(ledger.pages.number(id))
}

/// Whether the page is discardable until the program writes to it.
#[inline]
pub(super) fn is_freed(ledger: &Ledger, id: PageId) -> bool {
    ledger.discarding.marks.marked() > 0
        && ledger.discarding.marks.is_freed(ledger.pages.number(id))
}

/// The page, which is in the program or staged, stays where it is for now: if it is discardable, it may be dropped.
#[inline]
pub(super) fn settled(ledger: &mut Ledger, id: PageId) {
    if ledger.discarding.marks.marked() > 0 {
        ledger.discarding.marks.settled(ledger.pages.number(id));
    }
}

/// The page is no longer mapped: whoever waits for it goes on.
pub(super) fn gone(ledger: &mut Ledger, id: PageId) {
    let page = ledger.pages.number(id);
    ledger.drop_page(id);
    ledger.wake(page);
}

/// Forgets what is in a discardable page, its slot too: the next touch gives zeroes.
pub(super) fn lose(ledger: &mut Ledger, id: PageId) {
    let page = ledger.pages.number(id);
    ledger.drop_page(id);
    ledger.discarding.marks.lose(page);
}

/// A page gets zeroes.
#[inline]
pub(super) fn filled(ledger: &mut Ledger, page: PageNo) {
    let filled = ledger.discarding.marks.filled(page);
    ledger.stats.filled_for_dropped += u64::from(filled);
}

/// A page that is to be written to the store by itself; one that is discardable is not.
pub(super) fn outward(ledger: &mut Ledger, id: PageId) {
    let queue = if is_discardable(ledger, id) {
        Queue::Inactive
    } else {
        Queue::Outward
    };
    ledger.pages.push(queue, id);
}

/// A discardable page is the next to leave, and is as it is until then.
pub(super) fn leaves_first(ledger: &mut Ledger, id: PageId) {
    ledger.pages.unqueue(id);
    ledger.pages.push_first(Queue::Cache, id);
}

/// The pages of `range`, which were gathered, are discardable.
pub(super) fn mark(ledger: &mut Ledger, ids: &[PageId]) {
    if ledger.discarding.policy.is_none() {
        return;
    }
    for &id in ids {
        let page = ledger.pages.number(id);
        match ledger.pages.state(id) {
            State::PagedOut => {
                lose(ledger, id);
                ledger.stats.dropped_in_slots += 1;
                continue;
            }
            // A touch gives a signal, whatever the program wants of it.
            State::Poisoned => continue,
            _ => ledger.discarding.marks.mark(page),
        }
        let queue = ledger.pages.queue(id);
        if ledger.pages.state(id) != State::Staged || queue == Queue::None {
            settled(ledger, id);
        } else if ledger.discarding.leaves_first() {
            leaves_first(ledger, id);
        } else {
            if queue == Queue::Outward {
                ledger.pages.unqueue(id);
                outward(ledger, id);
            }
            settled(ledger, id);
        }
    }
}

/// The pages of `range` are not discardable any more: tells what became of them. Calls `wanted` with each that is to be on another queue,
/// off its own: one that is mapped is in use again, one that is staged is to be written again.
pub(super) fn take_back(
    ledger: &mut Ledger,
    range: PageRange,
    mut wanted: impl FnMut(&mut Ledger, PageId),
) {
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    let mut visit = |page, gone| if gone { &mut lost } else { &mut kept }.push(page);
    ledger.discarding.marks.take_back(range, &mut visit);
    // The order of the leaves depends on when they were made, actions must not.
    kept.sort_unstable();
    lost.sort_unstable();
    // One that was dropped may have been touched and marked again since: it is wanted as any other.
    for (&page, gone) in kept
        .iter()
        .map(|page| (page, false))
        .chain(lost.iter().map(|page| (page, true)))
    {
        let Some(id) = ledger.pages.find(page) else {
            continue;
        };
        let staged = ledger.pages.state(id) == State::Staged;
        ledger.stats.given_back += u64::from(staged && !gone);
        let moves = match ledger.pages.queue(id) {
            Queue::Cache => ledger.pages.has(id, DIRTY),
            Queue::Active | Queue::Second => ledger.discarding.leaves_first() && !gone,
            _ => false,
        };
        if moves {
            ledger.pages.unqueue(id);
            wanted(ledger, id);
        }
    }
    ledger.stats.taken_back_lost += lost.len() as u64;
    let lost = PageList::new(lost, Vec::new());
    ledger.actions.push_back(Action::TakenBack { range, lost });
}

/// Asks for a detach, a flush, which is one, or a drop.
pub(super) fn ask(ledger: &mut Ledger, run: PageRange, kind: Kind) {
    let id = ledger.start(kind, run);
    let absent_below = ledger.absent_below(run);
    ledger.actions.push_back(match kind {
        Kind::Drop => Action::Drop { id, run },
        _ => Action::Detach {
            id,
            run,
            absent_below,
        },
    });
}

/// Pages that leave the program, in runs: those that the program freed are dropped unless it wrote to them, the others are detached.
pub(super) struct Leaving {
    kind: Kind,
    detached: Option<PageRange>,
    freed: Option<PageRange>,
}

impl Leaving {
    /// None so far; `kind` is what becomes of pages that were not freed.
    pub(super) const fn by(kind: Kind) -> Self {
        Self {
            kind,
            detached: None,
            freed: None,
        }
    }

    /// A mapped page, on no queue, is next.
    pub(super) fn add(&mut self, ledger: &mut Ledger, id: PageId) {
        ledger.pages.advance(id, State::Resident, State::Detaching);
        let page = ledger.pages.number(id);
        let (run, kind) = if is_freed(ledger, id) {
            (&mut self.freed, Kind::Drop)
        } else {
            (&mut self.detached, self.kind)
        };
        if let Some(full) = extend(run, page) {
            leave(ledger, full, kind);
        }
    }

    /// That was all of them. False if there was none.
    pub(super) fn end(self, ledger: &mut Ledger) -> bool {
        let runs = [(self.detached, self.kind), (self.freed, Kind::Drop)];
        for (run, kind) in runs {
            if let Some(last) = run {
                leave(ledger, last, kind);
            }
        }
        runs.iter().any(|(run, _)| run.is_some())
    }
}

fn leave(ledger: &mut Ledger, run: PageRange, kind: Kind) {
    ledger.discarding.flushing += usize::from(kind == Kind::Flush);
    ask(ledger, run, kind);
}
