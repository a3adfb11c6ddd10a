//! How staged pages come back into the program, and which others come along.

use crate::contract::Action;
use crate::page::{COLLECTED, DIRTY, PageId, Pages, Queue, READ_AHEAD, State};
use crate::pager::RUN_PAGES_MAX;
use crate::pager::drops::is_discardable;
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::parts::{Parts, extend};
use crate::readahead::Arrival;
use crate::units::{PageNo, PageRange, SlotNo};

/// Pages that a rescue maps in all, where a stream of slots goes on with pages that are not neighbours: a quarter of the
/// largest default window, so that later touches of a window are still seen. In 7 alternating runs MOC's passes with clusters
/// of 1 took 0.41 and 0.39 s with 16, 0.36 and 0.37 s with 32, 0.34 and 0.33 s with 64; with clusters of 4 0.33, 0.36 and
/// 0.36 s, all within the spread.
const STREAM_ALONG: u64 = 32;

/// So many sampled pages in a row are passed over when pages are mapped along: runs farther apart are not mapped by one
/// call in any case.
const SAMPLED_MAX: u32 = 3;

/// Whether a neighbour is mapped along.
enum Joins {
    /// No, and those beyond it neither.
    Not,
    /// It is.
    Mapped,
    /// It stays staged, so that its touch shows.
    Sampled,
}

/// Maps staged pages.
pub(super) struct Rescue {
    /// Staged neighbours that come along.
    around: u32,
}

impl Rescue {
    /// With up to `around` neighbours, beside those that read-ahead brought.
    pub const fn new(around: u32) -> Self {
        Self { around }
    }

    /// Maps a staged page, with the neighbours that came along by read-ahead and a few others.
    pub fn map_around(&self, ledger: &mut Ledger, id: PageId) -> PageRange {
        self.map_within(ledger, id, RUN_PAGES_MAX, RUN_PAGES_MAX, true)
    }

    /// As [`Self::map_around`], at most `below` pages below the page and `above` above it;
    /// `rescued` says that the page was staged before, not just read. Returns what is being mapped.
    pub fn map_within(
        &self,
        ledger: &mut Ledger,
        id: PageId,
        below: u64,
        above: u64,
        rescued: bool,
    ) -> PageRange {
        let mut others = u64::from(self.around);
        take_for_map(ledger, id);
        let mut parts = Parts::new(ledger.pages.number(id));
        self.map_towards(ledger, &mut parts, above, PageNo::checked_add, &mut others);
        self.map_towards(ledger, &mut parts, below, PageNo::checked_sub, &mut others);
        let along = u64::from(self.around) - others;
        ledger.stats.rescues += along + u64::from(rescued);
        // In order, so that they leave in order, and their slots are in order too.
        for &part in parts.sorted() {
            map(ledger, part);
        }
        parts.hull()
    }

    /// Adds up to `most` neighbours to the first of `parts`, on the side to which `step` leads, as far as they may be mapped
    /// along. Pages that stay staged as a sample are passed over.
    fn map_towards(
        &self,
        ledger: &mut Ledger,
        parts: &mut Parts,
        most: u64,
        step: fn(PageNo, u64) -> Option<PageNo>,
        others: &mut u64,
    ) {
        let (page, mut skipped) = (parts.page(), 0);
        parts.back_to_first();
        for n in 1..=most {
            let Some(next) = step(page, n).filter(|_| parts.has_room()) else {
                return;
            };
            match self.joins_map(ledger, next, others) {
                Joins::Not => return,
                Joins::Mapped => {
                    parts.add(next);
                    skipped = 0;
                }
                Joins::Sampled if skipped == SAMPLED_MAX => return,
                Joins::Sampled => skipped += 1,
            }
        }
    }

    fn joins_map(&self, ledger: &mut Ledger, page: PageNo, others: &mut u64) -> Joins {
        let Some(id) = ledger.pages.place(page) else {
            return Joins::Not;
        };
        let entry = ledger.pages.entry(id);
        if entry.state() != State::Staged || entry.has(COLLECTED) {
            return Joins::Not;
        }
        let was_read = entry.has(READ_AHEAD);
        if entry.queue() == Queue::Watched && !was_read && !ledger.is_awaited(page) {
            return Joins::Sampled;
        }
        if was_read {
            let slot = entry.slot;
            if ledger.ahead.arrival == Arrival::Staged {
                return Joins::Not;
            }
            if ledger.ahead.samples(page, slot) {
                return Joins::Sampled;
            }
            ledger.stats.read_ahead_mapped += 1;
            ledger.objects.of(page).mapped += 1;
        } else if *others == 0 && !ledger.is_awaited(page) {
            return Joins::Not;
        } else {
            *others = others.saturating_sub(1);
        }
        take_for_map(ledger, id);
        Joins::Mapped
    }

