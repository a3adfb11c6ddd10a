//! Where frames come from, and when pages are detached and written.

use super::*;
use crate::contract::{PageOutcome, Refusal};
use crate::limits::FRAMES_MIN;
use crate::page::{ContentHash, Queue, State};
use crate::units::{Nanos, SlotNo};

#[test]
fn room_is_made_of_free_frames_then_of_clean_pages_the_oldest_first() {
    let mut ledger = ledger();
    lay(&mut ledger, 0..10, clean);
    fill(&mut ledger, 2);
    let mut eviction = eviction();
    assert_eq!(eviction.room(&mut ledger, 2), 2);
    assert_eq!(actions(&mut ledger), [], "free ones are enough");
    assert_eq!(eviction.room(&mut ledger, 5), 5);
    assert_eq!(lists(&actions(&mut ledger)), [pages(0..3)]);
    assert_eq!(eviction.room(&mut ledger, 50), 12);
    assert_eq!(lists(&actions(&mut ledger)), [pages(3..10)]);
    assert_eq!(ledger.pages.count(State::PagedOut), 10);
}

#[test]
fn what_nobody_waits_for_leaves_a_reserve() {
    let mut ledger = ledger();
    fill(&mut ledger, 10);
    let (mut eviction, reserve) = (eviction(), ledger.limits.reserve);
    assert_eq!(eviction.room(&mut ledger, 10), 10);
    assert_eq!(eviction.room_to_spare(&mut ledger, 10), 10 - reserve);
    assert_eq!(eviction.room_to_spare(&mut ledger, 3), 3);
}

#[test]
fn nothing_is_detached_that_no_frame_was_taken_for() {
    let mut ledger = ledger();
    fill(&mut ledger, 0);
    let (mut eviction, mut transfers) = (eviction(), transfers("bsd", 0));
    assert!(eviction.balanced(&mut ledger, &transfers));
    eviction.balance(&mut ledger, &mut transfers);
    assert_eq!(actions(&mut ledger), []);
    eviction.took_frames(&mut ledger, Taken::Filled, 8);
    assert!(!eviction.balanced(&mut ledger, &transfers));
    eviction.balance(&mut ledger, &mut transfers);
    let told = actions(&mut ledger);
    let [Action::Detach { run, .. }] = told[..] else {
        panic!("{told:?}");
    };
    // Eight for each, from the head of the queue, in one run.
    assert_eq!(run, PageRange::new(page(1 << 20), 64));
    assert!(eviction.balanced(&mut ledger, &transfers));
}

