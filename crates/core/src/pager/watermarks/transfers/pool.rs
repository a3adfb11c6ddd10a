//! Into the pool of compressed pages, out of it, and on to the store.

use super::Transfers;
use crate::contract::{Action, ActionId, PageOutcome, Refusal};
use crate::page::{DIRTY, PageId, Queue, READ_AHEAD, State};
use crate::pager::drops::{gone, outward};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::room;
use crate::pager::streams::{Ahead, REACH_MAX};
use crate::pager::tiering::{Batch, DEMOTIONS_MAX, grant};
use crate::pager::waits::Demand;
use crate::pager::watermarks::eviction::{Eviction, Taken};
use crate::pager::watermarks::rescue::Rescue;
use crate::tier::{Touched, Whence};
use crate::units::{PageNo, PageRange, SlotNo, SlotRange};

const NOWHERE: PageRange = PageRange::new(PageNo::from_raw(0), 0);

impl Transfers {
    /// Compresses the victims of `batch`, if there are any; each has been named by the tier policy.
    pub fn compress(&self, ledger: &mut Ledger, batch: &Batch) {
        if batch.len() == 0 {
            return;
        }
        let mut places = batch.len() as u32;
        let mut found = ledger.slots.alloc_pooled(places);
        if found.is_none()
            && let Some(more) = ledger.slots.extend_pool()
        {
            ledger.pages.add_slots(more);
            found = ledger.slots.alloc_pooled(places);
        }
        while found.is_none() && places > 1 {
            places /= 2;
            found = ledger.slots.alloc_pooled(places);
        }
        match found {
            Some(slots) => compress_to(ledger, batch, slots),
            None => no_place(ledger, batch),
        }
    }

    /// Pages are in the pool, or do not fit into it.
    pub fn compressed(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        rescue: &Rescue,
        op: ActionId,
        outcomes: &[PageOutcome],
    ) {
        let count = ledger.ops[op].count();
        assert!(outcomes.len() == count, "one outcome a page");
        ledger.tier.ends(count);
        // A pool that has no room for any of them has none for the next ones: they would be tried for ever.
        let full = (outcomes.iter()).all(|outcome| !matches!(outcome, PageOutcome::Kept { .. }));
        for (at, &outcome) in outcomes.iter().enumerate() {
            let (id, page) = ledger.ops[op].page(at);
            let entry = ledger.pages.advance(id, State::Writing, State::Staged);
            let policy = ledger.tier.policy.as_mut().expect("a pool");
            match outcome {
                PageOutcome::Kept { bytes } => {
                    entry.set_flag(DIRTY, false);
                    policy.kept(page, bytes);
                    ledger.stats.compressed += 1;
                    ledger.stats.compressed_bytes += u64::from(bytes);
                    eviction.settle(ledger, rescue, id, page, true);
                    continue;
                }
                PageOutcome::Refused(Refusal::Unfit) => {
                    policy.unfit(page);
                    ledger.stats.unfit += 1;
                }
                PageOutcome::Refused(Refusal::NoRoom) => {}
                outcome => panic!("a compression was answered by {outcome:?}"),
            }
            let place = entry.slot;
            leave_place(ledger, id);
            ledger.slots.taken_out(SlotRange::new(place, 1));
            if ledger.is_awaited(page) {
                rescue.map_around(ledger, id);
            } else if full || outcome == PageOutcome::Refused(Refusal::Unfit) {
                eviction.passes_pool(ledger, id);
            } else {
                eviction.reclaim.not_written(&mut ledger.pages, id);
            }
        }
    }

