//! Runs that lie close together move in one call, holes and all.
//!
//! Where a program skips pages, a call for each of its runs costs 1.0 us for one page and most of that on the way in and out of
//! the kernel; a hole that a call passes over costs 0.16 us (Linux 6.18). Nothing but the pages asked for may come along: on
//! the way out the page tables tell what came, on the way in holes are places known to be empty. Before either they tell that
//! places which are thought to be empty are: a `mlockall` that no hook sees fills them.

use core::ops::Range;

use outpage_core::contract::PageOutcome;
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_sys::clock;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{CopyMode, MoveMode, MoveOutcome, Stop};

use super::{RUN_PAGES, Segment, World};
use crate::frames::{FrameNo, FrameRange};
use crate::scope::Failure;

/// Pages between two runs, at most, that one call passes over. Moving single pages with 1, 2, 3, 4 and 6 pages between took 0.61
/// [0.57-0.63], 0.77, 0.93, 1.08 and 1.37 us each together, and 1.03 to 1.06 us apart (medians of 5, quiet machine).
pub const GAP_MAX: u64 = 3;

// Of farther pages the pager does not say whether the program has them.
const _: () = assert!(GAP_MAX <= outpage_core::pager::ABSENT_MAX);

/// A move that passes over what is not there, and wakes who waits if somebody is `awaited`.
const fn with_holes(awaited: bool) -> MoveMode {
    MoveMode {
        dont_wake: !awaited,
        allow_source_holes: true,
    }
}

/// From the first page of `runs`, which ascend, to the last.
fn span(runs: &[PageRange]) -> PageRange {
    let (first, last) = (runs[0].start, runs[runs.len() - 1]);
    PageRange::new(first, last.start.raw() + last.pages - first.raw())
}

impl World {
    /// Takes `runs` out of the program and adds how each page fared to `out`. They ascend. Where they are not all [copied](Self::are_copied) they
    /// span [`RUN_PAGES`] at most, and at most [`GAP_MAX`] pages lie between two, none of which the program has.
    pub fn detach(&mut self, runs: &[PageRange], out: &mut Vec<PageOutcome>) {
        let pages: u64 = runs.iter().map(|run| run.pages).sum();
        self.copies.expect(pages as usize);
        self.take_out(runs, out);
        self.drop_originals(out);
    }

    fn take_out(&mut self, runs: &[PageRange], out: &mut Vec<PageOutcome>) {
        if runs.len() > 1
            && self.is_calm()
            && let Some(segment) = self.movable(span(runs))
            && let Some(places) = self.frames.take_empty_run(segment.pages as u32)
        {
            let to = self.frames.address(places.start);
            if !self.there(to, segment.pages).contains(&true) {
                return self.detach_at_once(segment, places, runs, out);
            }
            places.iter().for_each(|place| self.frames.set_empty(place));
            self.empty_places();
        }
        for &run in runs {
            self.detach_run(run, out);
        }
    }

    /// Whether pages of both leave by copies: those go together however far they lie apart.
    pub fn are_copied(&self, pair: [PageRange; 2]) -> bool {
        let copied = |run: PageRange| {
            let region = self
                .space
                .address(run.start)
                .and_then(|(at, _)| self.space.at(at));
            region.is_some_and(|region| !region.is_like(self.frames.prot()))
        };
        !self.mechanism.moves() || pair.into_iter().all(copied)
    }

    /// The part of memory that `span` is, if it lies in one range of which pages can be moved.
    fn movable(&self, span: PageRange) -> Option<Segment> {
        let segment = self.segment(span).ok()?;
        let region = &segment.region;
        let whole = segment.pages as u64 == span.pages;
        (whole && segment.mover.passes_holes() && !region.holds_no_victim()).then_some(segment)
    }

