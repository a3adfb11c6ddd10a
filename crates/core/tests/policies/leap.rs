//! Leap's trend and its window.

use outpage_core::contract::Source;
use outpage_core::readahead::ReadAhead;
use outpage_core::units::SlotNo;
use proptest::prelude::*;

use crate::world::{Store, page, read_ahead, touch};

fn leap(history: u32, split: u32, max_window: u32) -> Box<dyn ReadAhead> {
    let settings = format!("max={max_window},history={history},split={split}");
    read_ahead("leap", &settings)
}

const SLOTS: u32 = 3000;

fn store() -> Store {
    let mut store = Store::default();
    (0..SLOTS).for_each(|slot| store.put(SlotNo(slot), page(1, slot.into())));
    store
}

/// The slots that a fault at `slot` reads, ascending.
fn read(policy: &mut dyn ReadAhead, slot: u32, store: &Store) -> Vec<u32> {
    let window = policy.major_fault(&touch(page(1, slot.into()), slot), store);
    let runs = [&[window.now], window.rest.as_slice()].concat();
    let mut slots: Vec<u32> = runs
        .iter()
        .flat_map(|run| run.iter())
        .map(|s| s.0)
        .collect();
    slots.sort_unstable();
    slots
}

fn hit(policy: &mut dyn ReadAhead, slot: u32, store: &Store) {
    assert_eq!(policy.hit(&touch(page(1, slot.into()), slot), store), None);
}

/// The paper's example of a history of 8 strides, split in two (ATC 2020, section 3.2): a
/// trend of -3, a change to +2, and strides that disturb it for a moment.
#[test]
fn the_papers_example_of_a_trend() {
    let accesses = [
        0x48, 0x45, 0x42, 0x3f, 0x3c, 0x02, 0x04, 0x06, 0x08, 0x0a, 0x0c, 0x10, 0x39, 0x12, 0x14,
        0x16,
    ];
    let store = store();
    // Told as hits up to a fault: with a hit behind it a fault reads two pages along the trend.
    let along = |upto: usize| {
        let mut policy = leap(8, 2, 3);
        accesses[..upto]
            .iter()
            .for_each(|&slot| hit(&mut *policy, slot, &store));
        let mut slots = read(&mut *policy, accesses[upto], &store);
        slots.retain(|&slot| slot != accesses[upto]);
        slots
    };
    assert_eq!(along(3), [0x39, 0x3c], "-3 at t3");
    // At t7 neither the last 4 nor the last 8 strides have a majority, and there was no trend
    // while pages only were hit: both neighbours.
    assert_eq!(along(7), [0x05, 0x07]);
    assert_eq!(along(8), [0x0a, 0x0c], "+2 at t8");
    assert_eq!(along(15), [0x18, 0x1a], "+2 at t15, in the whole history");
}

#[test]
fn nothing_is_read_until_a_fault_follows_the_trend() {
    let store = store();
    let mut policy = leap(4, 2, 9);
    let reads: Vec<usize> = [100, 105, 110, 115, 120]
        .map(|slot| read(&mut *policy, slot, &store).len())
        .into();
    // Two of two strides are a majority at 110; 115 follows it, without hits one page more.
    assert_eq!(reads, [1, 1, 1, 2, 2]);
}

#[test]
fn hits_widen_the_window_and_their_lack_narrows_it_by_halves() {
    let store = store();
    let mut policy = leap(4, 2, 9);
    for slot in [100, 101, 102] {
        read(&mut *policy, slot, &store);
    }
    let mut next = 103;
    let mut sizes = Vec::new();
    for hits in [0, 1, 2, 4, 8] {
        (next..next + hits).for_each(|slot| hit(&mut *policy, slot, &store));
        sizes.push(read(&mut *policy, next + hits, &store).len() - 1);
        next += hits + 1;
    }
    assert_eq!(sizes, [1, 2, 4, 8, 8]);
    // Faults anywhere, no hits: half each time, then suspended.
    let far = [2000, 1000, 2500, 700, 1800];
    let sizes = far.map(|slot| read(&mut *policy, slot, &store).len() - 1);
    assert_eq!(sizes, [4, 2, 1, 0, 0]);
}

