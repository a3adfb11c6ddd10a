//! Programs as generators of page references.
//!
//! A program is a sequence of [`Step`]s; touches are runs of pages, so that a generator costs time
//! by the run, not by the page. Programs are closed forms but for [`Ml`], which is run as it is: nothing is recorded.

mod column;
mod fft;
mod join;
mod jvm;
mod layout;
mod lu;
mod micro;
mod ml;
mod nbench_rng;
mod ns2;
mod order;
mod orders;
mod sor;
mod spec;
mod texture;

pub use column::{Column, ColumnParams, Transpose, TransposeParams};
pub use fft::{Fft, FftParams};
pub use join::{Join, JoinParams, Merge, MergeParams};
pub use jvm::{Jvm, JvmParams};
pub use layout::{Layout, Rows};
pub use lu::{Lu, LuParams};
pub use micro::{Micro, MicroParams};
pub use ml::{Ml, MlParams, MlWork};
pub use nbench_rng::NbenchRng;
pub use ns2::{Growth, Ns2, Ns2Params, RUN_SHARES};
pub use order::{Order, Ordered, Touch};
pub use orders::{Phases, PhasesParams, Runs, RunsParams, Zigzag, ZigzagParams};
pub use sor::{Sor, SorParams};
pub use spec::{NAMES, Spec};
pub use texture::{Texture, TextureParams};

use std::sync::Arc;

use outpage_core::contract::Access;
use outpage_core::units::{ObjectId, PageNo, PageRange};

use crate::sizes::Sizes;

/// The last index that a page of a simulated program may have: a window of 1024 pages around it, the
/// largest there is, does not leave its memory object.
pub const INDEX_MAX: u64 = (1 << 36) - 1025;

/// Whether a world holds the pages of `range`: they lie in one memory object, not the one of number 0,
/// and none is beyond [`INDEX_MAX`].
#[must_use]
pub const fn holds(range: PageRange) -> bool {
    let (start, pages) = (range.start, range.pages);
    start.object().0 > 0 && start.index() <= INDEX_MAX && pages <= INDEX_MAX + 1 - start.index()
}

/// What a program does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Touches the pages of a run in ascending order.
    Touch {
        /// Which.
        run: PageRange,
        /// Read or write.
        access: Access,
        /// CPU time a page, nanoseconds.
        page_ns: u32,
    },
    /// Touches up to four runs in step: the first page of each, then the second of each, and so
    /// on; runs of no page are left out, and a shorter one ends earlier.
    Together {
        /// The runs.
        runs: [(PageRange, Access); 4],
        /// CPU time for each round of pages, nanoseconds.
        page_ns: u32,
    },
    /// Computes without touching memory, nanoseconds.
    Compute(u64),
    /// The range is memory of the program's from now on, all zeroes.
    Map(PageRange),
    /// The range is no longer.
    Unmap(PageRange),
    /// The contents are not wanted any more; the next touch gives zeroes.
    Discard(PageRange),
    /// What the range holds may be dropped until it is taken back.
    Discardable(PageRange),
    /// What the range holds is wanted again.
    TakeBack(PageRange),
    /// What may be dropped of the range should be.
    Flush(PageRange),
    /// What follows is counted under this name.
    Phase(&'static str),
    /// The program ends when so many nanoseconds have passed, whatever it is at: with the step that begins next.
    Until(u64),
    /// The program ends.
    End,
}

impl Step {
    /// A run that [`Step::Together`] leaves out.
    pub const NO_RUN: (PageRange, Access) = (PageRange::new(PageNo::from_raw(0), 0), Access::Read);
}

/// A generator of steps.
pub trait Program: Send {
    /// What it is called in reports.
    fn name(&self) -> &'static str;
    /// The next step; [`Step::End`] for ever once it has ended.
    fn step(&mut self) -> Step;
    /// The most pages it has at once.
    fn footprint(&self) -> u64;
    /// How much work it has done, in units of its own; 0 where it counts none.
    fn done(&self) -> u64 {
        0
    }
    /// What its pages come to when they are compressed, where that was recorded.
    fn sizes(&self) -> Option<Arc<Sizes>> {
        None
    }
}

/// The page at `index` of `object`.
fn page(object: u32, index: u64) -> PageNo {
    PageNo::new(ObjectId(object), index)
}

/// `pages` pages of `object` from `index` on.
fn run(object: u32, index: u64, pages: u64) -> PageRange {
    PageRange::new(page(object, index), pages)
}

#[cfg(test)]
mod testing {
    use super::*;

    /// (reads, writes) of pages, over the whole program.
    pub fn touches(program: &mut dyn Program) -> (u64, u64) {
        let (mut reads, mut writes) = (0, 0);
        let mut count = |access, pages| match access {
            Access::Read => reads += pages,
            Access::Write => writes += pages,
        };
        loop {
            match program.step() {
                Step::Touch { run, access, .. } => count(access, run.pages),
                Step::Together { runs, .. } => {
                    for (run, access) in runs {
                        count(access, run.pages);
                    }
                }
                Step::End => return (reads, writes),
                _ => {}
            }
        }
    }
}