    /// As [`Self::map_around`] for a page that read-ahead brought, with others of its stream.
    pub fn map_with_stream(&self, ledger: &mut Ledger, id: PageId) {
        let run = self.map_around(ledger, id);
        if ledger.ahead.arrival == Arrival::Mapped {
            map_stream(ledger, id, run, STREAM_ALONG.saturating_sub(run.pages));
        }
    }
}

/// Maps up to `left` pages that read-ahead brought from the slots next to those of `around`, which holds page `id`:
/// a program that skips pages touches them next, for slots are in the order in which pages left.
fn map_stream(ledger: &mut Ledger, id: PageId, around: PageRange, mut left: u64) {
    for step in [1, -1] {
        let mut at = last_slot(&ledger.pages, id, around, step);
        let mut run: Option<PageRange> = None;
        while left > 0 {
            let Some(next) = at.0.checked_add_signed(step).map(SlotNo) else {
                break;
            };
            let ahead = ledger.pages.ahead_in_slot(next);
            let Some(id) = ahead.filter(|&id| in_stream(&ledger.pages, id)) else {
                break;
            };
            (at, left) = (next, left - 1);
            let page = ledger.pages.number(id);
            if ledger.ahead.samples(page, next) {
                continue;
            }
            ledger.stats.read_ahead_mapped += 1;
            ledger.objects.of(page).mapped += 1;
            take_for_map(ledger, id);
            if let Some(full) = extend(&mut run, page) {
                map(ledger, full);
            }
        }
        if let Some(last) = run {
            map(ledger, last);
        }
    }
}

/// How far slots go on from that of page `id`, by `step`, as pages go on in `run`, in either direction.
fn last_slot(pages: &Pages, id: PageId, run: PageRange, step: i32) -> SlotNo {
    let (page, slot) = (pages.number(id).raw(), pages.slot(id));
    let follow = |by: i64| {
        let next = |at: SlotNo, raw: u64| {
            let page = PageNo::from_raw(raw.checked_add_signed(by)?);
            let slot = SlotNo(at.0.checked_add_signed(step)?);
            let there = run.contains(page) && pages.slot(pages.find(page)?) == slot;
            there.then_some((slot, page.raw()))
        };
        let (mut slot, mut page) = (slot, page);
        while let Some(more) = next(slot, page) {
            (slot, page) = more;
        }
        slot
    };
    let (up, down) = (follow(1), follow(-1));
    if up == slot { down } else { up }
}

fn in_stream(pages: &Pages, id: PageId) -> bool {
    pages.state(id) == State::Staged && pages.has(id, READ_AHEAD) && !pages.has(id, COLLECTED)
}

/// Maps staged pages, in their order, which somebody needs soon.
pub(super) fn map_staged(ledger: &mut Ledger, ids: &[PageId]) {
    let mut run: Option<PageRange> = None;
    for &id in ids {
        let page = ledger.pages.number(id);
        if ledger.pages.has(id, READ_AHEAD) {
            ledger.stats.read_ahead_mapped += 1;
            ledger.objects.of(page).mapped += 1;
        }
        take_for_map(ledger, id);
        if let Some(full) = extend(&mut run, page) {
            map_by(ledger, Kind::MapNeeded, full);
        }
    }
    if let Some(last) = run {
        map_by(ledger, Kind::MapNeeded, last);
    }
}

fn take_for_map(ledger: &mut Ledger, id: PageId) {
    ledger.stats.given_back += u64::from(is_discardable(ledger, id));
    let pages = &mut ledger.pages;
    let entry = pages.advance(id, State::Staged, State::Mapping);
    let (queued, ahead) = (entry.queue() != Queue::None, entry.has(READ_AHEAD));
    let place = Some(entry.slot).filter(|slot| slot.is_pooled());
    if queued {
        pages.unqueue(id);
    }
    if ahead {
        pages.clear_read_ahead(id);
    }
    // Whether the program writes to it is seen when it leaves: until then the pool would hold a frame's part for a page that has a frame.
    if let Some(place) = place {
        let stored = ledger.slots.take_stored(place);
        ledger.give_back_slot(id);
        ledger.pages.set_slot(id, stored);
        // Without a slot it is dirty, should it be refused.
        let dirty = ledger.pages.has(id, DIRTY) || !stored.is_some();
        ledger.pages.set_flag(id, DIRTY, dirty);
    }
}

fn map(ledger: &mut Ledger, run: PageRange) {
    map_by(ledger, Kind::Map, run);
}

fn map_by(ledger: &mut Ledger, kind: Kind, run: PageRange) {
    let id = ledger.start(kind, run);
    let absent_below = ledger.absent_below(run);
    ledger.actions.push_back(Action::Map {
        id,
        run,
        absent_below,
    });
}
