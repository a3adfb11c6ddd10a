//! The kernel's door to the program's memory: every call that the movers and the loop make on it.
//!
//! [`Kernel`] makes them, by a userfaultfd. Tests have a door whose pages are a map and whose faults are a queue: movers, regions and
//! the loop do the same behind either.

use outpage_sys::process::Tid;
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{Change, CopyMode, Fault, Message, Mode, MoveMode, MoveOutcome, Outcome};

pub use crate::releaser::{CALL_PAGES, Part, Released};

mod kernel;

pub use kernel::Kernel;

/// A page's frame, as a fork may have left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    /// It was this process's own already, but the kernel had not seen that.
    Already,
    /// It was shared, and was duplicated.
    Duplicated,
}

/// The calls on one address space. All of them come from the pager's thread; addresses are those of pages, lengths whole pages in bytes.
///
/// What threads wait for and what they change is read by [`Self::gather`], and by any call that has to pass a change; it is given out in
/// its order, faults apart from changes. Until a change is given out it is known here: nothing of what was there before may be mapped
/// where [`Self::change_at`] tells of one.
pub trait Door: Send {
    /// A descriptor for poll(2) that is readable when messages wait; -1 where there is none.
    fn fd(&self) -> i32;

    /// Reads the messages that wait. Who made a change goes on from then on.
    fn gather(&self);

    /// As [`Uffd::let_change_pass`](outpage_sys::uffd::Uffd::let_change_pass).
    fn let_change_pass(&self);

    /// The next change that was read.
    fn next_change(&self) -> Option<Message>;

    /// As [`Uffd::next_departure`](outpage_sys::uffd::Uffd::next_departure).
    fn next_departure(&self, start: usize, end: usize) -> Option<Message>;

    /// The next fault that was read.
    fn next_fault(&self) -> Option<Fault>;

    /// Whether something was read that was not given out yet.
    fn has_read(&self) -> bool;

    /// Has `message` given out like one that was read now.
    fn put_back(&self, message: Message);

    /// As [`Uffd::change_at`](outpage_sys::uffd::Uffd::change_at).
    fn change_at(&self, address: usize) -> Option<Change>;

    /// As [`Uffd::is_removed`](outpage_sys::uffd::Uffd::is_removed).
    fn is_removed(&self, address: usize) -> bool;

    /// As [`Uffd::is_moved_onto`](outpage_sys::uffd::Uffd::is_moved_onto).
    fn is_moved_onto(&self, address: usize) -> bool;

    /// As [`Uffd::moved_to`](outpage_sys::uffd::Uffd::moved_to).
    fn moved_to(&self, address: usize) -> usize;

    /// Whether every change that was read was given out.
    fn is_calm(&self) -> bool;

    /// As [`Uffd::is_changing`](outpage_sys::uffd::Uffd::is_changing).
    fn is_changing(&self, page: usize) -> bool;

    /// Has faults in a range come here.
    ///
    /// # Errors
    /// Those of [`Uffd::register`](outpage_sys::uffd::Uffd::register).
    fn register(&self, start: usize, len: usize, mode: Mode) -> Result<(), Errno>;

    /// Undoes that; who waits there faults anew.
    ///
    /// # Errors
    /// Those of [`Uffd::unregister`](outpage_sys::uffd::Uffd::unregister).
    fn unregister(&self, start: usize, len: usize) -> Result<(), Errno>;

    /// As [`Uffd::is_registered`](outpage_sys::uffd::Uffd::is_registered).
    fn is_registered(&self, page: usize) -> Option<bool>;

    /// Whether `page`, which nobody wants protected, lies in memory that is registered for protection: as [`Self::is_registered`], but the mapping is left as
    /// it is.
    fn is_protectable(&self, page: usize) -> Option<bool>;

    /// As [`Uffd::may_have_registered`](outpage_sys::uffd::Uffd::may_have_registered).
    fn may_have_registered(&self, page: usize) -> bool;

    /// Has a range hold no huge pages, and be left out of children.
    ///
    /// # Errors
    /// Those of madvise(2).
    fn mark_managed(&self, start: usize, len: usize) -> Result<(), Errno>;

    /// As [`Uffd::copy`](outpage_sys::uffd::Uffd::copy).
    fn copy(&self, to: usize, from: usize, len: usize, how: CopyMode) -> Outcome;

