//! Pages that leave by `UFFDIO_MOVE` (Linux 6.8) into the staging area, and come back the same way: a staged page cannot change.

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_sys::uffd::{MoveMode, MoveOutcome};

use super::super::{KEPT, Segment, World};
use super::Mover;
use crate::door::Own;
use crate::frames::{FrameNo, FrameRange};

/// A move to where nobody is known to wait: to staging, or to pages of which no fault is open. Whoever faulted there
/// and was not heard yet sleeps on until the fault is read; the page is resident then, and the pager's answer is a wake.
const NOBODY_WAITS: MoveMode = MoveMode {
    dont_wake: true,
    allow_source_holes: false,
};

/// Moves frames between program and staging area.
pub(in crate::world) struct Moving;

impl Mover for Moving {
    /// From frames of zeroes: a page that the kernel fills by itself would be one that nobody counts.
    fn zero(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>) {
        let mut i = 0;
        while i < segment.pages {
            let places = world.take_frames((segment.pages - i) as u32, true);
            world.move_in(segment, i, places, MoveMode::default(), out);
            for (place, &outcome) in places.iter().zip(&out[out.len() - places.count as usize..]) {
                if outcome == KEPT {
                    world.frames.set_free(place);
                }
            }
            i += places.count as usize;
        }
    }

    fn put(
        &self,
        world: &mut World,
        segment: Segment,
        i: usize,
        places: FrameRange,
        awaited: bool,
        out: &mut Vec<PageOutcome>,
    ) {
        let how = if awaited {
            MoveMode::default()
        } else {
            NOBODY_WAITS
        };
        world.move_in(segment, i, places, how, out);
    }

    fn take(&self, world: &mut World, segment: Segment, out: &mut Vec<PageOutcome>) {
        let mut i = 0;
        while i < segment.pages {
            let places = world.frames.take_empty((segment.pages - i) as u32);
            let count = places.count as usize;
            let to = world.frames.address(places.start);
            let report = &mut world.moves[..count];
            world.door.move_run(to, segment.at(i), NOBODY_WAITS, report);
            let mut filled = false;
            for (k, place) in places.iter().enumerate() {
                let mut outcome = world.moves[k];
                if outcome == MoveOutcome::Busy {
                    outcome = world.move_shared(segment.at(i + k), place);
                }
                out.push(match outcome {
                    MoveOutcome::Moved => world.moved_out(segment.page(i + k), place),
                    other => {
                        world.frames.set_empty(place);
                        filled |= other == MoveOutcome::Exists;
                        if other == MoveOutcome::Absent {
                            world.absent(segment.at(i + k))
                        } else {
                            PageOutcome::Refused(Refusal::Busy)
                        }
                    }
                });
            }
            if filled {
                world.empty_places();
            }
            i += count;
        }
    }

    fn passes_holes(&self) -> bool {
        true
    }
}

impl World {
    /// Moves frames to the program; `places` become empty, or free where the move was refused. Where the mapping is
    /// moving away they stay as they are, and the outcome is [`KEPT`].
    fn move_in(
        &mut self,
        segment: Segment,
        i: usize,
        places: FrameRange,
        how: MoveMode,
        out: &mut Vec<PageOutcome>,
    ) {
        let count = places.count as usize;
        let from = self.frames.address(places.start);
        let report = &mut self.moves[..count];
        self.door.move_run(segment.at(i), from, how, report);
        for (k, place) in places.iter().enumerate() {
            out.push(match self.moves[k] {
                MoveOutcome::Moved => {
                    self.frames.set_empty(place);
                    PageOutcome::Done
                }
                MoveOutcome::Changing => self.not_now(segment.at(i + k), place),
                MoveOutcome::Exists => {
                    self.frames.set_free(place);
                    PageOutcome::Refused(Refusal::Present)
                }
                _ => self.copy_page_in(segment, i + k, place),
            });
        }
    }

    /// A page that a fork left shared, be it one before this pager began, is made this process's own by a write that changes nothing.
    fn move_shared(&mut self, address: usize, place: FrameNo) -> MoveOutcome {
        let Some(own) = self.door.make_own(address) else {
            return MoveOutcome::Busy;
        };
        self.cow_duplicates += u64::from(own == Own::Duplicated);
        let to = self.frames.address(place);
        let report = &mut self.moves[..1];
        self.door.move_run(to, address, NOBODY_WAITS, report);
        self.moves[0]
    }
}
