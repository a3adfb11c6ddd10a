//! How dirty pages are written where they are. FreeBSD `vm_pageout_flush` and
//! `vm/swap_pager.c:swap_pager_putpages`.
//!
//! A chunk that is to be written gets its slots piece by piece; the daemon stops before the first
//! piece that would be one write too many, and goes on when one was answered.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use super::reserve::Reserve;
use crate::page::{Bit, COLLECTED, DIRTY, PageId, Pages, Queue, State};
use crate::pageout::{Chunk, Inactive, PageOut, Placement};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::reclaim::bsd::{self, Buffered, Laundered};
use crate::slots::request;
use crate::units::{ObjectId, PageNo, PageRange, SlotNo, SlotRange};

/// How far the chunk in [`Laundry::ready`] has come.
#[derive(Default)]
struct Flush {
    /// Pages that were dealt with.
    at: usize,
    /// Slots for the pages from there on, until a write may begin.
    run: Option<SlotRange>,
    /// For so many pages from there on there are no slots.
    given_up: u32,
    /// The chunk found no run as a whole: each cluster by itself.
    split: bool,
    /// Some of its pages are being written.
    started: bool,
    /// The cluster for which the daemon wants to know what came of it.
    cluster: Option<PageRange>,
}

/// Where writing the chunk stopped.
pub(super) enum Flushed {
    /// The page found no slot; whoever sleeps on it is to try again, then it goes on.
    GaveUp(PageNo),
    /// It takes a write more than may be in flight.
    Waits,
    /// Nothing is left of the chunk.
    All,
}

/// Dirty pages on their way to the store.
pub(super) struct Laundry {
    pageout: Box<dyn PageOut>,
    /// The chunk that is to be written.
    ready: Chunk,
    flush: Flush,
    /// Unanswered writes.
    writes: usize,
    /// The objects that were paged out once.
    swap_objects: BTreeSet<ObjectId>,
}

impl Laundry {
    /// Nothing to write. Pages are grouped by `pageout`.
    pub fn new(pageout: Box<dyn PageOut>) -> Self {
        Self {
            ready: Chunk::with_capacity(pageout.buffer_pages()),
            pageout,
            flush: Flush::default(),
            writes: 0,
            swap_objects: BTreeSet::new(),
        }
    }

    /// Whether a page of the object was ever to be paged out.
    pub fn knows_object(&self, object: ObjectId) -> bool {
        self.swap_objects.contains(&object)
    }

    /// The object is gone.
    pub fn forget_object(&mut self, object: ObjectId) {
        self.swap_objects.remove(&object);
    }

    /// A write was answered.
    pub const fn written(&mut self) {
        self.writes -= 1;
    }

    /// Collects the cluster of `victim`, a dirty page at its place on the inactive queue.
    pub fn launder(&mut self, ledger: &mut Ledger, reserve: &Reserve, victim: PageId) {
        let chunk = self.pageout.buffer_pages();
        if !ledger.swap_full && ledger.slots.wants_room(chunk) {
            ledger.grow(chunk);
        }
        let page = ledger.pages.number(victim);
        let view = Neighbours(&ledger.pages);
        let cluster = self.pageout.collect(page, &view, &mut self.ready);
        let busy = reserve.daemon.params().buffered == Buffered::Busy;
        for page in cluster.iter() {
            let id = ledger.known(page);
            ledger.pages.set_flag(id, COLLECTED, true);
            if busy {
                bsd::fold(&mut ledger.pages, id);
                ledger.pages.set_bit(id, Bit::Writable, false);
            }
        }
        self.begin_flush(ledger, Some(cluster));
    }

    /// The walk is over: what is buffered is written.
    pub fn flush_buffer(&mut self, ledger: &mut Ledger) {
        self.pageout.finish(&mut self.ready);
        self.begin_flush(ledger, None);
    }

    fn begin_flush(&mut self, ledger: &mut Ledger, cluster: Option<PageRange>) {
        ledger.stats.clusters += self.ready.clusters.len() as u64;
        self.flush = Flush {
            cluster,
            ..Flush::default()
        };
    }

    /// Writes what is left of the chunk, as far as it goes.
    pub fn flush_on(&mut self, ledger: &mut Ledger, reserve: &mut Reserve) -> Flushed {
        while self.flush.at < self.ready.pages.len() {
            if self.flush.given_up > 0 {
                return Flushed::GaveUp(self.give_up(ledger));
            }
            if self.flush.run.is_none() && !self.find_run(ledger, reserve) {
                continue;
            }
            if self.writes >= reserve.daemon.params().writes_max {
                return Flushed::Waits;
            }
            self.write_piece(ledger, reserve);
        }
        if let Some(cluster) = self.flush.cluster.take() {
            let started = self.flush.started;
            let failed = !started && self.ready.pages.contains(&cluster.start);
            let report = Laundered {
                cluster: if failed { 0 } else { cluster.pages as u32 },
                flushes: u32::from(started),
            };
            reserve.daemon.laundered(report);
        }
        if !self.ready.is_empty() {
            self.ready.clear();
            self.flush = Flush::default();
        }
        Flushed::All
    }

