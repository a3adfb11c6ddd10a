//! The notifier: a host tells a guest which of its frames it paged out.
//!
//! Two rings of guest frame numbers in memory that both share, and a bit for each frame that says how it is now.
//! The guest hides what the host paged out from its own page daemon, which would else have the host read each
//! page back only to write it to the guest's swap space ("double paging").
//!
//! Rings are the paper's; the bits are not. The order between two rings is lost, and so are entries that find
//! a ring full. Here an entry only says "look at this frame", and what holds is its bit. The host never waits, and
//! believes nothing that the guest writes but how far it has read, and that only as far as it can be true.
//!
//! `docs/notify.md` has every byte; `guest/outpage_notify.h` is the same in C.
//!
//! Source: Chen and others, "Improving Host Swapping Using Adaptive Prefetching and Paging Notifier", HPDC 2010,
//! section 3.2.

mod guest;
mod host;
mod layout;

pub use guest::{Guest, Refused, Told};
pub use host::Host;
pub use layout::{ENTRIES, FRAMES_MAX, Layout, MAGIC, VERSION};

use core::sync::atomic::{AtomicU32, Ordering};

/// A word of the shared area: 4 bytes, little-endian as x86-64 has them, aligned to 4.
pub trait Word {
    /// Its value.
    fn load(&self, order: Ordering) -> u32;
    /// Gives it another one.
    fn store(&self, value: u32, order: Ordering);
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}

/// The word at `at`; 0 behind the end of the area.
fn read<W: Word>(area: &[W], at: u32, order: Ordering) -> u32 {
    area.get(at as usize).map_or(0, |word| word.load(order))
}

/// Writes the word at `at`; nothing behind the end of the area.
fn write<W: Word>(area: &[W], at: u32, value: u32, order: Ordering) {
    if let Some(word) = area.get(at as usize) {
        word.store(value, order);
    }
}

#[cfg(test)]
mod models;
