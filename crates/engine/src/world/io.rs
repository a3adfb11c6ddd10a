//! The frames of transfers: what is written from where, and what was read into what.

use outpage_core::contract::{PageList, PageOutcome, Refusal};
use outpage_core::units::PageNo;
use outpage_store::{Frame, PageBits};

use super::{GAP_MAX, World};
use crate::frames::FrameNo;

impl World {
    /// Frames to write `pages` from, in order: they are staged.
    pub fn frames_to_write(&mut self, pages: &PageList, frames: &mut Vec<Frame>) {
        frames.clear();
        for &page in pages.iter() {
            let place = self.place_to_write(page);
            frames.push(self.frames.frame(place));
        }
    }

    /// The frame of a staged page.
    ///
    /// # Panics
    /// When it is not staged.
    #[must_use]
    pub fn place_to_write(&self, page: PageNo) -> FrameNo {
        self.staged.get(page).expect("a staged page has a frame")
    }

    /// Frames to read `pages` into, in order: where they can, they lie as the pages do in the program, so that one call maps
    /// several runs.
    pub fn frames_to_read(&mut self, pages: &[PageNo], places: &mut Vec<FrameNo>) {
        places.clear();
        let downward = pages.first() > pages.last();
        let page = |i: usize| pages[if downward { pages.len() - 1 - i } else { i }].raw();
        while places.len() < pages.len() {
            let i = places.len();
            let step = i
                .checked_sub(1)
                .and_then(|last| page(i).checked_sub(page(last)));
            let near = step.filter(|step| (1..=GAP_MAX + 1).contains(step));
            let place = near.and_then(|step| self.frames.take_beyond(places[i - 1], step as u32));
            if let Some(place) = place {
                places.push(place);
                continue;
            }
            let run = (i + 1..pages.len()).take_while(|&j| page(j) == page(i) + (j - i) as u64);
            let got = self.take_frames(1 + run.count() as u32, false);
            places.extend(got.iter());
        }
        if downward {
            places.reverse();
        }
    }

    /// Of the pages that were read into `places`, but for those that `failed`, stages those that have their hashes; `out` says
    /// which. The frames of the others are free. What nobody can touch any more is gone, not damaged: it may have been copied when
    /// something else was mapped over it already.
    pub fn stage_intact(
        &mut self,
        pages: &PageList,
        places: &[FrameNo],
        failed: &PageBits,
        out: &mut Vec<PageOutcome>,
    ) {
        out.clear();
        let expected = pages.iter().zip(pages.hashes()).zip(places);
        for (((&page, &hash), &place), at) in expected.zip(0..) {
            let outcome = if failed.contains(at) {
                PageOutcome::Refused(Refusal::Unread)
            } else if self.hasher.page(self.frames.content(place)) == hash {
                PageOutcome::Done
            } else if self.is_out_of_reach(page) {
                PageOutcome::Refused(Refusal::Gone)
            } else {
                PageOutcome::Refused(Refusal::Damaged)
            };
            if outcome == PageOutcome::Done {
                self.stage_read(page, place);
                for notifier in &mut self.notifiers {
                    notifier.paged_in(page);
                }
            } else {
                self.frames.set_free(place);
            }
            out.push(outcome);
        }
        debug_assert_eq!(out.len(), places.len(), "a hash for each page");
    }

    /// A page that was read and checked waits in its frame.
    pub fn stage_read(&mut self, page: PageNo, place: FrameNo) {
        self.staged.insert(page, place);
    }
}
