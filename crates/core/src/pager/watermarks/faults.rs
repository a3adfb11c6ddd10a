//! What a fault leads to: zeroes, a rescue, a page-in, or a wait.

use super::Around;
use super::eviction::{Eviction, Taken};
use super::rescue::Rescue;
use super::transfers::Transfers;
use super::zero_around::ZeroAround;
use crate::contract::{ActionId, PageOutcome, Refusal, Source};
use crate::page::{PageId, Pages, Queue, READ_AHEAD, SAMPLED, State, ZERO_AROUND};
use crate::pager::drops::{filled, gone, settled};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::waits::Demand;
use crate::reclaim::Mapped;
use crate::units::{PageNo, PageRange};

/// Serves faults.
pub(super) struct Faults {
    pub zero_around: ZeroAround,
    pub rescue: Rescue,
}

impl Faults {
    /// With so many pages around each that is touched.
    pub fn new(around: Around) -> Self {
        Self {
            zero_around: ZeroAround::new(around.zeroes),
            rescue: Rescue::new(around.rescued),
        }
    }

    /// Serves a fault, or lets it wait.
    pub fn fault(
        &mut self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        transfers: &Transfers,
        demand: &Demand,
    ) {
        let Some(id) = ledger.pages.find(demand.page) else {
            return self.zero_fill(ledger, eviction, demand);
        };
        let state = ledger.pages.entry(id).state();
        if state != State::PagedOut {
            ledger.stats.minor_faults += 1;
        }
        match state {
            State::Resident => {
                ledger.stats.spurious_faults += 1;
                ledger.wake_demand(demand);
            }
            State::Staged => {
                ledger.waits.for_page(demand.page, demand.waiter);
                let last = ledger.pages.queue(id) == Queue::Cache;
                let in_use = last && !ledger.pages.has(id, READ_AHEAD);
                ledger.departed.counts.rescued += u64::from(in_use);
                ledger.tier.rescued += u64::from(!ledger.pages.has(id, READ_AHEAD));
                self.rescue(ledger, eviction, transfers, id, demand.source);
            }
            State::Reading => {
                ledger.waits.for_page(demand.page, demand.waiter);
                ledger.stats.late_hits += 1;
                if ledger.pages.has(id, READ_AHEAD) {
                    ledger.stats.read_ahead_late += 1;
                    ledger.objects.of(demand.page).late += 1;
                }
                transfers.hit(ledger, eviction, id, demand.source);
            }
            State::Detaching | State::Writing | State::Mapping => {
                ledger.waits.for_page(demand.page, demand.waiter);
            }
            State::PagedOut if ledger.pages.slot(id).is_pooled() => {
                transfers.decompress(ledger, eviction, id, demand);
            }
            State::PagedOut => transfers.page_in(ledger, eviction, id, demand),
            State::Poisoned => ledger.poison(demand.page, demand.waiter),
            State::Untouched => unreachable!("an untouched page has no entry"),
        }
    }

    /// Serves faults that waited for a frame, oldest first, as far as frames go. Those whose page
    /// came for somebody else need none.
    pub fn retry_pending(
        &mut self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        transfers: &Transfers,
    ) {
        for _ in 0..ledger.waits.frames() {
            let Some(demand) = ledger.waits.take_for_frame() else {
                return;
            };
            let state = ledger.pages.state_of(demand.page);
            let needs_frame = matches!(state, State::Untouched | State::PagedOut);
            if needs_frame && !eviction.has_frame(ledger) {
                ledger.waits.for_frame(demand);
            } else {
                if needs_frame {
                    eviction.serves();
                }
                self.fault(ledger, eviction, transfers, &demand);
            }
        }
    }

    /// Maps zeroes at the page and at its untouched neighbours in the aligned block around it.
    fn zero_fill(&mut self, ledger: &mut Ledger, eviction: &mut Eviction, demand: &Demand) {
        if !eviction.has_frame(ledger) {
            return ledger.wait_for_frame(demand);
        }
        let run = self.untouched_around(ledger, eviction, demand.page, demand.extent);
        ledger.stats.minor_faults += 1;
        self.zero_around.fills(demand.page, run);
        ledger.ahead.policy.untouched_fault(demand.page);
        ledger.waits.for_page(demand.page, demand.waiter);
        map_zeroes(ledger, eviction, run, Some(demand.page));
        self.zero_rest_of_block(ledger, eviction, demand);
    }

    /// Where pages that were touched before lie between untouched ones, the block has several
    /// untouched runs: all of them at once cost less than a fault each.
    fn zero_rest_of_block(&self, ledger: &mut Ledger, eviction: &mut Eviction, demand: &Demand) {
        let block = self.zero_around.pages();
        let index = demand.page.index() / block * block;
        let first = PageNo::new(demand.page.object(), index);
        let mut run: Option<PageRange> = None;
        for at in 0..=block {
            // The object may end within the block.
            let page = first.checked_add(at).filter(|&page| {
                at < block && demand.extent.contains(page) && ledger.pages.find(page).is_none()
            });
            run = match (run, page) {
                (Some(run), Some(_)) => Some(PageRange::new(run.start, run.pages + 1)),
                (None, Some(page)) => Some(PageRange::one(page)),
                (Some(run), None) => {
                    if ledger.frames_free() < run.pages as usize + ledger.limits.reserve {
                        return;
                    }
                    map_zeroes(ledger, eviction, run, None);
                    None
                }
                (None, None) => None,
            };
        }
    }

