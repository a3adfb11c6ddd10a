//! Runs of slots in either direction.

use core::ops::RangeInclusive;

use super::common::MAX_SLOTS;
use super::{SlotView, Window};
use crate::units::{PageNo, SlotNo, SlotRange};

/// The order in which slots are touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// Ascending.
    Up,
    /// Descending.
    Down,
}

impl Direction {
    /// The slot `n` further on; `None` beyond either end of the slot numbers.
    pub(super) fn step(self, from: SlotNo, n: u32) -> Option<SlotNo> {
        let to = match self {
            Self::Up => from.0.checked_add(n),
            Self::Down => from.0.checked_sub(n),
        };
        to.map(SlotNo).filter(|slot| slot.is_some())
    }

    pub(super) const fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    /// How far `to` lies beyond `from`; `None` when it lies before it.
    pub(super) fn distance(self, from: SlotNo, to: SlotNo) -> Option<u32> {
        match self {
            Self::Up => to.0.checked_sub(from.0),
            Self::Down => from.0.checked_sub(to.0),
        }
    }

    /// The `slots` slots that begin with `first` in this direction.
    pub(super) fn range(self, first: SlotNo, slots: u32) -> SlotRange {
        let start = match self {
            Self::Up => first.0,
            Self::Down => first.0 + 1 - slots,
        };
        SlotRange::new(SlotNo(start), slots)
    }
}

/// Pages farther apart than this do not belong to one run, though their slots be neighbours: they
/// left memory one after the other by chance. Larger than the strides of programs that skip pages.
const STRIDE_MAX: u64 = 256;

/// How many slots from `first` on hold paged-out pages of one run, up to `most`.
pub(super) fn run(view: &dyn SlotView, first: SlotNo, towards: Direction, most: u32) -> u32 {
    let mut last: Option<PageNo> = None;
    let goes_on = |n: &u32| {
        let Some(page) = towards
            .step(first, *n)
            .and_then(|slot| view.paged_out(slot))
        else {
            return false;
        };
        let near = last.is_none_or(|last| page.raw().abs_diff(last.raw()) <= STRIDE_MAX);
        last = Some(page);
        near
    };
    (0..most).take_while(goes_on).count() as u32
}

/// Where the page after the last of a run of `slots` slots is, if not in the next slot.
pub(super) fn follow(
    view: &dyn SlotView,
    first: SlotNo,
    towards: Direction,
    slots: u32,
) -> Option<SlotNo> {
    let page = |n: u32| towards.step(first, n).and_then(|slot| view.paged_out(slot));
    let last = page(slots.checked_sub(1)?)?;
    let before = if slots > 1 { page(slots - 2) } else { None };
    let ascending = before.map_or(towards == Direction::Up, |before| before < last);
    let next = if ascending {
        last.checked_add(1)
    } else {
        last.checked_sub(1)
    }?;
    view.slot_of(next)
        .filter(|&slot| towards.step(first, slots) != Some(slot))
}

/// Whether `slot` lies in `range`.
pub(super) fn contains(range: SlotRange, slot: SlotNo) -> bool {
    slot.0
        .checked_sub(range.start.0)
        .is_some_and(|at| at < range.slots)
}

/// The window that reads every paged-out slot of `range`, which holds `slot` and has at most
/// [`MAX_SLOTS`] slots.
pub(super) fn all_out(view: &dyn SlotView, slot: SlotNo, range: RangeInclusive<u32>) -> Window {
    let mut slots = [0; MAX_SLOTS];
    let mut count = 0;
    for other in range {
        if other == slot.0 || view.paged_out(SlotNo(other)).is_some() {
            slots[count] = other;
            count += 1;
        }
    }
    Window::of(slot, &mut slots[..count])
}
