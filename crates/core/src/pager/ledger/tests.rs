//! Worked examples of what holds for both drivers, and the ledger that tests of their parts begin with.

use alloc::vec::Vec;
use core::ops::Range;

use super::super::ahead::Ahead;
use super::super::discarding::Discarding;
use super::super::tiering::Tiering;
use super::reread::READ_TRIES;
use super::*;
use crate::contract::Waiter;
use crate::page::{DIRTY, Queue};
use crate::readahead::{self, Choice};
use crate::slots;
use crate::units::ObjectId;

pub const FRAMES: usize = 1024;

pub fn page(index: u64) -> PageNo {
    PageNo::new(ObjectId(1), index)
}

pub fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(page(start), end - start)
}

/// Room in the store for four times the frames, and read-ahead with `settings`.
pub fn ledger_of(readahead: &str, settings: &str) -> Ledger {
    let entry = readahead::find(readahead).expect("registered");
    let choice = Choice::ungoverned(entry).with(settings);
    let policy = choice.expect("settings of the policy").build();
    let manner = policy.manner();
    let log = slots::find("log").expect("registered").build;
    let mut ledger = Ledger::new(
        Pages::new(),
        SlotPool::new(4 * FRAMES as u32, log),
        Ahead::governed(policy, &manner, FRAMES),
        Tiering::new(None),
        Discarding::new(None),
        Limits::new(FRAMES, 16),
    );
    ledger.grown(SlotRange::new(SlotNo(0), 4 * FRAMES as u32));
    ledger
}

pub fn ledger() -> Ledger {
    ledger_of("none", "")
}

/// A mapped page on the active queue.
pub fn resident(ledger: &mut Ledger, index: u64) -> PageId {
    let id = ledger.pages.create(page(index), State::Resident);
    ledger.pages.push(Queue::Active, id);
    id
}

/// A dirty page on the inactive queue.
pub fn dirty(ledger: &mut Ledger, index: u64) -> PageId {
    let id = ledger.pages.create(page(index), State::Mapping);
    ledger.pages.set_state(id, State::Staged);
    ledger.pages.set_flag(id, DIRTY, true);
    ledger.pages.push(Queue::Inactive, id);
    id
}

/// A clean page on the cache queue, in the next slot.
pub fn clean(ledger: &mut Ledger, index: u64) -> PageId {
    let id = ledger.pages.create(page(index), State::Mapping);
    ledger.pages.set_state(id, State::Staged);
    let slot = ledger.slots.allocator().alloc(1).expect("room").start;
    ledger.slots.bind(1);
    ledger.pages.set_slot(id, slot);
    ledger.pages.push(Queue::Cache, id);
    id
}

/// A page that is only in its slot, the next one.
pub fn paged_out(ledger: &mut Ledger, index: u64) -> PageId {
    let id = clean(ledger, index);
    ledger.pages.unqueue(id);
    ledger.give_up_frame(id);
    id
}

/// Pages such as `put` puts there.
pub fn lay(ledger: &mut Ledger, indices: Range<u64>, put: fn(&mut Ledger, u64) -> PageId) {
    indices.for_each(|index| {
        put(ledger, index);
    });
}

/// What is to be done, in order.
pub fn actions(ledger: &mut Ledger) -> Vec<Action> {
    ledger.actions.drain(..).collect()
}

