//! BSD read-ahead: neighbours in the memory object that are neighbours in the store as well.
//!
//! FreeBSD 6.2 to 8.2: `vm/vm_fault.c:vm_fault` (what is asked for, and `lastr`) and
//! `vm/swap_pager.c:swap_pager_haspage` (what is there). Up to 7 pages before the fault and 7 after
//! it; up to 7 after it and none before when the fault is sequential.

use alloc::boxed::Box;

use super::common::{GOVERN, MAX};
use super::{Entry, Manner, ReadAhead, SlotView, Touch, Window};
use crate::settings::{Allowed, Setting, Values};
use crate::units::{ObjectId, PageNo, SlotNo, SlotRange};

pub(super) const ENTRY: Entry = Entry {
    name: "bsd",
    summary: "pages next to the faulted one both in memory and in the store",
    source: "FreeBSD 6.2 to 8.2, vm_fault and swap_pager_haspage",
    needs_touches: false,
    little: None,
    settings: &[
        // 7 before (SWB_NPAGES / 2, exclusive), the page, 7 after. 16 gives the 15 others that the
        // papers tell of: 8 after.
        &Setting { default: 15, ..MAX },
        &LASTR,
        &GOVERN,
    ],
    at_most: &[],
    build: |values, manner| Box::new(Bsd::new(values, manner)),
};

/// When the point from which a sequential fault is expected (`lastr`) moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LastrRule {
    /// At every fault that needed a read (FreeBSD from the spring of 2010 on).
    MajorFaults,
    /// At faults on untouched pages too (FreeBSD 6.2 and 7).
    EveryFault,
    /// Never: no fault counts as sequential.
    Off,
}

static LASTR: Setting = Setting {
    name: "lastr",
    summary: "which faults move the sequential point",
    allowed: Allowed::Words(&["major-faults", "every-fault", "off"]),
    default: LastrRule::MajorFaults as u32,
};

impl LastrRule {
    fn set(values: &Values) -> Self {
        let rules = [Self::MajorFaults, Self::EveryFault, Self::Off];
        values.word(LASTR.name, &rules)
    }
}

/// A fault less than this many pages beyond the end of the last read is sequential.
const SEQUENTIAL_PAGES: u64 = 16;

/// Objects whose `lastr` is remembered. The kernel keeps one in each map entry; this many of the
/// most recently faulted objects stand in for that without allocating memory in a fault.
const OBJECTS: usize = 64;

/// Pages that a sequential fault puts away below it.
const BEHIND_PAGES: u32 = 32;

struct Bsd {
    manner: Manner,
    /// Pages before the fault, and after it.
    reach: (u32, u32),
    rule: LastrRule,
    /// The last fault was sequential.
    sequential: bool,
    /// (object, index after the last read), most recently used first.
    lastr: [(ObjectId, u64); OBJECTS],
    known: usize,
}

impl Bsd {
    fn new(values: &Values, manner: Manner) -> Self {
        let others = manner.read_max - 1;
        Self {
            reach: (others / 2, others - others / 2),
            manner,
            rule: LastrRule::set(values),
            sequential: false,
            lastr: [(ObjectId(0), 0); OBJECTS],
            known: 0,
        }
    }

    /// Whether a fault on `page` continues the last read of its object.
    fn continues(&self, page: PageNo) -> bool {
        let entry = self.lastr[..self.known]
            .iter()
            .find(|entry| entry.0 == page.object());
        entry.is_some_and(|&(_, last)| (last..last + SEQUENTIAL_PAGES).contains(&page.index()))
    }

    /// Notes a fault on `page` that read `pages` pages, 0 where there was nothing to read. The next
    /// sequential one is expected behind them, counted from the first page that was asked for.
    fn note(&mut self, page: PageNo, pages: u32) {
        let asked_before = if self.sequential {
            0
        } else {
            page.index().min(u64::from(self.reach.0))
        };
        let (object, next) = (
            page.object(),
            page.index() - asked_before + u64::from(pages),
        );
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

    fn manner(&self) -> Manner {
        self.manner
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        self.sequential = self.rule != LastrRule::Off && self.continues(fault.page);
        let before = if self.sequential {
            0
        } else {
            neighbours(self.reach.0, view, |n| {
                let slot = fault.slot.0.checked_sub(n)?;
                Some((fault.page.checked_sub(u64::from(n))?, SlotNo(slot)))
            })
        };
        let after = neighbours(self.reach.1, view, |n| {
            let slot = fault.slot.0.checked_add(n)?;
            Some((fault.page.checked_add(u64::from(n))?, SlotNo(slot)))
        });
        if self.rule != LastrRule::Off {
            self.note(fault.page, before + 1 + after);
        }
        let start = SlotNo(fault.slot.0 - before);
        Window::run(SlotRange::new(start, before + 1 + after))
    }

    fn untouched_fault(&mut self, page: PageNo) {
        self.sequential = self.rule != LastrRule::Off && self.continues(page);
        if self.rule == LastrRule::EveryFault {
            self.note(page, 0);
        }
    }

    fn drops_behind(&self) -> u32 {
        if self.sequential { BEHIND_PAGES } else { 0 }
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
