//! The pager's only door to the kernel: userfaultfd, mappings, pagemap, threads and its own memory.
//!
//! Three rules hold for everything here:
//!
//! - **No libc state.** Every call is a bare system call ([`raw::syscall6`]); nothing reads `errno`,
//!   nothing allocates, nothing takes a lock that the program may hold. So all of it works on a
//!   thread that glibc does not know ([`thread`]) and inside the hooks of a preloaded library.
//! - **Typed outcomes.** A call that can stop half-way says how far it came and why
//!   ([`uffd::Outcome`]); the rest return [`raw::Errno`] as a value.
//! - **Addresses are numbers.** The functions that take a `usize` address act on the *program's*
//!   memory, which this library does not own and never refers to. They are safe functions in the
//!   sense in which writing to `/proc/self/mem` is: the caller answers for the range being the
//!   program's, or the pager's own and not in use. Memory that Rust code looks at is behind
//!   [`map::Area`] and [`shared::map`].
//!
//! x86-64 Linux with glibc only.

#![no_std]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("outpage-sys supports x86-64 Linux only");

#[cfg(test)]
extern crate std;

/// Constants for the flag arguments of this crate (`O_DIRECT`, `MADV_DONTNEED`, `POLLIN`).
pub use libc;

pub mod arena;
pub mod clock;
pub mod fd;
pub mod futex;
pub mod kernel;
pub mod launch;
pub mod map;
pub mod maps;
pub mod own;
pub mod pagemap;
pub mod process;
pub mod raw;
pub mod secret;
pub mod shared;
pub mod thread;
pub mod uffd;
