//! Standard descriptors that were closed when this program was executed.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::fd;
use crate::raw::Errno;

/// Bit `n` is set if descriptor `n` was closed: Rust's runtime opens /dev/null in its place before `main`.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before Rust's runtime, in whatever program this crate is linked into.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note;

extern "C" fn note() {
    let closed = (0..3).filter(|&number| fd::open_flags(number) == Err(Errno::EBADF));
    CLOSED.store(closed.map(|number| 1 << number).sum(), Ordering::SeqCst);
}

/// The standard descriptors that were closed, and are /dev/null now.
pub fn closed_streams() -> impl Iterator<Item = i32> {
    let closed = CLOSED.load(Ordering::SeqCst);
    (0..3).filter(move |number| closed & 1 << number != 0)
}
