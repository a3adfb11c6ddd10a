//! Choosing between the two ways to a swap file.

use std::fmt;
use std::io;

use crate::fitting::FittingStore;
use crate::{
    Config, PoolStore, Spawner, SwapFile, SwapStore, UringStore, WORKERS_DEFAULT, pool, uring,
};

/// A way to do I/O on a swap file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// [`UringStore`].
    Uring,
    /// [`PoolStore`].
    Pool,
}

/// Why a backend cannot be used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendError {
    /// Which one.
    pub backend: Backend,
    /// The system call that failed.
    pub call: &'static str,
    /// Its error number.
    pub errno: i32,
}

/// Which backends this process may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Whether io_uring is permitted and knows what is needed.
    pub uring: Result<(), BackendError>,
    /// Whether the pool's system calls are permitted. Its threads are not tried.
    pub pool: Result<(), BackendError>,
}

/// What to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// io_uring, or the pool where io_uring is not permitted, also in a forked child.
    #[default]
    Auto,
    /// This one or none.
    Only(Backend),
}

/// Tries both backends and leaves nothing behind.
#[must_use]
pub fn probe() -> Probe {
    Probe {
        uring: uring::probe(),
        pool: pool::probe(),
    }
}

/// Opens a store on `file`. `spawner` makes the pool's threads, if there is a pool.
///
/// # Errors
/// What the chosen backend met; for [`Choice::Auto`], what the pool met.
pub fn open(
    file: SwapFile,
    choice: Choice,
    config: Config,
    spawner: Box<dyn Spawner + Send>,
) -> Result<Box<dyn SwapStore + Send>, BackendError> {
    Ok(match choice {
        Choice::Auto => Box::new(FittingStore::new(file, config, spawner)?),
        Choice::Only(Backend::Uring) => Box::new(UringStore::new(file, config)?),
        Choice::Only(Backend::Pool) => {
            Box::new(PoolStore::new(file, config, WORKERS_DEFAULT, spawner)?)
        }
    })
}

impl BackendError {
    const fn remedy(&self) -> &'static str {
        match (self.backend, self.errno) {
            (Backend::Uring, libc::EPERM | libc::EACCES) => {
                "forbidden by seccomp (a container's default) or by kernel.io_uring_disabled; the \
                 thread pool does without it"
            }
            (Backend::Uring, libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => {
                "this kernel lacks it or is older than 5.6; the thread pool does without it"
            }
            (Backend::Uring, libc::ENOMEM) => {
                "its memory counts as locked: raise ulimit -l, or use the thread pool"
            }
            (_, libc::EMFILE | libc::ENFILE) => "too many open files: raise ulimit -n",
            (Backend::Pool, libc::EAGAIN) => "too many threads: raise ulimit -u or the pids limit",
            (Backend::Uring, _) => "the thread pool does without it",
            (Backend::Pool, _) => "see the manual page of the call",
        }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = match self.backend {
            Backend::Uring => "io_uring",
            Backend::Pool => "the I/O thread pool",
        };
        let error = io::Error::from_raw_os_error(self.errno);
        write!(
            f,
            "{backend} cannot be used: {} failed: {error}; {}",
            self.call,
            self.remedy()
        )
    }
}

impl std::error::Error for BackendError {}
