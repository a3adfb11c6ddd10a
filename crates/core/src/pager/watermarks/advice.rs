//! What follows from what the program says of its pages.

use super::eviction::{Eviction, Taken};
use super::rescue::map_staged;
use super::transfers::Transfers;
use crate::contract::Advice;
use crate::page::{PageId, Queue, State};
use crate::pager::WRITES_MAX;
use crate::pager::advised::Pattern;
use crate::pager::drops::Leaving;
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::range::Ranges;
use crate::pager::view::View;
use crate::readahead::{SlotView, Touch, Window, forward, forward_behind};
use crate::units::{PageNo, PageRange, SlotNo, SlotRange};

/// The most pages that are read at once for a range that is touched in order: what `stream` grows to by default.
const SEQUENTIAL_MAX: usize = 128;
/// With little memory a sixty-fourth of the frames is read at once, so that two windows fit into what is kept clean.
const SEQUENTIAL_SHARE: usize = 64;
/// Reads of needed pages that are under way at once: as many as writes, so that a fault finds room in the queue of the disk, of 64 in the live body.
const READS_MAX: usize = WRITES_MAX;

impl Ranges {
    /// The program says something of `range`.
    pub fn advise(&mut self, ledger: &mut Ledger, advice: Advice, range: PageRange) {
        match advice {
            Advice::Normal => ledger.advised.set(range, None),
            Advice::Sequential => ledger.advised.set(range, Some(Pattern::Sequential)),
            Advice::Random => ledger.advised.set(range, Some(Pattern::Random)),
            Advice::WillNeed => self.will_need(ledger, range),
            Advice::Cold => self.cold(ledger, range),
        }
    }

    /// Those of the range that are staged are mapped, and those that are paged out are brought in by and by. What is in the pool of compressed
    /// pages is in RAM already.
    fn will_need(&mut self, ledger: &mut Ledger, range: PageRange) {
        let most = ledger.limits.frames / 2;
        let mut left = most.saturating_sub(ledger.advised.needed());
        let mut ids = self.gather(&ledger.pages, range);
        ids.retain(|&id| {
            let here = is_parked(ledger, id);
            let page = ledger.pages.number(id);
            let out = View(&ledger.pages).slot_of(page).is_some();
            if left == 0 || !(here || out) {
                return false;
            }
            left -= 1;
            if out {
                ledger.advised.need(page);
            }
            here
        });
        map_staged(ledger, &ids);
        self.put_back(ids);
    }

    /// Those of the range that are mapped are staged, and then those that are staged leave before others.
    fn cold(&mut self, ledger: &mut Ledger, range: PageRange) {
        let ids = self.gather(&ledger.pages, range);
        let mut leaving = Leaving::by(Kind::Cold);
        for &id in &ids {
            let mapped = matches!(ledger.pages.queue(id), Queue::Active | Queue::Second);
            if mapped && ledger.pages.state(id) == State::Resident {
                ledger.pages.unqueue(id);
                leaving.add(ledger, id);
            }
        }
        leaving.end(ledger);
        for &id in ids.iter().rev() {
            to_the_front(ledger, id);
        }
        self.put_back(ids);
    }
}

/// The pages of `run` were detached because they are cold.
pub(super) fn cold_first(ledger: &mut Ledger, run: PageRange) {
    for n in (0..run.pages).rev() {
        let page = run.start.checked_add(n);
        if let Some(id) = page.and_then(|page| ledger.pages.find(page)) {
            to_the_front(ledger, id);
        }
    }
}

/// Whether the page is staged and nothing is done with it.
fn is_parked(ledger: &Ledger, id: PageId) -> bool {
    let parked = matches!(ledger.pages.queue(id), Queue::Inactive | Queue::Cache);
    parked && ledger.pages.state(id) == State::Staged
}

fn to_the_front(ledger: &mut Ledger, id: PageId) {
    if is_parked(ledger, id) {
        let queue = ledger.pages.queue(id);
        ledger.pages.unqueue(id);
        ledger.pages.push_first(queue, id);
    }
}

