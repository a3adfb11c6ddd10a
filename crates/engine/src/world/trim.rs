//! Frames that go back to the kernel.

use outpage_core::units::PAGE_BYTES;
use outpage_sys::map;
use outpage_sys::uffd::Mode;

use crate::scope::Failure;

use super::{RUN_PAGES, World};

impl World {
    /// Gives up to `frames` free frames back to the kernel. Of what lies under the program's descriptor the kernel would tell this very
    /// thread and wait for its answer, so they are taken from under it meanwhile.
    pub fn give_back(&mut self, frames: usize) {
        let watched = self.mechanism.moves();
        let mut left = frames;
        while let Some(run) = self.frames.take_free(left.min(RUN_PAGES) as u32) {
            let (start, len) = (
                self.frames.address(run.start),
                run.count as usize * PAGE_BYTES,
            );
            // It may be a mapping too many.
            let given = (!watched || self.door.unregister(start, len).is_ok())
                && self.release_frames(start, len, watched);
            if !given {
                run.iter().for_each(|place| self.frames.set_free(place));
                return;
            }
            run.iter().for_each(|place| self.frames.set_empty(place));
            left -= run.count as usize;
        }
    }

    /// Empties the places of the staging area that are thought to be empty: the kernel fills them where the program locks all that it has
    /// (`mlockall`) and no hook sees it. They are let go for it: what is locked in the program cannot move there from then on.
    pub fn empty_places(&mut self) {
        let watched = self.mechanism.moves();
        let mut at = 0;
        while let Some(run) = self.frames.empty_run(at) {
            at = run.start.0 + run.count;
            let (start, len) = (
                self.frames.address(run.start),
                run.count as usize * PAGE_BYTES,
            );
            if watched && self.door.unregister(start, len).is_err() {
                continue;
            }
            let _ = map::unlock(start, len);
            self.release_frames(start, len, watched);
        }
    }

    /// Whether the kernel took them: what the program locked with `mlockall(2)` stays.
    fn release_frames(&self, start: usize, len: usize, watched: bool) -> bool {
        let released = map::release(start, len).is_ok();
        if watched && let Err(error) = self.door.register(start, len, Mode::write_protect()) {
            // Nothing is moved there any more: such pages stay in the program.
            (self.failing).fail(Failure::Os("register the staging area again", error));
        }
        released
    }
}
