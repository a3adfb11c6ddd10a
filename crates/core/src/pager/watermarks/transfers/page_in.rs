//! Pages come back from their slots: the one that is awaited, and those that read-ahead names.

use alloc::vec::Vec;

use super::Transfers;
use crate::contract::{ActionId, PageOutcome, Refusal, Source};
use crate::page::{DIRTY, PageId, READ_AHEAD, State};
use crate::pager::advised::Pattern;
use crate::pager::ahead::{Cut, row};
use crate::pager::drops::gone;
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::room;
use crate::pager::streams::Ahead;
use crate::pager::view::{View, all_paged_out};
use crate::pager::waits::Demand;
use crate::pager::watermarks::advice::{advised_behind, advised_window};
use crate::pager::watermarks::eviction::{Eviction, Taken};
use crate::pager::watermarks::rescue::{Rescue, map_staged};
use crate::readahead::{Arrival, clip};
use crate::tier::{Touched, Whence};
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};

impl Transfers {
    /// A major fault: reads the window that read-ahead chooses.
    pub fn page_in(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        id: PageId,
        demand: &Demand,
    ) {
        if !eviction.has_frame(ledger) {
            return ledger.wait_for_frame(demand);
        }
        ledger.stats.major_faults += 1;
        ledger.objects.of(demand.page).major_faults += 1;
        let fault = ledger.touch(id, demand.source);
        let slot = fault.slot;
        let advised = ledger.advised.pattern(demand.page);
        let ahead = missed(ledger, demand.page, advised != Some(Pattern::Random));
        let verdict = ledger.ahead.missed(demand.page);
        ledger.judge(verdict);
        let window = match advised {
            Some(pattern) => advised_window(ledger, &fault, pattern, self.read_max(ledger)),
            None => ledger.ahead.window(&fault, &ledger.pages),
        };
        ledger.stats.windows.count(window.size);
        let cut = match advised {
            Some(_) => Cut::whole(window),
            None => ledger.ahead.cut(window, &fault, &ledger.pages),
        };
        let frames = eviction.room_to_spare(ledger, cut.window.now.slots as usize);
        let frames = frames.max(1) as u32;
        if frames < cut.window.now.slots {
            ledger.tier.walks.cut(ahead);
        } else if cut.window.now.slots == window.now.slots
            && row(&fault, 2, ahead.downward, &View(&ledger.pages)) > 1
        {
            ledger.tier.walks.leads_on(ahead);
        }
        let window = match advised {
            Some(_) => cut.window,
            None => ledger.ahead.within(cut, &fault, frames, &ledger.pages),
        };
        let now = ledger.now;
        (ledger.waits).for_page_of(demand.page, demand.waiter, Whence::Store, now);
        let run = clip(window.now, slot, frames, window.downward);
        self.read_demanded(ledger, eviction, run, slot, id);
        reached(ledger, ahead, demand.page, run, window.downward);
        for &run in window.rest.as_slice() {
            read_behind(ledger, eviction, run);
        }
        if let Some(next) = window.behind {
            read_behind(ledger, eviction, next);
        }
    }

    /// Reads `window` for page `id` in `slot`: at once, or that page first and the rest behind it.
    fn read_demanded(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        window: SlotRange,
        slot: SlotNo,
        id: PageId,
    ) {
        let demanded = Some((slot, id));
        if self.demand_first == 0 || window.slots < self.demand_first.max(2) {
            return read(ledger, eviction, window, demanded);
        }
        read(ledger, eviction, SlotRange::new(slot, 1), demanded);
        let above = SlotRange::new(SlotNo(slot.0 + 1), window.end().0 - slot.0 - 1);
        let below = SlotRange::new(window.start, slot.0 - window.start.0);
        for rest in [above, below] {
            if rest.slots > 0 {
                read(ledger, eviction, rest, None);
            }
        }
    }

