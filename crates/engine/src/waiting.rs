//! Which threads wait for their pages, since when, and whom the last mappings woke.

use outpage_core::contract::Waiter;
use outpage_core::units::{Nanos, PageNo, PageRange};

/// A thread that waits for its page.
struct Thread {
    waiter: Waiter,
    page: PageNo,
    since: Nanos,
    /// For a read.
    major: bool,
    /// For a page of the pool.
    pooled: bool,
}

/// A wait that is over.
pub struct Waited {
    /// When it began.
    pub since: Nanos,
    /// It was for a read.
    pub major: bool,
    /// It was for a page of the pool of compressed pages.
    pub pooled: bool,
}

/// All threads that wait.
pub struct Waiting {
    threads: Vec<Thread>,
    /// Names given so far; 0 names nobody.
    named: u32,
    /// Address ranges, half-open, whose mapping woke who waits there; the oldest makes room.
    woken: [(usize, usize); 4],
    woken_at: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            threads: Vec::with_capacity(64),
            named: 0,
            woken: [(0, 0); 4],
            woken_at: 0,
        }
    }
}

impl Waiting {
    /// A thread waits for `page` from `now` on, under this name.
    pub fn begin(&mut self, page: PageNo, now: Nanos) -> Waiter {
        self.named = self.named.wrapping_add(1).max(1);
        let waiter = Waiter(self.named);
        self.threads.push(Thread {
            waiter,
            page,
            since: now,
            major: false,
            pooled: false,
        });
        waiter
    }

    /// The waiter goes on. `None` for one that is no thread of the program's.
    pub fn end(&mut self, waiter: Waiter) -> Option<Waited> {
        let at = self.threads.iter().position(|t| t.waiter == waiter)?;
        let thread = self.threads.swap_remove(at);
        Some(Waited {
            since: thread.since,
            major: thread.major,
            pooled: thread.pooled,
        })
    }

    /// `pages` are being read.
    pub fn reads(&mut self, pages: &[PageNo]) {
        for thread in &mut self.threads {
            thread.major |= pages.contains(&thread.page);
        }
    }

    /// `pages` come out of the pool.
    pub fn unpacks(&mut self, pages: &[PageNo]) {
        for thread in &mut self.threads {
            thread.pooled |= pages.contains(&thread.page);
        }
    }

    /// Whether somebody waits for a page of `run`.
    pub fn any_in(&self, run: PageRange) -> bool {
        self.threads.iter().any(|t| run.contains(t.page))
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether nobody waits.
    pub const fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Mapping `start..end` woke who waits there.
    pub const fn mapped(&mut self, start: usize, end: usize) {
        self.woken[self.woken_at % 4] = (start, end);
        self.woken_at += 1;
    }

    /// Whether a mapping just woke who waits at `address`.
    pub fn is_awake(&self, address: usize) -> bool {
        self.woken.iter().any(|r| (r.0..r.1).contains(&address))
    }

    /// Forgets which mappings woke whom: a later fault is a new one.
    pub const fn wakes_are_old(&mut self) {
        self.woken = [(0, 0); 4];
    }

    /// Nobody waits any more.
    pub fn forget(&mut self) {
        self.threads.clear();
        self.wakes_are_old();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_goes_on_alone() {
        let mut waiting = Waiting::default();
        let page = PageNo::from_raw;
        let first = waiting.begin(page(5), Nanos(10));
        let second = waiting.begin(page(5), Nanos(20));
        waiting.begin(page(6), Nanos(30));
        waiting.reads(&[page(5)]);
        let ended = waiting.end(first).expect("it waits");
        assert_eq!((ended.since, ended.major), (Nanos(10), true));
        waiting.unpacks(&[page(6)]);
        assert!(waiting.end(first).is_none() && waiting.end(Waiter(0)).is_none());
        assert!(waiting.any_in(PageRange::one(page(5))), "the second waits");
        let ended = waiting.end(second).expect("it waits");
        assert_eq!((ended.since, ended.pooled), (Nanos(20), false));
        assert!(!waiting.any_in(PageRange::one(page(5))));
        assert_eq!(waiting.len(), 1);
        let third = waiting.threads[0].waiter;
        assert!(waiting.end(third).is_some_and(|w| w.pooled && !w.major));
    }

    #[test]
    fn mappings_are_remembered_until_they_are_old() {
        let mut waiting = Waiting::default();
        (1..=5).for_each(|n| waiting.mapped(n * 100, n * 100 + 10));
        assert!(!waiting.is_awake(100), "four at most");
        assert!(waiting.is_awake(509) && !waiting.is_awake(510));
        waiting.wakes_are_old();
        assert!(!waiting.is_awake(509));
    }
}
