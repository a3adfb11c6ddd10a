//! Memory objects of `outpage serve`: more memory than there is RAM for, of which a program can say what it does not need.
//!
//! ```no_run
//! use outpage_client::{Client, Share};
//!
//! let client = Client::connect("/run/outpage/socket", Share::default())?;
//! let heap = client.create(1 << 30)?;
//! heap.words()[0].store(7, std::sync::atomic::Ordering::Relaxed);
//! heap.mark(0, 512); // These 512 pages hold nothing that is needed.
//! let lost = heap.take_back(0, 512)?; // They are wanted again: which of them are zeroes now?
//! println!("{} of 512 pages were dropped", (0..512).filter(|&page| lost.contains(page)).count());
//! # Ok::<(), outpage_client::Error>(())
//! ```
//!
//! **Threads.** Everything may be called by any thread. One request is under way at a time; marks are no requests.
//!
//! **Forks.** A forked child has no part of an object (`MADV_DONTFORK`), and must not use what it has of this library.
//!
//! **What the memory may not be used for.** Reading from a device straight into it while its pages are pinned (`O_DIRECT` reads, registered buffers of io_uring, RDMA): a
//! write through a pin is not seen, and is lost if the page leaves meanwhile. `read` without `O_DIRECT` is fine. Changing the mapping: mremap, munmap, madvise,
//! mprotect to less than reading and writing.
//!
//! **The end of the server.** When the connection ends, a thread of this library replaces all objects by memory whose touch is SIGBUS, and every call says
//! [`Error::Gone`]: contents that nobody has any more are never zeroes.
#![forbid(unsafe_code)]

mod client;
mod error;
mod watcher;

pub use client::{Client, Object, Share};
pub use error::Error;
pub use outpage_wire::{Lost, Refusal, Stats};
