//! A page that cannot be read costs no other, whatever a store is wrapped in.

use std::cell::Cell;

use crate::common::*;
use outpage_core::units::PAGE_BYTES;
use outpage_store::*;

const CONFIG: Config = Config {
    depth: 8,
    request_pages_max: 64,
};

/// Slots that can be written and never read.
const fn bad(slot: u32) -> bool {
    slot % 37 == 5 || slot == 20 || slot == 21
}

/// A disk that fails every read that touches a bad slot, whole, and scribbles on the memory it was to fill.
fn bad_sectors(fd: i32, direction: Direction, offset: u64, iovecs: &[IoVec]) -> Result<usize, i32> {
    let first = (offset / PAGE_BYTES as u64) as u32;
    let bytes: usize = iovecs.iter().map(|piece| piece.len()).sum();
    let mut slots = first..first + (bytes / PAGE_BYTES) as u32;
    let (count, pieces) = (iovecs.len() as i32, iovecs.as_ptr().cast());
    // SAFETY: frames of a request in flight, in the layout of the kernel.
    let moved = unsafe {
        match direction {
            Direction::PageIn => libc::preadv(fd, pieces, count, offset as i64),
            Direction::PageOut => libc::pwritev(fd, pieces, count, offset as i64),
        }
    };
    if moved < 0 || direction == Direction::PageIn && slots.any(bad) {
        return Err(libc::EIO);
    }
    Ok(moved as usize)
}

fn disk() -> PoolStore {
    PoolStore::with_transfer(swap_file(256), CONFIG, 3, Box::new(StdSpawner), bad_sectors).unwrap()
}

fn only_bad_pages_fail(name: &str, mut store: Box<dyn Store>) {
    let pages = Pages::new(128);
    for start in (0..256).step_by(64) {
        (0..64).for_each(|n| pages.set(n, &page(u64::from(start + n))));
        carry_out(&mut store, Direction::PageOut, start, &pages.frames(0..64)).unwrap();
    }
    for (start, count) in [
        (0, 64),
        (10, 64),
        (5, 1),
        (6, 14),
        (20, 2),
        (19, 4),
        (70, 9),
        (192, 64),
    ] {
        (64..128).for_each(|n| pages.set(n, &page(9999)));
        let frames = pages.frames((0..count).map(|n| 64 + (n * 7) % 64));
        store
            .submit(&request(3, Direction::PageIn, start, &frames))
            .unwrap();
        let ended = collect(&mut store, 1)[0];
        let expected: Vec<_> = (0..count).filter(|n| bad(start + n)).collect();
        let failed: Vec<_> = ended.failed.iter().collect();
        assert_eq!(failed, expected, "{name}: {start}..+{count}");
        match ended.result {
            Ok(()) => assert!(expected.is_empty()),
            Err(error) => {
                let good = (count as usize - expected.len()) * PAGE_BYTES;
                assert_eq!(
                    (error.bytes_done, error.slots),
                    (good as u64, slots(start, count))
                );
                assert_eq!(error.errno(), Some(libc::EIO));
            }
        }
        for n in (0..count).filter(|n| !bad(start + n)) {
            assert!(
                pages.get(64 + (n * 7) % 64) == page(u64::from(start + n)),
                "{name}: page {n} of {start}..+{count} came back wrong"
            );
        }
        assert_eq!(store.in_flight(), 0);
    }
}

#[test]
fn only_bad_pages_fail_in_any_wrapper() {
    let rates = FaultRates::default();
    let polls = Cell::new(0);
    let now = move || {
        polls.set(polls.get() + 1);
        polls.get()
    };
    let stores: [(&str, Box<dyn Store>); 8] = [
        ("plain", Box::new(disk())),
        (
            "delayed",
            Box::new(Delayed::new(disk(), Delay::Nanos(3), now)),
        ),
        ("faulty", Box::new(Faulty::new(disk(), 1, rates))),
        ("counting", Box::new(Counting::new(disk()))),
        (
            "bounced",
            Box::new(Bounced::new(disk(), Pages::provider(96))),
        ),
        ("encrypted", Box::new(encrypted(disk(), 96, 64))),
        ("encrypted in place", Box::new(encrypted(disk(), 0, 64))),
        (
            "all",
            Box::new(Counting::new(encrypted(
                Faulty::new(disk(), 1, rates),
                64,
                64,
            ))),
        ),
    ];
    for (name, store) in stores {
        only_bad_pages_fail(name, store);
    }
}

#[test]
fn a_page_that_is_bad_on_purpose_is_the_only_one() {
    let rates = FaultRates {
        bad_page: 1000,
        ..FaultRates::default()
    };
    let memory = MemoryStore::new(64, CopyAt::Poll, CONFIG);
    let mut store = Counting::new(Faulty::new(memory, 6, rates));
    let pages = Pages::new(16);
    (0..8).for_each(|n| pages.set(n, &page(n.into())));
    carry_out(&mut store, Direction::PageOut, 0, &pages.frames(0..8)).unwrap();
    let mut struck = std::collections::BTreeSet::new();
    for _ in 0..50 {
        store
            .submit(&request(1, Direction::PageIn, 0, &pages.frames(8..16)))
            .unwrap();
        let ended = collect(&mut store, 1)[0];
        assert_eq!((ended.failed.count(), ended.result.is_err()), (1, true));
        for n in 0..8 {
            let good = pages.get(8 + n) == page(n.into());
            assert_eq!(good, !ended.failed.contains(n));
        }
        struck.extend(ended.failed.iter());
    }
    assert_eq!(struck.len(), 8, "each page once in a while");
    let counts = store.counts(Direction::PageIn);
    assert_eq!((counts.failed, counts.failed_pages), (50, 50));
    assert_eq!(store.inner().injected().bad_pages, 50);
}
