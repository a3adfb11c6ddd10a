//! userfaultfd: who is told of faults in a range, and how they are resolved.
//!
//! [`Uffd::open`] finds a way in and shakes hands, [`Uffd::register`] claims ranges,
//! [`Uffd::gather`] decodes what threads wait for and what they change. [`Uffd::copy`] and its
//! like resolve faults, each one call; [`Uffd::move_run`] moves pages whatever the kernel says half-way.

mod abi;
mod backlog;
mod features;
mod message;
mod ops;
mod remote;
mod run;

use core::cell::RefCell;
use core::fmt;

pub use backlog::Change;
pub use features::Features;
pub use message::{Fault, FaultAccess, FaultKind, Message};
pub use ops::{CopyMode, MoveMode, Outcome, Stop, is_changing, wake};
pub use remote::{REMOTE_FEATURES, Remote, SEAT_FEATURES};
pub use run::MoveOutcome;

use crate::fd::{self, Fd};
use crate::raw::{self, Errno, syscall3};
use backlog::Backlog;

/// An open userfaultfd: non-blocking, close-on-exec, after the handshake.
#[derive(Debug)]
pub struct Uffd {
    fd: Fd,
    features: Features,
    /// Messages that were read while something else was under way.
    backlog: RefCell<Backlog>,
}

/// A way to get a userfaultfd that also serves faults of the kernel itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// A descriptor of /dev/userfaultfd that somebody with the right to open it handed down.
    Inherited(i32),
    /// Opening /dev/userfaultfd (Linux 6.1): by the file's mode.
    Device,
    /// userfaultfd(2): needs `CAP_SYS_PTRACE` or vm.unprivileged_userfaultfd = 1.
    Call,
}

/// What [`Uffd::open`] is to find.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// The number of an inherited descriptor of /dev/userfaultfd, tried first. It is left open.
    pub inherited: Option<i32>,
    /// Without these the open fails.
    pub required: Features,
    /// These are enabled where the kernel has them.
    pub optional: Features,
}

/// Why no userfaultfd could be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// No route led to one.
    NoRoute {
        /// The inherited descriptor, if one was named.
        inherited: Option<Errno>,
        /// /dev/userfaultfd.
        device: Errno,
        /// The system call.
        call: Errno,
    },
    /// One was had, but it lacks these required features.
    Lacks(Features),
    /// One was had, and the kernel refused the handshake.
    Handshake(Errno),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute {
                inherited,
                device,
                call,
            } => {
                f.write_str("no userfaultfd: ")?;
                if let Some(error) = inherited {
                    write!(f, "inherited descriptor: {error}; ")?;
                }
                write!(f, "/dev/userfaultfd: {device}; userfaultfd(2): {call}")
            }
            Self::Lacks(features) => write!(f, "this kernel's userfaultfd lacks {features}"),
            Self::Handshake(error) => write!(f, "userfaultfd handshake: {error}"),
        }
    }
}

impl core::error::Error for OpenError {}

/// What to be told of in a range. At least one of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Touches of pages that are not there. Without it such faults stay with the kernel, and the range
    /// can still be the destination of moves.
    pub missing: bool,
    /// Writes to pages that were write-protected.
    pub write_protect: bool,
}

impl Mode {
    /// Missing faults only.
    #[must_use]
    pub const fn missing() -> Self {
        Self {
            missing: true,
            write_protect: false,
        }
    }

    /// Write-protect faults only: for the pager's own frames.
    #[must_use]
    pub const fn write_protect() -> Self {
        Self {
            missing: false,
            write_protect: true,
        }
    }

    /// Both kinds.
    #[must_use]
    pub const fn both() -> Self {
        Self {
            missing: true,
            write_protect: true,
        }
    }
}

impl Uffd {
    /// Opens a userfaultfd by the first route that works: inherited, device, call.
    ///
    /// The features are asked on a descriptor that is thrown away, for a handshake that names one
    /// unknown to the kernel fails as a whole and cannot be repeated.
    ///
    /// # Errors
    /// Every route's error, or what the kernel lacks.
    pub fn open(wanted: &Wanted) -> Result<Self, OpenError> {
        let route = find_route(wanted.inherited)?;
        let offered = route.features().map_err(OpenError::Handshake)?;
        let missing = wanted.required.minus(offered);
        if missing != Features::NONE {
            return Err(OpenError::Lacks(missing));
        }
        let features = wanted.required.plus(wanted.optional.common(offered));
        let fd = route.create(false).map_err(OpenError::Handshake)?;
        handshake(&fd, features).map_err(OpenError::Handshake)?;
        Ok(Self {
            fd,
            features,
            backlog: RefCell::new(Backlog::new()),
        })
    }