    fn detach_at_once(
        &mut self,
        segment: Segment,
        places: FrameRange,
        runs: &[PageRange],
        out: &mut Vec<PageOutcome>,
    ) {
        let to = self.frames.address(places.start);
        let bytes = segment.pages * PAGE_BYTES;
        // Whatever it answers, the page tables tell what came.
        let _ = self
            .door
            .move_pages(to, segment.address, bytes, with_holes(false));
        let came = self.there(to, segment.pages);
        let mut next = 0;
        for &run in runs {
            let first = (run.start.raw() - segment.first.raw()) as usize;
            self.not_taken(segment, places, next..first, &came);
            next = first + run.pages as usize;
            let none = came[first..next].iter().all(|came| !came);
            if none {
                self.not_taken(segment, places, first..next, &came);
                self.detach_run(run, out);
                continue;
            }
            for (i, &came) in (first..).zip(&came[first..next]) {
                if came {
                    let outcome = self.moved_out(segment.page(i), places.at(i));
                    out.push(outcome);
                } else {
                    self.frames.set_empty(places.at(i));
                    self.detach_run(PageRange::one(segment.page(i)), out);
                }
            }
        }
    }

    /// The places of pages that were not asked for: as a rule nothing came.
    fn not_taken(
        &mut self,
        segment: Segment,
        places: FrameRange,
        pages: Range<usize>,
        came: &[bool],
    ) {
        for i in pages {
            if came[i]
                && self
                    .frames
                    .content(places.at(i))
                    .iter()
                    .all(|&byte| byte == 0)
            {
                // Filled at this moment, for all that can be told; what is not there reads the same.
                self.frames.set_free(places.at(i));
            } else if came[i] {
                self.put_back(segment.at(i), places.at(i));
            } else {
                self.frames.set_empty(places.at(i));
            }
        }
    }

    /// Which of the `pages` pages from `address` on have a frame.
    fn there(&self, address: usize, pages: usize) -> [bool; RUN_PAGES] {
        let mut there = [false; RUN_PAGES];
        if self.door.there(address, &mut there[..pages]).is_err() {
            crate::start::fatal(&[
                "outpage: /proc/self/pagemap cannot be read any more; the program ends",
            ]);
        }
        there
    }

    /// A page came along that nobody named: something mapped it behind the pager's back.
    fn put_back(&mut self, mut address: usize, place: FrameNo) {
        loop {
            let mut report = [MoveOutcome::Absent];
            let from = self.frames.address(place);
            let how = MoveMode::default();
            self.door.move_run(address, from, how, &mut report);
            match report[0] {
                MoveOutcome::Moved => return self.frames.set_empty(place),
                // Something else is there. Who made room for it is about to tell where this went.
                MoveOutcome::Changing
                    if self.change_at(address).is_none() && self.door.is_changing(address) =>
                {
                    self.door.let_change_pass();
                    continue;
                }
                MoveOutcome::Changing => {}
                _ if self.copy_back(address, place) => return,
                _ => {}
            }
            let moved = self.door.moved_to(address);
            if moved == address {
                // Unmapped or emptied at this moment: the page is not wanted.
                return self.frames.set_free(place);
            }
            address = moved;
        }
    }

    /// It was locked or protected meanwhile, which a move does not go with. False where the mapping at `address` is changing.
    fn copy_back(&mut self, address: usize, place: FrameNo) -> bool {
        let from = self.frames.address(place);
        let copied = self.patiently(address, |door| {
            door.copy(address, from, PAGE_BYTES, CopyMode::default())
        });
        match copied.stop {
            Some(Stop::Again) => return false,
            Some(Stop::NoMemory) => {
                self.out_of_memory(Errno::ENOMEM);
                self.signal(address);
                self.frames.set_free(place);
            }
            // Done; or the range is gone, and the page is not wanted.
            _ => self.frames.set_free(place),
        }
        true
    }

    /// Puts the staged pages of `runs`, which lie as those of [`Self::detach`] and are [in step](Self::in_step), back into the
    /// program and adds how each fared to `out`. If a page of them is `awaited`, who waits there goes on.
    pub fn map(&mut self, runs: &[PageRange], awaited: bool, out: &mut Vec<PageOutcome>) {
        if runs.len() == 1 || !self.is_calm() || !self.map_at_once(runs, awaited, out) {
            for &run in runs {
                self.map_run(run, awaited, out);
            }
        }
    }

