//! Strings of references whose best replacement policy is known, or that lie beside those of programs: loops, skewed look-ups, scans, phases.
//!
//! Each begins with a write to every page, in order; a third of what follows writes. Equal each time.

use outpage_core::contract::Access;
use outpage_core::units::{Nanos, ObjectId, PageNo};

use crate::trace::{Reference, Run};

/// Pages of each: 32 MiB, so that a quarter of it is a memory that a live pager could have.
const PAGES: u64 = 8192;
/// CPU time of a touch: nothing, replacement alone is looked at.
const GAP: Nanos = Nanos(0);

/// A string and its name.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// What it is called in tables.
    pub name: &'static str,
    /// Its references.
    pub runs: Vec<Run>,
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Neighbour> {
    let strings: [(&str, Make); 9] = [
        ("loop", looping),
        ("loop-of-part", loop_of_part),
        ("zipf", zipf),
        ("scan-zipf", scan_and_zipf),
        ("scan-hot", scan_and_hot_set),
        ("phases", phases),
        ("moving-set", moving_set),
        ("uniform", uniform),
        ("back-and-forth", back_and_forth),
    ];
    let made = strings.map(|(name, make)| {
        let mut touches = Touches::new();
        make(&mut touches);
        let runs = touches.runs;
        Neighbour { name, runs }
    });
    made.into()
}

/// Adds a string's references to those of the first pass.
type Make = fn(&mut Touches);

/// References as they are made.
struct Touches {
    runs: Vec<Run>,
    random: u64,
}

impl Touches {
    fn new() -> Self {
        let mut touches = Self {
            runs: Vec::new(),
            random: 1,
        };
        (0..PAGES).for_each(|page| touches.push(page, Access::Write));
        touches
    }

    fn push(&mut self, index: u64, access: Access) {
        let page = PageNo::new(ObjectId(1), index);
        let gap = GAP;
        self.runs.push(Run::one(Reference { page, access, gap }));
    }

    fn touch(&mut self, index: u64) {
        let writes = self.runs.len().is_multiple_of(3);
        self.push(index, if writes { Access::Write } else { Access::Read });
    }

    fn sweep(&mut self, pages: u64) {
        (0..pages).for_each(|page| self.touch(page));
    }

    /// A number below `end`. Knuth's MMIX generator.
    fn below(&mut self, end: u64) -> u64 {
        self.random = (self.random.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) * end) >> 31
    }

    /// A page below `pages`, some far more often than others, and those spread over all: the fourth power of an even
    /// number stands for Zipf's law.
    fn skewed(&mut self, pages: u64) -> u64 {
        let even = self.below(1 << 30) as f64 / (1u64 << 30) as f64;
        let rank = (even.powi(4) * pages as f64) as u64;
        // An odd factor: no two ranks share a page where the pages are a power of two.
        rank * 40_503 % pages
    }
}

fn looping(t: &mut Touches) {
    (0..11).for_each(|_| t.sweep(PAGES));
}

/// Five eighths of what was written: what does not come back has to leave first.
fn loop_of_part(t: &mut Touches) {
    (0..20).for_each(|_| t.sweep(PAGES * 5 / 8));
}

fn zipf(t: &mut Touches) {
    for _ in 0..150_000 {
        let page = t.skewed(PAGES);
        t.touch(page);
    }
}

fn scan_and_zipf(t: &mut Touches) {
    for at in 0..75_000 {
        let page = t.skewed(PAGES / 2);
        t.touch(page);
        t.touch(PAGES / 2 + at % (PAGES / 2));
    }
}

fn scan_and_hot_set(t: &mut Touches) {
    for at in 0..60_000 {
        let page = t.below(PAGES / 4);
        t.touch(page);
        t.touch(PAGES / 4 + at % (PAGES * 3 / 4));
    }
}

/// Loops and sets that are touched at random, by turns, each somewhere else.
fn phases(t: &mut Touches) {
    for phase in 0..6 {
        if phase % 2 == 0 {
            (0..3).for_each(|_| t.sweep(PAGES * 5 / 8));
            continue;
        }
        for _ in 0..30_000 {
            let page = phase * PAGES / 8 + t.below(PAGES / 8);
            t.touch(page);
        }
    }
}

/// A fifth of the pages at random, those from the first to the last by and by.
fn moving_set(t: &mut Touches) {
    let set = PAGES / 5;
    for at in 0..150_000 {
        let page = at * (PAGES - set) / 150_000 + t.below(set);
        t.touch(page);
    }
}

fn uniform(t: &mut Touches) {
    for _ in 0..120_000 {
        let page = t.below(PAGES);
        t.touch(page);
    }
}

fn back_and_forth(t: &mut Touches) {
    for _ in 0..6 {
        (0..PAGES).rev().for_each(|page| t.touch(page));
        t.sweep(PAGES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_touches_all_of_its_pages_and_is_the_same_each_time() {
        for (one, other) in all().into_iter().zip(all()) {
            assert_eq!((one.name, &one.runs), (other.name, &other.runs));
            let pages: HashSet<u64> = one.runs.iter().map(|run| run.start.index()).collect();
            assert_eq!(pages.len() as u64, PAGES, "{}", one.name);
            assert!(pages.iter().all(|&page| page < PAGES), "{}", one.name);
        }
    }

    #[test]
    fn a_tenth_of_the_pages_gets_most_of_skewed_touches() {
        let mut touches = Touches::new();
        let mut counts = vec![0; PAGES as usize];
        (0..10_000).for_each(|_| counts[touches.skewed(PAGES) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let most: u32 = counts[..PAGES as usize / 10].iter().sum();
        assert!((5_000..8_000).contains(&most), "{most}");
    }
}
