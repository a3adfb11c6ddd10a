//! The pool against a map, at random.

use std::collections::BTreeMap;

use outpage_core::units::PAGE_BYTES;
use proptest::prelude::*;

use super::*;

/// Memory that poisons what is given back.
struct Plain(Vec<u8>);

impl Memory for Plain {
    fn capacity(&self) -> usize {
        self.0.len() / PAGE_BYTES
    }
    fn bytes(&self, start: usize, end: usize) -> &[u8] {
        &self.0[start..end]
    }
    fn bytes_mut(&mut self, start: usize, end: usize) -> &mut [u8] {
        &mut self.0[start..end]
    }
    fn give_back(&mut self, first: usize, count: usize) {
        self.0[first * PAGE_BYTES..(first + count) * PAGE_BYTES].fill(0xdb);
    }
}

/// An empty pool of `capacity` frames, which are not a whole number of words.
fn pool(capacity: usize, slots: u32, limit: usize) -> Pool<Plain> {
    let mut pool = Pool::new(Plain(vec![0; capacity * PAGE_BYTES]), slots, Codec::Lz4);
    pool.set_limit(limit);
    pool
}

pub(super) type Page = [u8; PAGE_BYTES];

/// A page that tells which it is, with `len` bytes that do not compress.
pub(super) fn page(slot: u32, version: u32, len: usize) -> Page {
    let mut page = [0; PAGE_BYTES];
    fill(
        u64::from(slot) << 32 | u64::from(version) | 1,
        &mut page[..len],
    );
    // Not all of it zero, which would be a word repeated.
    page[..len].iter_mut().take(1).for_each(|byte| *byte |= 1);
    page
}

pub(super) fn fill(mut state: u64, bytes: &mut [u8]) {
    for byte in bytes {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        *byte = (state >> 56) as u8;
    }
}

fn filled(word: u64) -> Page {
    let mut page = [0; PAGE_BYTES];
    for chunk in page.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    page
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, usize),
    PutFilled(u32, u64),
    Take(u32),
    Forget(u32, u32),
    Compact(usize),
    Limit(usize),
}

const SLOTS: u32 = 1200;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Two pages of the table of slots, and a third that is hardly used.
    let slot = prop_oneof![20 => 0..300u32, 20 => 600..800u32, 1 => 0..SLOTS];
    let word = prop_oneof![
        Just(0),
        any::<u64>(),
        any::<i8>().prop_map(|byte| byte as u64)
    ];
    let step = prop_oneof![
        16 => (slot.clone(), 1..PAGE_BYTES).prop_map(|(slot, len)| Step::Put(slot, len)),
        4 => (slot.clone(), 1..200usize).prop_map(|(slot, len)| Step::Put(slot, len)),
        2 => (slot.clone(), word).prop_map(|(slot, word)| Step::PutFilled(slot, word)),
        8 => slot.clone().prop_map(Step::Take),
        1 => (slot, 0..100u32).prop_map(|(slot, n)| Step::Forget(slot, (slot + n).min(SLOTS))),
        2 => (0..50usize).prop_map(Step::Compact),
        1 => (8..64usize).prop_map(Step::Limit),
    ];
    prop::collection::vec(step, 1..800)
}

