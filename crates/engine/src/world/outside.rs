//! Frames outside the program under write-protect: reads, copies that are being written, and pages that were read ahead.
//!
//! A page that was read waits in the frame that it was read into, so that its first touch shows, as under move: read-ahead goes by
//! that. Where the frame is needed for a transfer, the page that waits longest goes into the program, protected, where it
//! can be read without a fault. So the frames outside stay within what is set apart for transfers.

use std::collections::VecDeque;

use outpage_core::contract::PageOutcome;
use outpage_core::units::{PAGE_BYTES, PageNo};
use outpage_sys::uffd::CopyMode;

use super::{Mechanism, Segment, World};
use crate::frames::Places;
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
    pub(super) fn take_frames(&mut self, wanted: u32, zeroed: bool) -> Places {
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
        match self.mechanism {
            Mechanism::Move => (used + self.frames.free()).saturating_sub(limit),
            Mechanism::WriteProtect => {
                (self.frames.populated()).saturating_sub(self.outside.frames_max)
            }
        }
    }

    /// `page`, which was read into a frame, waits there.
    pub(super) fn waits_outside(&mut self, page: PageNo) {
        if self.mechanism == Mechanism::Move {
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
            if let Some((address, _)) = self.regions.address(page)
                && !self.copy_protected(address, place)
            {
                self.stayed(page, Why::Found);
            }
            self.frames.set_free(place);
            return true;
        }
        false
    }

    /// Copies the pages in `places` to those from page `i` of `segment` on, all in one call if it can be.
    pub(super) fn copy_run_in(
        &mut self,
        segment: Segment,
        i: usize,
        places: Places,
        out: &mut Vec<PageOutcome>,
    ) {
        let count = places.count as usize;
        let mut done = 0;
        while done < count {
            // Beyond the first page nothing is known to be as it was, once something changes.
            if self.is_calm() {
                let from = self.frames.address(places.at(done));
                let bytes = (count - done) * PAGE_BYTES;
                let copied =
                    (self.uffd).copy(segment.at(i + done), from, bytes, CopyMode::default());
                for k in done..done + copied.bytes / PAGE_BYTES {
                    self.frames.set_free(places.at(k));
                    out.push(PageOutcome::Done);
                }
                done += copied.bytes / PAGE_BYTES;
            }
            if done < count {
                let outcome = self.copy_page_in(segment, i + done, places.at(done));
                out.push(outcome);
                done += 1;
            }
        }
    }
}
