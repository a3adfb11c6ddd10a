//! The papers' worked examples, by the numbers of their figures.

use outpage_core::units::PageNo;

use crate::world::{
    Dirty, Store, fresh_device, page, page_out, pages, read_ahead, scan, sizes, walk,
};

/// Objects.
const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;
const R: u32 = 9;

/// `n` dirty pages none of which is next to another.
fn apart(n: u64) -> Vec<PageNo> {
    pages(R, (0..n).map(|i| 10 * i))
}

fn dirty(sets: &[&[PageNo]]) -> Dirty {
    Dirty::new(sets.iter().flat_map(|set| set.iter().copied()))
}

#[test]
fn moc_figure_2() {
    let mut inactive = dirty(&[&pages(A, 3..=6), &pages(B, [2, 7])]);
    let written = walk(&mut *page_out("bsd", 16), &[page(A, 5)], &mut inactive);
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].pages, pages(A, 3..=6));
}

#[test]
fn moc_figure_4() {
    let s1 = pages(A, 20..34);
    let random = apart(2);
    let victims = [s1[3], random[0], random[1]];
    let moc = walk(
        &mut *page_out("moc", 16),
        &victims,
        &mut dirty(&[&s1, &random]),
    );
    assert_eq!(sizes(&moc), [16]);
    let bsd = walk(
        &mut *page_out("bsd", 16),
        &victims,
        &mut dirty(&[&s1, &random]),
    );
    assert_eq!(sizes(&bsd), [14, 1, 1]);
}

#[test]
fn moc_figure_5() {
    let random = apart(16);
    let (s1, s2) = (pages(A, 4..6), pages(B, 8..10));
    let inactive = || dirty(&[&random, &s1, &s2]);
    let moc = walk(&mut *page_out("moc", 16), &random, &mut inactive());
    assert_eq!(sizes(&moc), [16]);
    let bsd = walk(&mut *page_out("bsd", 16), &random, &mut inactive());
    assert_eq!(sizes(&bsd), [1; 16]);
}

#[test]
fn moc_figure_6() {
    let (s1, s2, s3) = (pages(A, 0..9), pages(B, 0..2), pages(C, 0..5));
    let random = apart(2);
    let victims = [s1[0], random[0], random[1], s2[1], s3[4]];
    let mut inactive = dirty(&[&s1, &s2, &s3, &random]);
    let mut moc = page_out("moc", 16);
    let first_four = walk(&mut *moc, &victims[..4], &mut inactive);
    assert_eq!(sizes(&first_four), [], "13 pages are buffered");
    let fifth = walk(&mut *moc, &victims[4..], &mut inactive);
    assert_eq!(sizes(&fifth), [13], "five more do not fit");
    let rest = scan(&mut *moc, &[], &mut inactive);
    assert_eq!(rest[0].pages, s3);

    let mut inactive = dirty(&[&s1, &s2, &s3, &random]);
    assert_eq!(
        walk(&mut *page_out("bsd", 16), &victims[..4], &mut inactive).len(),
        4
    );
}

/// Collects 50..=52, others, and then 48..=49 of the same object; pages that come back with 49.
fn back_with_49(policy: &str) -> Vec<PageNo> {
    let mut policy = page_out(policy, 16);
    let mut inactive = dirty(&[&pages(A, 50..=52), &pages(B, 7..=9), &pages(C, 1..=2)]);
    let victims = [page(A, 51), page(B, 7), page(C, 2)];
    let mut written = walk(&mut *policy, &victims, &mut inactive);
    // These two became inactive after their neighbours were collected.
    written.extend(scan(
        &mut *policy,
        &[page(A, 48)],
        &mut dirty(&[&pages(A, 48..=49)]),
    ));
    assert_eq!(sizes(&written), [10]);
    let mut store = Store::default();
    store.write(&written, &mut fresh_device(1024));
    let window = read_ahead("bsd", "").major_fault(&store.fault(page(A, 49)), &store);
    store.pages(window.now)
}

#[test]
fn moc_figure_7() {
    assert_eq!(back_with_49("moc"), pages(A, 48..=52));
    assert_eq!(
        back_with_49("mclustering"),
        pages(A, 48..=49),
        "nothing is sorted"
    );
}

/// The sizes of the writes with a buffer of six pages.
fn writes(policy: &str, victims: &[PageNo], using: &[PageNo]) -> Vec<u32> {
    sizes(&scan(
        &mut *page_out(policy, 6),
        victims,
        &mut dirty(&[using]),
    ))
}

#[test]
fn mclustering_figure_1() {
    let using = [pages(A, 1..=4), pages(B, [6]), pages(C, [8])].concat();
    let victims = [page(A, 2), page(B, 6), page(C, 8)];
    assert_eq!(writes("bsd", &victims, &using), [4, 1, 1]);
    assert_eq!(writes("mclustering", &victims, &using), [6]);
}

#[test]
fn mclustering_figure_2() {
    let using = [pages(A, 1..=2), pages(B, 4..=5), pages(C, 7..=9)].concat();
    let victims = [page(A, 1), page(B, 4), page(C, 7)];
    assert_eq!(writes("bsd", &victims, &using), [2, 2, 3]);
    assert_eq!(writes("mclustering", &victims, &using), [4, 3]);
}

#[test]
fn microbenchmark_pages_per_write() {
    // MOC, section 5.2.1: dirty `size` pages, skip as many, and so on.
    let moc = [
        (1, 16),
        (2, 16),
        (4, 16),
        (6, 12),
        (8, 16),
        (10, 10),
        (12, 12),
        (14, 14),
        (16, 16),
    ];
    for (size, pages_per_write) in moc {
        let using: Vec<_> = (0..720 * size).filter(|i| i / size % 2 == 0).collect();
        let using = pages(A, using);
        for (policy, expected) in [
            ("moc", pages_per_write),
            ("mclustering", pages_per_write),
            ("bsd", size),
        ] {
            let mut policy = page_out(policy, 16);
            let written = scan(&mut *policy, &using, &mut dirty(&[&using]));
            let (last, full) = written.split_last().unwrap();
            assert!(
                full.iter().all(|chunk| u64::from(chunk.len()) == expected),
                "{size}"
            );
            assert!(u64::from(last.len()) <= expected);
        }
    }
}
