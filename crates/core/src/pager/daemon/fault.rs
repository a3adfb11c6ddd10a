//! What a fault leads to. FreeBSD `vm/vm_fault.c:vm_fault`.

use super::PageDaemon;
use super::reserve::Reserve;
use crate::contract::{Access, Source};
use crate::page::{Bit, COLLECTED, DIRTY, PageId, Pages, Queue, READ_AHEAD, State};
use crate::pager::ledger::Ledger;
use crate::pager::ops::Kind;
use crate::pager::view::all_paged_out;
use crate::pager::waits::Demand;
use crate::reclaim::bsd::{self, Buffered, Release};
use crate::units::{PageNo, PageRange, SlotNo, SlotRange};

/// Pages on either side of a fault that are mapped along when they are in memory (`PFFOR`, `PFBAK`).
const AROUND: i64 = 4;

impl PageDaemon {
    pub fn fault(&mut self, ledger: &mut Ledger, demand: Demand) {
        let Some(id) = ledger.pages.find(demand.page) else {
            return self.first_touch(ledger, demand);
        };
        match ledger.pages.state(id) {
            State::PagedOut => self.hard_fault(ledger, id, demand),
            State::Resident if opens(&ledger.pages, id, demand.access) => {
                ledger.stats.minor_faults += u64::from(!demand.retried);
                ledger.stats.spurious_faults += 1;
                ledger.wake_demand(&demand);
            }
            State::Resident | State::Staged => self.soft_fault(ledger, id, demand),
            State::Reading | State::Mapping | State::Writing => sleep_on(ledger, id, demand),
            State::Poisoned => ledger.poison(demand.page, demand.waiter),
            State::Untouched | State::Detaching => {
                unreachable!("no entry, and a daemon detaches nothing")
            }
        }
    }

    /// The fault waits for memory (`vm_waitpfault`).
    fn wait_for_memory(&mut self, ledger: &mut Ledger, demand: &Demand) {
        self.reserve.daemon.wake();
        ledger.wait_for_frame(demand);
    }

    /// The first touch of a page.
    fn first_touch(&mut self, ledger: &mut Ledger, demand: Demand) {
        if self.reserve.severe(ledger) || !self.reserve.allocate(ledger) {
            return self.wait_for_memory(ledger, &demand);
        }
        ledger.stats.minor_faults += u64::from(!demand.retried);
        // Only an object that was paged out asks for pages, and so notices that it is sequential.
        if self.laundry.knows_object(demand.page.object()) {
            ledger.ahead.policy.untouched_fault(demand.page);
            self.drop_behind(ledger, demand.page);
        }
        ledger.pages.create(demand.page, State::Mapping);
        ledger.stats.zero_fills += 1;
        ledger.waits.sleep(demand);
        ledger.zero_fill(PageRange::one(demand.page));
    }

    /// The page is in memory: no read.
    fn soft_fault(&mut self, ledger: &mut Ledger, id: PageId, demand: Demand) {
        if ledger.pages.has(id, COLLECTED) {
            if self.reserve.daemon.params().buffered == Buffered::Busy {
                return sleep_on(ledger, id, demand);
            }
            self.laundry.unbuffer(ledger, id);
        }
        if ledger.pages.queue(id) == Queue::Cache && !self.leaves_cache(ledger, id) {
            return self.wait_for_memory(ledger, &demand);
        }
        ledger.stats.minor_faults += u64::from(!demand.retried);
        ledger.stats.rescues += u64::from(ledger.pages.state(id) == State::Staged);
        ledger.pages.unqueue(id);
        self.hit(ledger, id, demand.source);
        self.enter(ledger, id, demand);
    }

    /// A fault found its page in the cache. False when memory is too short for it to go on.
    fn leaves_cache(&mut self, ledger: &mut Ledger, id: PageId) -> bool {
        let severe = self.reserve.severe(ledger);
        let available = Reserve::available(ledger);
        match self.release() {
            Release::V6_2 => {
                ledger.pages.unqueue(id);
                self.reserve.taken(available - 1);
                if severe {
                    bsd::activate(&mut ledger.pages, id);
                    return false;
                }
            }
            // Taken like a free frame, as which it forgot how it was used.
            Release::V8_2 => {
                if severe {
                    return false;
                }
                ledger.pages.unqueue(id);
                ledger.pages.set_age(id, 0);
                ledger.pages.set_bit(id, Bit::Noted, false);
                ledger.pages.set_bit(id, Bit::Seen, false);
                self.reserve.taken(available - 1);
            }
        }
        self.reserve.counters().cache_hits += 1;
        true
    }

