//! How dirty pages are written where they are. FreeBSD `vm_pageout_flush` and
//! `vm/swap_pager.c:swap_pager_putpages`.
//!
//! A chunk that is to be written gets its slots piece by piece; the daemon stops before the first
//! piece that would be one write too many, and goes on when one was answered.

use super::super::{Kind, Pager};
use crate::contract::Action;
use crate::page::{Bit, COLLECTED, DIRTY, PageId, Pages, Queue, State};
use crate::pageout::{Inactive, Placement};
use crate::reclaim::bsd::{self, Buffered, Laundered};
use crate::slots::request;
use crate::units::{PageNo, PageRange, SlotNo, SlotRange};

/// How far the chunk in `Pager::ready` has come.
#[derive(Default)]
pub(in super::super) struct Flush {
    /// Pages that were dealt with.
    at: usize,
    /// Slots for the pages from there on, until a write may begin.
    run: Option<SlotRange>,
    /// The chunk found no run as a whole: each cluster by itself.
    split: bool,
    /// Some of its pages are being written.
    started: bool,
    /// The cluster for which the daemon wants to know what came of it.
    cluster: Option<PageRange>,
}

impl Pager {
    /// Collects the cluster of `victim`, a dirty page at its place on the inactive queue.
    pub(super) fn launder(&mut self, victim: PageId) {
        let buffer = self.pageout.buffer_pages();
        if !self.swap_full && self.slots.wants_room(buffer) {
            self.grow();
        }
        let page = self.pages.number(victim);
        let view = Neighbours(&self.pages);
        let cluster = self.pageout.collect(page, &view, &mut self.ready);
        let busy = self.daemon_mut().params().buffered == Buffered::Busy;
        for page in cluster.iter() {
            let id = self.known(page);
            self.pages.set_flag(id, COLLECTED, true);
            if busy {
                bsd::fold(&mut self.pages, id);
                self.pages.set_bit(id, Bit::Writable, false);
            }
        }
        self.begin_flush(Some(cluster));
    }

    /// The walk is over: what is buffered is written.
    pub(super) fn flush_buffer(&mut self) {
        self.pageout.finish(&mut self.ready);
        self.begin_flush(None);
    }

    fn begin_flush(&mut self, cluster: Option<PageRange>) {
        self.stats.clusters += self.ready.clusters.len() as u64;
        self.flush = Flush {
            cluster,
            ..Flush::default()
        };
    }

    /// Writes what is left of the chunk. False when that takes a write more than may be in flight.
    pub(super) fn flush_on(&mut self) -> bool {
        while self.flush.at < self.ready.pages.len() {
            if self.flush.run.is_none() && !self.find_run() {
                continue;
            }
            if self.writes >= self.daemon_mut().params().writes_max {
                return false;
            }
            self.write_piece();
        }
        if let Some(cluster) = self.flush.cluster.take() {
            let started = self.flush.started;
            let failed = !started && self.ready.pages.contains(&cluster.start);
            let report = Laundered {
                cluster: if failed { 0 } else { cluster.pages as u32 },
                flushes: u32::from(started),
            };
            self.daemon_mut().laundered(report);
        }
        if !self.ready.is_empty() {
            self.ready.clear();
            self.flush = Flush::default();
        }
        true
    }

