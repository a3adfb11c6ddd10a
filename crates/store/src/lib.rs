//! Swap stores: where the bytes of paged-out pages live, behind one completion-based trait.
//!
//! A store is driven by one thread. [`Store::submit`] starts a transfer, [`Store::poll`] hands over
//! what has ended, in any order; neither blocks nor allocates. Making sure of room ([`Grow`]) and following forks ([`Reopen`]) are
//! traits of their own; [`SwapStore`] is what has all three. Stores: [`UringStore`] and
//! [`PoolStore`] over a [`SwapFile`], [`MemoryStore`]. Wrappers around any store: [`Bounced`],
//! [`Ordered`], [`Faulty`], [`Delayed`], [`Counting`].
//!
//! **Invariants.** No thread-local storage, no threads but those of a caller's [`Spawner`], and no
//! allocation after construction, except in [`Reopen::reopen_after_fork`] and [`Grow::beside`]: a store runs inside
//! threads that the C library does not know. A page of a page-in that could not be read
//! whole is told as failed; bytes are never made up.
#![deny(unsafe_code)]

mod backend;
mod bounce;
pub mod compressed;
mod counting;
mod delayed;
mod encrypted;
mod error;
mod faulty;
mod filesystem;
mod fitting;
mod flight;
mod frame;
mod growth;
mod index_ring;
mod inside;
mod memory;
mod ordered;
mod page_bits;
mod pool;
mod raw;
mod reopen;
mod room;
mod slab;
mod swapfile;
mod uring;

use std::os::fd::RawFd;

use outpage_core::units::SlotRange;

pub use backend::{Backend, BackendError, Choice, Probe, open, probe};
pub use bounce::{Bounced, Provide};
pub use counting::{Counting, Counts, HISTOGRAM_BUCKETS};
pub use delayed::{Clock, Delay, Delayed};
pub use encrypted::{Cipher, Encryption, KEY_BYTES};
pub use error::{Cause, StoreError};
pub use faulty::{FaultRates, Faulty, InjectedFaults};
pub use filesystem::Filesystem;
pub use frame::{Frame, FrameArea, IoVec};
pub use growth::{Grow, Reserve, ReserveCause, ReserveError};
pub use memory::{CopyAt, MemoryStore};
pub use ordered::{Ordered, WRITE_DEADLINE_NS};
pub use page_bits::PageBits;
pub use pool::{PoolStore, Spawner, StdSpawner, TransferFn, WORKERS_DEFAULT};
pub use reopen::{Descriptors, Reopen};
pub use swapfile::{Allocation, SwapFile, SwapFileError, Warning};
pub use uring::UringStore;

/// Most pages in one request: the kernel's limit of buffers in one vectored call, for the case that
/// no two frames are neighbours (`UIO_MAXIOV` in `linux/uio.h`).
pub const REQUEST_PAGES_LIMIT: u32 = 1024;

/// The caller's name for a request; the store does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u64);

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the store into frames.
    PageIn,
    /// From frames into the store.
    PageOut,
}

/// One transfer between consecutive slots and frames anywhere in memory.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Comes back in the [`Completion`].
    pub token: Token,
    /// Which way.
    pub direction: Direction,
    /// The slots; at least one. Requests in flight at the same time must not share a slot unless all
    /// of them are page-ins.
    pub slots: SlotRange,
    /// One frame for each slot, in slot order. The list itself is needed during `submit` only; the
    /// memory it names until the completion.
    pub frames: &'a [Frame],
    /// Somebody waits for it to end. [`Ordered`] has writes wait for such reads.
    pub awaited: bool,
}

/// The end of one request, and how each of its pages fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The token of the request.
    pub token: Token,
    /// Every page transferred, or what went wrong first.
    pub result: Result<(), StoreError>,
    /// The pages that were not transferred, by their place in the request: none if and only if `result` is `Ok`. What their slots
    /// (page-out) or frames (page-in) hold is not specified; the other pages are good.
    pub failed: PageBits,
}

impl Completion {
    /// All pages were transferred.
    #[must_use]
    pub const fn whole(token: Token) -> Self {
        Self {
            token,
            result: Ok(()),
            failed: PageBits::NONE,
        }
    }
}

/// Why a request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// [`Store::depth`] requests are in flight, or frames that this one needs beside its own are in use by others in flight: poll,
    /// then try again.
    Full,
}

impl std::fmt::Display for SubmitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the store has as many requests in flight as it takes; poll it, then try again")
    }
}

impl std::error::Error for SubmitError {}

/// Sizes that are fixed at construction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Most requests in flight, 1..=4096.
    pub depth: u16,
    /// Most pages in a request, 1..=[`REQUEST_PAGES_LIMIT`]. A store keeps 16 bytes of address space
    /// for each page of each request in flight.
    pub request_pages_max: u32,
}

impl Default for Config {
    /// 64 requests: twice the depth from which more no longer pays (32, measured with 4 KiB reads).
    fn default() -> Self {
        Self {
            depth: 64,
            request_pages_max: REQUEST_PAGES_LIMIT,
        }
    }
}

