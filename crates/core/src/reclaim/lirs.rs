//! LIRS: frames go to the pages whose last two uses lay close together.
//!
//! A page comes to a small queue. It is hot once it is rescued there, for that is soon, or where it is read back after less time than
//! the oldest hot page took. Time is counted in pages that came. Of a hot page the time between its last two uses is remembered, of another one when
//! it was seen last. The paper knows at each use of a hot page how long the last one was ago; here it shows only where the page is taken out
//! of the program, so one of so many victims is the oldest hot page, to see whether it is used at all.

use alloc::boxed::Box;

use super::marks::Marks;
use super::{Entry, Mapped, Policy, Reclaim, share};
use crate::page::{PageId, Pages, Queue};
use crate::settings::{Allowed, Setting, Values};

pub(super) const ENTRY: Entry = Entry {
    name: "lirs",
    summary: "pages with a short time between uses stay, all others pass a small queue",
    source: "Jiang and Zhang, LIRS, SIGMETRICS 2002, section 3.3; CLOCK-Pro, USENIX 2005, for the queue of hot pages",
    needs_referenced: false,
    settings: &[
        &Setting {
            name: "cold",
            summary: "the small queue's share of the frames, in percent (Lhirs, section 4)",
            allowed: Allowed::Numbers(1, 99),
            default: 1,
        },
        &Setting {
            name: "hot",
            summary: "one of so many victims is the oldest hot page",
            allowed: Allowed::Numbers(2, 1000),
            default: 32,
        },
    ],
    build: |values| Policy::Driven(Box::new(Lirs::new(values))),
};

/// The policy: `Active` is the small queue, `Second` has hot pages.
pub(super) struct Lirs {
    cold: u32,
    hot: u32,
    /// Victims since the last hot one.
    victims: u32,
    marks: Marks,
}

impl Lirs {
    pub(super) fn new(values: &Values) -> Self {
        Self {
            cold: values.of("cold"),
            hot: values.of("hot"),
            victims: 0,
            marks: Marks::default(),
        }
    }

    /// Whether a page that was read back `age` after its last use is hot.
    fn is_close(&self, pages: &Pages, age: u32) -> bool {
        let hot = pages
            .head(Queue::Second)
            .and_then(|hot| self.marks.span(hot));
        hot.is_none_or(|span| age < span)
    }

    /// The page is used: whether it is hot from now on, and how long ago its last use was.
    fn used(&self, pages: &Pages, id: PageId, how: Mapped) -> (bool, Option<u32>) {
        let proved = self.marks.is_proved(id);
        let age = self.marks.age(id).filter(|_| !proved);
        match how {
            Mapped::Rescued if proved => (true, self.marks.span(id)),
            Mapped::Rescued => (true, age),
            Mapped::PagedIn => (age.is_some_and(|age| self.is_close(pages, age)), age),
            Mapped::Fresh | Mapped::Along | Mapped::Needed | Mapped::Refused => (false, None),
        }
    }
}

impl Reclaim for Lirs {
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
        let hot = match how {
            Mapped::Along | Mapped::Needed | Mapped::Refused => self.marks.is_proved(id),
            Mapped::Fresh | Mapped::PagedIn | Mapped::Rescued => {
                if how != Mapped::Rescued {
                    self.marks.tick();
                }
                let (hot, span) = self.used(pages, id, how);
                self.marks.set_proved(id, hot);
                match span.filter(|_| hot) {
                    Some(span) => self.marks.set_span(id, span),
                    None => self.marks.seen(id),
                }
                hot
            }
        };
        pages.push(if hot { Queue::Second } else { Queue::Active }, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        self.victims += 1;
        let cold = pages.queued(Queue::Active) > share(pages, self.cold);
        let queues = match cold && self.victims < self.hot {
            true => [Queue::Active, Queue::Second],
            false => {
                self.victims = 0;
                [Queue::Second, Queue::Active]
            }
        };
        pages.pop(queues[0]).or_else(|| pages.pop(queues[1]))
    }

    fn left(&mut self, _pages: &Pages, id: PageId) {
        if self.marks.is_proved(id) {
            self.marks.set_proved(id, false);
            self.marks.seen(id);
        }
    }
}
