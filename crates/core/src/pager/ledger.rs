//! What the pager knows, whoever drives it: pages, slots, reads, who waits, and what is to be done.
//!
//! It decides nothing. The drivers and their parts read it, change it together with the action that they ask for, and
//! find what holds for both of them here: how a page is forgotten, a read repeated, a waiter woken.

mod reread;
#[cfg(test)]
pub(super) mod tests;

use alloc::collections::VecDeque;

use super::ABSENT_MAX;
use super::advised::Advised;
use super::ahead::Ahead;
use super::discarding::Discarding;
use super::ops::{Kind, Ops};
use super::tiering::Tiering;
use super::waits::{Demand, Waits};
use crate::contract::{Action, ActionId, IoFailure, Source};
use crate::limits::Limits;
use crate::page::{PageId, Pages, READ_AHEAD, State};
use crate::readahead::{Touch, Verdict};
use crate::refaults::Departed;
use crate::slot_pool::SlotPool;
use crate::stats::Stats;
use crate::swap_cache::Objects;
use crate::tier::BEYOND;
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};

/// Words of 64 slots that one look for dead slots goes over, or as many times 64 in which nothing was given back: some microseconds. A
/// choice, for there are ten looks a second.
const DEAD_LOOK: usize = 1024;
/// Runs of slots that are told dead at a time. A choice: the store is called for each.
const DEAD_RUNS_MAX: usize = 64;

/// What the drivers and their parts share.
pub(super) struct Ledger {
    pub pages: Pages,
    pub slots: SlotPool,
    /// What reading ahead is decided by.
    pub ahead: Ahead,
    /// What the program said of ranges.
    pub advised: Advised,
    /// What is known of the pool of compressed pages.
    pub tier: Tiering,
    /// What may be dropped.
    pub discarding: Discarding,
    pub ops: Ops,
    pub actions: VecDeque<Action>,
    pub waits: Waits,
    pub limits: Limits,
    /// The store was asked for more slots, and did not answer yet.
    pub growing: bool,
    /// The store cannot grow.
    pub swap_full: bool,
    pub stats: Stats,
    pub objects: Objects,
    /// What more frames would have saved. The pool's part is decided by it.
    pub departed: Departed,
    /// The time of the last event.
    pub now: Nanos,
}

/// Nobody left; up to `frames` frames are told apart, and more where the part of a pool is decided by them.
pub(super) fn departed(frames: usize, tier: &Tiering) -> Departed {
    match tier.policy {
        Some(_) => Departed::and_beyond(frames, BEYOND),
        None => Departed::new(frames),
    }
}

impl Ledger {
    /// Begins with these, and with nobody who waits.
    pub fn new(
        mut pages: Pages,
        slots: SlotPool,
        ahead: Ahead,
        tier: Tiering,
        discarding: Discarding,
        limits: Limits,
    ) -> Self {
        pages.reserve(256);
        let departed = departed(limits.frames, &tier);
        Self {
            pages,
            slots,
            ahead,
            advised: Advised::default(),
            tier,
            discarding,
            ops: Ops::new(),
            actions: VecDeque::with_capacity(256),
            waits: Waits::new(),
            limits,
            growing: false,
            swap_full: false,
            stats: Stats::default(),
            objects: Objects::default(),
            departed,
            now: Nanos(0),
        }
    }

    /// An action of this kind begins; `run` is what it is about where it has no list of pages.
    #[inline]
    pub fn start(&mut self, kind: Kind, run: PageRange) -> ActionId {
        self.ops.start(kind, run, self.now)
    }

    /// The page, which has an entry because an action or a policy holds it.
    #[inline]
    pub fn known(&self, page: PageNo) -> PageId {
        self.pages.place(page).expect("a page in hand has an entry")
    }

    pub fn is_awaited(&self, page: PageNo) -> bool {
        self.waits.is_awaited(page)
    }

    /// Lets everybody who waits for `page` go on, after what is to be done already.
    pub fn wake(&mut self, page: PageNo) {
        while let Some(wait) = self.waits.take(page) {
            let waiter = self.tier.ended(&wait, self.now);
            self.actions.push_back(Action::Wake { waiter, page });
        }
    }

    /// Lets everybody who waits for `page`, which is mapped, go on before anything else is done.
    pub fn wake_first(&mut self, page: PageNo) {
        while let Some(wait) = self.waits.take(page) {
            let waiter = self.tier.ended(&wait, self.now);
            self.actions.push_front(Action::Wake { waiter, page });
        }
    }

    /// Whose fault this was goes on: the page is there, or gone.
    pub fn wake_demand(&mut self, demand: &Demand) {
        self.actions.push_back(Action::Wake {
            waiter: demand.waiter,
            page: demand.page,
        });
    }

    /// The fault waits until there is a frame for its page.
    pub fn wait_for_frame(&mut self, demand: &Demand) {
        self.stats.waits_for_frame += u64::from(!demand.retried);
        self.waits.for_frame(Demand {
            retried: true,
            ..*demand
        });
    }