    /// The end of a fault: the page, in memory and on any queue, is mapped, active and referenced.
    pub fn enter(&mut self, ledger: &mut Ledger, id: PageId, demand: Demand) {
        let write = demand.access == Access::Write;
        if write {
            ledger.pages.set_flag(id, DIRTY, true);
            if ledger.pages.slot(id).is_some() {
                ledger.give_back_slot(id);
                self.reserve.slots_freed(ledger);
            }
            if self.release() == Release::V8_2 {
                ledger.pages.set_bit(id, Bit::Modified, true);
            }
        }
        if ledger.pages.state(id) != State::Resident {
            ledger.pages.set_state(id, State::Resident);
        }
        // An anonymous page that was read may be written too: its slot grows stale unnoticed.
        ledger.pages.set_entered(id);
        ledger.pages.unqueue(id);
        bsd::activate(&mut ledger.pages, id);
        self.map_neighbours(ledger, id, demand.extent);
        ledger.wake_demand(&demand);
    }

    /// Maps what is in memory next to a fault, read-only and unreferenced (`vm_fault_prefault`).
    fn map_neighbours(&mut self, ledger: &mut Ledger, id: PageId, extent: PageRange) {
        let (page, release) = (ledger.pages.number(id), self.release());
        let below = page.raw() - extent.start.raw().min(page.raw());
        let above = (extent.start.raw() + extent.pages).saturating_sub(page.raw() + 1);
        for step in 1..=AROUND {
            for distance in [-step, step] {
                let room = if distance < 0 { below } else { above };
                if step as u64 > room {
                    continue;
                }
                let Some(near) = ledger.pages.neighbour(id, distance) else {
                    return;
                };
                match ledger.pages.state(near) {
                    State::Resident | State::Reading | State::Mapping => {}
                    State::Writing if release == Release::V8_2 => {
                        ledger.pages.set_bit(near, Bit::Mapped, true);
                    }
                    State::Writing => {}
                    State::Staged if ledger.pages.queue(near) == Queue::Cache => match release {
                        Release::V6_2 => {
                            bsd::deactivate(&mut ledger.pages, near);
                            self.reserve.taken(Reserve::available(ledger));
                            map_read_only(ledger, near);
                        }
                        Release::V8_2 => return,
                    },
                    State::Staged if ledger.pages.has(near, COLLECTED) => {}
                    State::Staged => map_read_only(ledger, near),
                    _ => return,
                }
            }
        }
    }

    /// A sequential fault puts away what lies before it: dirty pages to the inactive queue, clean
    /// ones to the cache.
    fn drop_behind(&mut self, ledger: &mut Ledger, page: PageNo) {
        let most = ledger.ahead.policy.drops_behind();
        if most == 0 {
            return;
        }
        let mut next = page.checked_sub(1).and_then(|page| ledger.pages.find(page));
        for _ in 0..most {
            let Some(id) = next else { return };
            next = ledger.pages.neighbour(id, -1);
            let cached = ledger.pages.queue(id) == Queue::Cache;
            match ledger.pages.state(id) {
                State::Writing => {}
                State::Resident | State::Staged if ledger.pages.has(id, COLLECTED) => {}
                State::Staged if cached && self.release() == Release::V6_2 => {}
                State::Resident | State::Staged if !cached => self.put_away(ledger, id),
                _ => return,
            }
        }
    }

    fn put_away(&mut self, ledger: &mut Ledger, id: PageId) {
        bsd::unmap(&mut ledger.pages, id);
        if ledger.pages.has(id, DIRTY) {
            let stays = ledger.pages.queue(id) == Queue::Inactive;
            self.reserve.counters().dropped_behind += u64::from(!stays);
            bsd::deactivate(&mut ledger.pages, id);
        } else {
            self.reserve.counters().dropped_behind += 1;
            ledger.pages.unqueue(id);
            self.reserve.put_in_cache(ledger, id);
        }
    }

    /// If read-ahead brought the page, its stream goes on.
    fn hit(&mut self, ledger: &mut Ledger, id: PageId, source: Source) {
        let Some(touch) = ledger.wanted(id, source) else {
            return;
        };
        if let Some(next) = ledger.ahead.behind(&touch, &ledger.pages) {
            self.read_unasked(ledger, next);
        }
    }

