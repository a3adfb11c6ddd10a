//! After construction a store allocates nothing, on any of its threads.
//!
//! Without the test harness, whose threads allocate when they like.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::stores::*;
use common::*;
use outpage_store::compressed::{Codec, Memory, Pool};
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

/// Frames of compressed pages: never given back, so that nothing but the pool can allocate.
struct Plain(Vec<u8>);

impl Memory for Plain {
    fn capacity(&self) -> usize {
        self.0.len() / 4096
    }
    fn bytes(&self, start: usize, end: usize) -> &[u8] {
        &self.0[start..end]
    }
    fn bytes_mut(&mut self, start: usize, end: usize) -> &mut [u8] {
        &mut self.0[start..end]
    }
    fn give_back(&mut self, _first: usize, _count: usize) {}
}

fn allocations_of_a_pool(codec: Codec) -> u64 {
    let mut pool = Pool::new(Plain(vec![0; 512 * 4096]), 1024, codec);
    let (mut page, mut out, mut state) = ([0; 4096], [0; 4096], 1_u32);
    let (mut kept, mut freed) = (0, 0);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    pool.set_limit(400);
    for round in 0..20_000_u32 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (slot, len) = (state >> 22, round as usize * 7919 % 3700);
        page[len..].fill(0);
        for (at, byte) in page[..len].iter_mut().enumerate() {
            *byte = (state.wrapping_mul(at as u32 | 1) >> 24) as u8;
        }
        kept += u32::from(pool.put(slot, &page).is_ok());
        if round % 3 == 0 {
            let _ = pool.take((slot + 77) % 1024, &mut out);
        }
        if round % 1000 == 0 {
            pool.forget(slot / 2, slot);
            freed += pool.compact(100);
        }
    }
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(
        kept > 5000 && freed > 0,
        "{kept} kept, {freed} frames freed"
    );
    allocated
}

fn main() {
    for &codec in Codec::ALL {
        assert_eq!(allocations_of_a_pool(codec), 0, "{codec:?}");
        println!("test no allocation (compressed, {}) ... ok", codec.name());
    }
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
