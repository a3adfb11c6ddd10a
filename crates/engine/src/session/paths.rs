//! How a process finds its session, and why it cannot.

use std::ffi::{CString, OsString};
use std::fmt;

use outpage_stats::liveness::{self, Identity, Seen};
use outpage_sys::raw::Errno;

use super::{Session, SessionError};

/// The process that keeps a session's descriptors open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keeper {
    /// Its number in the session's /proc.
    pub pid: u32,
    /// Its start there, in clock ticks from the machine's.
    pub started: u64,
    /// The inode of its pid namespace; 0 where that is not known.
    pub namespace: u64,
}

impl fmt::Display for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.started, self.namespace)
    }
}

impl Keeper {
    /// Process `pid` of the caller's pid namespace; `None` where /proc does not show it by that number.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let Seen::Running(Identity { pid, started }) = liveness::look(pid) else {
            return None;
        };
        let namespace = liveness::pid_namespace();
        liveness::proc_is_own().then_some(Self {
            pid,
            started,
            namespace,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            pid: words.next()?.parse().ok()?,
            started: words.next()?.parse().ok()?,
            namespace: words.next()?.parse().ok()?,
        })
    }

    fn identity(self) -> Identity {
        Identity {
            pid: self.pid,
            started: self.started,
        }
    }

    /// Whether the caller's /proc is the one in which this process is the keeper.
    pub(super) fn is_seen(self) -> bool {
        liveness::look(self.pid) == Seen::Running(self.identity())
    }

    /// Why a session of this keeper could not be opened with `error`.
    fn reason(self, error: SessionError) -> SessionError {
        match liveness::look(self.pid) {
            Seen::Running(found) if found == self.identity() => error,
            Seen::Ended(found) if found == self.identity() => SessionError::KeeperGone,
            // In the keeper's own pid namespace its number tells, /proc or not.
            _ if liveness::pid_namespace() != self.namespace || liveness::exists(self.pid) => {
                SessionError::Unreachable
            }
            _ => SessionError::KeeperGone,
        }
    }
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
    /// Whose descriptors the paths name: `OUTPAGE_KEEPER`.
    pub keeper: Option<Keeper>,
    /// The name by which the home of the run's shared memory listens, where it has one: `OUTPAGE_HOME`.
    pub home: Option<CString>,
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
        let keeper = self
            .keeper
            .map(|k| ("OUTPAGE_KEEPER", k.to_string().into()));
        let home = self.home.as_ref().map(|name| ("OUTPAGE_HOME", text(name)));
        let all = [session, swap, device, keeper, home];
        all.into_iter().flatten().collect()
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
            keeper: var("OUTPAGE_KEEPER").and_then(|v| Keeper::parse(v.to_str()?)),
            home: path("OUTPAGE_HOME"),
        }
    }

    /// The session that these paths name.
    ///
    /// # Errors
    /// [`SessionError::Unreachable`] and [`SessionError::KeeperGone`] where it is known why the session
    /// cannot be opened; else those of [`Session::open`].
    ///
    /// # Panics
    /// When they name none.
    pub fn open(&self) -> Result<Session, SessionError> {
        let path = self.session.as_ref().expect("a session in the paths");
        Session::open(path).map_err(|error| self.reason(error))
    }

    /// Why the session could not be opened, where more is known than `error`.
    fn reason(&self, error: SessionError) -> SessionError {
        match (error, self.keeper) {
            (SessionError::Os(_, Errno::EACCES | Errno::EPERM), _) => SessionError::Unreachable,
            (
                SessionError::Foreign | SessionError::Os(_, Errno::ENOENT | Errno::ESRCH),
                Some(keeper),
            ) => keeper.reason(error),
            _ => error,
        }
    }
}
