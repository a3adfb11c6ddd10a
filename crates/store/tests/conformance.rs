//! What every store must do, run on each of them.

mod common;

use std::cell::Cell;

use common::*;
use outpage_core::units::PAGE_BYTES;
use outpage_store::*;
use proptest::prelude::*;

const CONFIG: Config = Config {
    depth: 8,
    request_pages_max: 64,
};

fn pool(slots: u32, config: Config) -> PoolStore {
    PoolStore::new(swap_file(slots), config, 3, Box::new(StdSpawner)).unwrap()
}

fn bounced<S: Store>(store: S, frames: u32) -> Bounced<S> {
    Bounced::new(store, Pages::provider(frames))
}

fn uring(slots: u32, config: Config) -> UringStore {
    UringStore::new(swap_file(slots), config).unwrap()
}

/// A disk that is interrupted, not ready and short of breath in turn. Moves whole and broken pages.
///
/// Each thread has its own turns: with turns in common, threads in step could leave one of them all the
/// interruptions, until its request fails as it should.
fn short_of_breath(
    fd: i32,
    direction: Direction,
    offset: u64,
    iovecs: &[IoVec],
) -> Result<usize, i32> {
    thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
    let moved = match CALLS.replace(CALLS.get() + 1) % 5 {
        0 => return Err(libc::EINTR),
        1 => return Err(libc::EAGAIN),
        2 => 1000,
        3 => PAGE_BYTES,
        _ => 2 * PAGE_BYTES + 512,
    };
    let first = iovecs[0];
    let moved = moved.min(first.len());
    let base = std::ptr::with_exposed_provenance_mut::<libc::c_void>(first.base());
    // Partial pages are for files without O_DIRECT, so they go through a buffer here.
    let mut buffer = vec![0_u8; moved.next_multiple_of(PAGE_BYTES) + PAGE_BYTES];
    let start = buffer.as_ptr().align_offset(PAGE_BYTES);
    let aligned = &mut buffer[start..start + moved.next_multiple_of(PAGE_BYTES)];
    // SAFETY: the buffer holds all that is moved to or from it; the frame is valid for `moved`
    // bytes. A page-out of part of a page writes the whole of it from the frame, as the frame goes on.
    let result = unsafe {
        match direction {
            Direction::PageIn => {
                let n = libc::pread(
                    fd,
                    aligned.as_mut_ptr().cast(),
                    aligned.len(),
                    offset as i64,
                );
                base.copy_from_nonoverlapping(
                    aligned.as_ptr().cast(),
                    moved.min(n.max(0) as usize),
                );
                n
            }
            Direction::PageOut => {
                let all = aligned.len();
                aligned
                    .as_mut_ptr()
                    .cast::<libc::c_void>()
                    .copy_from_nonoverlapping(base, all);
                libc::pwrite(fd, aligned.as_ptr().cast(), all, offset as i64)
            }
        }
    };
    if result < 0 {
        Err(libc::EIO)
    } else {
        Ok(moved.min(result as usize))
    }
}

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
        self.store
            .submit(&request(token, direction, op.start, &addresses))
            .unwrap();
        self.in_flight.push((op, frames));
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

macro_rules! conformance {
    ($($store:ident: $make:expr;)*) => {$(
        mod $store {
            use super::*;

            fn make(slots: u32, config: Config) -> Box<dyn Store> {
                let make: fn(u32, Config) -> Box<dyn Store> = $make;
                make(slots, config)
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

conformance! {
    uring_store: |slots, config| Box::new(uring(slots, config));
    pool_store: |slots, config| Box::new(pool(slots, config));
    pool_with_short_transfers: |slots, config| Box::new(
        PoolStore::with_transfer(swap_file(slots), config, 2, Box::new(StdSpawner), short_of_breath)
            .unwrap()
    );
    memory_at_submit: |slots, config| Box::new(MemoryStore::new(slots, CopyAt::Submit, config));
    memory_at_poll: |slots, config| Box::new(MemoryStore::new(slots, CopyAt::Poll, config));
    delayed_uring: |slots, config| Box::new(
        Delayed::new(uring(slots, config), Delay::Polls(3), || 0)
    );
    faultless_faulty_pool: |slots, config| Box::new(
        Faulty::new(pool(slots, config), 1, FaultRates::default())
    );
    bounced_uring: |slots, config| Box::new(bounced(uring(slots, config), 512));
    // Some requests find room, others do not.
    bounced_pool_of_little_room: |slots, config| Box::new(bounced(pool(slots, config), 24));
    bounced_memory: |slots, config| Box::new(
        bounced(MemoryStore::new(slots, CopyAt::Poll, config), 64)
    );
    bounced_pool_with_short_transfers: |slots, config| Box::new(bounced(
        PoolStore::with_transfer(swap_file(slots), config, 2, Box::new(StdSpawner), short_of_breath)
            .unwrap(),
        512,
    ));
    encrypted_uring: |slots, config| Box::new(encrypted(uring(slots, config), 512, 64));
    // Page-outs go through the area, page-ins are decrypted where they are.
    encrypted_pool_without_a_buffer: |slots, config| Box::new(encrypted(pool(slots, config), 0, 96));
    encrypted_pool_of_little_room: |slots, config| Box::new(encrypted(pool(slots, config), 24, 64));
    encrypted_delayed_faulty_memory: |slots, config| {
        let memory = MemoryStore::new(slots, CopyAt::Poll, config);
        let delayed = Delayed::new(memory, Delay::Polls(3), || 0);
        Box::new(encrypted(Faulty::new(delayed, 1, FaultRates::default()), 0, 64))
    };
    faulty_encrypted_pool_with_short_transfers: |slots, config| {
        let pool = PoolStore::with_transfer(swap_file(slots), config, 2, Box::new(StdSpawner), short_of_breath);
        Box::new(Faulty::new(encrypted(pool.unwrap(), 512, 64), 1, FaultRates::default()))
    };
    counting_memory: |slots, config| Box::new(
        Counting::new(MemoryStore::new(slots, CopyAt::Poll, config))
    );
}
