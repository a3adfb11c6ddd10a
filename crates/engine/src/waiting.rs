//! Which threads wait for their pages, since when, and whom the last mappings woke.

use outpage_core::contract::{Access, Waiter};
use outpage_core::units::{Nanos, PAGE_BYTES, PageNo, PageRange};
use outpage_sys::process::Tid;

/// For so long nothing new is seen in a fault that a thread repeats: a few reads of a slow disk. A choice.
const SAME: Nanos = Nanos(100_000_000);

/// What the call takes that maps a page and wakes who waits there, beside its pages, in ns, until some were measured: most of a rescue, which takes
/// 7 us (docs/performance.md). A guess.
const MAPS_IN: u64 = 5_000;
/// What each page of it takes at most, in ns: so long a call for many pages is not taken for one that lost the CPU. A choice.
const PAGE_MAPS_IN: u64 = 1_000;
/// A call counts by so much in the mean of those before it. A choice.
const CALL_WEIGHT: u64 = 16;

/// A thread that waits for its page.
struct Thread {
    waiter: Waiter,
    tid: Tid,
    page: PageNo,
    access: Access,
    since: Nanos,
    /// For a read.
    major: bool,
    /// For a page of the pool.
    pooled: bool,
    /// It touched another page since: a signal's handler runs, which may come back to this one, or has left it by siglongjmp(3).
    passed: bool,
}

/// A wait that begins.
#[derive(PartialEq, Eq, Debug)]
pub struct Begun {
    /// Its name.
    pub waiter: Waiter,
    /// The thread's wait that is given up for it, and the page. Whoever waits there all the same has to be woken: its fault starts again.
    pub left: Option<(Waiter, PageNo)>,
}

/// A wait that is over.
pub struct Waited {
    pub tid: Tid,
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
    /// Address ranges, half-open, whose mapping woke who waits there, and when; the oldest makes room.
    woken: [(usize, usize, Nanos); 4],
    woken_at: usize,
    /// When the call began that maps for who waits.
    maps_since: Nanos,
    /// What such a call takes as a rule, beside its pages, in ns.
    maps_in: u64,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            threads: Vec::with_capacity(64),
            named: 0,
            woken: [(0, 0, Nanos(0)); 4],
            woken_at: 0,
            maps_since: Nanos(0),
            maps_in: MAPS_IN,
        }
    }
}

impl Waiting {
    /// Thread `tid` waits for `page` from `now` on. `None` where it does already: the kernel repeats a fault of its own all
    /// the time while a signal waits for the thread (`fault_signal_pending` in include/linux/sched/signal.h, Linux 6.18).
    ///
    /// One wait of the thread's for another page is kept: that of code which a signal's handler interrupts. An older one is given up, or a program that
    /// leaves its handlers by siglongjmp(3) would fill the pager with pages that nobody wants.
    pub fn begin(&mut self, tid: Tid, page: PageNo, access: Access, now: Nanos) -> Option<Begun> {
        let again = |t: &Thread| {
            (t.tid, t.page, t.access) == (tid, page, access) && now.0 - t.since.0 < SAME.0
        };
        let known = self.threads.iter().position(again);
        let mut others = 0;
        for (at, thread) in self.threads.iter_mut().enumerate() {
            if thread.tid == tid {
                thread.passed = Some(at) != known;
                others += usize::from(thread.page != page);
            }
        }
        if known.is_some() {
            return None;
        }
        let left = (others > 1).then(|| self.give_up(tid, page)).flatten();
        self.named = self.named.wrapping_add(1).max(1);
        let waiter = Waiter(self.named);
        self.threads.push(Thread {
            waiter,
            tid,
            page,
            access,
            since: now,
            major: false,
            pooled: false,
            passed: false,
        });
        Some(Begun { waiter, left })
    }

    /// The thread's oldest wait for another page than `page`.
    fn give_up(&mut self, tid: Tid, page: PageNo) -> Option<(Waiter, PageNo)> {
        let elsewhere = |thread: &Thread| thread.tid == tid && thread.page != page;
        let of = (self.threads.iter().enumerate()).filter(|(_, thread)| elsewhere(thread));
        let (at, _) = of.min_by_key(|(_, thread)| thread.since.0)?;
        let thread = self.threads.swap_remove(at);
        Some((thread.waiter, thread.page))
    }

