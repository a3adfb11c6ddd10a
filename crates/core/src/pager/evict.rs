//! How pages leave: detach, page-out, release.

use super::{ABSENT_MAX, Kind, Pager, RUN_PAGES_MAX, WRITES_MAX};
use crate::contract::Action;
use crate::page::{COLLECTED, DIRTY, PageId, Pages, Queue, READ_AHEAD, State};
use crate::pageout::{Chunk, Inactive};
use crate::reclaim::Mapped;
use crate::slots::place;
use crate::units::{PageNo, PageRange, SlotRange};

/// Failed writes in a row after which the store counts as broken: enough to get past a bad
/// stretch of a few chunks.
const WRITE_FAILURES_MAX: u32 = 64;

/// How far the search for a frame has come since the last tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Search {
    /// Not begun.
    Idle,
    /// So many mapped pages are left to look at.
    Left(usize),
    /// All of them were looked at.
    Over,
}

impl Pager {
    /// Frames that can be had at once, up to `wanted`: free ones, then clean pages released for it.
    pub(super) fn room(&mut self, wanted: usize) -> usize {
        let goal = self.frames_used() + wanted;
        if goal > self.limits.frames {
            self.release_clean(goal - self.limits.frames);
        }
        self.frames_free().min(wanted)
    }

    fn release_clean(&mut self, wanted: usize) -> usize {
        let mut released = 0;
        let mut op = None;
        while released < wanted {
            let Some(id) = self.reclaim.release(&mut self.pages) else {
                break;
            };
            let op = *op.get_or_insert_with(|| {
                self.start(Kind::Release, PageRange::new(PageNo::from_raw(0), 0))
            });
            let page = self.pages.number(id);
            self.ops[op].add(id, page);
            self.paged_out_now(id);
            released += 1;
        }
        if let Some(id) = op {
            let release = self.ops.releases(id);
            self.actions.push_back(release);
        }
        released
    }

    /// The frame of a clean staged page is given up: only its slot is left.
    pub(super) fn paged_out_now(&mut self, id: PageId) {
        if self.pages.has(id, READ_AHEAD) {
            self.stats.read_ahead_waste += 1;
            self.pages.clear_read_ahead(id);
            let (page, slot) = (self.pages.number(id), self.pages.slot(id));
            self.objects.of(page).waste += 1;
            self.readahead.wasted(page, slot);
            if let Some(governor) = &mut self.governor {
                governor.wasted(page);
            }
        }
        if let Some(governor) = &mut self.governor {
            governor.left(self.pages.number(id));
        }
        self.pages.advance(id, State::Staged, State::PagedOut);
    }

    /// Whether [`Self::balance`] has nothing to do, as after nearly every event.
    pub(super) fn balanced(&mut self) -> bool {
        let Some(free) = self.limits.frames.checked_sub(self.frames_used()) else {
            return false;
        };
        let free = free + self.pages.count(State::Writing);
        let staged = free + self.pages.count(State::Staged);
        let clean = free + self.pages.queued(Queue::Cache);
        self.waits.frames() == 0
            && (staged >= self.limits.staged_low || self.pace.victims < self.batch())
            && (clean >= self.limits.clean_low
                || self.pace.writes < self.write_due() && !self.wants_room())
    }

    /// Victims of one scan.
    fn batch(&self) -> usize {
        let half = self.pages.queued(Queue::Active) / 2;
        self.limits.detach_batch.min(half)
    }

    /// As many writes must be due before any is begun.
    fn write_due(&self) -> usize {
        (self.buffer as usize).min(self.limits.staged_low)
    }

    /// Brings the queues back to their watermarks.
    pub(super) fn balance(&mut self) {
        self.detach_victims();
        self.page_out_scan();
        self.shrink();
        if self.waits.frames() > 0 && self.at_rest() && self.room(1) == 0 {
            self.search();
        }
    }

    /// Nothing is under way from which frames could come.
    fn at_rest(&self) -> bool {
        self.ops.unanswered() == 0 && !self.growing
    }

