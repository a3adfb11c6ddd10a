//! After construction a store allocates nothing, on any of its threads.
//!
//! Without the test harness, whose threads allocate when they like.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::stores::*;
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

fn allocations_of_traffic(mut store: Box<dyn SwapStore>) -> u64 {
    let pages = Pages::new(256);
    let frames = pages.frames((0..64).map(|n| n * 2));
    let mut out = Vec::with_capacity(64);
    let mut traffic = |rounds: u32| {
        for round in 0..rounds {
            let out_of = if round % 2 == 0 {
                Direction::PageOut
            } else {
                Direction::PageIn
            };
            for n in 0..8 {
                let frames = &frames[n as usize * 8..][..8];
                store
                    .submit(&request(n, out_of, n as u32 * 8, frames))
                    .unwrap();
            }
            while store.in_flight() > 0 {
                store.wait(1_000_000_000);
                out.clear();
                store.poll(&mut out);
            }
            store.reserve(slots(64, 64)).unwrap();
            store.forget(slots(64, 64));
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
        request_pages_max: 8,
    };
    for (name, make) in swap_stores() {
        let store = make(128, config);
        assert_eq!(allocations_of_traffic(store), 0, "{name}");
        println!("test no allocation ({name}) ... ok");
    }
    let rates = FaultRates {
        write_error: 100,
        short_write: 100,
        short_read: 100,
        bad_page: 100,
        bit_flip: 100,
        ..FaultRates::default()
    };
    let faulty = Faulty::new(delayed(uring(128, config)), 1, rates);
    let traffic = allocations_of_traffic(Box::new(encrypted(faulty, 64, 64)));
    assert_eq!(traffic, 0, "encrypted faulty delayed uring");
    println!("test no allocation (encrypted faulty delayed uring) ... ok");
}

each_store!(swap_stores);
