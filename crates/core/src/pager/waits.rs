//! Who waits in the pager: for a page that is under way, for a frame, or, under a daemon, for a page that is
//! busy.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use crate::contract::{Access, Event, Source, Waiter};
use crate::tier::Whence;
use crate::units::{Nanos, PageNo, PageRange};

/// A fault that wants its page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub page: PageNo,
    pub access: Access,
    pub waiter: Waiter,
    pub source: Source,
    pub extent: PageRange,
    /// It waited before.
    pub retried: bool,
}

impl Demand {
    /// That of a fault; `None` for other events.
    #[inline]
    pub(super) const fn of(event: &Event<'_>) -> Option<Self> {
        let Event::Fault {
            page,
            access,
            waiter,
            source,
            extent,
        } = *event
        else {
            return None;
        };
        Some(Self {
            page,
            access,
            waiter,
            source,
            extent,
            retried: false,
        })
    }
}

/// Who waits for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    page: PageNo,
    pub waiter: Waiter,
    /// Where the page was and when it was touched, if the touch is what brings it.
    pub brings: Option<(Whence, Nanos)>,
}

/// All who wait, each in one place only.
pub(super) struct Waits {
    /// For a page that an action brings or holds.
    pages: Vec<Wait>,
    /// For a frame, the first come first.
    frames: VecDeque<Demand>,
    /// Under a daemon: their faults start again when the page is not busy any more.
    sleepers: Vec<Demand>,
}

impl Waits {
    /// Nobody; room for 64 of the first two before anything is allocated.
    pub(super) fn new() -> Self {
        Self {
            pages: Vec::with_capacity(64),
            frames: VecDeque::with_capacity(64),
            sleepers: Vec::new(),
        }
    }

    /// `waiter` waits for `page`.
    pub(super) fn for_page(&mut self, page: PageNo, waiter: Waiter) {
        self.pages.push(Wait {
            page,
            waiter,
            brings: None,
        });
    }

    /// `waiter` waits from `now` on for `page`, which is brought from `whence` for it.
    pub(super) fn for_page_of(&mut self, page: PageNo, waiter: Waiter, whence: Whence, now: Nanos) {
        self.pages.push(Wait {
            page,
            waiter,
            brings: Some((whence, now)),
        });
    }

    /// Whether somebody waits for `page`.
    pub(super) fn is_awaited(&self, page: PageNo) -> bool {
        self.pages.iter().any(|w| w.page == page)
    }

    /// One who waited for `page`, and does not any more.
    pub(super) fn take(&mut self, page: PageNo) -> Option<Wait> {
        let at = self.pages.iter().position(|w| w.page == page)?;
        Some(self.pages.swap_remove(at))
    }

    /// The fault waits for a frame, behind those who wait already.
    pub(super) fn for_frame(&mut self, demand: Demand) {
        self.frames.push_back(demand);
    }

    /// Who waits longest for a frame, and does not any more.
    pub(super) fn take_for_frame(&mut self) -> Option<Demand> {
        self.frames.pop_front()
    }

    /// `waiter` wants no frame any more, if it waits for one.
    pub(super) fn leave(&mut self, waiter: Waiter) {
        self.frames.retain(|demand| demand.waiter != waiter);
    }

    /// How many wait for a frame.
    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// The first who waits for a frame for a page of `range`, and does not any more.
    pub(super) fn take_for_frame_in(&mut self, range: PageRange) -> Option<Demand> {
        let at = self.frames.iter().position(|d| range.contains(d.page))?;
        self.frames.remove(at)
    }

    /// The fault starts again when its page is not busy.
    pub(super) fn sleep(&mut self, demand: Demand) {
        self.sleepers.push(demand);
    }

    /// How many sleep.
    pub(super) const fn sleepers(&self) -> usize {
        self.sleepers.len()
    }

    /// The first sleeper at the places `among` whose page is in `pages`, and its place; it does not sleep any more.
    pub(super) fn take_sleeper(
        &mut self,
        among: Range<usize>,
        pages: PageRange,
    ) -> Option<(usize, Demand)> {
        let asleep = self.sleepers.get(among.clone())?;
        let at = among.start + asleep.iter().position(|d| pages.contains(d.page))?;
        Some((at, self.sleepers.remove(at)))
    }

    /// Nobody waits any more.
    pub(super) fn forget(&mut self) {
        self.pages.clear();
        self.frames.clear();
        self.sleepers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(index: u64) -> PageNo {
        PageNo::from_raw(index)
    }

    fn demand(index: u64, waiter: u32) -> Demand {
        Demand {
            page: page(index),
            access: Access::Read,
            waiter: Waiter(waiter),
            source: Source(0),
            extent: PageRange::one(page(index)),
            retried: false,
        }
    }

    #[test]
    fn all_who_wait_for_a_page_are_given_once() {
        let mut waits = Waits::new();
        for (index, waiter) in [(5, 1), (6, 2), (5, 3)] {
            waits.for_page(page(index), Waiter(waiter));
        }
        let mut woken = [waits.take(page(5)), waits.take(page(5))].map(|w| w.map(|w| w.waiter.0));
        woken.sort_unstable();
        assert_eq!(woken, [Some(1), Some(3)]);
        assert!(waits.take(page(5)).is_none());
        assert!(waits.is_awaited(page(6)) && !waits.is_awaited(page(5)));
        waits.forget();
        assert!(!waits.is_awaited(page(6)));
    }

    #[test]
    fn frames_go_to_the_first_come() {
        let mut waits = Waits::new();
        (0..4).for_each(|n| waits.for_frame(demand(10 + u64::from(n), n)));
        let gone = waits.take_for_frame_in(PageRange::new(page(11), 2));
        assert_eq!(gone.map(|d| d.waiter), Some(Waiter(1)));
        waits.leave(Waiter(2));
        waits.leave(Waiter(7));
        let order: Vec<_> = core::iter::from_fn(|| waits.take_for_frame()).collect();
        assert_eq!(order.iter().map(|d| d.waiter.0).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(waits.frames(), 0);
    }

    #[test]
    fn sleepers_are_woken_in_their_order() {
        let mut waits = Waits::new();
        [7, 8, 7]
            .iter()
            .zip(0..)
            .for_each(|(&at, n)| waits.sleep(demand(at, n)));
        let first = waits.take_sleeper(0..3, PageRange::one(page(7)));
        assert_eq!(first.map(|(at, d)| (at, d.waiter.0)), Some((0, 0)));
        let second = waits.take_sleeper(0..2, PageRange::one(page(7)));
        assert_eq!(second.map(|(at, d)| (at, d.waiter.0)), Some((1, 2)));
        assert!(waits.take_sleeper(1..1, PageRange::one(page(8))).is_none());
        assert_eq!(waits.sleepers(), 1);
    }
}
