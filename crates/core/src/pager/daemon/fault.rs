//! What a fault leads to under a daemon. FreeBSD `vm/vm_fault.c:vm_fault`.

use super::super::{Demand, Kind, Pager, View};
use crate::contract::{Access, Action, Source};
use crate::page::{Bit, COLLECTED, DIRTY, PageId, Queue, READ_AHEAD, State};
use crate::readahead::Touch;
use crate::reclaim::bsd::{self, Buffered, Release};
use crate::units::{PageNo, PageRange, SlotNo, SlotRange};

/// Pages on either side of a fault that are mapped along when they are in memory (`PFFOR`, `PFBAK`).
const AROUND: i64 = 4;

impl Pager {
    pub(super) fn fault_under_daemon(&mut self, demand: Demand) {
        let Some(id) = self.pages.find(demand.page) else {
            return self.first_touch(demand);
        };
        match self.pages.state(id) {
            State::PagedOut => self.hard_fault(id, demand),
            State::Resident if self.opens(id, demand.access) => {
                self.stats.minor_faults += u64::from(!demand.retried);
                self.stats.spurious_faults += 1;
                self.let_go(demand);
            }
            State::Resident | State::Staged => self.soft_fault(id, demand),
            State::Reading | State::Mapping | State::Writing => self.sleep_on(id, demand),
            State::Poisoned => {
                self.poison(demand.page, demand.waiter);
            }
            State::Untouched | State::Detaching => {
                unreachable!("no entry, and a daemon detaches nothing")
            }
        }
    }

    /// Whether the page's mapping allows the access.
    fn opens(&self, id: PageId, access: Access) -> bool {
        access == Access::Read || self.pages.bit(id, Bit::Writable)
    }

    pub(super) fn let_go(&mut self, demand: Demand) {
        self.actions.push_back(Action::Wake {
            waiter: demand.waiter,
            page: demand.page,
        });
    }

    /// The page is busy: the fault starts again when it is not.
    fn sleep_on(&mut self, id: PageId, demand: Demand) {
        if !demand.retried {
            self.stats.minor_faults += 1;
            let reading = self.pages.state(id) == State::Reading;
            self.stats.late_hits += u64::from(reading);
            let late = reading && self.pages.has(id, READ_AHEAD);
            self.stats.read_ahead_late += u64::from(late);
        }
        self.waits.sleep(demand);
    }

    /// The first touch of a page.
    fn first_touch(&mut self, demand: Demand) {
        if self.severe() || !self.allocate() {
            return self.wait_for_memory(demand);
        }
        self.stats.minor_faults += u64::from(!demand.retried);
        // Only an object that was paged out asks for pages, and so notices that it is sequential.
        if self.swap_objects.contains(&demand.page.object()) {
            self.readahead.untouched_fault(demand.page);
            self.drop_behind(demand.page);
        }
        let run = PageRange::one(demand.page);
        self.pages.create(demand.page, State::Mapping);
        self.stats.zero_fills += 1;
        self.waits.sleep(demand);
        let id = self.start(Kind::ZeroFill, run);
        let after = self.ops.release();
        self.actions.push_back(Action::ZeroFill { id, run, after });
    }

    /// The page is in memory: no read.
    fn soft_fault(&mut self, id: PageId, demand: Demand) {
        if self.pages.has(id, COLLECTED) {
            if self.daemon_mut().params().buffered == Buffered::Busy {
                return self.sleep_on(id, demand);
            }
            self.unbuffer(id);
        }
        if self.pages.queue(id) == Queue::Cache && !self.leaves_cache(id) {
            return self.wait_for_memory(demand);
        }
        self.stats.minor_faults += u64::from(!demand.retried);
        self.stats.rescues += u64::from(self.pages.state(id) == State::Staged);
        self.pages.unqueue(id);
        self.hit_under_daemon(id, demand.source);
        self.enter(id, demand);
    }

    /// A fault found its page in the cache. False when memory is too short for it to go on.
    fn leaves_cache(&mut self, id: PageId) -> bool {
        let severe = self.severe();
        let available = self.available();
        match self.release() {
            Release::V6_2 => {
                self.pages.unqueue(id);
                self.taken(available - 1);
                if severe {
                    bsd::activate(&mut self.pages, id);
                    return false;
                }
            }
            // Taken like a free frame, as which it forgot how it was used.
            Release::V8_2 => {
                if severe {
                    return false;
                }
                self.pages.unqueue(id);
                self.pages.set_age(id, 0);
                self.pages.set_bit(id, Bit::Noted, false);
                self.pages.set_bit(id, Bit::Seen, false);
                self.taken(available - 1);
            }
        }
        self.daemon_mut().counters_mut().cache_hits += 1;
        true
    }