proptest! {
    #[test]
    fn nothing_is_lost_or_mistaken(steps in steps()) {
        let (mut limit, mut pool) = (64, pool(91, SLOTS, 64));
        let mut model: BTreeMap<u32, Page> = BTreeMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            let before = pool.frames();
            match step {
                Step::Put(slot, len) => {
                    let page = page(slot, at as u32, len);
                    model.remove(&slot);
                    match pool.put(slot, &page) {
                        Ok(bytes) => {
                            prop_assert!(len < 3580 && usize::from(bytes) >= len.min(8), "{bytes} of {len}");
                            model.insert(slot, page);
                        }
                        Err(Unkept::Unfit) => prop_assert!(len > 3400, "{len}"),
                        // The first block: four frames, and five of tables.
                        Err(Unkept::NoRoom) => prop_assert!(before + 9 > limit),
                    }
                    prop_assert!(pool.frames() <= limit.max(before));
                }
                Step::PutFilled(slot, word) => {
                    model.remove(&slot);
                    match pool.put(slot, &filled(word)) {
                        Ok(bytes) => {
                            prop_assert_eq!(bytes, 0);
                            model.insert(slot, filled(word));
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Unkept::NoRoom);
                            prop_assert!(before + 3 > limit);
                        }
                    }
                    prop_assert!(pool.frames() <= limit.max(before));
                }
                Step::Take(slot) => {
                    let mut page = [0x55; PAGE_BYTES];
                    let taken = pool.take(slot, &mut page);
                    match model.remove(&slot) {
                        None => prop_assert_eq!(taken, Err(TakeError::Missing)),
                        Some(was) => {
                            prop_assert_eq!(taken, Ok(()));
                            prop_assert!(page == was);
                        }
                    }
                }
                Step::Forget(start, end) => {
                    pool.forget(start, end);
                    model.retain(|slot, _| !(start..end).contains(slot));
                }
                Step::Compact(most) => {
                    let freed = pool.compact(most);
                    prop_assert_eq!(pool.frames(), before - freed);
                }
                Step::Limit(frames) => {
                    limit = frames;
                    pool.set_limit(frames);
                    prop_assert_eq!((pool.limit(), pool.frames()), (frames, before));
                }
            }
            prop_assert_eq!(pool.pages(), model.len());
        }
        for slot in 0..SLOTS {
            let mut page = [0x55; PAGE_BYTES];
            let read = pool.read(slot, &mut page);
            prop_assert_eq!(read.is_ok(), model.contains_key(&slot), "slot {}", slot);
            prop_assert!(model.get(&slot).is_none_or(|was| *was == page), "slot {}", slot);
        }
        // Empty, it holds no frame but those of tables.
        pool.forget(0, SLOTS);
        prop_assert_eq!((pool.pages(), pool.stored_bytes(), pool.object_frames()), (0, 0, 0));
    }
}

/// What is lost between bytes stored and bytes charged, after as many pages again came and went.
#[test]
fn little_is_lost() {
    let mut pool = pool(5000, 8_000, 4096);
    let len = |n: u32| {
        // Around 1,300 bytes, as LZ4 makes of an interpreter's heap, some far more or less.
        let h = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        [700, 1000, 1300, 1500, 2100][h as usize % 5] + h as usize % 293
    };
    for slot in 0..8_000 {
        pool.put(slot, &page(slot, 0, len(slot))).expect("room");
    }
    for n in 0..16_000u32 {
        let slot = n.wrapping_mul(2_654_435_761) % 8_000;
        pool.forget(slot, slot + 1);
        if n % 3 > 0 {
            pool.put(slot, &page(slot, n, len(n))).expect("room");
        }
    }
    let freed = pool.compact(usize::MAX);
    assert!(freed > 0, "what came and went leaves room in blocks");
    let charged = pool.frames() * PAGE_BYTES;
    let lost = 1.0 - pool.stored_bytes() as f64 / charged as f64;
    assert!(lost < 0.12, "{lost}");
    assert!(pool.lost_bytes() < charged - pool.stored_bytes());
}

