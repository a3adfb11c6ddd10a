//! Victims are out of the program, or not.

use super::Eviction;
use crate::contract::{ActionId, PageOutcome, Refusal};
use crate::page::{Bit, ContentHash, DIRTY, PageId, Pages, Queue, READ_AHEAD, State, ZERO_AROUND};
use crate::pager::drops::{is_discardable, leaves_first, lose, settled, take_back};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::watermarks::advice::cold_first;
use crate::pager::watermarks::faults::Faults;
use crate::pager::watermarks::rescue::Rescue;
use crate::readahead::Arrival;
use crate::reclaim::Mapped;
use crate::units::{PageNo, PageRange, SlotNo, SlotRange};

impl Eviction {
    /// A detach was answered.
    #[inline(never)]
    pub fn detached(
        &mut self,
        ledger: &mut Ledger,
        faults: &mut Faults,
        op: ActionId,
        outcomes: &[PageOutcome],
    ) {
        let run = ledger.ops[op].run;
        let kind = ledger.ops[op].kind;
        let flushed = kind == Kind::Flush;
        ledger.discarding.flushing -= usize::from(flushed);
        assert!(outcomes.len() as u64 == run.pages, "one outcome a page");
        let mut zeroes = None;
        let mut stale = SlotRange::new(SlotNo(0), 0);
        for (page, &outcome) in run.iter().zip(outcomes) {
            let id = ledger.known(page);
            match hashed(&ledger.pages, id, outcome) {
                PageOutcome::Detached { hash, zero } => {
                    ledger.stats.detached += 1;
                    if ledger.pages.has(id, ZERO_AROUND) {
                        faults.zero_around.left(zero);
                        ledger.pages.set_flag(id, ZERO_AROUND, false);
                    }
                    if zero && !ledger.is_awaited(page) {
                        let op = *zeroes.get_or_insert_with(|| ledger.start(Kind::Release, run));
                        ledger.ops[op].add(id, page);
                        ledger.stats.found_zero += 1;
                        ledger.drop_page(id);
                        continue;
                    }
                    if flushed && is_discardable(ledger, id) && !ledger.is_awaited(page) {
                        let op = *zeroes.get_or_insert_with(|| ledger.start(Kind::Release, run));
                        stage(ledger, id, hash, &mut stale);
                        ledger.ops[op].add(id, page);
                        lose(ledger, id);
                        ledger.stats.flushed += 1;
                        continue;
                    }
                    stage(ledger, id, hash, &mut stale);
                    self.settle(ledger, &faults.rescue, id, page, false);
                }
                PageOutcome::Refused(Refusal::Absent | Refusal::Gone) => {
                    ledger.drop_page(id);
                    ledger.wake(page);
                }
                PageOutcome::Refused(_) => {
                    ledger.stats.refused += 1;
                    ledger.pages.set_state(id, State::Resident);
                    // Not to the reclaim policy, which might name it again at once, for ever.
                    ledger.pages.push(Queue::Refused, id);
                    ledger.wake(page);
                }
                outcome
                @ (PageOutcome::Done | PageOutcome::Unhashed | PageOutcome::Kept { .. }) => {
                    panic!("a detach was answered by {outcome:?}")
                }
            }
        }
        ledger.slots.release_run(stale);
        ledger.release(zeroes);
        if kind == Kind::Cold {
            cold_first(ledger, run);
        }
    }

    /// A drop was answered: what is still there is in use again, and is not asked for before it is freed again.
    pub fn dropped(&mut self, ledger: &mut Ledger, op: ActionId, outcomes: &[PageOutcome]) {
        let run = ledger.ops[op].run;
        assert!(outcomes.len() as u64 == run.pages, "one outcome a page");
        let (mut went, mut written) = (0, 0);
        for (page, &outcome) in run.iter().zip(outcomes) {
            let id = ledger.known(page);
            match outcome {
                PageOutcome::Done | PageOutcome::Refused(Refusal::Absent | Refusal::Gone) => {
                    ledger.stats.freed_dropped += 1;
                    went += 1;
                    lose(ledger, id);
                }
                PageOutcome::Refused(_) => {
                    ledger.stats.freed_kept += 1;
                    written += 1;
                    ledger.discarding.marks.forget(page);
                    ledger.pages.set_state(id, State::Resident);
                    (self.reclaim).mapped(&mut ledger.pages, id, Mapped::Rescued);
                }
                outcome => panic!("a drop was answered by {outcome:?}"),
            }
            ledger.wake(page);
        }
        ledger.discarding.dropped(went, written);
    }

    /// The pages of `range` are wanted again.
    pub fn take_back(&mut self, ledger: &mut Ledger, range: PageRange) {
        take_back(ledger, range, |ledger, id| {
            if ledger.pages.state(id) == State::Resident {
                (self.reclaim).mapped(&mut ledger.pages, id, Mapped::Rescued);
            } else {
                self.reclaim.detached(&mut ledger.pages, id);
            }
        });
    }

    /// A staged page goes to its queue, or back to whoever waits for it.
    pub fn settle(
        &mut self,
        ledger: &mut Ledger,
        rescue: &Rescue,
        id: PageId,
        page: PageNo,
        cleaned: bool,
    ) {
        if ledger.is_awaited(page) {
            rescue.map_around(ledger, id);
        } else {
            self.park(ledger, id, cleaned);
        }
    }

    /// A staged page that nobody waits for goes to its queue.
    pub fn park(&mut self, ledger: &mut Ledger, id: PageId, cleaned: bool) {
        if is_discardable(ledger, id) {
            if ledger.discarding.leaves_first() {
                return leaves_first(ledger, id);
            }
            settled(ledger, id);
        }
        if ledger.pages.has(id, READ_AHEAD) {
            self.reclaim.read_ahead(&mut ledger.pages, id);
            if ledger.ahead.arrival == Arrival::Mapped {
                ledger.pages.find_ahead_by_slot(id);
            }
        } else if cleaned {
            self.reclaim.cleaned(&mut ledger.pages, id);
        } else {
            self.reclaim.detached(&mut ledger.pages, id);
        }
    }
}

/// Of a page whose bits are all that tells of its content, a count of the times that it was found written
/// stands for a hash, and no such time for zeroes.
fn hashed(pages: &Pages, id: PageId, outcome: PageOutcome) -> PageOutcome {
    if outcome != PageOutcome::Unhashed {
        return outcome;
    }
    let mut hash = pages.hash(id);
    if pages.bit(id, Bit::Modified) {
        hash.0[0] = hash.0[0].wrapping_add(1).max(1);
    }
    let zero = hash == ContentHash::default();
    PageOutcome::Detached { hash, zero }
}

/// Clean if the content is still that of the slot; otherwise the slot is stale, and is given back
/// with its neighbours in `stale`.
fn stage(ledger: &mut Ledger, id: PageId, hash: ContentHash, stale: &mut SlotRange) {
    let entry = ledger.pages.advance(id, State::Detaching, State::Staged);
    let slot = entry.slot;
    let clean = slot.is_some() && { entry.hash } == hash;
    entry.set_flag(DIRTY, !clean);
    if clean {
        ledger.stats.found_clean += 1;
        return;
    }
    (entry.slot, entry.hash) = (SlotNo::NONE, hash);
    if slot.is_some() && slot == stale.end() {
        stale.slots += 1;
    } else if slot.is_some() {
        let run = core::mem::replace(stale, SlotRange::new(slot, 1));
        ledger.slots.release_run(run);
    }
}