    /// The end of a fault: the page, in memory and on any queue, is mapped, active and referenced.
    pub(super) fn enter(&mut self, id: PageId, demand: Demand) {
        let write = demand.access == Access::Write;
        if write {
            self.pages.set_flag(id, DIRTY, true);
            self.give_back_slot_under_daemon(id);
            if self.release() == Release::V8_2 {
                self.pages.set_bit(id, Bit::Modified, true);
            }
        }
        if self.pages.state(id) != State::Resident {
            self.pages.set_state(id, State::Resident);
        }
        // An anonymous page that was read may be written too: its slot grows stale unnoticed.
        self.pages.set_entered(id);
        self.pages.unqueue(id);
        bsd::activate(&mut self.pages, id);
        self.map_neighbours(id, demand.extent);
        self.let_go(demand);
    }

    /// Maps what is in memory next to a fault, read-only and unreferenced (`vm_fault_prefault`).
    fn map_neighbours(&mut self, id: PageId, extent: PageRange) {
        let (page, release) = (self.pages.number(id), self.release());
        let below = page.raw() - extent.start.raw().min(page.raw());
        let above = (extent.start.raw() + extent.pages).saturating_sub(page.raw() + 1);
        for step in 1..=AROUND {
            for distance in [-step, step] {
                let room = if distance < 0 { below } else { above };
                if step as u64 > room {
                    continue;
                }
                let Some(near) = self.pages.neighbour(id, distance) else {
                    return;
                };
                match self.pages.state(near) {
                    State::Resident | State::Reading | State::Mapping => {}
                    State::Writing if release == Release::V8_2 => {
                        self.pages.set_bit(near, Bit::Mapped, true);
                    }
                    State::Writing => {}
                    State::Staged if self.pages.queue(near) == Queue::Cache => match release {
                        Release::V6_2 => {
                            bsd::deactivate(&mut self.pages, near);
                            let available = self.available();
                            self.taken(available);
                            self.map_read_only(near);
                        }
                        Release::V8_2 => return,
                    },
                    State::Staged if self.pages.has(near, COLLECTED) => {}
                    State::Staged => self.map_read_only(near),
                    _ => return,
                }
            }
        }
    }

    fn map_read_only(&mut self, id: PageId) {
        self.pages.set_state(id, State::Resident);
        if self.pages.has(id, READ_AHEAD) {
            self.pages.clear_read_ahead(id);
            self.stats.read_ahead_mapped += 1;
        }
    }

    /// A sequential fault puts away what lies before it: dirty pages to the inactive queue, clean
    /// ones to the cache.
    fn drop_behind(&mut self, page: PageNo) {
        let most = self.readahead.drops_behind();
        if most == 0 {
            return;
        }
        let mut next = page.checked_sub(1).and_then(|page| self.pages.find(page));
        for _ in 0..most {
            let Some(id) = next else { return };
            next = self.pages.neighbour(id, -1);
            let cached = self.pages.queue(id) == Queue::Cache;
            match self.pages.state(id) {
                State::Writing => {}
                State::Resident | State::Staged if self.pages.has(id, COLLECTED) => {}
                State::Staged if cached && self.release() == Release::V6_2 => {}
                State::Resident | State::Staged if !cached => self.put_away(id),
                _ => return,
            }
        }
    }

    fn put_away(&mut self, id: PageId) {
        bsd::unmap(&mut self.pages, id);
        if self.pages.has(id, DIRTY) {
            let stays = self.pages.queue(id) == Queue::Inactive;
            self.daemon_mut().counters_mut().dropped_behind += u64::from(!stays);
            bsd::deactivate(&mut self.pages, id);
        } else {
            self.daemon_mut().counters_mut().dropped_behind += 1;
            self.pages.unqueue(id);
            self.put_in_cache(id);
        }
    }

