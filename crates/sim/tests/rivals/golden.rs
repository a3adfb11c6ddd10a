//! Worked examples. The papers of these policies have none that fixes single hits, so the strings
//! were worked by hand from their pseudo-code; LRU and OPT have Belady's.

use outpage_sim::bounds::opt;
use outpage_sim::rivals::{Size, find};
use outpage_sim::trace::PageString;

/// One letter a reference: `m` for a miss, `h` for a hit.
#[track_caller]
fn pattern(name: &str, frames: u32, pages: &[u32], expected: &str) {
    let entry = find(name).expect("it is in the registry");
    let mut rival = (entry.build)(Size { frames, pages: 16 });
    let letter = |&page: &u32| if rival.reference(page) { 'h' } else { 'm' };
    let found: String = pages.iter().map(letter).collect();
    assert_eq!(found, expected, "{name}");
}

/// Belady, Nelson and Shedler, An anomaly in space-time characteristics, CACM 12(6), 1969: the
/// string on which FIFO has 9 misses in 3 frames and 10 in 4. LRU and OPT have no anomaly.
#[test]
fn belady_string() {
    let string: PageString = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5].into_iter().collect();
    let lru = find("lru").expect("it is in the registry");
    let misses = |frames| (lru.misses(&string, frames), opt(&string, frames).misses);
    assert_eq!([3, 4, 5].map(misses), [(10, 7), (8, 6), (5, 5)]);
}

#[test]
fn lru() {
    pattern("lru", 3, &[1, 2, 3, 1, 4, 2, 1, 3], "mmmhmmhm");
}

/// 4 comes while the hand is at 1, which was referenced: 2 leaves. 5: 1 is spared again, 4
/// leaves. The second 4: 2 is spared, 1 leaves, for its bit was cleared when 5 came.
#[test]
fn clock() {
    pattern(
        "clock",
        3,
        &[1, 2, 3, 1, 4, 2, 1, 5, 2, 4, 1],
        "mmmhmmhmhmm",
    );
}

/// Kin 1, Kout 2. 1 and 2 come back from A1out into Am. 5 forces 7 into A1out, which forgets 5
/// itself at that moment; 8 then finds A1in at Kin, and 1 leaves Am.
#[test]
fn two_q() {
    let pages = [1, 2, 3, 4, 5, 1, 1, 2, 6, 7, 3, 5, 8, 1, 2];
    pattern("2q", 4, &pages, "mmmmmmhmmmmmmmh");
}

/// 2 comes back from B1 and p becomes 1, so 1 leaves T2; 1 comes back from B2 and p becomes 0. 5
/// finds 2c pages remembered, and 2 is forgotten.
#[test]
fn arc() {
    let pages = [1, 1, 2, 3, 2, 3, 1, 3, 4, 5, 1, 4, 1];
    pattern("arc", 2, &pages, "mhmmmhmhmmmmh");
}

/// The string of the paper's table 1 (A to E are 1 to 5; Llirs 2, Lhirs 1), and D after it. 1 and
/// 4 begin as LIR. 2 comes back while it is in S and takes 1's place, which stays resident in Q;
/// 1 takes 2's place back at time 8, when S holds 4 at its bottom. 5 passes Q; 4 is there still,
/// which LRU has lost.
#[test]
fn lirs() {
    let pages = [1, 4, 2, 3, 2, 1, 4, 1, 5, 4];
    pattern("lirs", 3, &pages, "mmmmmhhhmh");
    pattern("lru", 3, &pages, "mmmmhmmhmh");
}

/// The cold share is 1, then 2 when HANDcold finds 1 referenced in its test period, so 1 is hot.
/// 2 comes back in its test period and is hot; HANDhot ends 3's test period for it. At 5, 3 turns
/// hot, and HANDhot passes 1 and 2, which were referenced, and makes 3 cold again: 3 leaves.
#[test]
fn clock_pro() {
    let pages = [1, 2, 3, 1, 4, 2, 3, 1, 2, 3, 5, 3, 1];
    pattern("clock-pro", 3, &pages, "mmmhmmmhhhmmh");
}

/// S 1, M 3, G 3. At 5, 1 has two references and moves to M, 2 has one and leaves for G, from
/// where it comes back into M. 3 comes back too late; G forgets 5 at the moment it comes back.
#[test]
fn s3_fifo() {
    let pages = [1, 2, 3, 4, 1, 1, 2, 5, 2, 1, 6, 7, 8, 3, 5, 2, 1];
    pattern("s3-fifo", 4, &pages, "mmmmhhhmmhmmmmmhh");
}
