//! The track buffer of ASP: where each source of faults read last, and how much.
//!
//! Chen et al., "Improving Host Swapping Using Adaptive Prefetching and Paging Notifier", HPDC
//! 2010, sections 3.1.1 to 3.1.3. An entry has a key, a priority (Pri) and `N` slots, each with the
//! first and the last place of a window (Base, End) and its size (Pre).
//!
//! The distance of a target is the smaller of its distances to Base and to End. It is local when
//! that is below MDIS: the window grows by a step, up to the largest. Else it is the smallest.
//!
//! Where the paper is silent:
//! - End is the last slot of a window, not the one after it.
//! - Base and End are those of the window as chosen, whatever of it was paged out.
//! - Pri is the number of local faults, up to 255. A new key finds the buffer full: all priorities
//!   fall by one and the lowest goes, among equals the one that was used least recently. So entries
//!   that serve stay, but not for ever.
//! - With two slots: when neither is local "both slots' parameters are reset to the default ones".
//!   Both sizes become the smallest one, and the new window takes the place of the slot that was
//!   not used last (`reset=sizes`). With `reset=all` both forget their places too, before the new window is put down: then no
//!   second place is ever remembered, and two slots do what one does.

use alloc::vec::Vec;

use crate::settings::{Allowed, Setting, Values};
use crate::units::SlotNo;

/// Where a window lies. The paper does not say; Linux of its time aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// From the multiple of the smallest window at or below the fault's slot.
    Aligned,
    /// From the fault's slot on.
    Target,
    /// With the fault's slot in the middle: half of the window lies below it.
    Centred,
}

pub(super) static PLACEMENT: Setting = Setting {
    name: "placement",
    summary: "where a window lies",
    allowed: Allowed::Words(&["aligned", "target", "centred"]),
    default: Placement::Aligned as u32,
};

/// What a fault that is local to no slot of its entry resets in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reset {
    /// The sizes of their windows.
    Sizes,
    /// Their places too.
    All,
}

pub(super) static RESET: Setting = Setting {
    name: "reset",
    summary: "what a fault near no remembered place resets: the sizes of windows, or all",
    allowed: Allowed::Words(&["sizes", "all"]),
    default: Reset::Sizes as u32,
};

/// What the algorithm goes by. Sizes and distances are in slots.
#[derive(Clone, Copy)]
struct Constants {
    /// The smallest window.
    window: u32,
    step: u32,
    max_window: u32,
    mdis: u32,
    /// The paper's `C_ent`.
    entries: usize,
    placement: Placement,
    reset: Reset,
}

impl Constants {
    fn of(values: &Values, max_window: u32) -> Self {
        let placements = [Placement::Aligned, Placement::Target, Placement::Centred];
        Self {
            window: values.of("window").min(max_window),
            step: values.of("step"),
            max_window,
            mdis: values.of("mdis"),
            entries: values.of("entries") as usize,
            placement: values.word(PLACEMENT.name, &placements),
            reset: values.word(RESET.name, &[Reset::Sizes, Reset::All]),
        }
    }
}

/// Where a window was read, and of which size.
#[derive(Clone, Copy)]
struct Place {
    base: u32,
    end: u32,
    pre: u32,
}

struct Tracked<const N: usize> {
    key: u32,
    places: [Option<Place>; N],
    /// The place that was used last.
    last: usize,
    priority: u8,
    used: u64,
}

/// The buffer, with `N` places an entry.
pub(super) struct Track<const N: usize> {
    constants: Constants,
    entries: Vec<Tracked<N>>,
    clock: u64,
}

/// A window as chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chosen {
    /// The first slot.
    pub base: u32,
    /// The last slot.
    pub end: u32,
    /// Its size, in slots.
    pub size: u32,
}

impl<const N: usize> Track<N> {
    /// For windows of at most `max_window` slots.
    pub(super) fn new(values: &Values, max_window: u32) -> Self {
        let constants = Constants::of(values, max_window);
        Self {
            constants,
            entries: Vec::with_capacity(constants.entries),
            clock: 0,
        }
    }

    /// The window for a fault of `key` at `target`.
    pub(super) fn choose(&mut self, key: u32, target: SlotNo) -> Chosen {
        self.clock += 1;
        let at = self.entry(key);
        let Constants {
            mdis,
            window,
            step,
            max_window,
            reset,
            ..
        } = self.constants;
        let entry = &mut self.entries[at];
        entry.used = self.clock;
        let local = (0..N)
            .map(|n| (entry.last + n) % N)
            .find(|&i| entry.places[i].is_some_and(|place| place.distance(target) < mdis));
        let (i, pre) = if let Some(i) = local {
            entry.priority = entry.priority.saturating_add(1);
            let pre = entry.places[i].map_or(window, |place| place.pre);
            (i, pre.saturating_add(step).min(max_window))
        } else {
            match reset {
                Reset::Sizes => {
                    let places = entry.places.iter_mut().flatten();
                    places.for_each(|place| place.pre = window);
                }
                Reset::All => entry.places = [None; N],
            }
            ((entry.last + 1) % N, window)
        };
        let chosen = place(target, pre, self.constants);
        entry.last = i;
        entry.places[i] = Some(Place {
            base: chosen.base,
            end: chosen.end,
            pre,
        });
        chosen
    }

    /// The entry of `key`: its own, or a new one.
    fn entry(&mut self, key: u32) -> usize {
        if let Some(at) = self.entries.iter().position(|entry| entry.key == key) {
            return at;
        }
        let fresh = Tracked {
            key,
            places: [None; N],
            // So that the first place is the first to be taken.
            last: N - 1,
            priority: 0,
            used: self.clock,
        };
        if self.entries.len() < self.constants.entries {
            self.entries.push(fresh);
            return self.entries.len() - 1;
        }
        for entry in &mut self.entries {
            entry.priority = entry.priority.saturating_sub(1);
        }
        let lowest = self.entries.iter().enumerate();
        let lowest = lowest.min_by_key(|(_, entry)| (entry.priority, entry.used));
        let at = lowest.map_or(0, |(at, _)| at);
        self.entries[at] = fresh;
        at
    }
}

impl Place {
    fn distance(self, target: SlotNo) -> u32 {
        let (base, end) = (self.base.abs_diff(target.0), self.end.abs_diff(target.0));
        base.min(end)
    }
}

/// Where a window of `size` slots for `target` lies.
fn place(target: SlotNo, size: u32, constants: Constants) -> Chosen {
    let base = match constants.placement {
        Placement::Target => target.0,
        Placement::Aligned => target.0 - target.0 % constants.window,
        Placement::Centred => target.0.saturating_sub(size / 2),
    };
    Chosen {
        base,
        end: base.saturating_add(size - 1).min(SlotNo::NONE.0 - 1),
        size,
    }
}
