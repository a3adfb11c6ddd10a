//! The bounds against brute force and naive implementations.

mod brute;

use std::collections::HashMap;

use brute::{Cost, least};
use outpage_core::contract::Access;
use outpage_sim::bounds::{Curve, Floor, opt, transfers};
use outpage_sim::trace::PageString;
use proptest::prelude::*;

/// Strings of (page, wrote) small enough for brute force.
fn tiny() -> impl Strategy<Value = Vec<(u8, bool)>> {
    let writes = prop_oneof![2 => any::<bool>().boxed(), 1 => Just(true).boxed()];
    let reference = |wrote| (0u8..6, wrote);
    prop_oneof![
        prop::collection::vec(reference(writes.boxed()), 0..18),
        prop::collection::vec(reference(Just(true).boxed()), 0..18),
    ]
}

fn string_of(references: &[(u8, bool)]) -> PageString {
    let access = |wrote| if wrote { Access::Write } else { Access::Read };
    references
        .iter()
        .map(|&(page, wrote)| (u64::from(page), access(wrote)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Page-ins are the exact minimum, page-outs within one frame of it, and weighted together
    /// they are a lower bound.
    #[test]
    fn floors_are_below_every_policy(references in tiny(), frames in 1u32..5) {
        let string = string_of(&references);
        let floor = transfers(&string, frames);
        let optimum = |cost| least(&references, frames as usize, cost);
        prop_assert_eq!(opt(&string, frames).misses, optimum(Cost { miss: 1, page_in: 0, page_out: 0 }));
        prop_assert_eq!(floor.page_ins, optimum(Cost { miss: 0, page_in: 1, page_out: 0 }));
        let page_outs = optimum(Cost { miss: 0, page_in: 0, page_out: 1 });
        prop_assert!(floor.page_outs <= page_outs);
        if frames > 1 {
            prop_assert!(page_outs <= transfers(&string, frames - 1).page_outs);
        }
        if references.iter().all(|&(_, wrote)| wrote) {
            prop_assert_eq!(floor.page_outs, page_outs);
        }
        for (page_in, page_out) in [(1, 1), (1, 3), (3, 1)] {
            let both = optimum(Cost { miss: 0, page_in, page_out });
            prop_assert!(floor.page_ins * page_in + floor.page_outs * page_out <= both);
        }
    }

    /// The curve is LRU at every size.
    #[test]
    fn the_curve_is_lru(
        pages in prop::collection::vec(0u64..50, 0..600),
        frames in 0u32..60,
    ) {
        let string: PageString = pages.iter().copied().collect();
        let curve = Curve::new(&string);
        let naive = lru_misses(&pages, frames as usize);
        prop_assert_eq!(curve.misses(frames), naive);
        let all: Vec<u64> = curve.all().collect();
        prop_assert_eq!(all.len(), string.distinct() + 1);
        if let Some(&misses) = all.get(frames as usize) {
            prop_assert_eq!(misses, naive);
        }
        prop_assert_eq!(curve.first(), string.distinct() as u64);
    }
}

/// Stack distances by a list that is searched from its end.
fn lru_misses(pages: &[u64], frames: usize) -> u64 {
    let mut stack: Vec<u64> = Vec::new();
    let mut misses = 0;
    for page in pages {
        let depth = stack.iter().rev().position(|other| other == page);
        match depth {
            Some(depth) => {
                misses += u64::from(depth >= frames);
                stack.remove(stack.len() - 1 - depth);
            }
            None => misses += 1,
        }
        stack.push(*page);
    }
    misses
}

/// With two frames no policy reaches both floors on this string: each is reached by some policy,
/// and reading and writing together cost one transfer more.
#[test]
fn both_floors_need_not_be_reached_at_once() {
    let writes = [(2, true), (1, true), (3, true)];
    let references = [
        &writes[..],
        &[(1, false), (3, false), (0, true), (2, false)],
    ]
    .concat();
    let Floor {
        page_ins,
        page_outs,
    } = transfers(&string_of(&references), 2);
    let optimum = |miss, page_in, page_out| {
        let cost = Cost {
            miss,
            page_in,
            page_out,
        };
        least(&references, 2, cost)
    };
    assert_eq!((page_ins, page_outs), (optimum(0, 1, 0), optimum(0, 0, 1)));
    assert_eq!(page_ins + page_outs + 1, optimum(0, 1, 1));
}

/// Passes over B pages that each write all of them, with F frames: between two passes F - 1 pages
/// stay (one frame serves all others), and F at the end.
#[test]
fn passes_over_more_than_memory() {
    let (passes, pages, frames) = (5u64, 100u64, 30u32);
    let sweep = (0..pages).map(|page| (page, Access::Write));
    let string: PageString = (0..passes).flat_map(|_| sweep.clone()).collect();
    let floor = transfers(&string, frames);
    assert_eq!(opt(&string, frames).misses, floor.page_ins + pages);
    // A kept span of a page is one pass long, and at most F - 1 others may overlap a reference:
    // over P - 1 passes that is about (P - 1) (F - 1) spans saved.
    let most_saved = (passes - 1) * u64::from(frames);
    assert!(floor.page_ins >= (passes - 1) * pages - most_saved);
    assert!(floor.page_outs >= passes * pages - most_saved - u64::from(frames));
    assert!(floor.page_outs < floor.page_ins + pages);
}

/// A string much longer than its pages: places are compacted many times.
#[test]
fn a_long_string_over_few_pages() {
    let pages: Vec<u64> = (0..20_000u64).map(|at| (at * at + at / 7) % 97).collect();
    let string: PageString = pages.iter().copied().collect();
    let curve = Curve::new(&string);
    for frames in [1, 10, 50, 96, 97] {
        assert_eq!(curve.misses(frames), lru_misses(&pages, frames as usize));
    }
    let distinct: HashMap<u64, ()> = pages.iter().map(|&page| (page, ())).collect();
    assert_eq!(curve.misses(97), distinct.len() as u64);
}
