//! CAR: two clocks, for pages seen once and seen again, that share the frames by what their ghosts say.
//!
//! A page comes to T1. Rescued there, or wanted again not long after it left, it belongs to T2. A page that is wanted soon after it left T1 says
//! that T1 had too few frames, one that left T2 says the same of T2. The paper's clocks give a page whose bit is set another round:
//! here a victim is staged, and a rescue is the bit. How long the paper's ghost lists are is not known here; how many pages left either clock lately
//! stands for it.

use alloc::boxed::Box;

use super::marks::{Left, Marks};
use super::{Entry, Mapped, Policy, Reclaim};
use crate::page::{PageId, Pages, Queue};

pub(super) const ENTRY: Entry = Entry {
    name: "car",
    summary: "two clocks, for pages seen once and again, whose shares follow the returns of pages that just left",
    source: "Bansal and Modha, CAR, FAST 2004, figure 2; after ARC, FAST 2003; no parameter",
    needs_referenced: false,
    settings: &[],
    build: |_| Policy::Driven(Box::new(Car::default())),
};

/// The policy: `Active` is T1, `Second` is T2.
#[derive(Default)]
pub(super) struct Car {
    /// The share of T1 that is aimed at, in pages.
    target: usize,
    /// Pages that left T1 and T2 lately.
    left: [u32; 2],
    marks: Marks,
}

impl Car {
    /// By how much the return of a page that left clock `own` moves the target: more where few of the last to leave were of its kind.
    fn step(&self, own: usize) -> usize {
        (self.left[1 - own] / self.left[own].max(1)).max(1) as usize
    }

    /// A page is there again. Whether it belongs to T2.
    fn returned(&mut self, pages: &Pages, id: PageId) -> bool {
        let frames = pages.framed();
        let from = self.marks.recall_from(id, frames);
        match from {
            Some(Left::First) => self.target = (self.target + self.step(0)).min(frames),
            Some(Left::Second) => self.target = self.target.saturating_sub(self.step(1)),
            None => {}
        }
        from.is_some()
    }
}

impl Reclaim for Car {
    fn reserve(&mut self, ids: usize) {
        self.marks.reserve(ids);
    }

    fn heap_bytes(&self) -> usize {
        self.marks.heap_bytes()
    }

    fn marks(&mut self) -> Option<&mut Marks> {
        Some(&mut self.marks)
    }

    fn mapped(&mut self, pages: &mut Pages, id: PageId, how: Mapped) {
        let again = match how {
            Mapped::Fresh => {
                self.marks.forget(id);
                false
            }
            Mapped::PagedIn => self.returned(pages, id),
            Mapped::Rescued => true,
            Mapped::Along | Mapped::Needed | Mapped::Refused => self.marks.is_proved(id),
        };
        self.marks.set_proved(id, again);
        pages.push(if again { Queue::Second } else { Queue::Active }, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        let first = pages.queued(Queue::Active) >= self.target.max(1);
        let queues = match first {
            true => [Queue::Active, Queue::Second],
            false => [Queue::Second, Queue::Active],
        };
        pages.pop(queues[0]).or_else(|| pages.pop(queues[1]))
    }

    fn left(&mut self, pages: &Pages, id: PageId) {
        let from = if self.marks.is_proved(id) {
            Left::Second
        } else {
            Left::First
        };
        self.marks.leaves_from(id, from);
        self.left[from as usize] += 1;
        if self.left[0] as usize + self.left[1] as usize > pages.framed() {
            self.left = self.left.map(|count| count / 2);
        }
    }
}
