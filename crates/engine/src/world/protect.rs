//! Pages that leave by protection: of ranges that cannot be moved, and of all under the write-protect mechanism.

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::PAGE_BYTES;

use super::{Mechanism, RUN_PAGES, Segment, World};
use crate::hash::is_zero;

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
            self.patiently(address, |uffd| {
                uffd.write_protect(address, pages * PAGE_BYTES, on)
            })
            .stop
            .is_none()
        };
        let whole = done(address, pages);
        for i in 0..pages {
            each(i, whole || done(address + i * PAGE_BYTES, 1));
        }
    }

    /// Write-protects, then looks at a copy. Under the move mechanism the copy is the staged page
    /// and the original is dropped at once; otherwise the page stays readable in place.
    pub(super) fn detach_by_protect(&mut self, segment: Segment, out: &mut Vec<PageOutcome>) {
        let mut i = 0;
        while i < segment.pages {
            let count = (segment.pages - i).min(RUN_PAGES);
            let mut flags = std::mem::take(&mut self.flags);
            let known = self
                .pagemap
                .read(segment.at(i), &mut flags[..count])
                .is_ok();
            // Whatever the range's own protection: mprotect may lift it while the page is staged.
            let mut protected = [false; RUN_PAGES];
            self.protect(segment.at(i), count, true, |k, done| protected[k] = done);
            for (k, page) in flags[..count].iter().enumerate() {
                out.push(if !known || !protected[k] {
                    PageOutcome::Refused(Refusal::Busy)
                } else if page.empty() {
                    self.absent(segment.at(i + k))
                } else {
                    self.look_at_copy(segment, i + k)
                });
            }
            self.flags = flags;
            i += count;
        }
    }

    fn look_at_copy(&mut self, segment: Segment, i: usize) -> PageOutcome {
        let place = self.take_frames(1, false).start;
        let read = self
            .memory
            .read(segment.at(i), self.frames.content_mut(place));
        // What was moved away since it was protected was not what was read.
        let changing = self.is_disturbed(segment.at(i));
        if read != Ok(PAGE_BYTES) || changing || self.uffd.is_changing(segment.at(i)) {
            self.frames.set_free(place);
            return self.refuse_protected(segment.at(i));
        }
        if self.mechanism == Mechanism::Move {
            if self.release_in_program(segment.at(i)).is_err() {
                self.frames.set_free(place);
                return self.refuse_protected(segment.at(i));
            }
            return self.moved_out(segment.page(i), place);
        }
        let content = self.frames.content(place);
        let zero = is_zero(content);
        let hash = self.hash_of(content, zero);
        self.frames.set_free(place);
        PageOutcome::Detached { hash, zero }
    }

    /// A page that cannot leave after all may be written again.
    fn refuse_protected(&mut self, address: usize) -> PageOutcome {
        self.may_be_written(address);
        PageOutcome::Refused(Refusal::Busy)
    }
}