#[test]
fn a_stride_is_followed_downward_too_and_ends_with_the_slots() {
    let store = store();
    let mut policy = leap(4, 2, 5);
    for slot in [70, 63, 56] {
        read(&mut *policy, slot, &store);
    }
    (0..3).for_each(|n| hit(&mut *policy, 49 - 7 * n, &store));
    assert_eq!(read(&mut *policy, 28, &store), [0, 7, 14, 21, 28]);
    (0..3).for_each(|n| hit(&mut *policy, 21 - 7 * n, &store));
    assert_eq!(read(&mut *policy, 0, &store), [0]);
}

#[test]
fn every_key_has_a_history_of_its_own() {
    let store = store();
    let mut policy = read_ahead("leap", "key=source");
    let mut size = |source, slot: u32| {
        let mut fault = touch(page(1, slot.into()), slot);
        fault.source = Source(source);
        policy.major_fault(&fault, &store).size
    };
    // Interleaved, no stride has a majority; apart, both have.
    let last: Vec<(u32, u32)> = (0..8)
        .map(|n| (size(1, n), size(2, 2000 + 9 * n)))
        .collect();
    assert_eq!(last[7], (2, 2));
}

/// The trend by counting every stride, and the window as the paper's listings have it.
struct Naive {
    accesses: Vec<i64>,
    trend: Option<i64>,
    window: u32,
    hits: u32,
}

impl Naive {
    fn find(&self, history: usize, split: usize) -> Option<i64> {
        let strides: Vec<i64> = self
            .accesses
            .windows(2)
            .map(|w| w[1] - w[0])
            .rev()
            .collect();
        let mut n = (history / split).max(1);
        loop {
            let newest = &strides[..n.min(strides.len())];
            let most = newest
                .iter()
                .find(|s| newest.iter().filter(|t| t == s).count() > n / 2);
            if most.is_some() || n == history {
                return most.copied().filter(|&stride| stride != 0);
            }
            n = (2 * n).min(history);
        }
    }

    fn fault(&mut self, slot: i64, history: usize, split: usize, max: u32) -> Vec<u32> {
        let stride = self.accesses.last().map(|last| slot - last);
        self.accesses.push(slot);
        let wanted = match (self.hits, stride.is_some() && stride == self.trend) {
            (0, false) => 0,
            (0, true) => 1,
            (hits, _) => (hits + 1).next_power_of_two(),
        };
        self.window = wanted.min(max).max(self.window / 2);
        self.hits = 0;
        let found = self.find(history, split);
        self.trend = found.or(self.trend);
        let stride = self.trend.unwrap_or(1);
        let mut slots = vec![slot];
        for n in 0..i64::from(self.window) {
            slots.push(match (found, n % 2) {
                (Some(_), _) => slot + stride * (n + 1),
                (None, 0) => slot + stride * (n / 2 + 1),
                (None, _) => slot - stride * (n / 2 + 1),
            });
        }
        slots.retain(|slot| (0..i64::from(SLOTS)).contains(slot));
        slots.sort_unstable();
        slots.into_iter().map(|slot| slot as u32).collect()
    }
}

proptest! {
    #[test]
    fn windows_are_those_of_a_naive_model(
        history in 2u32..=32,
        split in 1u32..=8,
        max in 1u32..=16,
        steps in prop::collection::vec(
            (prop_oneof![4 => Just(3i64), 2 => Just(-2), 1 => -40i64..40], any::<bool>()), 1..100),
    ) {
        let store = store();
        let mut policy = leap(history, split, max + 1);
        let mut naive = Naive { accesses: Vec::new(), trend: None, window: 0, hits: 0 };
        let mut at = 1500;
        for (stride, is_hit) in steps {
            at = (at + stride).clamp(0, i64::from(SLOTS) - 1);
            if is_hit {
                hit(&mut *policy, at as u32, &store);
                naive.accesses.push(at);
                naive.hits += 1;
            } else {
                let expected = naive.fault(at, history as usize, split as usize, max);
                prop_assert_eq!(read(&mut *policy, at as u32, &store), expected);
            }
        }
    }
}
