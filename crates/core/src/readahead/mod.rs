//! What else is read when a page comes back.
//!
//! A [`ReadAhead`] policy sees major faults and names slots to read; the pager turns them into
//! reads. What lies next to each other in the store was written together, so slots are the
//! neighbourhood; a policy that wants virtual neighbours as well asks the [`SlotView`].

use alloc::boxed::Box;
use core::ops::RangeInclusive;

use crate::units::{Nanos, PageNo, SlotNo, SlotRange};

mod bsd;
mod learn;
mod linux_slot;
mod none;
mod span;
mod stream;

/// The window sizes that a policy can be built with, in slots: up to 1 MiB a read.
pub const MAX_WINDOW: RangeInclusive<u32> = 1..=256;

/// A fault on a page whose content is only in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MajorFault {
    /// When.
    pub now: Nanos,
    /// The page.
    pub page: PageNo,
    /// The slot that holds it.
    pub slot: SlotNo,
}

/// What a policy may ask about the store.
pub trait SlotView {
    /// The page whose content is only in `slot` and that is not in flight. `None` for every other
    /// slot, those beyond the end of the store included.
    fn paged_out(&self, slot: SlotNo) -> Option<PageNo>;

    /// The slot of `page`, under the same condition.
    fn slot_of(&self, page: PageNo) -> Option<SlotNo>;
}

/// What to read for a major fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Read at once, as one run. Holds the fault's slot, and paged-out slots only.
    pub now: SlotRange,
    /// Read after it without anybody waiting. Disjoint from `now`, paged-out slots only.
    pub behind: Option<SlotRange>,
    /// The run was chosen because slots are touched in descending order.
    pub downward: bool,
}

impl Window {
    /// Nothing but the slot itself.
    #[must_use]
    pub const fn one(slot: SlotNo) -> Self {
        Self {
            now: SlotRange::new(slot, 1),
            behind: None,
            downward: false,
        }
    }
}

/// A way of choosing what else to read.
pub trait ReadAhead: Send {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// Chooses what to read for `fault`, whose slot the view calls paged out.
    fn major_fault(&mut self, fault: &MajorFault, view: &dyn SlotView) -> Window;

    /// The first touch of `page`, read ahead from `slot`. May name slots to read next, all of them
    /// paged out, without anybody waiting for them.
    ///
    /// A body that sees no touch of the pages of [`Window::now`] reports those of
    /// [`Window::behind`] and of ranges named here.
    fn hit(
        &mut self,
        now: Nanos,
        page: PageNo,
        slot: SlotNo,
        view: &dyn SlotView,
    ) -> Option<SlotRange> {
        let _ = (now, page, slot, view);
        None
    }

    /// `page`, read ahead from `slot`, was evicted untouched. One report for a range that was named
    /// is enough; more do no harm.
    fn wasted(&mut self, page: PageNo, slot: SlotNo) {
        let _ = (page, slot);
    }

    /// A fault on an untouched page, which needs no read.
    fn untouched_fault(&mut self, page: PageNo) {
        let _ = page;
    }

    /// How many pages below the last fault are not wanted any more, because it was sequential. A
    /// daemon that drops pages behind faults puts them away.
    fn drops_behind(&self) -> u32 {
        0
    }
}

/// When BSD read-ahead moves the point from which it expects a sequential fault (`lastr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LastrRule {
    /// At every fault that needed a read (FreeBSD from the spring of 2010 on).
    #[default]
    MajorFaults,
    /// At faults on untouched pages too (FreeBSD 6.2 and 7).
    EveryFault,
    /// Never: no fault counts as sequential.
    Off,
}

/// What a policy is built from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// The most slots in a window, within [`MAX_WINDOW`]. `none` ignores it.
    pub max_window: u32,
    /// For `bsd`.
    pub lastr: LastrRule,
}

impl Params {
    /// The largest window, checked.
    ///
    /// # Panics
    /// When it lies outside [`MAX_WINDOW`].
    fn checked_max_window(self) -> u32 {
        assert!(
            MAX_WINDOW.contains(&self.max_window),
            "{} slots are no window",
            self.max_window
        );
        self.max_window
    }
}

/// A policy in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The paper or system that it comes from.
    pub source: &'static str,
    /// The largest window of that source, in slots.
    pub max_window: u32,
    /// Builds the policy; panics when a parameter is out of its range.
    pub build: fn(Params) -> Box<dyn ReadAhead>,
}

impl Entry {
    /// The parameters of the policy's source.
    #[must_use]
    pub const fn params(&self) -> Params {
        Params {
            max_window: self.max_window,
            lastr: LastrRule::MajorFaults,
        }
    }
}

/// All read-ahead policies.
pub static REGISTRY: &[Entry] = &[none::ENTRY, bsd::ENTRY, linux_slot::ENTRY, stream::ENTRY];

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}