    /// If read-ahead brought the page, its stream goes on. Whether the page was sampled.
    pub fn hit(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        id: PageId,
        source: Source,
    ) -> bool {
        let Some(touch) = ledger.wanted(id, source) else {
            return false;
        };
        let verdict = ledger.ahead.hit(&touch);
        ledger.judge(verdict);
        if let Some(pattern) = ledger.advised.pattern(touch.page) {
            let next = advised_behind(ledger, &touch, pattern, self.read_max(ledger));
            if let Some(next) = next {
                read_behind(ledger, eviction, next);
            }
            return verdict.is_some();
        }
        let mut next = ledger.ahead.behind(&touch, &ledger.pages);
        while let Some(range) = next
            && let Some(cut) = ledger.ahead.cut_behind(range, touch.page, &ledger.pages)
            && read_behind(ledger, eviction, cut)
        {
            next = ledger.ahead.more(&touch, &ledger.pages);
        }
        verdict.is_some()
    }

    /// Pages were read; a damaged one is as good as one that was not. Without `outcomes` all are intact.
    pub fn paged_in(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        rescue: &Rescue,
        op: ActionId,
        outcomes: Option<&[PageOutcome]>,
    ) {
        let count = ledger.ops[op].count();
        assert!(
            outcomes.is_none_or(|outcomes| outcomes.len() == count),
            "one outcome a page"
        );
        let mut awaited = count;
        let unread = |o: &PageOutcome| *o == PageOutcome::Refused(Refusal::Unread);
        let failed = outcomes.is_some_and(|outcomes| outcomes.iter().any(unread));
        ledger.stats.read_errors += u64::from(failed);
        for at in 0..count {
            let (id, page) = ledger.ops[op].page(at);
            match outcomes.map_or(PageOutcome::Done, |outcomes| outcomes[at]) {
                PageOutcome::Done => {}
                PageOutcome::Refused(why @ (Refusal::Damaged | Refusal::Unread)) => {
                    ledger.stats.checksum_errors += u64::from(why == Refusal::Damaged);
                    let tries = ledger.ops[op].tries;
                    ledger.read_again(id, tries);
                    continue;
                }
                PageOutcome::Refused(Refusal::Gone) => {
                    gone(ledger, id);
                    continue;
                }
                outcome => panic!("a page-in was answered by {outcome:?}"),
            }
            let entry = ledger.pages.advance(id, State::Reading, State::Staged);
            entry.set_flag(DIRTY, false);
            ledger.pages.set_read(id, true);
            if ledger.is_awaited(page) {
                awaited = awaited.min(at);
            } else {
                // A demanded page whose waiter left is a page like any other.
                eviction.park(ledger, id, true);
            }
        }
        if ledger.ops[op].kind == Kind::Needed {
            let ids = ledger.ops[op].lend_ids();
            // A damaged one is read again.
            let there = |id: &&PageId| ledger.pages.state(**id) == State::Staged;
            let found: Vec<PageId> = ids.iter().filter(there).copied().collect();
            ledger.ops[op].return_ids(ids);
            return map_staged(ledger, &found);
        }
        if awaited < count
            && let Some(governor) = &mut ledger.ahead.governor
        {
            let took = ledger.now.0 - ledger.ops[op].began.0;
            governor.read_took(count as u32, Nanos(took));
        }
        for at in awaited..count {
            let (id, page) = ledger.ops[op].page(at);
            if ledger.is_awaited(page) && ledger.pages.state(id) == State::Staged {
                // Not beyond this read: the first touch of the next window is what keeps its
                // stream going, and must be seen.
                let (below, above) = match ledger.ahead.arrival {
                    Arrival::Mapped => neighbours(ledger.ops[op].pages(), at),
                    Arrival::Staged => (0, 0),
                };
                rescue.map_within(ledger, id, below, above, false);
            }
        }
    }
}

