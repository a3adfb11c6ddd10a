//! As many as frames are wanted: whoever chooses the victims need not guess.

use alloc::boxed::Box;

use super::{Discard, Entry};

pub(super) const ENTRY: Entry = Entry {
    name: "on-demand",
    summary: "discardable pages leave before all others, one for each frame that is wanted, and are as they were if touched before",
    source: "Subramanian, 1991, section 5: future work",
    settings: &[],
    build: |_| Some(Box::new(OnDemand)),
};

struct OnDemand;

impl Discard for OnDemand {
    fn leaves_first(&self) -> bool {
        true
    }
}
