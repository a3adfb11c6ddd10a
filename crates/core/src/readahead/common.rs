//! What policies that read ahead have in common: their settings, and how the pager treats what they name.

use super::MAX_WINDOW;
use crate::settings::{Allowed, Setting, Values};

/// The most slots that a window can have.
pub(super) const MAX_SLOTS: usize = *MAX_WINDOW.end() as usize;

/// What becomes of the pages that a read brings along with a demanded one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arrival {
    /// Neighbours of the demanded page that the same read brought are mapped with it. That saves a
    /// minor fault a page; whether they are used is not seen.
    #[default]
    Mapped,
    /// They wait staged, clean and unmapped, each for its own first touch: a swap cache.
    Staged,
}

/// Whether what a policy names is all read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Govern {
    /// All of it: the policy as its source has it.
    #[default]
    Off,
    /// As much as pays, by what was read before: see `govern.rs`.
    On,
}

/// The largest window. Its default is each policy's own; this one is of the ASP paper (MPF).
pub(super) static MAX: Setting = Setting {
    name: "max",
    summary: "largest window, in slots",
    allowed: Allowed::Numbers(*MAX_WINDOW.start(), *MAX_WINDOW.end()),
    default: 32,
};

/// [`MAX`] as `vm.page-cluster` counts it, whose default is 3 (Linux, `mm/swap.c:swap_setup`).
pub(super) static PAGE_CLUSTER: Setting = Setting {
    name: "page-cluster",
    summary: "binary logarithm of the largest window",
    allowed: Allowed::Numbers(0, MAX_WINDOW.end().ilog2()),
    default: 3,
};

/// What becomes of pages that nobody asked for.
pub(super) static ARRIVAL: Setting = Setting {
    name: "arrival",
    summary: "pages read along are mapped, or staged until touched",
    allowed: Allowed::Words(&["mapped", "staged"]),
    default: Arrival::Mapped as u32,
};

/// [`ARRIVAL`] of a policy whose source has a swap cache.
pub(super) static ARRIVAL_STAGED: Setting = Setting {
    default: Arrival::Staged as u32,
    ..ARRIVAL
};

/// Whether two reads pay depends on the device. On a virtio disk (a read of 4 KiB 55 us, of 256 KiB
/// 281 us) no gain could be told from noise: `docs/readahead.md` has the table.
pub(super) static DEMAND_FIRST: Setting = Setting {
    name: "demand-first",
    summary: "windows of so many slots are read behind the demanded page; 0 for never",
    allowed: Allowed::Numbers(0, *MAX_WINDOW.end()),
    default: 0,
};

/// Whether less is read where read-ahead was of little use.
pub(super) static GOVERN: Setting = Setting {
    name: "govern",
    summary: "read less where read-ahead is of little use",
    allowed: Allowed::Words(&["off", "on"]),
    default: Govern::On as u32,
};

/// How the pager is to treat what a policy names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// What becomes of pages that a read brings along.
    pub arrival: Arrival,
    /// Windows of at least so many slots are read as the demanded page first and the rest behind
    /// it; 0 for never.
    pub demand_first: u32,
    /// The most slots of one read.
    pub read_max: u32,
    /// Whether less than it names is read where that was of little use.
    pub govern: Govern,
}

impl Manner {
    /// What `values` say. What a policy has no setting for is off, but that pages arrive staged where it `needs_touches`.
    pub(super) fn of(values: &Values, needs_touches: bool) -> Self {
        let arrival = match values.find(ARRIVAL.name) {
            Some(_) => values.word(ARRIVAL.name, &[Arrival::Mapped, Arrival::Staged]),
            None if needs_touches => Arrival::Staged,
            None => Arrival::Mapped,
        };
        let govern = match values.find(GOVERN.name) {
            Some(_) => values.word(GOVERN.name, &[Govern::Off, Govern::On]),
            None => Govern::Off,
        };
        Self {
            arrival,
            demand_first: values.find(DEMAND_FIRST.name).unwrap_or(0),
            read_max: largest_window(values),
            govern,
        }
    }
}

/// The largest window that `values` say, in slots; the demanded page alone where the policy has no such setting.
fn largest_window(values: &Values) -> u32 {
    if values.is_set(PAGE_CLUSTER.name) {
        return 1 << values.of(PAGE_CLUSTER.name);
    }
    values.find(MAX.name).unwrap_or(1)
}
