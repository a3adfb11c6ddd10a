//! The pager under a daemon that drives itself: allocation, the cache, and who waits for memory.
//!
//! Where frames of a driven policy are a hard limit that victims are detached for, a daemon keeps a
//! reserve: a fault takes a frame from it at once, wakes the daemon when that leaves too few, and
//! waits when there are hardly any. FreeBSD `vm/vm_page.c:vm_page_alloc`, `vm_waitpfault`.

mod arrive;
mod fault;
mod launder;
#[cfg(test)]
mod tests;

pub(super) use launder::Flush;

use super::{Demand, Pager};
use crate::contract::{Action, Event};
use crate::page::{PageId, Queue};
use crate::reclaim::bsd::{self, CleanPage, Daemon, Memory, Release, Step};
use crate::units::{Nanos, PageNo, PageRange};

impl Pager {
    /// Takes in what happened, and lets the daemon do what follows from it.
    pub(super) fn handle_under_daemon(&mut self, now: Nanos, event: Event<'_>) {
        self.now = now;
        match event {
            Event::Fault {
                page,
                access,
                waiter,
                source,
                extent,
            } => self.fault_under_daemon(Demand {
                page,
                access,
                waiter,
                source,
                extent,
                retried: false,
            }),
            Event::Done { id, outcome } => self.done_under_daemon(id, outcome),
            Event::Adopt(range) => self.adopt_under_daemon(range),
            Event::Unmap(range) => {
                self.discard_under_daemon(range);
                // The kernel's object ends with its entry; a later one is another object.
                if range.start.index() == 0 {
                    self.swap_objects.remove(&range.start.object());
                }
            }
            Event::Discard(range) => self.discard_under_daemon(range),
            Event::Limit(frames) => {
                self.limits.frames = frames;
                self.daemon_mut().resize(frames);
                let available = self.available();
                self.daemon_mut().freed(available);
            }
            Event::Grown(range) => {
                self.add_slots(range);
                (self.growing, self.swap_full) = (false, false);
            }
            Event::Full => (self.growing, self.swap_full) = (false, true),
            Event::Forking => self.slots.keep_for_child(&self.pages),
            Event::Forked => self.forked(),
            Event::ChildrenGone => self.slots.children_gone(),
            Event::Tick | Event::Timer => {}
        }
        self.come_to_rest();
        self.stats.frames_peak = self.stats.frames_peak.max(self.frames_used() as u64);
    }

    pub(super) fn daemon_mut(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("under a daemon")
    }

    fn release(&mut self) -> Release {
        self.daemon_mut().params().release
    }

    /// Pages that are free or cached.
    fn available(&self) -> usize {
        bsd::available(&self.pages, self.frames_free())
    }

    /// The daemon first, as it goes before programs; then whoever it lets go.
    fn come_to_rest(&mut self) {
        loop {
            self.run_daemon();
            if !self.daemon_mut().lets_go() {
                return;
            }
            for _ in 0..self.waits.frames() {
                let demand = self.waits.take_for_frame().expect("counted");
                self.fault_under_daemon(demand);
            }
        }
    }

    fn run_daemon(&mut self) {
        let now = self.now;
        if self.daemon_mut().rests(now) {
            return;
        }
        while self.flush_on() {
            let memory = Memory {
                free: self.frames_free(),
                slots_free: self.slots.available(),
            };
            let daemon = self.daemon.as_mut().expect("under a daemon");
            match daemon.advance(now, &mut self.pages, memory) {
                Step::Rest => return,
                Step::Cache(id) => self.put_in_cache(id),
                Step::Launder(id) => self.launder(id),
                Step::Flush => self.flush_buffer(),
                Step::FreeCached => self.reuse_cached(),
                Step::Exhausted => self
                    .actions
                    .push_back(Action::Exhausted { swap_full: true }),
            }
        }
    }

    /// A clean page that is on no queue is kept in the cache, or freed (`vm_page_cache`).
    fn put_in_cache(&mut self, id: PageId) {
        bsd::unmap(&mut self.pages, id);
        let params = *self.daemon_mut().params();
        let keeps = params.clean == CleanPage::Cached
            && (params.release == Release::V6_2 || self.pages.slot(id).is_some());
        if keeps {
            self.pages.push(Queue::Cache, id);
            self.daemon_mut().counters_mut().cached += 1;
        } else {
            self.free_page(id);
        }
        let available = self.available();
        self.daemon_mut().freed(available);
    }

    /// The frame of a clean page that is on no queue is given up. Without a slot the page never was
    /// anything but zeroes.
    fn free_page(&mut self, id: PageId) {
        if self.pages.slot(id).is_some() {
            self.paged_out_now(id);
        } else {
            self.pages.forget(id);
        }
    }

    /// The oldest cached page becomes free.
    fn reuse_cached(&mut self) {
        let id = self.pages.head(Queue::Cache).expect("the cache has pages");
        self.pages.unqueue(id);
        self.free_page(id);
    }

    /// Frames that can be had without waiting.
    fn grants(&mut self) -> usize {
        let (free, cached) = (self.frames_free(), self.pages.queued(Queue::Cache));
        let reserved = self.daemon_mut().levels().reserved;
        match self.release() {
            Release::V6_2 => free.saturating_sub(reserved) + cached,
            Release::V8_2 => (free + cached).saturating_sub(reserved),
        }
    }

    /// Finds a frame for a page (`vm_page_alloc`), or tells the daemon that there is none.
    fn allocate(&mut self) -> bool {
        let (free, cached) = (self.frames_free(), self.pages.queued(Queue::Cache));
        let release = self.release();
        let levels = *self.daemon_mut().levels();
        let (granted, from_cache) = match release {
            Release::V6_2 => (
                free > levels.reserved || cached > 0,
                free <= levels.reserved,
            ),
            Release::V8_2 => (free + cached > levels.reserved, free == 0),
        };
        if !granted {
            self.daemon_mut().failed();
            return false;
        }
        if from_cache {
            self.reuse_cached();
        }
        self.taken(free + cached - 1);
        true
    }

    /// A page less is available: the daemon is woken in time.
    fn taken(&mut self, available: usize) {
        let daemon = self.daemon_mut();
        if available < daemon.levels().wake() {
            daemon.wake();
        }
    }

    /// Whether a fault must wait until there is more memory.
    fn severe(&mut self) -> bool {
        let available = self.available();
        available < self.daemon_mut().levels().severe
    }

    /// The fault waits for memory (`vm_waitpfault`).
    fn wait_for_memory(&mut self, demand: Demand) {
        self.daemon_mut().wake();
        self.wait_for_frame(&demand);
    }

    /// Whoever sleeps on the page starts its fault again.
    fn restart(&mut self, page: PageNo) {
        // Whoever falls asleep again meanwhile is not asked twice.
        let (page, mut among) = (PageRange::one(page), 0..self.waits.sleepers());
        while let Some((at, demand)) = self.waits.take_sleeper(among.clone(), page) {
            among = at..among.end - 1;
            self.fault_under_daemon(Demand {
                retried: true,
                ..demand
            });
        }
    }
}