/// A touch found `page` in the store: the tier policy is told how it got there, and the stream that it continues.
fn missed(ledger: &mut Ledger, page: PageNo, may_be_read_ahead: bool) -> Ahead {
    let ahead = ledger.tier.walks.touched(page);
    let reads_ahead = may_be_read_ahead && ledger.ahead.read_max > 1;
    if let Some(policy) = &mut ledger.tier.policy {
        let how = if ahead.led && ahead.lost && reads_ahead {
            Touched::Next
        } else {
            Touched::Apart
        };
        policy.missed(page, how);
    }
    ahead
}

/// The slots of `run` are read for a touch of `page`: the stream goes on behind them, if they hold the pages that are next.
fn reached(ledger: &mut Ledger, ahead: Ahead, page: PageNo, run: SlotRange, downward: bool) {
    let end = if downward {
        run.start
    } else {
        SlotNo(run.end().0 - 1)
    };
    let last = ledger.pages.in_slot(end).map(|id| ledger.pages.number(id));
    let ahead_of = |last: &PageNo| match downward {
        true => page.raw().checked_sub(last.raw()),
        false => last.raw().checked_sub(page.raw()),
    };
    let next = |last: &PageNo| ahead_of(last).is_some_and(|n| 0 < n && n < u64::from(run.slots));
    // Of one touch the direction is not known.
    let goes_on = !ahead.led || ahead.downward == downward;
    if let Some(last) = last.filter(next).filter(|_| goes_on) {
        ledger.tier.walks.reached(ahead, last);
    }
}

/// Reads slots nobody waits for yet, if frames are plentiful. Whether they are.
fn read_behind(ledger: &mut Ledger, eviction: &mut Eviction, slots: SlotRange) -> bool {
    let frames = eviction.room_to_spare(ledger, slots.slots as usize);
    let all_out = all_paged_out(&ledger.pages, slots);
    let reads = slots.slots > 0 && frames >= slots.slots as usize && all_out;
    if reads {
        read(ledger, eviction, slots, None);
    }
    reads
}

/// Reads `slots`, one of them for somebody who waits.
fn read(
    ledger: &mut Ledger,
    eviction: &mut Eviction,
    slots: SlotRange,
    demanded: Option<(SlotNo, PageId)>,
) {
    let op = ledger.start(Kind::PageIn, PageRange::new(PageNo::from_raw(0), 0));
    let waiting = ledger.pages.read_ahead();
    for slot in slots.iter() {
        let asked = demanded.filter(|asked| asked.0 == slot);
        let found = asked.map(|asked| asked.1);
        let found = found.or_else(|| ledger.pages.in_slot(slot));
        let id = found.expect("read-ahead named an empty slot");
        let entry = ledger.pages.advance(id, State::PagedOut, State::Reading);
        debug_assert!(!entry.has(READ_AHEAD), "a page with a frame");
        if asked.is_none() {
            ledger.pages.set_read_ahead(id);
        }
        let page = ledger.pages.number(id);
        ledger.objects.read(page, asked.is_some());
        if asked.is_some() {
            ledger.departed.read(page);
            room::waited(ledger);
        } else {
            ledger.departed.comes_along(page);
        }
        if let Some(policy) = &mut ledger.tier.policy {
            policy.read(page);
        }
        if let Some(governor) = &mut ledger.ahead.governor {
            governor.returns(page, waiting);
        }
        ledger.ops[op].add(id, page);
        ledger.ops[op].must_have(ledger.pages.hash(id));
    }
    eviction.took_frames(ledger, Taken::Filled, slots.slots as usize);
    ledger.page_in(op, slots);
    let ahead = slots.slots - u32::from(demanded.is_some());
    ledger.stats.page_ins += u64::from(slots.slots);
    ledger.stats.read_ahead += u64::from(ahead);
    let (_, first) = ledger.ops[op].page(0);
    // What the program asked for says nothing of what read-ahead is good for.
    let own = ledger.advised.pattern(first).is_none();
    if let Some(governor) = ledger.ahead.governor.as_mut().filter(|_| own) {
        governor.reads(first, slots, ahead);
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