    /// The watermarks are met or nothing can be written, and still no frame is to be had for
    /// somebody who waits: looks for clean pages behind dirty ones, then, a batch at a time, for
    /// clean pages and stale slots among the mapped ones. Each of these is looked at once a tick;
    /// otherwise a page would leave again before the thread that waited for it could use it.
    fn search(&mut self) {
        let left = match self.search {
            Search::Over => return,
            Search::Idle => self.pages.queued(Queue::Active),
            Search::Left(left) => left,
        };
        if self.sort_out_clean() {
            return;
        }
        let batch = left.min(self.limits.detach_batch);
        self.search = Search::Left(left - batch);
        if self.detach_oldest(batch) {
            return;
        }
        self.search = Search::Over;
        if !self.served {
            let full = self.swap_full || self.write_failures_in_a_row >= WRITE_FAILURES_MAX;
            let swap_full = full && self.pages.queued(Queue::Inactive) > 0;
            self.actions.push_back(Action::Exhausted { swap_full });
        }
    }

    /// Moves clean pages from behind dirty ones to the cache. Whether there were any.
    fn sort_out_clean(&mut self) -> bool {
        let mut found = false;
        for _ in 0..self.pages.queued(Queue::Inactive) {
            let Some(id) = self.reclaim.launder(&mut self.pages) else {
                break;
            };
            if self.pages.has(id, DIRTY) {
                self.reclaim.not_written(&mut self.pages, id);
            } else {
                self.reclaim.cleaned(&mut self.pages, id);
                found = true;
            }
        }
        found
    }

    /// Time passed: what was refused may be tried again, a part of it at a time, because refusals
    /// cost time too. All of it when somebody waits.
    pub(super) fn tick(&mut self) {
        (self.search, self.served) = (Search::Idle, false);
        // A store that failed is tried once in a while: it may have been mended.
        self.write_failures_in_a_row = self.write_failures_in_a_row.min(WRITE_FAILURES_MAX - 1);
        let refused = self.pages.queued(Queue::Refused);
        let again = if self.waits.frames() == 0 {
            refused.min(self.limits.detach_batch.max(refused / 64))
        } else {
            refused
        };
        for _ in 0..again {
            let id = self.pages.head(Queue::Refused).expect("counted");
            self.pages.unqueue(id);
            self.reclaim.mapped(&mut self.pages, id, Mapped::Refused);
        }
        // With nothing to write to, a lowered limit is reached by dropping what is clean.
        if self.frames_used() > self.limits.frames && self.at_rest() && !self.may_write() {
            let _ = self.sort_out_clean() || self.detach_oldest(self.limits.detach_batch);
        }
    }

    /// After the limit was lowered: gives frames back as fast as pages become clean.
    fn shrink(&mut self) {
        let over = self.frames_used().saturating_sub(self.limits.frames);
        if over > 0 {
            self.release_clean(over);
        }
    }

    fn detach_victims(&mut self) {
        let batch = self.batch();
        let due = self.pace.victims.max(self.needed(batch));
        if due < batch {
            return;
        }
        let staged = [State::Staged, State::Writing].map(|s| self.pages.count(s));
        let have = self.limits.frames + staged.iter().sum::<usize>();
        // Where most frames cannot be had, pages in the others must not leave before they were used.
        let held = self.pages.queued(Queue::Refused) + self.pages.count(State::Reading);
        let low = (self.limits.staged_low).min(self.limits.frames.saturating_sub(held) / 2);
        let wanted = self.frames_used() + low + self.waits.frames();
        if have >= wanted || self.pages.count(State::Detaching) > 0 {
            return;
        }
        let most = (wanted - have).max(batch).min(due);
        self.pace.detached(most);
        self.detach_oldest(most);
    }

    /// Pages that must go, whatever was earned: `batch` beyond those over the limit when there are
    /// any, or when somebody waits for a frame.
    fn needed(&self, batch: usize) -> usize {
        let over = self.frames_used().saturating_sub(self.limits.frames);
        let urgent = over > 0 || self.waits.frames() > 0;
        if urgent { over + batch } else { 0 }
    }

