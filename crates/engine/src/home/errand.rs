//! What a process asks the home about a file of its own, by a connection for this alone: whoever asks need have no pager.

use std::ffi::CStr;

use outpage_sys::raw::Errno;

use super::wire::{self, NoAnswer, Request};

/// What is asked of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errand {
    /// To keep it, if it can be kept: its number is told ([`outpage_sys::ram_file::id`]).
    Keep,
    /// To give it up: from then on all of it is in RAM, and a descriptor reads what it has. 1, or 0 where this home does not keep it.
    GiveUp,
    /// That bytes `start..end` of it, whole pages, be zero.
    Hole {
        /// First byte.
        start: u64,
        /// First byte after it.
        end: u64,
    },
}

/// Asks the home that listens by `home` about the file behind `fd`. Waits for I/O where pages have to be brought in.
///
/// # Errors
/// `EOPNOTSUPP` for a file that cannot be kept, `ENOENT` for a hole in one that is not, `EIO` where some of it is lost, `EPIPE` where the home has ended, and
/// those of connect(2).
pub fn ask(home: &CStr, errand: Errand, fd: i32) -> Result<u64, Errno> {
    let request = match errand {
        Errand::Keep => Request::Adopt,
        Errand::GiveUp => Request::GiveUp,
        Errand::Hole { start, end } => Request::Hole { start, end },
    };
    let socket = wire::reach(home)?;
    match wire::ask(socket.number(), request, Some(fd)) {
        Ok((value, _)) => Ok(value),
        Err(NoAnswer::Refused(error)) => Err(error),
        Err(NoAnswer::Gone(_)) => Err(Errno::EPIPE),
    }
}