#[test]
fn a_full_pool_takes_no_more_and_has_room_again_when_pages_leave() {
    let mut pool = pool(64, 100, 16);
    let mut slot = 0;
    let first_error = loop {
        match pool.put(slot, &page(slot, 0, 1000)) {
            Ok(_) => slot += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((first_error, pool.frames() > 12), (Unkept::NoRoom, true));
    let mut out = [0; PAGE_BYTES];
    assert_eq!(pool.read(slot, &mut out), Err(TakeError::Missing));
    pool.take(0, &mut out).expect("it was put in");
    pool.put(slot, &page(slot, 0, 1000)).expect("room");
}

#[test]
fn a_few_frames_that_came_free_wait_for_the_next_block() {
    let mut pool = pool(400, 4096, 400);
    let put = |pool: &mut Pool<Plain>, slots: std::ops::Range<u32>| {
        for slot in slots {
            pool.put(slot, &page(slot, 0, 1000)).expect("room");
        }
    };
    let idle = |pool: &Pool<Plain>| pool.frames() - pool.object_frames() - pool.table_frames();
    put(&mut pool, 0..800);
    assert_eq!(idle(&pool), 0);
    pool.forget(0, 44);
    let (frames, waiting) = (pool.frames(), idle(&pool));
    assert!((1..=16).contains(&waiting), "{waiting}");
    put(&mut pool, 0..20);
    assert_eq!(pool.frames(), frames, "they are used before others");
    pool.forget(0, 20);
    // What waits makes room for a page of a table.
    pool.set_limit(frames);
    put(&mut pool, 1000..1001);
    put(&mut pool, 2000..2001);
    assert!(pool.frames() <= frames);
    pool.forget(44, 66);
    assert!(idle(&pool) > 0);
    pool.compact(0);
    assert_eq!(idle(&pool), 0);
}

#[test]
fn an_empty_pool_is_charged_nothing_and_takes_nothing() {
    let mut pool = pool(64, 100, 0);
    assert_eq!((pool.frames(), pool.limit()), (0, 0));
    assert_eq!(pool.put(3, &filled(0)), Err(Unkept::NoRoom));
    assert_eq!(pool.put(3, &page(3, 0, 10)), Err(Unkept::NoRoom));
    assert_eq!((pool.frames(), pool.pages(), pool.compact(9)), (0, 0, 0));
}

#[test]
fn tables_are_charged_by_the_page() {
    let mut pool = pool(64, 4096, 64);
    pool.put(0, &filled(0)).expect("room");
    let one = pool.frames();
    pool.put(511, &filled(1 << 61)).expect("room");
    assert_eq!(pool.frames(), one + 1, "a word that does not fit beside");
    pool.put(512, &filled(1)).expect("room");
    assert_eq!(pool.frames(), one + 2, "512 entries are a page");
    pool.forget(0, 4096);
    assert_eq!((pool.frames(), pool.object_frames()), (one + 2, 0));
}

proptest! {
    /// Neither reading nor moving what something else wrote over panics, and what is whole stays as it was.
    #[test]
    fn damaged_bytes_are_refused_or_read_and_nothing_worse(
        lens in prop::collection::vec(0..3500usize, 1..60),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        moved in any::<bool>(),
    ) {
        let mut pool = pool(64, 64, 64);
        for (slot, len) in lens.iter().enumerate() {
            let slot = slot as u32;
            let _ = pool.put(slot, &page(slot, 0, *len));
        }
        let bytes = pool.object_frames() * PAGE_BYTES;
        prop_assume!(bytes > 0);
        for (at, byte) in damage {
            let at = at.index(bytes);
            pool.memory_mut().bytes_mut(at, at + 1)[0] = byte;
        }
        if moved {
            for slot in (0..lens.len() as u32).step_by(2) {
                pool.forget(slot, slot + 1);
            }
            pool.compact(usize::MAX);
        }
        for slot in 0..lens.len() as u32 {
            let mut page = [0; PAGE_BYTES];
            let _ = pool.read(slot, &mut page);
            let _ = pool.take(slot, &mut page);
            prop_assert_eq!(pool.take(slot, &mut page), Err(TakeError::Missing));
        }
        prop_assert_eq!((pool.pages(), pool.object_frames()), (0, 0));
    }

    /// The decoder itself, on what no encoder made.
    #[test]
    fn any_bytes_are_decoded_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..3584)) {
        for codec in Codec::ALL {
            let mut page = [0; PAGE_BYTES];
            let _ = codec::Coder::new(*codec).decompress(&bytes, &mut page);
        }
    }
}