    /// Whoever waits for a frame for a page that is gone tries again.
    pub fn wake_whose_page_is_gone(&mut self, range: PageRange) {
        while let Some(demand) = self.waits.take_for_frame_in(range) {
            self.wake_demand(&demand);
        }
    }

    /// Frames in use, by pages and by the pool.
    pub fn frames_used(&self) -> usize {
        self.pages.framed() + self.tier.charged()
    }

    /// The most frames in use before pages have to leave: the others are kept for the pool.
    pub fn frames_max(&self) -> usize {
        self.limits.frames - self.tier.reserve()
    }

    /// Frames that may still be used for pages.
    pub fn frames_free(&self) -> usize {
        self.frames_max().saturating_sub(self.frames_used())
    }

    /// There are `frames` frames in all, and chunks have `chunk` pages.
    pub fn limit(&mut self, frames: usize, chunk: u32) {
        self.limits = Limits::beside(self.tier.frames(), frames, chunk as usize);
    }

    /// The pool has `frames` frames from now on; the watermarks follow it by thirty-seconds of all frames, which is what the
    /// finest of them is.
    pub fn pooled(&mut self, frames: usize, chunk: u32) {
        let step = |frames: usize| frames * 32 / self.limits.frames;
        let moved = step(frames) != step(self.tier.frames());
        self.tier.has(frames);
        if moved {
            self.limit(self.limits.frames, chunk);
        }
    }

    /// The store has more room.
    pub fn grown(&mut self, range: SlotRange) {
        self.slots.add(range);
        self.pages.add_slots(range);
        (self.growing, self.swap_full) = (false, false);
    }

    /// The store cannot grow any more.
    pub const fn full(&mut self) {
        (self.growing, self.swap_full) = (false, true);
    }

    /// Asks for room for two chunks of `chunk` pages, once at a time.
    pub fn grow(&mut self, chunk: u32) {
        if !self.growing {
            let slots = 2 * chunk;
            self.growing = true;
            self.actions.push_back(Action::Grow { slots });
        }
    }

    /// In the forked child: nobody waits, the slots are the parent's.
    pub fn forked(&mut self) {
        assert!(self.ops.unanswered() == 0, "forked with unanswered actions");
        self.waits.forget();
        self.actions.clear();
        self.slots.disown();
        (self.growing, self.swap_full) = (false, false);
        self.stats = Stats::default();
        self.objects = Objects::default();
        self.departed.reset();
        self.advised.none_needed();
    }

    /// Forgets a page whose content is not wanted or not there.
    pub fn drop_page(&mut self, id: PageId) {
        let read_ahead = self.pages.has(id, READ_AHEAD);
        self.stats.read_ahead_dropped += u64::from(read_ahead);
        if let Some(governor) = &mut self.ahead.governor {
            governor.dropped(self.pages.number(id), read_ahead);
        }
        self.pages.unqueue(id);
        if self.discarding.marks.marked() > 0 {
            self.discarding.marks.forget(self.pages.number(id));
        }
        let slot = self.pages.slot(id);
        self.pages.forget(id);
        if slot.is_some() {
            self.slots.release(slot);
        }
    }

    /// The frame of a clean staged page is given up: only its slot is left.
    pub fn give_up_frame(&mut self, id: PageId) {
        let page = self.pages.number(id);
        if self.pages.has(id, READ_AHEAD) {
            self.stats.read_ahead_waste += 1;
            self.pages.clear_read_ahead(id);
            self.objects.of(page).waste += 1;
            self.ahead.wasted(page, self.pages.slot(id));
        }
        if let Some(governor) = &mut self.ahead.governor {
            governor.left(page);
        }
        self.departed.left(page);
        self.pages.advance(id, State::Staged, State::PagedOut);
    }

    pub fn give_back_slot(&mut self, id: PageId) {
        let slot = self.pages.slot(id);
        if slot.is_some() {
            self.slots.release(slot);
            self.pages.set_slot(id, SlotNo::NONE);
        }
    }

    /// The page could not be written to its slot: one that found no space can be used later, a broken one never.
    pub fn take_slot_back(&mut self, id: PageId, why: IoFailure) {
        let slot = self.pages.slot(id);
        self.pages.set_slot(id, SlotNo::NONE);
        match why {
            IoFailure::NoSpace => self.slots.release(slot),
            IoFailure::Device => self.slots.retire(),
        }
    }

    /// How many pages directly below `run` the program does not have. With bits nobody moves pages, and it is
    /// not looked.
    pub fn absent_below(&self, run: PageRange) -> u8 {
        let absent = |&n: &u64| {
            let page = run.start.checked_sub(n);
            page.is_some_and(|page| self.pages.state_of(page).absent())
        };
        if self.pages.has_bits() {
            return 0;
        }
        (1..=ABSENT_MAX).take_while(absent).count() as u8
    }

