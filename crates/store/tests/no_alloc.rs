//! After construction a store allocates nothing, on any of its threads.
//!
//! Without the test harness, whose threads allocate when they like.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use outpage_store::*;

struct CountingAllocator;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn allocations_of_traffic(mut store: Box<dyn Store>) -> u64 {
    let pages = Pages::new(256);
    let frames = pages.frames((0..128).map(|n| n * 2));
    let mut out = Vec::with_capacity(64);
    let mut traffic = |rounds: u32| {
        for round in 0..rounds {
            let out_of = if round % 2 == 0 {
                Direction::PageOut
            } else {
                Direction::PageIn
            };
            for n in 0..8 {
                let frames = &frames[n as usize * 16..][..16];
                store
                    .submit(&request(n, out_of, n as u32 * 16, frames))
                    .unwrap();
            }
            while store.in_flight() > 0 {
                store.wait(1_000_000_000);
                out.clear();
                store.poll(&mut out);
            }
        }
    };
    // The pool's threads allocate when they start.
    traffic(20);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    traffic(200);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn main() {
    let config = Config {
        depth: 8,
        request_pages_max: 16,
    };
    let uring = || UringStore::new(swap_file(128), config).unwrap();
    let rates = FaultRates {
        write_error: 100,
        short_write: 100,
        bit_flip: 100,
        ..FaultRates::default()
    };
    let pool = PoolStore::new(swap_file(128), config, 3, Box::new(StdSpawner)).unwrap();
    let stores: [(&str, Box<dyn Store>); 8] = [
        ("uring", Box::new(uring())),
        ("pool", Box::new(pool)),
        (
            "memory",
            Box::new(MemoryStore::new(128, CopyAt::Poll, config)),
        ),
        (
            "faulty delayed uring",
            Box::new(Faulty::new(
                Delayed::new(uring(), Delay::Polls(2), || 0),
                1,
                rates,
            )),
        ),
        (
            "bounced uring",
            Box::new(Bounced::new(uring(), Pages::provider(64))),
        ),
        ("encrypted uring", Box::new(encrypted(uring(), 64, 64))),
        (
            "encrypted uring without a buffer",
            Box::new(encrypted(uring(), 0, 128)),
        ),
        ("counting", Box::new(Counting::new(uring()))),
    ];
    for (name, store) in stores {
        assert_eq!(allocations_of_traffic(store), 0, "{name}");
        println!("test no allocation ({name}) ... ok");
    }
}