#[test]
fn a_page_that_cannot_be_read_is_tried_again_and_then_lost() {
    let mut ledger = ledger();
    let id = paged_out(&mut ledger, 5);
    let slot = ledger.pages.slot(id);
    ledger.pages.set_state(id, State::Reading);
    for tries in 0..READ_TRIES {
        ledger.read_again(id, tries);
        let told = actions(&mut ledger);
        let [Action::PageIn { slots, pages, .. }] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(
            (*slots, &pages[..]),
            (SlotRange::new(slot, 1), &[page(5)][..])
        );
    }
    ledger.waits.for_page(page(5), Waiter(3));
    ledger.read_again(id, READ_TRIES);
    let told = actions(&mut ledger);
    let [Action::Poison { id: op, .. }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(ledger.pages.state(id), State::Poisoned);
    assert_eq!((ledger.stats.lost, ledger.slots.used()), (1, 0));
    // Its waiter goes on when the body knows of it, not before.
    ledger.poisoned(op);
    let (waiter, page) = (Waiter(3), page(5));
    assert_eq!(actions(&mut ledger), [Action::Wake { waiter, page }]);
}

#[test]
fn a_read_that_failed_is_repeated_page_by_page() {
    let mut ledger = ledger();
    let op = ledger.start(Kind::PageIn, PageRange::new(page(0), 0));
    for index in 0..3 {
        let id = paged_out(&mut ledger, index);
        ledger.pages.set_state(id, State::Reading);
        ledger.ops[op].add(id, page(index));
        ledger.ops[op].must_have(ledger.pages.hash(id));
    }
    ledger.page_in(op, SlotRange::new(SlotNo(0), 3));
    actions(&mut ledger);
    ledger.page_in_failed(op);
    let read: Vec<_> = actions(&mut ledger)
        .iter()
        .map(|action| action.pages().to_vec())
        .collect();
    assert_eq!(read, [[page(0)], [page(1)], [page(2)]]);
}

#[test]
fn slots_of_failed_writes_come_back_only_where_there_was_no_space() {
    for (why, left) in [(IoFailure::NoSpace, 1), (IoFailure::Device, 0)] {
        let mut ledger = ledger();
        let before = ledger.slots.available();
        let id = clean(&mut ledger, 1);
        assert_eq!(ledger.slots.available() + 1, before);
        ledger.take_slot_back(id, why);
        assert_eq!(ledger.slots.available() + 1, before + left, "{why:?}");
        assert_eq!(
            (ledger.pages.slot(id), ledger.slots.used()),
            (SlotNo::NONE, 0)
        );
    }
}

#[test]
fn pages_that_were_read_ahead_and_leave_are_waste() {
    let mut ledger = ledger();
    for (index, ahead) in [(1, false), (2, true)] {
        let id = clean(&mut ledger, index);
        if ahead {
            ledger.pages.set_read_ahead(id);
        }
        ledger.pages.unqueue(id);
        ledger.give_up_frame(id);
        assert_eq!(ledger.pages.state(id), State::PagedOut);
        assert_eq!(ledger.stats.read_ahead_waste, u64::from(ahead));
    }
}

#[test]
fn as_many_pages_are_absent_below_a_run_as_the_program_does_not_have() {
    let mut ledger = ledger();
    resident(&mut ledger, 10);
    dirty(&mut ledger, 12);
    assert_eq!(ledger.absent_below(range(11, 12)), 0);
    assert_eq!(ledger.absent_below(range(13, 14)), 2, "11 and 12");
    assert_eq!(u64::from(ledger.absent_below(range(90, 91))), ABSENT_MAX);
}

#[test]
fn room_is_asked_for_once_at_a_time() {
    let mut ledger = ledger();
    ledger.grow(16);
    ledger.grow(16);
    assert_eq!(actions(&mut ledger), [Action::Grow { slots: 32 }]);
    ledger.full();
    assert!(ledger.swap_full && !ledger.growing);
    ledger.grow(16);
    assert_eq!(actions(&mut ledger).len(), 1);
}

#[test]
fn what_takes_frames_names_the_last_unanswered_release() {
    let mut ledger = ledger();
    let id = clean(&mut ledger, 1);
    let op = ledger.start(Kind::Release, PageRange::new(page(0), 0));
    ledger.ops[op].add(id, page(1));
    ledger.release(Some(op));
    ledger.zero_fill(range(7, 8));
    let told = actions(&mut ledger);
    assert_eq!(told[1].after(), Some(op));
    ledger.ops.finish(op);
    ledger.zero_fill(range(8, 9));
    assert_eq!(actions(&mut ledger)[0].after(), None);
}
