//! The frames of transfers: what is written from where, and what was read into what.

use outpage_core::contract::{PageList, PageOutcome, Refusal};
use outpage_core::page::ContentHash;
use outpage_core::units::{PAGE_BYTES, PageNo};
use outpage_store::{Frame, PageBits};
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{CopyMode, Stop};

use super::{GAP_MAX, World};
use crate::frames::FrameNo;
use crate::hash::is_zero;
use crate::scope::Failure;

impl World {
    /// Frames to write `pages` from, in order. Staged pages are written where they are; pages
    /// protected in place from copies, which [`Self::end_write`] gives back. Those have to have their hashes.
    pub fn frames_to_write(
        &mut self,
        pages: &PageList,
        frames: &mut Vec<Frame>,
        copies: &mut Vec<FrameNo>,
    ) {
        frames.clear();
        copies.clear();
        for (&page, &hash) in pages.iter().zip(pages.hashes()) {
            let place = self.place_to_write(page, hash, copies);
            frames.push(self.frames.frame(place));
        }
    }

    /// The frame to write one staged page from, as of [`Self::frames_to_write`].
    pub fn place_to_write(
        &mut self,
        page: PageNo,
        hash: ContentHash,
        copies: &mut Vec<FrameNo>,
    ) -> FrameNo {
        if let Some(place) = self.staged.get(page) {
            self.stays_outside(page);
            return place;
        }
        let place = self.take_frames(1, false).start;
        self.copy_out(page, place, hash);
        copies.push(place);
        place
    }

    /// Copies a page that is protected in place. One that the program unmaps or empties at this moment is written as
    /// whatever the frame holds: nobody will read it.
    fn copy_out(&mut self, page: PageNo, place: FrameNo, hash: ContentHash) {
        let Some((before, _)) = self.space.address(page) else {
            return;
        };
        let mut last_look = false;
        loop {
            // Where it was something else may be mapped by now. What lay where this moved to may have moved on, which is not for this to follow.
            let here = self.space.moved_to(before);
            let beyond = self.door.moved_to(here);
            let found = self.is_copied(here, place, hash)
                || beyond != here && self.is_copied(beyond, place, hash);
            if found || self.is_removed(before) || last_look && self.expect_absent(beyond, place) {
                return;
            }
            // It may have moved, in which case the message about it waits.
            last_look = !self.door.is_changing(self.frames.span().0);
            self.door.let_change_pass();
        }
    }

    /// Copies what is at `address`; whether that is what has `hash`.
    fn is_copied(&mut self, address: usize, place: FrameNo, hash: ContentHash) -> bool {
        let read = self.door.read(address, self.frames.content_mut(place));
        let content = self.frames.content(place);
        read == Ok(PAGE_BYTES) && self.hash_of(content, is_zero(content)) == hash
    }

    /// A page that cannot be copied, or is not what it was, is gone, or the program ends: it would find other content there. False while it cannot
    /// be seen what lies there, for a thread is at a change.
    fn expect_absent(&mut self, address: usize, place: FrameNo) -> bool {
        match self.door.is_registered(address) {
            None => return false,
            Some(false) => self.space.found_covered(address),
            Some(true) if self.door.is_present(address) == Ok(false) => {}
            Some(true) => {
                let why = match self.door.read(address, self.frames.content_mut(place)) {
                    Ok(PAGE_BYTES) => "changed while it was protected",
                    _ => "cannot be read through /proc/self/mem",
                };
                // What is written has another hash, which whoever reads it finds.
                self.failing.fail(Failure::Page(address, why));
            }
        }
        true
    }

    /// Copies made for a write are not needed any more.
    pub fn end_write(&mut self, copies: &[FrameNo]) {
        copies.iter().for_each(|&place| self.frames.set_free(place));
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
        self.waits_outside(page);
    }

    /// Copies `place` to the program, protected. A mapping that moves away meanwhile is followed. False where a page is that was never
    /// released, and is not protected.
    pub(super) fn copy_protected(&self, mut address: usize, place: FrameNo) -> bool {
        let mode = CopyMode {
            write_protect: true,
            dont_wake: false,
        };
        let from = self.frames.address(place);
        loop {
            let copied = self.patiently(address, |door| door.copy(address, from, PAGE_BYTES, mode));
            let moved = self.door.moved_to(address);
            match copied.stop {
                // Whatever else stops it has taken the page away. This would lose it.
                Some(Stop::NoMemory) => {
                    self.out_of_memory(Errno::ENOMEM);
                    self.signal(address);
                    return true;
                }
                Some(Stop::Again) if moved != address => address = moved,
                Some(Stop::Exists) => return false,
                _ => return true,
            }
        }
    }
}