    /// A page that read-ahead brought is wanted: counts it. `None` if it came in another way.
    pub fn wanted(&mut self, id: PageId, source: Source) -> Option<Touch> {
        if !self.pages.has(id, READ_AHEAD) {
            return None;
        }
        self.pages.clear_read_ahead(id);
        self.stats.read_ahead_hits += 1;
        let touch = self.touch(id, source);
        self.objects.of(touch.page).hits += 1;
        Some(touch)
    }

    /// What read-ahead is told of a touch of the page.
    pub fn touch(&self, id: PageId, source: Source) -> Touch {
        Touch {
            now: self.now,
            page: self.pages.number(id),
            slot: self.pages.slot(id),
            source,
        }
    }

    /// Counts what a sampled page tells of those that it stands for.
    pub fn judge(&mut self, verdict: Option<Verdict>) {
        let Some(verdict) = verdict.filter(|verdict| verdict.others > 0) else {
            return;
        };
        let others = u64::from(verdict.others);
        let object = self.objects.of(verdict.page);
        if verdict.used {
            self.stats.along_used += others;
            object.along_used += others;
        } else {
            self.stats.along_unused += others;
            object.along_unused += others;
        }
        self.stats.along_squares += others * others;
        object.along_squares += others * others;
    }

    /// So many frames were taken, by zeroes or page-ins.
    pub fn took_frames(&mut self, frames: usize) {
        self.discarding.took_frames(frames);
        let Some(governor) = &mut self.ahead.governor else {
            return;
        };
        governor.took(frames as u64);
        while let Some(governor) = &mut self.ahead.governor
            && let Some(verdict) = governor.expired()
        {
            self.judge(Some(verdict));
        }
    }

    /// Asks for the zeroes whose pages were entered.
    pub fn zero_fill(&mut self, run: PageRange) {
        let id = self.start(Kind::ZeroFill, run);
        let after = self.ops.release();
        self.actions.push_back(Action::ZeroFill { id, run, after });
    }

    /// Asks for the read whose pages were gathered.
    pub fn page_in(&mut self, id: ActionId, slots: SlotRange) {
        self.ops[id].slots = slots;
        self.stats.page_in_reads += 1;
        let (pages, after) = (self.ops.told(id), self.ops.release());
        self.actions.push_back(Action::PageIn {
            id,
            slots,
            pages,
            after,
        });
    }

    /// Asks for the write whose pages were gathered, each of which has its slot by now.
    pub fn page_out(&mut self, id: ActionId, slots: SlotRange) {
        self.ops[id].slots = slots;
        let count = slots.slots;
        self.stats.page_outs += u64::from(count);
        self.stats.page_out_writes += 1;
        self.stats.write_sizes[count.ilog2() as usize] += 1;
        self.stats.write_pages.count(count);
        let (pages, after) = (self.ops.told(id), self.ops.dead());
        self.actions.push_back(Action::PageOut {
            id,
            slots,
            pages,
            after,
        });
    }

    /// Asks for the release whose pages were gathered, if there is one.
    pub fn release(&mut self, id: Option<ActionId>) {
        if let Some(id) = id {
            let release = self.ops.releases(id);
            self.actions.push_back(release);
        }
    }

    /// Tells which slots are dead, as far as one look goes.
    pub fn tell_dead(&mut self) {
        let mut look = DEAD_LOOK;
        for _ in 0..DEAD_RUNS_MAX {
            let Some(slots) = self.slots.next_dead(&mut look) else {
                return;
            };
            let id = self.start(Kind::Dead, PageRange::new(PageNo::from_raw(0), 0));
            let told = self.ops.tells_dead(id, slots);
            self.actions.push_back(told);
        }
    }

    /// What was told dead is let go of.
    pub fn dead(&mut self, id: ActionId) {
        let slots = self.ops[id].slots;
        if slots.start.is_pooled() {
            self.slots.taken_out(slots);
        }
        self.ops.finish(id);
    }

    /// Whether an unanswered action touches `range`.
    pub fn busy(&self, range: PageRange) -> bool {
        let overlaps = |run: PageRange| {
            run.start.raw() < range.start.raw() + range.pages
                && range.start.raw() < run.start.raw() + run.pages
        };
        self.ops.iter().any(|op| match op.kind {
            Kind::Free | Kind::Dead | Kind::Cede => false,
            Kind::ZeroFill
            | Kind::Map
            | Kind::MapNeeded
            | Kind::Detach
            | Kind::Flush
            | Kind::Cold
            | Kind::Drop
            | Kind::Poison => overlaps(op.run),
            Kind::PageIn
            | Kind::Needed
            | Kind::PageOut
            | Kind::Compress
            | Kind::Decompress
            | Kind::Demote
            | Kind::Release => op.pages().iter().any(|&p| range.contains(p)),
        })
    }
}