    /// Finds slots for the next piece. Pages for which there are none are given up.
    fn find_run(&mut self, ledger: &mut Ledger, reserve: &mut Reserve) -> bool {
        let (at, pages) = (self.flush.at as u32, self.ready.len());
        let whole_first = self.ready.placement == Placement::WholeThenClusters;
        let free = ledger.slots.allocator();
        let (asked, found) = if whole_first && !self.flush.split {
            self.flush.split = true;
            (pages, free.alloc(pages).ok_or(0))
        } else {
            let end = if whole_first {
                self.cluster_end(at)
            } else {
                pages
            };
            let shrink = reserve.daemon.params().shrink;
            (end - at, request(end - at, shrink, free))
        };
        let slots_free = ledger.slots.available();
        if found.is_err() || found.is_ok_and(|run| run.slots < asked) {
            reserve.daemon.slots_changed(false, slots_free);
        }
        match found {
            Ok(run) => {
                reserve.daemon.slots_changed(true, slots_free);
                self.flush.run = Some(run);
            }
            Err(given_up) => self.flush.given_up = given_up,
        }
        found.is_ok()
    }

    /// The end of the cluster that holds page `at` of the chunk.
    fn cluster_end(&self, at: u32) -> u32 {
        let mut end = 0;
        for &pages in &self.ready.clusters {
            end += pages;
            if end > at {
                break;
            }
        }
        end
    }

    /// The next page of the chunk, for which there is no slot, stays, active.
    fn give_up(&mut self, ledger: &mut Ledger) -> PageNo {
        let page = self.ready.pages[self.flush.at];
        self.flush.at += 1;
        self.flush.given_up -= 1;
        let id = ledger.known(page);
        ledger.pages.set_flag(id, COLLECTED, false);
        self.swap_objects.insert(page.object());
        bsd::activate(&mut ledger.pages, id);
        ledger.stats.not_placed += 1;
        page
    }

    /// Writes the next pages of the chunk to the slots that were found for them.
    fn write_piece(&mut self, ledger: &mut Ledger, reserve: &mut Reserve) {
        let slots = self.flush.run.take().expect("found before");
        let op = ledger.start(Kind::PageOut, PageRange::new(PageNo::from_raw(0), 0));
        let mut old: Option<SlotRange> = None;
        for slot in slots.iter() {
            let page = self.ready.pages[self.flush.at];
            self.flush.at += 1;
            let id = ledger.known(page);
            bsd::fold(&mut ledger.pages, id);
            ledger.pages.set_flag(id, COLLECTED, false);
            ledger.pages.set_state(id, State::Writing);
            old = give_back_later(ledger, reserve, old, ledger.pages.slot(id));
            ledger.pages.set_slot(id, slot);
            self.swap_objects.insert(page.object());
            ledger.ops[op].add(id, page);
            ledger.ops[op].must_have(ledger.pages.hash(id));
        }
        ledger.slots.bind(slots.slots);
        // Never in place: the old slots go now, before the write is under way.
        give_back_later(ledger, reserve, old, SlotNo::NONE);
        self.flush.started = true;
        self.writes += 1;
        ledger.page_out(op, slots);
    }

    /// Takes a collected page out of the buffer or the chunk that holds it.
    pub fn unbuffer(&mut self, ledger: &mut Ledger, id: PageId) {
        let page = ledger.pages.number(id);
        ledger.pages.set_flag(id, COLLECTED, false);
        self.pageout.forget(page);
        if self.ready.pages.contains(&page) {
            // The run that was found is too long now.
            if let Some(run) = self.flush.run.take() {
                ledger.slots.allocator().free(run);
                self.flush.split = self.flush.at > 0;
            }
            self.ready.remove(page);
        }
    }
}

/// Gives back `run`, unless `slot` makes it longer; returns the run that is still to be given back.
fn give_back_later(
    ledger: &mut Ledger,
    reserve: &mut Reserve,
    run: Option<SlotRange>,
    slot: SlotNo,
) -> Option<SlotRange> {
    match run {
        Some(run) if slot.is_some() && run.end() == slot => {
            return Some(SlotRange::new(run.start, run.slots + 1));
        }
        Some(run) => {
            ledger.slots.release_run(run);
            reserve.slots_freed(ledger);
        }
        None => {}
    }
    slot.is_some().then(|| SlotRange::new(slot, 1))
}

/// Which pages may go along with a victim. Not asked: whether they were referenced, or seen before.
struct Neighbours<'a>(&'a Pages);

impl Inactive for Neighbours<'_> {
    fn takes_part(&self, page: PageNo) -> bool {
        let Some(id) = self.0.find(page) else {
            return false;
        };
        self.0.queue(id) == Queue::Inactive
            && self.0.state(id) != State::Writing
            && !self.0.has(id, COLLECTED)
            && (self.0.has(id, DIRTY) || self.0.bit(id, Bit::Modified))
    }
}
