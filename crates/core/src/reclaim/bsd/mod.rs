//! The page daemon of FreeBSD 6.2 and 8.2: the reclaim of both papers' baseline.
//!
//! Four queues: active, inactive, cache, and free frames. Pages stay mapped while they age; a
//! page's references are the referenced bit of its mapping and a note that outlives it. A scan walks
//! the inactive queue from its head: referenced pages become active again, clean ones go to the
//! cache, dirty ones are laundered where they are and cached by a later scan. Then it ages the active
//! queue. How hard it tries follows `pass`. Source: `vm/vm_pageout.c`, the versions named in
//! [`Release`].
//!
//! The daemon is a machine without a clock of its own: [`Daemon::advance`] names one step at a time,
//! the pager carries it out. Not here: whole programs that are put out of memory, files, and memory
//! that other parts of the kernel take.

mod levels;
mod params;
mod scan;

pub use levels::Levels;
pub use params::{
    AtLimit, Buffered, CleanPage, LimitUnit, Params, Release, SecondLook, ShortageUnit,
};

use super::{Entry, Policy};
use crate::page::{Bit, DIRTY, PageId, Pages, Queue, State};
use crate::units::Nanos;

pub(super) const ENTRY_6_2: Entry = Entry {
    name: "bsd-6.2",
    summary: "the page daemon of FreeBSD 6.2: four queues, passes, aged references",
    source: "FreeBSD 6.2, vm_pageout.c; the baseline of MOC",
    needs_referenced: true,
    settings: &[],
    build: |_| Policy::Daemon(Params::new(Release::V6_2)),
};

pub(super) const ENTRY_8_2: Entry = Entry {
    name: "bsd-8.2",
    summary: "the page daemon of FreeBSD 8.2: as 6.2, with cached pages out of their objects",
    source: "FreeBSD 8.2, vm_pageout.c; the baseline of mClustering",
    needs_referenced: true,
    settings: &[],
    build: |_| Policy::Daemon(Params::new(Release::V8_2)),
};

/// The least age of a page that becomes active (`ACT_INIT`).
const AGE_FRESH: u8 = 5;
/// Added for a page that was found referenced, besides its references (`ACT_ADVANCE`).
const AGE_ADVANCE: u8 = 3;
/// Taken from a page that was not (`ACT_DECLINE`).
const AGE_DECLINE: u8 = 1;
/// The greatest age of an active page (`ACT_MAX`).
const AGE_MAX: u8 = 64;

/// Launderings of a scan beyond pass 0.
const LAUNDER_PRESSED: i64 = 10_000;
/// How long the daemon waits without demand (`vm_pageout_stats_interval`).
const IDLE: Nanos = Nanos(5_000_000_000);
/// How long it waits between two scans that were not enough.
const BREATH: Nanos = Nanos(500_000_000);
/// Free slots below which programs are ended when memory is short too.
const SLOTS_SCARCE: u32 = 64;
/// Free slots from which on the store does not count as full any more (`nswap_lowat`).
const SLOTS_ENOUGH: u32 = 128;

/// What the daemon counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Scans that began with demand (`v_pdwakeups`).
    pub wake_ups: u64,
    /// Pages looked at on the inactive queue.
    pub scanned_inactive: u64,
    /// Pages looked at on the active queue, by scans and sweeps (with the former `v_pdpages`).
    pub scanned_active: u64,
    /// Inactive pages found referenced: active again.
    pub reactivated: u64,
    /// Dirty pages that were spared at first sight.
    pub spared: u64,
    /// Busy pages that a walk passed over.
    pub busy: u64,
    /// Pages moved to the inactive queue because they had aged.
    pub deactivated: u64,
    /// Pages that went to the cache.
    pub cached: u64,
    /// Faults that found their page in the cache.
    pub cache_hits: u64,
    /// Pages that a sequential fault put away behind it.
    pub dropped_behind: u64,
    /// Sweeps of the idle daemon.
    pub sweeps: u64,
    /// Clusters laundered.
    pub laundered: u64,
    /// Scans that began in pass 1 or later.
    pub pressed_scans: u64,
}

/// What there is besides pages.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Frames that hold nothing.
    pub free: usize,
    /// Slots that hold nothing.
    pub slots_free: u32,
}

/// What the pager is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The clean page, taken off its queue, goes to the cache.
    Cache(PageId),
    /// The dirty page, at its place on the inactive queue, is laundered;
    /// [`Daemon::laundered`] follows.
    Launder(PageId),
    /// What is buffered is written.
    Flush,
    /// The oldest page of the cache becomes free.
    FreeCached,
    /// Neither memory nor swap is left: a kernel ends the largest program.
    Exhausted,
    /// Nothing until [`Daemon::deadline`], or until it is woken.
    Rest,
}

