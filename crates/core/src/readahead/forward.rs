//! What is read of pages that are touched one after another because the program says so: nothing is learnt.

use super::common::MAX_SLOTS;
use super::{SlotView, Touch, Window};
use crate::units::{SlotNo, SlotRange};

/// The window of a fault: its page, those of the `pages - 1` above it that are paged out, wherever they are, and the next run behind them.
pub(crate) fn forward(fault: &Touch, pages: u32, view: &dyn SlotView) -> Window {
    let (mut slots, mut count) = ([fault.slot.0; MAX_SLOTS], 1);
    for n in 1..pages.min(MAX_SLOTS as u32) {
        if let Some(slot) = slot_above(fault, n, view) {
            slots[count] = slot.0;
            count += 1;
        }
    }
    Window {
        behind: run_above(fault, pages, pages, view),
        ..Window::of(fault.slot, &mut slots[..count])
    }
}

/// What is read when a page is touched that was read so: the next run, unless `pages` pages above it are there still.
pub(crate) fn forward_behind(touch: &Touch, pages: u32, view: &dyn SlotView) -> Option<SlotRange> {
    let first = (1..=pages).find(|&n| slot_above(touch, n, view).is_some())?;
    run_above(touch, first, pages, view)
}

fn slot_above(touch: &Touch, n: u32, view: &dyn SlotView) -> Option<SlotNo> {
    view.slot_of(touch.page.checked_add(n.into())?)
}

/// The slots of up to `most` pages, from the one `n` above the touched one on, as far as slots follow each other like their pages.
fn run_above(touch: &Touch, n: u32, most: u32, view: &dyn SlotView) -> Option<SlotRange> {
    let first = slot_above(touch, n, view)?;
    let follows = |&m: &u32| slot_above(touch, n + m, view) == Some(SlotNo(first.0 + m));
    let slots = 1 + (1..most).take_while(follows).count() as u32;
    Some(SlotRange::new(first, slots))
}
