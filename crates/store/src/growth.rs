//! Making sure of room before slots are written.

use std::fmt;
use std::io;

use outpage_core::units::{PAGE_BYTES, SlotRange};

use crate::Allocation;

/// A store whose slots take room of somebody else's: it is reserved before they are written, so that a full disk shows while
/// every page is still in memory.
pub trait Grow {
    /// Reserves room for `slots`, a part of slots `0..capacity_slots()`; what is reserved already is left alone. May block, for
    /// milliseconds a GiB. Does not allocate.
    ///
    /// # Errors
    /// Nothing of what was not reserved before is reserved.
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError>;

    /// By what another thread reserves as [`Self::reserve`] does, while the store is at work. `None` where that never blocks, or where no
    /// handle can be had. Allocates.
    fn beside(&self) -> Option<Box<dyn Reserve>> {
        None
    }
}

/// Makes sure of room beside a store, by a handle of its own.
pub trait Reserve: Send {
    /// As [`Grow::reserve`].
    ///
    /// # Errors
    /// Those of [`Grow::reserve`].
    fn reserve(&self, slots: SlotRange) -> Result<Allocation, ReserveError>;

    /// Ends the reservation of `slots`, in which nobody has anything: what is read there is anything, until it is reserved anew and written. Where the file system
    /// cannot, the room stays reserved.
    fn give_back(&self, slots: SlotRange);
}

impl<S: Grow + ?Sized> Grow for Box<S> {
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        (**self).reserve(slots)
    }

    fn beside(&self) -> Option<Box<dyn Reserve>> {
        (**self).beside()
    }
}

/// Room that could not be reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveError {
    /// For these slots.
    pub slots: SlotRange,
    /// Why.
    pub cause: ReserveCause,
}

/// Why there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReserveCause {
    /// A full disk or an exhausted quota.
    NoSpace {
        /// Bytes that the file system says are available.
        available_bytes: u64,
    },
    /// The slots reach past the cap, or past the process's file size limit.
    TooLarge {
        /// The cap in bytes.
        cap_bytes: u64,
    },
    /// Another failure of the named system call.
    Call {
        /// The system call.
        call: &'static str,
        /// The error number.
        errno: i32,
    },
}

impl ReserveError {
    /// Bytes in the slots.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.slots.slots as u64 * PAGE_BYTES as u64
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (self.slots.start.0, self.slots.end().0);
        let bytes = self.bytes();
        write!(f, "no room for slots {start}..{end}, {bytes} bytes: ")?;
        match self.cause {
            ReserveCause::NoSpace { available_bytes } => write!(
                f,
                "{available_bytes} are available; free some, lower the swap cap, or choose another swap directory"
            ),
            ReserveCause::TooLarge { cap_bytes } => write!(
                f,
                "past the cap of {cap_bytes} or the file size limit; raise the swap cap or the limit (ulimit -f)"
            ),
            ReserveCause::Call { call, errno } => {
                let error = io::Error::from_raw_os_error(errno);
                write!(f, "{call} failed: {error}; choose another swap directory")
            }
        }
    }
}

impl std::error::Error for ReserveError {}
