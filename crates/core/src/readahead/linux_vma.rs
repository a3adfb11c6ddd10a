//! Linux swap read-ahead by virtual address: neighbours in memory, wherever their slots are.
//!
//! Linux `mm/swap_state.c`: `swap_vma_readahead`, `swap_vma_ra_win`, `__swapin_nr_pages`. Used by
//! the kernel where every swap device is solid state. The window begins at the fault when it
//! follows the last access, ends there when it precedes it, and lies around it otherwise; it stays
//! in the area and in the fault's table of 512 pages. Every touch of a page in the swap cache moves
//! the last access; one of a page that was read ahead is a hit.
//!
//! Where this differs: a memory object stands for the area, and the most recently used
//! [`OBJECTS`] are remembered. Tables are counted from the object's first page. The kernel also
//! moves the last access at touches of cached pages that it did not read ahead; here they are not
//! told to read-ahead.

use alloc::boxed::Box;

use super::common::{GOVERN, MAX, PAGE_CLUSTER};
use super::{Entry, Manner, ReadAhead, SlotView, Touch, Window, linux};
use crate::settings::{Allowed, Setting};
use crate::units::{ObjectId, PageNo, SlotRange};

pub(super) const ENTRY: Entry = Entry {
    name: "linux-vma",
    summary: "neighbours in memory, the more of them the more of the last ones were touched",
    source: "Linux, swap_vma_readahead",
    needs_touches: true,
    little: None,
    settings: &[
        // vm.page-cluster = 3.
        &Setting {
            allowed: Allowed::Numbers(1, CEILING),
            default: 8,
            ..MAX
        },
        &Setting {
            allowed: Allowed::Numbers(0, CEILING.ilog2()),
            ..PAGE_CLUSTER
        },
        &GOVERN,
    ],
    at_most: &[],
    build: |_, manner| Box::new(LinuxVma::new(manner)),
};

/// The kernel reads at most 2^5 pages (`SWAP_RA_ORDER_CEILING`).
const CEILING: u32 = 32;

/// Pages that one page table maps (`PMD_SIZE`).
const TABLE_PAGES: u64 = 512;

/// Objects that are remembered; the kernel keeps this in each area.
const OBJECTS: usize = 64;

/// What the kernel packs into `swap_readahead_info`.
#[derive(Clone, Copy)]
struct Area {
    object: ObjectId,
    /// Index of the last access.
    last: Option<u64>,
    window: u32,
    hits: u32,
}

struct LinuxVma {
    manner: Manner,
    max_window: u32,
    /// Most recently used first.
    areas: [Area; OBJECTS],
    known: usize,
}

impl LinuxVma {
    fn new(manner: Manner) -> Self {
        let unused = Area {
            object: ObjectId(0),
            last: None,
            window: 0,
            hits: 0,
        };
        Self {
            manner,
            max_window: 1 << manner.read_max.ilog2(),
            areas: [unused; OBJECTS],
            known: 0,
        }
    }

    /// What is known of `object`, moved to the front.
    fn area(&mut self, object: ObjectId) -> &mut Area {
        let found = self.areas[..self.known]
            .iter()
            .position(|area| area.object == object);
        let at = found.unwrap_or_else(|| {
            self.known = (self.known + 1).min(OBJECTS);
            self.areas[self.known - 1] = Area {
                object,
                last: None,
                window: 0,
                hits: linux::FIRST_HITS,
            };
            self.known - 1
        });
        self.areas[..=at].rotate_right(1);
        &mut self.areas[0]
    }
}

/// The indices of the window of `size` pages for a fault at `at` after an access at `last`.
fn indices(last: Option<u64>, at: u64, size: u32) -> core::ops::Range<u64> {
    let (index, pages) = (at as i64, i64::from(size));
    let left = match last.map(|last| index - last as i64) {
        Some(1) => index,
        Some(-1) => index + 1 - pages,
        _ => index - (pages - 1) / 2,
    };
    let table = at / TABLE_PAGES * TABLE_PAGES;
    let (left, right) = (left.max(0) as u64, (left + pages) as u64);
    left.max(table)..right.min(table + TABLE_PAGES)
}

impl ReadAhead for LinuxVma {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn manner(&self) -> Manner {
        self.manner
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        let max = self.max_window;
        if max == 1 {
            return Window::one(fault.slot);
        }
        let (object, at) = (fault.page.object(), fault.page.index());
        let area = self.area(object);
        let size = linux::size(area.last, at, area.hits, max, area.window);
        let range = indices(area.last, at, size);
        (area.last, area.window, area.hits) = (Some(at), size, 0);
        let mut slots = [0; CEILING as usize];
        let mut count = 0;
        for index in range {
            let slot = if index == at {
                Some(fault.slot)
            } else {
                let base = PageNo::new(object, 0);
                base.checked_add(index).and_then(|page| view.slot_of(page))
            };
            if let Some(slot) = slot {
                slots[count] = slot.0;
                count += 1;
            }
        }
        let window = Window::of(fault.slot, &mut slots[..count]);
        Window { size, ..window }
    }

    fn hit(&mut self, touch: &Touch, _: &dyn SlotView) -> Option<SlotRange> {
        if self.max_window > 1 {
            let area = self.area(touch.page.object());
            area.last = Some(touch.page.index());
            area.hits = area.hits.saturating_add(1);
        }
        None
    }
}