    /// Finds slots for the next piece. Pages for which there are none stay, active.
    fn find_run(&mut self) -> bool {
        let (at, pages) = (self.flush.at as u32, self.ready.len());
        let whole_first = self.ready.placement == Placement::WholeThenClusters;
        let shrink = self.daemon_mut().params().shrink;
        let free = self.slots.allocator();
        let (asked, found) = if whole_first && !self.flush.split {
            self.flush.split = true;
            (pages, free.alloc(pages).ok_or(0))
        } else {
            let end = if whole_first {
                self.cluster_end(at)
            } else {
                pages
            };
            let free = self.slots.allocator();
            (end - at, request(end - at, shrink, free))
        };
        let slots_free = self.slots.available();
        let daemon = self.daemon_mut();
        if found.is_err() || found.is_ok_and(|run| run.slots < asked) {
            daemon.slots_changed(false, slots_free);
        }
        match found {
            Ok(run) => {
                daemon.slots_changed(true, slots_free);
                self.flush.run = Some(run);
            }
            Err(given_up) => self.give_up(given_up as usize),
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

    /// The next pages of the chunk found no slots.
    fn give_up(&mut self, pages: usize) {
        for _ in 0..pages {
            let page = self.ready.pages[self.flush.at];
            self.flush.at += 1;
            let id = self.known(page);
            self.pages.set_flag(id, COLLECTED, false);
            self.swap_objects.insert(page.object());
            bsd::activate(&mut self.pages, id);
            self.stats.not_placed += 1;
            self.restart(page);
        }
    }

    /// Writes the next pages of the chunk to the slots that were found for them.
    fn write_piece(&mut self) {
        let slots = self.flush.run.take().expect("found before");
        let op = self.start(Kind::PageOut, PageRange::new(PageNo::from_raw(0), 0));
        self.ops[op].slots = slots;
        let mut old: Option<SlotRange> = None;
        for slot in slots.iter() {
            let page = self.ready.pages[self.flush.at];
            self.flush.at += 1;
            let id = self.known(page);
            bsd::fold(&mut self.pages, id);
            self.pages.set_flag(id, COLLECTED, false);
            self.pages.set_state(id, State::Writing);
            old = self.give_back_later(old, self.pages.slot(id));
            self.pages.set_slot(id, slot);
            self.swap_objects.insert(page.object());
            self.ops[op].add(id, page);
            self.ops[op].must_have(self.pages.hash(id));
        }
        self.slots.bind(slots.slots);
        // Never in place: the old slots go now, before the write is under way.
        self.give_back_later(old, SlotNo::NONE);
        self.flush.started = true;
        self.writes += 1;
        let count = slots.slots;
        self.stats.page_outs += u64::from(count);
        self.stats.page_out_writes += 1;
        self.stats.write_sizes[count.ilog2() as usize] += 1;
        self.stats.write_pages.0[count.min(64) as usize] += 1;
        let pages = self.ops.told(op);
        self.actions.push_back(Action::PageOut {
            id: op,
            slots,
            pages,
        });
    }

    /// Gives back `run`, unless `slot` makes it longer; returns the run that is still to be given back.
    fn give_back_later(&mut self, run: Option<SlotRange>, slot: SlotNo) -> Option<SlotRange> {
        match run {
            Some(run) if slot.is_some() && run.end() == slot => {
                return Some(SlotRange::new(run.start, run.slots + 1));
            }
            Some(run) => {
                self.slots.release_run(run);
                let free = self.slots.available();
                self.daemon_mut().slots_changed(true, free);
            }
            None => {}
        }
        slot.is_some().then(|| SlotRange::new(slot, 1))
    }

    /// The page's slot, if it has one, holds nothing that is wanted.
    pub(super) fn give_back_slot_under_daemon(&mut self, id: PageId) {
        if self.pages.slot(id).is_some() {
            self.give_back_slot(id);
            let free = self.slots.available();
            self.daemon_mut().slots_changed(true, free);
        }
    }

    /// Takes a collected page out of the buffer or the chunk that holds it.
    pub(super) fn unbuffer(&mut self, id: PageId) {
        let page = self.pages.number(id);
        self.pages.set_flag(id, COLLECTED, false);
        self.pageout.forget(page);
        if self.ready.pages.contains(&page) {
            // The run that was found is too long now.
            if let Some(run) = self.flush.run.take() {
                self.slots.allocator().free(run);
                self.flush.split = self.flush.at > 0;
            }
            self.ready.remove(page);
        }
    }
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
