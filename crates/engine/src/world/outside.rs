//! Frames outside the program under write-protect: reads, copies that are being written, and pages that were read ahead.
//!
//! A page that was read waits in the frame that it was read into, so that its first touch shows, as under move: read-ahead goes by
//! that. Where the frame is needed for a transfer, the page that waits longest goes into the program, protected, where it
//! can be read without a fault. So the frames outside stay within what is set apart for transfers.

use std::collections::VecDeque;

use outpage_core::units::PageNo;

use super::World;
use crate::frames::FrameRange;
use crate::stays::Why;

/// Which pages wait in frames outside the program, and how many frames there may be.
pub(crate) struct Outside {
    /// The oldest first. Some are gone by now.
    pages: VecDeque<PageNo>,
    frames_max: usize,
}

impl Outside {
    /// Without a bound, as under move: there a frame outside is one less in the program.
    pub(super) const fn unbounded() -> Self {
        Self {
            pages: VecDeque::new(),
            frames_max: usize::MAX,
        }
    }
}

impl World {
    /// At most `frames_max` frames are outside the program from now on, but for transfers that need more at once.
    pub fn bound_outside(&mut self, frames_max: usize) {
        self.outside = Outside {
            pages: VecDeque::with_capacity(2 * frames_max),
            frames_max,
        };
    }

    /// Up to `wanted` neighbouring frames, in use afterwards; `zeroed` asks for zeroes in them.
    pub(super) fn take_frames(&mut self, wanted: u32, zeroed: bool) -> FrameRange {
        let mut lacking = (wanted as usize).saturating_sub(self.frames.free());
        while lacking > 0
            && self.frames.populated() + lacking > self.outside.frames_max
            && self.put_oldest_inside()
        {
            lacking -= 1;
        }
        match self.frames.take(wanted, zeroed) {
            Ok(places) => places,
            Err(error) => {
                self.out_of_memory(error);
                // Whoever writes there asks the kernel once more.
                self.frames.take_empty(wanted)
            }
        }
    }

    /// Free frames beyond what may be outside the program, or beyond `limit` frames in all of which `used` are in use.
    #[must_use]
    pub fn frames_too_many(&self, used: usize, limit: usize) -> usize {
        if self.mechanism.stages_in_place() {
            (self.frames.populated()).saturating_sub(self.outside.frames_max)
        } else {
            (used + self.frames.free()).saturating_sub(limit)
        }
    }

    /// `page`, which was read into a frame, waits there.
    pub(super) fn waits_outside(&mut self, page: PageNo) {
        if !self.mechanism.stages_in_place() {
            return;
        }
        // Those that are gone are dropped before there is no room.
        while self.outside.pages.len() >= 2 * self.outside.frames_max && self.put_oldest_inside() {}
        self.outside.pages.push_back(page);
    }

    /// `page` is about to be written from its frame, which it keeps.
    pub(super) fn stays_outside(&mut self, page: PageNo) {
        self.outside.pages.retain(|&waits| waits != page);
    }

    /// Copies the page that waits longest to the program, protected; false if none waits.
    fn put_oldest_inside(&mut self) -> bool {
        while let Some(page) = self.outside.pages.pop_front() {
            let Some(place) = self.staged.remove(page) else {
                continue;
            };
            if let Some((address, _)) = self.space.address(page)
                && !self.copy_protected(address, place)
            {
                self.stayed(page, Why::Found);
            }
            self.frames.set_free(place);
            return true;
        }
        false
    }
}
