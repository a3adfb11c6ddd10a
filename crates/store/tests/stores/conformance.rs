//! What every store must do, run on each of them.

use crate::common::stores::*;
use crate::common::*;
use crate::{each_store, swap_stores};
use outpage_core::units::PAGE_BYTES;
use outpage_store::*;
use proptest::prelude::*;

const CONFIG: Config = Config {
    depth: 8,
    request_pages_max: 64,
};

fn round_trip_with_scattered_frames(mut store: Box<dyn Store>) {
    let pages = Pages::new(64);
    let order = [9, 3, 4, 5, 60, 59, 0, 1];
    for (slot, frame) in order.into_iter().enumerate() {
        pages.set(frame, &page(slot as u64));
    }
    carry_out(&mut store, Direction::PageOut, 5, &pages.frames(order)).unwrap();
    let back = [10, 12, 14, 15, 16, 30, 29, 28];
    carry_out(&mut store, Direction::PageIn, 5, &pages.frames(back)).unwrap();
    for (slot, frame) in back.into_iter().enumerate() {
        assert!(
            pages.get(frame) == page(slot as u64),
            "slot {slot} came back wrong"
        );
    }
    assert!(pages.get(11) == [0; PAGE_BYTES] && pages.get(31) == [0; PAGE_BYTES]);
    carry_out(&mut store, Direction::PageIn, 7, &pages.frames([40])).unwrap();
    assert!(pages.get(40) == page(2), "a slot in the middle of a run");
}

fn the_largest_request_has_no_two_neighbours(mut store: Box<dyn Store>) {
    let pages = Pages::new(128);
    let even = || pages.frames((0..64).map(|n| n * 2));
    for n in 0..64 {
        pages.set(n * 2, &page(n.into()));
    }
    assert_eq!(store.request_pages_max(), 64);
    carry_out(&mut store, Direction::PageOut, 0, &even()).unwrap();
    for n in 0..64 {
        pages.set(n * 2, &page(1000));
    }
    carry_out(&mut store, Direction::PageIn, 0, &even()).unwrap();
    assert!((0..64).all(|n| pages.get(n * 2) == page(n.into())));
}

fn requests_in_flight_together_keep_apart(mut store: Box<dyn Store>) {
    let pages = Pages::new(64);
    (0..32).for_each(|n| pages.set(n, &page(n.into())));
    // Slots from the top down, so that the file grows at once, then is filled.
    for n in (0..8).rev() {
        let frames = pages.frames(n * 4..n * 4 + 4);
        store
            .submit(&request(n.into(), Direction::PageOut, n * 4, &frames))
            .unwrap();
    }
    assert_eq!(store.in_flight(), 8);
    let ended = collect(&mut store, 8);
    let mut tokens: Vec<_> = ended.iter().map(|c| (c.token.0, c.result)).collect();
    tokens.sort_by_key(|t| t.0);
    assert_eq!(tokens, (0..8).map(|n| (n, Ok(()))).collect::<Vec<_>>());
    for n in 0..8 {
        let frames = pages.frames(32 + n * 4..32 + n * 4 + 4);
        store
            .submit(&request(100, Direction::PageIn, n * 4, &frames))
            .unwrap();
    }
    assert!(
        collect(&mut store, 8)
            .iter()
            .all(|c| c.token == Token(100) && c.result.is_ok())
    );
    assert!((0..32).all(|n| pages.get(32 + n) == page(n.into())));
    assert_eq!(store.in_flight(), 0);
}

fn a_full_store_says_so_and_recovers(mut store: Box<dyn Store>) {
    let pages = Pages::new(16);
    let depth = store.depth() as u32;
    let submit = |store: &mut Box<dyn Store>, n: u32| {
        store.submit(&request(n.into(), Direction::PageOut, n, &[pages.frame(n)]))
    };
    for n in 0..depth {
        submit(&mut store, n).unwrap();
    }
    assert_eq!(submit(&mut store, depth), Err(SubmitError::Full));
    assert_eq!(store.in_flight(), depth as usize);
    assert_eq!(collect(&mut store, 1).len(), 1);
    submit(&mut store, depth).unwrap();
    assert_eq!(submit(&mut store, depth + 1), Err(SubmitError::Full));
    let mut tokens: Vec<_> = collect(&mut store, depth as usize)
        .iter()
        .map(|c| c.token)
        .collect();
    tokens.dedup();
    assert_eq!(tokens.len(), depth as usize);
    assert_eq!(store.in_flight(), 0);
}