    /// How many of `runs`, from the first on, lie in the staging area as they do in the program, with empty places between.
    pub fn in_step(&self, runs: &[PageRange]) -> usize {
        let Some(first) = self.staged.get(runs[0].start) else {
            return 1;
        };
        let place = |page: PageNo| FrameNo(first.0 + (page.raw() - runs[0].start.raw()) as u32);
        let there = |run: &PageRange| {
            run.iter()
                .all(|page| self.staged.get(page) == Some(place(page)))
        };
        let follows = |pair: &[PageRange]| {
            let end = pair[0].start.raw() + pair[0].pages;
            let mut gap = (end..pair[1].start.raw()).map(PageNo::from_raw);
            there(&pair[1]) && gap.all(|page| self.frames.is_empty(place(page)))
        };
        if there(&runs[0]) {
            1 + runs.windows(2).take_while(|pair| follows(pair)).count()
        } else {
            1
        }
    }

    /// A page of zeroes between `runs` that the program has, if there is one: it had none before they were mapped.
    fn came_along(&self, segment: Segment, runs: &[PageRange]) -> Option<usize> {
        let there = self.there(segment.address, segment.pages);
        let at = |page: PageNo| (page.raw() - segment.first.raw()) as usize;
        let mut gaps = runs.windows(2).flat_map(|pair| {
            let end = at(pair[0].start) + pair[0].pages as usize;
            end..at(pair[1].start)
        });
        let zeroes = |address: usize| {
            let mut content = [1; PAGE_BYTES];
            self.door.read(address, &mut content) == Ok(PAGE_BYTES) && content == [0; PAGE_BYTES]
        };
        gaps.find(|&gap| there[gap] && zeroes(segment.at(gap)))
            .map(|gap| segment.at(gap))
    }

    /// Maps `runs`, which are in step. False if nothing was done.
    fn map_at_once(
        &mut self,
        runs: &[PageRange],
        awaited: bool,
        out: &mut Vec<PageOutcome>,
    ) -> bool {
        let Some(segment) = self.movable(span(runs)) else {
            return false;
        };
        let Some(first) = self.staged.get(segment.first) else {
            return false;
        };
        let from = self.frames.address(first);
        let bytes = segment.pages * PAGE_BYTES;
        // What lies in a hole would come along.
        let asked: u64 = runs.iter().map(|run| run.pages).sum();
        let there = self.there(from, segment.pages);
        if there.iter().filter(|&&there| there).count() as u64 != asked {
            self.empty_places();
            return false;
        }
        let moved = self
            .door
            .move_pages(segment.address, from, bytes, with_holes(awaited));
        if let Some(address) = self.came_along(segment, runs) {
            let why = "was filled by the kernel while another thread locked all memory";
            self.failing.fail(Failure::Page(address, why));
        }
        let whole = moved.stop.is_none() && moved.bytes == bytes;
        let left = if whole {
            [false; RUN_PAGES]
        } else {
            self.there(from, segment.pages)
        };
        for &run in runs {
            let at = (run.start.raw() - segment.first.raw()) as usize;
            let left = &left[at..at + run.pages as usize];
            if left.iter().all(|&left| left) {
                self.map_run(run, awaited, out);
                continue;
            }
            for ((page, &left), i) in run.iter().zip(left).zip(at..) {
                if left {
                    self.map_run(PageRange::one(page), awaited, out);
                } else {
                    self.staged.remove(page);
                    self.frames.set_empty(FrameNo(first.0 + i as u32));
                    out.push(PageOutcome::Done);
                }
            }
        }
        if awaited && whole {
            self.waiting
                .mapped(segment.address, segment.at(segment.pages), clock::now());
        }
        true
    }
}
