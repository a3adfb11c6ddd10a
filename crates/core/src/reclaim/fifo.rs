//! First in, first out: no second chance.
//!
//! A page that is touched while it is staged is mapped, or the program could not go on, and is still the next to leave. Were it the
//! next of all, pages in steady use would be the only victims for ever. So those that were rescued and the oldest of the others leave by turns.

use super::{Entry, Mapped, Policy, Reclaim};
use crate::page::{PageId, Pages, Queue};

pub(super) const ENTRY: Entry = Entry {
    name: "fifo",
    summary: "the page that came first leaves first, used or not",
    source: "Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966: FIFO",
    needs_referenced: false,
    settings: &[],
    build: |_| Policy::Driven(alloc::boxed::Box::new(Fifo { rescued: false })),
};

/// The policy: `Active` has pages as they came, `Second` those that were rescued.
struct Fifo {
    /// Whose turn it is.
    rescued: bool,
}

impl Reclaim for Fifo {
    fn mapped(&mut self, pages: &mut Pages, id: PageId, how: Mapped) {
        let queue = match how {
            Mapped::Fresh | Mapped::PagedIn | Mapped::Along | Mapped::Needed => Queue::Active,
            Mapped::Rescued | Mapped::Refused => Queue::Second,
        };
        pages.push(queue, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        self.rescued = !self.rescued;
        let queues = match self.rescued {
            true => [Queue::Second, Queue::Active],
            false => [Queue::Active, Queue::Second],
        };
        pages.pop(queues[0]).or_else(|| pages.pop(queues[1]))
    }
}
