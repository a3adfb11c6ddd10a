//! The home's door: its own address space, and beside it those of all seats.
//!
//! The pager sees one mapping of each object, the home's, which nobody touches. What is done to a page there is done to it wherever it is mapped: a protection
//! is one of every seat, a hole in the file takes the page from all, and who waits for it, in whatever process, waits at the home's address.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outpage_core::units::PAGE_BYTES;
use outpage_sys::process::Tid;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{
    Change, CopyMode, Fault, Message, Mode, MoveMode, MoveOutcome, Outcome, Stop,
};

use super::seats::Seats;
use crate::door::{Door, Own, Part, Released};

/// All seats, as the pager's thread and the home's share them. Nobody who holds it waits for the other.
pub(crate) type Hall = Arc<Mutex<Seats>>;

/// Whoever panicked with it has ended the process.
pub(super) fn enter(hall: &Hall) -> MutexGuard<'_, Seats> {
    hall.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The door.
pub(crate) struct HomeDoor {
    inner: Box<dyn Door>,
    hall: Hall,
}

impl HomeDoor {
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(crate) fn new(inner: Box<dyn Door>, hall: Hall) -> Result<Self, Errno> {
        enter(&hall).watch(inner.fd())?;
        Ok(Self { inner, hall })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        enter(&self.hall)
    }

    /// What a call filled is there for all who wait.
    fn filled(&self, start: usize, outcome: Outcome) -> Outcome {
        if outcome.bytes > 0 {
            self.seats().filled(start, start + outcome.bytes);
        }
        outcome
    }
}

impl Door for HomeDoor {
    fn fd(&self) -> i32 {
        self.seats().fd()
    }

    fn gather(&self) {
        self.inner.gather();
        let mut seats = self.seats();
        seats.gather();
        while let Some((start, end)) = seats.next_emptied() {
            self.inner.put_back(Message::Removed { start, end });
        }
    }

    fn let_change_pass(&self) {
        self.inner.let_change_pass();
        self.seats().gather();
    }

    fn next_change(&self) -> Option<Message> {
        self.inner.next_change()
    }

    fn next_departure(&self, start: usize, end: usize) -> Option<Message> {
        self.inner.next_departure(start, end)
    }

    fn next_fault(&self) -> Option<Fault> {
        let inner = self.inner.next_fault();
        inner.or_else(|| self.seats().next_fault())
    }

    fn has_read(&self) -> bool {
        self.inner.has_read() || self.seats().has_read()
    }

    fn put_back(&self, message: Message) {
        self.inner.put_back(message);
    }

    fn change_at(&self, address: usize) -> Option<Change> {
        self.inner.change_at(address)
    }

    fn is_removed(&self, address: usize) -> bool {
        self.inner.is_removed(address)
    }

    fn is_moved_onto(&self, address: usize) -> bool {
        self.inner.is_moved_onto(address)
    }

    fn moved_to(&self, address: usize) -> usize {
        self.inner.moved_to(address)
    }

    fn is_calm(&self) -> bool {
        self.inner.is_calm()
    }

    fn is_changing(&self, page: usize) -> bool {
        self.inner.is_changing(page)
    }

    fn register(&self, start: usize, len: usize, mode: Mode) -> Result<(), Errno> {
        self.inner.register(start, len, mode)
    }

    fn unregister(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.inner.unregister(start, len)
    }

    fn is_registered(&self, page: usize) -> Option<bool> {
        self.inner.is_registered(page)
    }

    fn is_protectable(&self, page: usize) -> Option<bool> {
        self.inner.is_protectable(page)
    }

    fn may_have_registered(&self, page: usize) -> bool {
        self.inner.may_have_registered(page)
    }

    fn mark_managed(&self, start: usize, len: usize) -> Result<(), Errno> {
        self.inner.mark_managed(start, len)
    }

    fn copy(&self, to: usize, from: usize, len: usize, how: CopyMode) -> Outcome {
        self.filled(to, self.inner.copy(to, from, len, how))
    }

    fn move_pages(&self, to: usize, from: usize, len: usize, how: MoveMode) -> Outcome {
        self.inner.move_pages(to, from, len, how)
    }

    fn move_run(&self, to: usize, from: usize, how: MoveMode, report: &mut [MoveOutcome]) {
        self.inner.move_run(to, from, how, report);
    }

    /// Where a tmpfs is full, who touches a page that has nothing in it yet gets a signal, as the kernel has it.
    fn zeropage(&self, start: usize, len: usize) -> Outcome {
        let outcome = self.filled(start, self.inner.zeropage(start, len));
        let at = start + outcome.bytes;
        if outcome.stop != Some(Stop::NoMemory) || !self.seats().is_limited(at) {
            return outcome;
        }
        let _ = self.poison(at, PAGE_BYTES);
        let bytes = outcome.bytes + PAGE_BYTES;
        let stop = (bytes < len).then_some(Stop::Again);
        Outcome { bytes, stop }
    }

    fn poison(&self, start: usize, len: usize) -> Outcome {
        let outcome = self.inner.poison(start, len);
        (start..start + len)
            .step_by(PAGE_BYTES)
            .for_each(|address| self.seats().poison(address));
        outcome
    }

    fn write_protect(&self, start: usize, len: usize, on: bool) -> Outcome {
        let outcome = self.inner.write_protect(start, len, on);
        if !on {
            self.seats().serve(start, start + len);
            return outcome;
        }
        match self.seats().protect(start, start + len) {
            None => outcome,
            stop => Outcome { bytes: 0, stop },
        }
    }

    fn wake(&self, start: usize, len: usize) {
        self.inner.wake(start, len);
        self.seats().serve(start, start + len);
    }

    fn there(&self, start: usize, out: &mut [bool]) -> Result<(), Errno> {
        self.inner.there(start, out)
    }

    fn is_present(&self, address: usize) -> Result<bool, Errno> {
        self.inner.is_present(address)
    }

    fn read(&self, address: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.inner.read(address, buffer)
    }

    fn make_own(&self, address: usize) -> Option<Own> {
        self.inner.make_own(address)
    }

    fn release(&self, parts: &[Part], out: &mut [Released]) -> Result<(), Errno> {
        self.inner.release(parts, out)
    }

    fn drop_unwritten(&self, address: usize, pages: usize) -> bool {
        self.inner.drop_unwritten(address, pages)
    }

    fn start_releasing(&self) -> Result<(), Errno> {
        self.inner.start_releasing()
    }

    fn helper(&self) -> Option<Tid> {
        self.inner.helper()
    }

    fn disturbed_in(&self, start: usize, end: usize, check: &mut dyn FnMut(usize, usize)) {
        self.inner.disturbed_in(start, end, check);
    }

    fn give_back(&self, address: usize) -> bool {
        self.inner.give_back(address)
    }

    fn undisturbed(&self) {
        self.inner.undisturbed();
    }

    fn serves_shared(&self) -> bool {
        self.inner.serves_shared()
    }

    fn forget_threads(&mut self) {
        self.inner.forget_threads();
    }
}
