//! Mappings that the program changes while the pager is at work.
//!
//! The thread that unmaps, moves or empties memory makes the call itself; the kernel tells the pager, and that thread
//! goes on as soon as the message is read. From then on nothing may be mapped there, or old content
//! would come back; and what is not wanted there any more may be wanted elsewhere.

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_sys::uffd::{Change, Message, Outcome, Stop};

use super::World;
use crate::door::Door;
use crate::frames::FrameNo;
use crate::releaser::{Part, Released};
use crate::scope::Failure;

/// The outcome of mapping a page whose mapping is moving away: it stays where it is.
pub(super) const KEPT: PageOutcome = PageOutcome::Refused(Refusal::Busy);

/// Nothing was done, for something is changing.
const AGAIN: Outcome = Outcome {
    bytes: 0,
    stop: Some(Stop::Again),
};

/// What was to be thrown away is there yet.
const STAYS: Released = Released {
    done: false,
    refused: true,
    heard: false,
};

impl World {
    /// What is happening to the mapping at `address`.
    pub(crate) fn change_at(&self, address: usize) -> Option<Change> {
        let attended = self.space.change_at(address);
        attended.or_else(|| self.door.change_at(address))
    }

    /// Whether what is known at `address` may not be what lies there.
    pub(crate) fn is_disturbed(&self, address: usize) -> bool {
        self.change_at(address).is_some() || self.door.is_moved_onto(address)
    }

    /// Whether that holds for any of `pages` pages from `start` on.
    pub(crate) fn is_any_disturbed(&self, start: usize, pages: usize) -> bool {
        let mut addresses = (0..pages).map(|i| start + i * PAGE_BYTES);
        !self.is_calm() && addresses.any(|address| self.is_disturbed(address))
    }

    /// Whether no mapping is known to be changing.
    pub(crate) fn is_calm(&self) -> bool {
        self.space.is_calm() && self.door.is_calm()
    }

    /// Whether a change is known, or a thread is at one that it has not told of.
    pub(crate) fn is_changing(&self) -> bool {
        !self.is_calm() || self.door.is_changing(self.frames.span().0)
    }

    /// Whether something else was mapped at `address` by a call that the kernel never tells of (shmat(2) with `SHM_REMAP`): nobody
    /// wants what is known there.
    pub(super) fn is_mapped_over(&self, address: usize) -> bool {
        self.door.is_registered(address) == Some(false)
    }

    /// Whether what is known at `address` was thrown away, there or where it had moved to, as far as messages were read.
    pub(super) fn is_removed(&self, address: usize) -> bool {
        self.space.change_at(address) == Some(Change::Removed)
            || self.door.is_removed(self.space.moved_to(address))
    }

    /// Whether nobody can touch what is known of `page` any more: the program threw it away, or has mapped something else over it. Shared
    /// memory that one mapping throws away may be wanted by another.
    pub(super) fn is_out_of_reach(&self, page: PageNo) -> bool {
        let Some((address, _)) = self.space.address(page) else {
            return false;
        };
        let is_private = self.space.at(address).is_some_and(|r| r.view == 0);
        // Where a mapping moved away, of which the message waits, nothing is registered either.
        let is_gone = || self.is_removed(address) || self.is_calm() && self.is_mapped_over(address);
        is_private && is_gone()
    }

    /// Has `act` map `run`, but for pages whose mapping is changing.
    pub(super) fn but_changing(
        &mut self,
        run: PageRange,
        out: &mut Vec<PageOutcome>,
        act: impl Fn(&mut Self, PageRange, &mut Vec<PageOutcome>),
    ) {
        if self.is_calm() {
            return act(self, run, out);
        }
        for page in run.iter() {
            let address = self.space.address(page).map(|found| found.0);
            match address.and_then(|at| self.change_at(at)) {
                None => act(self, PageRange::one(page), out),
                Some(Change::Moved) => out.push(KEPT),
                Some(Change::Removed) => out.push(self.give_up(page)),
            }
        }
    }

    fn give_up(&mut self, page: PageNo) -> PageOutcome {
        if let Some(place) = self.staged.remove(page) {
            self.frames.set_free(place);
        }
        PageOutcome::Refused(Refusal::Gone)
    }

    /// The page in `place` cannot be mapped at `address`, which is changing.
    pub(super) fn not_now(&mut self, address: usize, place: FrameNo) -> PageOutcome {
        // Where something was moved onto it, it is not known yet whether it went or moved on.
        if self.change_at(address) != Some(Change::Removed) {
            return KEPT;
        }
        self.frames.set_free(place);
        PageOutcome::Refused(Refusal::Gone)
    }

    /// Repeats what the kernel could not do while the address space was changing. Ends with `Again` where what
    /// changes is the mapping at `address`.
    pub(super) fn patiently(&self, address: usize, act: impl Fn(&dyn Door) -> Outcome) -> Outcome {
        while self.change_at(address).is_none() {
            let outcome = act(&*self.door);
            if outcome.bytes > 0 || outcome.stop != Some(Stop::Again) {
                return outcome;
            }
            self.door.let_change_pass();
        }
        AGAIN
    }

    /// The same for `pages` pages from `start` on: what changes may be any of them, or something else may be moved there.
    pub(super) fn patiently_all(
        &self,
        start: usize,
        pages: usize,
        act: impl Fn(&dyn Door) -> Outcome,
    ) -> Outcome {
        while !self.is_any_disturbed(start, pages) {
            let outcome = act(&*self.door);
            if outcome.bytes > 0 || outcome.stop != Some(Stop::Again) {
                return outcome;
            }
            self.door.let_change_pass();
        }
        AGAIN
    }

    /// What it means that the program has no page at `address`: none was there, unless the mapping is moving.
    pub(super) fn absent(&self, address: usize) -> PageOutcome {
        let moving =
            self.door.is_changing(address) || self.change_at(address) == Some(Change::Moved);
        PageOutcome::Refused(if moving {
            Refusal::Busy
        } else {
            Refusal::Absent
        })
    }

    /// Throws the frame of the program's page at `address` away. False where it stays.
    pub(super) fn release_in_program(&self, address: usize) -> bool {
        let address = match self.change_at(address) {
            // The program has it done.
            Some(Change::Removed) => return true,
            Some(Change::Moved) => self.door.moved_to(address),
            // That is another page by now; whether this one is somewhere else is told later.
            None if self.door.is_moved_onto(address) => return false,
            None => address,
        };
        let mut out = [STAYS];
        self.release_parts(&[Part { address, pages: 1 }], &mut out);
        let [released] = out;
        released.done || released.refused && self.was_thrown_away(address, released)
    }

    /// Throws `parts` away by the thread that does it, and says of each what came of it; where that fails they stay.
    pub(super) fn release_parts(&self, parts: &[Part], out: &mut [Released]) {
        if let Err(error) = self.door.release(parts, out) {
            self.failing.fail(Failure::Os("throw pages away", error));
            out.fill(STAYS);
        }
    }

    /// Whether the page at `address`, which the kernel refused to throw away for us, went because the program threw it away.
    pub(super) fn was_thrown_away(&self, address: usize, released: Released) -> bool {
        let start = self.door.moved_to(address);
        // Where the kernel did not tell that it goes, or it is there yet, it stays; should it go after all, its next touch shows that.
        if !released.heard || self.door.is_empty(start) != Ok(true) {
            return false;
        }
        let end = start + PAGE_BYTES;
        self.door.put_back(Message::Removed { start, end });
        true
    }
}
