//! What read-ahead may see of slots: those of the store. A page in the pool of compressed pages is none that could be read.

use crate::page::{Pages, State};
use crate::readahead::SlotView;
use crate::units::{PageNo, SlotNo, SlotRange};

/// What read-ahead may see of slots.
pub(super) struct View<'a>(pub(super) &'a Pages);

impl SlotView for View<'_> {
    fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
        if slot.is_pooled() {
            return None;
        }
        let id = self.0.in_slot(slot)?;
        (self.0.state(id) == State::PagedOut).then(|| self.0.number(id))
    }

    fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
        let id = self.0.find(page)?;
        let slot = self.0.slot(id);
        (self.0.state(id) == State::PagedOut && !slot.is_pooled()).then_some(slot)
    }
}

/// Whether each of `slots` holds a page that is paged out.
pub(super) fn all_paged_out(pages: &Pages, slots: SlotRange) -> bool {
    let view = View(pages);
    slots.iter().all(|slot| view.paged_out(slot).is_some())
}