/// What came of a laundering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Laundered {
    /// Pages of the victim's cluster that are buffered or being written.
    pub cluster: u32,
    /// Buffers that were handed over and of which at least one page is being written.
    pub flushes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The beginning of the daemon's loop.
    Top,
    /// Without demand.
    Idle { until: Nanos },
    /// Between two scans under pressure.
    Breathing { until: Nanos },
    /// On the inactive queue.
    Inactive,
    /// Off it; the buffer is still to be written.
    Ended,
    /// On the active queue and after it.
    Active,
    /// Cached pages become free (6.2).
    Refill,
}

/// The walk over the inactive queue.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    /// Pages that are still missing.
    shortage: i64,
    /// Pages that the active queue has to make up for.
    more: i64,
    /// Launderings left.
    launder: i64,
    /// Pages left to look at.
    left: usize,
}

/// The daemon's state.
pub struct Daemon {
    params: Params,
    levels: Levels,
    /// `vm_pages_needed`.
    needed: bool,
    /// Demand was reported since the daemon came to rest.
    woken: bool,
    /// Those who wait for memory are to try again.
    let_go: bool,
    pass: u32,
    phase: Phase,
    /// Allocations that failed since the last scan (`vm_pageout_deficit`).
    deficit: u32,
    walk: Walk,
    sweeps: u32,
    swap_full: bool,
    counters: Counters,
}

impl Daemon {
    /// A daemon for `frames` pages of memory.
    #[must_use]
    pub fn new(params: Params, frames: usize) -> Self {
        Self {
            params,
            levels: Levels::new(frames, params.release, params.colours),
            needed: false,
            woken: false,
            let_go: false,
            pass: 0,
            phase: Phase::Idle { until: IDLE },
            deficit: 0,
            walk: Walk::default(),
            sweeps: 0,
            swap_full: false,
            counters: Counters::default(),
        }
    }

    /// What it is made of.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// The levels.
    #[must_use]
    pub const fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The daemon's counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The pass of the next scan, or the present one.
    #[must_use]
    pub const fn pass(&self) -> u32 {
        self.pass
    }

    /// Counts what the pager does in the daemon's place.
    pub(crate) const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// There is another amount of memory from now on.
    pub fn resize(&mut self, frames: usize) {
        self.levels = Levels::new(frames, self.params.release, self.params.colours);
    }

    /// Pages are needed (`pagedaemon_wakeup`).
    pub const fn wake(&mut self) {
        if !self.needed {
            (self.needed, self.woken) = (true, true);
        }
    }

    /// A page could not be allocated.
    pub const fn failed(&mut self) {
        self.deficit += 1;
        self.wake();
    }

    /// A page became free or cached; so many are now (`vm_page_free_wakeup`).
    pub const fn freed(&mut self, available: usize) {
        if self.needed && available >= self.levels.min {
            (self.needed, self.let_go) = (false, true);
        }
    }

    /// Whether those who wait for memory are to try again; asked once.
    pub const fn lets_go(&mut self) -> bool {
        core::mem::replace(&mut self.let_go, false)
    }

    /// No run of slots was found, or one was found or freed and so many are free now.
    pub const fn slots_changed(&mut self, found: bool, free: u32) {
        if !found {
            self.swap_full = true;
        } else if free >= SLOTS_ENOUGH {
            self.swap_full = false;
        }
    }

