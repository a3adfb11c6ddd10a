//! The trace of a run: the events that a [`Pager`](crate::pager::Pager) was told and the actions
//! it answered with, as bytes. [`replay()`] tells the events to another pager and requires the same
//! actions.
//!
//! A trace is a header and entries, each followed by a check over all bytes so far:
//!
//! | part | bytes |
//! |---|---|
//! | header | `OUTPAGE\0`, version (16, little-endian), policies, sizes, check |
//! | event | tag, time since the last event, fields, check |
//! | action | tag, fields, pages and their hashes, check |
//! | end | tag, check |
//!
//! Numbers take 7 bits a byte, pages and times are told as steps from the last one.

mod branch;
mod bytes;
mod digest;
mod read;
mod replay;

use alloc::vec::Vec;

use crate::contract::{
    Action, ActionId, Body, Event, IoFailure, Outcome, PageList, PageOutcome, Refusal,
};
use crate::page::ContentHash;
use crate::pageout::ClusterWindow;
use crate::pager::Setup;
use crate::units::{Nanos, PageNo, PageRange, SlotNo, SlotRange};
use crate::{discard, pageout, readahead, reclaim, slots, tier};
use bytes::{Check, put, put_step, put_text};

pub use branch::Branch;
pub use digest::Decisions;
pub use read::{Logged, Reader};
pub use replay::{Divergence, Replayed, Unequal, replay};

/// The version that is written, and the only one that is read: version 15 knew no wait that is given up.
pub const VERSION: u16 = 16;

const MAGIC: [u8; 8] = *b"OUTPAGE\0";

/// Why a trace cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It does not begin like a trace.
    NotATrace,
    /// It was written by another version of this format.
    Version(u16),
    /// It ends in the middle, or without an end. What lies before the offset is whole.
    Truncated,
    /// It says what cannot be, or a check does not hold.
    Corrupt,
}

/// A trace that cannot be read, and from where on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// Byte offset of the part that cannot be read.
    pub offset: usize,
    /// The reason.
    pub why: Why,
}

impl core::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.why {
            Why::NotATrace => write!(f, "this is not a trace"),
            Why::Version(found) => {
                write!(
                    f,
                    "the trace has version {found}; this program reads {VERSION} only"
                )
            }
            Why::Truncated => write!(f, "the trace breaks off at byte {}", self.offset),
            Why::Corrupt => write!(f, "the trace is damaged at byte {}", self.offset),
        }
    }
}

impl core::error::Error for Unreadable {}

/// What the traced pager was made of: see [`Setup`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The reclaim policy and what was set of it, as [`reclaim::Choice`] writes it.
    pub reclaim: &'a str,
    /// Name of the page-out policy.
    pub pageout: &'a str,
    /// Its parameters.
    pub pageout_params: pageout::Params,
    /// The read-ahead policy and what was set of it, as [`readahead::Choice`] writes it; for any number of frames.
    pub readahead: &'a str,
    /// Name of the slot allocator.
    pub slots: &'a str,
    /// The tier policy and what was set of it, as [`tier::Choice`] writes it.
    pub tier: &'a str,
    /// The discard policy and what was set of it, as [`discard::Choice`] writes it.
    pub discard: &'a str,
    /// RAM at the start, in frames.
    pub frames: u64,
    /// What up to so many frames would save is measured ([`Pager::measure_up_to`](crate::pager::Pager::measure_up_to)); tier policies go by it.
    pub measured: u32,
    /// The most slots the store can ever have.
    pub slots_max: u32,
    /// The most pages of one zero-fill.
    pub zero_around: u32,
    /// Staged neighbours that come along when a page is rescued.
    pub rescue_around: u32,
}

