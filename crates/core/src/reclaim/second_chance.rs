//! First in, first out, with a second chance: a staged page that is touched is rescued.
//!
//! The active, inactive and cache queues of 4.4BSD. Where BSD looks at referenced bits, this one
//! detaches the page and waits for a touch: the time on the inactive and cache queues is the second chance. How long that is, is a setting: with
//! half of the frames staged the queues are as long as the active and inactive list of Linux, which keeps them level below 1 GB (`inactive_ratio`).

use alloc::boxed::Box;

use super::{Entry, Mapped, Policy, Reclaim};
use crate::limits::{Limits, STAGED_PERMILLE};
use crate::page::{PageId, Pages, Queue};
use crate::settings::{Allowed, Setting, Values};

pub(super) const ENTRY: Entry = Entry {
    name: "second-chance",
    summary: "FIFO of mapped pages; staged pages that are touched become active again",
    source: "the two-list scheme of 4.4BSD, with staging in place of referenced bits",
    needs_referenced: false,
    settings: &[&Setting {
        name: "staged",
        summary: "of a thousand frames so many are free or hold staged pages (500: the level lists of Linux below 1 GB)",
        allowed: Allowed::Numbers(STAGED_PERMILLE, 500),
        default: STAGED_PERMILLE,
    }],
    build: |values| Policy::Driven(Box::new(SecondChance::new(values))),
};

/// The policy; its other state is the queue of mapped pages.
pub struct SecondChance {
    /// Of a thousand frames, those that are free or hold staged pages.
    staged: u32,
}

impl SecondChance {
    fn new(values: &Values) -> Self {
        Self {
            staged: values.of("staged"),
        }
    }
}

impl Default for SecondChance {
    fn default() -> Self {
        Self {
            staged: STAGED_PERMILLE,
        }
    }
}

impl Reclaim for SecondChance {
    fn mapped(&mut self, pages: &mut Pages, id: PageId, _how: Mapped) {
        pages.push(Queue::Active, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        pages.pop(Queue::Active)
    }

    fn staged_low(&self, limits: &Limits) -> usize {
        limits.staged_low * self.staged as usize / STAGED_PERMILLE as usize
    }

    fn has_second(&self) -> bool {
        false
    }

    fn victims(&self, pages: &Pages) -> usize {
        pages.queued(Queue::Active)
    }
}
