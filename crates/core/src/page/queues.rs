//! The queues that pages are on, linked by the numbers of their neighbours.

use super::{Links, PageId, Pages};

/// The queue a page is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Queue {
    /// On none.
    None = 0,
    /// Mapped pages, oldest first. Under a daemon: recently used ones.
    Active,
    /// Staged pages waiting for page-out or cache. Under a daemon: candidates for that, mapped or not.
    Inactive,
    /// Clean staged pages: nearly free.
    Cache,
    /// Mapped pages that could not be detached: no victims for a while.
    Refused,
    /// Mapped pages too, for reclaim policies that keep two queues of them. Not under a daemon.
    Second,
    /// Dirty staged pages that are to be written to the store, where others go to the pool of compressed pages: they leave together.
    Outward,
    /// Staged pages that stay until they are touched, for reclaim policies that want to see it; they leave when no other can.
    Watched,
}

const QUEUE_SHIFT: u32 = 5;

impl Queue {
    /// The queue that a page's flags name.
    #[inline]
    pub(super) const fn of(flags: u8) -> Self {
        match flags >> QUEUE_SHIFT {
            1 => Self::Active,
            2 => Self::Inactive,
            3 => Self::Cache,
            4 => Self::Refused,
            5 => Self::Second,
            6 => Self::Outward,
            7 => Self::Watched,
            _ => Self::None,
        }
    }
}

/// One queue: ends and length; the links are in the leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) head: PageId,
    pub(super) tail: PageId,
    pub(super) pages: usize,
}

impl Pages {
    /// The queue the page is on.
    #[must_use]
    #[inline]
    pub fn queue(&self, id: PageId) -> Queue {
        self.entry(id).queue()
    }

    /// Pages on `queue`.
    #[must_use]
    #[inline]
    pub fn queued(&self, queue: Queue) -> usize {
        self.queues[queue as usize - 1].pages
    }

    /// The oldest page of `queue`.
    #[must_use]
    pub fn head(&self, queue: Queue) -> Option<PageId> {
        let head = self.queues[queue as usize - 1].head;
        head.is_some().then_some(head)
    }

    /// The page at the end of `queue`.
    #[must_use]
    pub fn last(&self, queue: Queue) -> Option<PageId> {
        let tail = self.queues[queue as usize - 1].tail;
        tail.is_some().then_some(tail)
    }

    /// Takes the oldest page off `queue`.
    #[inline]
    pub fn pop(&mut self, queue: Queue) -> Option<PageId> {
        let id = self.head(queue)?;
        let entry = self.entry_mut(id);
        entry.flags &= (1 << QUEUE_SHIFT) - 1;
        let next = self.link(id).next;
        if id == self.place {
            (self.place, self.place_at_end) = (next, !next.is_some());
        }
        let ends = &mut self.queues[queue as usize - 1];
        ends.head = next;
        ends.pages -= 1;
        if next.is_some() {
            self.link_mut(next).prev = PageId::NONE;
        } else {
            ends.tail = PageId::NONE;
        }
        Some(id)
    }

    /// Puts the page, which is on no queue, before all others of `queue`.
    pub fn push_first(&mut self, queue: Queue, id: PageId) {
        debug_assert!(self.queue(id) == Queue::None, "queued twice");
        let ends = &mut self.queues[queue as usize - 1];
        let next = core::mem::replace(&mut ends.head, id);
        ends.pages += 1;
        if next.is_some() {
            self.link_mut(next).prev = id;
        } else {
            ends.tail = id;
        }
        let prev = PageId::NONE;
        *self.link_mut(id) = Links { prev, next };
        self.entry_mut(id).flags |= (queue as u8) << QUEUE_SHIFT;
    }

    /// The page before a queued one.
    #[must_use]
    pub fn before(&self, id: PageId) -> Option<PageId> {
        let prev = self.link(id).prev;
        prev.is_some().then_some(prev)
    }

    /// The page behind this one on its queue.
    #[must_use]
    pub fn behind(&self, id: PageId) -> Option<PageId> {
        let next = self.link(id).next;
        next.is_some().then_some(next)
    }

    /// Keeps a place on the inactive queue, before `next` or at its end, whatever comes and goes.
    pub fn keep_place(&mut self, next: Option<PageId>) {
        self.place = next.unwrap_or(PageId::NONE);
        self.place_at_end = next.is_none();
    }

