//! What lies in the swap file when pages are encrypted, and what comes back from it.

use crate::common::*;
use outpage_core::units::PAGE_BYTES;
use outpage_store::*;

const CONFIG: Config = Config {
    depth: 8,
    request_pages_max: 64,
};
const SLOTS: u32 = 256;

fn plain() -> PoolStore {
    PoolStore::new(swap_file(SLOTS), CONFIG, 2, Box::new(StdSpawner)).unwrap()
}

/// The content of a slot, past the store.
fn raw(store: &impl Reopen, slot: u32) -> Page {
    let fd = store.carried_fd().unwrap();
    let page = Pages::new(1);
    let at = std::ptr::with_exposed_provenance_mut(page.frame(0).address());
    // SAFETY: reads into a page of this function's own, aligned as O_DIRECT wants it.
    let read = unsafe { libc::pread(fd, at, PAGE_BYTES, i64::from(slot) * PAGE_BYTES as i64) };
    assert_eq!(read, PAGE_BYTES as isize);
    page.get(0)
}

/// Blocks of `slot` that are a block of any of `pages`.
fn told(store: &impl Reopen, slot: u32, pages: &[Page]) -> usize {
    let known: std::collections::HashSet<&[u8]> = pages.iter().flat_map(|p| p.chunks(16)).collect();
    let raw = raw(store, slot);
    raw.chunks(16).filter(|block| known.contains(block)).count()
}

/// Writes pages 0 to 40 by requests of 1, 7 and 32, which go different ways.
fn write_all(store: &mut impl Store, pages: &Pages) {
    for (start, count) in [(0, 1), (1, 7), (8, 32)] {
        let frames = pages.frames(start..start + count);
        carry_out(store, Direction::PageOut, start, &frames).unwrap();
    }
}

fn contents() -> (Pages, Vec<Page>) {
    let pages = Pages::new(128);
    let contents: Vec<Page> = (0..40).map(page).collect();
    (0..40).for_each(|n| pages.set(n, &contents[n as usize]));
    (pages, contents)
}

#[test]
fn without_encryption_the_file_has_the_pages() {
    let (mut store, (pages, contents)) = (plain(), contents());
    write_all(&mut store, &pages);
    assert!((0..40).all(|slot| told(&store, slot, &contents) == PAGE_BYTES / 16));
}

#[test]
fn with_encryption_the_file_has_no_block_of_them() {
    for buffer in [0, 16, 128] {
        let (mut store, (pages, contents)) = (encrypted(plain(), buffer, 64), contents());
        write_all(&mut store, &pages);
        for slot in 0..40 {
            assert_eq!(
                told(&store, slot, &contents),
                0,
                "slot {slot}, buffer {buffer}"
            );
        }
        assert!(
            (0..40).all(|n| pages.get(n) == contents[n as usize]),
            "frames that are written stay as they are: a page may be wanted back meanwhile"
        );
        // In other requests than they were written by.
        for (start, count) in [(0, 12), (12, 3), (15, 25)] {
            let frames = pages.frames(64 + start..64 + start + count);
            carry_out(&mut store, Direction::PageIn, start, &frames).unwrap();
        }
        assert!((0..40).all(|n| pages.get(64 + n) == contents[n as usize]));
    }
}

#[test]
fn the_same_page_differs_from_slot_to_slot() {
    let mut store = encrypted(plain(), 0, 64);
    let pages = Pages::new(32);
    (0..32).for_each(|n| pages.set(n, &[9; PAGE_BYTES]));
    carry_out(&mut store, Direction::PageOut, 100, &pages.frames(0..32)).unwrap();
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for slot in 100..132 {
        blocks.extend(raw(&store, slot).chunks(16).map(<[u8]>::to_vec));
    }
    let all = blocks.len();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!((all, blocks.len()), (32 * 256, 32 * 256));
}

/// Page-outs wait for room in the area while page-ins go on, and there is always room in the end.
#[test]
fn page_outs_wait_for_room() {
    let memory = MemoryStore::new(SLOTS, CopyAt::Poll, CONFIG);
    let mut store = encrypted(memory, 0, 64);
    let pages = Pages::new(128);
    (0..96).for_each(|n| pages.set(n, &page(n.into())));
    let all = pages.frames(0..96);
    for (start, result) in [(0, Ok(())), (32, Ok(())), (64, Err(SubmitError::Full))] {
        let frames = &all[start as usize..][..32];
        let submit = store.submit(&request(start.into(), Direction::PageOut, start, frames));
        assert_eq!(submit, result, "{start}");
    }
    let one = [pages.frame(127)];
    assert_eq!(
        store.submit(&request(7, Direction::PageIn, 200, &one)),
        Ok(())
    );
    assert_eq!(collect(&mut store, 3).len(), 3);
    for start in [64, 0] {
        let frames = &all[start as usize..][..32];
        carry_out(&mut store, Direction::PageOut, start, frames).unwrap();
    }
    carry_out(&mut store, Direction::PageIn, 32, &pages.frames(96..128)).unwrap();
    assert!((0..32).all(|n| pages.get(96 + n) == page(u64::from(n) + 32)));
}

/// Faults strike what is on the disk. A page comes back as it was, or is told from it by its content.
#[test]
fn faults_below_the_encryption_are_seen() {
    let rates = FaultRates {
        bit_flip: 200,
        torn_write: 100,
        short_read: 50,
        read_error: 50,
        write_error: 50,
        ..FaultRates::default()
    };
    let memory = MemoryStore::new(SLOTS, CopyAt::Poll, CONFIG);
    let mut store = encrypted(Faulty::new(memory, 7, rates), 32, 64);
    let (pages, mut wrong, mut right) = (Pages::new(64), 0, 0);
    for round in 0..400_u32 {
        let count = 1 + round % 24;
        (0..count).for_each(|n| pages.set(n, &page((round * 64 + n).into())));
        let written = carry_out(&mut store, Direction::PageOut, 8, &pages.frames(0..count));
        let read = carry_out(
            &mut store,
            Direction::PageIn,
            8,
            &pages.frames(32..32 + count),
        );
        if written.and(read).is_err() {
            continue;
        }
        for n in 0..count {
            let (back, want) = (pages.get(32 + n), page((round * 64 + n).into()));
            if back == want {
                right += 1;
                continue;
            }
            wrong += 1;
            let blocks = back
                .chunks(16)
                .zip(want.chunks(16))
                .filter(|(a, b)| a == b)
                .count();
            // A flipped bit costs its block; a slot that kept its old content is another page.
            assert!(blocks == 255 || blocks == 0, "{blocks} blocks are right");
        }
    }
    assert!(right > 1000 && wrong > 50, "{right} right, {wrong} wrong");
}
