//! How far the contents of a workload's pages compress.
//!
//! Each word of a page either follows from its place, and repeats nothing, or is a word that the page has in
//! common. How many there are of the first kind makes the page's ratio.

use serde::{Deserialize, Serialize};

use super::rng::mix;

/// What the pages of a workload look like to a compressor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// As the heaps of five programs: LZ4 makes a third of them overall, a fifth to three quarters of a heap
    Heap,
    /// Nothing repeats: LZ4 makes every page larger
    Incompressible,
    /// One word of 16 is not zero: LZ4 makes a tenth of it
    MostlyZero,
}

/// A heap that was measured: 4,000 random pages of each, compressed one by one with LZ4.
struct Heap {
    /// Words of a page that repeat nothing, in the pages that are neither zero nor incompressible.
    fresh: u64,
    /// Pages of 1,000 that are zero.
    zero: u64,
    /// Pages of 1,000 that do not compress.
    incompressible: u64,
}

/// Words of a page.
const WORDS: u64 = 512;
/// Odd constant between the words of a page.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A Perl hash (ratio 3.08), an awk array (4.21), objects of node (3.32), a Python
/// dictionary (5.45) and SQLite in memory (1.40). The words are chosen such that LZ4 has these ratios; a test holds
/// them to it.
const HEAPS: [Heap; 5] = [
    Heap {
        fresh: 109,
        zero: 0,
        incompressible: 0,
    },
    Heap {
        fresh: 74,
        zero: 0,
        incompressible: 0,
    },
    Heap {
        fresh: 100,
        zero: 0,
        incompressible: 0,
    },
    Heap {
        fresh: 56,
        zero: 140,
        incompressible: 26,
    },
    Heap {
        fresh: 281,
        zero: 1,
        incompressible: 7,
    },
];

/// One word of 16, as [`Data::MostlyZero`] says.
const FRESH_OF_MOSTLY_ZERO: u64 = WORDS / 16;

/// What one version of one page looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looks {
    seed: u64,
    /// Words that repeat nothing, of 512.
    fresh: u64,
    /// All other words.
    common: u64,
}

impl Looks {
    /// A page that nobody has written.
    pub const ZERO: Self = Self {
        seed: 0,
        fresh: 0,
        common: 0,
    };

    /// The word at `index` of the page.
    pub const fn word(self, index: usize) -> u64 {
        let step = (index as u64 + 1).wrapping_mul(STEP);
        // Multiples of the golden ratio: the words that repeat nothing lie evenly among the others.
        if step >> 55 < self.fresh {
            self.seed.wrapping_add(step)
        } else {
            self.common
        }
    }
}

impl Data {
    /// The name on the command line and in the report.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Incompressible => "incompressible",
            Self::MostlyZero => "mostly-zero",
        }
    }

    /// Whether a page is neither of zeroes nor incompressible, in all its versions.
    pub const fn compresses(self, page: usize) -> bool {
        let fresh = self.looks(page, 1).fresh;
        0 < fresh && fresh < WORDS
    }

    /// What a page looks like whose version has this seed. What kind of page it is does not change with the version.
    pub const fn looks(self, page: usize, seed: u64) -> Looks {
        let (fresh, common) = match self {
            Self::Incompressible => (WORDS, 0),
            Self::MostlyZero => (FRESH_OF_MOSTLY_ZERO, 0),
            Self::Heap => {
                let draw = mix(page as u64 ^ STEP);
                let heap = &HEAPS[(draw % HEAPS.len() as u64) as usize];
                let kind = (draw >> 32) % 1000;
                if kind < heap.zero {
                    return Looks::ZERO;
                } else if kind < heap.zero + heap.incompressible {
                    (WORDS, 0)
                } else {
                    (heap.fresh, mix(seed))
                }
            }
        };
        Looks {
            seed,
            fresh,
            common,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that LZ4 makes of a page; as it is where it would grow.
    fn compressed(looks: Looks) -> usize {
        let words = (0..WORDS as usize).map(|index| looks.word(index));
        let page: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        lz4_flex::block::compress(&page).len().min(page.len())
    }

    fn ratio(pages: impl Iterator<Item = Looks>) -> f64 {
        let sizes: Vec<usize> = pages.map(compressed).collect();
        (sizes.len() * 4096) as f64 / sizes.iter().sum::<usize>() as f64
    }

    #[test]
    fn heaps_compress_as_those_that_were_measured() {
        for (heap, measured) in [3.08, 4.21, 3.32, 5.45, 1.40].into_iter().enumerate() {
            let of_heap =
                |page: &usize| mix(*page as u64 ^ STEP) % HEAPS.len() as u64 == heap as u64;
            let pages = (0..20_000).filter(of_heap);
            let found = ratio(pages.map(|page| Data::Heap.looks(page, mix(page as u64))));
            assert!((found / measured - 1.0).abs() < 0.05, "{heap}: {found}");
        }
    }

    /// What the simulator takes the pages of a heap to come to.
    #[test]
    fn simulated_heaps_compress_as_these() {
        use outpage_core::units::PageNo;
        let pages = 20_000;
        let simulated = |page| outpage_sim::world::Ratio::Heap.bytes(PageNo::from_raw(page), None);
        let simulated = (0..pages).map(|page| u64::from(simulated(page).unwrap_or(4096)));
        let simulated = (pages * 4096) as f64 / simulated.sum::<u64>() as f64;
        let pages = (0..pages as usize).map(|page| Data::Heap.looks(page, mix(page as u64)));
        let found = ratio(pages);
        assert!(
            (simulated / found - 1.0).abs() < 0.05,
            "{simulated} {found}"
        );
    }

    #[test]
    fn the_other_kinds_compress_as_they_say() {
        let pages = |data: Data| (0..500).map(move |page| data.looks(page, mix(page as u64)));
        assert!((ratio(pages(Data::Incompressible)) - 1.0).abs() < 1e-9);
        let zeros = ratio(pages(Data::MostlyZero));
        assert!((9.0..10.0).contains(&zeros), "{zeros}");
        let heap = ratio((0..20_000).map(|page| Data::Heap.looks(page, mix(page as u64))));
        assert!((2.7..3.0).contains(&heap), "{heap}");
    }

    #[test]
    fn a_page_of_another_version_differs_unless_it_is_zero() {
        for page in 0..500 {
            let [one, two] = [1, 2].map(|version| Data::Heap.looks(page, mix(version)));
            assert!((0..512).all(|i| one == Looks::ZERO || one.word(i) != two.word(i)));
        }
    }
}
