//! The calls that resolve faults. Each says how far it came and why it stopped.

use outpage_core::units::PAGE_BYTES;

use super::{Uffd, abi, ioctl, ioctl_of};
use crate::raw::Errno;

/// How far a call came.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Bytes done, from the start on: all of them unless `stop` says otherwise.
    pub bytes: usize,
    /// Why it stopped before the end.
    pub stop: Option<Stop>,
}

/// Why a call stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// `EAGAIN`: the layout of the address space is changing, or the call stopped half-way without
    /// telling why. Go on behind the bytes done: the next call tells, if it does not succeed.
    Again,
    /// `EEXIST`: a page is there already. Nobody was woken.
    Exists,
    /// `EBUSY`: the page is pinned or shared with another process.
    Busy,
    /// `ENOENT`: the source page is not there (move), or the range is not registered any more.
    NoSource,
    /// `EINVAL`: unmapped, unregistered, or parts that cannot be served by one call.
    BadRange,
    /// `ESRCH`: the address space is going away.
    Gone,
    /// `ENOMEM`, or `ENOSPC`, which older kernels say.
    NoMemory,
    /// Any other error.
    Other(Errno),
}

impl Stop {
    pub(super) const fn from_errno(error: Errno) -> Self {
        match error {
            Errno::EAGAIN => Self::Again,
            Errno::EEXIST => Self::Exists,
            Errno::EBUSY => Self::Busy,
            Errno::ENOENT => Self::NoSource,
            Errno::EINVAL => Self::BadRange,
            Errno::ESRCH => Self::Gone,
            Errno::ENOMEM | Errno::ENOSPC => Self::NoMemory,
            other => Self::Other(other),
        }
    }

    /// The error number behind it.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Again => Errno::EAGAIN,
            Self::Exists => Errno::EEXIST,
            Self::Busy => Errno::EBUSY,
            Self::NoSource => Errno::ENOENT,
            Self::BadRange => Errno::EINVAL,
            Self::Gone => Errno::ESRCH,
            Self::NoMemory => Errno::ENOMEM,
            Self::Other(error) => error,
        }
    }
}

/// How to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyMode {
    /// Leave the pages write-protected.
    pub write_protect: bool,
    /// Leave the waiting threads asleep.
    pub dont_wake: bool,
}

/// How to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MoveMode {
    /// Leave the waiting threads asleep.
    pub dont_wake: bool,
    /// Pass over source pages that are not there, and count them as moved.
    pub allow_source_holes: bool,
}

impl Uffd {
    /// Gives missing pages at `dst` a frame each with a copy of `len` bytes at `src` (UFFDIO_COPY).
    ///
    /// `Exists` for a page that is there; the source must be resident, or the call may say `Again`.
    pub fn copy(&self, dst: usize, src: usize, len: usize, how: CopyMode) -> Outcome {
        let protect = if how.write_protect {
            abi::COPY_MODE_WP
        } else {
            0
        };
        self.transfer(abi::COPY, dst, src, len, protect | dont_wake(how.dont_wake))
    }

    /// Moves the frames of `len` bytes from `src` to the missing pages at `dst` (UFFDIO_MOVE, 6.8).
    ///
    /// One call, as the kernel answers it; [`Uffd::move_run`] copes with the answers. `dst` must be
    /// registered here; both sides private anonymous, of equal protection, and each within one mapping.
    pub fn move_pages(&self, dst: usize, src: usize, len: usize, how: MoveMode) -> Outcome {
        let holes = if how.allow_source_holes {
            abi::MOVE_MODE_ALLOW_SRC_HOLES
        } else {
            0
        };
        self.transfer(abi::MOVE, dst, src, len, holes | dont_wake(how.dont_wake))
    }

    fn transfer(&self, request: usize, dst: usize, src: usize, len: usize, mode: u64) -> Outcome {
        let (dst, src) = (dst as u64, src as u64);
        let mut transfer = abi::Transfer {
            dst,
            src,
            len: len as u64,
            mode,
            done: 0,
        };
        let result = ioctl(&self.fd, request, &mut transfer);
        outcome(result, transfer.done, len)
    }

    /// Maps the zero page at the missing pages of a range (UFFDIO_ZEROPAGE) and wakes who waits. A later
    /// write takes a frame without telling anybody.
    pub fn zeropage(&self, start: usize, len: usize) -> Outcome {
        self.fill(abi::ZEROPAGE, start, len)
    }

    /// Marks missing pages of a range so that touching them is a SIGBUS (UFFDIO_POISON, 6.6), and wakes
    /// who waits.
    pub fn poison(&self, start: usize, len: usize) -> Outcome {
        self.fill(abi::POISON, start, len)
    }

    fn fill(&self, request: usize, start: usize, len: usize) -> Outcome {
        fill(self.descriptor(), request, start, len)
    }

    /// Whether a thread is changing the address space and has not been heard yet, or has not gone on yet. `page` is
    /// any page of private anonymous memory. See [`is_changing`].
    #[must_use]
    pub fn is_changing(&self, page: usize) -> bool {
        is_changing(self.descriptor(), page)
    }

