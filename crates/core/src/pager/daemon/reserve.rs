//! The daemon's reserve of frames: who gets one, and what becomes of clean pages.

use crate::page::{PageId, Queue};
use crate::pager::ledger::Ledger;
use crate::reclaim::bsd::{self, CleanPage, Counters, Daemon, Release};

/// Frames that are free or cached, and the daemon that sees to it that there are some.
pub(super) struct Reserve {
    pub daemon: Daemon,
}

impl Reserve {
    /// Filled by `daemon`.
    pub const fn new(daemon: Daemon) -> Self {
        Self { daemon }
    }

    pub const fn release(&self) -> Release {
        self.daemon.params().release
    }

    pub const fn counters(&mut self) -> &mut Counters {
        self.daemon.counters_mut()
    }

    /// Pages that are free or cached.
    pub fn available(ledger: &Ledger) -> usize {
        bsd::available(&ledger.pages, ledger.frames_free())
    }

    /// Tells the daemon that there may be more of them.
    pub fn freed(&mut self, ledger: &Ledger) {
        self.daemon.freed(Self::available(ledger));
    }

    /// So many are available, less than before: the daemon is woken in time.
    pub fn taken(&mut self, available: usize) {
        if available < self.daemon.levels().wake() {
            self.daemon.wake();
        }
    }

    /// Tells the daemon that slots were found or came back.
    pub fn slots_freed(&mut self, ledger: &Ledger) {
        self.daemon.slots_changed(true, ledger.slots.available());
    }

    /// Whether a fault must wait until there is more memory.
    pub fn severe(&self, ledger: &Ledger) -> bool {
        Self::available(ledger) < self.daemon.levels().severe
    }

    /// A clean page that is on no queue is kept in the cache, or freed (`vm_page_cache`).
    pub fn put_in_cache(&mut self, ledger: &mut Ledger, id: PageId) {
        bsd::unmap(&mut ledger.pages, id);
        let params = self.daemon.params();
        let keeps = params.clean == CleanPage::Cached
            && (params.release == Release::V6_2 || ledger.pages.slot(id).is_some());
        if keeps {
            ledger.pages.push(Queue::Cache, id);
            self.counters().cached += 1;
        } else {
            free_page(ledger, id);
        }
        self.freed(ledger);
    }

    /// The oldest cached page becomes free.
    pub fn reuse_cached(&self, ledger: &mut Ledger) {
        let id = ledger.pages.head(Queue::Cache);
        let id = id.expect("the cache has pages");
        ledger.pages.unqueue(id);
        free_page(ledger, id);
    }

    /// Frames that can be had without waiting.
    pub fn grants(&self, ledger: &Ledger) -> usize {
        let (free, cached) = (ledger.frames_free(), ledger.pages.queued(Queue::Cache));
        let reserved = self.daemon.levels().reserved;
        match self.release() {
            Release::V6_2 => free.saturating_sub(reserved) + cached,
            Release::V8_2 => (free + cached).saturating_sub(reserved),
        }
    }

    /// Finds a frame for a page (`vm_page_alloc`), or tells the daemon that there is none.
    pub fn allocate(&mut self, ledger: &mut Ledger) -> bool {
        let (free, cached) = (ledger.frames_free(), ledger.pages.queued(Queue::Cache));
        let reserved = self.daemon.levels().reserved;
        let (granted, from_cache) = match self.release() {
            Release::V6_2 => (free > reserved || cached > 0, free <= reserved),
            Release::V8_2 => (free + cached > reserved, free == 0),
        };
        if !granted {
            self.daemon.failed();
            return false;
        }
        if from_cache {
            self.reuse_cached(ledger);
        }
        self.taken(free + cached - 1);
        true
    }
}

/// The frame of a clean page that is on no queue is given up. Without a slot the page never was
/// anything but zeroes.
fn free_page(ledger: &mut Ledger, id: PageId) {
    if ledger.pages.slot(id).is_some() {
        ledger.give_up_frame(id);
    } else {
        ledger.pages.forget(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::DIRTY;
    use crate::pager::ledger::tests::{clean, dirty, lay, ledger, resident};
    use crate::reclaim::bsd::Params;
    use crate::units::Nanos;

    /// So many frames are free and so many pages cached.
    fn reserve(
        release: Release,
        free: impl Fn(&Reserve) -> usize,
        cached: u64,
    ) -> (Reserve, Ledger) {
        let mut ledger = ledger();
        let daemon = Daemon::new(Params::new(release), ledger.limits.frames);
        let reserve = Reserve::new(daemon);
        lay(&mut ledger, 0..cached, clean);
        let others = (ledger.frames_free() - free(&reserve)) as u64;
        lay(&mut ledger, 1000..1000 + others, resident);
        (reserve, ledger)
    }

    fn reserved(reserve: &Reserve) -> usize {
        reserve.daemon.levels().reserved
    }

    #[test]
    fn the_cache_is_used_up_before_the_reserve_by_6_2_and_after_it_by_8_2() {
        for (release, left) in [(Release::V6_2, 4), (Release::V8_2, 5)] {
            let (mut reserve, mut ledger) = reserve(release, reserved, 5);
            assert_eq!(reserve.grants(&ledger), 5);
            assert!(reserve.allocate(&mut ledger));
            assert_eq!(ledger.pages.queued(Queue::Cache), left, "{release:?}");
        }
    }

    #[test]
    fn a_frame_that_cannot_be_had_wakes_the_daemon() {
        for release in [Release::V6_2, Release::V8_2] {
            let (mut reserve, mut ledger) = reserve(release, reserved, 0);
            assert!(reserve.daemon.rests(Nanos(0)));
            assert_eq!(reserve.grants(&ledger), 0);
            assert!(!reserve.allocate(&mut ledger));
            assert!(!reserve.daemon.rests(Nanos(0)));
            assert_eq!(ledger.frames_free(), reserved(&reserve));
        }
    }

    #[test]
    fn clean_pages_without_a_slot_are_kept_by_6_2_only() {
        for (release, kept) in [(Release::V6_2, true), (Release::V8_2, false)] {
            let (mut reserve, mut ledger) = reserve(release, |_| 100, 0);
            let id = dirty(&mut ledger, 1);
            ledger.pages.unqueue(id);
            ledger.pages.set_flag(id, DIRTY, false);
            reserve.put_in_cache(&mut ledger, id);
            assert_eq!(ledger.pages.queued(Queue::Cache), usize::from(kept));
            assert_eq!(Reserve::available(&ledger), 100);
            assert_eq!(reserve.counters().cached, u64::from(kept));
        }
    }
}
