//! A store that fails: no byte is wrong, and what is lost is told.

use outpage_core::page::State;
use outpage_store::FaultRates;

use super::PAGES;
use crate::tests::fake::at;
use crate::tests::paged::{LIMIT, Paged};
use crate::tests::random::Random;
use crate::world::Mechanism;

fn each(rates: FaultRates, test: impl Fn(Paged)) {
    for mechanism in Mechanism::ALL {
        test(Paged::with_faults(mechanism, PAGES, rates));
    }
}

/// Touches at random, against what the program wrote; how many.
fn touch_at_random(paged: &mut Paged, touches: usize) {
    let mut random = Random(7);
    let mut bytes = vec![0; PAGES];
    for _ in 0..touches {
        let page = random.index(PAGES);
        if random.index(2) == 0 {
            let byte = random.index(256) as u8;
            paged.touch(1, page, Some(byte));
            bytes[page] = byte;
        } else {
            assert_eq!(paged.touch(2, page, None), bytes[page], "page {page}");
        }
        let used = paged.live.pager.frames_used();
        assert!(used <= paged.live.pager.limits().frames, "{used} frames");
    }
}

fn lost(paged: &Paged) -> usize {
    let is_lost = |&page: &usize| paged.live.pager.state(paged.number(page)) == State::Poisoned;
    (0..PAGES).filter(is_lost).count()
}

#[test]
fn requests_that_fail_now_and_then_cost_no_byte() {
    let rates = FaultRates {
        read_error: 60,
        write_error: 60,
        short_read: 30,
        short_write: 30,
        bad_page: 30,
        ..FaultRates::default()
    };
    each(rates, |mut paged| {
        touch_at_random(&mut paged, 12_000);
        let stats = paged.live.pager.stats();
        assert!(stats.read_errors > 0 && stats.write_errors > 0);
        assert_eq!((stats.checksum_errors, lost(&paged)), (0, 0));
    });
}

#[test]
fn what_comes_back_with_a_wrong_bit_is_read_again() {
    let rates = FaultRates {
        bit_flip: 50,
        ..FaultRates::default()
    };
    each(rates, |mut paged| {
        touch_at_random(&mut paged, 6000);
        let stats = paged.live.pager.stats();
        assert!(stats.checksum_errors > 0);
        assert_eq!(lost(&paged), 0);
    });
}

#[test]
fn a_store_that_is_full_now_and_then_loses_nothing() {
    let rates = FaultRates {
        no_space: 200,
        ..FaultRates::default()
    };
    each(rates, |mut paged| {
        touch_at_random(&mut paged, 4000);
        assert_eq!(lost(&paged), 0);
        let stats = paged.live.pager.stats();
        assert!(stats.write_errors > 0 && stats.page_outs > 0);
    });
}

#[test]
fn a_page_that_cannot_be_read_is_lost_alone() {
    let rates = FaultRates {
        read_error: 1000,
        ..FaultRates::default()
    };
    each(rates, |mut paged| {
        for page in 0..PAGES {
            paged.touch(1, page, Some(9));
        }
        paged.settle();
        let is_out = |page: &usize| paged.live.pager.state(paged.number(*page)) == State::PagedOut;
        let out = (0..PAGES).find(is_out).expect("it does not fit");
        assert_eq!(paged.fake.touch(2, at(out), None), None);
        paged.rounds_until(|paged| paged.fake.is_poisoned(out));
        // Its thread goes on, into a signal.
        assert!(!paged.fake.sleeps(2));
        assert_eq!(lost(&paged), 1);
        // Those that are in RAM are as they were.
        let there = |page: &usize| {
            let state = paged.live.pager.state(paged.number(*page));
            matches!(state, State::Resident | State::Staged)
        };
        let there: Vec<_> = (0..PAGES).filter(there).collect();
        assert!(there.len() > LIMIT / 2);
        for page in there.into_iter().rev().take(LIMIT / 4) {
            assert_eq!(paged.touch(1, page, None), 9);
        }
        // And a page that is thrown away may be used anew.
        paged.fake.remove(out, 1, true);
        paged.fake.state().unpoison(out);
        paged.manage(out, 1);
        assert_eq!(paged.touch(1, out, None), 0);
    });
}

/// As [`Paged::touch`]; `None` of a page that is lost.
fn touch_if_there(paged: &mut Paged, page: usize, write: Option<u8>) -> Option<u8> {
    while !paged.fake.is_poisoned(page) {
        let found = paged.fake.touch(2, at(page), write);
        if found.is_some() {
            return found;
        }
        paged.rounds_until(|paged| !paged.fake.sleeps(2));
    }
    None
}

#[test]
fn what_was_torn_is_never_taken_for_a_page() {
    let rates = FaultRates {
        torn_write: 400,
        ..FaultRates::default()
    };
    each(rates, |mut paged| {
        for round in 0..3 {
            for page in 0..PAGES {
                touch_if_there(&mut paged, page, Some(1 + ((page + round) % 250) as u8));
            }
        }
        paged.settle();
        let mut random = Random(3);
        for _ in 0..PAGES {
            let page = random.index(PAGES);
            let found = touch_if_there(&mut paged, page, None);
            assert!(found.is_none_or(|byte| byte == 1 + ((page + 2) % 250) as u8));
        }
        // A slot that was never written cannot be read; one with other bytes has another hash.
        let stats = paged.live.pager.stats();
        assert!(stats.checksum_errors + stats.read_errors > 0);
        assert!(lost(&paged) > 0);
    });
}
