//! Memory that is counted and not paged: shared anonymous memory and memfds.

use std::ops::ControlFlow;

use outpage_core::units::Nanos;
use outpage_sys::maps::{self, Kind};

/// The list of mappings is read this often: it costs up to a millisecond, and shared memory comes
/// and goes slowly.
const LOOK_EVERY: Nanos = Nanos(1_000_000_000);
/// Room for a piece of the list: any path fits.
const LIST_BYTES: usize = 16 << 10;

/// What is mapped shared without a file behind it.
#[derive(Default)]
pub(crate) struct Shared {
    bytes: u64,
    next_look: Nanos,
    list: Vec<u8>,
}

impl Shared {
    /// The most bytes of address space at any look: an upper bound of what is in memory.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Looks again, if it is time.
    pub(crate) fn look(&mut self, now: Nanos) {
        if now < self.next_look {
            return;
        }
        self.next_look = Nanos(now.0 + LOOK_EVERY.0);
        self.list.resize(LIST_BYTES, 0);
        let mut bytes = 0;
        let seen = maps::for_each(&mut self.list, |entry| {
            // Outpage's own session is a memfd too.
            if entry.shared
                && entry.kind() == Kind::SharedMemory
                && !entry.name.starts_with(b"/memfd:outpage")
            {
                bytes += entry.len() as u64;
            }
            ControlFlow::Continue(())
        });
        if seen.is_ok() {
            self.bytes = self.bytes.max(bytes);
        }
    }
}
