//! The kernel's read-ahead window by virtual address.

use outpage_core::readahead::{Choice, ReadAhead};
use outpage_core::units::SlotNo;
use proptest::prelude::*;

use crate::world::{Random, Store, page, read_ahead, touch};

fn linux(max_window: u32) -> Box<dyn ReadAhead> {
    read_ahead("linux-vma", &format!("max={max_window}"))
}

const PAGES: u64 = 2000;

/// Pages of objects 1 and 2 in slots that are shuffled: neighbours lie anywhere.
fn scattered() -> Store {
    let mut slots: Vec<u32> = (0..2 * PAGES as u32).collect();
    let mut random = Random(3);
    for at in (1..slots.len()).rev() {
        slots.swap(at, random.below(at as u32 + 1) as usize);
    }
    let mut store = Store::default();
    for (n, slot) in slots.into_iter().enumerate() {
        let (object, index) = (1 + n as u32 % 2, n as u64 / 2);
        store.put(SlotNo(slot), page(object, index));
    }
    store
}

/// The indices that a fault on `index` of `object` reads, ascending.
fn read(policy: &mut dyn ReadAhead, object: u32, index: u64, store: &Store) -> Vec<u64> {
    let window = policy.major_fault(&store.fault(page(object, index)), store);
    let runs = [&[window.now], window.rest.as_slice()].concat();
    let mut indices: Vec<u64> = Vec::new();
    for page in runs.iter().flat_map(|&run| store.pages(run)) {
        assert_eq!(page.object().0, object);
        indices.push(page.index());
    }
    indices.sort_unstable();
    indices
}

fn hit(policy: &mut dyn ReadAhead, object: u32, index: u64, store: &Store) {
    let slot = store.fault(page(object, index)).slot;
    let named = policy.hit(&touch(page(object, index), slot.0), store);
    assert_eq!(named, None);
}

#[test]
fn virtual_neighbours_are_read_wherever_they_lie() {
    let store = scattered();
    let mut policy = linux(8);
    // Four hits to begin with: 8 pages, 3 before the fault and 4 after it.
    assert_eq!(read(&mut *policy, 1, 100, &store), Vec::from_iter(97..105));
    // Another object knows nothing of it.
    assert_eq!(read(&mut *policy, 2, 700, &store), Vec::from_iter(697..705));
}

#[test]
fn the_window_lies_ahead_of_a_stream_in_either_direction() {
    let store = scattered();
    let mut up = linux(8);
    read(&mut *up, 1, 100, &store);
    (101..105).for_each(|n| hit(&mut *up, 1, n, &store));
    assert_eq!(read(&mut *up, 1, 105, &store), Vec::from_iter(105..113));
    let mut down = linux(8);
    read(&mut *down, 1, 100, &store);
    (97..100).rev().for_each(|n| hit(&mut *down, 1, n, &store));
    assert_eq!(read(&mut *down, 1, 96, &store), Vec::from_iter(89..97));
}

#[test]
fn without_hits_it_comes_down_by_halves() {
    let store = scattered();
    let mut policy = linux(8);
    let far = [100, 300, 500, 700, 900];
    let sizes = far.map(|index| read(&mut *policy, 1, index, &store).len());
    assert_eq!(sizes, [8, 4, 2, 1, 1]);
}

#[test]
fn tables_and_objects_end_windows() {
    let store = scattered();
    assert_eq!(
        read(&mut *linux(8), 1, 511, &store),
        Vec::from_iter(508..512)
    );
    assert_eq!(
        read(&mut *linux(8), 1, 512, &store),
        Vec::from_iter(512..517)
    );
    assert_eq!(read(&mut *linux(8), 1, 1, &store), Vec::from_iter(0..6));
    assert_eq!(read(&mut *linux(8), 1, PAGES - 1, &store).len(), 4);
}

#[test]
fn resident_pages_are_skipped() {
    let mut store = scattered();
    store.take(page(1, 99));
    let read = read(&mut *linux(8), 1, 100, &store);
    assert_eq!(read, [97, 98, 100, 101, 102, 103, 104]);
}

#[test]
fn at_most_32_pages() {
    let store = scattered();
    let mut policy = linux(32);
    read(&mut *policy, 1, 100, &store);
    (0..200).for_each(|_| hit(&mut *policy, 1, 100, &store));
    assert_eq!(read(&mut *policy, 1, 200, &store).len(), 32);
    let more = "linux-vma:max=33".parse::<Choice>();
    assert!(more.unwrap_err().to_string().contains("1 to 32"));
}

/// The kernel's rules, step by step, for one area that begins at a multiple of a table.
#[derive(Default)]
struct Naive {
    last: Option<i64>,
    window: i64,
    hits: i64,
}

impl Naive {
    fn fault(&mut self, at: i64, max: i64) -> Vec<u64> {
        let before = self.last.map(|last| last - at);
        let hits = if self.last.is_none() { 4 } else { self.hits };
        let near = before == Some(1) || before == Some(-1);
        let mut size = match hits {
            0 if near => 2,
            0 => 1,
            1 | 2 => 4,
            hits => ((hits + 2) as u64).next_power_of_two() as i64,
        };
        size = size.min(max).max(self.window / 2);
        let left = match before {
            Some(-1) => at,
            Some(1) => at - size + 1,
            _ => at - (size - 1) / 2,
        };
        (self.last, self.window, self.hits) = (Some(at), size, 0);
        let in_area = |n: &i64| (0..PAGES as i64).contains(n) && n / 512 == at / 512;
        (left..left + size)
            .filter(in_area)
            .map(|n| n as u64)
            .collect()
    }
}

proptest! {
    #[test]
    fn windows_are_those_of_a_naive_model(
        cluster in 1u32..=5,
        steps in prop::collection::vec(
            (prop_oneof![0i64..PAGES as i64, 490i64..530], 0u64..12, any::<bool>()), 1..60),
    ) {
        let store = scattered();
        let mut policy = linux(1 << cluster);
        let mut naive = Naive::default();
        let mut at = 0;
        for (far, hits, near) in steps {
            at = if near { (at + 1).min(PAGES as i64 - 1) } else { far };
            let expected = naive.fault(at, 1 << cluster);
            prop_assert_eq!(read(&mut *policy, 1, at as u64, &store), expected);
            for _ in 0..hits {
                at = (at + 1).min(PAGES as i64 - 1);
                hit(&mut *policy, 1, at as u64, &store);
                naive.hits += 1;
                naive.last = Some(at);
            }
        }
    }
}
