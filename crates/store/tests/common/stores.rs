//! Every store and every wrapper, once. Whatever a test does to all of them it does by [`each_store!`].

use std::cell::Cell;

use outpage_core::units::PAGE_BYTES;
use outpage_store::*;

use super::*;

pub fn pool(slots: u32, config: Config) -> PoolStore {
    PoolStore::new(swap_file(slots), config, 3, Box::new(StdSpawner)).unwrap()
}

pub fn bounced<S: Store>(store: S, frames: u32) -> Bounced<S> {
    Bounced::new(store, Pages::provider(frames))
}

pub fn uring(slots: u32, config: Config) -> UringStore {
    UringStore::new(swap_file(slots), config).unwrap()
}

/// A disk that is interrupted, not ready and short of breath in turn. Moves whole and broken pages.
///
/// Each thread has its own turns: with turns in common, threads in step could leave one of them all the
/// interruptions, until its request fails as it should.
pub fn short_of_breath(
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
    // Partial pages are for files without O_DIRECT, so they go through a buffer here: on the stack, for a fork may come at any time.
    let mut buffer = [0_u8; 4 * PAGE_BYTES];
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

pub fn short_pool(slots: u32, config: Config) -> PoolStore {
    let file = swap_file(slots);
    PoolStore::with_transfer(file, config, 2, Box::new(StdSpawner), short_of_breath).unwrap()
}

pub fn memory(slots: u32, config: Config) -> MemoryStore {
    MemoryStore::new(slots, CopyAt::Poll, config)
}

pub fn delayed<S: Store>(store: S) -> Delayed<S, fn() -> u64> {
    Delayed::new(store, Delay::Polls(3), || 0)
}

/// The clock stands still: what is held back waits for the reads before it.
pub fn ordered<S: Store>(store: S) -> Ordered<S, fn() -> u64> {
    Ordered::new(store, || 0)
}

pub fn faultless<S: Store>(store: S) -> Faulty<S> {
    Faulty::new(store, 1, FaultRates::default())
}

/// Hands the list to the macro `$then`: a name, what it has (`SwapStore`, or `Store` where it neither grows nor follows forks), and
/// how it is made of a number of slots and a `Config`. A new store joins by a line here.
#[macro_export]
macro_rules! each_store {
    ($then:ident) => {
        $then! {
            uring_store: SwapStore, |slots, config| Box::new(uring(slots, config));
            pool_store: SwapStore, |slots, config| Box::new(pool(slots, config));
            pool_with_short_transfers: SwapStore, |slots, config| Box::new(short_pool(slots, config));
            memory_at_submit: SwapStore, |slots, config| {
                Box::new(MemoryStore::new(slots, CopyAt::Submit, config))
            };
            memory_at_poll: SwapStore, |slots, config| Box::new(memory(slots, config));
            boxed_memory: SwapStore, |slots, config| {
                Box::new(Box::new(memory(slots, config)) as Box<dyn SwapStore>)
            };
            delayed_uring: SwapStore, |slots, config| Box::new(delayed(uring(slots, config)));
            delayed_memory: SwapStore, |slots, config| Box::new(delayed(memory(slots, config)));
            ordered_uring: SwapStore, |slots, config| Box::new(ordered(uring(slots, config)));
            ordered_delayed_memory: SwapStore, |slots, config| {
                Box::new(ordered(delayed(memory(slots, config))))
            };
            encrypted_ordered_pool: SwapStore, |slots, config| {
                Box::new(encrypted(ordered(pool(slots, config)), 24, 64))
            };
            faultless_faulty_pool: SwapStore, |slots, config| Box::new(faultless(pool(slots, config)));
            bounced_uring: SwapStore, |slots, config| Box::new(bounced(uring(slots, config), 512));
            // Some requests find room, others do not.
            bounced_pool_of_little_room: SwapStore, |slots, config| {
                Box::new(bounced(pool(slots, config), 24))
            };
            bounced_memory: SwapStore, |slots, config| Box::new(bounced(memory(slots, config), 64));
            bounced_pool_with_short_transfers: SwapStore, |slots, config| {
                Box::new(bounced(short_pool(slots, config), 512))
            };
            encrypted_uring: SwapStore, |slots, config| {
                Box::new(encrypted(uring(slots, config), 512, 64))
            };
            // Page-outs go through the area, page-ins are decrypted where they are.
            encrypted_pool_without_a_buffer: SwapStore, |slots, config| {
                Box::new(encrypted(pool(slots, config), 0, 96))
            };
            encrypted_pool_of_little_room: SwapStore, |slots, config| {
                Box::new(encrypted(pool(slots, config), 24, 64))
            };
            encrypted_delayed_faulty_memory: SwapStore, |slots, config| {
                Box::new(encrypted(faultless(delayed(memory(slots, config))), 0, 64))
            };
            faulty_encrypted_pool_with_short_transfers: SwapStore, |slots, config| {
                Box::new(faultless(encrypted(short_pool(slots, config), 512, 64)))
            };
            counting_memory: SwapStore, |slots, config| Box::new(Counting::new(memory(slots, config)));
            counting_faulty_uring: SwapStore, |slots, config| {
                Box::new(Counting::new(faultless(uring(slots, config))))
            };
        }
    };
}

/// For [`each_store!`]: the function `make() -> Vec<(name, fn(slots, config) -> store)>` of all that have all traits.
#[macro_export]
macro_rules! swap_stores {
    ($($store:ident: $has:ident, $make:expr;)*) => {
        type Make = fn(u32, Config) -> Box<dyn SwapStore>;
        fn swap_stores() -> Vec<(&'static str, Make)> {
            #[allow(unused_mut, reason = "as many as the list has")]
            let mut all: Vec<(&'static str, Make)> = Vec::new();
            $(swap_stores!(@add all $store $has $make);)*
            all
        }
    };
    (@add $all:ident $store:ident SwapStore $make:expr) => { $all.push((stringify!($store), $make)); };
    (@add $all:ident $store:ident Store $make:expr) => {};
}
