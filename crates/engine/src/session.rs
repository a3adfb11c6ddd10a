//! What the processes of one `outpage run` share: the limit, the swap file's extents, the counters.
//!
//! The session is a memfd that every process maps. Nothing in it needs a lock on the fault path:
//! frames are reserved by compare-and-swap, each process writes its own counters, extents have
//! holder bits. Joining, forking and burying take one lock, and all locks here are open file
//! description locks, which the kernel releases when their holder dies.
//!
//! Liveness: a member with a pager holds byte `i` of the memfd locked through a description that only its
//! pager thread has, so the lock is gone after exit, a signal, and exec, and does not pass through fork. A
//! member in direct mode holds nothing, for the program must not notice: its number and start, as the
//! session's /proc has them, say whether it lives.
//!
//! The memfd is reached through the environment ([`SessionPaths`]), as `/proc/PID/fd/N` of a keeper
//! process that outlives the launcher for as long as members live.
//!
//! Every process of the tree can write here, a program gone wrong included. So nothing that is read is
//! believed: what a process knows of itself it keeps a copy of, whatever is used as a place or a length is
//! checked, and what cannot be ([`Session::check`]) ends the process with a line.

use std::ffi::CStr;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use outpage_stats::Counts;
use outpage_stats::layout::{Bid, Board, FILE_NAME, Head, Ledger, MAGIC, Member, VERSION};
pub use outpage_stats::layout::{MEMBERS_MAX, State};
use outpage_sys::fd::{self, Fd};
use outpage_sys::libc;
use outpage_sys::proc;
use outpage_sys::raw::Errno;
use outpage_sys::shareable;
use outpage_sys::shared::{self, Mapped};

mod check;
mod direct;
mod extents;
mod key;
mod limit;
mod objects;
mod paths;
mod roster;
mod share;
mod word;

pub use extents::{EXTENT_BYTES, EXTENT_SLOTS, EXTENTS_MAX};
pub use key::HeldKey;
pub use paths::{Keeper, SessionPaths};
pub use share::{Claim, Worth};

/// Bytes of the memfd that are locked: member `i` has byte `i`; then these.
const LAUNCHER_BYTE: u64 = MEMBERS_MAX as u64;
const ROSTER_BYTE: u64 = LAUNCHER_BYTE + 1;

shareable! {
    /// The whole shared memory.
    struct Layout {
        board: Board,
        extents: extents::Extents,
    }
}

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
    /// This process changed its user, root directory, namespaces or Landlock rules: the session is out of its reach.
    Unreachable,
    /// The keeper is gone, and with it the way to the session.
    KeeperGone,
    /// The shared memory holds what no process of this version writes.
    Damaged(&'static str),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(what, errno) => write!(f, "cannot {what}: {}", errno.text()),
            Self::Foreign => write!(f, "the session belongs to another version of outpage"),
            Self::Full => write!(f, "more than {MEMBERS_MAX} processes under one limit"),
            Self::Expired => write!(f, "the parent's reservation for this child is gone"),
            Self::Unreachable => write!(
                f,
                "the session cannot be reached any more, after a change of user, root directory, namespace or Landlock rules"
            ),
            Self::KeeperGone => {
                write!(f, "the session's keeper was killed: start the program anew")
            }
            Self::Damaged(what) => write!(
                f,
                "the session is damaged ({what}): a process of the program wrote to its memory"
            ),
        }
    }
}

impl std::error::Error for SessionError {}

fn reopened(number: i32) -> Result<Fd, SessionError> {
    proc::reopen(number, libc::O_RDWR).map_err(os("open the session"))
}

fn os(what: &'static str) -> impl FnOnce(Errno) -> SessionError {
    move |errno| SessionError::Os(what, errno)
}

/// One process's view of the session.
///
/// In a forked child the view of the parent is unusable (its descriptor belongs to the parent's
/// pager): the child calls [`Session::abandon`] on it and opens its own.
pub struct Session {
    layout: Mapped<Layout>,
    locks: Fd,
    me: Option<MemberId>,
    /// What does not change, or only this process changes, as it knows it.
    own: Own,
}

/// A view's own copy of what is in the shared memory too.
#[derive(Default)]
struct Own {
    limit_pages: u64,
    extents_cap: u32,
    /// Of this process's entry.
    generation: u64,
    held_pages: AtomicU64,
    /// A bit for each extent that it holds.
    extents: extents::Held,
    /// The inode of its pid namespace, which /proc may not tell for ever.
    namespace: OnceLock<u64>,
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
        let file = shared::create(FILE_NAME, key::FILE_BYTES).map_err(os("create the session"))?;
        let mut session = Self::map(reopened(file.number())?)?;
        let head = session.head();
        head.version.store(VERSION, Relaxed);
        head.limit_pages.store(limit_pages, Relaxed);
        head.extents_cap
            .store((swap_cap / EXTENT_BYTES).min(EXTENTS_MAX as u64), Relaxed);
        head.magic.store(MAGIC, SeqCst);
        session.remember()?;
        Ok((session, file))
    }

    /// The session at `path`.
    ///
    /// # Errors
    /// [`SessionError::Os`]; [`SessionError::Foreign`]; [`SessionError::Damaged`].
    pub fn open(path: &CStr) -> Result<Self, SessionError> {
        // In another pid namespace the path may lead to anything, a device or a pipe: opening those
        // does something.
        let file = fd::open(path, libc::O_PATH).map_err(os("open the session"))?;
        if fd::is_regular(file.number()) != Ok(true) {
            return Err(SessionError::Foreign);
        }
        Self::from_fd(file.number())
    }

    /// The session behind descriptor `number`, through a description of its own.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn from_fd(number: i32) -> Result<Self, SessionError> {
        let mut session = Self::map(reopened(number)?)?;
        session.remember()?;
        Ok(session)
    }

    fn map(locks: Fd) -> Result<Self, SessionError> {
        // A mapping keeps its description, and so its locks, alive, also in forked children: the
        // description that holds the locks must not be the one that is mapped.
        let mapped = reopened(locks.number())?;
        let layout = match shared::map(mapped.number()) {
            Err(Errno::EINVAL) => return Err(SessionError::Foreign),
            layout => layout.map_err(os("map the session"))?,
        };
        Ok(Self {
            layout,
            locks,
            me: None,
            own: Own::default(),
        })
    }

    /// Forgets a view whose descriptor belongs to another process or table: nothing is closed.
    pub fn abandon(self) {
        let _ = self.locks.release();
    }

    fn head(&self) -> &Head {
        &self.board().head
    }

    fn board(&self) -> &Board {
        &self.layout.board
    }

    fn extents(&self) -> &extents::Extents {
        &self.layout.extents
    }

    fn member(&self, id: MemberId) -> &Member {
        &self.board().members[id.index()]
    }

    fn bid_of(&self, id: MemberId) -> &Bid {
        &self.board().bids[id.index()]
    }

    fn ledger(&self, id: MemberId) -> &Ledger {
        &self.board().ledgers[id.index()]
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
mod damage;
#[cfg(test)]
mod tests;
