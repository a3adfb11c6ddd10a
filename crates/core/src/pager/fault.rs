//! What a fault leads to.

use super::evict::extend;
use super::parts::Parts;
use super::{Kind, Pager, RUN_PAGES_MAX, View};
use crate::contract::{Access, Action, Source, Waiter};
use crate::page::{COLLECTED, PageId, Queue, READ_AHEAD, SAMPLED, State, ZERO_AROUND};
use crate::readahead::{Arrival, Touch, clip};
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};

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

/// A fault that wants its page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub page: PageNo,
    pub access: Access,
    pub waiter: Waiter,
    pub source: Source,
    pub extent: PageRange,
    pub retried: bool,
}

/// How many pages a first touch zero-fills: halved when most of them come back untouched, doubled
/// when most were used.
pub(super) struct ZeroAround {
    max: u32,
    now: u32,
    used: u32,
    wasted: u32,
    last: PageRange,
}

impl ZeroAround {
    /// Zero-filled pages whose fate is weighed at a time: a few windows' worth.
    const SAMPLE: u32 = 256;

    pub fn new(max: u32) -> Self {
        let last = PageRange::new(PageNo::from_raw(0), 0);
        let max = max.max(1);
        Self {
            max,
            now: max,
            used: 0,
            wasted: 0,
            last,
        }
    }

    /// A first touch zero-fills `run` for the sake of `page`. Where it goes on behind the last run
    /// (or before it), that one was used, whatever was written there: zeroes leave no trace.
    fn fills(&mut self, page: PageNo, run: PageRange) {
        let (page, start, end) = (
            page.raw(),
            self.last.start.raw(),
            self.last.start.raw() + self.last.pages,
        );
        // Programs that skip pages go on all the same.
        let slack = u64::from(self.max);
        if (end..end + slack).contains(&page)
            || (start.saturating_sub(slack)..start).contains(&page)
        {
            self.used += self.last.pages as u32;
            self.now = (self.now * 2).min(self.max);
        }
        self.last = run;
    }

    /// A page zero-filled around a fault left memory: still zero, or used.
    pub fn left(&mut self, still_zero: bool) {
        *(if still_zero {
            &mut self.wasted
        } else {
            &mut self.used
        }) += 1;
        if self.used + self.wasted < Self::SAMPLE {
            return;
        }
        if self.wasted > 3 * self.used {
            self.now = (self.now / 2).max(1);
        } else if self.wasted < self.used {
            self.now = (self.now * 2).min(self.max);
        }
        (self.used, self.wasted) = (0, 0);
    }
}

impl Pager {
    pub(super) fn fault(&mut self, now: Nanos, demand: &Demand) {
        let Some(id) = self.pages.find(demand.page) else {
            return self.zero_fill(demand);
        };
        let state = self.pages.entry(id).state();
        if state != State::PagedOut {
            self.stats.minor_faults += 1;
        }
        match state {
            State::Resident => {
                self.stats.spurious_faults += 1;
                self.actions.push_back(Action::Wake {
                    waiter: demand.waiter,
                    page: demand.page,
                });
            }
            State::Staged => {
                self.waits.for_page(demand.page, demand.waiter);
                self.rescue(now, id, demand.source);
            }
            State::Reading => {
                self.waits.for_page(demand.page, demand.waiter);
                self.stats.late_hits += 1;
                if self.pages.has(id, READ_AHEAD) {
                    self.stats.read_ahead_late += 1;
                    self.objects.of(demand.page).late += 1;
                }
                self.hit(now, id, demand.source);
            }
            State::Detaching | State::Writing | State::Mapping => {
                self.waits.for_page(demand.page, demand.waiter);
            }
            State::PagedOut => self.page_in(now, id, demand),
            State::Poisoned => self.poison(demand.page, demand.waiter),
            State::Untouched => unreachable!("an untouched page has no entry"),
        }
    }

    pub(super) fn wait_for_frame(&mut self, demand: &Demand) {
        self.stats.waits_for_frame += u64::from(!demand.retried);
        self.waits.for_frame(Demand {
            retried: true,
            ..*demand
        });
    }

    /// Serves faults that waited for a frame, oldest first, as far as frames go. Those whose page
    /// came for somebody else need none.
    pub(super) fn retry_pending(&mut self, now: Nanos) {
        for _ in 0..self.waits.frames() {
            let Some(demand) = self.waits.take_for_frame() else {
                return;
            };
            let state = self.pages.state_of(demand.page);
            let needs_frame = matches!(state, State::Untouched | State::PagedOut);
            if needs_frame && self.room(1) == 0 {
                self.waits.for_frame(demand);
            } else {
                self.served |= needs_frame;
                self.fault(now, &demand);
            }
        }
    }

