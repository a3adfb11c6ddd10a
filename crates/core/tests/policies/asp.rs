//! ASP: the window of section 3.1.2, the two slots of 3.1.3, and what the paper leaves open.

use std::collections::{BTreeSet, VecDeque};

use outpage_core::contract::Source;
use outpage_core::readahead::{self, Choice, ReadAhead, Window};
use outpage_core::units::{SlotNo, SlotRange};
use proptest::prelude::*;

use crate::world::{Store, page, read_ahead};

/// Page `n` in slot `n`, below `slots`.
fn store(slots: u32) -> Store {
    let mut store = Store::default();
    (0..slots).for_each(|slot| store.put(SlotNo(slot), page(1, slot.into())));
    store
}

/// A fault of `source` at `slot`, everything being paged out.
fn fault(policy: &mut dyn ReadAhead, source: u32, slot: u32, store: &Store) -> Window {
    let mut fault = store.fault(page(1, slot.into()));
    fault.source = Source(source);
    policy.major_fault(&fault, store)
}

/// The sizes of the windows at `slots`.
fn sizes(policy: &mut dyn ReadAhead, slots: &[u32], store: &Store) -> Vec<u32> {
    let size = |&slot: &u32| fault(policy, 0, slot, store).size;
    slots.iter().map(size).collect()
}

#[test]
fn the_papers_constants_are_the_defaults() {
    for name in ["asp", "asp2"] {
        let choice = Choice::plain(readahead::find(name).unwrap());
        let constants = ["window", "step", "max", "mdis"].map(|name| choice.values().of(name));
        assert_eq!(constants, [8, 8, 32, 8], "{name}");
    }
}

#[test]
fn eight_more_each_time_up_to_32_and_back_to_8_at_once() {
    let store = store(2000);
    for name in ["asp", "asp2"] {
        let mut policy = read_ahead(name, "");
        let stream = [0, 8, 24, 48, 80, 112, 1000, 1008];
        assert_eq!(
            sizes(&mut *policy, &stream, &store),
            [8, 16, 24, 32, 32, 32, 8, 16],
            "{name}"
        );
    }
}

#[test]
fn a_window_lies_on_a_multiple_of_eight_at_the_target_or_around_it() {
    let store = store(2000);
    for (placement, windows) in [
        ("aligned", [(96, 8), (104, 16), (120, 24)]),
        ("target", [(101, 8), (106, 16), (123, 24)]),
        // 123 is 10 away from the end of 98..=113.
        ("centred", [(97, 8), (98, 16), (119, 8)]),
    ] {
        let mut policy = read_ahead("asp", &format!("placement={placement}"));
        for (at, (start, slots)) in [101, 106, 123].into_iter().zip(windows) {
            let window = fault(&mut *policy, 0, at, &store);
            assert_eq!(
                window.now,
                SlotRange::new(SlotNo(start), slots),
                "{placement}"
            );
        }
    }
}

#[test]
fn local_is_nearer_than_mdis_to_base_or_to_end() {
    // The first window is 800..=807; 8 slots from either end is too far.
    for (target, size) in [(793, 16), (792, 8), (814, 16), (815, 8), (803, 16)] {
        let mut policy = read_ahead("asp", "");
        let store = store(2000);
        assert_eq!(
            sizes(&mut *policy, &[800, target], &store),
            [8, size],
            "{target}"
        );
    }
    // Inside a window of 32 slots, its middle is far from both ends.
    let mut policy = read_ahead("asp", "");
    let store = store(2000);
    let stream = [0, 8, 24, 48, 64];
    assert_eq!(sizes(&mut *policy, &stream, &store), [8, 16, 24, 32, 8]);
}

#[test]
fn all_that_is_paged_out_of_a_window_is_read() {
    let mut store = store(100);
    for resident in [10, 12] {
        store.take(page(1, resident));
    }
    let window = fault(&mut *read_ahead("asp", ""), 0, 9, &store);
    let run = |start, slots| SlotRange::new(SlotNo(start), slots);
    assert_eq!((window.now, window.size), (run(8, 2), 8));
    assert_eq!(window.rest.as_slice(), [run(11, 1), run(13, 3)]);
}