    /// A page that is only in its slot: reads the window that read-ahead chooses, as far as frames
    /// can be had without waiting.
    fn hard_fault(&mut self, ledger: &mut Ledger, id: PageId, demand: Demand) {
        if self.reserve.severe(ledger) || !self.reserve.allocate(ledger) {
            return self.wait_for_memory(ledger, &demand);
        }
        ledger.stats.major_faults += 1;
        ledger.objects.of(demand.page).major_faults += 1;
        let fault = ledger.touch(id, demand.source);
        let window = ledger.ahead.window(&fault, &ledger.pages);
        ledger.stats.windows.count(window.size);
        self.drop_behind(ledger, demand.page);
        ledger.pages.set_state(id, State::Reading);
        ledger.waits.sleep(demand);
        let run = self.take_window(ledger, window.now, fault.slot);
        read_window(ledger, run, Some(demand.page));
        for &other in window.rest.as_slice() {
            self.read_unasked(ledger, other);
        }
        if let Some(next) = window.behind {
            self.read_unasked(ledger, next);
        }
    }

    /// Takes frames for the other slots of the window; returns the part that got some.
    fn take_window(&mut self, ledger: &mut Ledger, window: SlotRange, slot: SlotNo) -> SlotRange {
        let others = (window.slots - 1) as usize;
        let grants = self.reserve.grants(ledger);
        let reserved = self.reserve.daemon.levels().reserved;
        if self.release() == Release::V6_2 {
            if others > Reserve::available(ledger).saturating_sub(reserved) {
                self.reserve.daemon.wake();
                return SlotRange::new(slot, 1);
            }
            if others > grants {
                self.reserve.daemon.failed();
                return SlotRange::new(slot, 1);
            }
        } else if others > grants {
            self.reserve.daemon.failed();
        }
        let before = ((slot.0 - window.start.0) as usize).min(grants) as u32;
        let after = (window.end().0 - slot.0 - 1).min(grants as u32 - before);
        let taken = SlotRange::new(SlotNo(slot.0 - before), before + 1 + after);
        for other in taken.iter().filter(|&other| other != slot) {
            let granted = self.reserve.allocate(ledger);
            debug_assert!(granted, "as many as were granted");
            mark_read_ahead(&mut ledger.pages, other);
        }
        taken
    }

    /// Reads slots nobody waits for, unless that would leave the daemon work.
    fn read_unasked(&mut self, ledger: &mut Ledger, slots: SlotRange) {
        let all_out = all_paged_out(&ledger.pages, slots);
        let left = Reserve::available(ledger).saturating_sub(slots.slots as usize);
        if slots.slots == 0 || !all_out || left < self.reserve.daemon.levels().wake() {
            return;
        }
        for slot in slots.iter() {
            let granted = self.reserve.allocate(ledger);
            debug_assert!(granted, "far above the reserve");
            mark_read_ahead(&mut ledger.pages, slot);
        }
        read_window(ledger, slots, None);
    }
}

/// Whether the page's mapping allows the access.
fn opens(pages: &Pages, id: PageId, access: Access) -> bool {
    access == Access::Read || pages.bit(id, Bit::Writable)
}

/// The page is busy: the fault starts again when it is not.
fn sleep_on(ledger: &mut Ledger, id: PageId, demand: Demand) {
    if !demand.retried {
        ledger.stats.minor_faults += 1;
        let reading = ledger.pages.state(id) == State::Reading;
        ledger.stats.late_hits += u64::from(reading);
        let late = reading && ledger.pages.has(id, READ_AHEAD);
        ledger.stats.read_ahead_late += u64::from(late);
    }
    ledger.waits.sleep(demand);
}

fn map_read_only(ledger: &mut Ledger, id: PageId) {
    ledger.pages.set_state(id, State::Resident);
    if ledger.pages.has(id, READ_AHEAD) {
        ledger.pages.clear_read_ahead(id);
        ledger.stats.read_ahead_mapped += 1;
    }
}

fn mark_read_ahead(pages: &mut Pages, slot: SlotNo) {
    let id = pages.in_slot(slot);
    let id = id.expect("read-ahead named an empty slot");
    pages.set_state(id, State::Reading);
    pages.set_read_ahead(id);
}

fn read_window(ledger: &mut Ledger, slots: SlotRange, demanded: Option<PageNo>) {
    let run = demanded.map_or(PageRange::new(PageNo::from_raw(0), 0), PageRange::one);
    let op = ledger.start(Kind::PageIn, run);
    for slot in slots.iter() {
        let id = ledger.pages.in_slot(slot).expect("just taken");
        let page = ledger.pages.number(id);
        ledger.objects.read(page, demanded == Some(page));
        ledger.ops[op].add(id, page);
        ledger.ops[op].must_have(ledger.pages.hash(id));
    }
    ledger.stats.page_ins += u64::from(slots.slots);
    ledger.stats.read_ahead += u64::from(slots.slots) - u64::from(demanded.is_some());
    ledger.page_in(op, slots);
}
