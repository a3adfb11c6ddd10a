//! What can go wrong.

use std::fmt;
use std::io;

use outpage_engine::StartError;
use outpage_engine::scope::{self, Failure, ScopeError};
use outpage_sys::raw::Errno;

/// Why something was not done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting that there is not, or that has no such value: what would be right.
    Setting(String),
    /// This process gets no userfaultfd, or one that lacks what is needed: the remedy.
    Userfaultfd(String),
    /// The swap file, its I/O or its key cannot be had: why.
    Swap(String),
    /// The process is managed as a whole by a pager of this very library.
    Taken,
    /// Something outside of the region, or not at a whole page where it has to be.
    Bounds,
    /// More would be pinned than may be: half of the limit for all regions of a pager.
    Pinned,
    /// This many of the pages are lost: their bytes cannot be had.
    Lost(usize),
    /// The pager has ended.
    Ended(Ended),
    /// The caller is a forked child, which has no part of its parent's pagers.
    Forked,
    /// A file could not be read.
    Io(io::Error),
    /// The operating system refused something: what, and its error number (`errno`).
    Os(&'static str, i32),
}

/// A pager that ended by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Why.
    pub reason: Reason,
    /// The same in words.
    pub text: String,
    /// Pages of all its regions whose bytes could not be had.
    pub pages_lost: usize,
}

/// Why a pager ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The swap file is full, or nothing can be written to it any more.
    SwapFull,
    /// Every page within the limit is pinned.
    NothingCanLeave,
    /// The kernel has no memory for the limit.
    NoMemory,
    /// The kernel refused something that has to be possible.
    Os,
    /// The contents of a page cannot be told.
    Page,
    /// The pager's own shared memory is damaged.
    Damaged,
}

impl Error {
    /// Of a call on regions, which was to do `what`.
    pub(crate) fn of(what: &'static str) -> impl FnOnce(ScopeError) -> Self {
        move |error| match error {
            ScopeError::Ended(ended) => Self::Ended(ended.into()),
            ScopeError::Os(Errno::ECHILD) => Self::Forked,
            ScopeError::Os(error) => Self::Os(what, error.number()),
        }
    }

    pub(crate) fn os(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |error| Self::Os(what, error.number())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(text) | Self::Userfaultfd(text) | Self::Swap(text) => f.write_str(text),
            Self::Taken => f.write_str("the memory of this process is managed already"),
            Self::Bounds => f.write_str("outside of the region, or not of whole pages"),
            Self::Pinned => f.write_str("more than half of the limit would be pinned"),
            Self::Lost(pages) => write!(f, "the bytes of {pages} pages are lost"),
            Self::Ended(ended) => ended.fmt(f),
            Self::Forked => f.write_str("a forked child has no part of its parent's pagers"),
            Self::Io(error) => error.fmt(f),
            Self::Os(what, number) => {
                write!(
                    f,
                    "cannot {what}: {}",
                    io::Error::from_raw_os_error(*number)
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text, pages_lost, ..
        } = self;
        write!(f, "paging has ended: {text}; {pages_lost} pages are lost")
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Taken => Self::Taken,
            StartError::Config(error) => Self::Setting(error.to_string()),
            StartError::Uffd(_) => Self::Userfaultfd(error.to_string()),
            StartError::Os(what, error) => Self::Os(what, error.number()),
            other => Self::Swap(other.to_string()),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<scope::Ended> for Ended {
    fn from(ended: scope::Ended) -> Self {
        let reason = match ended.failure {
            Failure::SwapFull => Reason::SwapFull,
            Failure::NoVictims => Reason::NothingCanLeave,
            Failure::NoMemory(_) => Reason::NoMemory,
            Failure::Page(..) => Reason::Page,
            Failure::Session(_) => Reason::Damaged,
            _ => Reason::Os,
        };
        Self {
            reason,
            text: ended.failure.to_string(),
            pages_lost: ended.pages_lost,
        }
    }
}
