//! Faults, slots and transfers through the whole pager.

use outpage_core::contract::{Access, Event};
use outpage_core::page::{Queue, State};
use outpage_core::reclaim::bsd::Release;
use outpage_core::units::{PageRange, SlotNo};

use crate::machine::{Machine, Plan, page};

const FRAMES: usize = 4000;
const BOTH: [Release; 2] = [Release::V6_2, Release::V8_2];

fn pages(
    object: u32,
    range: std::ops::Range<u64>,
) -> impl Iterator<Item = outpage_core::units::PageNo> {
    range.map(move |index| page(object, index))
}

/// Pages 0 to 599 of object 1 are paged out, one cluster after the other.
fn paged_out(release: Release) -> Machine {
    let mut machine = Plan::new(release, FRAMES).start();
    machine.write(pages(1, 0..600));
    machine.write(pages(2, 0..8000));
    for page in pages(1, 0..600) {
        assert_eq!(machine.pager.state(page), State::PagedOut, "{page:?}");
    }
    machine
}

/// The daemon has four writes of object 1 on their way and waits for one of them.
fn four_writes(release: Release) -> Machine {
    let mut machine = Plan::new(release, FRAMES).start();
    // Up to where the daemon is needed: no idle sweeps unmap what it will write.
    let most = FRAMES - machine.pager.daemon().unwrap().levels().wake();
    machine.write(pages(1, 0..most as u64));
    machine.hold_writes = true;
    for page in pages(1, most as u64..4000) {
        machine.begin(page, Access::Write);
        machine.pass(1_000_000_000);
        if machine.held.len() == 4 {
            break;
        }
    }
    assert_eq!(machine.held.len(), 4);
    machine
}

#[test]
fn sections_6_and_8_a_sweep_writes_aligned_blocks_from_slot_2_on() {
    for release in BOTH {
        let machine = paged_out(release);
        let first: Vec<_> = machine.writes[..6]
            .iter()
            .map(|(slots, pages)| (slots.start.0, slots.slots, pages[0].index()))
            .collect();
        let expected = [
            (2, 16, 0),
            (32, 16, 16),
            (48, 16, 32),
            (64, 16, 48),
            (80, 16, 64),
        ];
        assert_eq!(first[..5], expected);
        let ascending = |pages: &[outpage_core::units::PageNo]| {
            pages.windows(2).all(|p| p[0].checked_add(1) == Some(p[1]))
        };
        assert!(machine.writes.iter().all(|(_, pages)| ascending(pages)));
        let stats = machine.pager.stats();
        let counted: u64 = stats.write_pages.0.iter().sum();
        assert_eq!(counted, stats.page_out_writes);
        assert_eq!(stats.page_out_writes, machine.writes.len() as u64);
    }
}

#[test]
fn section_10_fifteen_pages_then_eight() {
    for release in BOTH {
        let mut machine = paged_out(release);
        machine.read([page(1, 300)]);
        let (slots, read) = machine.reads.last().unwrap();
        assert_eq!(
            (slots.slots, read[0], read[14]),
            (15, page(1, 293), page(1, 307))
        );
        machine.read([page(1, 308)]);
        let (slots, read) = machine.reads.last().unwrap();
        assert_eq!((slots.slots, read[0]), (8, page(1, 308)), "sequential");
        let stats = machine.pager.stats();
        assert_eq!((stats.page_in_reads, stats.page_ins), (2, 23));
    }
}

#[test]
fn section_10_prefetched_pages_are_clean_unmapped_and_last_on_the_inactive_queue() {
    let mut machine = paged_out(Release::V8_2);
    machine.read([page(1, 300)]);
    for index in (293..308).filter(|i| *i != 300) {
        let place = machine.place(page(1, index));
        assert_eq!(place.queue, Queue::Inactive, "{index}");
        assert!(!place.dirty && !place.referenced && !place.noted, "{index}");
        assert!(place.slot.is_some(), "a page-in keeps the slot");
        let near = index.abs_diff(300) <= 4;
        assert_eq!((place.mapped, place.writable), (near, false), "{index}");
    }
    let place = machine.place(page(1, 300));
    assert_eq!((place.queue, place.age), (Queue::Active, 5));
    assert!(place.mapped && place.writable && place.noted && place.referenced);
    // A load through the mapping of a neighbour needs no fault.
    let faults = machine.pager.stats().minor_faults;
    machine.read([page(1, 304)]);
    assert_eq!(machine.pager.stats().minor_faults, faults);
    machine.read([page(1, 305)]);
    assert_eq!(
        machine.pager.stats().minor_faults,
        faults + 1,
        "too far away"
    );
    assert_eq!(machine.reads.len(), 1);
}

