//! ASP: a window that grows while faults stay near the last one, and shrinks at once.
//!
//! Chen et al., HPDC 2010, sections 3.1.1 and 3.1.2; see [`track`](super::track) for the algorithm
//! and for what the paper leaves open. Of a window, all paged-out slots are read.

use alloc::boxed::Box;

use super::common::{ARRIVAL_STAGED, DEMAND_FIRST, GOVERN, MAX};
use super::key::{KEY, Key};
use super::track::{PLACEMENT, RESET, Track};
use super::{Entry, Manner, ReadAhead, SlotView, Touch, Window, span};
use crate::settings::{Allowed, Setting, Values};

/// The settings of both kinds, with the paper's constants: 8, 8, MPF 32, MDIS 8. It does not publish `C_ent`; 32 entries
/// tell more guests apart than its host had.
///
/// Its key is the process, a guest of the host. Here it is the memory object: a guest in the simulator,
/// a mapping in a live pager, which serves one process. Measured live, that takes far fewer major
/// faults than one entry for all, or as many within the spread, but for `asp2` on sort, which took a
/// seventh more: docs/performance.md, "Whose faults share an entry of read-ahead".
pub(super) const SETTINGS: &[&Setting] = &[
    &Setting {
        name: "window",
        summary: "smallest window, in slots",
        default: 8,
        ..MAX
    },
    &Setting {
        name: "step",
        summary: "growth of the window, in slots",
        default: 8,
        ..MAX
    },
    &MAX,
    &Setting {
        name: "mdis",
        summary: "a fault nearer to the last window than so many slots is local",
        allowed: Allowed::Numbers(1, 1_048_576),
        default: 8,
    },
    &Setting {
        name: "entries",
        summary: "entries that are kept",
        allowed: Allowed::Numbers(1, 1024),
        default: 32,
    },
    &Setting {
        default: Key::Object as u32,
        ..KEY
    },
    &PLACEMENT,
    &RESET,
    &ARRIVAL_STAGED,
    &DEMAND_FIRST,
    &GOVERN,
];

/// Of both kinds.
pub(super) const AT_MOST: &[(&str, &str)] = &[("window", MAX.name), ("step", MAX.name)];

pub(super) const ENTRY: Entry = Entry {
    name: "asp",
    summary: "a window that grows by a step while faults stay near the last one",
    source: "ASP, HPDC 2010, section 3.1.2",
    needs_touches: false,
    little: None,
    settings: SETTINGS,
    at_most: AT_MOST,
    build: |values, manner| Box::new(Asp::<1>::new(values, manner, "asp")),
};

/// The policy with `N` places for each source of faults.
pub(super) struct Asp<const N: usize> {
    name: &'static str,
    manner: Manner,
    key: Key,
    track: Track<N>,
}

impl<const N: usize> Asp<N> {
    pub(super) fn new(values: &Values, manner: Manner, name: &'static str) -> Self {
        Self {
            name,
            manner,
            key: Key::set(values),
            track: Track::new(values, manner.read_max),
        }
    }
}

impl<const N: usize> ReadAhead for Asp<N> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn manner(&self) -> Manner {
        self.manner
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        let chosen = self.track.choose(self.key.of(fault), fault.slot);
        let window = span::all_out(view, fault.slot, chosen.base..=chosen.end);
        Window {
            size: chosen.size,
            ..window
        }
    }
}
