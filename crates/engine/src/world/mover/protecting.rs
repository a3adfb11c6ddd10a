//! Pages that leave by protection (Linux 5.7): of ranges that cannot be moved, and of all under the write-protect mechanism. They are
//! copied to the staging area, then thrown away where they were; they come back by `UFFDIO_COPY`.

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::PAGE_BYTES;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{CopyMode, Outcome, Stop};

use super::super::{KEPT, RUN_PAGES, Segment, World};
use super::Mover;
use crate::frames::{FrameNo, FrameRange};
use crate::scope::Failure;

/// Protects pages where they are.
pub(in crate::world) struct Protecting;

impl Mover for Protecting {
    fn zero(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>) {
        world.zero_by_kernel(segment, out);
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
        world.copy_run_in(segment, i, places, out);
    }

    fn take(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>) {
        world.detach_by_protect(segment, out);
    }

    fn passes_holes(&self) -> bool {
        false
    }
}

impl World {
    /// Sets or takes off the protection of `pages` pages, and says of each, in order, whether that was
    /// done. Kernels before 6.3 do one mapping a call, so what fails as a whole is done page by page.
    pub(super) fn protect(
        &self,
        address: usize,
        pages: usize,
        on: bool,
        mut each: impl FnMut(usize, bool),
    ) {
        let done = |address, pages| {
            self.patiently_all(address, pages, |door| {
                door.write_protect(address, pages * PAGE_BYTES, on)
            })
            .stop
            .is_none()
        };
        let whole = done(address, pages);
        for i in 0..pages {
            each(i, whole || done(address + i * PAGE_BYTES, 1));
        }
    }

    /// Write-protects, then copies. The copies are the staged pages once their originals are dropped ([`Self::drop_originals`]).
    fn detach_by_protect(&mut self, segment: Segment, out: &mut Vec<PageOutcome>) {
        let mut i = 0;
        while i < segment.pages {
            let count = (segment.pages - i).min(RUN_PAGES);
            let mut there = std::mem::take(&mut self.there);
            let known = self.door.there(segment.at(i), &mut there[..count]).is_ok();
            // Whatever the range's own protection: mprotect may lift it while the page is staged.
            let mut protected = [false; RUN_PAGES];
            if known {
                self.protect_what_is_there(segment.at(i), &there[..count], &mut protected);
            }
            let mut k = 0;
            for same in protected[..count].chunk_by(|a, b| a == b) {
                let pages = k..k + same.len();
                k = pages.end;
                if same[0] {
                    self.copy_out(segment, i + pages.start..i + pages.end, out);
                    continue;
                }
                for k in pages {
                    out.push(if known && !there[k] {
                        self.absent(segment.at(i + k))
                    } else {
                        PageOutcome::Refused(Refusal::Busy)
                    });
                }
            }
            self.there = there;
            i += count;
        }
    }

    /// Of pages that are not there a marker would stay ([`Self::is_gone`]).
    fn protect_what_is_there(&self, address: usize, there: &[bool], protected: &mut [bool]) {
        let mut i = 0;
        for run in there.chunk_by(|a, b| a == b) {
            if run[0] {
                let protected = &mut protected[i..];
                let start = address + i * PAGE_BYTES;
                self.protect(start, run.len(), true, |k, done| protected[k] = done);
            }
            i += run.len();
        }
    }

    /// Whether nothing is at `address`, where a marker may have stayed of a page that went while it was being protected: the kernel
    /// tells of a touch as of a missing page, and fills none with zeroes there (`mfill_atomic_pte_zeropage` in mm/userfaultfd.c,
    /// Linux 6.18).
    pub(crate) fn is_gone(&self, address: usize) -> bool {
        if self.door.is_present(address) == Ok(true) {
            return false;
        }
        if self.door.is_empty(address) == Ok(false) {
            self.may_be_written(address);
        }
        self.door.is_empty(address) == Ok(true)
    }

    /// Whether page `i` of `segment`, which was found to be there, is gone by now. Shared memory has pages that are mapped nowhere here.
    fn is_gone_from(&mut self, segment: Segment, i: usize) -> bool {
        match segment.region.view {
            0 => self.is_gone(segment.at(i)),
            view => self.is_hole(view, segment.page(i)),
        }
    }

    /// A page that cannot leave after all may be written again.
    pub(super) fn refuse_protected(&mut self, address: usize) -> PageOutcome {
        self.may_be_written(address);
        PageOutcome::Refused(Refusal::Busy)
    }

    pub(super) fn zero_by_kernel(&mut self, segment: Segment, out: &mut Vec<PageOutcome>) {
        let (mut i, mut span) = (0, segment.pages);
        while i < segment.pages {
            // Beyond the first page nothing is known to be as it was.
            let most = if self.is_calm() { span } else { 1 };
            let pages = most.min(segment.pages - i);
            let Outcome { bytes, stop } = self.patiently_all(segment.at(i), pages, |door| {
                door.zeropage(segment.at(i), pages * PAGE_BYTES)
            });
            let done = bytes / PAGE_BYTES;
            out.extend((0..done).map(|_| PageOutcome::Done));
            i += done;
            let Some(stop) = stop.filter(|&s| s != Stop::Again || done == 0) else {
                continue;
            };
            // One call serves one mapping; a region can be several.
            if stop == Stop::BadRange && done == 0 && pages > 1 {
                span = pages / 2;
                continue;
            }
            if stop == Stop::Again && pages > 1 {
                span = 1;
                continue;
            }
            if stop == Stop::Exists && self.is_gone_from(segment, i) {
                continue;
            }
            out.push(PageOutcome::Refused(match stop {
                Stop::Exists => Refusal::Present,
                _ => {
                    if stop == Stop::NoMemory {
                        self.out_of_memory(Errno::ENOMEM);
                    }
                    Refusal::Gone
                }
            }));
            i += 1;
        }
    }

    /// Copies the pages in `places` to those from page `i` of `segment` on, all in one call if it can be.
    pub(super) fn copy_run_in(
        &mut self,
        segment: Segment,
        i: usize,
        places: FrameRange,
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
                    (self.door).copy(segment.at(i + done), from, bytes, CopyMode::default());
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

    /// What a move could not do, a copy does: into ranges whose protection differs from staging's.
    pub(super) fn copy_page_in(
        &mut self,
        segment: Segment,
        i: usize,
        place: FrameNo,
    ) -> PageOutcome {
        let (at, from) = (segment.at(i), self.frames.address(place));
        let copied = self.patiently(at, |door| {
            door.copy(at, from, PAGE_BYTES, CopyMode::default())
        });
        let outcome = match copied.stop {
            None => PageOutcome::Done,
            Some(Stop::Again) => return self.not_now(at, place),
            // What leaves shared memory nobody else puts there.
            Some(Stop::Exists) if segment.region.view != 0 => {
                let why =
                    "of shared memory was filled past the pager, by a call that it does not see";
                self.failing.fail(Failure::Page(at, why));
                PageOutcome::Refused(Refusal::Present)
            }
            // The program has that page.
            Some(Stop::Exists) => PageOutcome::Refused(Refusal::Present),
            Some(Stop::NoMemory) => {
                self.out_of_memory(Errno::ENOMEM);
                return KEPT;
            }
            Some(_) => PageOutcome::Refused(Refusal::Gone),
        };
        self.frames.set_free(place);
        outcome
    }
}
