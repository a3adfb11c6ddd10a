//! A callback before pages leave.

use std::fmt;
use std::mem;
use std::ops::Range;
use std::thread::{self, JoinHandle};

use outpage_engine::scope::{Ear, Leaving};
use outpage_sys::process;

use crate::error::Error;

/// Has a function called before pages leave RAM, until it is dropped ([`crate::Memory::watch`]).
///
/// ```no_run
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// let pager = outpage::Pager::new(64 << 20)?;
/// let mut table = pager.zeros::<u64>(1 << 26)?; // 512 MiB
/// let leaving = Arc::new(AtomicUsize::new(0));
/// let counter = leaving.clone();
/// let watch = table.watch(move |bytes| {
///     counter.fetch_add(bytes.len(), Relaxed);
/// })?;
/// table.fill(1);
/// drop(watch); // no call after this
/// println!("{} bytes were about to leave", leaving.load(Relaxed));
/// # Ok::<(), outpage::Error>(())
/// ```
pub struct Watch {
    ear: Ear,
    thread: Option<JoinHandle<()>>,
    /// The process that the thread is of.
    pid: u32,
}

impl Watch {
    pub(crate) fn new(
        mut leaving: Leaving,
        start: usize,
        mut each: impl FnMut(Range<usize>) + Send + 'static,
    ) -> Result<Self, Error> {
        let ear = leaving.ear();
        let listen = move || {
            outpage_sys::thread::leave_signals_to_others();
            while leaving.wait(|at| each(at.start - start..at.end - start)) {}
        };
        let builder = thread::Builder::new().name("outpage-watch".into());
        let thread = builder.spawn(listen).map_err(Error::Io)?;
        Ok(Self {
            ear,
            thread: Some(thread),
            pid: process::pid(),
        })
    }
}

impl Drop for Watch {
    /// Waits until a call that is under way has returned, but for one that drops it itself.
    fn drop(&mut self) {
        if process::pid() != self.pid {
            // The parent's thread listens on, and a forked child has none to wait for.
            return mem::forget(self.thread.take());
        }
        self.ear.close();
        let other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(other) {
            // A call that panicked ended the watch, and said so.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
