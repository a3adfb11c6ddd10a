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

/// What a miss costs: a wait of its own, or a part of one where it is beside another and comes along with it. A read of 4 KiB takes 60 to 85 us,
/// and as a part of a larger one 3 to 5: a choice within 12 to 28. Where disks are slower it is more (a fault of 200 to 300 us was seen): no other was tried.
pub(super) const ALONE: u32 = 16;
const BESIDE: u32 = 1;

/// Streams that are told apart: of those that `stream` tells apart few go on at once.
const STREAMS: usize = 16;

/// Where pages were missed last.
#[derive(Default)]
struct Missed {
    last: [u64; STREAMS],
    next: usize,
}

impl Missed {
    /// What a miss of the page costs.
    fn cost(&mut self, page: u64) -> u32 {
        // Nothing is beside zero, which is no page.
        let page = page + 2;
        if let Some(stream) = self.last.iter_mut().find(|last| last.abs_diff(page) == 1) {
            *stream = page;
            return BESIDE;
        }
        self.last[self.next] = page;
        self.next = (self.next + 1) % STREAMS;
        ALONE
    }
}

/// One policy's. O(1) a touch.
pub(super) struct Shadow {
    pages: Pages,
    policy: Box<dyn Reclaim>,
    /// Victims that are still due.
    due: usize,
    missed: Missed,
}

impl Shadow {
    /// Of the policy of an entry, with nothing set of it.
    pub(super) fn new(entry: &super::Entry) -> Self {
        Self {
            pages: Pages::new(),
            policy: driven(entry),
            due: 0,
            missed: Missed::default(),
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

    /// The page is touched, and there are `frames`. What it cost that it was not there; 0 if it was.
    pub(super) fn touch(&mut self, page: PageNo, frames: usize) -> u32 {
        let state = self.pages.state_of(page);
        let how = match state {
            State::Untouched => Mapped::Fresh,
            State::Staged => Mapped::Rescued,
            State::PagedOut => Mapped::PagedIn,
            _ => return 0,
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
        match how {
            Mapped::PagedIn => self.missed.cost(page.raw()),
            _ => 0,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_beside_another_costs_less() {
        let mut missed = Missed::default();
        let costs = [0, 1, 2, 100, 99, 3, 5].map(|page| missed.cost(page));
        assert_eq!(costs, [ALONE, BESIDE, BESIDE, ALONE, BESIDE, BESIDE, ALONE]);
        // As many streams as are told apart, and no more.
        let far = |n: usize| 1000 * (n as u64 + 1);
        let mut go = |streams: usize, at: u64| -> u32 {
            (0..streams).map(|n| missed.cost(far(n) + at)).sum()
        };
        assert_eq!(go(STREAMS, 0), STREAMS as u32 * ALONE);
        assert_eq!(go(STREAMS, 1), STREAMS as u32 * BESIDE);
        go(STREAMS + 1, 50);
        assert_eq!(go(STREAMS + 1, 51), (STREAMS as u32 + 1) * ALONE);
    }

    #[test]
    fn a_loop_in_order_costs_little_a_page() {
        let mut shadow = Shadow::new(&super::super::second_chance::ENTRY);
        let mut round = || -> u32 {
            (0..128)
                .map(|n| shadow.touch(PageNo::from_raw(n), 64))
                .sum()
        };
        assert_eq!(round(), 0, "all of them are new");
        assert_eq!(round(), ALONE + 127 * BESIDE);
    }
}
