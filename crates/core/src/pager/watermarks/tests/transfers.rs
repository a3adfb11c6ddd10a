//! Which reads and writes there are, and what their ends leave.

use super::super::rescue::Rescue;
use super::*;
use crate::contract::{ActionId, IoFailure, PageOutcome, Refusal};
use crate::page::{DIRTY, PageId, Queue, READ_AHEAD, State};
use crate::pager::WRITES_MAX;

/// Pages 0 to 39 lie in slots that follow each other, of which aligned blocks of 8 are read; page 10 is touched.
fn read(demand_first: u32) -> (Ledger, Vec<Action>) {
    let mut ledger = ledger_of("linux-slot", "block=fixed");
    lay(&mut ledger, 0..40, paged_out);
    let id = ledger.known(page(10));
    let transfers = transfers("bsd", demand_first);
    transfers.page_in(&mut ledger, &mut eviction(), id, &demand(page(10)));
    let told = actions(&mut ledger);
    (ledger, told)
}

#[test]
fn the_page_that_is_awaited_may_be_read_before_its_window() {
    let (_, whole) = read(0);
    assert_eq!(lists(&whole), [pages(8..16)]);
    let (ledger, apart) = read(8);
    assert_eq!(lists(&apart), [pages([10]), pages(11..16), pages(8..10)]);
    assert!(ledger.is_awaited(page(10)));
    assert!(!ledger.pages.has(ledger.known(page(10)), READ_AHEAD));
}

#[test]
fn a_page_without_a_frame_is_not_read() {
    let mut ledger = ledger();
    let id = paged_out(&mut ledger, 1);
    fill(&mut ledger, 0);
    transfers("bsd", 0).page_in(&mut ledger, &mut eviction(), id, &demand(page(1)));
    assert_eq!(actions(&mut ledger), []);
    assert_eq!(
        (ledger.waits.frames(), ledger.pages.state(id)),
        (1, State::PagedOut)
    );
}

#[test]
fn of_what_was_read_the_awaited_page_is_mapped_and_a_bad_one_read_again() {
    for (why, counted) in [(Refusal::Damaged, (2, 0)), (Refusal::Unread, (0, 1))] {
        let (mut ledger, told) = read(0);
        let Action::PageIn { id, pages, .. } = &told[0] else {
            panic!("{told:?}");
        };
        let bad = [page(14), page(15)];
        let outcomes: Vec<_> = pages
            .iter()
            .map(|page| match bad.contains(page) {
                true => PageOutcome::Refused(why),
                false => PageOutcome::Done,
            })
            .collect();
        let rescue = Rescue::new(0);
        transfers("bsd", 0).paged_in(&mut ledger, &mut eviction(), &rescue, *id, Some(&outcomes));
        assert_eq!(ledger.pages.state_of(page(10)), State::Mapping);
        assert_eq!(ledger.pages.count(State::Reading), 2);
        assert_eq!(lists(&actions(&mut ledger)), [[bad[0]], [bad[1]]]);
        let stats = &ledger.stats;
        assert_eq!((stats.checksum_errors, stats.read_errors), counted);
    }
}

#[test]
fn what_is_out_of_reach_is_forgotten_and_whoever_waited_goes_on() {
    let (mut ledger, told) = read(0);
    let Action::PageIn { id, pages, .. } = &told[0] else {
        panic!("{told:?}");
    };
    let (id, count) = (*id, pages.len());
    let gone: Vec<_> = pages
        .iter()
        .map(|_| PageOutcome::Refused(Refusal::Gone))
        .collect();
    let used = ledger.slots.used();
    let rescue = Rescue::new(0);
    transfers("bsd", 0).paged_in(&mut ledger, &mut eviction(), &rescue, id, Some(&gone));
    let woken = actions(&mut ledger);
    assert!(
        matches!(woken[..], [Action::Wake { page: woken, .. }] if woken == page(10)),
        "{woken:?}"
    );
    assert_eq!(ledger.pages.state_of(page(10)), State::Untouched);
    assert_eq!(ledger.pages.count(State::Reading), 0);
    assert_eq!(used - ledger.slots.used(), count);
    assert_eq!((ledger.stats.checksum_errors, ledger.stats.lost), (0, 0));
}

