//! Where the pager asks its governor how much to read ahead, and tells it what became of it.

use super::{Pager, View};
use crate::page::{PageId, Queue, SAMPLED};
use crate::readahead::{SlotView, Touch, Verdict, Window};
use crate::units::{PageNo, SlotNo, SlotRange};

/// How many of the next `most` slots hold the pages behind that of `fault`, its own included.
fn row(fault: &Touch, most: u32, view: &View<'_>) -> u32 {
    let goes_on = |&n: &u32| {
        let page = fault.page.checked_add(n.into());
        page.is_some() && view.paged_out(SlotNo(fault.slot.0 + n)) == page
    };
    1 + (1..most).take_while(goes_on).count() as u32
}

impl Pager {
    /// What is read for `fault`, for which the policy named `window`.
    pub(super) fn governed(&mut self, window: Window, fault: &Touch) -> Window {
        let Some(governor) = &mut self.governor else {
            return window;
        };
        let stream = self.readahead.stream();
        let slow = governor.slow_stream(fault.page);
        let most = governor.allows(fault.page, stream);
        let scattered = !window.rest.as_slice().is_empty();
        let most = if scattered {
            most.min(governor.scattered_max())
        } else {
            most
        };
        governor.demanded(fault.page, stream);
        let view = View(&self.pages);
        let window = if let Some(pages) = slow {
            self.readahead.shorten(&window, fault, 0, &view);
            let most = pages.min(self.manner.read_max);
            Window::run(SlotRange::new(fault.slot, row(fault, most, &view)))
        } else if window.ahead() <= most {
            window
        } else {
            self.readahead.shorten(&window, fault, most, &view)
        };
        let pages = row(fault, window.now.end().0 - fault.slot.0, &view);
        if let Some(next) = fault.page.checked_add(pages.into()) {
            governor.read_up_to(next, pages);
        }
        window
    }

    /// What is read of `range`, which the policy named when `page` was hit.
    pub(super) fn governed_behind(&mut self, range: SlotRange, page: PageNo) -> Option<SlotRange> {
        let Some(governor) = &mut self.governor else {
            return Some(range);
        };
        let most = governor.allows(page, self.readahead.stream());
        if range.slots <= most {
            return Some(range);
        }
        let view = View(&self.pages);
        self.readahead.shorten_behind(range, most, &view)
    }

    /// Whether `page`, which was read ahead from `slot`, stays staged in place of being mapped along.
    pub(super) fn samples(&mut self, page: PageNo, slot: SlotNo) -> bool {
        self.governor
            .as_mut()
            .is_some_and(|governor| governor.samples(page, slot))
    }

    /// A sampled page that was mapped by itself leaves as it would have without: with its neighbour, so
    /// that their slots stay in order.
    pub(super) fn join_neighbour(&mut self, id: PageId) {
        if !self.pages.has(id, SAMPLED) {
            return;
        }
        self.pages.set_flag(id, SAMPLED, false);
        let active = |&id: &PageId| self.pages.queue(id) == Queue::Active;
        if let Some(below) = self.pages.neighbour(id, -1).filter(active)
            && active(&id)
        {
            self.pages.move_behind(id, below);
        }
    }

    /// A major fault on `page`.
    pub(super) fn missed(&mut self, page: PageNo) {
        if let Some(governor) = &mut self.governor {
            let verdict = governor.missed(page);
            self.judge(verdict);
        }
    }

    /// So many frames were taken, by zeroes or page-ins.
    pub(super) fn took_frames(&mut self, frames: usize) {
        self.pace.taken(frames, self.limits.staged_low);
        let Some(governor) = &mut self.governor else {
            return;
        };
        governor.took(frames as u64);
        while let Some(governor) = &mut self.governor
            && let Some(verdict) = governor.expired()
        {
            self.judge(Some(verdict));
        }
    }

    /// Counts what a sampled page tells of those that it stands for.
    pub(super) fn judge(&mut self, verdict: Option<Verdict>) {
        let Some(verdict) = verdict.filter(|verdict| verdict.others > 0) else {
            return;
        };
        let others = u64::from(verdict.others);
        let object = self.objects.of(verdict.page);
        if verdict.used {
            self.stats.along_used += others;
            object.along_used += others;
        } else {
            self.stats.along_unused += others;
            object.along_unused += others;
        }
        self.stats.along_squares += others * others;
        object.along_squares += others * others;
    }
}
