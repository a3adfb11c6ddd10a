//! S3-FIFO: a small queue filters pages that are used once, a main one holds the rest.
//!
//! A page enters the small queue, or the main one where it left the small one not long ago. Where the paper counts references,
//! a victim is staged here and a touch of it seen: a page that is rescued goes to the end of the main queue, from either. A page of the small queue
//! that leaves unused is remembered as a ghost. So one rescue counts for the two references that the paper asks for.

use alloc::boxed::Box;

use super::marks::Marks;
use super::{Entry, Mapped, Policy, Reclaim, share};
use crate::page::{PageId, Pages, Queue};
use crate::settings::{Allowed, Setting, Values};

pub(super) const ENTRY: Entry = Entry {
    name: "s3-fifo",
    summary: "a small queue filters pages that are used once, a main one holds the rest",
    source: "Yang, Zhang, Qiu, Yue and Vinayak, FIFO queues are all you need, SOSP 2023, algorithm 1",
    needs_referenced: false,
    settings: &[
        &Setting {
            name: "small",
            summary: "the small queue's share of the frames, in percent (section 4.1)",
            allowed: Allowed::Numbers(1, 99),
            default: 10,
        },
        &Setting {
            name: "ghost",
            summary: "pages that are remembered, in percent of the frames (as many as the main queue holds, section 4.1)",
            allowed: Allowed::Numbers(1, 400),
            default: 90,
        },
    ],
    build: |values| Policy::Driven(Box::new(S3Fifo::new(values))),
};

/// The policy: `Active` is the small queue, `Second` the main one.
struct S3Fifo {
    small: u32,
    ghost: u32,
    marks: Marks,
}

impl S3Fifo {
    fn new(values: &Values) -> Self {
        Self {
            small: values.of("small"),
            ghost: values.of("ghost"),
            marks: Marks::default(),
        }
    }
}

impl Reclaim for S3Fifo {
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
            Mapped::PagedIn => self.marks.recall(id, share(pages, self.ghost)),
            Mapped::Rescued => true,
            Mapped::Along | Mapped::Needed | Mapped::Refused => self.marks.is_proved(id),
        };
        self.marks.set_proved(id, main);
        pages.push(if main { Queue::Second } else { Queue::Active }, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        let small = pages.queued(Queue::Active) > share(pages, self.small);
        let queues = match small {
            true => [Queue::Active, Queue::Second],
            false => [Queue::Second, Queue::Active],
        };
        pages.pop(queues[0]).or_else(|| pages.pop(queues[1]))
    }

    fn left(&mut self, _pages: &Pages, id: PageId) {
        self.marks.leaves(id);
    }
}
