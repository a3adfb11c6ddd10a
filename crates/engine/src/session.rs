//! What the processes of one `outpage run` share: the limit, the swap file's extents, the counters.
//!
//! The session is a memfd that every process maps. Nothing in it needs a lock on the fault path:
//! frames are reserved by compare-and-swap, each process writes its own counters, extents have
//! holder bits. Joining, forking and burying take one lock, and all locks here are open file
//! description locks, which the kernel releases when their holder dies.
//!
//! Liveness: a member holds byte `i` of the memfd locked through a description that only its pager
//! thread has, so the lock is gone after exit, a signal, and exec, and does not pass through fork.
//!
//! The memfd is reached through the environment ([`SessionPaths`]), as `/proc/PID/fd/N` of a keeper
//! process that outlives the launcher for as long as members live.

use std::ffi::{CStr, CString, OsString};
use std::fmt;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use outpage_sys::fd::{self, Fd};
use outpage_sys::libc;
use outpage_sys::raw::Errno;
use outpage_sys::shared;

mod counters;
mod extents;
mod latency;
mod layout;
mod limit;
mod liveness;
mod objects;
mod roster;
mod share;
mod word;

pub use counters::{Counter, Counters, Counts, Kind, WRITE_SIZES};
pub use extents::{EXTENT_BYTES, EXTENT_SLOTS, EXTENTS_MAX};
pub use latency::{Histogram, Latencies, Latency, Waits};
pub use layout::State;
use layout::{Layout, Ledger, MAGIC, Member, VERSION};
pub use objects::{ObjectUse, ObjectUses};

/// Most processes with a pager at once.
pub const MEMBERS_MAX: usize = 512;

/// Bytes of the memfd that are locked: member `i` has byte `i`; then these.
const LAUNCHER_BYTE: u64 = MEMBERS_MAX as u64;
const ROSTER_BYTE: u64 = LAUNCHER_BYTE + 1;

/// A process of the session: an index into its table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(u16);

/// An entry that waits for a child to be forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    id: MemberId,
    generation: u64,
}

impl MemberId {
    /// The index, below [`MEMBERS_MAX`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..MEMBERS_MAX as u16).map(Self)
    }
}

/// Why there is no session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionError {
    /// The kernel refused.
    Os(&'static str, Errno),
    /// The file is no session, or one of another version of Outpage.
    Foreign,
    /// [`MEMBERS_MAX`] processes have joined already.
    Full,
    /// The entry reserved for this forked child is somebody else's by now.
    Expired,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(what, errno) => write!(f, "cannot {what}: {}", errno.text()),
            Self::Foreign => write!(f, "the session belongs to another version of outpage"),
            Self::Full => write!(f, "more than {MEMBERS_MAX} processes under one limit"),
            Self::Expired => write!(f, "the parent's reservation for this child is gone"),
        }
    }
}

impl std::error::Error for SessionError {}

fn reopened(number: i32) -> Result<Fd, SessionError> {
    fd::reopen(number, libc::O_RDWR).map_err(os("open the session"))
}

fn os(what: &'static str) -> impl FnOnce(Errno) -> SessionError {
    move |errno| SessionError::Os(what, errno)
}

/// Where a process finds its session: paths and numbers that travel in the environment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionPaths {
    /// Path of the session's memfd: `OUTPAGE_SESSION`.
    pub session: Option<CString>,
    /// Path of the swap file: `OUTPAGE_SWAP_FD`.
    pub swap: Option<CString>,
    /// Number of an inherited `/dev/userfaultfd` descriptor: `OUTPAGE_UFFD_DEV`.
    pub uffd_device: Option<i32>,
}

impl SessionPaths {
    /// The variables.
    #[must_use]
    pub fn to_env(&self) -> Vec<(&'static str, OsString)> {
        use std::os::unix::ffi::OsStringExt;
        let text = |path: &CString| OsString::from_vec(path.as_bytes().to_vec());
        let session = self.session.as_ref().map(|p| ("OUTPAGE_SESSION", text(p)));
        let swap = self.swap.as_ref().map(|p| ("OUTPAGE_SWAP_FD", text(p)));
        let device = self
            .uffd_device
            .map(|n| ("OUTPAGE_UFFD_DEV", n.to_string().into()));
        [session, swap, device].into_iter().flatten().collect()
    }

