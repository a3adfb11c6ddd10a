//! The pager's only door to the kernel: userfaultfd, mappings, pagemap, threads and its own memory.
//!
//! Three rules hold for everything here:
//!
//! - **No libc state.** Every call is a bare system call ([`raw::syscall6`]); nothing reads `errno`,
//!   nothing allocates (but [`uffd`] room for messages read too soon), nothing takes a lock that the program may hold. So all of it works on a
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

extern crate alloc;
// For `launch` alone, which starts programs; the rest does without.
extern crate std;

/// Constants for the flag arguments of this crate (`O_DIRECT`, `MADV_DONTNEED`, `POLLIN`).
pub use libc;

// The unwinder of panics' backtraces, linked in. libgcc_s.so.1 in its place took 0.1 ms of CPU time of each
// program's start (724 us for 623, medians of 9 times 200 starts of `true`): its constructor asks the CPU
// what it can do, which traps in a virtual machine.
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}

pub mod arena;
pub mod clock;
pub mod fd;
pub mod futex;
pub mod instructions;
pub mod kcmp;
pub mod kernel;
pub mod landing;
pub mod launch;
pub mod map;
pub mod maps;
mod mask;
pub mod own;
pub mod pagemap;
mod pagers;
pub mod proc;
pub mod process;
pub mod ptrace;
pub mod ram_file;
pub mod raw;
pub mod say;
pub mod secret;
pub mod shared;
pub mod socket;
pub mod tasks;
pub mod thread;
pub mod turns;
pub mod uffd;
pub mod view;