#[test]
fn section_9_slots_of_pages_that_came_back() {
    for release in BOTH {
        let mut machine = paged_out(release);
        let used = machine.pager.slots_used();
        machine.read([page(1, 300)]);
        assert_eq!(machine.pager.slots_used(), used, "a read keeps it");
        // Read pages are mapped writable: a store goes unseen, the slot grows stale.
        assert_eq!(
            machine
                .pager
                .touch(PageRange::one(page(1, 300)), Access::Write),
            1
        );
        let place = machine.place(page(1, 300));
        assert!(place.dirty && place.slot.is_some());
        // A neighbour is mapped read-only: a store faults and frees the slot.
        assert_eq!(
            machine
                .pager
                .touch(PageRange::one(page(1, 301)), Access::Write),
            0
        );
        machine.write([page(1, 301)]);
        assert_eq!(machine.place(page(1, 301)).slot, SlotNo::NONE);
        assert_eq!(machine.pager.slots_used(), used - 1);
        machine.write([page(1, 100)]);
        assert_eq!(machine.place(page(1, 100)).slot, SlotNo::NONE);
        assert_eq!(
            machine.pager.slots_used(),
            used - 2,
            "a write fault frees it at once"
        );
    }
}

#[test]
fn section_9_a_write_after_cleaning_frees_the_slot_just_written() {
    for release in BOTH {
        let mut machine = four_writes(release);
        let page = machine.held[0].pages[3];
        machine.answer(0, true);
        let place = machine.place(page);
        assert!(
            !place.dirty && place.mapped && place.slot.is_some(),
            "{place:?}"
        );
        assert!(!machine.place(page).writable);
        let (used, faults) = (
            machine.pager.slots_used(),
            machine.pager.stats().minor_faults,
        );
        machine.read([page]);
        assert_eq!(machine.pager.stats().minor_faults, faults, "reads go on");
        machine.write([page]);
        assert_eq!(machine.pager.stats().minor_faults, faults + 1);
        assert_eq!(machine.pager.slots_used(), used - 1);
        let place = machine.place(page);
        assert!(place.dirty && place.slot == SlotNo::NONE && place.queue == Queue::Active);
    }
}

#[test]
fn section_7_every_page_out_takes_fresh_slots() {
    let mut machine = paged_out(Release::V6_2);
    let before: Vec<_> = pages(1, 0..600).map(|p| machine.place(p).slot).collect();
    machine.write(pages(1, 0..600));
    machine.write(pages(2, 0..8000));
    let kept = pages(1, 0..600)
        .zip(&before)
        .filter(|(page, slot)| machine.place(*page).slot == **slot);
    assert_eq!(kept.count(), 0);
    machine.check();
}

#[test]
fn section_7_four_writes_in_flight_and_the_daemon_waits_for_the_fifth() {
    for release in BOTH {
        let mut machine = four_writes(release);
        assert_eq!(
            machine.pager.next_deadline(),
            None,
            "in the middle of a scan"
        );
        let writing: Vec<_> = machine.held.iter().flat_map(|h| h.pages.clone()).collect();
        for page in writing {
            let place = machine.place(page);
            assert_eq!(machine.pager.state(page), State::Writing);
            assert_eq!((place.queue, place.writable), (Queue::Inactive, false));
        }
        let cleaned = machine.held[1].pages.clone();
        let writes = machine.writes.len();
        machine.answer(1, true);
        assert_eq!((machine.held.len(), machine.writes.len()), (4, writes + 1));
        for page in cleaned {
            let place = machine.place(page);
            assert!(
                !place.dirty && place.queue == Queue::Inactive,
                "it stays in place"
            );
        }
        // A store to a page that is being written waits, a load does not.
        let page = machine.held[0].pages[3];
        let waiting = machine.waiting.len();
        machine.begin(page, Access::Read);
        assert_eq!(machine.waiting.len(), waiting);
        let waiter = machine.begin(page, Access::Write);
        assert!(machine.waiting.contains_key(&waiter));
        machine.answer(0, true);
        assert!(!machine.waiting.contains_key(&waiter));
        assert!(machine.place(page).dirty);
        machine.answer_all();
        machine.check();
    }
}

#[test]
fn section_7_pages_that_could_not_be_written_are_active_and_dirty() {
    let mut machine = four_writes(Release::V8_2);
    let failed = machine.held[0].pages.clone();
    machine.answer(0, false);
    for page in failed {
        let place = machine.place(page);
        assert!(place.dirty && place.slot == SlotNo::NONE);
        assert_eq!((place.queue, place.age), (Queue::Active, 5));
    }
    assert_eq!(machine.pager.stats().write_errors, 1);
}

#[test]
fn section_3_faults_wait_at_severe_and_go_on_at_the_least() {
    for release in BOTH {
        let mut machine = Plan::new(release, FRAMES).start();
        let levels = *machine.pager.daemon().unwrap().levels();
        machine.hold_writes = true;
        let mut index = 0;
        while machine.waiting.is_empty() {
            let available = machine.available();
            machine.begin(page(1, index), Access::Write);
            assert_eq!(machine.waiting.is_empty(), available >= levels.severe);
            index += 1;
        }
        machine.begin(page(1, index), Access::Read);
        assert_eq!(machine.waiting.len(), 2);
        while !machine.waiting.is_empty() {
            if machine.held.is_empty() {
                machine.pass(500_000_000);
            } else {
                assert!(machine.available() < levels.min);
                machine.answer(0, true);
            }
        }
        assert!(machine.available() + 2 >= levels.min);
        machine.answer_all();
        machine.check();
    }
}