    /// Detaches up to `most` victims. False if there is none.
    fn detach_oldest(&mut self, most: usize) -> bool {
        let mut left = most.min(self.pages.queued(Queue::Active));
        let mut run: Option<PageRange> = None;
        while left > 0 {
            let Some(id) = self.reclaim.victim(&mut self.pages) else {
                break;
            };
            self.pages.advance(id, State::Resident, State::Detaching);
            let page = self.pages.number(id);
            if let Some(full) = extend(&mut run, page) {
                self.detach(full);
            }
            left -= 1;
        }
        if let Some(last) = run {
            self.detach(last);
        }
        run.is_some()
    }

    fn detach(&mut self, run: PageRange) {
        let id = self.start(Kind::Detach, run);
        let absent_below = self.absent_below(run);
        self.actions.push_back(Action::Detach {
            id,
            run,
            absent_below,
        });
    }

    /// How many pages directly below `run` the program does not have. With bits nobody moves pages, and it is
    /// not looked.
    pub(super) fn absent_below(&self, run: PageRange) -> u8 {
        let absent = |&n: &u64| {
            let page = run.start.checked_sub(n);
            page.is_some_and(|page| self.pages.state_of(page).absent())
        };
        if self.pages.has_bits() {
            return 0;
        }
        (1..=ABSENT_MAX).take_while(absent).count() as u8
    }

    fn nearly_free(&self) -> usize {
        self.frames_free() + self.pages.queued(Queue::Cache) + self.pages.count(State::Writing)
    }

    /// Pages out from the inactive queue's head until enough pages are clean.
    fn page_out_scan(&mut self) {
        let over = self.frames_used().saturating_sub(self.limits.frames);
        let wanted = self.limits.clean_low + over + self.waits.frames();
        if self.nearly_free() >= wanted || !self.may_begin_write() {
            return;
        }
        let chunk = self.buffer as usize;
        let due = self.pace.writes.max(self.needed(chunk));
        if due < self.write_due() || self.slots.available() == 0 {
            return;
        }
        let enough = (wanted + chunk).min(self.nearly_free() + due);
        let mut looks = self.pages.queued(Queue::Inactive);
        let mut collected = 0;
        while looks > 0 && self.nearly_free() + collected < enough && self.may_write() {
            looks -= 1;
            let Some(id) = self.reclaim.launder(&mut self.pages) else {
                break;
            };
            if !self.pages.has(id, DIRTY) {
                self.reclaim.cleaned(&mut self.pages, id);
                continue;
            }
            collected += self.collect(id);
        }
        self.pace.written(collected);
        self.pageout.finish(&mut self.ready);
        self.write_ready();
    }

    fn may_write(&mut self) -> bool {
        self.may_begin_write() && self.slots.available() > 0
    }

    /// Whether one more write may be in flight; if so, asks for slots in time.
    fn may_begin_write(&mut self) -> bool {
        if self.writes >= WRITES_MAX || self.write_failures_in_a_row >= WRITE_FAILURES_MAX {
            return false;
        }
        if self.wants_room() {
            self.grow();
        }
        true
    }

    /// Whether slots are to be asked for.
    fn wants_room(&mut self) -> bool {
        !self.swap_full && !self.growing && self.slots.wants_room(self.buffer)
    }

    fn collect(&mut self, victim: PageId) -> usize {
        let page = self.pages.number(victim);
        // The victim was taken off its queue; no policy asks whether it takes part.
        let view = Candidates(&self.pages);
        let taken = self.pageout.collect(page, &view, &mut self.ready);
        debug_assert!(taken.contains(page));
        for page in taken.iter() {
            let id = self.known(page);
            self.pages.unqueue(id);
            self.pages.set_flag(id, COLLECTED, true);
        }
        self.write_ready();
        taken.pages as usize
    }

