//! The pool of compressed pages and the frames it shares with the pages: who may have how many.

use super::ledger::Ledger;
use super::ops::Kind;
use super::tiering::{COMPRESS_PAGES, DEMOTIONS_MAX, grant};
use crate::contract::Action;
use crate::page::{PageId, Queue, State};
use crate::tier::Sight;
use crate::units::{PageNo, PageRange};

/// A store that cannot grow counts as full with fewer free slots: those are left to pages that do not compress. A choice: two of the largest writes.
const SLOTS_MIN: usize = 2 * DEMOTIONS_MAX;
/// It does until one slot is free for so many in use, so that pages do not go to it and to the pool by turns. A choice.
const FULL_PART: usize = 8;

/// Whether the victim belongs into the pool.
pub(super) fn pools(ledger: &mut Ledger, id: PageId) -> bool {
    let page = ledger.pages.number(id);
    let takes_all = ledger.tier.takes_all;
    let policy = ledger.tier.policy.as_mut();
    policy.is_some_and(|policy| policy.pools(page) || takes_all)
}

/// Whether the store is full or nearly so: then the pool has to take what it can.
fn store_is_full(ledger: &Ledger) -> bool {
    let least = match ledger.tier.takes_all {
        true => SLOTS_MIN + ledger.slots.used() / FULL_PART,
        false => SLOTS_MIN,
    };
    ledger.swap_full && (ledger.slots.available() as usize) < least
}

/// Whether one more compression may be under way: there are frames for it, and the pool has not much more than it may.
pub(super) fn may_compress(ledger: &Ledger) -> bool {
    ledger.tier.may_compress()
        && left(ledger) >= grant(COMPRESS_PAGES)
        && over(ledger) <= DEMOTIONS_MAX
}

/// Frames that the pool has above what it may. Those of pages that cannot leave are not to be had by either.
pub(super) fn over(ledger: &Ledger) -> usize {
    let refused = ledger.pages.queued(Queue::Refused);
    (ledger.tier).over(ledger.limits.frames.saturating_sub(refused))
}

/// Somebody waits for a page that left: now and then the pool's part is weighed.
pub(super) fn waited(ledger: &mut Ledger) {
    let Some(beyond) = &ledger.departed.beyond else {
        return;
    };
    let frames = ledger.limits.frames;
    if !ledger.tier.is_due(frames) {
        return;
    }
    let sight = Sight {
        frames,
        pool: ledger.tier.frames(),
        staged: ledger.pages.count(State::Staged),
        rescued: ledger.tier.rescued,
        costs: ledger.tier.costs,
        near: &ledger.departed.counts,
        far: &beyond.counts,
    };
    if let Some(policy) = &mut ledger.tier.policy {
        policy.weigh(&sight);
    }
}

/// Frames that are not in use, those that are kept for the pool among them.
pub(super) fn left(ledger: &Ledger) -> usize {
    ledger.limits.frames.saturating_sub(ledger.frames_used())
}

/// After an event: frames that pages of the pool were lent are set aside again. What the pool has takes no slots of a store that is full: pages that are
/// nowhere else need them.
pub(super) fn settle(ledger: &mut Ledger) {
    let (used, frames) = (ledger.frames_used(), ledger.limits.frames);
    ledger.tier.settle(used, frames);
    ledger.tier.takes_all = store_is_full(ledger);
    if ledger.tier.takes_all {
        ledger.slots.forget_stored();
    }
}

/// Tells which places of the pool are dead, all of them: until then each takes its part of a frame.
pub(super) fn tell_dead(ledger: &mut Ledger) {
    while let Some(slots) = ledger.slots.next_dead_pooled() {
        let id = ledger.start(Kind::Dead, PageRange::new(PageNo::from_raw(0), 0));
        let told = ledger.ops.tells_dead(id, slots);
        ledger.actions.push_back(told);
    }
}

/// Gives up room of the store that is not needed, an extent at a time. While more is asked for there is none. Whoever has given some up may ask for more again, though
/// there was none before.
pub(super) fn shrink(ledger: &mut Ledger) {
    if ledger.growing {
        return;
    }
    if let Some(slots) = ledger.slots.give_up() {
        let after = ledger.ops.dead();
        ledger.swap_full = false;
        ledger.actions.push_back(Action::Shrink { slots, after });
    }
}
