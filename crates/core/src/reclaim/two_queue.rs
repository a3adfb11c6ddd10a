//! 2Q: a page enters the main queue only when it is wanted again after it left.
//!
//! A page comes to a FIFO, A1in. When it leaves that, it is remembered in A1out; paged in again as long as it is remembered, it belongs
//! to Am, an LRU list. Uses of a page in A1in count for nothing: they may belong together. A touch is seen where the page
//! was staged: a page of Am that is rescued goes to the end of Am, one of A1in to the end of A1in.

use alloc::boxed::Box;

use super::marks::Marks;
use super::{Entry, Mapped, Policy, Reclaim, share};
use crate::page::{PageId, Pages, Queue};
use crate::settings::{Allowed, Setting, Values};

pub(super) const ENTRY: Entry = Entry {
    name: "two-queue",
    summary: "new pages pass a FIFO; those wanted again after it enter an LRU list",
    source: "Johnson and Shasha, 2Q, VLDB 1994, section 3.2 (full version)",
    needs_referenced: false,
    settings: &[
        &Setting {
            name: "in",
            summary: "A1in is cut back above so many percent of the frames (Kin, section 3.2)",
            allowed: Allowed::Numbers(1, 99),
            default: 25,
        },
        &Setting {
            name: "out",
            summary: "pages that A1out remembers, in percent of the frames (Kout, section 3.2)",
            allowed: Allowed::Numbers(1, 400),
            default: 50,
        },
    ],
    build: |values| Policy::Driven(Box::new(TwoQueue::new(values))),
};

/// The policy: `Active` is A1in, `Second` is Am.
struct TwoQueue {
    kin: u32,
    kout: u32,
    marks: Marks,
}

impl TwoQueue {
    fn new(values: &Values) -> Self {
        Self {
            kin: values.of("in"),
            kout: values.of("out"),
            marks: Marks::default(),
        }
    }
}

impl Reclaim for TwoQueue {
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
        let main = match how {
            Mapped::Fresh => {
                self.marks.forget(id);
                false
            }
            Mapped::PagedIn => self.marks.recall(id, share(pages, self.kout)),
            Mapped::Rescued | Mapped::Along | Mapped::Needed | Mapped::Refused => {
                self.marks.is_proved(id)
            }
        };
        self.marks.set_proved(id, main);
        pages.push(if main { Queue::Second } else { Queue::Active }, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        let queues = if pages.queued(Queue::Active) > share(pages, self.kin) {
            [Queue::Active, Queue::Second]
        } else {
            [Queue::Second, Queue::Active]
        };
        pages.pop(queues[0]).or_else(|| pages.pop(queues[1]))
    }

    fn left(&mut self, _pages: &Pages, id: PageId) {
        self.marks.leaves(id);
    }
}