impl Config {
    /// # Panics
    /// When a field is outside its range.
    fn check(self) -> Self {
        assert!(
            (1..=4096).contains(&self.depth),
            "depth {} is not in 1..=4096",
            self.depth
        );
        assert!(
            (1..=REQUEST_PAGES_LIMIT).contains(&self.request_pages_max),
            "request_pages_max {} is not in 1..={REQUEST_PAGES_LIMIT}",
            self.request_pages_max
        );
        self
    }
}

/// A place for paged-out pages. All calls come from one thread.
///
/// Before sleeping on [`Store::wake_fd`], poll until `poll` leaves room in `out`: a completion may
/// be there at once after `submit`, and what one `poll` had no room for makes the descriptor readable
/// no more.
pub trait Store {
    /// Starts a transfer. Never blocks on its end, never allocates.
    ///
    /// # Errors
    /// [`SubmitError::Full`]: nothing was started, and something is in flight. Everything else that goes wrong is reported by the
    /// completion.
    ///
    /// # Panics
    /// When the request is empty, longer than [`Store::request_pages_max`], has not one frame per
    /// slot, or reaches past [`Store::capacity_slots`]: errors of the program, not of the world.
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError>;

    /// Appends what has ended to `out`, without blocking and never beyond its capacity; returns how
    /// many were appended.
    fn poll(&mut self, out: &mut Vec<Completion>) -> usize;

    /// Nobody reads `slots` any more unless they are written again, and no request in flight names them: the store may let go of what
    /// is in them, and a page-in of one may fail. Neither blocks nor allocates. [`UringStore`] and [`PoolStore`] keep the room in
    /// their file, which was reserved so that a page-out finds it.
    ///
    /// # Panics
    /// When the slots reach past [`Store::capacity_slots`].
    fn forget(&mut self, slots: SlotRange);

    /// Blocks until `poll` has something, nothing is in flight, or `timeout_ns` nanoseconds have
    /// passed; returns whether `poll` has something. May return early.
    fn wait(&mut self, timeout_ns: u64) -> bool;

    /// A descriptor for `poll(2)` that is readable when completions may be there. `None`: poll the
    /// store now and then while [`Store::in_flight`] is not 0.
    fn wake_fd(&self) -> Option<RawFd>;

    /// Requests taken by `submit` and not yet handed over by `poll`.
    fn in_flight(&self) -> usize;

    /// Most requests in flight.
    fn depth(&self) -> usize;

    /// Most pages in one request.
    fn request_pages_max(&self) -> u32;

    /// How many slots there are: slots `0..capacity_slots()`.
    fn capacity_slots(&self) -> u32;

    /// RAM in which the store has pages, in bytes: those that it keeps, and areas that transfers go through, whether in use or
    /// not. Whoever bounds a program's RAM takes it off. 0 for [`UringStore`] and [`PoolStore`], whose transfers go straight between
    /// frames and the disk. Frames of requests are the caller's, and tables count as little as those of the caller's do.
    fn ram_bytes(&self) -> u64;
}

/// What a pager needs: a store that it can page to, that makes sure of room first and follows forks.
pub trait SwapStore: Store + Grow + Reopen {}

impl<S: Store + Grow + Reopen + ?Sized> SwapStore for S {}

impl<S: Store + ?Sized> Store for Box<S> {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        (**self).submit(request)
    }
    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        (**self).poll(out)
    }
    fn forget(&mut self, slots: SlotRange) {
        (**self).forget(slots);
    }
    fn wait(&mut self, timeout_ns: u64) -> bool {
        (**self).wait(timeout_ns)
    }
    fn wake_fd(&self) -> Option<RawFd> {
        (**self).wake_fd()
    }
    fn in_flight(&self) -> usize {
        (**self).in_flight()
    }
    fn depth(&self) -> usize {
        (**self).depth()
    }
    fn request_pages_max(&self) -> u32 {
        (**self).request_pages_max()
    }
    fn capacity_slots(&self) -> u32 {
        (**self).capacity_slots()
    }
    fn ram_bytes(&self) -> u64 {
        (**self).ram_bytes()
    }
}

/// Asserts what [`Store::submit`] demands of a request.
fn check_request(request: &Request<'_>, pages_max: u32, capacity_slots: u32) {
    let slots = request.slots;
    assert!(slots.slots > 0, "a request for no slots");
    assert!(
        slots.slots <= pages_max,
        "{} pages in one request, {pages_max} allowed",
        slots.slots
    );
    assert!(
        request.frames.len() == slots.slots as usize,
        "{} frames for {} slots",
        request.frames.len(),
        slots.slots
    );
    check_slots(slots, capacity_slots);
}

/// Asserts that there are such slots.
fn check_slots(slots: SlotRange, capacity_slots: u32) {
    assert!(
        u64::from(slots.start.0) + u64::from(slots.slots) <= u64::from(capacity_slots),
        "slots {}..+{} reach past the capacity of {capacity_slots}",
        slots.start.0,
        slots.slots
    );
}
