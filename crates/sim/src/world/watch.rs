//! A world whose pager's decisions are noted, on a disk that fails now and then.

use outpage_core::contract::Action;
use outpage_core::record::Decisions;

use super::{RunError, World};
use crate::seed::mix;

/// Notes what the pager decides, and says which transfers fail.
pub(super) struct Watch {
    decisions: Decisions,
    seed: u64,
    /// Of 1000 transfers, how many fail.
    failures: u32,
    transfers: u64,
}

impl Watch {
    pub(super) fn action(&mut self, action: &Action) {
        self.decisions.action(action);
    }

    /// Whether the transfer that ends now failed.
    pub(super) fn fails(&mut self) -> bool {
        self.transfers += 1;
        mix(self.seed, self.transfers) % 1000 < u64::from(self.failures)
    }
}

impl World {
    /// As [`World::run`], but gives what the pager decided; of 1000 transfers `failures` fail, which ones
    /// `seed` says.
    ///
    /// # Errors
    /// As [`World::run`]; what was decided until then is given all the same.
    pub fn decisions(mut self, seed: u64, failures: u32) -> (Decisions, Result<(), RunError>) {
        self.watch = Some(Box::new(Watch {
            decisions: Decisions::new(),
            seed,
            failures,
            transfers: 0,
        }));
        let ended = self.run_on(&mut |_| {});
        let watch = self.watch.expect("just put there");
        (watch.decisions, ended)
    }
}
