//! Linux swap read-ahead by slot: an aligned block whose size follows the hits.
//!
//! Linux `mm/swap_state.c`: `swapin_nr_pages`, `__swapin_nr_pages` and `swap_cluster_readahead`,
//! with `vm.page-cluster` as the binary logarithm of the largest window.
//!
//! Where this differs:
//! - The kernel reads every used slot of the block; a window here is one run, so it ends at the
//!   first slot on either side of the fault that is not paged out.
//! - Where touches of pages read ahead cannot be seen, a fault next to the last window, above or
//!   below it, counts as a hit on each of that window's other pages. So the window grows along
//!   ascending and descending streams; the block below a descending one is read as a whole.

use alloc::boxed::Box;

use super::span::{self, Direction};
use super::{Entry, MajorFault, Params, ReadAhead, SlotView, Window};
use crate::units::{Nanos, PageNo, SlotNo, SlotRange};

pub(super) const ENTRY: Entry = Entry {
    name: "linux-slot",
    summary: "an aligned block of slots, the larger the more of the last ones were touched",
    source: "Linux, swap_cluster_readahead",
    // vm.page-cluster = 3.
    max_window: 8,
    build: |params| Box::new(LinuxSlot::new(params)),
};

/// What the kernel's counter of hits starts with.
const FIRST_HITS: u32 = 4;

struct LinuxSlot {
    /// A power of two.
    max_window: u32,
    /// Touches of pages read ahead since the last fault.
    hits: u32,
    /// The last fault without hits before it.
    previous: Option<SlotNo>,
    /// The size of the last window before it was cut to what is paged out, in slots.
    last_size: u32,
    /// The last window.
    last: Option<SlotRange>,
}

impl LinuxSlot {
    fn new(params: Params) -> Self {
        let max = params.checked_max_window();
        Self {
            // Blocks are aligned, so a limit between two powers of two means the lower one.
            max_window: 1 << max.ilog2(),
            hits: FIRST_HITS,
            previous: None,
            last_size: 0,
            last: None,
        }
    }

    /// The direction in which a fault at `slot` goes on from the last window.
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

    /// The size of the next block, in slots (`__swapin_nr_pages`).
    fn size(&self, hits: u32, slot: SlotNo) -> u32 {
        let wanted = if hits == 0 {
            let near = self
                .previous
                .is_some_and(|previous| previous.0.abs_diff(slot.0) == 1);
            if near { 2 } else { 1 }
        } else {
            (hits + 2).next_power_of_two().max(4)
        };
        wanted.min(self.max_window).max(self.last_size / 2)
    }
}

impl ReadAhead for LinuxSlot {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn major_fault(&mut self, fault: &MajorFault, view: &dyn SlotView) -> Window {
        if self.max_window == 1 {
            return Window::one(fault.slot);
        }
        let towards = self.continues(fault.slot);
        let mut hits = core::mem::take(&mut self.hits);
        if let (0, Some(_), Some(last)) = (hits, towards, self.last) {
            hits = last.slots - 1;
        }
        let size = self.size(hits, fault.slot);
        if hits == 0 {
            self.previous = Some(fault.slot);
        }
        self.last_size = size;

        let start = fault.slot.0 & !(size - 1);
        let below = fault.slot.0 - start;
        // Both counts include the fault's own slot.
        let down = span::paged_out(view, fault.slot, Direction::Down, below + 1).max(1);
        let up = span::paged_out(view, fault.slot, Direction::Up, size - below).max(1);
        let now = SlotRange::new(SlotNo(fault.slot.0 + 1 - down), down + up - 1);
        self.last = Some(now);
        Window {
            now,
            behind: None,
            downward: towards == Some(Direction::Down),
        }
    }

    fn hit(&mut self, _: Nanos, _: PageNo, _: SlotNo, _: &dyn SlotView) -> Option<SlotRange> {
        self.hits = self.hits.saturating_add(1);
        None
    }
}