    /// The waiter goes on. `None` for one that is no thread of the program's, or is elsewhere.
    pub fn end(&mut self, waiter: Waiter) -> Option<Waited> {
        let at = self.threads.iter().position(|t| t.waiter == waiter)?;
        let thread = self.threads.swap_remove(at);
        (!thread.passed).then_some(Waited {
            tid: thread.tid,
            since: thread.since,
            major: thread.major,
            pooled: thread.pooled,
        })
    }

    /// `pages` are being read; whether somebody waits for one of them.
    pub fn reads(&mut self, pages: &[PageNo]) -> bool {
        let mut awaited = false;
        for thread in &mut self.threads {
            let waits = pages.contains(&thread.page);
            thread.major |= waits;
            awaited |= waits;
        }
        awaited
    }

    /// `pages` come out of the pool.
    pub fn unpacks(&mut self, pages: &[PageNo]) {
        for thread in &mut self.threads {
            thread.pooled |= pages.contains(&thread.page);
        }
    }

    /// Whether somebody waits for a page of `run`.
    pub fn any_in(&self, run: PageRange) -> bool {
        let mut here = self.threads.iter().filter(|thread| !thread.passed);
        here.any(|thread| run.contains(thread.page))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.threads.iter().filter(|thread| !thread.passed).count()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.threads.iter().all(|thread| thread.passed)
    }

    /// The call that maps for who waits begins.
    pub const fn maps(&mut self, now: Nanos) {
        self.maps_since = now;
    }

    /// Mapping `start..end` woke who waits there, and is over.
    pub fn mapped(&mut self, start: usize, end: usize, now: Nanos) {
        let at = self.goes_on_at((end - start) / PAGE_BYTES, now);
        self.woken[self.woken_at % 4] = (start, end, at);
        self.woken_at += 1;
    }

    /// When whom the call woke went on. On the pager's own CPU that thread may run at once, and the pager comes back from the call when it
    /// waits next or its time slice is over: that is not waiting. So the call counts as what such calls take, at most twice that: a choice.
    fn goes_on_at(&mut self, pages: usize, now: Nanos) -> Nanos {
        let for_pages = PAGE_MAPS_IN * pages as u64;
        let most = 2 * self.maps_in + for_pages;
        let took = now.0.saturating_sub(self.maps_since.0).min(most);
        let beside_pages = took.saturating_sub(for_pages);
        self.maps_in = (self.maps_in * (CALL_WEIGHT - 1) + beside_pages) / CALL_WEIGHT;
        self.maps_in = self.maps_in.max(PAGE_MAPS_IN);
        Nanos(self.maps_since.0 + took)
    }

    /// When a mapping just woke who waits at `address`, if one did.
    pub fn awake_since(&self, address: usize) -> Option<Nanos> {
        let woke = self.woken.iter().filter(|r| (r.0..r.1).contains(&address));
        woke.map(|r| r.2).max()
    }

