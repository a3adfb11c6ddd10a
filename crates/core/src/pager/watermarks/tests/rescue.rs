//! Which staged pages come along with one that is touched.

use super::super::rescue::Rescue;
use super::*;
use crate::page::{COLLECTED, State};

#[test]
fn so_many_neighbours_come_along_first_those_above() {
    for (around, run) in [
        (0, range(14, 15)),
        (4, range(14, 19)),
        (8, range(11, 20)),
        (30, range(10, 20)),
    ] {
        let mut ledger = ledger();
        lay(&mut ledger, 10..20, dirty);
        let id = ledger.known(page(14));
        assert_eq!(Rescue::new(around).map_around(&mut ledger, id), run);
        assert_eq!(mapped(&actions(&mut ledger)), [run], "{around}");
        assert_eq!(ledger.pages.count(State::Mapping) as u64, run.pages);
        assert_eq!(ledger.stats.rescues, run.pages);
    }
}

#[test]
fn pages_that_are_to_be_written_stay_and_end_the_run() {
    let mut ledger = ledger();
    lay(&mut ledger, 10..20, dirty);
    let collected = ledger.known(page(17));
    ledger.pages.set_flag(collected, COLLECTED, true);
    let id = ledger.known(page(15));
    let run = Rescue::new(64).map_around(&mut ledger, id);
    assert_eq!(run, range(10, 17));
    assert_eq!(ledger.pages.state(collected), State::Staged);
}

#[test]
fn what_a_read_brought_comes_along_if_it_is_to_be_mapped() {
    for (arrival, run) in [
        ("arrival=mapped", range(10, 20)),
        ("arrival=staged", range(10, 11)),
    ] {
        let mut ledger = ledger_of("linux-slot", arrival);
        for index in 10..20 {
            let id = clean(&mut ledger, index);
            if index > 10 {
                ledger.pages.set_read_ahead(id);
            }
        }
        let id = ledger.known(page(10));
        assert_eq!(Rescue::new(0).map_around(&mut ledger, id), run);
        assert_eq!(ledger.stats.read_ahead_mapped, run.pages - 1);
    }
}

#[test]
fn a_stream_goes_on_by_slots_where_pages_are_apart() {
    let mut ledger = ledger_of("linux-slot", "arrival=mapped");
    // Every third page, in slots that follow each other.
    let indices: Vec<u64> = (0..8).map(|n| 3 * n).collect();
    for &index in &indices {
        let id = clean(&mut ledger, index);
        ledger.pages.set_read_ahead(id);
        ledger.pages.find_ahead_by_slot(id);
    }
    let id = ledger.known(page(9));
    Rescue::new(0).map_with_stream(&mut ledger, id);
    let mut runs = mapped(&actions(&mut ledger));
    assert_eq!(runs[0], range(9, 10), "first the one that is awaited");
    runs.sort_unstable_by_key(|run| run.start);
    let alone = indices.iter().map(|&index| range(index, index + 1));
    assert_eq!(runs, alone.collect::<Vec<_>>());
}