    /// Maps zeroes at the page and at its untouched neighbours in the aligned block around it.
    fn zero_fill(&mut self, demand: &Demand) {
        if self.room(1) == 0 {
            return self.wait_for_frame(demand);
        }
        let run = self.untouched_around(demand.page, demand.extent);
        self.stats.minor_faults += 1;
        self.zero_around.fills(demand.page, run);
        self.readahead.untouched_fault(demand.page);
        self.waits.for_page(demand.page, demand.waiter);
        self.map_zeroes(run, Some(demand.page));
        self.zero_rest_of_block(demand);
    }

    fn map_zeroes(&mut self, run: PageRange, demanded: Option<PageNo>) {
        self.stats.zero_fills += run.pages;
        self.took_frames(run.pages as usize);
        for page in run.iter() {
            let id = self.pages.create(page, State::Mapping);
            self.pages.set_flag(id, ZERO_AROUND, demanded != Some(page));
        }
        let id = self.start(Kind::ZeroFill, run);
        let after = self.ops.release();
        self.actions.push_back(Action::ZeroFill { id, run, after });
    }

    /// Where pages that were touched before lie between untouched ones, the block has several
    /// untouched runs: all of them at once cost less than a fault each.
    fn zero_rest_of_block(&mut self, demand: &Demand) {
        let block = u64::from(self.zero_around.now);
        let index = demand.page.index() / block * block;
        let first = PageNo::new(demand.page.object(), index);
        let mut run: Option<PageRange> = None;
        for at in 0..=block {
            // The object may end within the block.
            let page = first.checked_add(at).filter(|&page| {
                at < block && demand.extent.contains(page) && self.pages.find(page).is_none()
            });
            run = match (run, page) {
                (Some(run), Some(_)) => Some(PageRange::new(run.start, run.pages + 1)),
                (None, Some(page)) => Some(PageRange::one(page)),
                (Some(run), None) => {
                    if self.frames_free() < run.pages as usize + self.limits.reserve {
                        return;
                    }
                    self.map_zeroes(run, None);
                    None
                }
                (None, None) => None,
            };
        }
    }

    fn untouched_around(&mut self, page: PageNo, extent: PageRange) -> PageRange {
        let block = u64::from(self.zero_around.now);
        let frames = self
            .room(block as usize + self.limits.reserve)
            .saturating_sub(self.limits.reserve)
            .max(1) as u64;
        let first = page.index() / block * block;
        let (mut low, mut high) = (page, page);
        let mut count = 1;
        let free = |pager: &Self, p: PageNo| extent.contains(p) && pager.pages.find(p).is_none();
        while count < frames && high.index() + 1 < first + block {
            let Some(next) = high.checked_add(1).filter(|&p| free(self, p)) else {
                break;
            };
            (high, count) = (next, count + 1);
        }
        while count < frames && low.index() > first {
            let Some(next) = low.checked_sub(1).filter(|&p| free(self, p)) else {
                break;
            };
            (low, count) = (next, count + 1);
        }
        PageRange::new(low, count)
    }

    /// The first touch of a staged page: it becomes active again, no I/O.
    fn rescue(&mut self, now: Nanos, id: PageId, source: Source) {
        // Reading ahead may release clean pages: not this one.
        self.pages.unqueue(id);
        let streams = self.pages.has(id, READ_AHEAD) && self.manner.arrival == Arrival::Mapped;
        let sampled = self.hit(now, id, source);
        if sampled {
            // Its neighbours are mapped; beyond them may lie the next window, whose first touch must be seen.
            self.pages.set_flag(id, SAMPLED, true);
            self.map_within(id, 0, 0, true);
            return;
        }
        let run = self.map_around(id);
        if streams {
            self.map_stream(id, run, STREAM_ALONG.saturating_sub(run.pages));
        }
    }

    /// Maps up to `left` pages that read-ahead brought from the slots next to those of `around`, which holds page `id`:
    /// a program that skips pages touches them next, for slots are in the order in which pages left.
    fn map_stream(&mut self, id: PageId, around: PageRange, mut left: u64) {
        for step in [1, -1] {
            let mut at = self.last_slot(id, around, step);
            let mut run: Option<PageRange> = None;
            while left > 0 {
                let Some(next) = at.0.checked_add_signed(step).map(SlotNo) else {
                    break;
                };
                let Some(id) = (self.pages.ahead_in_slot(next)).filter(|&id| self.in_stream(id))
                else {
                    break;
                };
                (at, left) = (next, left - 1);
                let page = self.pages.number(id);
                if self.samples(page, next) {
                    continue;
                }
                self.stats.read_ahead_mapped += 1;
                self.objects.of(page).mapped += 1;
                self.take_for_map(id);
                if let Some(full) = extend(&mut run, page) {
                    self.map(full);
                }
            }
            if let Some(last) = run {
                self.map(last);
            }
        }
    }

