//! What comes and goes without a fault.

use super::*;
use crate::page::{Queue, State};

#[test]
fn pages_that_were_there_are_active_and_known_ones_stay_as_they_are() {
    let mut ledger = ledger();
    dirty(&mut ledger, 2);
    Ranges::new().adopt(&mut ledger, &mut eviction(), range(0, 4));
    assert_eq!(ledger.pages.queued(Queue::Active), 3);
    assert_eq!(ledger.pages.state_of(page(2)), State::Staged);
    assert_eq!(actions(&mut ledger), []);
}

#[test]
fn a_discard_frees_frames_and_slots_and_wakes_who_waits_for_a_frame() {
    let mut ledger = ledger();
    let mut ranges = Ranges::new();
    paged_out(&mut ledger, 0);
    dirty(&mut ledger, 3);
    clean(&mut ledger, 1);
    resident(&mut ledger, 2);
    resident(&mut ledger, 9);
    ledger.wait_for_frame(&demand(page(4)));
    ledger.wait_for_frame(&demand(page(8)));
    ranges.discard(&mut ledger, range(0, 5));
    let told = actions(&mut ledger);
    assert_eq!(lists(&told), [pages([1, 3])]);
    assert!(matches!(told[1..], [Action::Wake { page: p, .. }] if p == page(4)));
    assert_eq!((ledger.slots.used(), ledger.frames_used()), (0, 1));
    assert_eq!((ledger.stats.discarded, ledger.waits.frames()), (4, 1));
    // The list that was lent serves the next one.
    ranges.discard(&mut ledger, range(9, 10));
    assert_eq!(ledger.frames_used(), 0);
}

#[test]
#[should_panic = "discarded while Writing"]
fn pages_with_an_unanswered_action_are_not_discarded() {
    let mut ledger = ledger();
    let id = dirty(&mut ledger, 1);
    ledger.pages.unqueue(id);
    ledger.pages.set_state(id, State::Writing);
    Ranges::new().discard(&mut ledger, range(0, 5));
}
