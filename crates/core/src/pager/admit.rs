//! Whether an event makes sense now. A body knows; what reads events from a file asks.

use super::Pager;
use super::ops::Kind;
use crate::contract::{ActionId, Event, Outcome, PageOutcome, Refusal};
use crate::limits::FRAMES_MIN;
use crate::units::{PageRange, SlotRange};

impl Pager {
    /// Whether [`Self::handle`] takes `event` without a panic: no programmer's error, as the body that
    /// it comes from sees to.
    #[must_use]
    pub fn admits(&self, event: &Event<'_>) -> bool {
        match *event {
            Event::Done { id, outcome } => self.answers(id, outcome),
            Event::Adopt(range)
            | Event::Unmap(range)
            | Event::Discard(range)
            | Event::Freeing(range) => !self.busy(range),
            Event::Grown(range) => self.ledger.slots.admits(range) && !self.holds_any(range),
            Event::Limit(frames) => frames >= FRAMES_MIN,
            Event::Forked => self.ledger.ops.unanswered() == 0,
            Event::TakeBack(range) => !self.drops(range),
            Event::Fault { .. }
            | Event::Left(_)
            | Event::Discardable(_)
            | Event::Freed(_)
            | Event::Flush(_)
            | Event::Advise(..)
            | Event::Full
            | Event::Forking
            | Event::ChildrenGone
            | Event::Tick
            | Event::Timer => true,
            Event::Pooled(_) => self.ledger.tier.policy.is_some(),
        }
    }

    /// Whether an unanswered action throws pages of `range` away.
    fn drops(&self, range: PageRange) -> bool {
        let mut ops = self.ledger.ops.iter();
        ops.any(|op| op.kind == Kind::Drop && op.run.iter().any(|page| range.contains(page)))
    }

    /// Whether a page is in one of `slots`, which may be those of a forefather.
    fn holds_any(&self, slots: SlotRange) -> bool {
        let mut any = false;
        let mut look = |slot| any |= (slots.start..slots.end()).contains(&slot);
        self.ledger.slots.each_in_use(&self.ledger.pages, &mut look);
        any
    }

    /// Whether action `id` awaits an answer such as `outcome`.
    fn answers(&self, id: ActionId, outcome: Outcome<'_>) -> bool {
        let Some(op) = self.ledger.ops.get(id) else {
            return false;
        };
        let one_a_page = |pages: &[PageOutcome], fits: fn(&PageOutcome) -> bool| {
            pages.len() as u64 == op.run.pages && pages.iter().all(fits)
        };
        let read = |page: &PageOutcome| {
            matches!(
                page,
                PageOutcome::Done
                    | PageOutcome::Refused(Refusal::Damaged | Refusal::Unread | Refusal::Gone)
            )
        };
        let kept = |page: &PageOutcome| {
            matches!(
                page,
                PageOutcome::Kept { .. } | PageOutcome::Refused(Refusal::Unfit | Refusal::NoRoom)
            )
        };
        match (op.kind, outcome) {
            (Kind::Compress, Outcome::Pages(pages)) => {
                pages.len() == op.count() && pages.iter().all(kept)
            }
            (Kind::Decompress | Kind::Demote, Outcome::Pages(pages)) => {
                pages.len() == op.count() && pages.iter().all(read)
            }
            (Kind::Decompress | Kind::Demote, Outcome::Done) => true,
            (Kind::ZeroFill | Kind::Map | Kind::MapNeeded, Outcome::Pages(pages)) => {
                one_a_page(pages, |page| match page {
                    PageOutcome::Done => true,
                    PageOutcome::Refused(why) => of_maps(*why),
                    PageOutcome::Detached { .. }
                    | PageOutcome::Kept { .. }
                    | PageOutcome::Unhashed => false,
                })
            }
            (Kind::Detach | Kind::Flush | Kind::Cold, Outcome::Pages(pages)) => {
                let bits = self.ledger.pages.has_bits();
                pages.len() as u64 == op.run.pages
                    && pages.iter().all(|page| match page {
                        PageOutcome::Detached { .. } => true,
                        PageOutcome::Refused(why) => of_maps(*why),
                        PageOutcome::Unhashed => bits,
                        PageOutcome::Done | PageOutcome::Kept { .. } => false,
                    })
            }
            (Kind::Drop, Outcome::Pages(pages)) => one_a_page(pages, |page| match page {
                PageOutcome::Done => true,
                PageOutcome::Refused(why) => of_maps(*why),
                _ => false,
            }),
            // A daemon's bodies have no contents that could be damaged.
            (Kind::PageIn | Kind::Needed, Outcome::Pages(pages)) if self.daemon().is_none() => {
                pages.len() == op.count() && pages.iter().all(read)
            }
            (Kind::PageIn | Kind::Needed | Kind::PageOut, Outcome::Done | Outcome::Failed(_)) => {
                true
            }
            (Kind::Release | Kind::Dead | Kind::Cede | Kind::Poison, Outcome::Done) => true,
            _ => false,
        }
    }
}

/// Whether a mapping or a detach is refused so.
const fn of_maps(why: Refusal) -> bool {
    matches!(
        why,
        Refusal::Busy | Refusal::Absent | Refusal::Present | Refusal::Gone
    )
}