#[test]
fn every_key_has_an_entry_of_its_own() {
    let store = store(2000);
    let windows = |key: &str| {
        let mut policy = read_ahead("asp", &format!("key={key}"));
        let mut size = |source, slot| fault(&mut *policy, source, slot, &store).size;
        [size(1, 0), size(2, 1000), size(1, 8), size(2, 1008)]
    };
    assert_eq!(windows("source"), [8, 8, 16, 16]);
    // In one entry the two streams break each other up.
    assert_eq!(windows("one"), [8, 8, 8, 8]);
    assert_eq!(windows("object"), [8, 8, 8, 8]);
}

#[test]
fn the_lowest_priority_makes_room_and_the_longest_unused_among_equals() {
    let store = store(4000);
    let mut policy = read_ahead("asp", "entries=2,key=source");
    let mut size = |source, slot| fault(&mut *policy, source, slot, &store).size;
    // 1 has local faults, 2 has none: 3 takes the place of 2.
    assert_eq!([size(1, 0), size(1, 8), size(1, 24)], [8, 16, 24]);
    assert_eq!(size(2, 1000), 8);
    assert_eq!(size(3, 2000), 8);
    assert_eq!(size(1, 48), 32);
    assert_eq!(size(2, 1008), 8, "2 was forgotten");
    // Each newcomer costs the others priority, so an entry that is not used any more goes.
    assert_eq!(size(4, 3000), 8);
    assert_eq!(size(1, 80), 8, "1 was forgotten");
    // Equals: 21 is used later than 20, so 20 goes.
    let mut policy = read_ahead("asp", "entries=2,key=source");
    let mut size = |source, slot| fault(&mut *policy, source, slot, &store).size;
    assert_eq!([size(20, 0), size(21, 1000), size(22, 2000)], [8, 8, 8]);
    assert_eq!(size(21, 1008), 16);
    assert_eq!(size(20, 8), 8);
}

#[test]
fn two_places_keep_a_stream_through_a_visit_elsewhere() {
    let store = store(10_000);
    // A stream, and one service that wakes up in the same place after every second window.
    let windows = |name| {
        let mut policy = read_ahead(name, "");
        let (mut next, mut stream, mut service) = (0, Vec::new(), Vec::new());
        for turn in 0..10 {
            let window = fault(&mut *policy, 0, next, &store);
            next = window.now.end().0;
            stream.push(window.size);
            if turn % 2 == 1 {
                let visit = fault(&mut *policy, 0, 5000 + turn % 4, &store);
                service.push(visit.size);
            }
        }
        (stream, service)
    };
    let (stream, service) = windows("asp");
    assert_eq!(stream, [8, 16, 8, 16, 8, 16, 8, 16, 8, 16]);
    assert_eq!(service, [8; 5]);
    // The first visit resets both sizes; from then on both places are known.
    let (stream, service) = windows("asp2");
    assert_eq!(stream, [8, 16, 16, 24, 32, 32, 32, 32, 32, 32]);
    assert_eq!(service, [8, 16, 24, 32, 32]);
}

#[test]
fn two_places_are_reset_when_neither_is_local() {
    let store = store(10_000);
    let mut policy = read_ahead("asp2", "");
    // Both places known and grown; a third place takes that of the one that was not used last.
    assert_eq!(
        sizes(&mut *policy, &[0, 5000, 8, 5008, 24, 5024], &store),
        [8, 8, 16, 16, 24, 24]
    );
    assert_eq!(sizes(&mut *policy, &[9000], &store), [8]);
    assert_eq!(
        sizes(&mut *policy, &[5048], &store),
        [16],
        "5000 was used last: it stays, at 8"
    );
    assert_eq!(sizes(&mut *policy, &[48], &store), [8], "0 was forgotten");
}

/// What a guest did: (swap-ins, pages read ahead, hits).
type Counts = (u32, u32, u32);

/// A program that streams through 20,000 pages, and a service that wakes up whenever `period` more
/// were touched and touches the first `set` pages of its 64; `frames` frames recycled first in,
/// first out, all pages clean in slots of their number.
fn guest(name: &str, period: u32, set: u32, frames: usize) -> Counts {
    const STREAM: u32 = 20_000;
    let mut policy = read_ahead(name, "");
    let mut store = store(STREAM + 64);
    let mut queue = VecDeque::new();
    let (mut faults, mut read_ahead, mut hits) = (0, 0, 0);
    // Not touched since they were read.
    let mut fresh = BTreeSet::new();
    let mut touch = |slot: u32| {
        hits += u32::from(fresh.remove(&slot));
        if queue.contains(&slot) {
            return;
        }
        faults += 1;
        let window = fault(&mut *policy, 0, slot, &store);
        let runs = [&[window.now], window.rest.as_slice()].concat();
        for other in runs.iter().flat_map(|run| run.iter()).map(|slot| slot.0) {
            store.take(page(1, other.into()));
            queue.push_back(other);
            if other != slot {
                read_ahead += 1;
                fresh.insert(other);
            }
        }
        while queue.len() > frames {
            let oldest = queue.pop_front().unwrap();
            fresh.remove(&oldest);
            store.put(SlotNo(oldest), page(1, oldest.into()));
        }
    };
    for slot in 0..STREAM {
        touch(slot);
        if slot % period == period - 1 {
            (0..set).for_each(|n| touch(STREAM + n));
        }
    }
    (faults, read_ahead, hits)
}