#[test]
fn a_page_out_of_the_pool_earns_a_quarter_as_many_victims() {
    let mut ledger = ledger();
    fill(&mut ledger, 0);
    let (mut eviction, mut transfers) = (eviction(), transfers("bsd", 0));
    eviction.took_frames(&mut ledger, Taken::Pooled, 31);
    eviction.balance(&mut ledger, &mut transfers);
    assert_eq!(actions(&mut ledger), []);
    eviction.took_frames(&mut ledger, Taken::Pooled, 1);
    eviction.balance(&mut ledger, &mut transfers);
    let told = actions(&mut ledger);
    let [Action::Detach { run, .. }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(run, PageRange::new(page(1 << 20), 64));
}

#[test]
fn detached_pages_are_dropped_clean_or_dirty_by_their_content() {
    let mut ledger = ledger();
    let (mut eviction, mut faults) = (eviction(), faults(1, 0));
    let hash = ContentHash([7, 7, 7]);
    let [same, other, zero, refused] = [0, 1, 2, 3].map(|index| resident(&mut ledger, index));
    for id in [same, other] {
        let slot = ledger.slots.allocator().alloc(1).expect("room").start;
        ledger.slots.bind(1);
        ledger.pages.set_slot(id, slot);
        ledger.pages.set_hash(id, hash);
    }
    for id in [same, other, zero, refused] {
        ledger.pages.unqueue(id);
        ledger.pages.set_state(id, State::Detaching);
    }
    let op = ledger.start(crate::pager::ops::Kind::Detach, range(0, 4));
    let detached = |hash, zero| PageOutcome::Detached { hash, zero };
    let outcomes = [
        detached(hash, false),
        detached(ContentHash([8, 8, 8]), false),
        detached(ContentHash::default(), true),
        PageOutcome::Refused(Refusal::Busy),
    ];
    eviction.detached(&mut ledger, &mut faults, op, &outcomes);
    let queues = [0, 1, 3].map(|index| ledger.pages.queue(ledger.known(page(index))));
    assert_eq!(queues, [Queue::Inactive, Queue::Inactive, Queue::Refused]);
    let dirty = [same, other].map(|id| ledger.pages.has(id, crate::page::DIRTY));
    assert_eq!(dirty, [false, true]);
    assert_eq!(ledger.pages.slot(other), SlotNo::NONE);
    assert_eq!(ledger.pages.state_of(page(2)), State::Untouched);
    assert_eq!(ledger.slots.used(), 1);
    assert_eq!(lists(&actions(&mut ledger)), [pages([2])]);
}

#[test]
fn a_tick_tries_a_part_of_what_was_refused_and_all_of_it_for_somebody_who_waits() {
    for waits in [false, true] {
        let mut ledger = ledger();
        let refused = 3 * ledger.limits.detach_batch;
        for index in 0..refused as u64 {
            let id = ledger.pages.create(page(index), State::Resident);
            ledger.pages.push(Queue::Refused, id);
        }
        if waits {
            ledger.wait_for_frame(&demand(page(999)));
        }
        eviction().tick(&mut ledger, &mut transfers("bsd", 0));
        let again = if waits { refused } else { refused / 3 };
        assert_eq!(ledger.pages.queued(Queue::Active), again);
    }
}

#[test]
fn who_waits_hears_once_a_tick_that_there_is_no_frame() {
    let mut ledger = ledger();
    fill(&mut ledger, 0);
    let (mut eviction, mut transfers) = (eviction(), transfers("bsd", 0));
    while let Some(id) = ledger.pages.pop(Queue::Active) {
        ledger.pages.push(Queue::Refused, id);
    }
    ledger.wait_for_frame(&demand(page(1)));
    let exhausted = [Action::Exhausted { swap_full: false }];
    eviction.balance(&mut ledger, &mut transfers);
    assert_eq!(actions(&mut ledger), exhausted);
    eviction.balance(&mut ledger, &mut transfers);
    assert_eq!(actions(&mut ledger), []);
    eviction.tick(&mut ledger, &mut transfers);
    while let Some(id) = ledger.pages.pop(Queue::Active) {
        ledger.pages.push(Queue::Refused, id);
    }
    eviction.balance(&mut ledger, &mut transfers);
    assert_eq!(actions(&mut ledger), exhausted);
}

/// Of what a fork left shared each staged page is a copy, so they must not all be staged at once.
#[test]
fn beyond_a_limit_only_a_part_of_it_is_staged_at_once() {
    let mut ledger = ledger();
    fill(&mut ledger, 0);
    let lowered = ledger.limits.frames / 4;
    ledger.limit(lowered, 16);
    let (mut eviction, mut transfers) = (eviction(), transfers("bsd", 0));
    eviction.balance(&mut ledger, &mut transfers);
    let told = actions(&mut ledger);
    let pages = told.iter().map(|action| match action {
        Action::Detach { run, .. } => run.pages,
        other => panic!("{other:?}"),
    });
    let detached: u64 = pages.sum();
    let part = (lowered / 16).max(ledger.limits.detach_batch);
    assert!(ledger.frames_used() > 3 * lowered, "far beyond it");
    assert!(detached > 0, "some leave");
    assert!(detached as usize <= ledger.limits.staged_low + part);
}

/// Otherwise who touches one page of a forked child waits until all that is beyond its share is written.
#[test]
fn beyond_a_limit_who_waits_takes_the_place_of_four_that_left() {
    let mut ledger = ledger();
    lay(&mut ledger, 0..10, clean);
    fill(&mut ledger, 0);
    let used = ledger.frames_used();
    let (mut eviction, lowered) = (eviction(), ledger.limits.frames / 4);
    eviction.begin_exchange(&ledger);
    ledger.limit(lowered, 16);
    assert!(eviction.has_frame(&mut ledger), "ten were clean, and left");
    assert_eq!(ledger.frames_used(), used - 10);
    assert_eq!(
        eviction.room(&mut ledger, 1),
        0,
        "nothing for who does not wait"
    );
    let filled = |ledger: &mut Ledger, eviction: &mut Eviction, at: u64| {
        lay(ledger, at..at + 1, resident);
        eviction.took_frames(ledger, Taken::Filled, 1);
    };
    for at in 2_000_000..2_000_002 {
        assert!(eviction.has_frame(&mut ledger));
        filled(&mut ledger, &mut eviction, at);
    }
    assert!(!eviction.has_frame(&mut ledger), "of ten two");
    assert!(ledger.frames_used() < used, "it comes down");
}

/// What a forked child has it shares with its parent, and most children end soon.
#[test]
fn in_a_child_nothing_leaves_for_a_moment_and_some_frames_are_to_be_had() {
    let mut ledger = ledger();
    fill(&mut ledger, 0);
    let (mut eviction, mut transfers) = (eviction(), transfers("bsd", 0));
    eviction.forked(&ledger);
    eviction.begin_exchange(&ledger);
    ledger.limit(ledger.limits.frames / 4, 16);
    assert!(eviction.balanced(&mut ledger, &transfers));
    eviction.tick(&mut ledger, &mut transfers);
    eviction.balance(&mut ledger, &mut transfers);
    assert_eq!(actions(&mut ledger), []);
    for at in 0..FRAMES_MIN as u64 {
        assert!(eviction.has_frame(&mut ledger), "{at}");
        lay(&mut ledger, 3_000_000 + at..3_000_001 + at, resident);
        eviction.took_frames(&mut ledger, Taken::Filled, 1);
    }
    assert!(!eviction.has_frame(&mut ledger));
    let rested = (eviction.rests(&ledger), ledger.now);
    ledger.now = Nanos(ledger.now.0 + 100_000_000);
    assert!(rested.0 && !eviction.rests(&ledger));
    eviction.balance(&mut ledger, &mut transfers);
    assert_ne!(actions(&mut ledger), [], "now they leave");
    ledger.now = rested.1;
    ledger.wait_for_frame(&demand(page(1)));
    eviction.balance(&mut ledger, &mut transfers);
    assert!(!eviction.rests(&ledger), "somebody waits");
}
