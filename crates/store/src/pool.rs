//! The thread pool store: blocking transfers on threads that the caller supplies.
//!
//! An operation belongs to the owner, then, from its index's way into the `queue`, to one worker, and
//! from its way into `done` to the owner again. No locks: two index rings, a futex that workers
//! sleep on, and an eventfd that the owner may sleep on.
#![allow(unsafe_code)] // operations change owners through the rings; a thread's argument is a pointer

use std::cell::UnsafeCell;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outpage_core::units::SlotRange;

use crate::flight::{Flight, Step};
use crate::index_ring::{ToMany, ToOne};
use crate::{
    Allocation, Backend, BackendError, Completion, Config, Descriptors, Direction, Grow, IoVec,
    Reopen, Request, Reserve, ReserveError, Store, SubmitError, SwapFile, check_request,
    check_slots, raw,
};

/// Workers unless told otherwise. Each is one transfer at a time; at four, 4 KiB reads are well past
/// the rate of one alone, and 64 KiB writes are at the speed of the disk.
pub const WORKERS_DEFAULT: u32 = 4;

/// Makes threads. They must share memory and the table of file descriptors with the thread that uses
/// the store. Nothing they run uses thread-local storage, but for the C library's `errno`.
pub trait Spawner {
    /// Starts a thread that calls `f(arg)` once, and ends when that returns.
    ///
    /// # Errors
    /// No thread was started, and `f` will not be called.
    fn spawn(&self, f: extern "C" fn(*mut u8), arg: *mut u8) -> io::Result<()>;
}

/// Makes threads of the standard library: for tests and programs that have no others.
#[derive(Clone, Copy, Debug)]
pub struct StdSpawner;

impl Spawner for StdSpawner {
    fn spawn(&self, f: extern "C" fn(*mut u8), arg: *mut u8) -> io::Result<()> {
        let address = arg.expose_provenance();
        let named = std::thread::Builder::new().name("outpage-io".into());
        named
            .spawn(move || f(ptr::with_exposed_provenance_mut(address)))
            .map(drop)
    }
}

/// One blocking transfer: descriptor, direction, offset in bytes, memory; the bytes moved, or the
/// error number. Called by several workers at once.
pub type TransferFn = fn(RawFd, Direction, u64, &[IoVec]) -> Result<usize, i32>;

/// A store on a swap file through blocking calls on a pool of threads.
///
/// Dropping it waits for the requests in flight and for the end of the workers.
pub struct PoolStore {
    shared: Arc<Shared>,
    event: OwnedFd,
    file: SwapFile,
    config: Config,
    workers: u32,
    spawner: Box<dyn Spawner + Send>,
    transfer: TransferFn,
    free: Vec<u32>,
    /// Completions taken minus signals of the eventfd taken: above 0, a worker is yet to signal a
    /// completion already taken, and the descriptor will be readable for nothing.
    signals_owed: i64,
}

struct Shared {
    ops: Box<[UnsafeCell<Flight>]>,
    queue: ToMany,
    done: ToOne,
    /// Changes when work was queued or the store is dropped; idle workers sleep on it.
    bell: AtomicU32,
    stop: AtomicBool,
    alive: AtomicU32,
    fd: RawFd,
    event: RawFd,
    transfer: TransferFn,
}

// SAFETY: an operation is accessed by whoever holds its index alone; the rings hand indices over with
// release and acquire. Everything else is atomic or never changes.
unsafe impl Sync for Shared {}

impl PoolStore {
    /// Starts `workers` threads for `file`.
    ///
    /// # Errors
    /// A thread or the eventfd could not be made; see [`BackendError`].
    ///
    /// # Panics
    /// When `config` is out of range or `workers` is 0.
    pub fn new(
        file: SwapFile,
        config: Config,
        workers: u32,
        spawner: Box<dyn Spawner + Send>,
    ) -> Result<Self, BackendError> {
        Self::with_transfer(file, config, workers, spawner, raw::transfer)
    }

