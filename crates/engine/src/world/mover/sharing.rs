//! Shared memory (Linux 5.19). A page that leaves is write-protected, copied to the staging area and punched out of its file, which takes it from
//! every mapping; so it is staged as a moved page is, every touch of it is a fault, and it comes back by `UFFDIO_COPY`, which nobody sees half.
//!
//! Punching goes by the page's place in the file and not by its address. So whatever a thread moves meanwhile, no other page is taken.

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_sys::process;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::Change;

use super::super::{Segment, World};
use super::Mover;
use crate::frames::FrameRange;
use crate::views::ViewNumber;

/// Pages that are copied and punched out at once, so that for a moment no more than these have two frames: a call costs as much as several pages.
const AT_ONCE: usize = 16;

/// Free frames that may wait: four times as many as one detach takes at once.
const FREE_MAX: usize = 4 * AT_ONCE;

/// Copies, and punches holes.
pub(in crate::world) struct Sharing;

impl Mover for Sharing {
    fn zero(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>) {
        let first = out.len();
        world.zero_by_kernel(segment, out);
        world.count_filled(segment, &out[first..]);
        world.give_free_back();
    }

    /// Nobody looks whether it is awaited: a copy wakes without a walk.
    fn put(
        &self,
        world: &mut World,
        segment: Segment,
        i: usize,
        places: FrameRange,
        _awaited: bool,
        out: &mut Vec<PageOutcome>,
    ) {
        let first = out.len();
        world.copy_run_in(segment, i, places, out);
        world.count_filled(segment, &out[first..]);
        world.give_free_back();
    }

    fn take(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>) {
        let mut i = 0;
        while i < segment.pages {
            let count = (segment.pages - i).min(AT_ONCE);
            world.take_shared(segment, i, count, out);
            i += count;
        }
    }

    fn passes_holes(&self) -> bool {
        false
    }
}

impl World {
    /// What comes takes a frame of the kernel's and leaves one of the pager's free: not many of these wait until the loop looks at them.
    fn give_free_back(&mut self) {
        let free = self.frames.free();
        if free > FREE_MAX {
            self.give_back(free - FREE_MAX);
        }
    }

    fn count_filled(&mut self, segment: Segment, outcomes: &[PageOutcome]) {
        let done = outcomes.iter().filter(|&&o| o == PageOutcome::Done);
        let done = done.count() as u64;
        self.views.at(segment.region.view).filled(done);
    }

    /// Takes `count` pages from page `i` of `segment` on.
    fn take_shared(
        &mut self,
        segment: Segment,
        i: usize,
        count: usize,
        out: &mut Vec<PageOutcome>,
    ) {
        let mut protected = [false; AT_ONCE];
        self.protect(segment.at(i), count, true, |k, done| protected[k] = done);
        let mut there = [false; AT_ONCE];
        let shared = self.views.at(segment.region.view);
        let known = shared.there(segment.page(i), &mut there[..count]).is_ok();
        let mut k = 0;
        while k < count {
            if !known || !protected[k] {
                out.push(self.refuse_protected(segment.at(i + k)));
                k += 1;
            } else if !there[k] {
                out.push(self.not_there(segment.at(i + k)));
                k += 1;
            } else {
                let run = (k..count).take_while(|&k| protected[k] && there[k]);
                let run = run.count();
                k += self.take_protected(segment, i + k, run, out);
            }
        }
    }

    /// What it means that the file has no page there. As [`Self::absent`], but what is asked there would map a page of shared memory. Where the kernel has swap
    /// it may have put the page there, and the page counts as the program's still.
    fn not_there(&self, address: usize) -> PageOutcome {
        self.may_be_written(address);
        let moving = self.is_changing() || self.change_at(address) == Some(Change::Moved);
        PageOutcome::Refused(if moving || process::has_swap() {
            Refusal::Busy
        } else {
            Refusal::Absent
        })
    }

    /// Takes up to `count` pages that are there and protected from page `i` of `segment` on. How many were looked at.
    fn take_protected(
        &mut self,
        segment: Segment,
        i: usize,
        count: usize,
        out: &mut Vec<PageOutcome>,
    ) -> usize {
        let places = self.take_frames(count as u32, false);
        let count = places.count as usize;
        let page = |k: usize| segment.page(i + k);
        let run = PageRange::new(page(0), count as u64);
        self.views.at(segment.region.view).open(run);
        for (k, place) in places.iter().enumerate() {
            let shared = self.views.at(segment.region.view);
            shared.copy(page(k), self.frames.content_mut(place));
        }
        // Where a thread maps the memory elsewhere, or throws some of it away, what was copied may not be the last word.
        let calm = !self.is_changing();
        let shared = self.views.at(segment.region.view);
        if calm && shared.punch(run, count as u64).is_ok() {
            for (k, place) in places.iter().enumerate() {
                out.push(self.moved_out(page(k), place));
            }
        } else {
            shared.close(run);
            for (k, place) in places.iter().enumerate() {
                self.frames.set_free(place);
                out.push(self.refuse_protected(segment.at(i + k)));
            }
        }
        count
    }

    /// Which pages from `address`, in one region, on have a frame.
    ///
    /// # Errors
    /// Those of reading page tables, or of mincore(2).
    pub(crate) fn there_at(&mut self, address: usize, out: &mut [bool]) -> Result<(), Errno> {
        let region = self.space.at(address).filter(|r| r.view != 0).copied();
        match region {
            Some(region) => {
                let pages = ((region.end - address) / PAGE_BYTES).min(out.len());
                let shared = self.views.at(region.view);
                out[pages..].fill(false);
                shared.there(region.page(address), &mut out[..pages])
            }
            None => self.door.there(address, out),
        }
    }

    /// So many pages of a region, which holds `address`, have a frame.
    pub(crate) fn count_adopted(&mut self, address: usize, there: &[bool]) {
        if let Some(region) = self.space.at(address).filter(|r| r.view != 0) {
            let pages = there.iter().filter(|&&there| there).count();
            self.views.at(region.view).filled(pages as u64);
        }
    }

    /// Whether the program's shared memory can be managed: pages of it are copied to the staging area.
    pub(crate) fn shares(&self) -> bool {
        self.door.serves_shared()
    }

    /// Whether `page`, of shared memory under this view, has no frame.
    pub(crate) fn is_hole(&mut self, view: ViewNumber, page: PageNo) -> bool {
        let mut there = [true];
        let shared = self.views.at(view);
        let hole = shared.there(page, &mut there).is_ok() && !there[0];
        if hole {
            shared.found_empty();
        }
        hole
    }
}
