//! What follows when an action is answered.

use super::{Kind, Pager};
use crate::contract::{Action, ActionId, IoFailure, PageOutcome, Refusal};
use crate::page::{Bit, ContentHash, DIRTY, PageId, Queue, READ_AHEAD, State, ZERO_AROUND};
use crate::readahead::Arrival;
use crate::reclaim::Mapped;
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};

/// Times that a page is read again before it counts as lost: an error on the way may pass, one on
/// the medium does not. At once, for drivers have waited and tried again before they report an error
/// (`SD_MAX_RETRIES` in drivers/scsi/sd.h and `nvme_core.max_retries`: 5 times).
const READ_TRIES: u8 = 4;

impl Pager {
    /// Zero-filled or rescued pages are in the program, or not.
    pub(super) fn mapped(&mut self, op: ActionId, outcomes: &[PageOutcome], fresh: bool) {
        let run = self.ops[op].run;
        assert!(outcomes.len() as u64 == run.pages, "one outcome a page");
        for (page, outcome) in run.iter().zip(outcomes) {
            let id = self.known(page);
            let how = if fresh {
                Mapped::Fresh
            } else {
                Mapped::Rescued
            };
            match outcome {
                PageOutcome::Done | PageOutcome::Refused(Refusal::Present) => {
                    self.pages.advance(id, State::Mapping, State::Resident);
                    self.reclaim.mapped(&mut self.pages, id, how);
                    self.join_neighbour(id);
                    self.wake_first(page);
                }
                PageOutcome::Refused(Refusal::Gone | Refusal::Absent) => {
                    self.drop_page(id);
                    self.wake(page);
                }
                PageOutcome::Refused(Refusal::Busy) if !fresh => {
                    self.pages.set_state(id, State::Staged);
                    self.reclaim.detached(&mut self.pages, id);
                    self.wake(page);
                }
                PageOutcome::Refused(Refusal::Busy) => {
                    self.drop_page(id);
                    self.wake(page);
                }
                outcome => panic!("a mapping was answered by {outcome:?}"),
            }
        }
    }

    /// Victims are out of the program, or not.
    #[inline(never)]
    pub(super) fn detached(&mut self, op: ActionId, outcomes: &[PageOutcome]) {
        let run = self.ops[op].run;
        assert!(outcomes.len() as u64 == run.pages, "one outcome a page");
        let mut zeroes = None;
        let mut stale = SlotRange::new(SlotNo(0), 0);
        for (page, &outcome) in run.iter().zip(outcomes) {
            let id = self.known(page);
            match self.hashed(id, outcome) {
                PageOutcome::Detached { hash, zero } => {
                    self.stats.detached += 1;
                    if self.pages.has(id, ZERO_AROUND) {
                        self.zero_around.left(zero);
                        self.pages.set_flag(id, ZERO_AROUND, false);
                    }
                    if zero && !self.is_awaited(page) {
                        let op = *zeroes.get_or_insert_with(|| self.start(Kind::Release, run));
                        self.ops[op].add(id, page);
                        self.stats.found_zero += 1;
                        self.drop_page(id);
                        continue;
                    }
                    self.staged(id, page, hash, &mut stale);
                }
                PageOutcome::Refused(Refusal::Absent | Refusal::Gone) => {
                    self.drop_page(id);
                    self.wake(page);
                }
                PageOutcome::Refused(_) => {
                    self.stats.refused += 1;
                    self.pages.set_state(id, State::Resident);
                    // Not to the reclaim policy, which might name it again at once, for ever.
                    self.pages.push(Queue::Refused, id);
                    self.wake(page);
                }
                PageOutcome::Done | PageOutcome::Unhashed => {
                    panic!("a detach was answered as a mapping")
                }
            }
        }
        self.slots.release_run(stale);
        if let Some(id) = zeroes {
            let release = self.ops.releases(id);
            self.actions.push_back(release);
        }
    }

    /// Of a page whose bits are all that tells of its content, a count of the times that it was found written
    /// stands for a hash, and no such time for zeroes.
    fn hashed(&self, id: PageId, outcome: PageOutcome) -> PageOutcome {
        if outcome != PageOutcome::Unhashed {
            return outcome;
        }
        let mut hash = self.pages.hash(id);
        if self.pages.bit(id, Bit::Modified) {
            hash.0[0] = hash.0[0].wrapping_add(1).max(1);
        }
        let zero = hash == ContentHash::default();
        PageOutcome::Detached { hash, zero }
    }

