//! The evaluations of the papers, run again: published figures beside ours.
//!
//! [`Paper::evaluate`] runs everything and returns an [`Evaluation`], which writes itself as a page
//! of HTML with charts, as Markdown and as CSV. One set of constants serves all runs of a
//! paper; what is not known of the papers' machines is varied, and each deviation says how far the
//! variations move it.

mod answers;
mod asp;
mod chart;
mod claims;
mod curves;
mod discard;
mod draw;
mod ensemble;
mod evaluation;
mod hsn;
mod kept;
mod mclustering;
mod moc;
mod output;
mod provenance;
mod recorded;
mod runs;
mod spread;
mod table;
mod verdict;

pub use chart::{Chart, Series};
pub use claims::{Claim, Published};
pub use curves::{Curve, Curves};
pub use discard::{LAZY, LIVE_PAGES, Live, LiveRun, SWAP, live_configurations, live_workloads};
pub use evaluation::{Against, Evaluation, Figure, Nearest, Ours, Row, Tally};
pub use kept::{How, Keep};
pub use recorded::Recorded;
pub use runs::{Line, Measure, RunKey, Runs, Variation};
pub use spread::Spread;
pub use table::Table;
pub use verdict::{Class, Held, Verdict};

use crate::guests;
use crate::world::Setup;

/// A paper that can be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paper {
    /// Yang, Ahn and Oh, 2009.
    Moc,
    /// Ahn, Choi, Oh, Lim and Kim, 2014.
    MClustering,
    /// Chen and others, 2010: the part on ASP.
    Asp,
    /// The same: the part on the notifier.
    Hsn,
    /// Subramanian, 1991.
    Discard,
}

impl Paper {
    /// The paper called `name` on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "moc" => Some(Self::Moc),
            "mclustering" => Some(Self::MClustering),
            "asp" => Some(Self::Asp),
            "hsn" => Some(Self::Hsn),
            "discard" => Some(Self::Discard),
            _ => None,
        }
    }

    /// Its runs without guests; with `part`, those of that workload only. Of MOC's those with a recording of NS2, if it is `recorded`.
    fn setups(self, part: Option<&str>, recorded: bool) -> Vec<(RunKey, Setup)> {
        let mut setups = match self {
            Self::Moc => moc::setups(recorded),
            Self::MClustering => mclustering::setups(),
            Self::Asp => asp::setups(),
            Self::Hsn => Vec::new(),
            Self::Discard => discard::setups(),
        };
        setups.retain(|(key, _)| part.is_none_or(|part| key.workload == part));
        setups
    }

    /// Those with guests.
    fn guests(self, part: Option<&str>) -> Vec<(RunKey, guests::Setup)> {
        let mut setups = match self {
            Self::Hsn => hsn::setups(),
            Self::Moc | Self::MClustering | Self::Asp | Self::Discard => Vec::new(),
        };
        setups.retain(|(key, _)| part.is_none_or(|part| key.workload == part));
        setups
    }

    /// What its runs are called.
    fn keys(self, part: Option<&str>, recorded: bool) -> Vec<RunKey> {
        let alone = self.setups(part, recorded).into_iter().map(|(key, _)| key);
        let guests = self.guests(part).into_iter().map(|(key, _)| key);
        alone.chain(guests).collect()
    }

    /// The workloads that [`Self::evaluate`] knows, in the order of their first runs.
    #[must_use]
    pub fn workloads(self) -> Vec<String> {
        let mut workloads = Vec::new();
        for key in self.keys(None, false) {
            if !workloads.contains(&key.workload) {
                workloads.push(key.workload);
            }
        }
        workloads
    }

    /// How many runs its evaluation makes, or those of workload `part`; with NS2 from a recording, if it is `recorded`.
    #[must_use]
    pub fn runs(self, part: Option<&str>, recorded: bool) -> usize {
        self.keys(part, recorded).len()
    }

    /// Runs the evaluation, the whole or workload `part` of it; runs with guests are not kept. A part leaves out what it has no runs for, and the
    /// simulator's own speed: equal inputs give equal bytes.
    #[must_use]
    pub fn evaluate(self, part: Option<&str>, how: How) -> Evaluation {
        let runs = match self {
            Self::Hsn => Runs::run_guests(&self.guests(part), how),
            _ => Runs::run(self.setups(part, how.ns2.is_some()), how),
        };
        let mut evaluation = match self {
            Self::Moc => moc::evaluation(&runs, part.is_none(), how.ns2.is_some()),
            Self::MClustering => mclustering::evaluation(&runs),
            Self::Asp => asp::evaluation(&runs),
            Self::Hsn => hsn::evaluation(&runs),
            Self::Discard => discard::evaluation(&runs),
        };
        if part.is_some() {
            evaluation.rows.retain(|row| row.ours != Ours::None);

            evaluation.tables.retain(|table| !table.rows.is_empty());
        }
        evaluation
    }
}