    /// Forgets which mappings woke whom: a later fault is a new one.
    pub const fn wakes_are_old(&mut self) {
        self.woken = [(0, 0, Nanos(0)); 4];
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

    fn begin(waiting: &mut Waiting, tid: u32, page: u64, now: u64) -> Option<Waiter> {
        begun(waiting, tid, page, now).map(|begun| begun.waiter)
    }

    fn begun(waiting: &mut Waiting, tid: u32, page: u64, now: u64) -> Option<Begun> {
        waiting.begin(Tid(tid), PageNo::from_raw(page), Access::Read, Nanos(now))
    }

    #[test]
    fn a_waiter_goes_on_alone() {
        let mut waiting = Waiting::default();
        let page = PageNo::from_raw;
        let first = begin(&mut waiting, 1, 5, 10).expect("new");
        let second = begin(&mut waiting, 2, 5, 20).expect("new");
        begin(&mut waiting, 3, 6, 30).expect("new");
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
    fn a_thread_waits_once_however_often_it_faults() {
        let mut waiting = Waiting::default();
        let first = begin(&mut waiting, 1, 5, 10).expect("new");
        assert_eq!(begin(&mut waiting, 1, 5, 11), None);
        let writes = waiting.begin(Tid(1), PageNo::from_raw(5), Access::Write, Nanos(12));
        assert!(writes.is_some() && begin(&mut waiting, 2, 5, 14).is_some());
        // Whatever became of the first one.
        assert!(begin(&mut waiting, 1, 5, 10 + SAME.0).is_some());
        assert!(waiting.end(first).is_none());
        assert_eq!(waiting.len(), 2, "each thread once");
    }

    #[test]
    fn of_what_a_thread_waited_for_before_the_last_is_kept() {
        let mut waiting = Waiting::default();
        let page = PageNo::from_raw;
        let first = begin(&mut waiting, 1, 5, 10).expect("new");
        begin(&mut waiting, 2, 5, 11).expect("new");
        // A handler touches another page, and comes back.
        let handler = begin(&mut waiting, 1, 6, 20).expect("new");
        assert!(!waiting.any_in(PageRange::one(page(7))) && waiting.len() == 2);
        assert_eq!(begin(&mut waiting, 1, 5, 30), None, "it waits there still");
        assert!(waiting.any_in(PageRange::one(page(5))));
        assert!(!waiting.any_in(PageRange::one(page(6))));
        assert!(waiting.end(handler).is_none(), "nobody goes on there");
        // It leaves by siglongjmp, again and again.
        let second = begun(&mut waiting, 1, 7, 40).expect("new");
        assert_eq!(second.left, None);
        let third = begun(&mut waiting, 1, 8, 50).expect("new");
        assert_eq!(third.left, Some((first, page(5))));
        let fourth = begun(&mut waiting, 1, 9, 60).expect("new");
        assert_eq!(fourth.left, Some((second.waiter, page(7))));
        assert_eq!((waiting.len(), waiting.threads.len()), (2, 3));
        assert!(waiting.end(second.waiter).is_none());
        assert!(waiting.end(fourth.waiter).is_some() && waiting.len() == 1);
    }

    #[test]
    fn a_wait_is_not_given_up_for_the_same_page() {
        let mut waiting = Waiting::default();
        begin(&mut waiting, 1, 9, 0).expect("new");
        for n in 0..5 {
            let again = begun(&mut waiting, 1, 5, 1 + n * SAME.0).expect("new");
            assert_eq!(again.left, None, "after {n}");
        }
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn mappings_are_remembered_until_they_are_old() {
        let mut waiting = Waiting::default();
        (1..=5).for_each(|n| waiting.mapped(n * 100, n * 100 + 10, Nanos(1)));
        assert_eq!(waiting.awake_since(100), None, "four at most");
        assert!(waiting.awake_since(509).is_some());
        assert_eq!(waiting.awake_since(510), None);
        waiting.wakes_are_old();
        assert_eq!(waiting.awake_since(509), None);
    }

    #[test]
    fn a_time_slice_of_whom_a_mapping_woke_is_no_wait() {
        let mut waiting = Waiting::default();
        let mut took = |ns: u64| {
            waiting.wakes_are_old();
            waiting.maps(Nanos(1_000_000));
            waiting.mapped(0, PAGE_BYTES, Nanos(1_000_000 + ns));
            waiting.awake_since(0).map(|at| at.0 - 1_000_000)
        };
        assert_eq!(took(4_000), Some(4_000));
        let sliced = took(3_000_000).expect("awake");
        assert!((10_000..=11_000).contains(&sliced), "{sliced}");
        assert_eq!(took(9_000), Some(9_000));
        (0..100).for_each(|_| assert_eq!(took(2_500), Some(2_500)));
        // Twice what such calls take, and the page.
        let sliced = took(3_000_000).expect("awake");
        assert!((3_900..=4_200).contains(&sliced), "{sliced}");
    }
}
