//! One scan: the walk over the inactive queue, the lap of the active queue, the idle sweep.
//!
//! FreeBSD `vm/vm_pageout.c:vm_pageout_scan` and `vm_pageout_page_stats`.

use super::{
    AGE_ADVANCE, AGE_DECLINE, AGE_MAX, AtLimit, Daemon, SecondLook, Step, activate, available,
    deactivate, fold, unmap,
};
use crate::page::{Bit, COLLECTED, PageId, Pages, Queue, State};

/// Sweeps of which one looks at the whole active queue: every 20 s
/// (`vm_pageout_full_stats_interval` over `vm_pageout_stats_interval`).
const WHOLE_SWEEP: u32 = 4;

impl Daemon {
    /// Goes on with the walk over the inactive queue; `None` when it is over.
    pub(super) fn inactive(&mut self, pages: &mut Pages) -> Option<Step> {
        let mut next = pages.take_place();
        while let Some(id) = next {
            if self.walk.left == 0 || self.walk.shortage <= 0 || self.stops() {
                return None;
            }
            self.walk.left -= 1;
            self.counters.scanned_inactive += 1;
            next = pages.behind(id);
            if let Some(step) = self.look(pages, id) {
                if matches!(step, Step::Cache(_)) {
                    self.walk.shortage -= 1;
                    pages.unqueue(id);
                }
                pages.keep_place(next);
                return Some(step);
            }
        }
        None
    }

    fn stops(&self) -> bool {
        self.params.at_limit == AtLimit::Stop && self.walk.launder <= 0
    }

    /// Looks at one page of the inactive queue.
    fn look(&mut self, pages: &mut Pages, id: PageId) -> Option<Step> {
        if pages.state(id) == State::Writing || pages.has(id, COLLECTED) {
            self.walk.more += 1;
            self.counters.busy += 1;
            return None;
        }
        let (noted, referenced) = pages.take_references(id);
        let (noted, referenced) = (u8::from(noted), u8::from(referenced));
        if noted + referenced > 0 {
            activate(pages, id);
            pages.set_age(id, pages.age(id) + referenced + AGE_ADVANCE + noted);
            self.counters.reactivated += 1;
            return None;
        }
        if !fold(pages, id) {
            return Some(Step::Cache(id));
        }
        let spares = self.pass == 0 || self.params.second_look == SecondLook::Always;
        if spares && !pages.bit(id, Bit::Seen) {
            pages.requeue(Queue::Inactive, id);
            pages.set_bit(id, Bit::Seen, true);
            self.counters.spared += 1;
            return None;
        }
        // Beyond the limit it stays where it is.
        (self.walk.launder > 0).then_some(Step::Launder(id))
    }

    /// One lap of the active queue at most: what aged out becomes inactive, mapped as it is.
    pub(super) fn active(&mut self, pages: &mut Pages, free: usize) {
        let inactive = pages.queued(Queue::Inactive) as i64;
        let mut shortage = self.levels.missing(available(pages, free))
            + self.levels.inactive_target as i64
            - inactive
            + self.walk.more;
        let mut left = pages.queued(Queue::Active);
        let mut next = pages.head(Queue::Active);
        while let Some(id) = next
            && left > 0
            && shortage > 0
        {
            left -= 1;
            next = pages.behind(id);
            if self.grows_old(pages, id) == 0 {
                deactivate(pages, id);
                self.counters.deactivated += 1;
                shortage -= 1;
            }
        }
        requeue_before(pages, next);
    }

    /// Ages an active page by its references since the last visit; returns its age.
    fn grows_old(&mut self, pages: &mut Pages, id: PageId) -> u8 {
        self.counters.scanned_active += 1;
        let references = references(pages, id);
        let age = pages.age(id);
        let age = if references > 0 {
            (age + AGE_ADVANCE + references).min(AGE_MAX)
        } else {
            age.saturating_sub(AGE_DECLINE)
        };
        pages.set_age(id, age);
        age
    }

    /// Nobody needs pages: ages a part of the active queue all the same, so that the references of
    /// long ago do not count when they do.
    pub(super) fn sweep(&mut self, pages: &mut Pages, free: usize) {
        let wanted = self.levels.inactive_target + self.levels.cache_max + self.levels.min;
        if wanted <= available(pages, free) + pages.queued(Queue::Inactive) {
            return;
        }
        self.counters.sweeps += 1;
        self.sweeps += 1;
        let active = pages.queued(Queue::Active);
        let memory = free + pages.framed();
        let mut left = if self.sweeps.is_multiple_of(WHOLE_SWEEP) {
            active
        } else {
            active.min(self.levels.target * active / memory.max(1))
        };
        let mut next = pages.head(Queue::Active);
        while let Some(id) = next
            && left > 0
        {
            left -= 1;
            next = pages.behind(id);
            self.counters.scanned_active += 1;
            let (references, age) = (references(pages, id), pages.age(id));
            if references > 0 {
                pages.set_age(id, (age + AGE_ADVANCE + references).min(AGE_MAX));
            } else if age == 0 {
                unmap(pages, id);
                deactivate(pages, id);
                self.counters.deactivated += 1;
            } else {
                pages.set_age(id, age - AGE_DECLINE);
            }
        }
        requeue_before(pages, next);
    }
}

/// A lap of the active queue ended before `next`: what it passed goes to the end, as the kernel moves each page when it has looked at it.
fn requeue_before(pages: &mut Pages, next: Option<PageId>) {
    if let Some(next) = next {
        pages.begin_with(Queue::Active, next);
    }
}

/// References since the last visit: the noted one and that of the mapping.
fn references(pages: &mut Pages, id: PageId) -> u8 {
    let (noted, referenced) = pages.take_references(id);
    u8::from(noted) + u8::from(referenced)
}