    /// When the daemon goes on though nothing else happens; `None` while it waits for a write.
    #[must_use]
    pub const fn deadline(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Idle { until } | Phase::Breathing { until } => Some(until),
            _ => None,
        }
    }

    /// Whether [`Self::advance`] has nothing but rest to offer.
    #[must_use]
    pub const fn rests(&self, now: Nanos) -> bool {
        match self.deadline() {
            Some(until) => !self.woken && now.0 < until.0,
            None => false,
        }
    }

    /// The next step. The one before was carried out.
    pub fn advance(&mut self, now: Nanos, pages: &mut Pages, memory: Memory) -> Step {
        loop {
            match self.phase {
                Phase::Top => self.top(now, pages, memory),
                Phase::Idle { .. } | Phase::Breathing { .. } if self.rests(now) => {
                    return Step::Rest;
                }
                Phase::Idle { .. } if !self.needed => {
                    self.pass = 0;
                    self.sweep(pages, memory.free);
                    self.phase = Phase::Top;
                }
                Phase::Idle { .. } | Phase::Breathing { .. } => self.begin(pages, memory),
                Phase::Inactive => match self.inactive(pages) {
                    Some(step) => return step,
                    None => self.phase = Phase::Ended,
                },
                Phase::Ended => {
                    self.phase = Phase::Active;
                    return Step::Flush;
                }
                Phase::Active => {
                    self.active(pages, memory.free);
                    self.phase = Phase::Refill;
                }
                Phase::Refill => {
                    let short = self.params.release == Release::V6_2
                        && memory.free < self.levels.reserved
                        && pages.queued(Queue::Cache) > 0;
                    if short {
                        return Step::FreeCached;
                    }
                    self.phase = Phase::Top;
                    if self.exhausted(available(pages, memory.free), memory.slots_free) {
                        return Step::Exhausted;
                    }
                }
            }
        }
    }

    /// The beginning of the loop: a scan at once, after a breath, or rest.
    fn top(&mut self, now: Nanos, pages: &mut Pages, memory: Memory) {
        let available = available(pages, memory.free);
        if self.needed && available >= self.levels.min {
            self.needed = available < self.levels.wake();
            self.let_go = true;
        }
        self.woken = false;
        if !self.needed {
            self.pass = u32::from(self.pass > 1);
            let until = Nanos(now.0 + IDLE.0);
            self.phase = Phase::Idle { until };
            return;
        }
        self.pass += 1;
        if self.pass > 1 {
            let until = Nanos(now.0 + BREATH.0);
            self.phase = Phase::Breathing { until };
        } else {
            self.begin(pages, memory);
        }
    }

    /// A scan begins.
    fn begin(&mut self, pages: &mut Pages, memory: Memory) {
        self.woken = false;
        self.counters.wake_ups += u64::from(self.needed);
        self.counters.pressed_scans += u64::from(self.pass > 0);
        let deficit = i64::from(core::mem::take(&mut self.deficit));
        let missing = self.levels.missing(available(pages, memory.free));
        self.walk = Walk {
            shortage: missing + deficit,
            more: deficit,
            launder: if self.pass == 0 {
                i64::from(self.params.launder_max.max(1))
            } else {
                LAUNDER_PRESSED
            },
            left: pages.queued(Queue::Inactive),
        };
        pages.keep_place(pages.head(Queue::Inactive));
        self.phase = Phase::Inactive;
    }

    /// What came of [`Step::Launder`].
    pub fn laundered(&mut self, report: Laundered) {
        let cluster = i64::from(report.cluster > 0);
        let flushes = i64::from(report.flushes);
        self.counters.laundered += u64::from(report.cluster > 0);
        self.walk.launder -= match self.params.limit_unit {
            LimitUnit::Cluster => cluster,
            LimitUnit::Flush => flushes,
        };
        self.walk.shortage -= match self.params.shortage_unit {
            ShortageUnit::Cluster => cluster,
            ShortageUnit::Flush => flushes,
            ShortageUnit::Page => i64::from(report.cluster),
        };
    }

    /// Whether a kernel would end a program now.
    const fn exhausted(&self, available: usize, slots_free: u32) -> bool {
        let scarce = slots_free < SLOTS_SCARCE && available < self.levels.min;
        let full = self.swap_full && self.levels.missing(available) > 0;
        self.pass != 0 && (scarce || full)
    }
}

/// Pages that are free or nearly so.
pub(crate) fn available(pages: &Pages, free: usize) -> usize {
    free + pages.queued(Queue::Cache)
}

/// Puts the page on the active queue, if it is not there (`vm_page_activate`).
pub(crate) fn activate(pages: &mut Pages, id: PageId) {
    pages.set_age(id, pages.age(id).max(AGE_FRESH));
    if pages.queue(id) != Queue::Active {
        pages.unqueue(id);
        pages.push(Queue::Active, id);
    }
}

/// Puts the page at the end of the inactive queue, if it is not on it (`vm_page_deactivate`).
pub(crate) fn deactivate(pages: &mut Pages, id: PageId) {
    if pages.queue(id) != Queue::Inactive {
        pages.unqueue(id);
        pages.set_bit(id, Bit::Seen, false);
        pages.push(Queue::Inactive, id);
    }
}

/// Takes the page's mapping away and keeps what it knew (`pmap_remove_all`).
pub(crate) fn unmap(pages: &mut Pages, id: PageId) {
    if pages.state(id) == State::Resident {
        fold(pages, id);
        if pages.bit(id, Bit::Referenced) {
            pages.set_bit(id, Bit::Noted, true);
        }
        pages.set_state(id, State::Staged);
    }
}

/// Learns from the mapping whether the page is dirty (`vm_page_test_dirty`).
pub(crate) fn fold(pages: &mut Pages, id: PageId) -> bool {
    if pages.bit(id, Bit::Modified) {
        pages.set_bit(id, Bit::Modified, false);
        pages.set_flag(id, DIRTY, true);
    }
    pages.has(id, DIRTY)
}
