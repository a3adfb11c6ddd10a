//! ASP with double slot prediction: two places for each source of faults.
//!
//! Chen et al., HPDC 2010, section 3.1.3: services that wake up now and then share a guest with the
//! program that dominates it. The place that was used last is tried first, then the other one, so a
//! short visit elsewhere does not cost the stream its window; see [`track`](super::track).

use alloc::boxed::Box;

use super::Entry;
use super::asp::{AT_MOST, Asp, SETTINGS};

pub(super) const ENTRY: Entry = Entry {
    name: "asp2",
    summary: "asp with two places remembered for each source of faults",
    source: "ASP, HPDC 2010, section 3.1.3",
    needs_touches: false,
    little: None,
    settings: SETTINGS,
    at_most: AT_MOST,
    build: |values, manner| Box::new(Asp::<2>::new(values, manner, "asp2")),
};