    /// Gives the ready chunk its slots and writes it.
    fn write_ready(&mut self) {
        if self.ready.pages.is_empty() {
            return;
        }
        let mut placed = core::mem::take(&mut self.placed);
        placed.clear();
        place(&self.ready, self.slots.allocator(), &mut placed);
        self.stats.clusters += self.ready.clusters.len() as u64;
        let chunk = core::mem::replace(&mut self.ready, Chunk::with_capacity(0));
        for p in &placed {
            self.write(
                &chunk.pages[p.first..p.first + p.slots.slots as usize],
                p.slots,
            );
        }
        let found: u32 = placed.iter().map(|p| p.slots.slots).sum();
        if found < chunk.len() {
            for &page in &chunk.pages {
                let id = self.known(page);
                if self.pages.has(id, COLLECTED) {
                    self.not_placed(id);
                }
            }
        }
        self.ready = chunk;
        self.ready.clear();
        self.placed = placed;
    }

    /// There is no run of slots for the page. A store that cannot grow is used to the last slot;
    /// otherwise the page stays in memory until there is more room.
    fn not_placed(&mut self, id: PageId) {
        if self.swap_full
            && let Some(slot) = self.slots.allocator().alloc(1)
        {
            return self.write(&[self.pages.number(id)], slot);
        }
        if !self.swap_full {
            self.grow();
        }
        self.stats.not_placed += u64::from(self.swap_full);
        self.pages.set_flag(id, COLLECTED, false);
        self.reclaim.not_written(&mut self.pages, id);
    }

    pub(super) fn grow(&mut self) {
        if !self.growing {
            let slots = 2 * self.buffer;
            self.growing = true;
            self.actions.push_back(Action::Grow { slots });
        }
    }

    fn write(&mut self, pages: &[PageNo], slots: SlotRange) {
        let op = self.start(Kind::PageOut, PageRange::new(PageNo::from_raw(0), 0));
        for (&page, slot) in pages.iter().zip(slots.iter()) {
            let id = self.known(page);
            self.ops[op].add(id, page);
            self.ops[op].must_have(self.pages.hash(id));
            let entry = self.pages.advance(id, State::Staged, State::Writing);
            debug_assert!(!{ entry.slot }.is_some(), "a dirty page gave its slot back");
            entry.slot = slot;
            entry.set_flag(COLLECTED, false);
        }
        self.ops[op].slots = slots;
        self.slots.bind(slots.slots);
        self.writes += 1;
        let count = pages.len();
        self.stats.page_outs += count as u64;
        self.stats.page_out_writes += 1;
        self.stats.write_sizes[count.ilog2() as usize] += 1;
        self.stats.write_pages.count(count as u32);
        let pages = self.ops.told(op);
        self.actions.push_back(Action::PageOut {
            id: op,
            slots,
            pages,
        });
    }
}

/// Adds `page` to `run` where it is its neighbour. Otherwise `run` begins anew with it, and what it
/// was is returned.
pub(super) fn extend(run: &mut Option<PageRange>, page: PageNo) -> Option<PageRange> {
    let longer = run.and_then(|run| join(run, page));
    let full = if longer.is_some() { None } else { *run };
    *run = longer.or(Some(PageRange::one(page)));
    full
}

/// `run` longer by `page`, if that is its neighbour on either side and it may grow.
fn join(run: PageRange, page: PageNo) -> Option<PageRange> {
    if run.pages >= RUN_PAGES_MAX || run.start.object() != page.object() {
        None
    } else if page.raw() == run.start.raw() + run.pages {
        Some(PageRange::new(run.start, run.pages + 1))
    } else if page.raw() + 1 == run.start.raw() {
        Some(PageRange::new(page, run.pages + 1))
    } else {
        None
    }
}

/// Which pages may go along with a victim: inactive and dirty.
struct Candidates<'a>(&'a Pages);

impl Inactive for Candidates<'_> {
    fn takes_part(&self, page: PageNo) -> bool {
        self.0.place(page).is_some_and(|id| {
            let entry = self.0.entry(id);
            entry.queue() == Queue::Inactive && entry.has(DIRTY)
        })
    }
}