    /// As [`Uffd::move_pages`](outpage_sys::uffd::Uffd::move_pages).
    fn move_pages(&self, to: usize, from: usize, len: usize, how: MoveMode) -> Outcome;

    /// As [`Uffd::move_run`](outpage_sys::uffd::Uffd::move_run).
    fn move_run(&self, to: usize, from: usize, how: MoveMode, report: &mut [MoveOutcome]);

    /// As [`Uffd::zeropage`](outpage_sys::uffd::Uffd::zeropage).
    fn zeropage(&self, start: usize, len: usize) -> Outcome;

    /// As [`Uffd::poison`](outpage_sys::uffd::Uffd::poison).
    fn poison(&self, start: usize, len: usize) -> Outcome;

    /// As [`Uffd::write_protect`](outpage_sys::uffd::Uffd::write_protect).
    fn write_protect(&self, start: usize, len: usize, on: bool) -> Outcome;

    /// Who waits in a range goes on, and faults anew where its page is still missing.
    fn wake(&self, start: usize, len: usize);

    /// Which pages from `start` on have a frame, or a marker in its place.
    ///
    /// # Errors
    /// Those of reading page tables.
    fn there(&self, start: usize, out: &mut [bool]) -> Result<(), Errno>;

    /// Whether the page at `address` has a frame.
    ///
    /// # Errors
    /// Those of reading page tables.
    fn is_present(&self, address: usize) -> Result<bool, Errno>;

    /// Copies from `address` on, whatever may be done there; returns the bytes copied.
    ///
    /// # Errors
    /// Those of [`outpage_sys::map::Memory::read`].
    fn read(&self, address: usize, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Makes the page at `address`, which a fork left shared, the process's own, its bytes as they were. `None` where that cannot be.
    fn make_own(&self, address: usize) -> Option<Own>;

    /// Throws `parts` away, [`CALL_PAGES`] pages at most, and says of each in `out` what came of it.
    ///
    /// # Errors
    /// The kernel's, when it cannot be asked: the pages stay.
    fn release(&self, parts: &[Part], out: &mut [Released]) -> Result<(), Errno>;

    /// Has the kernel drop those of `pages` pages from `address` on that were freed (`MADV_FREE`) and not written since; the others stay. False where
    /// it is not asked, for it might write pages to swap of its own.
    fn drop_unwritten(&self, address: usize, pages: usize) -> bool;

    /// Starts the thread that [`Self::release`] needs, if it has none yet: its stack takes a place in the address space.
    ///
    /// # Errors
    /// The kernel's.
    fn start_releasing(&self) -> Result<(), Errno>;

    /// The thread that [`Self::release`] has, if it has one.
    fn helper(&self) -> Option<Tid>;

    /// Calls `check` with every part of `start..end` where pages were thrown away while something changed that is not attended to yet.
    fn disturbed_in(&self, start: usize, end: usize, check: &mut dyn FnMut(usize, usize));

    /// Gives the program back what [`Self::release`] took at `address` when the program had just moved it there, by a call that no hook saw. False where
    /// that cannot be done.
    fn give_back(&self, address: usize) -> bool;

    /// All that changed was attended to.
    fn undisturbed(&self);

    /// Whether shared memory can be registered, its missing pages and its protection.
    fn serves_shared(&self) -> bool;

    /// In another process than that which began it: threads that it had are not here.
    fn forget_threads(&mut self);
}

impl dyn Door + '_ {
    /// Whether the page at `address` has neither a frame nor a marker.
    ///
    /// # Errors
    /// Those of [`Door::there`].
    pub(crate) fn is_empty(&self, address: usize) -> Result<bool, Errno> {
        let mut there = [false];
        self.there(address, &mut there)?;
        Ok(!there[0])
    }
}

/// The doorbells that calls come by: pages of which each touch is a message.
pub trait Bells: Send {
    /// A descriptor for poll(2) that is readable when a bell was rung; -1 where there is none.
    fn fd(&self) -> i32;

    /// Reads which bells were rung.
    fn gather(&self);

    /// The next bell that was rung.
    fn next_ring(&self) -> Option<usize>;

    /// Who rang the bell at `address` goes on.
    fn resolve(&self, address: usize);

    /// Has touches of the bells come here.
    ///
    /// # Errors
    /// Those of [`Uffd::register`](outpage_sys::uffd::Uffd::register).
    fn register(&self, start: usize, len: usize) -> Result<(), Errno>;
}
