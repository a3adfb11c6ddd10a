//! What threads free until they write to it (`MADV_FREE`).
//!
//! The kernel does it, page by page: it drops such a page as long as nobody has written to it since, by its own bit for that, and so a write cancels
//! it without a word to anybody. The pager only asks it to (`World::drop_freed`). But the kernel tells of the call as it tells of one that empties
//! memory, and before it clears its bits, so whoever makes it says so here, before and after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use outpage_core::contract::Event;
use outpage_core::units::PAGE_BYTES;
use outpage_sys::raw::Errno;
use outpage_sys::{clock, map, process};

use crate::engine::Engine;
use crate::live::Live;

/// Calls that can be under way at once; one beyond them acts at once. As many as [`crate::call::SLOTS`].
const CALLS: usize = 64;

const IDLE: usize = 0;
/// No address of the program's.
const CLAIMED: usize = 1;

/// A range that a thread frees, as far as the kernel has not told of it: it tells of one mapping after the other.
#[derive(Default)]
struct Slot {
    /// Behind the last byte; or one of the above.
    end: AtomicUsize,
    start: AtomicUsize,
    /// Where it begins, however much was told.
    first: AtomicUsize,
    /// One of the below: as soon as the call was made, all that is told of it was read.
    stage: AtomicUsize,
}

/// The kernel has not freed the range yet.
const BEGUN: usize = 0;
/// It has, which the pager did not hear yet.
const FREED: usize = 1;
/// It has and the pager knows, or it refused.
const OVER: usize = 2;

/// The calls that are under way, or of which messages wait. Without a lock: threads claim slots, the pager gives them back.
pub(crate) struct Freeing {
    slots: [Slot; CALLS],
    /// Whether any is to keep its meaning.
    open: AtomicBool,
    /// A range was freed since the pager last looked.
    news: AtomicBool,
}

/// A call that is about to be made, or was.
struct Announced<'a> {
    slot: &'a Slot,
    news: &'a AtomicBool,
}

impl Freeing {
    /// With no call under way; all of them act at once until [`Self::set_open`].
    pub(crate) fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot::default()),
            open: AtomicBool::new(false),
            news: AtomicBool::new(false),
        }
    }

    /// Whether freed pages stay until frames are wanted.
    fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// On the program's thread, before `len` bytes from `start` on are freed. `None` where that has to act at once.
    fn announce(&self, start: usize, len: usize) -> Option<Announced<'_>> {
        if !self.open.load(Ordering::SeqCst) {
            return None;
        }
        let end = start.saturating_add(len).saturating_add(PAGE_BYTES - 1) & !(PAGE_BYTES - 1);
        let claims = |slot: &&Slot| {
            let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
            let claimed = (slot.end).compare_exchange(IDLE, CLAIMED, success, failure);
            claimed.is_ok()
        };
        let slot = self.slots.iter().find(claims)?;
        slot.start.store(start, Ordering::SeqCst);
        slot.first.store(start, Ordering::SeqCst);
        slot.stage.store(BEGUN, Ordering::SeqCst);
        slot.end.store(end, Ordering::SeqCst);
        let news = &self.news;
        Some(Announced { slot, news })
    }

    /// On the pager's thread: whether it was said that `start..end` is freed, once for each time.
    fn takes(&self, start: usize, end: usize) -> bool {
        let covers = |slot: &&Slot| {
            let to = slot.end.load(Ordering::SeqCst);
            to > CLAIMED && slot.start.load(Ordering::SeqCst) <= start && end <= to
        };
        let found = self.slots.iter().find(covers);
        found.is_some_and(|slot| {
            slot.start.store(end, Ordering::SeqCst);
            true
        })
    }

    /// On the pager's thread: calls `each` with start and end of what the kernel has freed since the last time.
    fn each_freed(&self, mut each: impl FnMut(usize, usize)) {
        self.news.store(false, Ordering::SeqCst);
        for slot in &self.slots {
            let end = slot.end.load(Ordering::SeqCst);
            if end > CLAIMED && slot.stage.load(Ordering::SeqCst) == FREED {
                each(slot.first.load(Ordering::SeqCst), end);
                slot.stage.store(OVER, Ordering::SeqCst);
            }
        }
    }

    /// On the pager's thread, when all that it has read was attended to: nothing more comes of calls that are over.
    fn attended(&self) {
        for slot in &self.slots {
            if slot.end.load(Ordering::SeqCst) > CLAIMED
                && slot.stage.load(Ordering::SeqCst) == OVER
            {
                slot.end.store(IDLE, Ordering::SeqCst);
            }
        }
    }

    /// In a forked child: who was about to is not here.
    pub(crate) fn reset(&self) {
        (self.slots.iter()).for_each(|slot| slot.end.store(IDLE, Ordering::SeqCst));
    }
}

impl Announced<'_> {
    /// The call was made, and the kernel has done as it was asked or not.
    fn over(self, freed: bool) {
        self.slot
            .stage
            .store(if freed { FREED } else { OVER }, Ordering::SeqCst);
        self.news.fetch_or(freed, Ordering::SeqCst);
    }
}

impl Live {
    /// From now on freed pages stay until frames are wanted, where the kernel can drop them for us.
    ///
    /// Where the kernel has swap of its own it would write pages there that are not to be dropped after all.
    pub(crate) fn let_frees_be_lazy(&self, wanted: bool) {
        let lazily = wanted && !process::has_swap();
        self.calls.freeing.set_open(lazily);
    }

    /// Calls that are over are forgotten, unless messages wait.
    pub(crate) fn let_calls_end(&mut self) {
        self.hear_what_was_freed();
        if self.world.is_calm() {
            self.calls.freeing.attended();
        }
    }

    /// Tells the pager what the kernel has freed since it was told last.
    pub(crate) fn hear_what_was_freed(&mut self) {
        if !self.calls.freeing.news.load(Ordering::SeqCst) {
            return;
        }
        let calls = Arc::clone(&self.calls);
        calls.freeing.each_freed(|start, end| {
            let parts = self.world.space.parts(start, end);
            for part in &parts {
                self.pager.handle(clock::now(), Event::Freed(part.pages()));
            }
            self.world.space.take_list(parts);
        });
    }

    /// The kernel tells that `start..end` is emptied, or is about to be freed: that depends on what was announced. Of what the program does not have
    /// nothing is left in either case. So where one thread frees what another empties, pages count as there that are not, and are found missing when they are
    /// to go: what is in them is right.
    pub(crate) fn emptied(&mut self, start: usize, end: usize) {
        let event = if self.calls.freeing.takes(start, end) {
            Event::Freeing
        } else {
            Event::Discard
        };
        if self.world.views.is_empty() {
            return self.drop_contents(start, end, event);
        }
        for part in self.world.space.parts(start, end) {
            if part.view == 0 {
                self.drop_contents(part.start, part.end, event);
            } else {
                self.emptied_unheard(&part);
            }
        }
    }
}

impl Engine {
    /// `MADV_FREE`: what the program has of the range may be dropped until it writes there; the rest is.
    pub(crate) fn free(&self, addr: usize, len: usize) -> Result<(), Errno> {
        if let Some(announced) = self.shared.calls.freeing.announce(addr, len) {
            let answer = map::madvise(addr, len, libc::MADV_FREE);
            announced.over(answer.is_ok());
            return answer;
        }
        // The pager counts these pages as gone, so they must be. The first call refuses what cannot be freed.
        map::madvise(addr, len, libc::MADV_FREE)?;
        map::madvise(addr, len, libc::MADV_DONTNEED)
    }
}

#[cfg(test)]
mod tests;
