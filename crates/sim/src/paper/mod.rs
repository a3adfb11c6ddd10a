//! The evaluations of the papers, run again: published figures beside ours.
//!
//! [`Paper::evaluate`] runs everything and returns an [`Evaluation`], which writes itself as a page
//! of HTML with charts, as Markdown and as CSV. One set of constants serves all runs of a
//! paper; what is not known of the papers' machines is varied, and each deviation says how far the
//! variations move it.

mod asp;
mod chart;
mod claims;
mod curves;
mod evaluation;
mod mclustering;
mod moc;
mod output;
mod runs;
mod spread;

pub use chart::{Chart, Series};
pub use claims::{Claim, Published};
pub use curves::{Curve, Curves};
pub use evaluation::{Evaluation, Figure, Ours, Row, Table};
pub use runs::{Measure, RunKey, Runs, Variation};
pub use spread::Spread;

/// A paper that can be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paper {
    /// Yang, Ahn and Oh, 2009.
    Moc,
    /// Ahn, Choi, Oh, Lim and Kim, 2014.
    MClustering,
    /// Chen and others, 2010: the part on ASP.
    Asp,
}

impl Paper {
    /// The paper called `name` on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "moc" => Some(Self::Moc),
            "mclustering" => Some(Self::MClustering),
            "asp" => Some(Self::Asp),
            _ => None,
        }
    }

    /// How many runs its evaluation makes.
    #[must_use]
    pub fn runs(self) -> usize {
        match self {
            Self::Moc => moc::setups().len(),
            Self::MClustering => mclustering::setups().len(),
            Self::Asp => asp::setups().len(),
        }
    }

    /// Runs the evaluation on `threads` threads. `progress` is told how many runs are done.
    #[must_use]
    pub fn evaluate(self, threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Evaluation {
        match self {
            Self::Moc => moc::evaluate(threads, progress),
            Self::MClustering => mclustering::evaluate(threads, progress),
            Self::Asp => asp::evaluate(threads, progress),
        }
    }
}
