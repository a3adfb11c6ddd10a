//! Events on ranges: pages found, unmapped, discarded.

use super::{Kind, Pager};
use crate::contract::Action;
use crate::page::{Bit, State};
use crate::reclaim::Mapped;
use crate::units::PageRange;

impl Pager {
    /// Pages that were resident before the pager began.
    pub(super) fn adopt(&mut self, range: PageRange) {
        for page in range.iter() {
            if self.pages.find(page).is_none() {
                let id = self.pages.create(page, State::Resident);
                self.pages.set_bit(id, Bit::Modified, true);
                self.reclaim.mapped(&mut self.pages, id, Mapped::Fresh);
            }
        }
    }

    /// Drops the contents of `range`, frames and slots, without I/O.
    pub(super) fn discard(&mut self, range: PageRange) {
        let mut ids = core::mem::take(&mut self.scratch);
        ids.clear();
        self.pages.collect_range(range, &mut |id| ids.push(id));
        // The order of the leaves depends on when they were allocated, actions must not.
        ids.sort_unstable_by_key(|&id| self.pages.number(id));
        let mut op = None;
        for &id in &ids {
            let page = self.pages.number(id);
            match self.pages.state(id) {
                State::Resident | State::PagedOut | State::Poisoned => {}
                State::Staged => {
                    let op = *op.get_or_insert_with(|| self.start(Kind::Release, range));
                    self.ops[op].add(id, page);
                }
                busy => panic!("{page:?} discarded while {busy:?}"),
            }
            self.drop_page(id);
            self.stats.discarded += 1;
        }
        self.scratch = ids;
        if let Some(id) = op {
            let release = self.ops.releases(id);
            self.actions.push_back(release);
        }
        self.wake_whose_page_is_gone(range);
    }

    /// Whoever waits for a frame for a page that is gone tries again.
    pub(super) fn wake_whose_page_is_gone(&mut self, range: PageRange) {
        while let Some(demand) = self.waits.take_for_frame_in(range) {
            self.actions.push_back(Action::Wake {
                waiter: demand.waiter,
                page: demand.page,
            });
        }
    }
}
