//! Linux swap read-ahead by slot: an aligned block whose size follows the hits.
//!
//! Linux `mm/swap_state.c`: `swapin_nr_pages`, `__swapin_nr_pages` and `swap_cluster_readahead`,
//! with `vm.page-cluster` as the binary logarithm of the largest window.
//!
//! Every slot of the block is read that is paged out. Before Linux 3.14 the block was always the
//! largest; `block=fixed` does that. (Until 3.5 it also ended at the first slot that was not in
//! use; slots whose pages are in memory too cannot be told from those here, so it does not.)
//!
//! Where this differs: when pages that are read along are mapped ([`Arrival::Mapped`]), touches of
//! them are not seen. Then a fault next to the run that was read last, above or below it, counts as
//! a hit on each of its other pages, so that the window grows along streams all the same.

use alloc::boxed::Box;

use super::common::{ARRIVAL_STAGED, DEMAND_FIRST, GOVERN, MAX, PAGE_CLUSTER};
use super::span::{self, Direction};
use super::{Arrival, Entry, Manner, ReadAhead, SlotView, Touch, Window, linux};
use crate::settings::{Allowed, Setting, Values};
use crate::units::{SlotNo, SlotRange};

pub(super) const ENTRY: Entry = Entry {
    name: "linux-slot",
    summary: "an aligned block of slots, the larger the more of the last ones were touched",
    source: "Linux, swap_cluster_readahead",
    needs_touches: false,
    little: None,
    settings: &[
        // vm.page-cluster = 3.
        &Setting { default: 8, ..MAX },
        &PAGE_CLUSTER,
        &BLOCK,
        &ARRIVAL_STAGED,
        &DEMAND_FIRST,
        &GOVERN,
    ],
    at_most: &[],
    build: |values, manner| Box::new(LinuxSlot::new(values, manner)),
};

/// How blocks are sized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlockRule {
    /// By the hits since the last fault (Linux from 3.14 on).
    Hits,
    /// Always the largest (before Linux 3.14).
    Fixed,
}

static BLOCK: Setting = Setting {
    name: "block",
    summary: "how the block is sized",
    allowed: Allowed::Words(&["hits", "fixed"]),
    default: BlockRule::Hits as u32,
};

struct LinuxSlot {
    manner: Manner,
    block: BlockRule,
    /// A power of two.
    max_window: u32,
    /// Touches of pages read ahead since the last fault.
    hits: u32,
    /// The last fault without hits before it.
    previous: Option<SlotNo>,
    /// The size of the last window before it was cut to what is paged out, in slots.
    last_size: u32,
    /// The run that was read last.
    last: Option<SlotRange>,
}

impl LinuxSlot {
    fn new(values: &Values, manner: Manner) -> Self {
        Self {
            manner,
            block: values.word(BLOCK.name, &[BlockRule::Hits, BlockRule::Fixed]),
            // Blocks are aligned, so a limit between two powers of two means the lower one.
            max_window: 1 << manner.read_max.ilog2(),
            hits: linux::FIRST_HITS,
            previous: None,
            last_size: 0,
            last: None,
        }
    }

    /// The direction in which a fault at `slot` goes on from the run that was read last.
    fn continues(&self, slot: SlotNo) -> Option<Direction> {
        let last = self.last?;
        if slot == last.end() {
            Some(Direction::Up)
        } else if slot.0 + 1 == last.start.0 {
            Some(Direction::Down)
        } else {
            None
        }
    }

    /// The size of the block for a fault at `slot`, in slots.
    fn size(&mut self, slot: SlotNo, continues: bool) -> u32 {
        if self.block == BlockRule::Fixed {
            return self.max_window;
        }
        let mut hits = core::mem::take(&mut self.hits);
        if let (0, Arrival::Mapped, true, Some(last)) =
            (hits, self.manner.arrival, continues, self.last)
        {
            hits = last.slots - 1;
        }
        let previous = self.previous.map(|slot| u64::from(slot.0));
        let size = linux::size(
            previous,
            slot.0.into(),
            hits,
            self.max_window,
            self.last_size,
        );
        if hits == 0 {
            self.previous = Some(slot);
        }
        self.last_size = size;
        size
    }
}

impl ReadAhead for LinuxSlot {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn manner(&self) -> Manner {
        self.manner
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        if self.max_window == 1 {
            return Window::one(fault.slot);
        }
        let towards = self.continues(fault.slot);
        let size = self.size(fault.slot, towards.is_some());
        let start = fault.slot.0 & !(size - 1);
        let window = span::all_out(view, fault.slot, start..=start + (size - 1));
        self.last = Some(window.now);
        Window {
            downward: towards == Some(Direction::Down),
            size,
            ..window
        }
    }

    fn hit(&mut self, _: &Touch, _: &dyn SlotView) -> Option<SlotRange> {
        self.hits = self.hits.saturating_add(1);
        None
    }
}
