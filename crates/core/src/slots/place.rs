//! Where the pages of a chunk go: the kernel's shrinking request, and mClustering's rule.

use alloc::vec::Vec;

use super::Slots;
use crate::pageout::{Chunk, Placement};
use crate::units::SlotRange;

/// Requests of up to this many slots are not shrunk further (FreeBSD `swap_pager_putpages`).
const HALVING_FLOOR: u32 = 4;

/// Part of a chunk and the slots it got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Index in [`Chunk::pages`] of the page that goes to the first slot.
    pub first: usize,
    /// The slots, one a page.
    pub slots: SlotRange,
}

/// How a request that finds no run grows smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShrinkRule {
    /// Halve while above 4, then give up: 16, 8, 4; 15, 7, 3; 5, 2. FreeBSD
    /// `vm/swap_pager.c:swap_pager_putpages`.
    #[default]
    Halve,
    /// 15, 14, ... 1, as the MOC and mClustering papers tell it.
    ByOne,
}

/// Finds slots for the pages of `chunk` and appends them to `out`, in page order.
///
/// Pages that no entry covers found no space. `out` grows by at most one entry a page: with that
/// much room left in it, nothing here allocates heap memory.
pub fn place(chunk: &Chunk, slots: &mut dyn Slots, out: &mut Vec<Placed>) {
    place_with(chunk, ShrinkRule::Halve, slots, out);
}

/// As [`place`], with a choice of how requests shrink.
pub fn place_with(chunk: &Chunk, rule: ShrinkRule, slots: &mut dyn Slots, out: &mut Vec<Placed>) {
    let pages = chunk.len();
    if pages == 0 {
        return;
    }
    if chunk.placement == Placement::Shrink {
        return shrink(0, pages, rule, slots, out);
    }
    if let Some(run) = slots.alloc(pages) {
        out.push(Placed {
            first: 0,
            slots: run,
        });
        return;
    }
    let mut first = 0;
    for &pages in &chunk.clusters {
        shrink(first, pages, rule, slots, out);
        first += pages;
    }
}

/// Places `pages` pages from `first` on: the largest run that the rule finds, then the remainder
/// anew. The pages of a request that failed at its smallest size are passed over.
///
/// The kernel never asks for more than 16 slots; a larger buffer starts with the whole buffer.
fn shrink(first: u32, pages: u32, rule: ShrinkRule, slots: &mut dyn Slots, out: &mut Vec<Placed>) {
    let end = first + pages;
    let mut at = first;
    while at < end && slots.available() > 0 {
        at += match request(end - at, rule, slots) {
            Ok(run) => {
                out.push(Placed {
                    first: at as usize,
                    slots: run,
                });
                run.slots
            }
            Err(given_up) => given_up,
        };
    }
}

/// One request for `slots` slots, made smaller while there is no such run.
///
/// # Errors
/// With the size of the last request when that failed too: so many pages find no space.
pub fn request(slots: u32, rule: ShrinkRule, free: &mut dyn Slots) -> Result<SlotRange, u32> {
    let mut ask = slots;
    loop {
        if let Some(run) = free.alloc(ask) {
            return Ok(run);
        }
        ask = match rule {
            ShrinkRule::Halve if ask > HALVING_FLOOR => ask / 2,
            ShrinkRule::ByOne if ask > 1 => ask - 1,
            _ => return Err(ask),
        };
    }
}
