//! Every rival misses exactly as often as its naive implementation.

use outpage_sim::bounds::opt;
use outpage_sim::rivals::{self, REGISTRY};
use outpage_sim::trace::{PageString, Reader, string};
use proptest::prelude::*;

use crate::strings::{looping, scans, zipf};
use crate::{naive, naive_lists, strings};

type Naive = fn(&[u64], usize) -> u64;

const NAIVE: &[(&str, Naive)] = &[
    ("lru", naive_lists::lru),
    ("clock", naive_lists::clock),
    ("2q", naive_lists::two_q),
    ("arc", naive_lists::arc),
    ("lirs", naive::lirs),
    ("clock-pro", naive::clock_pro),
    ("s3-fifo", naive_lists::s3_fifo),
];

#[track_caller]
fn agree(what: &str, pages: &[u64], frames: u32) {
    let string: PageString = pages.iter().copied().collect();
    let least = naive::opt(pages, frames as usize);
    assert_eq!(
        opt(&string, frames).misses,
        least,
        "opt, {what}, {frames} frames"
    );
    for &(name, naive) in NAIVE {
        let rival = rivals::find(name).expect("it is in the registry");
        let misses = rival.misses(&string, frames);
        assert_eq!(
            misses,
            naive(pages, frames as usize),
            "{name}, {what}, {frames} frames"
        );
        assert!(
            misses >= least,
            "{name} beats the optimum on {what}, {frames} frames"
        );
    }
}

#[test]
fn every_rival_has_a_naive_implementation() {
    let registered: Vec<_> = REGISTRY.iter().map(|entry| entry.name).collect();
    let naive: Vec<_> = NAIVE.iter().map(|(name, _)| *name).collect();
    assert_eq!(registered, naive);
}

#[test]
fn on_long_structured_strings() {
    for frames in [1, 2, 3, 7, 50, 210, 400] {
        agree("zipf", &zipf(1000, 8000, 7), frames);
        agree("a loop", &looping(220, 3000), frames);
        agree("scans", &scans(300, 4000, 500, 250), frames);
    }
}

#[test]
fn on_a_recorded_string() {
    let bytes = include_bytes!("../trace/data/sort.refs");
    let reader = Reader::new(&bytes[..]).expect("a trace");
    let recorded = string(reader).expect("a whole trace");
    let pages: Vec<u64> = recorded
        .numbers()
        .map(|number| recorded.page(number))
        .collect();
    assert!(pages.len() > 5000, "{} references", pages.len());
    for frames in [2, 5, 17, 60] {
        agree("sort", &pages, frames);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn on_any_string(pages in strings::every_kind(), frames in 1u32..60) {
        agree("a random string", &pages, frames);
    }

    /// More frames than pages: nothing but first references misses.
    #[test]
    fn nothing_leaves_while_all_fits(pages in strings::every_kind()) {
        let string: PageString = pages.iter().copied().collect();
        // CLOCK-Pro, 2Q and S3-FIFO may not replace either while a frame is free.
        let frames = string.distinct() as u32 + 1;
        for rival in REGISTRY {
            prop_assert_eq!(rival.misses(&string, frames), string.distinct() as u64, "{}", rival.name);
        }
    }
}