    /// A touch of a page in the pool: takes it out.
    pub fn decompress(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        id: PageId,
        demand: &Demand,
    ) {
        if !eviction.has_frame(ledger) {
            return ledger.wait_for_frame(demand);
        }
        ledger.stats.minor_faults += 1;
        ledger.stats.pool_hits += 1;
        ledger.departed.unpacked(demand.page);
        room::waited(ledger);
        let ahead = ledger.tier.streams.touched(demand.page);
        if let Some(policy) = &mut ledger.tier.policy {
            let how = if ahead.led {
                Touched::Next
            } else {
                Touched::Apart
            };
            policy.hit(demand.page, how);
        }
        let now = ledger.now;
        (ledger.waits).for_page_of(demand.page, demand.waiter, Whence::Pool, now);
        let along = self.decompress_along(ledger, eviction, demand.page, ahead);
        let slots = SlotRange::new(ledger.pages.slot(id), 1);
        take_out(ledger, Kind::Decompress, slots);
        eviction.took_frames(ledger, Taken::Pooled, along + 1);
    }

    /// Where the touch of `page` continues a stream, takes out those that are touched next, before it: so they are mapped with it. How many.
    fn decompress_along(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        page: PageNo,
        ahead: Ahead,
    ) -> usize {
        if ahead.pages == 1 {
            return 0;
        }
        // One frame is that of the page itself.
        let spare = eviction
            .room_to_spare(ledger, ahead.pages)
            .saturating_sub(1);
        let most = spare.min(ahead.pages - 1);
        let step = if ahead.downward {
            PageNo::checked_sub
        } else {
            PageNo::checked_add
        };
        let (mut along, mut last) = (0, page);
        let mut run = SlotRange::new(SlotNo(0), 0);
        for n in 1..=REACH_MAX {
            let next = step(page, n).and_then(|next| ledger.pages.find(next));
            let Some(id) = next.filter(|_| along < most) else {
                break;
            };
            let slot = ledger.pages.slot(id);
            if ledger.pages.state(id) != State::PagedOut {
                continue;
            }
            if !slot.is_pooled() {
                break;
            }
            let page = ledger.pages.number(id);
            if let Some(policy) = &mut ledger.tier.policy {
                policy.hit(page, Touched::Along);
            }
            ledger.departed.comes_along(page);
            (along, last) = (along + 1, page);
            if run.slots > 0 && run.end() == slot {
                run.slots += 1;
                continue;
            }
            if run.slots > 0 {
                take_out(ledger, Kind::Decompress, run);
            }
            run = SlotRange::new(slot, 1);
        }
        if run.slots > 0 {
            take_out(ledger, Kind::Decompress, run);
        }
        ledger.stats.pool_along += along as u64;
        ledger.tier.streams.reached(ahead, last);
        along
    }

    /// Pages are out of the pool: for whoever touched them, or on their way to the store.
    pub fn decompressed(
        &self,
        ledger: &mut Ledger,
        rescue: &Rescue,
        op: ActionId,
        outcomes: Option<&[PageOutcome]>,
    ) {
        let (count, slots) = (ledger.ops[op].count(), ledger.ops[op].slots);
        assert!(
            outcomes.is_none_or(|outcomes| outcomes.len() == count),
            "one outcome a page"
        );
        let demoted = ledger.ops[op].kind == Kind::Demote;
        if demoted {
            ledger.tier.demoting -= count;
        }
        for at in 0..count {
            let (id, page) = ledger.ops[op].page(at);
            match outcomes.map_or(PageOutcome::Done, |outcomes| outcomes[at]) {
                PageOutcome::Done => {}
                PageOutcome::Refused(why @ (Refusal::Damaged | Refusal::Unread)) => {
                    ledger.stats.checksum_errors += u64::from(why == Refusal::Damaged);
                    damaged(ledger, id);
                    continue;
                }
                PageOutcome::Refused(Refusal::Gone) => {
                    ledger.pages.advance(id, State::Reading, State::Staged);
                    leave_place(ledger, id);
                    gone(ledger, id);
                    continue;
                }
                outcome => panic!("a decompression was answered by {outcome:?}"),
            }
            ledger.pages.advance(id, State::Reading, State::Staged);
            leave_place(ledger, id);
            if demoted && !ledger.is_awaited(page) {
                outward(ledger, id);
            } else {
                // Those that come along with the one that is touched are mapped with it.
                ledger.pages.set_read(id, true);
                rescue.map_within(ledger, id, 0, 0, false);
            }
        }
        ledger.slots.taken_out(slots);
    }

