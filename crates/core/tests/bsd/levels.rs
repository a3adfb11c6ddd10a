//! The levels of free and inactive pages, as FreeBSD's `vm_pageout` sets them.

use outpage_core::reclaim::bsd::{Levels, Release};

/// reserved, severe, min, target = `cache_min`, `inactive_target`, wake, refill.
fn row(frames: usize, release: Release) -> [usize; 7] {
    let l = Levels::new(frames, release, 32);
    assert_eq!((l.cache_min, l.cache_max), (l.target, 2 * l.target));
    let refill = l.missing(0) as usize;
    [
        l.reserved,
        l.severe,
        l.min,
        l.target,
        l.inactive_target,
        l.wake(),
        refill,
    ]
}

#[test]
fn section_2_table() {
    let (six, eight) = (Release::V6_2, Release::V8_2);
    let rows = [
        (126_000, six, [246, 560, 874, 3742, 5613, 3988, 7484]),
        (254_000, six, [412, 1046, 1680, 7132, 10698, 7544, 14264]),
        (254_000, eight, [380, 1014, 1648, 6972, 10458, 7352, 13944]),
    ];
    for (frames, release, expected) in rows {
        assert_eq!(
            row(frames, release),
            expected,
            "{frames} pages, {release:?}"
        );
    }
}

#[test]
fn section_2_small_memories() {
    let small = Levels::new(1000, Release::V8_2, 32);
    assert_eq!(small.cluster, 8);
    assert_eq!(small.reserved, 8 + 34 + 1);
    assert_eq!(small.min, 4 + small.reserved);
    assert_eq!(small.target, 2 * small.min + small.reserved);
    assert_eq!((small.cache_min, small.cache_max), (0, 0));
    assert_eq!(small.inactive_target, 250);
    // A third of memory caps the inactive target.
    let l = Levels::new(2100, Release::V6_2, 500);
    assert!(3 * l.target / 2 > 700);
    assert_eq!(l.inactive_target, 700);
}