    /// The features that the handshake enabled.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.features
    }

    /// The descriptor: ready for reading (`POLLIN`) when messages wait.
    #[must_use]
    pub const fn fd(&self) -> i32 {
        self.fd.number()
    }

    /// Claims `len` bytes of private anonymous memory from `start` on (whole pages).
    ///
    /// # Errors
    /// Those of UFFDIO_REGISTER: `EBUSY` when another userfaultfd has the range, `EINVAL` when part of it
    /// is unmapped or of a kind that cannot be served, `ENOMEM` when too many mappings would arise.
    pub fn register(&self, start: usize, len: usize, mode: Mode) -> Result<(), Errno> {
        let missing = if mode.missing {
            abi::REGISTER_MODE_MISSING
        } else {
            0
        };
        let protect = if mode.write_protect {
            abi::REGISTER_MODE_WP
        } else {
            0
        };
        let range = abi::Range::new(start, len);
        let mut request = abi::Register {
            range,
            mode: missing | protect,
            ioctls: 0,
        };
        ioctl(&self.fd, abi::REGISTER, &mut request)
    }

    /// Gives a range back to the kernel; threads waiting for faults in it go on and fault anew.
    ///
    /// # Errors
    /// Those of UFFDIO_UNREGISTER.
    pub fn unregister(&self, start: usize, len: usize) -> Result<(), Errno> {
        ioctl(&self.fd, abi::UNREGISTER, &mut abi::Range::new(start, len))
    }

    /// Reads the messages that wait, for [`Self::next_change`] and [`Self::next_fault`]; it does not block. Whoever made a change
    /// goes on from then on.
    ///
    /// # Errors
    /// Those of read(2) except `EAGAIN`; `EINVAL` before the handshake never happens here.
    pub fn gather(&self) -> Result<(), Errno> {
        const BATCH: usize = 16;
        let mut messages = [Message::Other; BATCH];
        loop {
            let got = self.read_now(&mut messages)?;
            self.backlog.borrow_mut().put(&messages[..got]);
            if got < BATCH {
                return Ok(());
            }
        }
    }

    /// The next change of the address space that was read. A fault that was read with it may be answered only with the change in
    /// mind, so these come first.
    #[must_use]
    pub fn next_change(&self) -> Option<Message> {
        self.backlog.borrow_mut().next_change()
    }

    /// The next message that something in `start..end` was unmapped or moved away, out of turn.
    #[must_use]
    pub fn next_departure(&self, start: usize, end: usize) -> Option<Message> {
        self.backlog.borrow_mut().next_departure(start, end)
    }

    /// The next fault that was read.
    #[must_use]
    pub fn next_fault(&self) -> Option<Fault> {
        self.backlog.borrow_mut().next_fault()
    }

    fn read_now(&self, out: &mut [Message]) -> Result<usize, Errno> {
        /// 2 KiB of stack.
        const BATCH: usize = 64;
        let mut text = [0u8; BATCH * abi::MESSAGE_BYTES];
        let bytes = out.len().min(BATCH) * abi::MESSAGE_BYTES;
        let got = match fd::read(self.fd.number(), &mut text[..bytes]) {
            Err(Errno::EAGAIN) => 0,
            other => other?,
        };
        let messages = text[..got].as_chunks::<{ abi::MESSAGE_BYTES }>().0;
        for (place, message) in out.iter_mut().zip(messages) {
            *place = Message::decode(message);
        }
        Ok(messages.len())
    }

    /// After [`Stop::Again`]: a thread that changes the address space waits until that is read, and no call
    /// succeeds before. Reads what waits and lets that thread run.
    pub fn let_change_pass(&self) {
        // An error shows in the next call as well.
        let _ = self.gather();
        raw::yield_now();
    }

    /// Reads what waits, as [`Self::gather`] does, up to a message that `take` keeps.
    pub fn gather_but(&self, take: &mut dyn FnMut(Message) -> Option<Message>) {
        let mut message = [Message::Other];
        while let Ok(1) = self.read_now(&mut message) {
            let Some(left) = take(message[0]) else {
                return;
            };
            self.put_back(left);
        }
    }

    /// Has `message` given out like one that was read now.
    pub fn put_back(&self, message: Message) {
        self.backlog.borrow_mut().put(&[message]);
    }

    /// What is known to have happened to the mapping at `address` that [`Self::next_change`] did not give out yet.
    #[must_use]
    pub fn change_at(&self, address: usize) -> Option<Change> {
        self.backlog.borrow().change_at(address)
    }

    /// Whether what was at `address`, or where it had moved to, was thrown away by changes that [`Self::next_change`] did not give out yet.
    #[must_use]
    pub fn is_removed(&self, address: usize) -> bool {
        self.backlog.borrow().is_removed(address)
    }

    /// Whether something else was moved to `address` by a change that [`Self::next_change`] did not give out yet.
    #[must_use]
    pub fn is_moved_onto(&self, address: usize) -> bool {
        self.backlog.borrow().is_moved_onto(address)
    }

    /// Whether a change that [`Self::next_change`] did not give out yet concerns `address`: what was there went, or something was moved there.
    #[must_use]
    pub fn is_disturbed(&self, address: usize) -> bool {
        self.backlog.borrow().is_disturbed(address)
    }

    /// Where what was mapped at `address` lies after the changes that [`Self::next_change`] did not give out yet.
    #[must_use]
    pub fn moved_to(&self, address: usize) -> usize {
        self.backlog.borrow().moved_to(address)
    }

    /// Changes that were read and not given out yet.
    #[must_use]
    pub fn known_changes(&self) -> usize {
        self.backlog.borrow().changes()
    }

    /// Moves that were read so far.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.backlog.borrow().moves()
    }

    /// Whether a message was read that was not given out yet.
    #[must_use]
    pub fn has_read(&self) -> bool {
        !self.backlog.borrow().is_empty()
    }

    /// Whether every change that was read was given out.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.backlog.borrow().is_calm()
    }
}