fn poll_respects_the_room_it_is_given(mut store: Box<dyn Store>) {
    let pages = Pages::new(8);
    for n in 0..8 {
        store
            .submit(&request(
                n,
                Direction::PageOut,
                n as u32,
                &[pages.frame(n as u32)],
            ))
            .unwrap();
    }
    let mut nowhere = Vec::new();
    assert_eq!((store.poll(&mut nowhere), nowhere.capacity()), (0, 0));
    let mut seen = Vec::new();
    while seen.len() < 8 {
        let mut out = Vec::with_capacity(3);
        let room = out.capacity();
        store.wait(1_000_000_000);
        let count = store.poll(&mut out);
        assert_eq!((count, out.capacity()), (out.len(), room));
        seen.extend(out.iter().map(|c| c.token.0));
        assert_eq!(store.in_flight(), 8 - seen.len());
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
}

fn past_the_end_is_an_error_and_never_zeroes(mut store: Box<dyn Store>) {
    let pages = Pages::new(8);
    let error = carry_out(&mut store, Direction::PageIn, 3, &pages.frames(0..1)).unwrap_err();
    assert_eq!((error.cause, error.bytes_done), (Cause::EndOfStore, 0));
    carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..3)).unwrap();
    let error = carry_out(
        &mut store,
        Direction::PageIn,
        1,
        &pages.frames([0, 1, 4, 5]),
    )
    .unwrap_err();
    assert_eq!(
        (error.cause, error.bytes_done),
        (Cause::EndOfStore, 2 * PAGE_BYTES as u64)
    );
    assert_eq!(
        (error.direction, error.slots),
        (Direction::PageIn, slots(1, 4))
    );
    let error = carry_out(&mut store, Direction::PageIn, 40, &pages.frames([6])).unwrap_err();
    assert_eq!(error.cause, Cause::EndOfStore);
}

fn waiting_for_nothing_returns(mut store: Box<dyn Store>) {
    assert!(
        !store.wait(u64::MAX / 2),
        "nothing is in flight, so nothing can come"
    );
    assert_eq!(store.poll(&mut Vec::with_capacity(1)), 0);
}

fn the_wake_descriptor_wakes_and_falls_silent(mut store: Box<dyn Store>) {
    let Some(fd) = store.wake_fd() else { return };
    let pages = Pages::new(64);
    let frames = pages.frames(0..64);
    let mut out = Vec::with_capacity(8);
    for round in 0..50 {
        let requests = round % 8 + 1;
        for n in 0..requests {
            store
                .submit(&request(
                    n,
                    Direction::PageOut,
                    n as u32,
                    &frames[n as usize..][..1],
                ))
                .unwrap();
        }
        out.clear();
        while out.len() < requests as usize {
            if store.poll(&mut out) == 0 {
                assert!(
                    readable(fd, 60_000),
                    "asleep with {} in flight",
                    store.in_flight()
                );
            }
        }
        // A signal may come after its completion was taken, but not again and again.
        let stale = (0..100)
            .take_while(|_| readable(fd, 1) && store.poll(&mut out) == 0)
            .count();
        assert!(stale < 100, "the descriptor stays readable for nothing");
    }
}

fn a_request_for_the_wrong_number_of_frames_is_a_bug(mut store: Box<dyn Store>) {
    let pages = Pages::new(4);
    let frames = pages.frames(0..4);
    let mut panics = |range, frames: &[Frame]| {
        let request = Request {
            token: Token(0),
            direction: Direction::PageIn,
            slots: range,
            frames,
            awaited: true,
        };
        let submit = std::panic::AssertUnwindSafe(|| store.submit(&request));
        std::panic::catch_unwind(submit).is_err()
    };
    assert!(panics(slots(0, 3), &frames));
    assert!(panics(slots(0, 0), &[]));
    assert!(panics(slots(254, 4), &frames), "past the capacity of 256");
}

fn the_capacity_is_that_of_its_making(store: Box<dyn Store>) {
    assert_eq!(store.capacity_slots(), 256);
}

