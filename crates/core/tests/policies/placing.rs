//! Placing chunks: the kernel's halving, the papers' shrinking, mClustering's rule.

use outpage_core::pageout::Placement;
use outpage_core::slots::{Blist, Placed, ShrinkRule, place, place_with};
use outpage_core::units::{SlotNo, SlotRange};
use proptest::prelude::*;

use crate::world::{chunk, fresh_device};

/// A device whose free slots come in runs of `run` slots, `runs` of them, one a leaf.
fn holes(run: u32, runs: u32) -> Blist {
    let mut blist = Blist::new(runs * 32);
    for leaf in 0..runs {
        blist.add(SlotRange::new(SlotNo(leaf * 32), run));
    }
    blist
}

/// (first page, slots) of every part.
fn parts(placed: &[Placed]) -> Vec<(usize, u32)> {
    placed
        .iter()
        .map(|placed| (placed.first, placed.slots.slots))
        .collect()
}

fn shrunk(pages: u32, rule: ShrinkRule, mut blist: Blist) -> Vec<(usize, u32)> {
    let mut placed = Vec::new();
    place_with(
        &chunk(Placement::Shrink, &[pages]),
        rule,
        &mut blist,
        &mut placed,
    );
    parts(&placed)
}

#[test]
fn bsd_vm_section_7_halving_sequences() {
    // (pages, longest free run, size of the first request served).
    let served = [
        (15, 3, 3),
        (15, 7, 7),
        (12, 3, 3),
        (12, 6, 6),
        (10, 2, 2),
        (10, 5, 5),
        (5, 2, 2),
    ];
    for (pages, run, first) in served {
        assert_eq!(
            shrunk(pages, ShrinkRule::Halve, holes(run, 16))[0],
            (0, first),
            "{pages}"
        );
    }
    // (pages, longest free run, pages given up before the first request served).
    for (pages, run, failed) in [(16, 3, 4), (9, 3, 4), (9, 2, 4)] {
        assert_eq!(
            shrunk(pages, ShrinkRule::Halve, holes(run, 16))[0].0,
            failed,
            "{pages}"
        );
    }
    // Four or fewer get one try.
    for pages in 1..=4 {
        assert_eq!(
            shrunk(pages, ShrinkRule::Halve, holes(pages - 1, 16)),
            [],
            "{pages}"
        );
    }
}

#[test]
fn bsd_vm_section_7_the_rest_is_tried_anew() {
    // 16, 8, 4 fail; 12, 6, 3 serves 3; 9, 4 fail; 5, 2 serves 2; 3 serves 3.
    let expected = [(4, 3), (11, 2), (13, 3)];
    assert_eq!(shrunk(16, ShrinkRule::Halve, holes(3, 16)), expected);
}

#[test]
fn the_papers_shrink_by_one() {
    let expected = [(0, 3), (3, 3), (6, 3), (9, 3), (12, 3), (15, 1)];
    assert_eq!(shrunk(16, ShrinkRule::ByOne, holes(3, 16)), expected);
    assert_eq!(
        shrunk(16, ShrinkRule::ByOne, holes(1, 5)),
        [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    );
}

#[test]
fn a_large_buffer_starts_with_all_of_it() {
    let mut device = fresh_device(4096);
    let mut placed = Vec::new();
    place(&chunk(Placement::Shrink, &[1024]), &mut device, &mut placed);
    assert_eq!(
        placed,
        [Placed {
            first: 0,
            slots: SlotRange::new(SlotNo(32), 1024)
        }]
    );
    // One leaf is the longest run: 100, 50, 25; then 75, 37, 18; 57, 28; 29; nothing is left over.
    assert_eq!(
        shrunk(100, ShrinkRule::Halve, holes(31, 16)),
        [(0, 25), (25, 18), (43, 28), (71, 29)]
    );
}

#[test]
fn a_full_device_places_nothing() {
    for placement in [Placement::Shrink, Placement::WholeThenClusters] {
        let mut placed = Vec::new();
        place(
            &chunk(placement, &[9, 7]),
            &mut Blist::new(1024),
            &mut placed,
        );
        assert_eq!(placed, []);
    }
}

#[test]
fn mclustering_keeps_clusters_whole_where_the_buffer_finds_no_run() {
    let chunk = |placement| chunk(placement, &[5, 6, 5]);
    let run = |placement, blist: &mut Blist| {
        let mut placed = Vec::new();
        place(&chunk(placement), blist, &mut placed);
        parts(&placed)
    };
    assert_eq!(
        run(Placement::WholeThenClusters, &mut holes(16, 4)),
        [(0, 16)]
    );
    assert_eq!(
        run(Placement::WholeThenClusters, &mut holes(8, 4)),
        [(0, 5), (5, 6), (11, 5)]
    );
    // BSD cuts the buffer into 8 and 8, and so the second cluster into two.
    assert_eq!(run(Placement::Shrink, &mut holes(8, 4)), [(0, 8), (8, 8)]);
    // No run for the cluster of six either: it alone shrinks, to 3 and 3.
    assert_eq!(
        run(Placement::WholeThenClusters, &mut holes(5, 5)),
        [(0, 5), (5, 3), (8, 3), (11, 5)]
    );
}

proptest! {
    #[test]
    fn every_page_gets_at_most_one_slot_and_no_slot_two_pages(
        clusters in prop::collection::vec(1u32..40, 1..20),
        runs in prop::collection::vec(0u32..=32, 1..60),
        whole in any::<bool>(),
        by_one in any::<bool>(),
    ) {
        let placement = if whole { Placement::WholeThenClusters } else { Placement::Shrink };
        let rule = if by_one { ShrinkRule::ByOne } else { ShrinkRule::Halve };
        let mut blist = Blist::new(runs.len() as u32 * 32);
        for (leaf, &run) in runs.iter().enumerate() {
            blist.add(SlotRange::new(SlotNo(leaf as u32 * 32), run));
        }
        let before = blist.clone();
        let chunk = chunk(placement, &clusters);
        let mut placed = Vec::new();
        place_with(&chunk, rule, &mut blist, &mut placed);

        let mut next = 0;
        for part in &placed {
            prop_assert!(part.first >= next, "parts overlap or are out of order");
            next = part.first + part.slots.slots as usize;
            for slot in part.slots.iter() {
                prop_assert!(before.is_free(slot) && !blist.is_free(slot));
            }
        }
        prop_assert!(next <= chunk.pages.len());
        let got = placed.iter().map(|part| part.slots.slots).sum::<u32>();
        prop_assert_eq!(before.available() - blist.available(), got);
        if by_one {
            prop_assert_eq!(got, chunk.len().min(before.available()));
        }
    }
}
