//! The slot allocator against a bitmap.

use outpage_core::slots::{Blist, LEAF_SLOTS};
use outpage_core::units::{SlotNo, SlotRange};
use proptest::prelude::*;

use crate::world::fresh_device;

fn range(start: u32, slots: u32) -> SlotRange {
    SlotRange::new(SlotNo(start), slots)
}

fn starts(blist: &mut Blist, requests: impl IntoIterator<Item = u32>) -> Vec<u32> {
    requests
        .into_iter()
        .map(|slots| blist.alloc(slots).unwrap().start.0)
        .collect()
}

#[test]
fn bsd_vm_section_8_sixteen_then_one() {
    let mut device = fresh_device(1024);
    assert_eq!(starts(&mut device, [16; 6]), [2, 32, 48, 64, 80, 96]);
    assert_eq!(starts(&mut device, [1; 3]), [18, 19, 20]);
}

#[test]
fn bsd_vm_section_8_twelve() {
    assert_eq!(
        starts(&mut fresh_device(1024), [12; 6]),
        [2, 14, 32, 44, 64, 76]
    );
}

#[test]
fn bsd_vm_section_8_nine() {
    assert_eq!(
        starts(&mut fresh_device(1024), [9; 7]),
        [2, 11, 20, 32, 41, 50, 64]
    );
}

#[test]
fn a_run_above_a_leaf_takes_whole_leaves_and_leaves_the_rest() {
    let mut device = fresh_device(1024);
    // Slots 0 and 1 spoil the first leaf.
    assert_eq!(device.alloc(33), Some(range(32, 33)));
    assert_eq!(device.alloc(64), Some(range(96, 64)));
    // What the first run did not need of its last leaf serves small requests, after leaf 0.
    assert_eq!(device.alloc(31), Some(range(65, 31)));
    assert_eq!(device.alloc(30), Some(range(2, 30)));
    assert_eq!(device.alloc(1024), None);
}

#[test]
fn nothing_is_usable_before_it_is_added() {
    let mut blist = Blist::new(100);
    assert_eq!(
        (blist.available(), blist.usable(), blist.capacity()),
        (0, 0, 100)
    );
    assert_eq!(blist.alloc(1), None);
    blist.add(range(50, 10));
    assert_eq!(blist.alloc(10), Some(range(50, 10)));
    assert_eq!(blist.alloc(1), None);
    blist.add(range(60, 40));
    assert_eq!((blist.available(), blist.usable()), (40, 50));
    // 60..64 is one leaf's end, 96..100 another's beginning.
    assert_eq!(blist.alloc(32), Some(range(64, 32)));
    assert_eq!(blist.alloc(5), None);
    assert_eq!(blist.alloc(4), Some(range(60, 4)));
    assert_eq!(blist.alloc(4), Some(range(96, 4)));
}

#[test]
fn runs_of_leaves_cross_inner_nodes() {
    // Three levels of inner nodes: more than 16 * 16 leaves.
    let leaves = 300;
    let mut blist = Blist::new(leaves * LEAF_SLOTS);
    blist.add(range(0, leaves * LEAF_SLOTS));
    let all = blist.alloc(leaves * LEAF_SLOTS).unwrap();
    assert_eq!((all, blist.available()), (range(0, leaves * LEAF_SLOTS), 0));
    blist.free(range(3 * LEAF_SLOTS, 2 * LEAF_SLOTS));
    blist.free(range(250 * LEAF_SLOTS, 10 * LEAF_SLOTS));
    assert_eq!(
        blist.alloc(3 * LEAF_SLOTS),
        Some(range(250 * LEAF_SLOTS, 3 * LEAF_SLOTS))
    );
    assert_eq!(blist.alloc(7 * LEAF_SLOTS + 1), None);
    assert_eq!(
        blist.alloc(7 * LEAF_SLOTS),
        Some(range(253 * LEAF_SLOTS, 7 * LEAF_SLOTS))
    );
}

#[test]
fn the_largest_capacity_has_room_for_its_last_slot() {
    let mut blist = Blist::new(u32::MAX >> 6);
    let end = blist.capacity();
    blist.add(range(end - 3, 3));
    assert_eq!(blist.alloc(3), Some(range(end - 3, 3)));
    assert_eq!(blist.alloc(1), None);
}

#[test]
#[should_panic(expected = "partly so already")]
fn freeing_twice_panics() {
    let mut device = fresh_device(64);
    let run = device.alloc(4).unwrap();
    device.free(run);
    device.free(run);
}

#[test]
#[should_panic(expected = "leaves the capacity")]
fn adding_beyond_the_capacity_panics() {
    Blist::new(64).add(range(60, 5));
}

/// One bit a slot, searched from the start.
struct Model {
    free: Vec<bool>,
}

impl Model {
    fn set(&mut self, range: SlotRange, free: bool) {
        for slot in range.iter() {
            assert_ne!(self.free[slot.0 as usize], free);
            self.free[slot.0 as usize] = free;
        }
    }

    fn alloc(&mut self, slots: u32) -> Option<SlotRange> {
        let leaf = LEAF_SLOTS as usize;
        let n = slots as usize;
        let fits = |&at: &usize| {
            let span = if n <= leaf {
                n
            } else {
                n.div_ceil(leaf) * leaf
            };
            let inside = if n <= leaf {
                at % leaf + n <= leaf
            } else {
                at % leaf == 0
            };
            inside
                && self
                    .free
                    .get(at..at + span)
                    .is_some_and(|s| s.iter().all(|&free| free))
        };
        let at = (0..self.free.len()).find(fits)?;
        let run = range(at as u32, slots);
        self.set(run, false);
        Some(run)
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Makes that many more slots usable.
    Add(u32),
    Alloc(u32),
    /// Frees what lies in this share of the allocated slots' sequence.
    Free {
        at: u32,
        slots: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => (1u32..3000).prop_map(Op::Add),
        6 => (1u32..=32).prop_map(Op::Alloc),
        2 => (33u32..=1024).prop_map(Op::Alloc),
        5 => (any::<u32>(), 1u32..200).prop_map(|(at, slots)| Op::Free { at, slots }),
    ]
}

proptest! {
    #[test]
    fn blist_agrees_with_a_bitmap(
        capacity in 1u32..20_000,
        hole in 0u32..70,
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut blist = Blist::new(capacity);
        let mut model = Model { free: vec![false; capacity as usize] };
        let mut grown = hole.min(capacity);
        for op in ops {
            match op {
                Op::Add(slots) => {
                    let extent = range(grown, slots.min(capacity - grown));
                    grown = extent.end().0;
                    blist.add(extent);
                    model.set(extent, true);
                }
                Op::Alloc(slots) => prop_assert_eq!(blist.alloc(slots), model.alloc(slots)),
                Op::Free { at, slots } => {
                    // The longest allocated span of at most `slots` from some slot on.
                    let start = hole.min(capacity) + at % (grown - hole.min(capacity)).max(1);
                    let taken = (start..grown).take(slots as usize);
                    let span = taken.take_while(|&s| !model.free[s as usize]).count() as u32;
                    blist.free(range(start, span));
                    model.set(range(start, span), true);
                }
            }
            let free = model.free.iter().filter(|&&free| free).count();
            prop_assert_eq!(blist.available() as usize, free);
        }
        for slot in 0..capacity {
            prop_assert_eq!(blist.is_free(SlotNo(slot)), model.free[slot as usize]);
        }
    }
}
