//! What a touch leads to, by where its page is.

use super::super::zero_around::ZeroAround;
use super::*;
use crate::contract::{PageOutcome, Refusal};
use crate::page::{Queue, State, ZERO_AROUND};

/// What follows from a touch of page `index`.
fn touch(ledger: &mut Ledger, faults: &mut Faults, index: u64) -> Vec<Action> {
    let transfers = transfers("bsd", 0);
    faults.fault(ledger, &mut eviction(), &transfers, &demand(page(index)));
    actions(ledger)
}

fn zeroes(actions: &[Action]) -> Vec<PageRange> {
    let runs = actions.iter().filter_map(|action| match action {
        Action::ZeroFill { run, .. } => Some(*run),
        _ => None,
    });
    runs.collect()
}

#[test]
fn a_first_touch_fills_the_untouched_pages_of_its_block() {
    let mut ledger = ledger();
    resident(&mut ledger, 20);
    let told = touch(&mut ledger, &mut faults(16, 0), 17);
    // The run of the page first, then the rest of 16..32.
    assert_eq!(zeroes(&told), [range(16, 20), range(21, 32)]);
    let along = |index| ledger.pages.has(ledger.known(page(index)), ZERO_AROUND);
    assert!(!along(17) && along(16) && along(31));
    assert!(ledger.is_awaited(page(17)));
}

#[test]
fn zeroes_leave_the_last_frames_to_pages_that_somebody_waits_for() {
    let mut ledger = ledger();
    fill(&mut ledger, 6);
    let reserve = ledger.limits.reserve as u64;
    let told = touch(&mut ledger, &mut faults(16, 0), 0);
    assert_eq!(zeroes(&told), [range(0, 6 - reserve)]);
    fill(&mut ledger, 1);
    let told = touch(&mut ledger, &mut faults(16, 0), 64);
    assert_eq!(zeroes(&told), [range(64, 65)]);
    assert_eq!(touch(&mut ledger, &mut faults(16, 0), 80), []);
    assert_eq!(ledger.waits.frames(), 1);
}

#[test]
fn a_touch_of_a_page_that_is_there_or_lost_needs_no_frame() {
    let mut ledger = ledger();
    resident(&mut ledger, 1);
    let told = touch(&mut ledger, &mut faults(1, 0), 1);
    assert!(matches!(told[..], [Action::Wake { .. }]), "{told:?}");
    assert_eq!(ledger.stats.spurious_faults, 1);
    let id = paged_out(&mut ledger, 2);
    for state in [State::Reading, State::Poisoned] {
        ledger.pages.set_state(id, state);
    }
    let told = touch(&mut ledger, &mut faults(1, 0), 2);
    assert!(matches!(told[..], [Action::Poison { .. }]), "{told:?}");
    dirty(&mut ledger, 3);
    let told = touch(&mut ledger, &mut faults(1, 0), 3);
    assert_eq!(mapped(&told), [range(3, 4)]);
}

#[test]
fn who_waits_for_a_frame_is_served_in_order_and_as_far_as_frames_go() {
    let mut ledger = ledger();
    fill(&mut ledger, 0);
    let (mut faults, mut eviction) = (faults(1, 0), eviction());
    for index in [5, 6, 7] {
        touch(&mut ledger, &mut faults, index);
    }
    // Page 6 came for somebody else.
    ledger.limits.frames += 1;
    resident(&mut ledger, 6);
    ledger.limits.frames += 1;
    let transfers = transfers("bsd", 0);
    faults.retry_pending(&mut ledger, &mut eviction, &transfers);
    let told = actions(&mut ledger);
    assert_eq!(zeroes(&told), [range(5, 6)]);
    assert!(
        told.iter()
            .any(|action| matches!(action, Action::Wake { .. }))
    );
    assert_eq!(ledger.waits.frames(), 1);
    assert_eq!(ledger.stats.waits_for_frame, 3, "each is counted once");
}

#[test]
fn pages_are_mapped_or_not_as_the_body_says() {
    let mut ledger = ledger();
    let (mut faults, mut eviction) = (faults(4, 0), eviction());
    let told = touch(&mut ledger, &mut faults, 0);
    let op = told[0].id().expect("zeroes are answered");
    let outcomes = [
        PageOutcome::Done,
        PageOutcome::Refused(Refusal::Present),
        PageOutcome::Refused(Refusal::Busy),
        PageOutcome::Refused(Refusal::Gone),
    ];
    faults.mapped(&mut ledger, &mut eviction, op, &outcomes);
    let states = [0, 1, 2, 3].map(|index| ledger.pages.state_of(page(index)));
    let expected = [
        State::Resident,
        State::Resident,
        State::Untouched,
        State::Untouched,
    ];
    assert_eq!(states, expected);
    assert_eq!(ledger.pages.queued(Queue::Active), 2);
    assert!(!ledger.is_awaited(page(0)));
    assert_eq!(actions(&mut ledger).len(), 1, "waiter 1 goes on");
    // A staged page that could not be mapped is staged still.
    dirty(&mut ledger, 9);
    let told = touch(&mut ledger, &mut faults, 9);
    let op = told[0].id().expect("a map is answered");
    let busy = [PageOutcome::Refused(Refusal::Busy)];
    faults.mapped(&mut ledger, &mut eviction, op, &busy);
    assert_eq!(ledger.pages.state_of(page(9)), State::Staged);
    assert_eq!(ledger.pages.queued(Queue::Inactive), 1);
}

/// So many pages left, zero or used.
fn left(around: &mut ZeroAround, pages: u32, still_zero: bool) {
    (0..pages).for_each(|_| around.left(still_zero));
}

#[test]
fn zeroes_around_shrink_with_waste_and_grow_with_use() {
    let mut around = ZeroAround::new(16);
    for expected in [8, 4, 2, 1, 1] {
        left(&mut around, 256, true);
        assert_eq!(around.pages(), expected);
    }
    left(&mut around, 256, false);
    assert_eq!(around.pages(), 2);
    // A half used: neither.
    left(&mut around, 128, true);
    left(&mut around, 128, false);
    assert_eq!(around.pages(), 2);
    // Runs that go on behind each other were used, whatever was written.
    around.fills(page(0), range(0, 2));
    around.fills(page(2), range(2, 4));
    assert_eq!(around.pages(), 4);
    around.fills(page(500), range(500, 504));
    assert_eq!(around.pages(), 4);
}
