//! What can go wrong.

use std::fmt;

use outpage_sys::raw::Errno;
use outpage_sys::uffd::OpenError;
use outpage_wire::{Malformed, Refusal};

/// Why something was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server cannot be reached at its socket.
    Connect(Errno),
    /// The connection has ended: the server is gone, or does not serve this process any more. Objects are lost, and a touch of them is SIGBUS.
    Gone,
    /// The server refused it.
    Refused(Refusal),
    /// What the server said is no answer.
    Malformed(Malformed),
    /// This process gets no userfaultfd that the server could use.
    Uffd(OpenError),
    /// Another call of the kernel failed.
    Os(&'static str, Errno),
    /// Pages that are outside of the object, or a size of 0.
    Bounds,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot reach the server: {error}; is `outpage serve` running, and as this user?"),
            Self::Gone => f.write_str("the server is gone, or does not serve this process any more; its memory objects are lost"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Uffd(error) => write!(f, "{error}; `outpage doctor` tells the remedy"),
            Self::Os(what, error) => write!(f, "cannot {what}: {error}"),
            Self::Bounds => f.write_str("pages outside of the memory object, or none"),
        }
    }
}

impl std::error::Error for Error {}

pub(crate) fn os(what: &'static str) -> impl FnOnce(Errno) -> Error {
    move |error| Error::Os(what, error)
}