    /// Takes the oldest pages out of a pool that has more frames than it may: those that the store has at once, others as far as there are
    /// frames for them.
    pub fn demote(&self, ledger: &mut Ledger, eviction: &mut Eviction) {
        if room::over(ledger) == 0 {
            return;
        }
        let room = DEMOTIONS_MAX.saturating_sub(ledger.tier.demoting);
        if room < DEMOTIONS_MAX / 2 {
            return;
        }
        let writes = self.may_write(ledger);
        let spare = if writes {
            eviction.room_to_spare(ledger, room)
        } else {
            0
        };
        // Where no frame is free, the pool makes way by those that are set aside for it.
        let lends = writes && spare == 0;
        let mut left = if lends { ledger.tier.aside() } else { spare };
        let mut runs = Runs::default();
        // Some may be on their way already.
        let mut looks = 4 * DEMOTIONS_MAX;
        let mut first = None;
        while looks > 0
            && runs.pages < room
            && let Some(slot) = ledger.slots.next_oldest_pooled()
        {
            looks -= 1;
            if first == Some(slot) {
                break;
            }
            first.get_or_insert(slot);
            let id = ledger.pages.in_slot(slot);
            if id.is_none_or(|id| ledger.pages.state(id) != State::PagedOut) {
                continue;
            }
            let stored = ledger.slots.stored_in(slot).is_some();
            if !stored && left == 0 {
                // None younger goes before it that would need a frame.
                ledger.slots.look_again(slot);
                break;
            }
            if !stored {
                left -= 1;
                if lends {
                    ledger.tier.lend(1);
                }
            }
            runs.add(ledger, slot, stored);
        }
        runs.end(ledger);
    }

    /// The pool let go of pages that the store has.
    pub fn ceded(&self, ledger: &mut Ledger, op: ActionId) {
        let slots = ledger.ops[op].slots;
        ledger.tier.demoting -= slots.slots as usize;
        ledger.slots.taken_out(slots);
    }
}

/// Neighbouring places whose pages go to the store in the same way, as they are gathered.
#[derive(Default)]
struct Runs {
    run: Option<SlotRange>,
    stored: bool,
    /// Of all runs.
    pages: usize,
}

impl Runs {
    /// The page in `place` goes too; whether the store has it.
    fn add(&mut self, ledger: &mut Ledger, place: SlotNo, stored: bool) {
        self.pages += 1;
        match &mut self.run {
            Some(run) if run.end() == place && self.stored == stored => run.slots += 1,
            _ => {
                self.end(ledger);
                (self.run, self.stored) = (Some(SlotRange::new(place, 1)), stored);
            }
        }
    }

    /// No more go along with the last ones.
    fn end(&mut self, ledger: &mut Ledger) {
        match self.run.take() {
            Some(run) if self.stored => cede_run(ledger, run),
            Some(run) => demote_run(ledger, run),
            None => {}
        }
    }
}

/// The page is not in its place of the pool any more: it is in its slot of the store, or dirty.
fn leave_place(ledger: &mut Ledger, id: PageId) {
    let stored = ledger.slots.take_stored(ledger.pages.slot(id));
    ledger.pages.set_slot(id, stored);
    ledger.pages.set_flag(id, DIRTY, !stored.is_some());
}

/// What was kept of the page is damaged: it is read, where the store has it.
fn damaged(ledger: &mut Ledger, id: PageId) {
    let stored = ledger.slots.take_stored(ledger.pages.slot(id));
    if stored.is_some() {
        ledger.pages.move_to_slot(id, stored);
        ledger.read_again(id, 0);
    } else {
        ledger.lost(id);
    }
}

