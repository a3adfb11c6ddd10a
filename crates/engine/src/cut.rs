//! Shared memory of which a part was unmapped.
//!
//! The kernel keeps that part as long as the rest is mapped, and mremap(2), which maps more of it, shows it as it was. The pager lets go of what
//! is unmapped. So from then on the process cannot have shared memory grow, nor can its children, who got what was left.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use outpage_sys::maps;

/// Of this process, or of one that it was forked from.
static CUT: AtomicBool = AtomicBool::new(false);

/// As much of /proc/self/maps as is read at once.
const TEXT_BYTES: usize = 4096;

/// A part of shared memory was unmapped, and forgotten.
pub(crate) fn was_cut() {
    CUT.store(true, Ordering::SeqCst);
}

/// Whether more of the mapping at `addr` must not be mapped: it is shared, and could show what was forgotten. Where the list of mappings cannot be read it is.
pub(crate) fn may_not_grow(addr: usize) -> bool {
    if !CUT.load(Ordering::SeqCst) {
        return false;
    }
    let mut shared = false;
    let read = maps::for_each(&mut [0; TEXT_BYTES], |entry| {
        if addr < entry.end {
            shared = entry.start <= addr && entry.shared;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    shared || read.is_err()
}