/// A dirty page is collected and written by itself; the write.
fn write(
    ledger: &mut Ledger,
    transfers: &mut Transfers,
    eviction: &mut Eviction,
    index: u64,
) -> (PageId, ActionId) {
    let id = dirty(ledger, index);
    ledger.pages.unqueue(id);
    transfers.collect(ledger, eviction, id);
    transfers.finish(ledger, eviction);
    let told = actions(ledger);
    let [Action::PageOut { id: op, .. }] = told[..] else {
        panic!("{told:?}");
    };
    (id, op)
}

#[test]
fn neighbours_are_written_together_and_clean_afterwards() {
    let mut ledger = ledger();
    let (mut transfers, mut eviction) = (transfers("bsd", 0), eviction());
    lay(&mut ledger, 0..8, dirty);
    resident(&mut ledger, 8);
    let victim = ledger.known(page(3));
    ledger.pages.unqueue(victim);
    assert_eq!(transfers.collect(&mut ledger, &mut eviction, victim), 8);
    transfers.finish(&mut ledger, &mut eviction);
    let told = actions(&mut ledger);
    assert_eq!(lists(&told), [pages(0..8)]);
    assert_eq!(ledger.pages.count(State::Writing), 8);
    let op = told[0].id().expect("a write is answered");
    transfers.paged_out(&mut ledger, &mut eviction, &Rescue::new(0), op);
    assert_eq!(ledger.pages.queued(Queue::Cache), 8);
    assert_eq!(ledger.slots.used(), 8);
}

#[test]
fn a_page_that_somebody_waits_for_is_mapped_when_its_write_ends() {
    for fails in [false, true] {
        let mut ledger = ledger();
        let (mut transfers, mut eviction) = (transfers("single", 0), eviction());
        let (id, op) = write(&mut ledger, &mut transfers, &mut eviction, 1);
        ledger.waits.for_page(page(1), Waiter(1));
        let rescue = Rescue::new(0);
        if fails {
            let why = IoFailure::Device;
            transfers.page_out_failed(&mut ledger, &mut eviction, &rescue, op, why);
        } else {
            transfers.paged_out(&mut ledger, &mut eviction, &rescue, op);
        }
        assert_eq!(mapped(&actions(&mut ledger)), [range(1, 2)]);
        assert_eq!(ledger.pages.has(id, DIRTY), fails);
    }
}

#[test]
fn so_many_writes_are_under_way_at_most() {
    let mut ledger = ledger();
    let (mut transfers, mut eviction) = (transfers("single", 0), eviction());
    let writes: Vec<_> = (0..WRITES_MAX as u64)
        .map(|index| {
            assert!(transfers.may_write(&mut ledger));
            write(&mut ledger, &mut transfers, &mut eviction, 2 * index).1
        })
        .collect();
    assert!(!transfers.may_write(&mut ledger));
    transfers.paged_out(&mut ledger, &mut eviction, &Rescue::new(0), writes[3]);
    assert!(transfers.may_write(&mut ledger));
}

#[test]
fn a_store_that_always_fails_is_tried_once_a_tick() {
    let mut ledger = ledger();
    let (mut transfers, mut eviction) = (transfers("single", 0), eviction());
    let rescue = Rescue::new(0);
    let mut failed = 0;
    while !transfers.store_fails() {
        let (_, op) = write(&mut ledger, &mut transfers, &mut eviction, 2 * failed);
        let why = IoFailure::Device;
        transfers.page_out_failed(&mut ledger, &mut eviction, &rescue, op, why);
        failed += 1;
        assert!(failed < 1000, "it counts as broken at some time");
    }
    assert_eq!(ledger.pages.queued(Queue::Inactive) as u64, failed);
    assert!(!transfers.may_write(&mut ledger));
    transfers.try_store_again();
    assert!(transfers.may_write(&mut ledger));
    let (_, op) = write(&mut ledger, &mut transfers, &mut eviction, 2 * failed);
    transfers.paged_out(&mut ledger, &mut eviction, &rescue, op);
    assert!(!transfers.store_fails());
}