/// The store has these pages: they are there from now on.
fn cede_run(ledger: &mut Ledger, run: SlotRange) {
    for place in run.iter() {
        let id = ledger.pages.in_slot(place).expect("a page of the pool");
        let stored = ledger.slots.take_stored(place);
        ledger.pages.move_to_slot(id, stored);
        count_demoted(ledger, ledger.pages.number(id));
    }
    let op = ledger.start(Kind::Cede, NOWHERE);
    let told = ledger.ops.tells_dead(op, run);
    ledger.actions.push_back(told);
}

fn count_demoted(ledger: &mut Ledger, page: PageNo) {
    ledger.stats.demoted += 1;
    ledger.tier.demoting += 1;
    if let Some(policy) = &mut ledger.tier.policy {
        policy.demoted(page);
    }
}

/// Compresses as many of the pages as there are `slots`; the others are the next victims again.
fn compress_to(ledger: &mut Ledger, batch: &Batch, slots: SlotRange) {
    let later = batch.ids().skip(slots.slots as usize);
    later.for_each(|id| ledger.pages.push_first(Queue::Inactive, id));
    let pages = slots.slots as usize;
    let id = ledger.start(Kind::Compress, NOWHERE);
    for (page_id, slot) in batch.ids().zip(slots.iter()) {
        if ledger.tier.takes_all {
            ledger.give_back_slot(page_id);
        }
        let page = ledger.pages.number(page_id);
        ledger.ops[id].add(page_id, page);
        ledger.ops[id].must_have(ledger.pages.hash(page_id));
        let entry = ledger.pages.advance(page_id, State::Staged, State::Writing);
        let stored = entry.slot;
        debug_assert!(
            !(entry.has(DIRTY) && stored.is_some()),
            "a dirty page gave its slot back"
        );
        entry.set_flag(DIRTY, true);
        entry.slot = slot;
        if stored.is_some() {
            ledger.slots.set_stored(slot, stored);
        }
    }
    ledger.tier.begins(pages);
    ledger.ops[id].slots = slots;
    let (told, after) = (ledger.ops.told(id), ledger.ops.release());
    ledger.actions.push_back(Action::Compress {
        id,
        slots,
        pages: told,
        grant: grant(pages) as u32,
        after,
    });
}

/// There is no place in the pool: what is in the store already is clean, the rest goes there.
fn no_place(ledger: &mut Ledger, batch: &Batch) {
    for id in batch.ids() {
        let dirty = ledger.pages.has(id, DIRTY);
        let queue = if dirty { Queue::Outward } else { Queue::Cache };
        ledger.pages.push(queue, id);
    }
}

/// Their frames come back by the write that follows: nothing is earned by taking them.
fn demote_run(ledger: &mut Ledger, run: SlotRange) {
    let op = take_out(ledger, Kind::Demote, run);
    for at in 0..run.slots as usize {
        let (_, page) = ledger.ops[op].page(at);
        count_demoted(ledger, page);
    }
}

/// Asks for the pages in `slots`, each of which is in the pool alone.
fn take_out(ledger: &mut Ledger, kind: Kind, slots: SlotRange) -> ActionId {
    let id = ledger.start(kind, NOWHERE);
    for slot in slots.iter() {
        let page_id = ledger.pages.in_slot(slot).expect("a page of the pool");
        let entry = ledger
            .pages
            .advance(page_id, State::PagedOut, State::Reading);
        debug_assert!(!entry.has(READ_AHEAD), "a page with a frame");
        let page = ledger.pages.number(page_id);
        ledger.ops[id].add(page_id, page);
        ledger.ops[id].must_have(ledger.pages.hash(page_id));
    }
    ledger.ops[id].slots = slots;
    let (pages, after) = (ledger.ops.told(id), ledger.ops.release());
    ledger.actions.push_back(Action::Decompress {
        id,
        slots,
        pages,
        after,
    });
    id
}
