//! Memory that is counted and not paged: memfds, and shared anonymous memory that is not managed.

use std::ops::ControlFlow;

use outpage_core::units::Nanos;
use outpage_sys::maps::{self, Kind, Mapping};
use outpage_sys::own;

use crate::regions::{Region, Regions};

/// The list of mappings is read this often: it costs up to a millisecond, and shared memory comes
/// and goes slowly.
const LOOK_EVERY: Nanos = Nanos(1_000_000_000);
/// Room for a piece of the list: any path fits.
const LIST_BYTES: usize = 16 << 10;

/// What is mapped shared without a file behind it.
#[derive(Default)]
pub(crate) struct Shared {
    bytes: u64,
    /// At the last look, where some of it is managed.
    last: Option<u64>,
    next_look: Nanos,
    list: Vec<u8>,
    parts: Vec<Region>,
}

impl Shared {
    /// The most bytes of address space at any look: an upper bound of what is in memory.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Shared memory is managed from now on: what was mapped a moment ago may be about to be, and counts when it lasted from one look to the next.
    pub(crate) const fn some_is_managed(&mut self) {
        self.last = Some(0);
    }

    /// Looks again, if it is time. What `is_kept` is paged elsewhere.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        regions: &Regions,
        is_kept: impl Fn(&Mapping<'_>) -> bool,
    ) {
        if now < self.next_look {
            return;
        }
        self.next_look = Nanos(now.0 + LOOK_EVERY.0);
        if self.list.is_empty() {
            // RAM is taken as it is written.
            self.list = vec![0; LIST_BYTES];
        }
        let mut bytes = 0;
        let seen = maps::for_each(&mut self.list, |entry| {
            // Outpage's own session is a memfd too.
            if entry.shared
                && entry.kind() == Kind::SharedMemory
                && !entry.name.starts_with(b"/memfd:outpage")
                && !is_kept(entry)
                && !own::contains(entry.start)
            {
                regions.within(entry.start, entry.end, &mut self.parts);
                let managed: usize = self.parts.iter().map(|r| r.end - r.start).sum();
                bytes += (entry.len() - managed) as u64;
            }
            ControlFlow::Continue(())
        });
        if seen.is_ok() {
            let lasted = self
                .last
                .as_mut()
                .map(|last| std::mem::replace(last, bytes));
            self.bytes = self.bytes.max(bytes.min(lasted.unwrap_or(bytes)));
        }
    }
}