    fn untouched_around(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        page: PageNo,
        extent: PageRange,
    ) -> PageRange {
        let block = self.zero_around.pages();
        let frames = eviction.room_to_spare(ledger, block as usize).max(1) as u64;
        let first = page.index() / block * block;
        let (mut low, mut high) = (page, page);
        let mut count = 1;
        let free = |p: PageNo| extent.contains(p) && ledger.pages.find(p).is_none();
        while count < frames && high.index() + 1 < first + block {
            let Some(next) = high.checked_add(1).filter(|&p| free(p)) else {
                break;
            };
            (high, count) = (next, count + 1);
        }
        while count < frames && low.index() > first {
            let Some(next) = low.checked_sub(1).filter(|&p| free(p)) else {
                break;
            };
            (low, count) = (next, count + 1);
        }
        PageRange::new(low, count)
    }

    /// The first touch of a staged page: it becomes active again, no I/O.
    fn rescue(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        transfers: &Transfers,
        id: PageId,
        source: Source,
    ) {
        // Reading ahead may release clean pages: not this one.
        ledger.pages.unqueue(id);
        let read_ahead = ledger.pages.has(id, READ_AHEAD);
        let sampled = transfers.hit(ledger, eviction, id, source);
        if sampled {
            // Its neighbours are mapped; beyond them may lie the next window, whose first touch must be seen.
            ledger.pages.set_flag(id, SAMPLED, true);
            self.rescue.map_within(ledger, id, 0, 0, true);
        } else if read_ahead {
            self.rescue.map_with_stream(ledger, id);
        } else {
            self.rescue.map_around(ledger, id);
        }
    }

    /// Zero-filled or rescued pages are in the program, or not.
    pub fn mapped(
        &mut self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        op: ActionId,
        outcomes: &[PageOutcome],
    ) {
        let (run, kind) = (ledger.ops[op].run, ledger.ops[op].kind);
        assert!(outcomes.len() as u64 == run.pages, "one outcome a page");
        for (page, outcome) in run.iter().zip(outcomes) {
            let id = ledger.known(page);
            let how = match (kind, ledger.is_awaited(page)) {
                (Kind::ZeroFill, _) => Mapped::Fresh,
                (Kind::MapNeeded, false) => Mapped::Needed,
                (_, false) => Mapped::Along,
                (_, true) if ledger.pages.is_read(id) => Mapped::PagedIn,
                (_, true) => Mapped::Rescued,
            };
            match outcome {
                PageOutcome::Done | PageOutcome::Refused(Refusal::Present) => {
                    ledger.pages.advance(id, State::Mapping, State::Resident);
                    ledger.pages.set_read(id, false);
                    eviction.reclaim.mapped(&mut ledger.pages, id, how);
                    join_neighbour(&mut ledger.pages, id);
                    // One that is touched is in use, discardable or not: were it the first to leave, two threads could take it from each other for ever.
                    if matches!(how, Mapped::Along | Mapped::Needed) || !ledger.is_awaited(page) {
                        settled(ledger, id);
                    }
                    ledger.wake_first(page);
                }
                PageOutcome::Refused(Refusal::Gone | Refusal::Absent) => gone(ledger, id),
                PageOutcome::Refused(Refusal::Busy) if kind != Kind::ZeroFill => {
                    ledger.pages.set_state(id, State::Staged);
                    eviction.reclaim.detached(&mut ledger.pages, id);
                    ledger.wake(page);
                }
                PageOutcome::Refused(Refusal::Busy) => {
                    ledger.drop_page(id);
                    ledger.wake(page);
                }
                outcome => panic!("a mapping was answered by {outcome:?}"),
            }
        }
    }
}

fn map_zeroes(
    ledger: &mut Ledger,
    eviction: &mut Eviction,
    run: PageRange,
    demanded: Option<PageNo>,
) {
    ledger.stats.zero_fills += run.pages;
    eviction.took_frames(ledger, Taken::Filled, run.pages as usize);
    for page in run.iter() {
        let id = ledger.pages.create(page, State::Mapping);
        let along = demanded != Some(page);
        ledger.pages.set_flag(id, ZERO_AROUND, along);
        filled(ledger, page);
    }
    ledger.zero_fill(run);
}

/// A sampled page that was mapped by itself leaves as it would have without: with its neighbour, so
/// that their slots stay in order.
fn join_neighbour(pages: &mut Pages, id: PageId) {
    if !pages.has(id, SAMPLED) {
        return;
    }
    pages.set_flag(id, SAMPLED, false);
    let queue = pages.queue(id);
    let alike = |&below: &PageId| pages.queue(below) == queue;
    if matches!(queue, Queue::Active | Queue::Second)
        && let Some(below) = pages.neighbour(id, -1).filter(alike)
    {
        pages.move_behind(id, below);
    }
}
