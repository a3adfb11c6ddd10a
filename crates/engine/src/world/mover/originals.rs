//! Copies of pages whose originals the program has yet, and how these are dropped.
//!
//! They are dropped together, of all runs that leave at once: each order to the thread that does it costs two switches of threads.

use std::ops::Range;

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::{PAGE_BYTES, PageNo};

use super::super::{Segment, World};
use crate::frames::FrameNo;
use crate::releaser::{CALL_PAGES, Part, Released};

/// A page that is protected, and copied.
#[derive(Clone, Copy)]
struct Copied {
    address: usize,
    page: PageNo,
    place: FrameNo,
    /// Which of the outcomes is its.
    outcome: usize,
}

/// What was copied and not dropped yet.
#[derive(Default)]
pub(in crate::world) struct Copies {
    made: Vec<Copied>,
    /// So many may be made before their originals have to go.
    most: usize,
    /// So many pages are asked for yet.
    wanted: usize,
    parts: Vec<Part>,
    released: Vec<Released>,
}

impl Copies {
    pub(in crate::world) fn new() -> Self {
        Self {
            made: Vec::with_capacity(CALL_PAGES),
            most: 0,
            wanted: 0,
            parts: Vec::with_capacity(CALL_PAGES),
            released: Vec::with_capacity(CALL_PAGES),
        }
    }

    /// So many pages are asked for, some of which may leave by copies.
    pub(in crate::world) const fn expect(&mut self, pages: usize) {
        self.wanted = pages;
    }

    /// What was made, in parts that lie side by side.
    fn list_parts(&mut self) {
        self.parts.clear();
        let follows = |a: &Copied, b: &Copied| b.address == a.address + PAGE_BYTES;
        let parts = self.made.chunk_by(follows).map(|side_by_side| Part {
            address: side_by_side[0].address,
            pages: side_by_side.len(),
        });
        self.parts.extend(parts);
    }
}

impl World {
    /// Copies the `pages` of `segment`, which are protected. What their outcomes are is known when the originals are dropped.
    pub(super) fn copy_out(
        &mut self,
        segment: Segment,
        pages: Range<usize>,
        out: &mut Vec<PageOutcome>,
    ) {
        let mut i = pages.start;
        while i < pages.end {
            if self.copies.made.len() >= self.copies.most {
                self.drop_originals(out);
                self.get_frames_for_copies();
            }
            let room = self.copies.most - self.copies.made.len();
            let count = (pages.end - i).min(room);
            self.copy_run(segment, i, count, out);
            i += count;
        }
    }

    /// Each copy takes a frame before its original gives one back.
    fn get_frames_for_copies(&mut self) {
        let most = self.frames.free().max(self.kept_for_copies).min(CALL_PAGES);
        self.copies.most = most;
        let wanted = most.min(self.copies.wanted.max(1));
        let lacking = wanted.saturating_sub(self.frames.free());
        if lacking > 0
            && let Err(error) = self.frames.populate(lacking)
        {
            self.out_of_memory(error);
        }
    }

    fn copy_run(&mut self, segment: Segment, i: usize, count: usize, out: &mut Vec<PageOutcome>) {
        let first = self.copies.made.len();
        for i in i..i + count {
            let address = segment.at(i);
            let place = self.take_frames(1, false).start;
            let read = self.door.read(address, self.frames.content_mut(place));
            if read == Ok(PAGE_BYTES) && !self.is_disturbed(address) {
                self.copies.made.push(Copied {
                    address,
                    page: segment.page(i),
                    place,
                    outcome: out.len(),
                });
                out.push(PageOutcome::Refused(Refusal::Busy));
            } else {
                self.frames.set_free(place);
                let outcome = self.refuse_protected(address);
                out.push(outcome);
            }
        }
        self.copies.wanted = self.copies.wanted.saturating_sub(count);
        // What was moved away since it was protected was not what was read.
        if self.copies.made.len() > first && self.door.is_changing(segment.at(i)) {
            while self.copies.made.len() > first {
                self.forget_last();
            }
        }
    }

    fn forget_last(&mut self) {
        if let Some(copied) = self.copies.made.pop() {
            self.frames.set_free(copied.place);
            self.refuse_protected(copied.address);
        }
    }

    /// Drops the originals of what was copied, and puts into `out` how each of these pages fared.
    pub(in crate::world) fn drop_originals(&mut self, out: &mut [PageOutcome]) {
        if self.copies.made.is_empty() {
            return;
        }
        let mut copies = std::mem::take(&mut self.copies);
        copies.list_parts();
        copies.released.clear();
        copies
            .released
            .resize(copies.parts.len(), Released::NEITHER);
        self.release_parts(&copies.parts, &mut copies.released);
        let mut made = copies.made.iter();
        for (part, &released) in copies.parts.iter().zip(&copies.released) {
            for &copied in made.by_ref().take(part.pages) {
                let went = self.went(copied.address, released, part.pages == 1);
                out[copied.outcome] = self.take_copy(copied, went);
            }
        }
        copies.made.clear();
        copies.most = 0;
        self.copies = copies;
    }

    /// Whether the original at `address` is gone, after what came of the part that it is in, of which it may be `all`.
    fn went(&self, address: usize, released: Released, all: bool) -> bool {
        if released.done {
            return true;
        }
        if released.refused && all {
            return self.was_thrown_away(address, released);
        }
        // A refusal of several does not say of which: one that went is thrown away once more. Should the kernel refuse that by now, the copy is all there
        // is of it.
        self.release_in_program(address)
            || released.refused
                && !self.is_disturbed(address)
                && self.door.is_empty(address) == Ok(true)
    }

    fn take_copy(&mut self, copied: Copied, went: bool) -> PageOutcome {
        if went {
            return self.moved_out(copied.page, copied.place);
        }
        self.frames.set_free(copied.place);
        self.refuse_protected(copied.address)
    }
}