/// Section 3.1.3: a guest that one process dominates, and a service that wakes up periodically,
/// its pages out again each time. With two places the stream keeps its window: fewer swap-ins, and
/// less time on a disk. Not a better hit rate: the service's window grows as well, over pages that
/// the service does not use.
#[test]
fn asp2_is_ahead_of_asp_where_a_service_interrupts_a_stream() {
    // 7200 rpm: 8.5 ms to seek and 4.2 ms to turn, then 80 MB/s.
    let seconds = |counts: Counts| {
        f64::from(counts.0) * 12.7e-3 + f64::from(counts.0 + counts.1) * 4096.0 / 80e6
    };
    for (period, set) in [(24, 4), (50, 8), (100, 4), (200, 4)] {
        let asp = guest("asp", period, set, 64);
        let asp2 = guest("asp2", period, set, 64);
        let (slow, fast) = (seconds(asp), seconds(asp2));
        println!("every {period}, {set}: asp {asp:?} {slow:.1} s, asp2 {asp2:?} {fast:.1} s");
        assert!(asp2.0 * 10 < asp.0 * 9, "swap-ins {asp2:?} against {asp:?}");
        assert!(fast < 0.9 * slow, "{fast} s against {slow} s");
    }
}

struct Constants {
    window: u32,
    step: u32,
    mdis: u32,
    max_window: u32,
    placement: &'static str,
}

/// The algorithm of section 3.1.2 and 3.1.3 for one key, with `places` slots.
struct Naive {
    places: Vec<Option<(i64, i64, u32)>>,
    last: usize,
}

impl Naive {
    fn new(places: usize) -> Self {
        Self {
            places: vec![None; places],
            last: places - 1,
        }
    }

    fn fault(&mut self, target: u32, p: &Constants) -> (u32, u32) {
        let tar = i64::from(target);
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        order.rotate_left(self.last);
        for &i in &order {
            if let Some((base, end, pre)) = self.places[i]
                && (base - tar).abs().min((end - tar).abs()) < i64::from(p.mdis)
            {
                return self.read(i, target, (pre + p.step).min(p.max_window), p);
            }
        }
        for place in self.places.iter_mut().flatten() {
            place.2 = p.window;
        }
        let i = (self.last + 1) % self.places.len();
        self.read(i, target, p.window, p)
    }

    fn read(&mut self, i: usize, target: u32, pre: u32, p: &Constants) -> (u32, u32) {
        let base = match p.placement {
            "aligned" => target / p.window * p.window,
            "target" => target,
            _ => target.saturating_sub(pre / 2),
        };
        self.places[i] = Some((base.into(), i64::from(base + pre) - 1, pre));
        self.last = i;
        (base, pre)
    }
}

proptest! {
    #[test]
    fn windows_are_those_of_a_naive_model(
        two in any::<bool>(),
        placement in prop::sample::select(vec!["aligned", "target", "centred"]),
        numbers in (1u32..=16, 1u32..=16, 1u32..=32, 16u32..=64),
        slots in prop::collection::vec(
            prop_oneof![0u32..2000, 1000u32..1060, 500u32..560], 1..80),
    ) {
        let (window, step, mdis, max_window) = numbers;
        let name = if two { "asp2" } else { "asp" };
        let constants = Constants { window, step, mdis, max_window, placement };
        let settings = format!(
            "window={window},step={step},mdis={mdis},max={max_window},placement={placement}"
        );
        let mut policy = read_ahead(name, &settings);
        let mut naive = Naive::new(1 + usize::from(two));
        let store = store(2100);
        for slot in slots {
            let (base, pre) = naive.fault(slot, &constants);
            let got = fault(&mut *policy, 0, slot, &store);
            prop_assert_eq!((got.now, got.size), (SlotRange::new(SlotNo(base), pre), pre));
        }
    }
}
