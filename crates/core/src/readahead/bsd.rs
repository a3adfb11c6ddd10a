//! BSD read-ahead: neighbours in the memory object that are neighbours in the store as well.
//!
//! FreeBSD 6.2 to 8.2: `vm/vm_fault.c:vm_fault` (what is asked for, and `lastr`) and
//! `vm/swap_pager.c:swap_pager_haspage` (what is there). Up to 7 pages before the fault and 7 after
//! it; up to 7 after it and none before when the fault is sequential.

use alloc::boxed::Box;

use super::params::{LASTR, MAX};
use super::{Entry, LastrRule, Params, ReadAhead, SlotView, Touch, Window};
use crate::units::{ObjectId, PageNo, SlotNo, SlotRange};

pub(super) const ENTRY: Entry = Entry {
    name: "bsd",
    summary: "pages next to the faulted one both in memory and in the store",
    source: "FreeBSD 6.2 to 8.2, vm_fault and swap_pager_haspage",
    // 7 before (SWB_NPAGES / 2, exclusive), the page, 7 after.
    defaults: Params {
        max_window: 15,
        ..Params::DEFAULT
    },
    settings: &[MAX, LASTR],
    build: |params| Box::new(Bsd::new(params)),
};

/// A fault less than this many pages beyond the end of the last read is sequential.
const SEQUENTIAL_PAGES: u64 = 16;

/// Objects whose `lastr` is remembered. The kernel keeps one in each map entry; this many of the
/// most recently faulted objects stand in for that without allocating memory in a fault.
const OBJECTS: usize = 64;

struct Bsd {
    /// Pages on each side.
    reach: u32,
    rule: LastrRule,
    /// (object, index after the last read), most recently used first.
    lastr: [(ObjectId, u64); OBJECTS],
    known: usize,
}

impl Bsd {
    fn new(params: Params) -> Self {
        Self {
            reach: (params.checked().max_window - 1) / 2,
            rule: params.lastr,
            lastr: [(ObjectId(0), 0); OBJECTS],
            known: 0,
        }
    }

    /// Whether a fault on `page` continues the last read of its object.
    fn sequential(&self, page: PageNo) -> bool {
        let entry = self.lastr[..self.known]
            .iter()
            .find(|entry| entry.0 == page.object());
        entry.is_some_and(|&(_, last)| (last..last + SEQUENTIAL_PAGES).contains(&page.index()))
    }

    /// Expects the next sequential fault of `object` from index `next` on.
    fn expect(&mut self, object: ObjectId, next: u64) {
        let found = self.lastr[..self.known]
            .iter()
            .position(|entry| entry.0 == object);
        let at = found.unwrap_or_else(|| {
            self.known = (self.known + 1).min(OBJECTS);
            self.known - 1
        });
        self.lastr[at] = (object, next);
        self.lastr[..=at].rotate_right(1);
    }
}

impl ReadAhead for Bsd {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        let before = if self.sequential(fault.page) {
            0
        } else {
            neighbours(self.reach, view, |n| {
                let slot = fault.slot.0.checked_sub(n)?;
                Some((fault.page.checked_sub(u64::from(n))?, SlotNo(slot)))
            })
        };
        let after = neighbours(self.reach, view, |n| {
            let slot = fault.slot.0.checked_add(n)?;
            Some((fault.page.checked_add(u64::from(n))?, SlotNo(slot)))
        });
        if self.rule != LastrRule::Off {
            self.expect(
                fault.page.object(),
                fault.page.index() + 1 + u64::from(after),
            );
        }
        let start = SlotNo(fault.slot.0 - before);
        Window::run(SlotRange::new(start, before + 1 + after))
    }

    fn untouched_fault(&mut self, page: PageNo) {
        if self.rule == LastrRule::EveryFault {
            self.expect(page.object(), page.index());
        }
    }
}

/// How many of the `reach` nearest neighbours in one direction can be read along: those before the
/// first that is not paged out, or not in the slot that lies as far away as the page does.
fn neighbours(
    reach: u32,
    view: &dyn SlotView,
    nth: impl Fn(u32) -> Option<(PageNo, SlotNo)>,
) -> u32 {
    let there = |n: &u32| nth(*n).is_some_and(|(page, slot)| view.slot_of(page) == Some(slot));
    (1..=reach).take_while(there).count() as u32
}
