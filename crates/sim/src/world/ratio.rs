//! How far pages compress.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use outpage_core::units::{PAGE_BYTES, PageNo};
use serde::{Deserialize, Serialize};

use crate::programs::Program;
use crate::seed::mix;
use crate::sizes::Sizes;

/// The largest that a pool keeps, in bytes: that of the live one, whose last class of sizes it is.
const BYTES_MAX: u16 = 3584;
/// So that the draws of a page for its size have nothing to do with other draws.
const DRAWS: u64 = 0x5241_5449_4f00;

/// How far the pages of programs compress. What a page comes to does not change.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Ratio {
    /// As the heaps of five programs, by turns.
    #[default]
    Heap,
    /// Every page by the same: its size by what it comes to.
    Uniform(f64),
    /// As LZ4 made them when the program was recorded; as [`Ratio::Heap`] of a program without such sizes.
    Trace,
}

/// What is allowed of [`Ratio::Uniform`].
const RATIOS: std::ops::RangeInclusive<f64> = 1.0..=16.0;

/// A heap that was measured: 4,000 random pages of it, compressed one by one with LZ4 (`cli/src/workload/data.rs`).
struct Heap {
    /// Pages of 1,000 that are zero.
    zero: u64,
    /// Pages of 1,000 that do not compress.
    incompressible: u64,
    /// What any other page comes to, in bytes.
    bytes: u16,
}

/// A Perl hash, an awk array, objects of node, a Python dictionary and SQLite in memory.
const HEAPS: [Heap; 5] = [
    heap(0, 0, 308),
    heap(0, 0, 421),
    heap(0, 0, 332),
    heap(140, 26, 545),
    heap(1, 7, 140),
];

/// The bytes of its pages follow from the ratio of all, in hundredths.
const fn heap(zero: u64, incompressible: u64, hundredths: u64) -> Heap {
    let page = PAGE_BYTES as u64;
    let all = 1000 * page * 100 / hundredths - incompressible * page;
    Heap {
        zero,
        incompressible,
        bytes: (all / (1000 - zero - incompressible)) as u16,
    }
}

impl Ratio {
    /// What `page` comes to, in bytes, where `sizes` were recorded of its program; 0 where it is one word again and again, `None` where
    /// it is too large to be kept.
    #[must_use]
    pub fn bytes(self, page: PageNo, sizes: Option<&Sizes>) -> Option<u16> {
        let recorded = match self {
            Self::Trace => sizes.and_then(|sizes| sizes.near(page)),
            Self::Heap | Self::Uniform(_) => None,
        };
        let bytes = recorded.unwrap_or_else(|| match self {
            Self::Uniform(ratio) => (PAGE_BYTES as f64 / ratio).ceil() as u16,
            Self::Heap | Self::Trace => of_heaps(page),
        });
        (bytes <= BYTES_MAX).then_some(bytes)
    }
}

/// What a page comes to that is of one of the heaps, drawn for it.
fn of_heaps(page: PageNo) -> u16 {
    let draw = mix(DRAWS, page.raw());
    let heap = &HEAPS[(draw % HEAPS.len() as u64) as usize];
    let kind = (draw >> 32) % 1000;
    if kind < heap.zero {
        0
    } else if kind < heap.zero + heap.incompressible {
        PAGE_BYTES as u16
    } else {
        heap.bytes
    }
}

/// What the pages of a world's programs come to.
pub(super) struct PageSizes {
    ratio: Ratio,
    /// As they were recorded of each program, by its number.
    recorded: Vec<Option<Arc<Sizes>>>,
}

impl PageSizes {
    /// Those of `programs` by `ratio`.
    pub fn new(ratio: Ratio, programs: &[Box<dyn Program>]) -> Self {
        let recorded = programs.iter().map(|program| program.sizes()).collect();
        Self { ratio, recorded }
    }

    /// As [`Ratio::bytes`], of a page of the program whose memory object it lies in.
    pub fn bytes(&self, page: PageNo) -> Option<u16> {
        let owner = (page.object().0 as usize).wrapping_sub(1);
        let sizes = self.recorded.get(owner).and_then(Option::as_deref);
        self.ratio.bytes(page, sizes)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heap => f.write_str("heap"),
            Self::Trace => f.write_str("trace"),
            Self::Uniform(ratio) => write!(f, "{ratio}"),
        }
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "heap" => return Ok(Self::Heap),
            "trace" => return Ok(Self::Trace),
            _ => {}
        }
        let ratio = text.parse().ok().filter(|ratio| RATIOS.contains(ratio));
        ratio.map(Self::Uniform).ok_or_else(|| {
            format!(
                "ratio '{text}' must be {} to {}, heap or trace",
                RATIOS.start(),
                RATIOS.end()
            )
        })
    }
}

impl TryFrom<String> for Ratio {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Ratio> for String {
    fn from(ratio: Ratio) -> Self {
        ratio.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_ratio_is_that_of_every_page() {
        let bytes = |ratio| Ratio::Uniform(ratio).bytes(PageNo::from_raw(7), None);
        assert_eq!(
            [1.0, 1.1, 2.0, 16.0].map(bytes),
            [None, None, Some(2048), Some(256)]
        );
        assert_eq!(bytes(1.15), Some(3562), "rounded up");
    }

    #[test]
    fn a_heap_has_pages_of_all_kinds() {
        let pages = (0..50_000).map(PageNo::from_raw);
        let sizes: Vec<_> = pages.map(|page| Ratio::Heap.bytes(page, None)).collect();
        let share = |size| sizes.iter().filter(|&&s| s == size).count() as f64 / 50_000.0;
        // The means over five heaps, within 5 standard deviations.
        assert!((share(Some(0)) - 0.0282).abs() < 0.004);
        assert!((share(None) - 0.0066).abs() < 0.002);
        let whole = |size: &Option<u16>| f64::from(size.unwrap_or(PAGE_BYTES as u16));
        let mean = sizes.iter().map(whole).sum::<f64>() / 50_000.0;
        let expected = [3.08, 4.21, 3.32, 5.45, 1.40].map(|ratio| 4096.0 / ratio);
        let expected = expected.iter().sum::<f64>() / 5.0;
        assert!((mean / expected - 1.0).abs() < 0.02, "{mean}, {expected}");
    }

    #[test]
    fn recorded_sizes_are_those_of_the_trace_alone() {
        let page = PageNo::from_raw(7);
        let sizes = Sizes::new([(page, 77), (PageNo::from_raw(8), 4096)]);
        assert_eq!(Ratio::Trace.bytes(page, Some(&sizes)), Some(77));
        assert_eq!(Ratio::Trace.bytes(PageNo::from_raw(8), Some(&sizes)), None);
        assert_eq!(Ratio::Uniform(2.0).bytes(page, Some(&sizes)), Some(2048));
        for sizes in [None, Some(&Sizes::default())] {
            assert_eq!(
                Ratio::Trace.bytes(page, sizes),
                Ratio::Heap.bytes(page, None)
            );
        }
    }

    #[test]
    fn ratios_are_read_as_they_are_written() {
        for text in ["heap", "trace", "1", "1.5", "16"] {
            assert_eq!(text.parse::<Ratio>().expect("a ratio").to_string(), text);
        }
        for bad in ["", "0.9", "17", "NaN", "inf", "heaps", "-2"] {
            assert!(bad.parse::<Ratio>().is_err(), "{bad}");
        }
    }
}