    /// Clean if the content is still that of the slot; otherwise the slot is stale, and is given back
    /// with its neighbours in `stale`.
    fn staged(&mut self, id: PageId, page: PageNo, hash: ContentHash, stale: &mut SlotRange) {
        let entry = self.pages.advance(id, State::Detaching, State::Staged);
        let slot = entry.slot;
        let clean = slot.is_some() && { entry.hash } == hash;
        entry.set_flag(DIRTY, !clean);
        if clean {
            self.stats.found_clean += 1;
        } else {
            (entry.slot, entry.hash) = (SlotNo::NONE, hash);
            if slot.is_some() && slot == stale.end() {
                stale.slots += 1;
            } else if slot.is_some() {
                let run = core::mem::replace(stale, SlotRange::new(slot, 1));
                self.slots.release_run(run);
            }
        }
        self.settle(id, page, false);
    }

    /// A staged page goes to its queue, or back to whoever waits for it.
    fn settle(&mut self, id: PageId, page: PageNo, cleaned: bool) {
        if self.is_awaited(page) {
            self.map_around(id);
        } else {
            self.park(id, cleaned);
        }
    }

    /// A staged page that nobody waits for goes to its queue.
    fn park(&mut self, id: PageId, cleaned: bool) {
        if self.pages.has(id, READ_AHEAD) {
            self.reclaim.read_ahead(&mut self.pages, id);
            if self.manner.arrival == Arrival::Mapped {
                self.pages.find_ahead_by_slot(id);
            }
        } else if cleaned {
            self.reclaim.cleaned(&mut self.pages, id);
        } else {
            self.reclaim.detached(&mut self.pages, id);
        }
    }

    pub(super) fn give_back_slot(&mut self, id: PageId) {
        let slot = self.pages.slot(id);
        if slot.is_some() {
            self.slots.release(slot);
            self.pages.set_slot(id, SlotNo::NONE);
        }
    }

    /// Forgets a page whose content is not wanted or not there.
    pub(super) fn drop_page(&mut self, id: PageId) {
        let read_ahead = self.pages.has(id, READ_AHEAD);
        self.stats.read_ahead_dropped += u64::from(read_ahead);
        if let Some(governor) = &mut self.governor {
            governor.dropped(self.pages.number(id), read_ahead);
        }
        self.pages.unqueue(id);
        let slot = self.pages.slot(id);
        self.pages.forget(id);
        if slot.is_some() {
            self.slots.release(slot);
        }
    }

    /// Pages were read; a damaged one is as good as unread. Without `outcomes` all are intact.
    pub(super) fn paged_in(&mut self, op: ActionId, outcomes: Option<&[PageOutcome]>) {
        let count = self.ops[op].count();
        assert!(
            outcomes.is_none_or(|outcomes| outcomes.len() == count),
            "one outcome a page"
        );
        let mut awaited = count;
        for at in 0..count {
            let (id, page) = self.ops[op].page(at);
            match outcomes.map_or(PageOutcome::Done, |outcomes| outcomes[at]) {
                PageOutcome::Done => {}
                PageOutcome::Refused(Refusal::Damaged) => {
                    self.stats.checksum_errors += 1;
                    let tries = self.ops[op].tries;
                    self.read_again(id, tries);
                    continue;
                }
                outcome => panic!("a page-in was answered by {outcome:?}"),
            }
            let entry = self.pages.advance(id, State::Reading, State::Staged);
            entry.set_flag(DIRTY, false);
            if self.is_awaited(page) {
                awaited = awaited.min(at);
            } else {
                // A demanded page whose waiter left is a page like any other.
                self.park(id, true);
            }
        }
        if awaited < count
            && let Some(governor) = &mut self.governor
        {
            let took = self.now.0 - self.ops[op].began.0;
            governor.read_took(count as u32, Nanos(took));
        }
        for at in awaited..count {
            let (id, page) = self.ops[op].page(at);
            if self.is_awaited(page) && self.pages.state(id) == State::Staged {
                // Not beyond this read: the first touch of the next window is what keeps its
                // stream going, and must be seen.
                let (below, above) = match self.manner.arrival {
                    Arrival::Mapped => neighbours(self.ops[op].pages(), at),
                    Arrival::Staged => (0, 0),
                };
                self.map_within(id, below, above, false);
            }
        }
    }

