//! Shared areas.

use std::sync::atomic::{AtomicU32, Ordering};

use outpage_core::notify::{Host, Layout};

/// An area of this layout, and the host that made it.
pub fn made(frames: u32, entries: u32) -> (Vec<AtomicU32>, Host) {
    let layout = Layout::new(frames, entries).expect("a sound layout");
    let area: Vec<_> = (0..layout.words()).map(|_| AtomicU32::new(!0)).collect();
    let host = Host::new(&area, layout).expect("long enough");
    (area, host)
}

/// The word at byte `offset`.
pub fn word(area: &[AtomicU32], offset: usize) -> u32 {
    area[offset / 4].load(Ordering::Relaxed)
}

/// Writes the word at byte `offset`.
pub fn put(area: &[AtomicU32], offset: usize, value: u32) {
    area[offset / 4].store(value, Ordering::Relaxed);
}