fn forgotten_slots_cost_no_others_and_can_be_written_again(mut store: Box<dyn Store>) {
    let pages = Pages::new(64);
    (0..32).for_each(|n| pages.set(n, &page(n.into())));
    carry_out(&mut store, Direction::PageOut, 100, &pages.frames(0..32)).unwrap();
    let before = store.ram_bytes();
    // In the midst, at both ends, nothing at all, and what was never written.
    for (start, count) in [(104, 9), (100, 1), (131, 1), (110, 0), (0, 20), (255, 1)] {
        store.forget(slots(start, count));
    }
    assert!(store.ram_bytes() <= before);
    let dead = |slot: u32| [100, 131].contains(&slot) || (104..113).contains(&slot);
    let read = |store: &mut Box<dyn Store>| {
        (32..64).for_each(|n| pages.set(n, &page(9999)));
        let frames = pages.frames(32..64);
        store
            .submit(&request(1, Direction::PageIn, 100, &frames))
            .unwrap();
        collect(store, 1)[0]
    };
    let ended = read(&mut store);
    assert!(ended.failed.iter().all(|n| dead(100 + n)), "{ended:?}");
    let good = |n: u32| pages.get(32 + n) == page(n.into());
    assert!((0..32).all(|n| dead(100 + n) || good(n)));
    // A page that is said to be there is what it was: never zeroes.
    assert!((0..32).all(|n| ended.failed.contains(n) || good(n)));
    carry_out(&mut store, Direction::PageOut, 104, &pages.frames(4..13)).unwrap();
    for slot in [100, 131] {
        carry_out(
            &mut store,
            Direction::PageOut,
            slot,
            &pages.frames([slot - 100]),
        )
        .unwrap();
    }
    assert_eq!(read(&mut store).result, Ok(()));
    assert!((0..32).all(good));
    let past = std::panic::AssertUnwindSafe(|| store.forget(slots(250, 7)));
    assert!(std::panic::catch_unwind(past).is_err(), "past the capacity");
}

/// The fewest frames that an encrypting store of the list has for page-outs: with more in flight it may say that it is full.
const AREA_PAGES_MIN: u32 = 64;

/// One step of the model test.
#[derive(Clone, Debug)]
struct Op {
    /// `None`: the slots are forgotten.
    direction: Option<Direction>,
    start: u32,
    count: u32,
    seed: u64,
}

fn op() -> impl Strategy<Value = Op> {
    (0..7, 0..60_u32, 1..24_u32, any::<u64>()).prop_map(|(what, start, count, seed)| {
        let direction = match what {
            0..3 => Some(Direction::PageOut),
            3..6 => Some(Direction::PageIn),
            _ => None,
        };
        Op {
            direction,
            start,
            count,
            seed,
        }
    })
}

/// The store beside a list of what its slots must hold.
struct Model {
    store: Box<dyn Store>,
    pages: Pages,
    free: Vec<u32>,
    slots: Vec<Option<u64>>,
    in_flight: Vec<(Op, Vec<u32>)>,
}

impl Model {
    fn step(&mut self, op: Op) {
        let overlaps = |other: &Op| {
            let apart = op.start + op.count <= other.start || other.start + other.count <= op.start;
            !apart && [op.direction, other.direction] != [Some(Direction::PageIn); 2]
        };
        let many = self.in_flight.len() == self.store.depth();
        if many
            || self.in_flight.iter().any(|(other, _)| overlaps(other))
            || self.free.len() < op.count as usize
        {
            self.drain();
        }
        let Some(direction) = op.direction else {
            self.store.forget(slots(op.start, op.count));
            self.slots[op.start as usize..][..op.count as usize].fill(None);
            return;
        };
        let mut frames = Vec::new();
        for n in 0..op.count {
            let pick = op.seed.wrapping_mul(n as u64 * 2 + 3) % self.free.len() as u64;
            frames.push(self.free.swap_remove(pick as usize));
        }
        for (n, &frame) in frames.iter().enumerate() {
            self.pages.set(frame, &page(op.seed ^ n as u64));
            if direction == Direction::PageOut {
                self.slots[op.start as usize + n] = Some(op.seed ^ n as u64);
            }
        }
        let addresses = self.pages.frames(frames.iter().copied());
        let token = self.in_flight.len() as u64;
        let ordered = request(token, direction, op.start, &addresses);
        if let Err(SubmitError::Full) = self.store.submit(&ordered) {
            let pages_out = self.pages_out() + op.count;
            assert!(direction == Direction::PageOut && pages_out > AREA_PAGES_MIN);
            self.drain();
            let first = request(0, direction, op.start, &addresses);
            self.store.submit(&first).expect("nothing is in flight");
        }
        self.in_flight.push((op, frames));
    }

