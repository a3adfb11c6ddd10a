//! Memory larger than RAM for one program: regions under a limit, the rest of them in a swap file.
//!
//! ```no_run
//! use outpage::Pager;
//!
//! let pager = Pager::new(512 << 20)?; // 512 MiB of RAM for all of its regions
//! let mut squares = pager.zeros::<u64>(1 << 30)?; // 8 GiB
//! for (i, square) in squares.iter_mut().enumerate() {
//!     *square = (i * i) as u64;
//! }
//! println!("{}", pager.stats()?);
//! # Ok::<(), outpage::Error>(())
//! ```
//!
//! A [`Pager`] has a limit, a swap file, policies and a thread. A [`Region`] is a slice of plain values that the pager brings in page by page as it is
//! touched, and writes out when the limit is reached. [`Blocks`] are for caches: parts of a region that may be given up and asked for again. [`Memory`] is
//! what all are made of, bytes at an address, for callers of other languages and unsafe code.
//!
//! Nothing but these regions is paged: not the program's heap, nor its stacks. For a whole program there is `outpage run`, under which this
//! library works, too: each has its own limit.
//!
//! **Safe code suffices.** Slices borrow the region: it cannot be resized, discarded or dropped meanwhile.
//!
//! **Threads.** Everything may be called by any thread. A pager serves faults one after the other; several pagers serve side by side.
//!
//! **Errors.** Every call answers by an [`Error`]. When a pager cannot go on, because its swap file is full or broken, it ends: each region
//! keeps the pages whose bytes could be had, and is ordinary memory from then on; calls say [`Error::Ended`]. A page whose bytes are lost is never zeroes: a
//! touch of it is SIGBUS (SIGSEGV before Linux 6.6), [`Region::read`] and [`Region::write`] say [`Error::Lost`]. An assertion of the library's own that
//! fails ends the process.
//!
//! **Forks.** A forked child has no part of a region (`MADV_DONTFORK`): a touch is SIGSEGV, every call answers [`Error::Forked`].
//!
//! **What regions may not be used for.** Reads with `O_DIRECT` and registered buffers of io_uring, unless the pages are pinned ([`Memory::pin`]): where the
//! kernel has no `UFFDIO_MOVE` (before 6.8), what is written through a pin is not seen. Memory calls of the caller's own (munmap, mremap, madvise, mprotect).
//!
//! Needs Linux on x86-64 with userfaultfd and access to `/dev/userfaultfd`; `outpage doctor` tells the remedy where that is missing.
#![deny(unsafe_code)]

mod blocks;
mod error;
mod memory;
mod pager;
mod region;
mod shared;
mod stats;
mod subscription;
mod watch;

pub use blocks::{Blocks, Kept};
pub use bytemuck;
pub use bytemuck::Pod;
pub use error::{Ended, Error, Reason};
pub use memory::{Memory, PinnedBytes};
pub use outpage_engine::scope::{Advice, Traffic};
pub use outpage_engine::tell::Place;
pub use pager::{Builder, Pager, parse_size};
pub use region::{Pinned, Region};
pub use stats::{RegionStats, Residency, Stats};
pub use subscription::Subscription;
pub use watch::Watch;

/// Bytes of a page: x86-64.
pub const PAGE_BYTES: usize = 4096;
