//! BSD read-ahead: what it reads with a page, and when it takes a fault for sequential.

use outpage_core::readahead::{ReadAhead, Touch};
use outpage_core::units::{Nanos, PageNo, SlotNo};
use proptest::prelude::*;

use crate::world::{Store, page, pages, read_ahead, touch};

fn bsd(lastr: &str) -> Box<dyn ReadAhead> {
    read_ahead("bsd", &format!("lastr={lastr}"))
}

/// Pages `0..n` of object 1, in the slots from 1000 on.
fn store(n: u64) -> Store {
    let mut store = Store::default();
    for index in 0..n {
        store.put(SlotNo(1000 + index as u32), page(1, index));
    }
    store
}

/// Faults on `page`; what is read becomes resident.
fn fault(policy: &mut dyn ReadAhead, page: PageNo, store: &mut Store) -> Vec<PageNo> {
    let window = policy.major_fault(&store.fault(page), store);
    assert_eq!((window.behind, window.downward), (None, false));
    let read = store.pages(window.now);
    assert!(read.contains(&page));
    read.iter().for_each(|&page| store.take(page));
    read
}

#[test]
fn bsd_vm_section_10_fifteen_pages_then_eight() {
    let mut store = store(1000);
    let mut policy = bsd("major-faults");
    assert_eq!(
        fault(&mut *policy, page(1, 100), &mut store),
        pages(1, 93..=107)
    );
    // The last read ended before 108: sequential from there to 123.
    assert_eq!(
        fault(&mut *policy, page(1, 108), &mut store),
        pages(1, 108..=115)
    );
    assert_eq!(
        fault(&mut *policy, page(1, 131), &mut store),
        pages(1, 131..=138)
    );
    assert_eq!(
        fault(&mut *policy, page(1, 155), &mut store),
        pages(1, 148..=162)
    );
    assert_eq!(
        fault(&mut *policy, page(1, 147), &mut store),
        pages(1, 140..=147)
    );
}

#[test]
fn bsd_vm_section_10_stops_at_resident_pages() {
    let mut store = store(1000);
    store.take(page(1, 97));
    store.take(page(1, 103));
    let mut policy = bsd("off");
    assert_eq!(
        fault(&mut *policy, page(1, 100), &mut store),
        pages(1, 98..=102)
    );
    assert_eq!(
        fault(&mut *policy, page(1, 96), &mut store),
        pages(1, 89..=96)
    );
}

#[test]
fn bsd_vm_section_10_needs_neighbours_in_memory_and_in_the_store() {
    let mut store = Store::default();
    // 10, 11, 12 in a row; 13 elsewhere; another object behind 12.
    for (slot, page) in [
        (50, page(1, 10)),
        (51, page(1, 11)),
        (52, page(1, 12)),
        (53, page(2, 13)),
    ] {
        store.put(SlotNo(slot), page);
    }
    store.put(SlotNo(80), page(1, 13));
    store.put(SlotNo(49), page(1, 8));
    let mut policy = bsd("off");
    assert_eq!(
        fault(&mut *policy, page(1, 11), &mut store),
        pages(1, 10..=12)
    );
}

#[test]
fn bsd_vm_section_9_only_pages_without_a_valid_slot_end_a_read() {
    // A page that lost its slot to a write fault ends the read as a resident one does.
    let mut store = store(30);
    store.take(page(1, 16));
    assert_eq!(
        fault(&mut *bsd("off"), page(1, 12), &mut store),
        pages(1, 5..=15)
    );
    // Both ends of the object end it too.
    assert_eq!(
        fault(&mut *bsd("off"), page(1, 2), &mut store),
        pages(1, 0..=4)
    );
    assert_eq!(
        fault(&mut *bsd("off"), page(1, 29), &mut store),
        pages(1, 22..=29)
    );
}

#[test]
fn lastr_rules_differ_on_untouched_pages() {
    for (rule, first) in [("every-fault", 100), ("major-faults", 93), ("off", 93)] {
        let mut policy = bsd(rule);
        // The first asks for the 7 pages before it too; the second continues it.
        policy.untouched_fault(page(1, 90));
        policy.untouched_fault(page(1, 91));
        let read = fault(&mut *policy, page(1, 100), &mut store(1000));
        assert_eq!(read[0], page(1, first), "{rule:?}");
    }
}

#[test]
fn objects_have_a_lastr_each() {
    let mut store = Store::default();
    for object in 1..=100 {
        for index in 0..100 {
            store.put(SlotNo(object * 200 + index), page(object, index.into()));
        }
    }
    let mut policy = bsd("major-faults");
    for object in 1..=100 {
        assert_eq!(fault(&mut *policy, page(object, 50), &mut store).len(), 15);
    }
    // The last 64 objects are remembered.
    for object in 37..=100 {
        assert_eq!(
            fault(&mut *policy, page(object, 58), &mut store).len(),
            8,
            "{object}"
        );
    }
    assert_eq!(fault(&mut *policy, page(1, 66), &mut store).len(), 15);
}

proptest! {
    #[test]
    fn bsd_agrees_with_a_walk_from_the_fault(
        out in prop::collection::btree_map(0u64..60, 0u32..4, 1..60),
        at in any::<prop::sample::Index>(),
    ) {
        // A page lies in its own place of one of four areas.
        let mut store = Store::default();
        for (&index, &area) in &out {
            store.put(SlotNo(area * 100 + index as u32), page(1, index));
        }
        let indices: Vec<_> = out.keys().copied().collect();
        let faulted = *at.get(&indices);
        let area = out[&faulted];
        let mut expected = vec![faulted];
        for index in (0..faulted).rev().take(7).take_while(|i| out.get(i) == Some(&area)) {
            expected.insert(0, index);
        }
        expected.extend((faulted + 1..).take(7).take_while(|i| out.get(i) == Some(&area)));
        let read = fault(&mut *bsd("major-faults"), page(1, faulted), &mut store);
        prop_assert_eq!(read, pages(1, expected));
    }
}

#[test]
fn none_reads_the_page_alone() {
    let store = store(10);
    let mut policy = read_ahead("none", "");
    let fault = Touch {
        now: Nanos(5),
        ..store.fault(page(1, 4))
    };
    let window = policy.major_fault(&fault, &store);
    assert_eq!(
        (store.pages(window.now), window.behind),
        (pages(1, [4]), None)
    );
    assert_eq!(policy.hit(&touch(page(1, 5), 1005), &store), None);
}