    /// Pages of the page-outs in flight.
    fn pages_out(&self) -> u32 {
        let outs = self.in_flight.iter().map(|(op, _)| op);
        let outs = outs.filter(|op| op.direction == Some(Direction::PageOut));
        outs.map(|op| op.count).sum()
    }

    /// What was written is there, page by page; what was not may fail.
    fn drain(&mut self) {
        for completion in collect(&mut self.store, self.in_flight.len()) {
            let (op, frames) = &self.in_flight[completion.token.0 as usize];
            assert_eq!(completion.result.is_err(), !completion.failed.is_empty());
            if op.direction == Some(Direction::PageOut) {
                assert_eq!(completion.result, Ok(()));
                continue;
            }
            if let Err(error) = completion.result {
                let good = op.count - completion.failed.count();
                assert!(matches!(error.cause, Cause::EndOfStore | Cause::Empty));
                assert_eq!(error.bytes_done, u64::from(good) * PAGE_BYTES as u64);
            }
            for (n, &frame) in (0..).zip(frames) {
                if let Some(seed) = self.slots[(op.start + n) as usize] {
                    assert!(!completion.failed.contains(n), "{op:?}, page {n}");
                    assert!(self.pages.get(frame) == page(seed), "{op:?}, page {n}");
                }
            }
        }
        for (_, frames) in self.in_flight.drain(..) {
            self.free.extend(frames);
        }
    }
}

fn behaves_like_a_list_of_slots(make: fn(u32, Config) -> Box<dyn Store>) {
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..Default::default()
    };
    proptest!(config, |(ops in proptest::collection::vec(op(), 1..80))| {
        let (store, pages) = (make(256, CONFIG), Pages::new(128));
        let (free, slots) = ((0..128).collect(), vec![None; 256]);
        let mut model = Model { store, pages, free, slots, in_flight: Vec::new() };
        ops.into_iter().for_each(|op| model.step(op));
        model.drain();
    });
}

fn the_first_and_the_last_slots_are_slots_like_others(mut store: Box<dyn Store>) {
    let pages = Pages::new(64);
    (0..64).for_each(|n| pages.set(n, &page(n.into())));
    for (start, count) in [(0, 1), (255, 1), (192, 64), (0, 64), (254, 2)] {
        (0..count).for_each(|n| pages.set(n, &page(u64::from(start + n))));
        let frames = pages.frames(0..count);
        carry_out(&mut store, Direction::PageOut, start, &frames).unwrap();
        (0..count).for_each(|n| pages.set(n, &page(9999)));
        carry_out(&mut store, Direction::PageIn, start, &frames).unwrap();
        assert!((0..count).all(|n| pages.get(n) == page(u64::from(start + n))));
    }
    carry_out(&mut store, Direction::PageIn, 0, &pages.frames([7])).unwrap();
    assert!(pages.get(7) == page(0), "the last slots are not the first");
}

fn what_was_written_last_is_what_is_read(mut store: Box<dyn Store>) {
    let pages = Pages::new(64);
    for round in 0..20_u32 {
        let (start, count) = (round % 3, 1 + round * 7 % 24);
        (0..count).for_each(|n| pages.set(n, &page(u64::from(round * 100 + n))));
        carry_out(
            &mut store,
            Direction::PageOut,
            start,
            &pages.frames(0..count),
        )
        .unwrap();
        // Page-ins of one slot may be under way together.
        for n in 0..4 {
            let frames = pages.frames(32..32 + count);
            let frames = if n == 0 {
                &frames
            } else {
                &pages.frames([60 + n])
            };
            store
                .submit(&request(n.into(), Direction::PageIn, start, frames))
                .unwrap();
        }
        assert!(collect(&mut store, 4).iter().all(|c| c.result.is_ok()));
        assert!((0..count).all(|n| pages.get(32 + n) == page(u64::from(round * 100 + n))));
        assert!((61..64).all(|n| pages.get(n) == page(u64::from(round * 100))));
    }
}

fn requests_that_fail_are_not_in_flight_any_more(mut store: Box<dyn Store>) {
    let pages = Pages::new(64);
    for round in 1..=20 {
        for n in 0..8 {
            assert_eq!(store.in_flight(), n as usize);
            let frames = pages.frames(n * 8..n * 8 + 8);
            store
                .submit(&request(n.into(), Direction::PageIn, n * 8, &frames))
                .unwrap();
        }
        assert_eq!(store.in_flight(), store.depth());
        let ended = collect(&mut store, 8);
        assert_eq!(store.in_flight(), 0, "round {round}");
        for completion in ended {
            assert_eq!(completion.failed, PageBits::of(0..8));
            assert_eq!(completion.result.unwrap_err().bytes_done, 0);
        }
    }
}