#[test]
fn section_10_read_ahead_when_memory_is_short() {
    for release in BOTH {
        let mut machine = paged_out(release);
        let levels = *machine.pager.daemon().unwrap().levels();
        machine.hold_writes = true;
        let mut index = 0;
        // Between what is severe and what 14 more pages would take.
        while machine.available() > levels.severe + 2 {
            machine.begin(page(3, index), Access::Write);
            index += 1;
            assert!(machine.waiting.is_empty());
        }
        let left = machine.available();
        assert!(left - levels.reserved < 14);
        machine.begin(page(1, 300), Access::Read);
        let (slots, read) = machine.reads.last().unwrap();
        match release {
            Release::V6_2 => assert_eq!(slots.slots, 1),
            Release::V8_2 => {
                assert_eq!(slots.slots as usize, left - levels.reserved);
                assert_eq!(read[0], page(1, 293), "backward first");
            }
        }
    }
}

#[test]
fn section_11_zero_fill_in_an_object_that_was_paged_out_drops_behind() {
    let dropped = |release| {
        let mut machine = paged_out(release);
        machine.read([page(1, 590)]);
        let before = machine.pager.daemon().unwrap().counters().dropped_behind;
        machine.write(pages(1, 600..700));
        machine.pager.daemon().unwrap().counters().dropped_behind - before
    };
    // 6.2 takes every fault for the end of a read, 8.2 only those that read.
    assert!(dropped(Release::V6_2) > 90, "{}", dropped(Release::V6_2));
    assert!(dropped(Release::V8_2) < 30, "{}", dropped(Release::V8_2));
    // An object that never was paged out asks for no pages.
    let mut machine = Plan::new(Release::V6_2, FRAMES).start();
    machine.write(pages(1, 0..1000));
    assert_eq!(machine.pager.daemon().unwrap().counters().dropped_behind, 0);
}

#[test]
fn section_11_a_sequential_fault_unmaps_what_it_leaves_behind() {
    let mut machine = paged_out(Release::V8_2);
    machine.write(pages(1, 0..64));
    // Far enough behind the last fault that no neighbour of it was mapped again.
    for index in 40..52 {
        let place = machine.place(page(1, index));
        assert!(!place.mapped && place.dirty, "{index}");
        assert_eq!(place.queue, Queue::Inactive, "{index}");
        assert!(place.noted, "its reference is not forgotten");
    }
}

#[test]
fn section_1_clean_pages_without_a_slot() {
    for release in BOTH {
        let mut machine = Plan::new(release, FRAMES).start();
        machine.read(pages(1, 0..2000));
        let mut cached = 0;
        for at in 0..40 {
            machine.write(pages(2, at * 100..at * 100 + 100));
            let place = |p| machine.pager.place_of(p);
            let in_cache =
                pages(1, 0..2000).filter(|&p| place(p).is_some_and(|p| p.queue == Queue::Cache));
            cached += in_cache.count();
        }
        let state = |page| machine.pager.state(page);
        let gone = pages(1, 0..2000).filter(|&p| state(p) == State::Untouched);
        assert!(gone.count() > 1000, "{release:?}");
        // Cached pages of 6.2 stay in their object, slot or not.
        assert_eq!(cached > 0, release == Release::V6_2);
        machine.check();
    }
}

#[test]
fn section_10_a_cached_page_comes_back_without_a_read() {
    for release in BOTH {
        let mut machine = paged_out(release);
        let cached = pages(2, 0..8000).find(|&p| {
            machine
                .pager
                .place_of(p)
                .is_some_and(|p| p.queue == Queue::Cache)
        });
        let page = cached.expect("the cache is not empty");
        let reads = machine.reads.len();
        machine.read([page]);
        assert_eq!(machine.reads.len(), reads);
        assert_eq!(machine.pager.daemon().unwrap().counters().cache_hits, 1);
        let place = machine.place(page);
        assert_eq!((place.queue, place.age), (Queue::Active, 5));
    }
}

#[test]
fn an_object_that_is_unmapped_is_a_new_one_afterwards() {
    let mut machine = paged_out(Release::V6_2);
    let range = PageRange::new(page(1, 0), 600);
    machine.forget(range);
    let used = machine.pager.slots_used();
    machine.event(Event::Unmap(range));
    assert_eq!(machine.pager.slots_used(), used - 600);
    let before = machine.pager.daemon().unwrap().counters().dropped_behind;
    machine.write(pages(1, 0..100));
    assert_eq!(
        machine.pager.daemon().unwrap().counters().dropped_behind,
        before
    );
}

#[test]
fn memory_and_swap_that_are_both_full_are_reported() {
    let mut machine = Plan {
        slots: 200,
        ..Plan::new(Release::V8_2, FRAMES)
    }
    .start();
    machine.lenient = true;
    machine.write(pages(1, 0..6000));
    assert!(machine.exhausted > 0);
    machine.check();
}
