//! What became of the pages that read-ahead brought.
//!
//! A live pager does not see the use of pages that were mapped along with a demanded one. Here every
//! touch is seen, so that policies of either kind can be compared: a page read ahead is used when the
//! program touches it before it leaves memory, and was read in vain when it leaves untouched.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use outpage_core::pager::Pager;
use outpage_core::units::{PageNo, PageRange};

use crate::trace::PageHasher;

/// Pages read ahead whose fate is open, and how many came to which end.
#[derive(Default)]
pub(super) struct Ahead {
    /// Nobody asks: a page daemon clears the bits that tell.
    unseen: bool,
    open: HashSet<PageNo, BuildHasherDefault<PageHasher>>,
    used: u64,
    in_vain: u64,
}

impl Ahead {
    /// For a pager of this kind.
    pub(super) fn of(pager: &Pager) -> Self {
        Self {
            unseen: pager.daemon().is_some(),
            ..Self::default()
        }
    }

    /// `page` is being read, and nobody waits for it.
    pub(super) fn reads(&mut self, page: PageNo) {
        if !self.unseen {
            self.open.insert(page);
        }
    }

    /// The program faults on `page`.
    pub(super) fn faulted(&mut self, page: PageNo) {
        // Asked at every fault: the map would hash the page before it looks whether it is empty.
        self.used += u64::from(!self.open.is_empty() && self.open.remove(&page));
    }

    /// `page` is taken out of the program, which may have touched it without a fault.
    pub(super) fn detached(&mut self, page: PageNo, pager: &Pager) {
        if self.open.contains(&page) && referenced(page, pager) {
            self.faulted(page);
        }
    }

    /// `page` leaves memory.
    pub(super) fn released(&mut self, page: PageNo) {
        self.in_vain += u64::from(!self.open.is_empty() && self.open.remove(&page));
    }

    /// The program gives `range` back. What it touched of it was of use, the rest is neither.
    pub(super) fn dropped(&mut self, range: PageRange, pager: &Pager) {
        self.open.retain(|&page| {
            let dropped = range.contains(page);
            self.used += u64::from(dropped && referenced(page, pager));
            !dropped
        });
    }

    /// Pages used, and pages read in vain; `None` under a page daemon.
    pub(super) fn ends(&self) -> Option<(u64, u64)> {
        (!self.unseen).then_some((self.used, self.in_vain))
    }
}

fn referenced(page: PageNo, pager: &Pager) -> bool {
    pager.place_of(page).is_some_and(|place| place.referenced)
}
