//! Stores across a fork.

use std::os::fd::{OwnedFd, RawFd};

use crate::BackendError;

/// The file descriptors that a forked child finds.
#[derive(Debug)]
pub enum Descriptors {
    /// The child's table is a copy of the one the store was used with: its old numbers are valid.
    Copied,
    /// The child's table is another one, where the old numbers may belong to somebody else: they
    /// are forgotten, not closed, and this is the swap file (a store without one closes it).
    Replaced(OwnedFd),
}

/// A store that a forked child can go on with: both read what was written before the fork.
pub trait Reopen {
    /// The descriptor of what holds the pages, for a child whose table is another one: a copy of it comes back as
    /// [`Descriptors::Replaced`]. `None` where there is none to carry.
    fn carried_fd(&self) -> Option<RawFd>;

    /// Makes the store usable in a forked child, which owns none of the parent's requests: nothing is
    /// in flight afterwards. Must be the first call in the child; a child that does not make it must
    /// not use the store, nor drop it. May allocate and start threads.
    ///
    /// # Errors
    /// What the new ring or pool met. The child must then neither use the store nor drop it.
    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError>;
}

impl<S: Reopen + ?Sized> Reopen for Box<S> {
    fn carried_fd(&self) -> Option<RawFd> {
        (**self).carried_fd()
    }
    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        (**self).reopen_after_fork(descriptors)
    }
}