    /// A page that read-ahead brought is wanted.
    fn hit_under_daemon(&mut self, id: PageId, source: Source) {
        if !self.pages.has(id, READ_AHEAD) {
            return;
        }
        self.pages.clear_read_ahead(id);
        self.stats.read_ahead_hits += 1;
        let touch = Touch {
            now: self.now,
            page: self.pages.number(id),
            slot: self.pages.slot(id),
            source,
        };
        self.objects.of(touch.page).hits += 1;
        let view = View(&self.pages);
        if let Some(next) = self.readahead.hit(&touch, &view) {
            self.read_unasked(next);
        }
    }

    /// A page that is only in its slot: reads the window that read-ahead chooses, as far as frames
    /// can be had without waiting.
    fn hard_fault(&mut self, id: PageId, demand: Demand) {
        if self.severe() || !self.allocate() {
            return self.wait_for_memory(demand);
        }
        self.stats.major_faults += 1;
        let slot = self.pages.slot(id);
        self.objects.of(demand.page).major_faults += 1;
        let fault = Touch {
            now: self.now,
            page: demand.page,
            slot,
            source: demand.source,
        };
        let view = View(&self.pages);
        let window = self.readahead.major_fault(&fault, &view);
        self.stats.windows.count(window.size);
        self.drop_behind(demand.page);
        self.pages.set_state(id, State::Reading);
        self.waits.sleep(demand);
        let run = self.take_window(window.now, slot);
        self.read_window(run, Some(demand.page));
        for &other in window.rest.as_slice() {
            self.read_unasked(other);
        }
        if let Some(next) = window.behind {
            self.read_unasked(next);
        }
    }

    /// Takes frames for the other slots of the window; returns the part that got some.
    fn take_window(&mut self, window: SlotRange, slot: SlotNo) -> SlotRange {
        let others = (window.slots - 1) as usize;
        let grants = self.grants();
        let reserved = self.daemon_mut().levels().reserved;
        if self.release() == Release::V6_2 {
            if others > self.available().saturating_sub(reserved) {
                self.daemon_mut().wake();
                return SlotRange::new(slot, 1);
            }
            if others > grants {
                self.daemon_mut().failed();
                return SlotRange::new(slot, 1);
            }
        } else if others > grants {
            self.daemon_mut().failed();
        }
        let before = ((slot.0 - window.start.0) as usize).min(grants) as u32;
        let after = (window.end().0 - slot.0 - 1).min(grants as u32 - before);
        let taken = SlotRange::new(SlotNo(slot.0 - before), before + 1 + after);
        for other in taken.iter().filter(|&other| other != slot) {
            let granted = self.allocate();
            debug_assert!(granted, "as many as were granted");
            self.mark_read_ahead(other);
        }
        taken
    }

    fn mark_read_ahead(&mut self, slot: SlotNo) {
        let id = self
            .pages
            .in_slot(slot)
            .expect("read-ahead named an empty slot");
        self.pages.set_state(id, State::Reading);
        self.pages.set_flag(id, READ_AHEAD, true);
    }

    /// Reads slots nobody waits for, unless that would leave the daemon work.
    fn read_unasked(&mut self, slots: SlotRange) {
        let view = View(&self.pages);
        let all_out = slots
            .iter()
            .all(|s| crate::readahead::SlotView::paged_out(&view, s).is_some());
        let left = self.available().saturating_sub(slots.slots as usize);
        if slots.slots == 0 || !all_out || left < self.daemon_mut().levels().wake() {
            return;
        }
        for slot in slots.iter() {
            let granted = self.allocate();
            debug_assert!(granted, "far above the reserve");
            self.mark_read_ahead(slot);
        }
        self.read_window(slots, None);
    }

    fn read_window(&mut self, slots: SlotRange, demanded: Option<PageNo>) {
        let run = demanded.map_or(PageRange::new(PageNo::from_raw(0), 0), PageRange::one);
        let op = self.start(Kind::PageIn, run);
        self.ops[op].slots = slots;
        for slot in slots.iter() {
            let id = self.pages.in_slot(slot).expect("just taken");
            let page = self.pages.number(id);
            self.objects.read(page, demanded == Some(page));
            let hash = self.pages.hash(id);
            self.ops[op].add(id, page);
            self.ops[op].must_have(hash);
        }
        self.stats.page_in_reads += 1;
        self.stats.page_ins += u64::from(slots.slots);
        self.stats.read_ahead += u64::from(slots.slots) - u64::from(demanded.is_some());
        let (pages, after) = (self.ops.told(op), self.ops.release());
        self.actions.push_back(Action::PageIn {
            id: op,
            slots,
            pages,
            after,
        });
    }
}
