//! How far pages compress.

use std::fmt;
use std::str::FromStr;

use outpage_core::units::{PAGE_BYTES, PageNo};
use serde::{Deserialize, Serialize};

use crate::seed::mix;

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
    /// What `page` comes to, in bytes; 0 where it is one word again and again, `None` where it is too large to be kept.
    #[must_use]
    pub fn bytes(self, page: PageNo) -> Option<u16> {
        let bytes = match self {
            Self::Uniform(ratio) => (PAGE_BYTES as f64 / ratio).ceil() as u16,
            Self::Heap => {
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
        };
        (bytes <= BYTES_MAX).then_some(bytes)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heap => f.write_str("heap"),
            Self::Uniform(ratio) => write!(f, "{ratio}"),
        }
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "heap" {
            return Ok(Self::Heap);
        }
        let ratio = text.parse().ok().filter(|ratio| RATIOS.contains(ratio));
        ratio.map(Self::Uniform).ok_or_else(|| {
            format!(
                "ratio '{text}' must be {} to {}, or heap",
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
        let bytes = |ratio| Ratio::Uniform(ratio).bytes(PageNo::from_raw(7));
        assert_eq!(
            [1.0, 1.1, 2.0, 16.0].map(bytes),
            [None, None, Some(2048), Some(256)]
        );
        assert_eq!(bytes(1.15), Some(3562), "rounded up");
    }

    #[test]
    fn a_heap_has_pages_of_all_kinds() {
        let pages = (0..50_000).map(PageNo::from_raw);
        let sizes: Vec<_> = pages.map(|page| Ratio::Heap.bytes(page)).collect();
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
    fn ratios_are_read_as_they_are_written() {
        for text in ["heap", "1", "1.5", "16"] {
            assert_eq!(text.parse::<Ratio>().expect("a ratio").to_string(), text);
        }
        for bad in ["", "0.9", "17", "NaN", "inf", "heaps", "-2"] {
            assert!(bad.parse::<Ratio>().is_err(), "{bad}");
        }
    }
}
