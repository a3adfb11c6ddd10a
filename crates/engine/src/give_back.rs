//! Memory that a scope was handed goes back to the program, page by page, with its bytes.
//!
//! A chunk's pages are brought in as by a touch, and kept there; then the chunk leaves the userfaultfd, and the pager forgets it. So
//! the pager stays within its limit, and the program has more by what it got back.

use std::ops::Range;

use outpage_core::contract::Event;
use outpage_core::page::State;
use outpage_core::units::{Nanos, PAGE_BYTES, PageRange};
use outpage_sys::raw::Errno;
use outpage_sys::{clock, map};

use crate::adopt::whole_pages;
use crate::engine::Shared;
use crate::live::{Live, STUCK_MAX};
use crate::scope::{Ended, FRAMES_TO_END, Failure};

/// A chunk's pages are in the program at once: a quarter of the frames of the smallest limit (`FRAMES_MIN`).
const CHUNK_PAGES: usize = 64;

/// The end of all addresses.
const ALL: usize = usize::MAX & !(PAGE_BYTES - 1);

/// How long a page of a scope that failed may take to come in, if one before it did not: a read that fails is repeated at once.
const MOMENT: Nanos = Nanos(10_000_000);

impl Live {
    /// Gives what is managed of `range` back. Returns how many pages are lost. Where the kernel refuses to take a part from the userfaultfd,
    /// `refused` says whether to go on.
    ///
    /// # Errors
    /// What `refused` returned, with all below that chunk given back.
    pub(crate) fn give_back(
        &mut self,
        range: Range<usize>,
        refused: fn(Errno) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        let (mut at, mut lost) = (range.start, 0);
        let mut patience = STUCK_MAX;
        loop {
            // Meanwhile the program may unmap or move some.
            self.attend_to_changes();
            let parts = self.world.space.parts(at, range.end);
            let next = parts.first().copied();
            self.world.space.take_list(parts);
            let Some(part) = next else { return Ok(lost) };
            let end = part.end.min(part.start + CHUNK_PAGES * PAGE_BYTES);
            let missing = self.give_chunk_back(part.start, end, &mut patience, refused)?;
            lost += missing;
            at = end;
        }
    }

    /// What [`crate::call::Call::TakeBack`] asks for.
    pub(crate) fn take_back(&mut self, addr: usize, len: usize) -> isize {
        let given = whole_pages(addr, len).and_then(|end| self.give_back(addr..end, Err));
        given.map_or_else(|error| -(error.number() as isize), |lost| lost as isize)
    }

    fn give_chunk_back(
        &mut self,
        start: usize,
        end: usize,
        patience: &mut Nanos,
        refused: fn(Errno) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        self.world.space.hold(start, end);
        let lost = (start..end)
            .step_by(PAGE_BYTES)
            .filter(|&address| !self.bring_back(address, patience))
            .count();
        for part in self.world.space.parts(start, end) {
            self.quiesce(part.pages());
            let (start, len) = (part.start, part.end - part.start);
            // From here on no fault of it comes, and all of it is there.
            let left = self.world.door.unregister(start, len);
            if let Err(error) = left.or_else(refused) {
                self.world.space.unpin(start, end - start);
                return Err(error);
            }
            self.pager.handle(clock::now(), Event::Unmap(part.pages()));
            self.drive();
            self.world.space.remove(part.start, part.end);
            if part.view != 0 {
                self.world.views.given_back(part.view, part.pages());
            }
            if !part.not_forked {
                let _ = map::madvise(start, len, libc::MADV_DOFORK);
            }
        }
        Ok(lost)
    }

    /// Brings the page at `address` in, if it has a content. False if it is lost.
    fn bring_back(&mut self, address: usize, patience: &mut Nanos) -> bool {
        let Some(page) = self.world.space.at(address).map(|r| r.page(address)) else {
            return true;
        };
        // An untouched page is one of zeroes.
        let is_there = |state| matches!(state, State::Resident | State::Untouched);
        if is_there(self.pager.state(page)) {
            return true;
        }
        if self.pager.state(page) == State::Poisoned {
            return false;
        }
        self.bring_in_within(address, *patience);
        self.quiesce(PageRange::one(page));
        match self.pager.state(page) {
            state if is_there(state) => true,
            State::Poisoned => false,
            _ if self.world.change_at(address).is_some() => true,
            _ => {
                *patience = MOMENT;
                self.world.poison(page);
                false
            }
        }
    }

    /// Gives everything back, by frames beyond the limit where there is no other. Returns how many pages are lost.
    fn wind_up(&mut self) -> usize {
        self.quiesce_all();
        // The frames beyond the limit are for what goes back: other threads would take them all.
        self.winds_up = true;
        let frames = self.pager.limits().frames + FRAMES_TO_END;
        self.pager.handle(clock::now(), Event::Limit(frames));
        self.drive();
        let mut lost = 0;
        // What moved meanwhile may be where was looked already.
        while self.world.space.all().next().is_some() {
            lost += self.give_back(0..ALL, |_| Ok(())).unwrap_or(0);
        }
        lost
    }

    /// Ends what the pager has: requests, frames, descriptors, threads, membership.
    fn end(self) {
        let Self {
            store,
            mut session,
            world,
            mut pager,
            beside,
            ..
        } = self;
        // Before the membership ends: others may have then what is given back there.
        drop(beside);
        // Frames last: requests name them.
        drop(store);
        drop(world);
        pager.ending();
        pager.flush(true);
        // The session is this engine's own: nobody else's look at it comes to nothing.
        let _ = session.leave();
    }
}

/// On the pager's thread: everything goes back, and the pager is over.
pub(crate) fn close(mut live: Box<Live>, slot: usize) {
    let lost = live.wind_up();
    live.publish();
    live.calls.answer(slot, lost as isize);
    live.resolve_bell(slot);
    live.calls.close();
    live.end();
}

/// The same for a scope that failed.
pub(crate) fn fail(shared: &Shared, mut live: Box<Live>, failure: Failure) {
    let pages_lost = live.wind_up();
    live.publish();
    if let Ok(mut ended) = shared.ended.lock() {
        *ended = Some(Ended {
            failure,
            pages_lost,
        });
    }
    live.calls.close();
    live.end();
}
