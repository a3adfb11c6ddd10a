//! What a mechanism does to the pages of a program, segment by segment.
//!
//! One file each: [`Moving`], [`Protecting`] and, for shared memory, [`Sharing`]. What all of them share is [`World`]'s: which page is staged in which frame, mappings that
//! change meanwhile, and what staged pages leave when their frames are wanted. A mechanism is asked once for each segment, never once a page.

mod moving;
mod originals;
mod protecting;
mod sharing;

use outpage_core::contract::PageOutcome;

use super::{Segment, World};
use crate::frames::FrameRange;

pub(super) use moving::Moving;
pub(super) use originals::Copies;
pub(super) use protecting::Protecting;
pub(super) use sharing::Sharing;

/// How the pages of a segment come and go. Each call adds an outcome to `out` for every page that it is for, in their order.
pub(super) trait Mover: Sync {
    /// Maps zeroes at all of `segment`, and lets who waits there go on.
    fn zero(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>);

    /// Puts what is in `places` into the program, from page `i` of `segment` on. If a page is `awaited`, who waits there goes on; others are
    /// not looked for, which saves a lock and a walk along all who wait. The places are empty or free afterwards, but where the
    /// outcome is [`KEPT`](super::KEPT).
    fn put(
        &self,
        world: &mut World,
        segment: Segment,
        i: usize,
        places: FrameRange,
        awaited: bool,
        out: &mut Vec<PageOutcome>,
    );

    /// Takes all of `segment` out of the program, into frames that it cannot touch. The outcome of what was copied is known when the originals are dropped
    /// ([`World::drop_originals`]).
    fn take(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>);

    /// Whether one call moves runs with holes between them ([`World::detach`], [`World::map`]).
    fn passes_holes(&self) -> bool;
}
