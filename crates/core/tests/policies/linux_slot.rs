//! The kernel's read-ahead window by slot.

use outpage_core::readahead::ReadAhead;
use outpage_core::units::{SlotNo, SlotRange};
use proptest::prelude::*;

use crate::world::{Store, page, read_ahead, touch};

fn linux(max_window: u32) -> Box<dyn ReadAhead> {
    read_ahead("linux-slot", &format!("max={max_window}"))
}

/// Page `n` in slot `n`, below `slots`.
fn store(slots: u32) -> Store {
    let mut store = Store::default();
    (0..slots).for_each(|slot| store.put(SlotNo(slot), page(1, slot.into())));
    store
}

/// Faults on the page of `slot`; what is read becomes resident.
fn fault(policy: &mut dyn ReadAhead, slot: u32, store: &mut Store) -> std::ops::Range<u32> {
    let SlotRange { start, slots } = policy
        .major_fault(&store.fault(page(1, slot.into())), store)
        .now;
    (start.0..start.0 + slots).for_each(|slot| store.take(page(1, slot.into())));
    start.0..start.0 + slots
}

fn hits(policy: &mut dyn ReadAhead, n: u32, store: &Store) {
    for slot in 0..n {
        assert_eq!(policy.hit(&touch(page(1, slot.into()), slot), store), None);
    }
}

#[test]
fn starts_with_the_kernels_four_hits_and_aligns_its_blocks() {
    let mut store = store(1000);
    let mut policy = linux(8);
    assert_eq!(fault(&mut *policy, 101, &mut store), 96..104);
    // No hits: one page, but not less than half of the last window, and so on down.
    assert_eq!(fault(&mut *policy, 203, &mut store), 200..204);
    assert_eq!(fault(&mut *policy, 303, &mut store), 302..304);
    assert_eq!(fault(&mut *policy, 405, &mut store), 405..406);
    assert_eq!(fault(&mut *policy, 507, &mut store), 507..508);
}

#[test]
fn hits_since_the_last_fault_choose_the_window() {
    // (hits, window): hits + 2, a power of two from 4 on, at most the largest window.
    for (counted, window) in [
        (1, 4),
        (2, 4),
        (3, 8),
        (6, 8),
        (7, 16),
        (30, 32),
        (31, 32),
        (100, 32),
    ] {
        let mut store = store(10_000);
        let mut policy = linux(32);
        // Down to a window of one.
        for slot in [5000, 6000, 7000, 8000, 9000] {
            fault(&mut *policy, slot, &mut store);
        }
        hits(&mut *policy, counted, &store);
        assert_eq!(
            fault(&mut *policy, 1024, &mut store).len(),
            window,
            "{counted} hits"
        );
    }
}

#[test]
fn the_next_slot_is_enough_for_a_window_of_two() {
    for (next, window) in [(401, 401..402), (402, 402..403), (399, 398..400)] {
        let mut store = store(1000);
        let mut policy = linux(8);
        for slot in [100, 200, 300, 400] {
            fault(&mut *policy, slot, &mut store);
        }
        // 400 is read already, so the block of 401 is cut to 401.
        assert_eq!(fault(&mut *policy, next, &mut store), window);
    }
}

#[test]
fn holes_in_a_block_are_skipped() {
    let mut store = store(100);
    for resident in [17, 21, 22] {
        store.take(page(1, resident));
    }
    let window = linux(8).major_fault(&store.fault(page(1, 20)), &store);
    let run = |start, slots| SlotRange::new(SlotNo(start), slots);
    assert_eq!((window.now, window.size), (run(18, 3), 8));
    assert_eq!(window.rest.as_slice(), [run(23, 1), run(16, 1)]);
}

#[test]
fn before_linux_3_14_every_block_is_the_largest() {
    let mut policy = read_ahead("linux-slot", "page-cluster=5,block=fixed");
    let mut store = store(1000);
    for far in [101, 905, 303, 560] {
        assert_eq!(fault(&mut *policy, far, &mut store).len(), 32);
    }
}

#[test]
fn a_largest_window_between_powers_of_two_means_the_lower_one() {
    assert_eq!(fault(&mut *linux(7), 13, &mut store(100)), 12..16);
    assert_eq!(fault(&mut *linux(1), 13, &mut store(100)), 13..14);
}

#[test]
fn grows_along_streams_both_ways_without_visible_hits() {
    for downward in [false, true] {
        let mut store = store(4096);
        let mut policy = read_ahead("linux-slot", "max=64,arrival=mapped");
        // Down to a window of one.
        for slot in [1000, 2000, 3000, 1500, 2500] {
            fault(&mut *policy, slot, &mut store);
        }
        let mut windows = Vec::new();
        let mut next = if downward { 899 } else { 3100 };
        for _ in 0..14 {
            let read = fault(&mut *policy, next, &mut store);
            windows.push(read.len());
            next = if downward { read.start - 1 } else { read.end };
        }
        assert_eq!(windows[10..], [64; 4], "{downward}: {windows:?}");
    }
}

/// The kernel's rule, read off its source line by line.
#[derive(Default)]
struct Naive {
    started: bool,
    hits: u32,
    previous: Option<i64>,
    last: u32,
}

impl Naive {
    fn window(&mut self, slot: u32, max: u32) -> std::ops::Range<u32> {
        let hits = if self.started {
            self.hits
        } else {
            4 + self.hits
        };
        (self.started, self.hits) = (true, 0);
        let slot64 = i64::from(slot);
        let mut pages = hits + 2;
        if pages == 2 {
            if self.previous != Some(slot64 - 1) && self.previous != Some(slot64 + 1) {
                pages = 1;
            }
            self.previous = Some(slot64);
        } else {
            let mut up = 4;
            while up < pages {
                up *= 2;
            }
            pages = up;
        }
        pages = pages.min(max).max(self.last / 2);
        self.last = pages;
        slot / pages * pages..slot / pages * pages + pages
    }
}

proptest! {
    #[test]
    fn blocks_are_those_of_a_naive_model(
        cluster in 1u32..=8,
        steps in prop::collection::vec((0u32..5000, 0u32..40), 1..60),
    ) {
        let max = 1 << cluster;
        let mut policy = linux(max);
        let mut naive = Naive::default();
        for (slot, hits_after) in steps {
            let store = store(5400);
            let window = policy.major_fault(&store.fault(page(1, slot.into())), &store).now;
            let expected = naive.window(slot, max);
            prop_assert_eq!(window, SlotRange::new(SlotNo(expected.start), expected.len() as u32));
            hits(&mut *policy, hits_after, &store);
            naive.hits += hits_after;
        }
    }
}