    /// As [`PoolStore::new`], with another function in the place of the system call.
    ///
    /// # Errors
    /// As [`PoolStore::new`].
    ///
    /// # Panics
    /// As [`PoolStore::new`].
    pub fn with_transfer(
        file: SwapFile,
        config: Config,
        workers: u32,
        spawner: Box<dyn Spawner + Send>,
        transfer: TransferFn,
    ) -> Result<Self, BackendError> {
        let config = config.check();
        assert!(workers > 0, "a pool without workers");
        let event = eventfd()?;
        let shared = Arc::new(Shared::new(&file, &event, config, transfer));
        let free = (0..u32::from(config.depth)).rev().collect();
        let store = Self {
            shared,
            event,
            file,
            config,
            workers,
            spawner,
            transfer,
            free,
            signals_owed: 0,
        };
        // On failure, dropping the store ends the workers already there.
        store.start_workers()?;
        Ok(store)
    }

    fn start_workers(&self) -> Result<(), BackendError> {
        for _ in 0..self.workers {
            self.shared.alive.fetch_add(1, Ordering::Relaxed);
            let argument = Arc::into_raw(Arc::clone(&self.shared));
            if let Err(error) = self.spawner.spawn(work, argument.cast_mut().cast()) {
                // SAFETY: no thread was started, so the pointer is still ours.
                drop(unsafe { Arc::from_raw(argument) });
                self.shared.alive.fetch_sub(1, Ordering::Relaxed);
                let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                return Err(BackendError {
                    backend: Backend::Pool,
                    call: "clone",
                    errno,
                });
            }
        }
        Ok(())
    }

    /// Takes the pending signals of completions taken already or about to be.
    fn take_signals(&mut self) {
        self.signals_owed -= raw::eventfd_take(self.event.as_raw_fd()) as i64;
    }
}

impl Store for PoolStore {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        check_request(
            request,
            self.config.request_pages_max,
            self.capacity_slots(),
        );
        let index = self.free.pop().ok_or(SubmitError::Full)?;
        // SAFETY: an index from `free` is nobody else's.
        let flight = unsafe { &mut *self.shared.ops[index as usize].get() };
        flight.start(request);
        self.shared.queue.push(index);
        self.shared.bell.fetch_add(1, Ordering::Release);
        raw::futex_wake(&self.shared.bell, 1);
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        if !self.shared.done.is_empty() || self.signals_owed > 0 {
            // First, so that a completion that comes in meanwhile leaves its signal.
            self.take_signals();
        }
        let before = out.len();
        while out.len() < out.capacity() {
            let Some(index) = self.shared.done.pop() else {
                break;
            };
            // SAFETY: an index from `done` is the owner's.
            let flight = unsafe { &*self.shared.ops[index as usize].get() };
            out.push(flight.completion());
            self.free.push(index);
            self.signals_owed += 1;
        }
        out.len() - before
    }

    fn forget(&mut self, slots: SlotRange) {
        check_slots(slots, self.capacity_slots());
    }

    fn wait(&mut self, timeout_ns: u64) -> bool {
        let deadline = Instant::now() + Duration::from_nanos(timeout_ns);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = !self.shared.done.is_empty();
            if ended || self.in_flight() == 0 || left.is_zero() {
                return ended;
            }
            if self.signals_owed > 0 {
                self.take_signals();
            }
            if self.shared.done.is_empty() {
                raw::wait_readable(self.event.as_raw_fd(), left.as_nanos() as u64);
            }
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        Some(self.event.as_raw_fd())
    }

    fn in_flight(&self) -> usize {
        self.depth() - self.free.len()
    }

    fn depth(&self) -> usize {
        self.config.depth.into()
    }

    fn request_pages_max(&self) -> u32 {
        self.config.request_pages_max
    }

    fn capacity_slots(&self) -> u32 {
        self.file.capacity_slots()
    }

    fn ram_bytes(&self) -> u64 {
        0
    }
}

impl Grow for PoolStore {
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        self.file.reserve(slots)
    }

    fn beside(&self) -> Option<Box<dyn Reserve>> {
        self.file.beside()
    }
}

impl Reopen for PoolStore {
    fn carried_fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }

    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        let event = eventfd()?;
        let parents = mem::replace(&mut self.event, event);
        if matches!(descriptors, Descriptors::Replaced(_)) {
            let _not_ours = parents.into_raw_fd();
        }
        self.file.follow_fork(descriptors);
        let shared = Shared::new(&self.file, &self.event, self.config, self.transfer);
        // The workers did not come along. They may have been anywhere, so nothing of theirs is used
        // or freed.
        mem::forget(mem::replace(&mut self.shared, Arc::new(shared)));
        self.free.clear();
        self.free.extend((0..u32::from(self.config.depth)).rev());
        self.signals_owed = 0;
        self.start_workers()
    }
}