    /// Reads the variables; what is absent or unusable is `None`.
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Self {
        use std::os::unix::ffi::OsStringExt;
        let path = |name| {
            var(name)
                .filter(|v| !v.is_empty())
                .and_then(|v| CString::new(v.into_vec()).ok())
        };
        Self {
            session: path("OUTPAGE_SESSION"),
            swap: path("OUTPAGE_SWAP_FD"),
            uffd_device: var("OUTPAGE_UFFD_DEV").and_then(|v| v.to_str()?.parse().ok()),
        }
    }
}

/// One process's view of the session.
///
/// In a forked child the view of the parent is unusable (its descriptor belongs to the parent's
/// pager): the child calls [`Session::abandon`] on it and opens its own.
pub struct Session {
    layout: &'static Layout,
    locks: Fd,
    me: Option<MemberId>,
}

/// What can be seen of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberView {
    /// Which.
    pub id: MemberId,
    /// Its state.
    pub state: State,
    /// Its process id, 0 while unknown.
    pub pid: u32,
    /// Frames it holds, in pages.
    pub held_pages: u64,
    /// Its counters.
    pub counts: Counts,
}

impl Session {
    /// A new session of `limit_pages` pages of RAM and a swap file of at most `swap_cap` bytes.
    ///
    /// Also returns the memfd, to be handed to the keeper; this view has a description of its own.
    ///
    /// # Errors
    /// [`SessionError::Os`].
    pub fn create(limit_pages: u64, swap_cap: u64) -> Result<(Self, Fd), SessionError> {
        let file = shared::create(c"outpage-session", size_of::<Layout>() as u64)
            .map_err(os("create the session"))?;
        let session = Self::map(reopened(file.number())?)?;
        let layout = session.layout();
        layout.version.store(VERSION, Relaxed);
        layout.limit_pages.store(limit_pages, Relaxed);
        layout
            .extents_cap
            .store((swap_cap / EXTENT_BYTES).min(EXTENTS_MAX as u64), Relaxed);
        layout.magic.store(MAGIC, SeqCst);
        Ok((session, file))
    }

    /// The session at `path`.
    ///
    /// # Errors
    /// [`SessionError::Os`]; [`SessionError::Foreign`].
    pub fn open(path: &CStr) -> Result<Self, SessionError> {
        Self::map(fd::open(path, libc::O_RDWR).map_err(os("open the session"))?)?.checked()
    }

    /// The session behind descriptor `number`, through a description of its own.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn from_fd(number: i32) -> Result<Self, SessionError> {
        Self::map(reopened(number)?)?.checked()
    }

    fn map(locks: Fd) -> Result<Self, SessionError> {
        // A mapping keeps its description, and so its locks, alive, also in forked children: the
        // description that holds the locks must not be the one that is mapped.
        let mapped = reopened(locks.number())?;
        let layout = shared::map(mapped.number()).map_err(os("map the session"))?;
        Ok(Self {
            layout,
            locks,
            me: None,
        })
    }

    fn checked(self) -> Result<Self, SessionError> {
        let layout = self.layout();
        let known = layout.magic.load(SeqCst) == MAGIC && layout.version.load(Relaxed) == VERSION;
        if known {
            Ok(self)
        } else {
            Err(SessionError::Foreign)
        }
    }

    /// Forgets a view whose descriptor belongs to another process or table: nothing is closed.
    pub fn abandon(self) {
        let _ = self.locks.release();
    }

    fn layout(&self) -> &'static Layout {
        self.layout
    }

    fn member(&self, id: MemberId) -> &Member {
        &self.layout().members[id.index()]
    }

    fn ledger(&self, id: MemberId) -> &Ledger {
        &self.layout().ledgers[id.index()]
    }

    /// The number of the descriptor that holds this view's locks.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.locks.number()
    }

    /// The member that this view joined as.
    #[must_use]
    pub fn me(&self) -> Option<MemberId> {
        self.me
    }

    fn joined(&self) -> MemberId {
        self.me.expect("the process joined the session")
    }
}

#[cfg(test)]
mod tests;