impl Route {
    /// A new userfaultfd by this route, before the handshake; `user_only` serves no kernel faults.
    ///
    /// # Errors
    /// Those of open(2), ioctl(2) or userfaultfd(2).
    pub(crate) fn create(self, user_only: bool) -> Result<Fd, Errno> {
        let user_only = if user_only { abi::USER_MODE_ONLY } else { 0 };
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize | user_only;
        // SAFETY: takes numbers only.
        let new = |device: i32| unsafe {
            syscall3(libc::SYS_ioctl, device as usize, abi::DEVICE_NEW, flags)
        };
        let number = match self {
            Self::Inherited(device) => new(device),
            Self::Device => new(fd::open(c"/dev/userfaultfd", libc::O_RDWR)?.number()),
            // SAFETY: takes a number only.
            Self::Call => unsafe { syscall3(libc::SYS_userfaultfd, flags, 0, 0) },
        }?;
        Ok(Fd::adopt(number as i32))
    }

    /// The features that the kernel offers, asked on a descriptor of its own.
    ///
    /// # Errors
    /// Those of [`Self::create`] and of the handshake.
    pub(crate) fn features(self) -> Result<Features, Errno> {
        handshake(&self.create(false)?, Features::NONE)
    }
}

/// The first route that gives a descriptor.
fn find_route(inherited: Option<i32>) -> Result<Route, OpenError> {
    let attempt = |route: Route| route.create(false).map(|_| route).err();
    let from_inherited = match inherited.map(Route::Inherited) {
        Some(route) => match attempt(route) {
            None => return Ok(route),
            error => error,
        },
        None => None,
    };
    let Some(device) = attempt(Route::Device) else {
        return Ok(Route::Device);
    };
    let Some(call) = attempt(Route::Call) else {
        return Ok(Route::Call);
    };
    Err(OpenError::NoRoute {
        inherited: from_inherited,
        device,
        call,
    })
}

/// UFFDIO_API: enables `features`, returns all that the kernel offers.
fn handshake(fd: &Fd, features: Features) -> Result<Features, Errno> {
    let mut api = abi::Api {
        api: abi::API_VERSION,
        features: features.bits(),
        ioctls: 0,
    };
    ioctl(fd, abi::API, &mut api)?;
    Ok(Features::from_bits(api.features))
}

/// Makes an ioctl whose argument is a structure that the kernel reads and writes.
fn ioctl<T>(fd: &Fd, request: usize, argument: &mut T) -> Result<(), Errno> {
    ioctl_of(fd.number(), request, argument)
}

/// The same, of descriptor number `fd`.
fn ioctl_of<T>(fd: i32, request: usize, argument: &mut T) -> Result<(), Errno> {
    let at = core::ptr::from_mut(argument) as usize;
    // SAFETY: `abi` pairs every request with the structure of its size; what the request does to the
    // program's memory is covered by the crate's rule on addresses.
    unsafe { syscall3(libc::SYS_ioctl, fd as usize, request, at) }.map(drop)
}