impl Drop for PoolStore {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.bell.fetch_add(1, Ordering::Release);
        raw::futex_wake(&self.shared.bell, i32::MAX);
        loop {
            match self.shared.alive.load(Ordering::Acquire) {
                0 => break,
                alive => raw::futex_wait(&self.shared.alive, alive),
            }
        }
    }
}

impl Shared {
    fn new(file: &SwapFile, event: &OwnedFd, config: Config, transfer: TransferFn) -> Self {
        let depth = usize::from(config.depth);
        let op = || Flight::new(config.request_pages_max);
        Self {
            ops: (0..depth).map(|_| UnsafeCell::new(op())).collect(),
            queue: ToMany::new(depth),
            done: ToOne::new(depth),
            bell: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            alive: AtomicU32::new(0),
            fd: file.as_raw_fd(),
            event: event.as_raw_fd(),
            transfer,
        }
    }

    /// A worker's life.
    fn work(&self) {
        loop {
            let bell = self.bell.load(Ordering::Acquire);
            if let Some(index) = self.queue.pop() {
                // SAFETY: an index from the queue belongs to the worker that took it.
                let flight = unsafe { &mut *self.ops[index as usize].get() };
                self.carry_out(flight);
                self.done.push(index);
                raw::eventfd_add(self.event);
            } else if self.stop.load(Ordering::Acquire) {
                break;
            } else {
                raw::futex_wait(&self.bell, bell);
            }
        }
    }

    fn carry_out(&self, flight: &mut Flight) {
        loop {
            let (offset, iovecs) = (flight.offset(), flight.iovecs());
            let moved = (self.transfer)(self.fd, flight.direction, offset, iovecs);
            if flight.advance(moved) == Step::Done {
                return;
            }
        }
    }
}

extern "C" fn work(argument: *mut u8) {
    // SAFETY: made by `start_workers` from an `Arc` for this thread alone.
    let shared = unsafe { Arc::from_raw(argument.cast_const().cast::<Shared>()) };
    shared.work();
    shared.alive.fetch_sub(1, Ordering::Release);
    raw::futex_wake(&shared.alive, i32::MAX);
}

fn eventfd() -> Result<OwnedFd, BackendError> {
    raw::eventfd().map_err(|errno| BackendError {
        backend: Backend::Pool,
        call: "eventfd2",
        errno,
    })
}

/// Whether the pool's own system calls are permitted.
pub(crate) fn probe() -> Result<(), BackendError> {
    eventfd().map(drop)
}

#[cfg(test)]
mod tests {
    use outpage_core::units::{PAGE_BYTES, SlotNo};

    use super::*;
    use crate::{Frame, Token};

    fn all_moved(_: RawFd, _: Direction, _: u64, iovecs: &[IoVec]) -> Result<usize, i32> {
        Ok(iovecs.iter().map(|piece| piece.len()).sum())
    }

    #[test]
    fn a_signal_after_its_completion_was_taken_does_not_keep_the_descriptor_readable() {
        let directory = std::env::current_dir().unwrap();
        let file = SwapFile::create_in(&directory, PAGE_BYTES as u64).unwrap();
        let config = Config {
            depth: 1,
            request_pages_max: 1,
        };
        let spawner = Box::new(StdSpawner);
        let mut store = PoolStore::with_transfer(file, config, 1, spawner, all_moved).unwrap();
        // SAFETY: `all_moved` touches no frame.
        let frames = [unsafe { Frame::new(PAGE_BYTES) }];
        let (slots, direction) = (SlotRange::new(SlotNo(0), 1), Direction::PageIn);
        store
            .submit(&Request {
                token: Token(1),
                direction,
                slots,
                frames: &frames,
                awaited: true,
            })
            .unwrap();
        // The worker's signal is held back here, and comes late.
        let event = store.event.as_raw_fd();
        while raw::eventfd_take(event) == 0 {
            raw::yield_now();
        }
        let mut out = Vec::with_capacity(1);
        assert_eq!(store.poll(&mut out), 1);
        raw::eventfd_add(event);
        assert_eq!(store.poll(&mut Vec::with_capacity(1)), 0);
        assert_eq!(raw::eventfd_take(event), 0);
        assert_eq!(store.signals_owed, 0);
    }
}