fn sequential_pages(ledger: &Ledger, read_max: u32) -> u32 {
    let pages = (ledger.limits.frames / SEQUENTIAL_SHARE).clamp(1, SEQUENTIAL_MAX);
    // Not more than a window can have.
    read_max.min(pages as u32)
}

/// What is read for `fault`, of whose range the program said how it is touched.
pub(super) fn advised_window(
    ledger: &Ledger,
    fault: &Touch,
    pattern: Pattern,
    read_max: u32,
) -> Window {
    match pattern {
        Pattern::Random => Window::one(fault.slot),
        Pattern::Sequential => {
            let pages = sequential_pages(ledger, read_max);
            forward(fault, pages, &View(&ledger.pages))
        }
    }
}

/// What is read when `touch` finds a page that was read ahead, and the program said how its range is touched.
pub(super) fn advised_behind(
    ledger: &Ledger,
    touch: &Touch,
    pattern: Pattern,
    read_max: u32,
) -> Option<SlotRange> {
    match pattern {
        Pattern::Random => None,
        Pattern::Sequential => {
            let pages = sequential_pages(ledger, read_max);
            forward_behind(touch, pages, &View(&ledger.pages))
        }
    }
}

impl Transfers {
    /// The most pages of one read: what the body is ready for, which is the largest window or the largest write.
    pub fn read_max(&self, ledger: &Ledger) -> u32 {
        ledger.ahead.read_max.max(self.chunk_pages())
    }

    /// Reads what is needed soon, as far as there are frames to spare.
    #[inline(never)]
    pub fn bring_needed(&self, ledger: &mut Ledger, eviction: &mut Eviction) {
        while let Some(page) = ledger.advised.next_needed(0) {
            if ledger.waits.frames() > 0 || ledger.advised.reads >= READS_MAX {
                return;
            }
            let Some(first) = View(&ledger.pages).slot_of(page) else {
                // It came, or went, in another way.
                ledger.advised.done(1);
                continue;
            };
            let wanted = needed_together(ledger, first, self.read_max(ledger));
            // Not one by one, as frames become free.
            let least = wanted.min((ledger.limits.clean_low / 2).max(1));
            let nearly_free = ledger.frames_free() + ledger.pages.queued(Queue::Cache);
            if nearly_free < least + ledger.limits.reserve {
                return;
            }
            let count = eviction.room_to_spare(ledger, wanted).min(wanted);
            if count == 0 {
                return;
            }
            ledger.advised.done(count);
            let slots = SlotRange::new(first, count as u32);
            read_needed(ledger, eviction, slots);
        }
    }
}

/// How many of the pages that are needed next are in slots that follow each other, from `first` on.
fn needed_together(ledger: &Ledger, first: SlotNo, read_max: u32) -> usize {
    let view = View(&ledger.pages);
    let follows = |&n: &usize| {
        let page = ledger.advised.next_needed(n);
        let slot = page.and_then(|page| view.slot_of(page));
        slot == Some(SlotNo(first.0 + n as u32))
    };
    1 + (1..read_max as usize).take_while(follows).count()
}

/// Reads `slots`, each of which holds a page that is paged out. The program asked for them: they are no read-ahead.
fn read_needed(ledger: &mut Ledger, eviction: &mut Eviction, slots: SlotRange) {
    ledger.advised.reads += 1;
    let op = ledger.start(Kind::Needed, PageRange::new(PageNo::from_raw(0), 0));
    for slot in slots.iter() {
        let id = ledger.pages.in_slot(slot).expect("looked up before");
        (ledger.pages).advance(id, State::PagedOut, State::Reading);
        let page = ledger.pages.number(id);
        ledger.objects.read(page, true);
        ledger.departed.comes_along(page);
        if let Some(policy) = &mut ledger.tier.policy {
            policy.read(page);
        }
        ledger.ops[op].add(id, page);
        ledger.ops[op].must_have(ledger.pages.hash(id));
    }
    eviction.took_frames(ledger, Taken::Filled, slots.slots as usize);
    ledger.page_in(op, slots);
    ledger.stats.page_ins += u64::from(slots.slots);
}