    /// Gives up the place that was kept, and returns the page behind it.
    pub fn take_place(&mut self) -> Option<PageId> {
        self.place_at_end = false;
        let next = core::mem::replace(&mut self.place, PageId::NONE);
        next.is_some().then_some(next)
    }

    /// Appends the page to `queue`.
    ///
    /// # Panics
    /// When it is on a queue already.
    #[inline]
    pub fn push(&mut self, queue: Queue, id: PageId) {
        if self.place_at_end && queue == Queue::Inactive {
            (self.place, self.place_at_end) = (id, false);
        }
        let ends = &mut self.queues[queue as usize - 1];
        let tail = core::mem::replace(&mut ends.tail, id);
        ends.pages += 1;
        if !tail.is_some() {
            ends.head = id;
        }
        let entry = self.entry_mut(id);
        assert!(entry.flags >> QUEUE_SHIFT == 0, "page queued twice");
        entry.flags |= (queue as u8) << QUEUE_SHIFT;
        let next = PageId::NONE;
        *self.link_mut(id) = Links { prev: tail, next };
        if tail.is_some() {
            self.link_mut(tail).next = id;
        }
    }

    /// Moves a page behind `other`, which is on the same queue; the inactive one excepted, where a place may be kept.
    pub fn move_behind(&mut self, id: PageId, other: PageId) {
        let queue = self.queue(id);
        debug_assert!(queue == self.queue(other) && queue != Queue::Inactive);
        if id == other || self.link(id).prev == other {
            return;
        }
        self.unqueue(id);
        let next = self.link(other).next;
        self.entry_mut(id).flags |= (queue as u8) << QUEUE_SHIFT;
        *self.link_mut(id) = Links { prev: other, next };
        self.link_mut(other).next = id;
        let ends = &mut self.queues[queue as usize - 1];
        ends.pages += 1;
        if next.is_some() {
            self.link_mut(next).prev = id;
        } else {
            ends.tail = id;
        }
    }

    /// Moves a page of `queue` to its end.
    pub fn requeue(&mut self, queue: Queue, id: PageId) {
        debug_assert!(self.queue(id) == queue, "requeued on another queue");
        let tail = self.queues[queue as usize - 1].tail;
        if tail == id {
            return;
        }
        let new = Links {
            prev: tail,
            next: PageId::NONE,
        };
        let Links { prev, next } = core::mem::replace(self.link_mut(id), new);
        if id == self.place {
            self.place = next;
        } else if self.place_at_end && queue == Queue::Inactive {
            (self.place, self.place_at_end) = (id, false);
        }
        self.link_mut(tail).next = id;
        self.link_mut(next).prev = prev;
        if prev.is_some() {
            self.link_mut(prev).next = next;
        }
        let ends = &mut self.queues[queue as usize - 1];
        ends.tail = id;
        if !prev.is_some() {
            ends.head = next;
        }
    }

    /// Makes a page of `queue` its oldest: those before it go to the end, in their order. Not of the inactive queue, where a place may be kept. O(1).
    pub fn begin_with(&mut self, queue: Queue, first: PageId) {
        debug_assert!(self.queue(first) == queue && queue != Queue::Inactive);
        let last = self.link(first).prev;
        if !last.is_some() {
            return;
        }
        let ends = &mut self.queues[queue as usize - 1];
        let (head, tail) = (
            core::mem::replace(&mut ends.head, first),
            core::mem::replace(&mut ends.tail, last),
        );
        self.link_mut(tail).next = head;
        self.link_mut(head).prev = tail;
        self.link_mut(first).prev = PageId::NONE;
        self.link_mut(last).next = PageId::NONE;
    }

    /// Takes the page off its queue, if it is on one.
    pub fn unqueue(&mut self, id: PageId) {
        let entry = self.entry_mut(id);
        let queue = usize::from(entry.flags >> QUEUE_SHIFT);
        if queue == Queue::None as usize {
            return;
        }
        entry.flags &= (1 << QUEUE_SHIFT) - 1;
        let Links { prev, next } = self.link(id);
        if id == self.place {
            (self.place, self.place_at_end) = (next, !next.is_some());
        }
        if prev.is_some() {
            self.link_mut(prev).next = next;
        }
        if next.is_some() {
            self.link_mut(next).prev = prev;
        }
        let ends = &mut self.queues[queue - 1];
        ends.pages -= 1;
        if !prev.is_some() {
            ends.head = next;
        }
        if !next.is_some() {
            ends.tail = prev;
        }
    }
}