impl Header<'_> {
    /// The same pager anew, for a body without bits: touches are not in a trace. `None` when a policy
    /// is unknown here or needs bits, or something cannot be set.
    #[must_use]
    pub fn setup(&self) -> Option<Setup> {
        let reclaim = reclaim::Choice::parse(self.reclaim, Body::default()).ok()?;
        let pageout = pageout::find(self.pageout)?;
        let readahead: readahead::Choice = self.readahead.parse().ok()?;
        let slots = slots::find(self.slots)?;
        let tier = tier::Choice::parse(self.tier, tier::Written::Plain).ok()?;
        let discard = discard::Choice::parse(self.discard).ok()?;
        let frames = usize::try_from(self.frames).ok()?;
        let sizes_fit = pageout::BUFFER_PAGES.contains(&self.pageout_params.buffer_pages)
            && self.slots_max <= SlotNo::POOL_START.0
            && frames >= crate::limits::FRAMES_MIN;
        sizes_fit.then(|| Setup {
            reclaim: reclaim.build(),
            pageout: (pageout.build)(self.pageout_params),
            readahead: readahead.build(),
            slots: slots.build,
            tier: tier.build(),
            discard: discard.build(),
            frames,
            slots_max: self.slots_max,
            zero_around: self.zero_around,
            rescue_around: self.rescue_around,
            body: Body::default(),
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let names = [self.reclaim, self.pageout, self.readahead, self.slots];
        for name in names.into_iter().chain([self.tier, self.discard]) {
            put_text(out, name);
        }
        put(out, u64::from(self.pageout_params.buffer_pages));
        out.push(match self.pageout_params.window {
            ClusterWindow::Kernel => 0,
            ClusterWindow::Paper => 1,
        });
        put(out, self.frames);
        let sizes = [self.slots_max, self.zero_around, self.rescue_around];
        for size in [self.measured].into_iter().chain(sizes) {
            put(out, u64::from(size));
        }
    }
}

/// The tags of entries. Actions lie above events.
mod tag {
    pub const FAULT: u8 = 1;
    pub const DONE: u8 = 2;
    pub const ADOPT: u8 = 3;
    pub const UNMAP: u8 = 4;
    pub const DISCARD: u8 = 5;
    pub const GROWN: u8 = 6;
    pub const FULL: u8 = 7;
    pub const LIMIT: u8 = 8;
    pub const FORKING: u8 = 9;
    pub const FORKED: u8 = 10;
    pub const CHILDREN_GONE: u8 = 11;
    pub const TICK: u8 = 12;
    pub const TIMER: u8 = 13;
    pub const POOLED: u8 = 14;
    pub const DISCARDABLE: u8 = 15;
    pub const TAKE_BACK: u8 = 16;
    pub const FLUSH: u8 = 17;
    pub const FREED: u8 = 18;
    pub const FREEING: u8 = 19;
    pub const ADVISE: u8 = 20;
    pub const LEFT: u8 = 21;
    pub const ACTIONS: u8 = 0x40;
    pub const ZERO_FILL: u8 = 0x41;
    pub const MAP: u8 = 0x42;
    pub const DETACH: u8 = 0x43;
    pub const PAGE_IN: u8 = 0x44;
    pub const PAGE_OUT: u8 = 0x45;
    pub const RELEASE: u8 = 0x46;
    pub const POISON: u8 = 0x47;
    pub const WAKE: u8 = 0x48;
    pub const GROW: u8 = 0x49;
    pub const EXHAUSTED: u8 = 0x4a;
    pub const DEAD: u8 = 0x4b;
    pub const COMPRESS: u8 = 0x4c;
    pub const DECOMPRESS: u8 = 0x4d;
    pub const TAKEN_BACK: u8 = 0x4e;
    pub const DROP: u8 = 0x4f;
    pub const SHRINK: u8 = 0x50;
    pub const END: u8 = 0x7f;
}

/// The tags of outcomes.
mod outcome {
    pub const DONE: u8 = 0;
    pub const NO_SPACE: u8 = 1;
    pub const DEVICE: u8 = 2;
    /// All pages of a run are done.
    pub const ALL_DONE: u8 = 3;
    pub const PAGES: u8 = 4;
}

/// The tags of one page's outcome.
mod page_outcome {
    pub const DONE: u8 = 0;
    pub const DETACHED: u8 = 1;
    pub const ZERO: u8 = 2;
    pub const BUSY: u8 = 3;
    pub const ABSENT: u8 = 4;
    pub const PRESENT: u8 = 5;
    pub const GONE: u8 = 6;
    pub const DAMAGED: u8 = 7;
    pub const UNHASHED: u8 = 8;
    pub const UNREAD: u8 = 9;
    pub const KEPT: u8 = 10;
    pub const UNFIT: u8 = 11;
    pub const NO_ROOM: u8 = 12;
}

const fn tag_of(event: &Event<'_>) -> u8 {
    match event {
        Event::Fault { .. } => tag::FAULT,
        Event::Left(_) => tag::LEFT,
        Event::Done { .. } => tag::DONE,
        Event::Adopt(_) => tag::ADOPT,
        Event::Unmap(_) => tag::UNMAP,
        Event::Discard(_) => tag::DISCARD,
        Event::Discardable(_) => tag::DISCARDABLE,
        Event::TakeBack(_) => tag::TAKE_BACK,
        Event::Flush(_) => tag::FLUSH,
        Event::Freeing(_) => tag::FREEING,
        Event::Freed(_) => tag::FREED,
        Event::Advise(..) => tag::ADVISE,
        Event::Grown(_) => tag::GROWN,
        Event::Full => tag::FULL,
        Event::Limit(_) => tag::LIMIT,
        Event::Forking => tag::FORKING,
        Event::Forked => tag::FORKED,
        Event::ChildrenGone => tag::CHILDREN_GONE,
        Event::Tick => tag::TICK,
        Event::Timer => tag::TIMER,
        Event::Pooled(_) => tag::POOLED,
    }
}

/// Writes a trace: appends whole entries to the bytes that it is given.
///
/// Tell it each event before the pager, and each action when it was polled. A forked child that
/// goes on with a copy of this recorder behind its parent's bytes so far has a trace of its own.
#[derive(Clone)]
pub struct Recorder {
    check: Check,
    now: u64,
    page: u64,
}

impl Recorder {
    /// Begins a trace.
    pub fn begin(header: &Header<'_>, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        header.put(out);
        let mut recorder = Self {
            check: Check::new(),
            now: 0,
            page: 0,
        };
        recorder.finish(out, start);
        recorder
    }

    /// The pager is about to be told `event`.
    pub fn event(&mut self, now: Nanos, event: &Event<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(tag_of(event));
        put_step(out, self.now, now.0);
        self.now = now.0;
        match *event {
            Event::Fault {
                page,
                access,
                waiter,
                source,
                extent,
            } => {
                self.page(out, page);
                out.push(access as u8);
                put(out, u64::from(waiter.0));
                put(out, u64::from(source.0));
                put_step(out, page.raw(), extent.start.raw());
                put(out, extent.pages);
            }
            Event::Left(waiter) => put(out, u64::from(waiter.0)),
            Event::Done { id, outcome } => {
                put(out, u64::from(id.0));
                put_outcome(out, outcome);
            }
            Event::Adopt(range)
            | Event::Unmap(range)
            | Event::Discard(range)
            | Event::Discardable(range)
            | Event::TakeBack(range)
            | Event::Flush(range)
            | Event::Freeing(range)
            | Event::Freed(range) => self.run(out, range),
            Event::Advise(advice, range) => {
                out.push(advice as u8);
                self.run(out, range);
            }
            Event::Grown(range) => put_slots(out, range),
            Event::Limit(frames) | Event::Pooled(frames) => put(out, frames as u64),
            Event::Full
            | Event::Forking
            | Event::Forked
            | Event::ChildrenGone
            | Event::Tick
            | Event::Timer => {}
        }
        self.finish(out, start);
    }

    /// The pager handed out `action`.
    pub fn action(&mut self, action: &Action, out: &mut Vec<u8>) {
        let (tag, id) = match *action {
            Action::ZeroFill { id, .. } => (tag::ZERO_FILL, id.0),
            Action::Map { id, .. } => (tag::MAP, id.0),
            Action::Detach { id, .. } => (tag::DETACH, id.0),
            Action::Drop { id, .. } => (tag::DROP, id.0),
            Action::PageIn { id, .. } => (tag::PAGE_IN, id.0),
            Action::PageOut { id, .. } => (tag::PAGE_OUT, id.0),
            Action::Compress { id, .. } => (tag::COMPRESS, id.0),
            Action::Decompress { id, .. } => (tag::DECOMPRESS, id.0),
            Action::Release { id, .. } => (tag::RELEASE, id.0),
            Action::Dead { id, .. } => (tag::DEAD, id.0),
            Action::Poison { id, .. } => (tag::POISON, id.0),
            Action::Wake { waiter, .. } => (tag::WAKE, waiter.0),
            Action::TakenBack { .. } => (tag::TAKEN_BACK, 0),
            Action::Grow { slots } => (tag::GROW, slots),
            Action::Shrink { .. } => (tag::SHRINK, 0),
            Action::Exhausted { swap_full } => (tag::EXHAUSTED, u32::from(swap_full)),
        };
        let start = out.len();
        out.push(tag);
        put(out, u64::from(id));
        self.fields(action, out);
        self.finish(out, start);
    }

    /// What an action carries beside its id.
    fn fields(&mut self, action: &Action, out: &mut Vec<u8>) {
        match action {
            Action::ZeroFill { run, after, .. } => {
                self.run(out, *run);
                put_after(out, *after);
            }
            Action::Map {
                run, absent_below, ..
            }
            | Action::Detach {
                run, absent_below, ..
            } => {
                self.run(out, *run);
                out.push(*absent_below);
            }
            Action::PageIn {
                slots,
                pages,
                after,
                ..
            }
            | Action::PageOut {
                slots,
                pages,
                after,
                ..
            }
            | Action::Decompress {
                slots,
                pages,
                after,
                ..
            } => self.transfer(out, *slots, pages, *after),
            Action::Compress {
                slots,
                pages,
                grant,
                after,
                ..
            } => {
                self.transfer(out, *slots, pages, *after);
                put(out, u64::from(*grant));
            }
            Action::Drop { run, .. } => self.run(out, *run),
            Action::Dead { slots, after, .. } | Action::Shrink { slots, after } => {
                put_slots(out, *slots);
                put_after(out, *after);
            }
            Action::Release { pages, after, .. } => {
                self.pages(out, pages);
                put_after(out, *after);
            }
            Action::TakenBack { range, lost } => {
                self.run(out, *range);
                self.pages(out, lost);
            }
            Action::Poison { page, .. } | Action::Wake { page, .. } => self.page(out, *page),
            Action::Grow { .. } | Action::Exhausted { .. } => {}
        }
    }

    /// Ends the trace. One that is not ended counts as truncated.
    pub fn end(mut self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(tag::END);
        self.finish(out, start);
    }

    /// Closes the entry that begins at `start`.
    fn finish(&mut self, out: &mut Vec<u8>, start: usize) {
        self.check.add(&out[start..]);
        out.extend_from_slice(&self.check.bytes());
    }

    fn page(&mut self, out: &mut Vec<u8>, page: PageNo) {
        put_step(out, self.page, page.raw());
        self.page = page.raw();
    }

    fn pages(&mut self, out: &mut Vec<u8>, pages: &[PageNo]) {
        put(out, pages.len() as u64);
        pages.iter().for_each(|&page| self.page(out, page));
    }

    fn transfer(
        &mut self,
        out: &mut Vec<u8>,
        slots: SlotRange,
        pages: &PageList,
        after: Option<ActionId>,
    ) {
        put_slots(out, slots);
        self.hashed(out, pages);
        put_after(out, after);
    }

    /// The pages of a transfer, and their hashes.
    fn hashed(&mut self, out: &mut Vec<u8>, pages: &PageList) {
        self.pages(out, pages);
        assert!(pages.hashes().len() == pages.len(), "one hash a page");
        pages.hashes().iter().for_each(|&hash| put_hash(out, hash));
    }

    fn run(&mut self, out: &mut Vec<u8>, run: PageRange) {
        self.page(out, run.start);
        put(out, run.pages);
    }
}

fn put_slots(out: &mut Vec<u8>, slots: SlotRange) {
    put(out, u64::from(slots.start.0));
    put(out, u64::from(slots.slots));
}

/// Nothing, or the number of an action.
fn put_after(out: &mut Vec<u8>, after: Option<ActionId>) {
    put(out, after.map_or(0, |id| u64::from(id.0) + 1));
}

fn put_outcome(out: &mut Vec<u8>, outcome: Outcome<'_>) {
    match outcome {
        Outcome::Done => out.push(outcome::DONE),
        Outcome::Failed(IoFailure::NoSpace) => out.push(outcome::NO_SPACE),
        Outcome::Failed(IoFailure::Device) => out.push(outcome::DEVICE),
        Outcome::Pages(pages) if pages.iter().all(|p| *p == PageOutcome::Done) => {
            out.push(outcome::ALL_DONE);
            put(out, pages.len() as u64);
        }
        Outcome::Pages(pages) => {
            out.push(outcome::PAGES);
            put(out, pages.len() as u64);
            pages.iter().for_each(|&page| put_page_outcome(out, page));
        }
    }
}

fn put_page_outcome(out: &mut Vec<u8>, outcome: PageOutcome) {
    let (tag, hash) = match outcome {
        PageOutcome::Done => (page_outcome::DONE, None),
        PageOutcome::Detached { hash, zero: false } => (page_outcome::DETACHED, Some(hash)),
        PageOutcome::Detached { hash, zero: true } => (page_outcome::ZERO, Some(hash)),
        PageOutcome::Refused(Refusal::Busy) => (page_outcome::BUSY, None),
        PageOutcome::Refused(Refusal::Absent) => (page_outcome::ABSENT, None),
        PageOutcome::Refused(Refusal::Present) => (page_outcome::PRESENT, None),
        PageOutcome::Refused(Refusal::Gone) => (page_outcome::GONE, None),
        PageOutcome::Refused(Refusal::Damaged) => (page_outcome::DAMAGED, None),
        PageOutcome::Refused(Refusal::Unread) => (page_outcome::UNREAD, None),
        PageOutcome::Refused(Refusal::Unfit) => (page_outcome::UNFIT, None),
        PageOutcome::Refused(Refusal::NoRoom) => (page_outcome::NO_ROOM, None),
        PageOutcome::Unhashed => (page_outcome::UNHASHED, None),
        PageOutcome::Kept { bytes } => {
            out.push(page_outcome::KEPT);
            return put(out, u64::from(bytes));
        }
    };
    out.push(tag);
    if let Some(hash) = hash {
        put_hash(out, hash);
    }
}

fn put_hash(out: &mut Vec<u8>, hash: ContentHash) {
    let [a, b, c] = hash.0.map(u32::to_le_bytes);
    out.extend_from_slice(&[
        a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3],
    ]);
}
