//! ASP: a window that grows while faults stay near the last one, and shrinks at once.
//!
//! Chen et al., HPDC 2010, sections 3.1.1 and 3.1.2; see [`track`](super::track) for the algorithm
//! and for what the paper leaves open. Of a window, all paged-out slots are read.

use alloc::boxed::Box;

use super::params::{
    ARRIVAL, DEMAND_FIRST, ENTRIES, GOVERN, KEY, Key, MAX, MDIS, PLACEMENT, STEP, WINDOW,
};
use super::track::Track;
use super::{Arrival, Entry, Manner, Params, ReadAhead, Setting, SlotView, Touch, Window, span};

/// The settings of both kinds.
pub(super) const SETTINGS: &[Setting] = &[
    WINDOW,
    STEP,
    MAX,
    MDIS,
    ENTRIES,
    KEY,
    PLACEMENT,
    ARRIVAL,
    DEMAND_FIRST,
    GOVERN,
];

/// The paper's constants: 8, 8, MPF 32, MDIS 8. It does not publish `C_ent`; 32 entries tell more
/// guests apart than its host had.
///
/// Its key is the process, a guest of the host. Here it is the memory object: a guest in the simulator,
/// a mapping in a live pager, which serves one process. Measured live, that takes far fewer major
/// faults than one entry for all, or as many within the spread, but for `asp2` on sort, which took a
/// seventh more: docs/performance.md, "Whose faults share an entry of read-ahead".
pub(super) const PARAMS: Params = Params {
    max_window: 32,
    window: 8,
    step: 8,
    mdis: 8,
    entries: 32,
    key: Key::Object,
    arrival: Arrival::Staged,
    ..Params::DEFAULT
};

pub(super) const ENTRY: Entry = Entry {
    name: "asp",
    summary: "a window that grows by a step while faults stay near the last one",
    source: "ASP, HPDC 2010, section 3.1.2",
    defaults: PARAMS,
    little: None,
    settings: SETTINGS,
    build: |params| Box::new(Asp::<1>::new(params, "asp")),
};

/// The policy with `N` places for each source of faults.
pub(super) struct Asp<const N: usize> {
    name: &'static str,
    params: Params,
    track: Track<N>,
}

impl<const N: usize> Asp<N> {
    pub(super) fn new(params: Params, name: &'static str) -> Self {
        let params = params.checked();
        Self {
            name,
            params,
            track: Track::new(params),
        }
    }
}

impl<const N: usize> ReadAhead for Asp<N> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn manner(&self) -> Manner {
        Manner::of(&self.params)
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        let chosen = self.track.choose(self.params.key.of(fault), fault.slot);
        let window = span::all_out(view, fault.slot, chosen.base..=chosen.end);
        Window {
            size: chosen.size,
            ..window
        }
    }
}
