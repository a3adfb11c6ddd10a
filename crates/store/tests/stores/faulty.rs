//! Faults strike as often as told, as the seed says, and nowhere else.

use crate::common::*;
use outpage_core::units::PAGE_BYTES;
use outpage_store::*;

const CONFIG: Config = Config {
    depth: 4,
    request_pages_max: 8,
};

fn memory() -> MemoryStore {
    MemoryStore::new(64, CopyAt::Poll, CONFIG)
}

/// The results of `count` rounds of a page-out of 8 pages and a page-in of the same.
fn run(seed: u64, rates: FaultRates, count: u64) -> (Vec<Result<(), StoreError>>, InjectedFaults) {
    let (mut store, pages) = (Faulty::new(memory(), seed, rates), Pages::new(8));
    let frames = pages.frames(0..8);
    let mut results = Vec::new();
    for _ in 0..count {
        results.push(carry_out(&mut store, Direction::PageOut, 0, &frames));
        results.push(carry_out(&mut store, Direction::PageIn, 0, &frames));
    }
    (results, store.injected())
}

#[test]
fn the_seed_decides_and_another_seed_decides_otherwise() {
    let rates = FaultRates {
        read_error: 300,
        short_write: 200,
        ..FaultRates::default()
    };
    let (first, again, other) = (run(1, rates, 100), run(1, rates, 100), run(2, rates, 100));
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
}

#[test]
fn rates_are_per_mille_of_their_direction() {
    let rates = FaultRates {
        read_error: 100,
        no_space: 500,
        ..FaultRates::default()
    };
    let (results, injected) = run(3, rates, 2000);
    // 5 standard deviations around 200 and 1000.
    assert!((133..=267).contains(&injected.read_errors), "{injected:?}");
    assert!((888..=1112).contains(&injected.no_space), "{injected:?}");
    let failed = |errno| {
        let hit = |r: &&Result<(), StoreError>| r.is_err_and(|e| e.errno() == Some(errno));
        results.iter().filter(hit).count() as u64
    };
    assert_eq!(failed(libc::EIO), injected.read_errors);
    assert_eq!(failed(libc::ENOSPC), injected.no_space);
}

#[test]
fn one_faults_rate_does_not_move_anothers_victims() {
    let flips = FaultRates {
        read_error: 100,
        ..FaultRates::default()
    };
    let both = FaultRates {
        write_error: 500,
        ..flips
    };
    let reads = |rates| run(9, rates, 500).0.into_iter().skip(1).step_by(2);
    // Page-ins may also meet the end of a store that was not written.
    let eio = |r: Result<(), StoreError>| r.is_err_and(|e| e.errno() == Some(libc::EIO));
    assert!(reads(flips).map(eio).eq(reads(both).map(eio)));
}

#[test]
fn a_flip_is_one_bit_and_not_reported() {
    let rates = FaultRates {
        bit_flip: 1000,
        ..FaultRates::default()
    };
    let (mut store, pages) = (Faulty::new(memory(), 5, rates), Pages::new(8));
    (0..4).for_each(|n| pages.set(n, &page(n.into())));
    carry_out(&mut store, Direction::PageOut, 8, &pages.frames(0..4)).unwrap();
    carry_out(&mut store, Direction::PageIn, 8, &pages.frames(4..8)).unwrap();
    let wrong: u32 = (0..4)
        .flat_map(|n| std::iter::zip(page(n), pages.get(4 + n as u32)))
        .map(|(good, bad)| (good ^ bad).count_ones())
        .sum();
    assert_eq!((wrong, store.injected().bit_flips), (1, 1));
    assert!((0..4).all(|n| pages.get(n) == page(n.into())));
}

#[test]
fn a_torn_page_out_keeps_the_old_end_and_reports_success() {
    let (mut store, pages) = (
        Faulty::new(memory(), 11, FaultRates::default()),
        Pages::new(16),
    );
    (0..8).for_each(|n| pages.set(n, &page(100)));
    carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..8)).unwrap();
    (0..8).for_each(|n| pages.set(n, &page(200)));
    store.set_rates(FaultRates {
        torn_write: 1000,
        ..FaultRates::default()
    });
    let mut kept = Vec::new();
    for _ in 0..20 {
        carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..8)).unwrap();
        carry_out(&mut store, Direction::PageIn, 0, &pages.frames(8..16)).unwrap();
        let new = (8..16).take_while(|&n| pages.get(n) == page(200)).count();
        assert!((8 + new as u32..16).all(|n| pages.get(n) == page(100)));
        kept.push(8 - new);
    }
    assert!(kept.iter().all(|&old| old > 0), "{kept:?}");
    assert_eq!(store.injected().torn_writes, 20);
}

#[test]
fn a_short_transfer_moves_what_it_reports() {
    let rates = FaultRates {
        short_read: 1000,
        ..FaultRates::default()
    };
    let (mut store, pages) = (Faulty::new(memory(), 4, rates), Pages::new(16));
    (0..8).for_each(|n| pages.set(n, &page(n.into())));
    carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..8)).unwrap();
    let mut lengths = std::collections::BTreeSet::new();
    for _ in 0..50 {
        (8..16).for_each(|n| pages.set(n, &page(77)));
        let error = carry_out(&mut store, Direction::PageIn, 0, &pages.frames(8..16)).unwrap_err();
        assert_eq!((error.errno(), error.slots), (Some(libc::EIO), slots(0, 8)));
        let done = (error.bytes_done / PAGE_BYTES as u64) as u32;
        assert!((0..done).all(|n| pages.get(8 + n) == page(n.into())));
        assert!((done..8).all(|n| pages.get(8 + n) == page(77)));
        lengths.insert(done);
    }
    assert!(
        lengths.len() > 4 && lengths.last() < Some(&8),
        "{lengths:?}"
    );
}

#[test]
fn a_full_store_rolls_no_dice() {
    let rates = FaultRates {
        write_error: 500,
        ..FaultRates::default()
    };
    let results = |retries: u32| {
        let (mut store, pages) = (Faulty::new(memory(), 8, rates), Pages::new(1));
        let mut results = Vec::new();
        for _ in 0..50 {
            for n in 0..4 {
                store
                    .submit(&request(n, Direction::PageOut, 0, &pages.frames([0])))
                    .unwrap();
            }
            for _ in 0..retries {
                let full = store.submit(&request(9, Direction::PageOut, 0, &pages.frames([0])));
                assert_eq!(full, Err(SubmitError::Full));
            }
            let mut ended = collect(&mut store, 4);
            ended.sort_by_key(|c| c.token.0);
            results.extend(ended);
        }
        results
    };
    assert_eq!(results(0), results(3));
}

#[test]
fn counts_requests_pages_sizes_and_failures_by_direction() {
    let rates = FaultRates {
        read_error: 1000,
        ..FaultRates::default()
    };
    let (mut store, pages) = (
        Counting::new(Faulty::new(memory(), 1, rates)),
        Pages::new(8),
    );
    for count in [1, 3, 4, 8] {
        carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..count)).unwrap();
    }
    carry_out(&mut store, Direction::PageIn, 0, &pages.frames(0..2)).unwrap_err();
    let out = *store.counts(Direction::PageOut);
    assert_eq!(
        (out.requests, out.pages, out.bytes(), out.failed),
        (4, 16, 65536, 0)
    );
    assert_eq!(out.histogram[..5], [1, 1, 1, 1, 0]);
    let back = *store.counts(Direction::PageIn);
    assert_eq!((back.requests, back.pages, back.failed), (1, 2, 1));
    assert_eq!(back.histogram[1], 1);
}
