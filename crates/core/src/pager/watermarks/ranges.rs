//! Events on ranges: pages found, unmapped, discarded.

use super::eviction::Eviction;
use crate::page::{Bit, State};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::range::Ranges;
use crate::reclaim::Mapped;
use crate::units::PageRange;

impl Ranges {
    /// Pages that were resident before the pager began.
    pub(in crate::pager::watermarks) fn adopt(
        &self,
        ledger: &mut Ledger,
        eviction: &mut Eviction,
        range: PageRange,
    ) {
        for page in range.iter() {
            if ledger.pages.find(page).is_none() {
                let id = ledger.pages.create(page, State::Resident);
                ledger.pages.set_bit(id, Bit::Modified, true);
                eviction
                    .reclaim
                    .mapped(&mut ledger.pages, id, Mapped::Fresh);
            }
        }
    }

    /// Drops the contents of `range`, frames and slots, without I/O.
    pub fn discard(&mut self, ledger: &mut Ledger, range: PageRange) {
        let ids = self.gather(&ledger.pages, range);
        let mut op = None;
        for &id in &ids {
            let page = ledger.pages.number(id);
            match ledger.pages.state(id) {
                State::Resident | State::PagedOut | State::Poisoned => {}
                State::Staged => {
                    let op = *op.get_or_insert_with(|| ledger.start(Kind::Release, range));
                    ledger.ops[op].add(id, page);
                }
                busy => panic!("{page:?} discarded while {busy:?}"),
            }
            ledger.drop_page(id);
            ledger.stats.discarded += 1;
        }
        self.put_back(ids);
        ledger.discarding.marks.drop_range(range);
        ledger.release(op);
        ledger.wake_whose_page_is_gone(range);
    }
}
