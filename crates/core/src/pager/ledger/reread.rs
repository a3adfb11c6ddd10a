//! Reads that failed are tried again, page by page, and then the page is poisoned.

use super::super::ops::Kind;
use super::Ledger;
use crate::contract::{Action, ActionId, Waiter};
use crate::page::{PageId, READ_AHEAD, State};
use crate::units::{PageNo, PageRange, SlotNo, SlotRange};

/// Times that a page is read again before it counts as lost: an error on the way may pass, one on
/// the medium does not. At once, for drivers have waited and tried again before they report an error
/// (`SD_MAX_RETRIES` in drivers/scsi/sd.h and `nvme_core.max_retries`: 5 times).
pub(in super::super) const READ_TRIES: u8 = 4;

impl Ledger {
    /// The store could not give the pages back. Each one may still be read by itself, so that
    /// one bad slot does not cost its neighbours.
    pub fn page_in_failed(&mut self, op: ActionId) {
        self.stats.read_errors += 1;
        let tries = self.ops[op].tries;
        let ids = self.ops[op].lend_ids();
        for &id in &ids {
            self.read_again(id, tries);
        }
        self.ops[op].return_ids(ids);
    }

    /// Reads one page once more, unless that was tried often enough: `tries` times before.
    pub fn read_again(&mut self, id: PageId, tries: u8) {
        if tries >= READ_TRIES {
            return self.lost(id);
        }
        let (page, slot) = (self.pages.number(id), self.pages.slot(id));
        let op = self.start(Kind::PageIn, PageRange::one(page));
        self.ops[op].tries = tries + 1;
        self.ops[op].add(id, page);
        self.ops[op].must_have(self.pages.hash(id));
        self.page_in(op, SlotRange::new(slot, 1));
    }

    /// The content of a page is lost: whoever touches it gets a signal, never zeroes.
    pub fn lost(&mut self, id: PageId) {
        self.stats.lost += 1;
        let (page, slot) = (self.pages.number(id), self.pages.slot(id));
        self.stats.read_ahead_dropped += u64::from(self.pages.has(id, READ_AHEAD));
        self.pages.set_state(id, State::Poisoned);
        self.pages.clear_read_ahead(id);
        self.pages.set_slot(id, SlotNo::NONE);
        // A place in the pool is no part of a disk that is bad: whoever took it out gives it back.
        if !slot.is_pooled() {
            self.slots.retire();
        }
        self.ask_for_signal(page);
    }

    /// A touch of a page whose content is lost: the waiter goes on, to its signal, when that is known to the body.
    pub fn poison(&mut self, page: PageNo, waiter: Waiter) {
        self.waits.for_page(page, waiter);
        self.ask_for_signal(page);
    }

    fn ask_for_signal(&mut self, page: PageNo) {
        let id = self.start(Kind::Poison, PageRange::one(page));
        self.actions.push_back(Action::Poison { id, page });
    }

    /// The page signals from now on: whoever waits for it goes on.
    pub fn poisoned(&mut self, op: ActionId) {
        self.wake(self.ops[op].run.start);
    }
}
