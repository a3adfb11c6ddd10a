//! What read-ahead may see of slots.

use crate::page::{Pages, State};
use crate::readahead::SlotView;
use crate::units::{PageNo, SlotNo};

/// What read-ahead may see of slots.
pub(super) struct View<'a>(pub(super) &'a Pages);

impl SlotView for View<'_> {
    fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
        let id = self.0.in_slot(slot)?;
        (self.0.state(id) == State::PagedOut).then(|| self.0.number(id))
    }

    fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
        let id = self.0.find(page)?;
        (self.0.state(id) == State::PagedOut).then(|| self.0.slot(id))
    }
}
