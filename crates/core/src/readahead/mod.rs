//! What else is read when a page comes back.
//!
//! A [`ReadAhead`] policy sees major faults and names slots to read; the pager turns them into
//! reads. What lies next to each other in the store was written together, so slots are the
//! neighbourhood; a policy that wants virtual neighbours as well asks the [`SlotView`].

use alloc::boxed::Box;
use core::ops::RangeInclusive;

use crate::contract::Source;
use crate::settings::{Setting, Values};
use crate::units::{Nanos, PageNo, SlotNo, SlotRange};

mod account;
mod asp;
mod asp2;
mod bsd;
mod choice;
mod common;
mod cost;
mod follow;
mod forward;
mod ghost;
mod govern;
mod key;
mod leap;
mod learn;
mod linux;
mod linux_slot;
mod linux_vma;
mod none;
mod objects;
mod refused;
mod sample;
mod scan;
mod span;
mod stream;
mod stride;
mod track;
mod window;

pub use choice::Choice;
pub use common::{Arrival, Govern, Manner};
pub(crate) use follow::Read;
pub(crate) use forward::{forward, forward_behind};
pub(crate) use govern::{Governor, Slow, Verdict};
pub use refused::Refused;
pub(crate) use window::clip;
pub use window::{RUNS_MAX, Runs, Window};

/// The window sizes that a policy can be built with, in slots: up to 1 MiB a read.
pub const MAX_WINDOW: RangeInclusive<u32> = 1..=256;

/// A touch that read-ahead is told of: a fault on a page whose content is only in the store, or the
/// first touch of a page that was read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// When.
    pub now: Nanos,
    /// The page.
    pub page: PageNo,
    /// The slot that holds it.
    pub slot: SlotNo,
    /// Who touched it.
    pub source: Source,
}

/// Streams that a policy may tell apart at a time.
pub const TAGS: usize = 16;

/// Why less is read than a policy named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// More would be read in vain, as the governor sees it.
    InVain,
    /// There are no more frames: the window was not too large.
    OfFrames,
}

/// A stream of faults that a policy follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamId {
    /// Its place among those that are followed, below [`TAGS`].
    pub place: u8,
    /// Tells it from those that had this place before.
    pub begun: u32,
}

/// What a policy may ask about the store.
pub trait SlotView {
    /// The page whose content is only in `slot` and that is not in flight. `None` for every other
    /// slot, those beyond the end of the store included.
    fn paged_out(&self, slot: SlotNo) -> Option<PageNo>;

    /// The slot of `page`, under the same condition.
    fn slot_of(&self, page: PageNo) -> Option<SlotNo>;
}

/// A way of choosing what else to read.
pub trait ReadAhead: Send {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// How what it names is treated. Does not change.
    fn manner(&self) -> Manner {
        Manner::default()
    }

    /// Chooses what to read for `fault`, whose slot the view calls paged out.
    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window;

    /// The first touch of a page that was read ahead. May name slots to read next, all of them
    /// paged out, without anybody waiting for them.
    ///
    /// Under [`Arrival::Mapped`] touches of the pages of [`Window::now`] are mostly not seen; those
    /// of [`Window::behind`] and of ranges named here are, where the body sees touches at all.
    fn hit(&mut self, touch: &Touch, view: &dyn SlotView) -> Option<SlotRange> {
        let _ = (touch, view);
        None
    }

    /// What else is read for `touch`, which [`Self::hit`] was just told of: the ranges named before are under way. Asked until nothing is named, or
    /// a range could not be read.
    fn more(&mut self, touch: &Touch, view: &dyn SlotView) -> Option<SlotRange> {
        let _ = (touch, view);
        None
    }

    /// The stream that the last window, or range of [`Self::hit`], was named for, where the policy tells
    /// streams apart.
    fn stream(&self) -> Option<StreamId> {
        None
    }

    /// At most `most` pages are read for `fault`, whose window was just named, beside its own: what is
    /// read of `window`. Asked under a governor only.
    fn shorten(
        &mut self,
        window: &Window,
        fault: &Touch,
        most: u32,
        why: Short,
        view: &dyn SlotView,
    ) -> Window {
        let _ = (why, view);
        window.within(fault.slot, most)
    }

    /// At most `most` slots are read of `range`, which [`Self::hit`] just named: which.
    fn shorten_behind(
        &mut self,
        range: SlotRange,
        most: u32,
        view: &dyn SlotView,
    ) -> Option<SlotRange> {
        let _ = view;
        (most > 0).then(|| SlotRange::new(range.start, range.slots.min(most)))
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

/// A policy in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The paper or system that it comes from.
    pub source: &'static str,
    /// Whether it reads pages staged, whatever is set, and goes by their first touches.
    pub needs_touches: bool,
    /// What is different with little memory.
    pub little: Option<Little>,
    /// What can be set of it.
    pub settings: &'static [&'static Setting],
    /// Settings that may not be larger than another one, and that one.
    pub at_most: &'static [(&'static str, &'static str)],
    /// Builds the policy, of values of these settings and how what it names is treated.
    pub build: fn(&Values, Manner) -> Box<dyn ReadAhead>,
}

/// The default of a pager with little memory, of which a large window takes too much.
#[derive(Clone, Copy, Debug)]
pub struct Little {
    /// Fewer frames than this are little.
    pub below: usize,
    /// The largest window, in slots.
    pub max_window: u32,
}

/// All read-ahead policies.
pub static REGISTRY: &[Entry] = &[
    none::ENTRY,
    bsd::ENTRY,
    linux_slot::ENTRY,
    linux_vma::ENTRY,
    asp::ENTRY,
    asp2::ENTRY,
    leap::ENTRY,
    stream::ENTRY,
];

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}