    /// How far slots go on from that of page `id`, by `step`, as pages go on in `run`, in either direction.
    fn last_slot(&self, id: PageId, run: PageRange, step: i32) -> SlotNo {
        let (page, slot) = (self.pages.number(id).raw(), self.pages.slot(id));
        let follow = |by: i64| {
            let next = |at: SlotNo, raw: u64| {
                let page = PageNo::from_raw(raw.checked_add_signed(by)?);
                let slot = SlotNo(at.0.checked_add_signed(step)?);
                let there = run.contains(page) && self.pages.slot(self.pages.find(page)?) == slot;
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

    fn map(&mut self, run: PageRange) {
        let id = self.start(Kind::Map, run);
        let absent_below = self.absent_below(run);
        self.actions.push_back(Action::Map {
            id,
            run,
            absent_below,
        });
    }

    fn in_stream(&self, id: PageId) -> bool {
        self.pages.state(id) == State::Staged
            && self.pages.has(id, READ_AHEAD)
            && !self.pages.has(id, COLLECTED)
    }

    /// A page that read-ahead brought is wanted: the stream goes on. Whether it was sampled.
    fn hit(&mut self, now: Nanos, id: PageId, source: Source) -> bool {
        if !self.pages.has(id, READ_AHEAD) {
            return false;
        }
        self.pages.clear_read_ahead(id);
        self.stats.read_ahead_hits += 1;
        let touch = Touch {
            now,
            page: self.pages.number(id),
            slot: self.pages.slot(id),
            source,
        };
        self.objects.of(touch.page).hits += 1;
        let verdict = self
            .governor
            .as_mut()
            .and_then(|governor| governor.hit(touch.page, touch.slot));
        self.judge(verdict);
        let view = View(&self.pages);
        if let Some(next) = self.readahead.hit(&touch, &view)
            && let Some(next) = self.governed_behind(next, touch.page)
        {
            self.read_behind(next);
        }
        verdict.is_some()
    }

    /// Maps a staged page, with the neighbours that came along by read-ahead and a few others.
    pub(super) fn map_around(&mut self, id: PageId) -> PageRange {
        self.map_within(id, RUN_PAGES_MAX, RUN_PAGES_MAX, true)
    }

    /// As [`Self::map_around`], at most `below` pages below the page and `above` above it;
    /// `rescued` says that the page was staged before, not just read. Returns what is being mapped.
    pub(super) fn map_within(
        &mut self,
        id: PageId,
        below: u64,
        above: u64,
        rescued: bool,
    ) -> PageRange {
        let mut others = u64::from(self.rescue_around);
        self.take_for_map(id);
        let mut parts = Parts::new(self.pages.number(id));
        self.map_towards(&mut parts, above, PageNo::checked_add, &mut others);
        self.map_towards(&mut parts, below, PageNo::checked_sub, &mut others);
        let along = u64::from(self.rescue_around) - others;
        self.stats.rescues += along + u64::from(rescued);
        // In order, so that they leave in order, and their slots are in order too.
        for &part in parts.sorted() {
            self.map(part);
        }
        parts.hull()
    }

    /// Adds up to `most` neighbours to the first of `parts`, on the side to which `step` leads, as far as they may be mapped
    /// along. Pages that stay staged as a sample are passed over.
    fn map_towards(
        &mut self,
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
            match self.joins_map(next, others) {
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

    fn joins_map(&mut self, page: PageNo, others: &mut u64) -> Joins {
        let Some(id) = self.pages.place(page) else {
            return Joins::Not;
        };
        let entry = self.pages.entry(id);
        if entry.state() != State::Staged || entry.has(COLLECTED) {
            return Joins::Not;
        }
        if entry.has(READ_AHEAD) {
            let slot = entry.slot;
            if self.manner.arrival == Arrival::Staged {
                return Joins::Not;
            }
            if self.samples(page, slot) {
                return Joins::Sampled;
            }
            self.stats.read_ahead_mapped += 1;
            self.objects.of(page).mapped += 1;
        } else if *others == 0 && !self.is_awaited(page) {
            return Joins::Not;
        } else {
            *others = others.saturating_sub(1);
        }
        self.take_for_map(id);
        Joins::Mapped
    }

    fn take_for_map(&mut self, id: PageId) {
        let entry = self.pages.advance(id, State::Staged, State::Mapping);
        let (queued, ahead) = (entry.queue() != Queue::None, entry.has(READ_AHEAD));
        if queued {
            self.pages.unqueue(id);
        }
        if ahead {
            self.pages.clear_read_ahead(id);
        }
    }

    /// A major fault: reads the window that read-ahead chooses.
    fn page_in(&mut self, now: Nanos, id: PageId, demand: &Demand) {
        if self.room(1) == 0 {
            return self.wait_for_frame(demand);
        }
        self.stats.major_faults += 1;
        self.objects.of(demand.page).major_faults += 1;
        let slot = self.pages.slot(id);
        let fault = Touch {
            now,
            page: demand.page,
            slot,
            source: demand.source,
        };
        self.missed(demand.page);
        let view = View(&self.pages);
        let window = self.readahead.major_fault(&fault, &view);
        self.stats.windows.count(window.size);
        let window = self.governed(window, &fault);
        let frames = self.room(window.now.slots as usize + self.limits.reserve);
        let frames = frames.saturating_sub(self.limits.reserve).max(1) as u32;
        self.waits.for_page(demand.page, demand.waiter);
        let run = clip(window.now, slot, frames, window.downward);
        self.read_demanded(run, slot, id);
        for &run in window.rest.as_slice() {
            self.read_behind(run);
        }
        if let Some(next) = window.behind {
            self.read_behind(next);
        }
    }

    /// Reads `window` for page `id` in `slot`: at once, or that page first and the rest behind it.
    fn read_demanded(&mut self, window: SlotRange, slot: SlotNo, id: PageId) {
        let first = self.manner.demand_first;
        if first == 0 || window.slots < first.max(2) {
            return self.read(window, Some((slot, id)));
        }
        self.read(SlotRange::new(slot, 1), Some((slot, id)));
        let above = SlotRange::new(SlotNo(slot.0 + 1), window.end().0 - slot.0 - 1);
        let below = SlotRange::new(window.start, slot.0 - window.start.0);
        for rest in [above, below] {
            if rest.slots > 0 {
                self.read(rest, None);
            }
        }
    }

    /// Reads slots nobody waits for yet, if frames are plentiful.
    fn read_behind(&mut self, slots: SlotRange) {
        let frames = self
            .room(slots.slots as usize + self.limits.reserve)
            .saturating_sub(self.limits.reserve);
        let view = View(&self.pages);
        let all_out = slots
            .iter()
            .all(|s| crate::readahead::SlotView::paged_out(&view, s).is_some());
        if slots.slots > 0 && frames >= slots.slots as usize && all_out {
            self.read(slots, None);
        }
    }

    /// Reads `slots`, one of them for somebody who waits.
    fn read(&mut self, slots: SlotRange, demanded: Option<(SlotNo, PageId)>) {
        let op = self.start(Kind::PageIn, PageRange::new(PageNo::from_raw(0), 0));
        self.ops[op].slots = slots;
        for slot in slots.iter() {
            let asked = demanded.filter(|asked| asked.0 == slot);
            let found = asked.map(|asked| asked.1);
            let found = found.or_else(|| self.pages.in_slot(slot));
            let id = found.expect("read-ahead named an empty slot");
            let entry = self.pages.advance(id, State::PagedOut, State::Reading);
            entry.set_flag(READ_AHEAD, asked.is_none());
            let page = self.pages.number(id);
            self.objects.read(page, asked.is_some());
            if let Some(governor) = &mut self.governor {
                governor.returns(page);
            }
            let hash = self.pages.hash(id);
            self.ops[op].add(id, page);
            self.ops[op].must_have(hash);
        }
        self.took_frames(slots.slots as usize);
        self.stats.page_in_reads += 1;
        self.stats.page_ins += u64::from(slots.slots);
        let ahead = slots.slots - u32::from(demanded.is_some());
        let pages = self.ops.told(op);
        self.stats.read_ahead += u64::from(ahead);
        if let Some(governor) = &mut self.governor {
            governor.reads(pages[0], slots, ahead);
        }
        let after = self.ops.release();
        self.actions.push_back(Action::PageIn {
            id: op,
            slots,
            pages,
            after,
        });
    }

    /// The page's content is lost: whoever waits goes on, to its signal, when that is known to the body.
    pub(super) fn poison(&mut self, page: PageNo, waiter: Waiter) {
        self.waits.for_page(page, waiter);
        let id = self.start(Kind::Poison, PageRange::one(page));
        self.actions.push_back(Action::Poison { id, page });
    }
}