    /// The store could not give the pages back. Each one may still be read by itself, so that
    /// one bad slot does not cost its neighbours.
    pub(super) fn page_in_failed(&mut self, op: ActionId) {
        self.stats.read_errors += 1;
        let tries = self.ops[op].tries;
        let ids = self.ops[op].lend_ids();
        for &id in &ids {
            self.read_again(id, tries);
        }
        self.ops[op].return_ids(ids);
    }

    /// Reads one page once more, unless that was tried often enough.
    fn read_again(&mut self, id: PageId, tries: u8) {
        if tries >= READ_TRIES {
            return self.lost(id);
        }
        let (page, slots) = (
            self.pages.number(id),
            SlotRange::new(self.pages.slot(id), 1),
        );
        let op = self.start(Kind::PageIn, PageRange::one(page));
        (self.ops[op].slots, self.ops[op].tries) = (slots, tries + 1);
        let hash = self.pages.hash(id);
        self.ops[op].add(id, page);
        self.ops[op].must_have(hash);
        self.stats.page_in_reads += 1;
        let (pages, after) = (self.ops.told(op), self.ops.release());
        self.actions.push_back(Action::PageIn {
            id: op,
            slots,
            pages,
            after,
        });
    }

    /// The content of a page is lost: whoever touches it gets a signal, never zeroes.
    fn lost(&mut self, id: PageId) {
        self.stats.lost += 1;
        let page = self.pages.number(id);
        self.stats.read_ahead_dropped += u64::from(self.pages.has(id, READ_AHEAD));
        self.pages.set_state(id, State::Poisoned);
        self.pages.clear_read_ahead(id);
        self.pages.set_slot(id, SlotNo::NONE);
        self.slots.retire();
        let op = self.start(Kind::Poison, PageRange::one(page));
        self.actions.push_back(Action::Poison { id: op, page });
    }

    /// Pages are safely in their slots.
    #[inline(never)]
    pub(super) fn paged_out(&mut self, op: ActionId) {
        self.write_failures_in_a_row = 0;
        self.each_written(op, true, |pager, id, page| pager.settle(id, page, true));
    }

    /// Pages could not be written: they stay in memory, dirty, and are tried elsewhere.
    pub(super) fn page_out_failed(&mut self, op: ActionId, why: IoFailure) {
        self.stats.write_errors += 1;
        self.write_failures_in_a_row += 1;
        self.swap_full |= why == IoFailure::NoSpace;
        self.each_written(op, false, |pager, id, page| {
            let slot = pager.pages.slot(id);
            pager.pages.set_slot(id, SlotNo::NONE);
            match why {
                IoFailure::NoSpace => pager.slots.release(slot),
                IoFailure::Device => pager.slots.retire(),
            }
            if pager.is_awaited(page) {
                pager.map_around(id);
            } else {
                pager.reclaim.not_written(&mut pager.pages, id);
            }
        });
    }

    fn each_written(
        &mut self,
        op: ActionId,
        clean: bool,
        mut then: impl FnMut(&mut Self, PageId, PageNo),
    ) {
        self.writes -= 1;
        let ids = self.ops[op].lend_ids();
        for &id in &ids {
            let page = self.pages.number(id);
            let entry = self.pages.advance(id, State::Writing, State::Staged);
            entry.set_flag(DIRTY, !clean);
            then(self, id, page);
        }
        self.ops[op].return_ids(ids);
    }
}

/// How many neighbours below and above `pages[at]` were read with it, in page order.
fn neighbours(pages: &[PageNo], at: usize) -> (u64, u64) {
    let run = |mut at: usize, step: isize, by: u64| {
        let mut count = 0;
        while let Some(&next) = at.checked_add_signed(step).and_then(|i| pages.get(i))
            && next.raw() == pages[at].raw().wrapping_add(by)
        {
            (at, count) = (at.wrapping_add_signed(step), count + 1);
        }
        count
    };
    let below = run(at, -1, u64::MAX).max(run(at, 1, u64::MAX));
    let above = run(at, 1, 1).max(run(at, -1, 1));
    (below, above)
}