fn ram_is_told_and_bounded(mut store: Box<dyn Store>) {
    let pages = Pages::new(64);
    let empty = store.ram_bytes();
    assert_eq!(empty % PAGE_BYTES as u64, 0);
    let write = |store: &mut Box<dyn Store>, start| {
        carry_out(store, Direction::PageOut, start, &pages.frames(0..64)).unwrap();
        store.ram_bytes()
    };
    let once = write(&mut store, 0);
    assert_eq!(write(&mut store, 0), once, "the same slots, the same RAM");
    let kept = write(&mut store, 64) - once;
    assert!(kept == 0 || kept == 64 * PAGE_BYTES as u64, "{kept}");
    store.forget(slots(0, 256));
    // Buffers stay.
    assert_eq!(store.ram_bytes(), once - kept);
}

macro_rules! conformance {
    ($($store:ident: $has:ident, $make:expr;)*) => {$(
        mod $store {
            use super::*;

            fn make(slots: u32, config: Config) -> Box<dyn Store> {
                let make: fn(u32, Config) -> Box<dyn $has> = $make;
                Box::new(make(slots, config))
            }
            conformance!(@tests
                round_trip_with_scattered_frames
                the_largest_request_has_no_two_neighbours
                requests_in_flight_together_keep_apart
                a_full_store_says_so_and_recovers
                poll_respects_the_room_it_is_given
                past_the_end_is_an_error_and_never_zeroes
                waiting_for_nothing_returns
                the_wake_descriptor_wakes_and_falls_silent
                a_request_for_the_wrong_number_of_frames_is_a_bug
                the_capacity_is_that_of_its_making
                forgotten_slots_cost_no_others_and_can_be_written_again
                the_first_and_the_last_slots_are_slots_like_others
                what_was_written_last_is_what_is_read
                requests_that_fail_are_not_in_flight_any_more
                ram_is_told_and_bounded
            );

            #[test]
            fn behaves_like_a_list_of_slots() {
                super::behaves_like_a_list_of_slots(make);
            }
        }
    )*};
    (@tests $($test:ident)*) => {$(
        #[test]
        fn $test() {
            super::$test(make(256, CONFIG));
        }
    )*};
}

each_store!(conformance);
each_store!(swap_stores);

#[test]
fn room_is_reserved_up_to_the_capacity() {
    for (name, make) in swap_stores() {
        let mut store = make(256, CONFIG);
        for range in [slots(0, 256), slots(255, 1), slots(3, 0), slots(10, 20)] {
            assert!(store.reserve(range).is_ok(), "{name}: {range:?}");
        }
        let error = store.reserve(slots(250, 7)).unwrap_err();
        let cap_bytes = 256 * PAGE_BYTES as u64;
        assert_eq!(error.cause, ReserveCause::TooLarge { cap_bytes }, "{name}");
        let bytes = 7 * PAGE_BYTES as u64;
        assert_eq!((error.slots, error.bytes()), (slots(250, 7), bytes));
        assert!(
            error.to_string().contains("slots 250..257, 28672 bytes"),
            "{error}"
        );
        let pages = Pages::new(1);
        pages.set(0, &page(7));
        carry_out(&mut store, Direction::PageOut, 255, &pages.frames([0])).unwrap();
    }
}

#[test]
fn ram_is_that_of_pages_and_of_areas() {
    let pages = Pages::new(64);
    let ram = |store: &mut dyn Store| {
        let before = store.ram_bytes() / PAGE_BYTES as u64;
        carry_out(store, Direction::PageOut, 0, &pages.frames(0..40)).unwrap();
        (before, store.ram_bytes() / PAGE_BYTES as u64)
    };
    assert_eq!(ram(&mut uring(64, CONFIG)), (0, 0));
    assert_eq!(ram(&mut pool(64, CONFIG)), (0, 0));
    assert_eq!(ram(&mut memory(64, CONFIG)), (0, 40));
    assert_eq!(ram(&mut bounced(pool(64, CONFIG), 96)), (0, 96));
    assert_eq!(ram(&mut encrypted(pool(64, CONFIG), 96, 70)), (70, 166));
    assert_eq!(ram(&mut encrypted(memory(64, CONFIG), 0, 70)), (70, 110));
}
