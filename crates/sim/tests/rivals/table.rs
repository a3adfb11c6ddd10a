//! The comparison of all rivals over several strings and sizes.

use outpage_sim::rivals::{OPT, REGISTRY, compare, find};
use outpage_sim::trace::PageString;

use crate::strings::{looping, zipf};

#[test]
fn every_policy_has_a_cell_for_every_string_and_size() {
    let zipf: PageString = zipf(100, 2000, 1).into_iter().collect();
    let looping: PageString = looping(50, 1000).into_iter().collect();
    let mut seen = Vec::new();
    let table = compare(
        &[("zipf", &zipf), ("loop", &looping)],
        REGISTRY,
        &[10, 40],
        |progress| seen.push((progress.done, progress.total)),
    );
    let total = 2 * 2 * (REGISTRY.len() + 1);
    assert_eq!(table.cells.len(), total);
    assert!(
        seen.iter()
            .copied()
            .eq((1..=total).map(|done| (done, total)))
    );

    let lru = table.find("loop", 40, "lru").expect("a cell");
    let best = table.find("loop", 40, OPT).expect("a cell");
    // A loop larger than memory: LRU always misses, the optimum keeps all but one frame.
    assert_eq!((lru.misses, lru.references, lru.distinct), (1000, 1000, 50));
    assert!((lru.miss_ratio - 1.0).abs() < 1e-12);
    assert!(best.misses < 300 && best.above_opt == 0.0);
    let above = (lru.misses - best.misses) as f64 / best.misses as f64;
    assert!((lru.above_opt - above).abs() < 1e-12);
    for cell in &table.cells {
        if cell.policy != OPT {
            let string = if cell.trace == "zipf" {
                &zipf
            } else {
                &looping
            };
            let alone = find(&cell.policy)
                .expect("registered")
                .misses(string, cell.frames);
            assert_eq!(cell.misses, alone);
        }
    }
}

#[test]
fn an_empty_string_has_no_ratio() {
    let empty = PageString::new();
    let table = compare(&[("empty", &empty)], REGISTRY, &[1], |_| {});
    assert!(
        table
            .cells
            .iter()
            .all(|cell| cell.misses == 0 && cell.miss_ratio == 0.0)
    );
}
