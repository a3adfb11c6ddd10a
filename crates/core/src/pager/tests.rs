//! What the model in `tests/pager` cannot see from outside.

use alloc::vec::Vec;

use super::ops::Kind;
use super::*;
use crate::contract::{Outcome, PageOutcome, Source, Waiter};
use crate::page::ContentHash;
use crate::readahead::Choice;
use crate::units::{ObjectId, SlotRange};
use crate::{pageout, readahead, reclaim, slots};

const FRAMES: usize = 1024;

fn pager(zero_around: u32) -> Pager {
    pager_of("bsd", "none", "blist", zero_around)
}

fn pager_of(pageout: &str, readahead: &str, slots: &str, zero_around: u32) -> Pager {
    let pageout = pageout::find(pageout).expect("registered");
    let readahead = Choice::ungoverned(readahead::find(readahead).expect("registered"));
    let in_order = reclaim::Choice::parse("second-chance", Body::default()).expect("registered");
    Pager::new(Setup {
        reclaim: in_order.build(),
        pageout: (pageout.build)(pageout.params()),
        readahead: readahead.for_frames(FRAMES).build(),
        slots: slots::find(slots).expect("registered").build,
        tier: None,
        discard: None,
        frames: FRAMES,
        slots_max: 1 << 16,
        zero_around,
        rescue_around: 0,
        body: Body::default(),
    })
}

fn page(index: u64) -> PageNo {
    PageNo::new(ObjectId(1), index)
}

/// Answers what needs no store; detached pages hash to their numbers and are zero if `zero`.
fn drive(pager: &mut Pager, zero: bool) -> Vec<Action> {
    let mut told = Vec::new();
    while let Some(action) = pager.poll_action() {
        told.push(action.clone());
        let now = Nanos(0);
        match action {
            Action::ZeroFill { id, run, .. } | Action::Map { id, run, .. } => {
                let outcomes: Vec<_> = run.iter().map(|_| PageOutcome::Done).collect();
                let outcome = Outcome::Pages(&outcomes);
                pager.handle(now, Event::Done { id, outcome });
            }
            Action::Detach { id, run, .. } => {
                let hash = |page: PageNo| ContentHash([page.raw() as u32, 1, 1]);
                let detached = |page| PageOutcome::Detached {
                    hash: hash(page),
                    zero,
                };
                let outcomes: Vec<_> = run.iter().map(detached).collect();
                let outcome = Outcome::Pages(&outcomes);
                pager.handle(now, Event::Done { id, outcome });
            }
            _ => {}
        }
    }
    told
}

#[test]
fn a_discard_names_pages_in_order_whenever_their_leaves_were_allocated() {
    let mut pager = pager(1);
    // More memory than fits, from the top down, a leaf each, leaves added at odd times.
    for index in (0..2 * FRAMES as u64).rev() {
        pager.handle(Nanos(0), Event::Adopt(PageRange::one(page(index * 64))));
        if index % 100 == 0 {
            pager.replenish();
        }
        drive(&mut pager, false);
    }
    assert!(pager.count(State::Staged) > 1);
    settle(&mut pager);
    let staged = pager.count(State::Staged);
    pager.handle(Nanos(0), Event::Discard(PageRange::new(page(0), 1 << 30)));
    let Some(Action::Release { pages, .. }) = pager.poll_action() else {
        panic!("staged pages have frames to release");
    };
    assert_eq!(pages.len(), staged);
    assert!(pages.is_sorted(), "{pages:?}");
}

/// Answers transfers and releases until nothing is under way.
fn settle(pager: &mut Pager) {
    while pager.in_flight() > 0 {
        let transfers = |kind| matches!(kind, Kind::PageIn | Kind::PageOut | Kind::Release);
        for id in pager.ledger.ops.of(transfers) {
            let outcome = Outcome::Done;
            pager.handle(Nanos(0), Event::Done { id, outcome });
        }
        drive(pager, false);
    }
}

/// A first touch of the page; the pages that came with it.
fn filled(pager: &mut Pager, index: u64, zero: bool) -> u64 {
    let event = Event::Fault {
        page: page(index),
        access: Access::Read,
        waiter: Waiter(0),
        source: Source(0),
        extent: PageRange::new(page(0), 1 << 20),
    };
    pager.handle(Nanos(0), event);
    let told = drive(pager, zero);
    settle(pager);
    let filled = told.iter().find_map(|action| match action {
        Action::ZeroFill { run, .. } => Some(run.pages),
        _ => None,
    });
    filled.unwrap_or(0)
}

#[test]
fn fault_around_shrinks_where_it_is_not_used_and_grows_where_it_is() {
    let mut pager = pager(16);
    assert_eq!(filled(&mut pager, 0, true), 16);
    // One touch in each block, far apart: what came along leaves as it came.
    for block in 1..2 * FRAMES as u64 {
        filled(&mut pager, block * 64, true);
    }
    assert_eq!(filled(&mut pager, 1 << 18, true), 1);
    // Neighbours are touched now, and written.
    let most = (0..FRAMES as u64).map(|index| filled(&mut pager, (1 << 19) + index, false));
    assert_eq!(most.max(), Some(16));
}

/// Touches page `index`, which waits; what was mapped for it before any transfer ended.
fn touched(pager: &mut Pager, index: u64) -> Vec<PageRange> {
    let event = Event::Fault {
        page: page(index),
        access: Access::Write,
        waiter: Waiter(0),
        source: Source(0),
        extent: PageRange::new(page(0), 1 << 20),
    };
    pager.handle(Nanos(0), event);
    let told = drive(pager, false);
    settle(pager);
    let maps = told.iter().filter_map(|action| match action {
        Action::Map { run, .. } => Some(*run),
        _ => None,
    });
    maps.collect()
}

#[test]
fn what_a_rescue_brings_along_is_mapped_in_whole_runs() {
    let mut pager = pager_of("packed", "stream", "log", 1);
    pager.handle(
        Nanos(0),
        Event::Grown(SlotRange::new(SlotNo(0), 8 * FRAMES as u32)),
    );
    let clusters = FRAMES as u64 / 2;
    let mut along = 0;
    for pass in 0..3 {
        for index in (0..clusters).flat_map(|cluster| cluster * 8..cluster * 8 + 4) {
            if pager.state(page(index)) == State::Resident {
                continue;
            }
            let maps = touched(&mut pager, index);
            assert_eq!(pager.state(page(index)), State::Resident);
            let Some((first, others)) = maps.split_first().filter(|maps| !maps.1.is_empty()) else {
                continue;
            };
            assert!(first.contains(page(index)), "page {index} in {maps:?}");
            // At most the last one is cut short, by the number of pages that a rescue maps.
            let whole = others.iter().filter(|run| run.pages == 4).count();
            assert!(whole + 1 >= others.len(), "{maps:?}");
            along += usize::from(pass > 0);
        }
    }
    assert!(along > 100, "{along} rescues brought others along");
}
