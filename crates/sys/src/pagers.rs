//! Which threads are pagers'.

use core::cell::Cell;

use crate::{own, raw};

std::thread_local! {
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller is a thread of a pager's, bare or known ([`crate::thread`]).
#[must_use]
pub fn is_pagers() -> bool {
    is_bare() || is_known()
}

/// Never inlined: a bare thread may not look a thread-local up, not even beside a branch that it does not take. Once libraries with thread-locals were loaded or
/// unloaded, that reads the loader's list of them, which lies in memory that is paged.
#[inline(never)]
fn is_known() -> bool {
    HERE.get()
}

/// Whether the caller is a thread that [`crate::thread::spawn`] made and glibc does not know.
#[must_use]
pub fn is_bare() -> bool {
    own::contains(raw::thread_pointer())
}

/// From now on the caller, which glibc knows, is a pager's.
pub(crate) fn enter() {
    HERE.set(true);
}