    /// The number of its descriptor, for [`is_changing`].
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.fd.number()
    }

    /// Whether `page` lies in private anonymous memory that is registered. By the same question, which there is invalid and elsewhere
    /// finds nothing; older kernels always say yes. `None` while a thread is [changing](Self::is_changing) the address space.
    #[must_use]
    pub fn is_registered(&self, page: usize) -> Option<bool> {
        match self.fill(abi::CONTINUE, page, PAGE_BYTES).stop {
            Some(Stop::Again) => None,
            stop => Some(stop != Some(Stop::NoSource)),
        }
    }

    /// Whether `page` may be registered, as far as kernels can tell: those before Linux 5.13 say no. A change hides it, too.
    #[must_use]
    pub fn may_have_registered(&self, page: usize) -> bool {
        /// The last page of 47-bit addresses (`TASK_SIZE_MAX` in arch/x86/include/asm/page_64_types.h): the end of the main thread's stack, if
        /// anything, which is never registered.
        const NOWHERE: usize = (1 << 47) - 2 * PAGE_BYTES;
        self.is_registered(NOWHERE) != Some(true) && self.is_registered(page) != Some(false)
    }

    /// Write-protects the pages of a range, or takes the protection off (UFFDIO_WRITEPROTECT).
    ///
    /// Protecting passes over pages that are not there, unless `WP_UNPOPULATED` is enabled. Taking it
    /// off wakes who waits. All or nothing, as far as the kernel tells.
    pub fn write_protect(&self, start: usize, len: usize, on: bool) -> Outcome {
        protect(self.descriptor(), start, len, on)
    }

    /// Wakes the threads that wait for faults in a range; those whose page is still missing fault anew.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not whole pages.
    pub fn wake(&self, start: usize, len: usize) -> Result<(), Errno> {
        wake(self.descriptor(), start, len)
    }
}

/// As [`Uffd::wake`], of descriptor number `descriptor`.
///
/// # Errors
/// As there.
pub fn wake(descriptor: i32, start: usize, len: usize) -> Result<(), Errno> {
    ioctl_of(descriptor, abi::WAKE, &mut abi::Range::new(start, len))
}

const fn dont_wake(yes: bool) -> u64 {
    if yes { abi::DONTWAKE } else { 0 }
}

/// Reads the answer of a call that counts: `done` holds bytes, or an error when there are none.
/// A count short of `len` comes with `EAGAIN` whatever the cause was.
/// Whether a thread is changing the address space that the userfaultfd of number `descriptor` watches, as [`Uffd::is_changing`] says,
/// for a thread that does not have the `Uffd`.
///
/// Asks for what that memory does not have (UFFDIO_CONTINUE, Linux 5.13), which the kernel refuses by `EAGAIN`
/// meanwhile and otherwise by another error. Older kernels always say no.
#[must_use]
pub fn is_changing(descriptor: i32, page: usize) -> bool {
    fill(descriptor, abi::CONTINUE, page, PAGE_BYTES).stop == Some(Stop::Again)
}

/// As [`Uffd::write_protect`].
pub(super) fn protect(descriptor: i32, start: usize, len: usize, on: bool) -> Outcome {
    let mode = if on { abi::WRITEPROTECT_MODE_WP } else { 0 };
    let mut request = abi::WriteProtect {
        range: abi::Range::new(start, len),
        mode,
    };
    let result = ioctl_of(descriptor, abi::WRITEPROTECT, &mut request);
    outcome(result, 0, len)
}

pub(super) fn fill(descriptor: i32, request: usize, start: usize, len: usize) -> Outcome {
    let mut fill = abi::Fill {
        range: abi::Range::new(start, len),
        mode: 0,
        done: 0,
    };
    let result = ioctl_of(descriptor, request, &mut fill);
    outcome(result, fill.done, len)
}

fn outcome(result: Result<(), Errno>, done: i64, len: usize) -> Outcome {
    match result {
        Ok(()) => Outcome {
            bytes: len,
            stop: None,
        },
        Err(error) => {
            let bytes = (done.max(0) as usize).min(len);
            let stop = if bytes == len {
                None
            } else {
                Some(Stop::from_errno(error))
            };
            Outcome { bytes, stop }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_errors_are_told_apart() {
        let partial = |bytes, stop| Outcome {
            bytes,
            stop: Some(stop),
        };
        assert_eq!(
            outcome(Ok(()), 8192, 8192),
            Outcome {
                bytes: 8192,
                stop: None
            }
        );
        let again = Err(Errno::EAGAIN);
        assert_eq!(outcome(again, 4096, 8192), partial(4096, Stop::Again));
        assert_eq!(
            outcome(again, 8192, 8192),
            Outcome {
                bytes: 8192,
                stop: None
            }
        );
        assert_eq!(outcome(again, -11, 8192), partial(0, Stop::Again));
        assert_eq!(
            outcome(Err(Errno::EEXIST), -17, 4096),
            partial(0, Stop::Exists)
        );
        assert_eq!(
            outcome(Err(Errno::EINVAL), 0, 4096),
            partial(0, Stop::BadRange)
        );
    }

    #[test]
    fn reasons_keep_their_number() {
        for number in 1..134 {
            let error = Errno::new(number);
            let kept = Stop::from_errno(error).errno();
            assert!(
                kept == error || (error == Errno::ENOSPC && kept == Errno::ENOMEM),
                "{error}"
            );
        }
    }
}
