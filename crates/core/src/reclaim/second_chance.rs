//! First in, first out, with a second chance: a staged page that is touched is rescued.
//!
//! The active, inactive and cache queues of 4.4BSD. Where BSD looks at referenced bits, this one
//! detaches the page and waits for a touch: the time on the inactive and cache queues is the second chance.

use alloc::boxed::Box;

use super::{Entry, Mapped, Policy, Reclaim};
use crate::page::{PageId, Pages, Queue};

pub(super) const ENTRY: Entry = Entry {
    name: "second-chance",
    summary: "FIFO of mapped pages; staged pages that are touched become active again",
    source: "the two-list scheme of 4.4BSD, with staging in place of referenced bits",
    needs_referenced: false,
    settings: &[],
    build: |_| Policy::Driven(Box::new(SecondChance)),
};

/// The policy; its state is the queue of mapped pages.
pub struct SecondChance;

impl Reclaim for SecondChance {
    fn mapped(&mut self, pages: &mut Pages, id: PageId, _how: Mapped) {
        pages.push(Queue::Active, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        pages.pop(Queue::Active)
    }

    fn has_second(&self) -> bool {
        false
    }

    fn victims(&self, pages: &Pages) -> usize {
        pages.queued(Queue::Active)
    }
}
