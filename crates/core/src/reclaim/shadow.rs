//! A pager in small, to see what a policy would have missed.
//!
//! It has no contents, no slots and no writes: pages that come, are staged, and leave. A policy is asked as the pager asks it, about a sample of
//! the pages in as much of the frames, and it sees as little: what is mapped here is not seen, whoever touches it.

use alloc::boxed::Box;

use super::{Mapped, Policy, Reclaim};
use crate::page::{PageId, Pages, State};
use crate::settings::Values;
use crate::units::{PageNo, SlotNo, SlotRange};

/// Of the frames, one of so many is staged: as [`crate::limits::Limits`] has it.
const STAGED: usize = 8;
/// Victims that are staged for each frame taken, at most: as the pager does it (`pager/watermarks/eviction/pace.rs`).
const VICTIMS_A_FRAME: usize = 8;

/// One policy's. O(1) a touch.
pub(super) struct Shadow {
    pages: Pages,
    policy: Box<dyn Reclaim>,
    /// Victims that are still due.
    due: usize,
}

impl Shadow {
    /// Of the policy of an entry, with nothing set of it.
    pub(super) fn new(entry: &super::Entry) -> Self {
        Self {
            pages: Pages::new(),
            policy: driven(entry),
            due: 0,
        }
    }

    /// Makes room for pages with numbers below `pages`.
    pub(super) fn reserve(&mut self, pages: usize) {
        if self.pages.ids() < pages {
            self.pages.reserve(pages.div_ceil(64));
            let slots = SlotRange::new(SlotNo(0), self.pages.ids() as u32);
            self.pages.add_slots(slots);
        }
        self.policy.reserve(self.pages.ids());
    }

    /// Bytes of heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.pages.heap_bytes() + self.policy.heap_bytes()
    }

    /// Whether the page is in memory.
    pub(super) fn has(&self, page: PageNo) -> bool {
        self.pages.state_of(page).has_frame()
    }

    /// The page is another's from now on.
    pub(super) fn forget(&mut self, page: PageNo) {
        if let Some(id) = self.pages.find(page) {
            self.pages.unqueue(id);
            self.pages.forget(id);
        }
    }

    /// The page is touched, and there are `frames`. Whether it was not there.
    pub(super) fn touch(&mut self, page: PageNo, frames: usize) -> bool {
        let state = self.pages.state_of(page);
        let how = match state {
            State::Untouched => Mapped::Fresh,
            State::Staged => Mapped::Rescued,
            State::PagedOut => Mapped::PagedIn,
            _ => return false,
        };
        let id = self.pages.find(page).unwrap_or_else(|| self.come(page));
        if how == Mapped::PagedIn {
            self.pages.set_state(id, State::Reading);
            self.pages.set_state(id, State::Staged);
        }
        if how != Mapped::Fresh {
            self.pages.unqueue(id);
            self.pages.set_state(id, State::Mapping);
        }
        self.pages.set_state(id, State::Resident);
        self.policy.mapped(&mut self.pages, id, how);
        if how != Mapped::Rescued {
            self.due += VICTIMS_A_FRAME;
        }
        self.balance(frames);
        how == Mapped::PagedIn
    }

    /// A page that was never there. Each has the slot of its number.
    fn come(&mut self, page: PageNo) -> PageId {
        let number = page.raw() as usize;
        if number >= self.pages.ids() {
            self.reserve(number + 1);
        }
        let id = self.pages.create(page, State::Mapping);
        self.pages.set_slot(id, SlotNo(number as u32));
        id
    }

    fn balance(&mut self, frames: usize) {
        let staged = (frames / STAGED).max(1);
        self.due = self.due.min(staged);
        while self.due > 0 && self.staged() + frames.saturating_sub(self.pages.framed()) < staged {
            self.due -= 1;
            let Some(id) = self.policy.victim(&mut self.pages) else {
                break;
            };
            self.stage(id);
        }
        while self.pages.framed() > frames.max(1) {
            let Some(id) = self.policy.release(&mut self.pages) else {
                let Some(id) = self.policy.victim(&mut self.pages) else {
                    return;
                };
                self.stage(id);
                continue;
            };
            self.policy.left(&self.pages, id);
            self.pages.set_state(id, State::PagedOut);
        }
    }

    fn staged(&self) -> usize {
        self.pages.count(State::Staged)
    }

    /// Clean at once: nothing is written here.
    fn stage(&mut self, id: PageId) {
        self.pages.set_state(id, State::Detaching);
        self.pages.set_state(id, State::Staged);
        self.policy.cleaned(&mut self.pages, id);
    }
}

/// The policy of an entry that the pager drives, with nothing set of it.
///
/// # Panics
/// When it drives itself.
pub(super) fn driven(entry: &super::Entry) -> Box<dyn Reclaim> {
    match (entry.build)(&Values::defaults(entry.settings)) {
        Policy::Driven(policy) => policy,
        Policy::Daemon(_) => panic!("{} drives itself", entry.name),
    }
}
