//! All rivals and the optimum over several strings and sizes.

use serde::Serialize;

use super::Entry;
use crate::bounds::opt;
use crate::trace::PageString;

/// One policy on one string with one number of frames.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cell {
    /// The name of the string.
    pub trace: String,
    /// References in the string.
    pub references: u64,
    /// Distinct pages in the string: the misses that no policy can save.
    pub distinct: u64,
    /// Frames.
    pub frames: u32,
    /// The name of the policy; [`OPT`] is Belady's.
    pub policy: String,
    /// References that found their page not resident, first references included.
    pub misses: u64,
    /// Misses by references; 0 for the empty string.
    pub miss_ratio: f64,
    /// Misses beyond those of the optimum, by the optimum's; 0 for the optimum itself.
    pub above_opt: f64,
}

/// The name of the optimum among the policies of a [`Table`].
pub const OPT: &str = "opt";

/// What [`compare`] found: strings in the order given, sizes in the order given within a string,
/// the optimum first within a size and then the policies in the order given.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// All results.
    pub cells: Vec<Cell>,
}

impl Table {
    /// The result of `policy` on `trace` with `frames` frames.
    #[must_use]
    pub fn find(&self, trace: &str, frames: u32, policy: &str) -> Option<&Cell> {
        let wanted =
            |cell: &&Cell| cell.trace == trace && cell.frames == frames && cell.policy == policy;
        self.cells.iter().find(wanted)
    }
}

/// How far a comparison is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress<'a> {
    /// Passes over a string that are done.
    pub done: usize,
    /// All passes.
    pub total: usize,
    /// The string of the pass that was just done.
    pub trace: &'a str,
    /// The policy of that pass.
    pub policy: &'a str,
    /// The frames of that pass.
    pub frames: u32,
}

/// Runs the optimum and all of `rivals` over all of `strings` with each of `frames`, one pass
/// each, and calls `progress` after each pass.
///
/// # Panics
/// When one of `frames` is 0.
pub fn compare(
    strings: &[(&str, &PageString)],
    rivals: &[Entry],
    frames: &[u32],
    mut progress: impl FnMut(Progress<'_>),
) -> Table {
    let total = strings.len() * frames.len() * (rivals.len() + 1);
    let mut cells = Vec::with_capacity(total);
    for &(trace, string) in strings {
        for &frames in frames {
            let optimum = opt(string, frames).misses;
            let passes = std::iter::once(OPT).chain(rivals.iter().map(|rival| rival.name));
            for (at, policy) in passes.enumerate() {
                let misses = match at {
                    0 => optimum,
                    rival => rivals[rival - 1].misses(string, frames),
                };
                cells.push(Cell {
                    trace: trace.to_owned(),
                    references: string.len() as u64,
                    distinct: string.distinct() as u64,
                    frames,
                    policy: policy.to_owned(),
                    misses,
                    miss_ratio: ratio(misses, string.len() as u64),
                    above_opt: ratio(misses - optimum, optimum),
                });
                progress(Progress {
                    done: cells.len(),
                    total,
                    trace,
                    policy,
                    frames,
                });
            }
        }
    }
    Table { cells }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
