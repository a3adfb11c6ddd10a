//! The thread that sees the end of the connection.
//!
//! A touch of a page that nobody brings would wait for ever, and once the userfaultfd is closed it would find zeroes. So the objects are replaced first, by a file that has
//! no pages, and those who wait are woken then: their touch is SIGBUS.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use outpage_sys::fd::{self, Fd, PollFd};
use outpage_sys::map;
use outpage_sys::raw::Errno;
use outpage_sys::shared;
use outpage_sys::socket;
use outpage_sys::uffd::Uffd;

/// The other end has shut down (poll(2), include/uapi/asm-generic/poll.h).
const HANGS_UP: i16 = 0x2000;

/// What the thread and the callers of the library share.
pub struct Watched {
    /// The connection.
    pub socket: Fd,
    /// Where faults go. Kept open: the end of the server does not end the registration.
    uffd: Fd,
    gone: AtomicBool,
    spans: Mutex<Vec<(usize, usize)>>,
    /// A file without pages.
    empty: Fd,
}

impl Watched {
    /// Of a connection, whose faults go to `uffd`.
    pub fn new(socket: Fd, uffd: &Uffd) -> Result<Self, Errno> {
        Ok(Self {
            socket,
            uffd: fd::copy(uffd.fd())?,
            gone: AtomicBool::new(false),
            spans: Mutex::new(Vec::new()),
            empty: shared::create(c"outpage-lost", 0)?,
        })
    }

    /// Whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// `bytes` bytes from `start` on are an object. False if the connection has ended: they are lost then.
    pub fn add(&self, start: usize, bytes: usize) -> bool {
        self.spans().push((start, bytes));
        if self.is_gone() {
            self.lose(start, bytes);
        }
        !self.is_gone()
    }

    /// They are none any more.
    pub fn remove(&self, start: usize) {
        self.spans().retain(|span| span.0 != start);
    }

    fn spans(&self) -> std::sync::MutexGuard<'_, Vec<(usize, usize)>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, start: usize, bytes: usize) {
        let (prot, flags) = (
            libc_prot(),
            outpage_sys::libc::MAP_SHARED | outpage_sys::libc::MAP_FIXED,
        );
        if map::mmap(start, bytes, prot, flags, self.empty.number(), 0).is_err() {
            // Out of mappings: no access is as clear, by another signal.
            let _ = map::mprotect(start, bytes, outpage_sys::libc::PROT_NONE);
        }
        let _ = outpage_sys::uffd::wake(self.uffd.number(), start, bytes);
    }

    fn watch(&self) {
        let mut wait = [PollFd {
            fd: self.socket.number(),
            events: HANGS_UP,
            revents: 0,
        }];
        while !matches!(fd::poll(&mut wait, None), Ok(1..)) {}
        // Spans that come after this are lost by whoever brings them.
        self.gone.store(true, Ordering::Release);
        for &(start, bytes) in self.spans().iter() {
            self.lose(start, bytes);
        }
    }
}

const fn libc_prot() -> i32 {
    outpage_sys::libc::PROT_READ | outpage_sys::libc::PROT_WRITE
}

/// The thread; it ends with this value, and the connection with it.
pub struct Watcher {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts it.
    pub fn start(watched: Arc<Watched>) -> std::io::Result<Self> {
        let own = watched.clone();
        let named = std::thread::Builder::new().name("outpage-client".to_owned());
        let thread = named.spawn(move || own.watch())?;
        Ok(Self {
            watched,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        socket::shut_down(self.watched.socket.number());
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}
