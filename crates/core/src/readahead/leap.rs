//! Leap: the majority of the last strides is the trend, and pages along it are read.
//!
//! Al Maruf and Chowdhury, "Effectively Prefetching Remote Memory with Leap", USENIX ATC 2020.
//! Every access to the store's pages, a major fault or the first touch of a page read ahead, adds
//! the stride from the one before to a history. A stride that makes up more than half of the last
//! 1/n of it is the trend; without one, twice as much is looked at, up to all of it. Boyer and
//! Moore's vote finds the only candidate in one pass.
//!
//! The window: the hits since the last fault plus one, up to a power of two; without hits, one page
//! if the fault followed the trend, else none. At most the largest, at least half the last one. It
//! is read along the trend; without a trend around the fault, with the stride of the last trend.
//!
//! Strides are those of slots, as in the authors' kernel. Where paper and kernel leave a choice: a
//! stride of 0 is no trend, before the first trend the stride is 1, and of the pages around a fault
//! those ahead come first.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::common::{GOVERN, MAX};
use super::key::{KEY, Key};
use super::{Entry, Manner, ReadAhead, SlotView, Touch, Window};
use crate::settings::{Allowed, Setting, Values};
use crate::units::{SlotNo, SlotRange};

pub(super) const ENTRY: Entry = Entry {
    name: "leap",
    summary: "along the stride that most of the last accesses had",
    source: "Leap, USENIX ATC 2020",
    needs_touches: true,
    little: None,
    // Defaults of the authors' kernel. Its largest window, 8 pages, does not count the fault's own.
    settings: &[
        &Setting { default: 9, ..MAX },
        &Setting {
            name: "history",
            summary: "accesses remembered for the trend",
            allowed: Allowed::Numbers(2, 256),
            default: 32,
        },
        &Setting {
            name: "split",
            summary: "the trend is looked for in the last 1/n of the history first",
            allowed: Allowed::Numbers(1, 256),
            default: 4,
        },
        &Setting {
            name: "entries",
            summary: "entries that are kept",
            allowed: Allowed::Numbers(1, 1024),
            default: 16,
        },
        &KEY,
        &GOVERN,
    ],
    at_most: &[("split", "history")],
    build: |values, manner| Box::new(Leap::new(values, manner)),
};

/// The largest window and the fault's own slot.
const SLOTS_MAX: usize = 257;

/// The accesses of one key.
struct Track {
    key: u32,
    /// A ring of strides; the oldest is overwritten.
    strides: Vec<i64>,
    /// Where the next stride goes.
    head: usize,
    known: usize,
    last: Option<SlotNo>,
    /// The stride of the last trend there was.
    trend: Option<i64>,
    window: u32,
    hits: u32,
}

struct Leap {
    manner: Manner,
    key: Key,
    split: u32,
    /// Most recently used first; as many as there can be, made at the start.
    tracks: Vec<Track>,
    known: usize,
}

impl Leap {
    fn new(values: &Values, manner: Manner) -> Self {
        let track = |_| Track {
            key: 0,
            strides: vec![0; values.of("history") as usize],
            head: 0,
            known: 0,
            last: None,
            trend: None,
            window: 0,
            hits: 0,
        };
        Self {
            manner,
            key: Key::set(values),
            split: values.of("split"),
            tracks: (0..values.of("entries")).map(track).collect(),
            known: 0,
        }
    }

    /// The track of `key`, moved to the front.
    fn track(&mut self, key: u32) -> &mut Track {
        let found = self.tracks[..self.known].iter().position(|t| t.key == key);
        let at = found.unwrap_or_else(|| {
            self.known = (self.known + 1).min(self.tracks.len());
            self.tracks[self.known - 1].begin(key);
            self.known - 1
        });
        self.tracks[..=at].rotate_right(1);
        &mut self.tracks[0]
    }
}

impl Track {
    fn begin(&mut self, key: u32) {
        (self.key, self.head, self.known) = (key, 0, 0);
        (self.last, self.trend, self.window, self.hits) = (None, None, 0, 0);
    }

    /// An access: remembers its stride, which is returned.
    fn accessed(&mut self, slot: SlotNo) -> Option<i64> {
        let last = self.last.replace(slot)?;
        let stride = i64::from(slot.0) - i64::from(last.0);
        self.strides[self.head] = stride;
        self.head = (self.head + 1) % self.strides.len();
        self.known = (self.known + 1).min(self.strides.len());
        Some(stride)
    }

    /// The last `n` strides, the newest first; fewer when there are not so many yet.
    fn newest(&self, n: usize) -> impl Iterator<Item = i64> {
        let len = self.strides.len();
        (1..=n.min(self.known)).map(move |back| self.strides[(self.head + len - back) % len])
    }

    /// The stride that more than half of `n` accesses had.
    fn majority(&self, n: usize) -> Option<i64> {
        let (mut candidate, mut votes) = (0, 0_u32);
        for stride in self.newest(n) {
            if votes == 0 {
                candidate = stride;
            }
            if stride == candidate {
                votes += 1;
            } else {
                votes -= 1;
            }
        }
        let count = self.newest(n).filter(|&stride| stride == candidate).count();
        (count > n / 2).then_some(candidate)
    }

    /// The trend, looked for in the newest 1/`split` of the history and then in twice as much.
    fn find_trend(&self, split: u32) -> Option<i64> {
        let len = self.strides.len();
        let mut n = (len / split as usize).max(1);
        loop {
            let found = self.majority(n);
            if found.is_some() || n == len {
                return found.filter(|&stride| stride != 0);
            }
            n = (n * 2).min(len);
        }
    }

    /// How many pages to read besides the fault's own.
    fn size(&mut self, follows: bool, max: u32) -> u32 {
        let wanted = match self.hits {
            0 => u32::from(follows),
            hits => hits.saturating_add(1).next_power_of_two(),
        };
        self.hits = 0;
        self.window = wanted.min(max).max(self.window / 2);
        self.window
    }
}

impl ReadAhead for Leap {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn manner(&self) -> Manner {
        self.manner
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        let (max_window, split) = (self.manner.read_max, self.split);
        let key = self.key.of(fault);
        let track = self.track(key);
        let stride = track.accessed(fault.slot);
        let follows = stride.is_some() && stride == track.trend;
        let wanted = track.size(follows, max_window - 1);
        let found = track.find_trend(split);
        track.trend = found.or(track.trend);
        if wanted == 0 {
            return Window::one(fault.slot);
        }
        let (mut slots, mut count) = ([fault.slot.0; SLOTS_MAX], 1);
        let stride = track.trend.unwrap_or(1);
        for n in 1..=i64::from(wanted) {
            // Around the fault: 1, -1, 2, -2 strides and so on.
            let around = if n % 2 == 1 { (n + 1) / 2 } else { -(n / 2) };
            let steps = if found.is_some() { n } else { around };
            let slot = u32::try_from(i64::from(fault.slot.0) + steps * stride);
            let slot = slot.ok().map(SlotNo).filter(|slot| slot.is_some());
            if let Some(slot) = slot.filter(|&slot| view.paged_out(slot).is_some()) {
                slots[count] = slot.0;
                count += 1;
            }
        }
        let window = Window::of(fault.slot, &mut slots[..count]);
        Window {
            size: wanted + 1,
            downward: found.is_some_and(|stride| stride < 0),
            ..window
        }
    }

    fn hit(&mut self, touch: &Touch, _: &dyn SlotView) -> Option<SlotRange> {
        let key = self.key.of(touch);
        let track = self.track(key);
        track.accessed(touch.slot);
        track.hits = track.hits.saturating_add(1);
        None
    }
}
