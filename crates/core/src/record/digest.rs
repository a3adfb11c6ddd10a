//! What a pager decided, as two numbers that can be compared between builds.
//!
//! Neither depends on how actions are made up: only on which pages, slots and kinds follow each other
//! in the order in which a body gets them. Wakes are left out, and what became of pages that are taken back, and so is which slots are dead or given up: they are no decision about a page.

use super::bytes::Check;
use crate::contract::Action;
use crate::units::{PageNo, SlotRange};

/// What stands for each kind of action; not the tags of a log, which may change.
mod kind {
    pub const PAGE_IN: u64 = 1;
    pub const PAGE_OUT: u64 = 2;
    pub const ZERO_FILL: u64 = 3;
    pub const MAP: u64 = 4;
    pub const DETACH: u64 = 5;
    pub const RELEASE: u64 = 6;
    pub const POISON: u64 = 7;
    pub const GROW: u64 = 8;
    pub const EXHAUSTED: u64 = 9;
    pub const COMPRESS: u64 = 10;
    pub const DECOMPRESS: u64 = 11;
    pub const DROP: u64 = 12;
}

/// Takes in a pager's actions in order.
#[derive(Clone, Copy)]
pub struct Decisions {
    transfers: Check,
    all: Check,
    /// Pages read so far.
    pub page_ins: u64,
    /// Pages written so far.
    pub page_outs: u64,
}

impl Default for Decisions {
    fn default() -> Self {
        Self::new()
    }
}

impl Decisions {
    /// Of no action yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            transfers: Check::new(),
            all: Check::new(),
            page_ins: 0,
            page_outs: 0,
        }
    }

    /// The pager handed out `action`.
    pub fn action(&mut self, action: &Action) {
        let pages = action.pages();
        let mut run = |kind, run: crate::units::PageRange| {
            run.iter().for_each(|page| self.page(kind, page));
        };
        match *action {
            Action::ZeroFill { run: r, .. } => run(kind::ZERO_FILL, r),
            Action::Map { run: r, .. } => run(kind::MAP, r),
            Action::Detach { run: r, .. } => run(kind::DETACH, r),
            Action::Drop { run: r, .. } => run(kind::DROP, r),
            Action::PageIn { slots, .. } => {
                self.page_ins += pages.len() as u64;
                self.transfer(kind::PAGE_IN, slots, pages);
            }
            Action::PageOut { slots, .. } => {
                self.page_outs += pages.len() as u64;
                self.transfer(kind::PAGE_OUT, slots, pages);
            }
            Action::Compress { slots, .. } => self.transfer(kind::COMPRESS, slots, pages),
            Action::Decompress { slots, .. } => self.transfer(kind::DECOMPRESS, slots, pages),
            Action::Release { .. } => {
                pages
                    .iter()
                    .for_each(|&page| self.page(kind::RELEASE, page));
            }
            Action::Poison { page, .. } => self.page(kind::POISON, page),
            Action::Grow { slots } => self.other(kind::GROW, slots.into()),
            Action::Exhausted { swap_full } => self.other(kind::EXHAUSTED, swap_full.into()),
            Action::Wake { .. }
            | Action::TakenBack { .. }
            | Action::Dead { .. }
            | Action::Shrink { .. } => {}
        }
    }

    /// Of page-ins and page-outs alone: pages, slots, and which are moved by one transfer.
    #[must_use]
    pub const fn transfers(&self) -> u64 {
        self.transfers.whole()
    }

    /// Of all that a body does for the pager, page by page.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.all.whole()
    }

    fn page(&mut self, kind: u64, page: PageNo) {
        self.other(kind, page.raw());
    }

    const fn other(&mut self, kind: u64, what: u64) {
        self.all.word(kind);
        self.all.word(what);
    }

    fn transfer(&mut self, kind: u64, slots: SlotRange, pages: &[PageNo]) {
        for check in [&mut self.transfers, &mut self.all] {
            check.word(kind);
            check.word(u64::from(slots.start.0) << 32 | u64::from(slots.slots));
            pages.iter().for_each(|page| check.word(page.raw()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{ActionId, PageList, Waiter};
    use crate::units::{PageRange, SlotNo};
    use alloc::vec::Vec;

    fn of(actions: &[Action]) -> (u64, u64) {
        let mut decisions = Decisions::new();
        for action in actions {
            decisions.action(action);
        }
        (decisions.transfers(), decisions.all())
    }

    #[test]
    fn runs_may_be_cut_and_transfers_may_not() {
        let page = PageNo::from_raw;
        let detach = |id, first, pages| Action::Detach {
            id: ActionId(id),
            run: PageRange::new(page(first), pages),
            absent_below: id as u8,
        };
        let once = of(&[detach(0, 5, 2)]);
        assert_eq!(once, of(&[detach(3, 5, 1), detach(4, 6, 1)]));
        assert_ne!(once, of(&[detach(3, 6, 1), detach(4, 5, 1)]));

        let read = |start, pages: &[u64]| Action::PageIn {
            id: ActionId(0),
            slots: SlotRange::new(SlotNo(start), pages.len() as u32),
            pages: PageList::new(pages.iter().map(|&raw| page(raw)).collect(), Vec::new()),
            after: None,
        };
        let once = of(&[read(9, &[5, 6])]);
        assert_ne!(once.0, of(&[read(9, &[5]), read(10, &[6])]).0);
        let wake = Action::Wake {
            waiter: Waiter(1),
            page: page(5),
        };
        assert_eq!(once, of(&[read(9, &[5, 6]), wake]));
    }
}
