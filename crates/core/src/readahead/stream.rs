//! Streams of slots: several at a time, upward and downward, with windows that learn.
//!
//! Ours. A fault where a stream is expected to go on continues it: its window doubles, and from
//! the second continuation on the next window is read while the program works on this one. The
//! first touch there names the one after. A fault that continues nothing begins a stream; how much
//! is read for it, and how far doubling goes at each age, is learnt ([`Learner`]): random single
//! touches come down to the touched slot alone, rows of a matrix to whole rows.
//!
//! Governed, it also follows walks and scans by address ([`Strides`], [`Scans`]), where windows would be in vain.

use alloc::boxed::Box;
use core::mem;

use super::common::{ARRIVAL, DEMAND_FIRST, GOVERN, MAX};
use super::key::{KEY, Key};
use super::learn::{Bet, Learner};
use super::scan::Scans;
use super::span::{self, Direction};
use super::stride::{DEPTH_MAX, Going, Strides};
use super::{
    Entry, Govern, Little, Manner, ReadAhead, Short, SlotView, StreamId, TAGS, Touch, Window,
};
use crate::settings::{Setting, Values};
use crate::units::{PAGE_BYTES, PageNo, SlotNo, SlotRange};

pub(super) const ENTRY: Entry = Entry {
    name: "stream",
    summary: "streams of slots in both directions, read ahead of the program",
    source: "Outpage",
    needs_touches: false,
    // Both largest windows were measured: docs/readahead.md, "The largest window".
    little: Some(Little {
        below: (48 << 20) / PAGE_BYTES,
        max_window: 64,
    }),
    settings: &[
        &Setting {
            default: 128,
            ..MAX
        },
        &KEY,
        &ARRIVAL,
        &DEMAND_FIRST,
        &GOVERN,
    ],
    at_most: &[],
    build: |values, manner| Box::new(Streams::new(values, manner)),
};

/// Streams told apart. More than the arrays that a loop usually walks at once.
const STREAMS: usize = TAGS;

/// Of these, so many may have been continued before; the rest is for streams that begin, which
/// random faults would otherwise crowd out, or be crowded out by.
const ESTABLISHED_MAX: usize = 12;

/// The largest window for a fault that continues nothing, in slots.
const FIRST_WINDOW_MAX: u32 = 16;

/// Slots that are not paged out, over which a stream goes on.
const GAP_MAX: u32 = 4;

/// A fault so many slots beyond the expected one continues a stream, however small its window: a
/// program that touches every fourth page, say, is read whole windows. By chance, random faults
/// come that close to one of the streams once in 500 times with 64 Ki slots.
const STRIDE: u32 = 8;

/// Continuations before a window is read ahead of the program. After one, runs of a few windows
/// would end in reads that nobody wants.
const BEHIND_AFTER: u32 = 2;

/// A stream that was not continued while so many others began is stale: if it was short so far, it
/// is taken to have ended, and in any case only a fault exactly where it is expected continues it.
/// Random faults would otherwise continue it by chance.
const STALE_AFTER: u64 = 8;

/// How sure one can get of the direction in which streams begin.
const LEANING_MAX: i8 = 8;

#[derive(Clone, Copy)]
struct Stream {
    /// The number of streams begun when it was.
    begun: u64,
    /// Whose faults continue it.
    key: u32,
    /// Slots read for the run so far.
    run: u32,
    /// The direction of the last window.
    towards: Direction,
    /// Where the next fault is expected, ahead in that direction. The first slot of `behind`
    /// where there is one.
    next: Option<SlotNo>,
    /// The slot behind the last window, where the run of pages goes on in another place.
    plain: Option<SlotNo>,
    /// Where it is expected if the stream turns out to run the other way.
    other: Option<SlotNo>,
    /// The last window's size before it was cut to what is paged out, or to the frames that there were, in slots.
    window: u32,
    continuations: u32,
    /// The bet that the stream goes on to `next`.
    bet: Option<Bet>,
    /// The number of streams begun at the last continuation.
    continued_at: u64,
    /// Named to be read ahead of the program, and not touched yet.
    behind: Option<Behind>,
    /// What was read ahead was evicted untouched since the last continuation.
    wasted: bool,
    /// The time of the last use, on a clock that counts uses.
    used: u64,
}

/// A range read ahead of the program.
#[derive(Clone, Copy)]
struct Behind {
    range: SlotRange,
    /// The bet that the stream, once there, goes on to the range's end.
    bet: Bet,
    /// The slot of the page after the range's last, if it is in another place.
    follow: Option<SlotNo>,
}

struct Streams {
    manner: Manner,
    key: Key,
    max_window: u32,
    table: [Option<Stream>; STREAMS],
    learner: Learner,
    /// Positive: streams mostly run downward.
    leaning: i8,
    begun: u64,
    clock: u64,
    /// Walks by address; only where a governor sees to it that windows are small there.
    strides: Option<Strides>,
    /// Scans by address, likewise.
    scans: Option<Scans>,
    /// The window that was named last.
    latest: Latest,
}

/// A window that may turn out to be read in part only.
#[derive(Clone, Copy, Default)]
struct Latest {
    /// It was named for a walk or a scan by address, not for a stream of the table.
    walk: bool,
    place: usize,
    /// Slots read for the run before it.
    run: u32,
    /// The bet on it.
    bet: Option<Bet>,
}

impl Streams {
    fn new(values: &Values, manner: Manner) -> Self {
        Self {
            manner,
            key: Key::set(values),
            max_window: manner.read_max,
            table: [None; STREAMS],
            learner: Learner::new(),
            leaning: 0,
            begun: 0,
            clock: 0,
            strides: (manner.govern == Govern::On).then(Strides::new),
            scans: (manner.govern == Govern::On).then(Scans::new),
            latest: Latest::default(),
        }
    }

    /// The stream that a fault of `key` at `slot` continues most closely, and in which direction.
    fn continued(&self, key: u32, slot: SlotNo) -> Option<(usize, Direction)> {
        let found = self.table.iter().enumerate().filter_map(|(i, stream)| {
            let stream = stream.as_ref().filter(|stream| stream.key == key)?;
            let (towards, distance) = stream.goes_on_at(slot, self.begun)?;
            Some((distance, i, towards))
        });
        found
            .min_by_key(|&(distance, i, _)| (distance, i))
            .map(|(_, i, towards)| (i, towards))
    }

    fn begin(&mut self, key: u32, slot: SlotNo, view: &dyn SlotView) -> Window {
        self.begun += 1;
        self.judge();
        let towards = if self.leaning > 0 {
            Direction::Down
        } else {
            Direction::Up
        };
        let bet = self
            .learner
            .choose(0, self.max_window.min(FIRST_WINDOW_MAX));
        let mut stream = Stream {
            begun: self.begun,
            key,
            run: 0,
            towards,
            next: None,
            plain: None,
            other: over_gap(view, towards.opposite().step(slot, 1), towards.opposite()).0,
            window: bet.slots(),
            continuations: 0,
            bet: None,
            continued_at: self.begun,
            behind: None,
            wasted: false,
            used: self.clock,
        };
        let now = stream.read(slot, bet, view);
        let place = self.replaceable();
        self.latest = Latest {
            walk: false,
            place,
            run: 0,
            bet: Some(bet),
        };
        if let Some(bet) = self.table[place].replace(stream).and_then(|old| old.bet) {
            self.learner.settle(bet, false);
        }
        Window {
            downward: towards == Direction::Down,
            ..Window::run(now)
        }
    }

    fn go_on(&mut self, i: usize, towards: Direction, slot: SlotNo, view: &dyn SlotView) -> Window {
        let Some(mut stream) = self.table[i] else {
            return Window::one(slot);
        };
        let turned = stream.towards != towards;
        if stream.continuations == 0 {
            let lean = if towards == Direction::Down { 1 } else { -1 };
            self.leaning = (self.leaning + lean).clamp(-LEANING_MAX, LEANING_MAX);
        }
        if let Some(bet) = stream.bet.take() {
            // Of a window in the wrong direction only the faulted slot itself was of use.
            self.learner.settle(bet, !turned || bet.slots() == 1);
        }
        // What was read ahead did not stay, or was never read: no reason to read more.
        let early = stream
            .behind
            .take()
            .is_some_and(|b| span::contains(b.range, slot));
        let most = if early || mem::take(&mut stream.wasted) {
            stream.window
        } else {
            stream.window * 2
        };
        stream.towards = towards;
        stream.other = None;
        stream.continuations += 1;
        stream.continued_at = self.begun;
        stream.used = self.clock;
        let bet = self.learner.choose(stream.run, most.min(self.max_window));
        stream.window = bet.slots();
        self.latest = Latest {
            walk: false,
            place: i,
            run: stream.run,
            bet: Some(bet),
        };
        let now = stream.read(slot, bet, view);
        if stream.continuations >= BEHIND_AFTER {
            stream.behind = self.ahead(&stream, stream.window, view);
        }
        let behind = stream.behind.map(|behind| behind.range);
        self.table[i] = Some(stream);
        Window {
            behind,
            downward: towards == Direction::Down,
            ..Window::run(now)
        }
    }

    /// The window of a fault on a walk whose windows do not bring along what is passed over: the next pages of
    /// the walk alone.
    fn walk(&mut self, fault: &Touch, view: &dyn SlotView) -> Option<Window> {
        let going = self.strides.as_mut()?.fault(fault.page)?;
        if !going.passes_over(view) {
            return None;
        }
        self.latest.walk = true;
        let (mut slots, mut count) = ([fault.slot.0; DEPTH_MAX as usize + 1], 1);
        for slot in going.next(view).filter(|&slot| slot != fault.slot) {
            slots[count] = slot.0;
            count += 1;
        }
        Some(Window::of(fault.slot, &mut slots[..count]))
    }

    /// What a walk reads when a page is touched that was read for it: one more.
    fn walk_on(&mut self, going: Going, view: &dyn SlotView) -> Option<SlotRange> {
        let next = going.next(view).next()?;
        self.latest.walk = true;
        Some(SlotRange::new(next, 1))
    }

    /// What walks and scans read when a page is touched that was read for one of them.
    fn hit_by_address(&mut self, touch: &Touch, view: &dyn SlotView) -> Option<SlotRange> {
        let going = self.strides.as_mut()?.hit(touch.page);
        if let Some(going) = going.filter(|going| going.passes_over(view)) {
            return self.walk_on(going, view);
        }
        let next = self.scans.as_mut()?.hit(touch, view)?;
        self.latest.walk = true;
        Some(next)
    }

    /// What to read from where `stream` is expected on, `most` slots at most; nothing if it is
    /// not likely to get there.
    fn ahead(&mut self, stream: &Stream, most: u32, view: &dyn SlotView) -> Option<Behind> {
        let next = stream.next?;
        if !stream.bet.is_some_and(|bet| self.learner.likely(bet)) {
            return None;
        }
        let bet = self.learner.choose(stream.run, most);
        match span::run(view, next, stream.towards, bet.slots()) {
            0 => None,
            slots => Some(Behind {
                range: stream.towards.range(next, slots),
                bet: bet.cut(slots),
                follow: span::follow(view, next, stream.towards, slots),
            }),
        }
    }

    /// Settles the bets on short streams that nothing continued for long. A longer stream may be
    /// a slow one; its bet is settled when its place is needed.
    fn judge(&mut self) {
        for stream in self.table.iter_mut().flatten() {
            if stream.continuations < BEHIND_AFTER
                && stream.stale(self.begun)
                && let Some(bet) = stream.bet.take()
            {
                self.learner.settle(bet, false);
            }
        }
    }

    /// The place for a new stream: an empty one, else that of the stream unused for longest,
    /// those continued before being spared while they are not too many.
    fn replaceable(&self) -> usize {
        let established = |stream: &Stream| stream.continuations > 0;
        let spare = self
            .table
            .iter()
            .flatten()
            .filter(|s| established(s))
            .count()
            <= ESTABLISHED_MAX;
        let age = |place: &Option<Stream>| place.map(|s| (spare && established(&s), s.used));
        (0..STREAMS)
            .min_by_key(|&i| age(&self.table[i]))
            .unwrap_or(0)
    }

    /// The stream for which `slot` was named to be read ahead.
    fn reading(&self, slot: SlotNo) -> Option<usize> {
        let reads = |stream: &Stream| stream.behind.is_some_and(|b| span::contains(b.range, slot));
        self.table
            .iter()
            .position(|stream| stream.as_ref().is_some_and(reads))
    }
}

impl ReadAhead for Streams {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn manner(&self) -> Manner {
        self.manner
    }

    fn major_fault(&mut self, fault: &Touch, view: &dyn SlotView) -> Window {
        self.clock += 1;
        if let Some(window) = self.walk(fault, view) {
            return window;
        }
        if let Some(window) = self
            .scans
            .as_mut()
            .and_then(|scans| scans.fault(fault, view))
        {
            self.latest.walk = true;
            return window;
        }
        let key = self.key.of(fault);
        match self.continued(key, fault.slot) {
            Some((i, towards)) => self.go_on(i, towards, fault.slot, view),
            None => self.begin(key, fault.slot, view),
        }
    }

    fn hit(&mut self, touch: &Touch, view: &dyn SlotView) -> Option<SlotRange> {
        self.clock += 1;
        let Some(i) = self.reading(touch.slot) else {
            return self.hit_by_address(touch, view);
        };
        let mut stream = self.table[i]?;
        let touched = stream.behind.take()?;
        let first = stream.next?;
        if let Some(bet) = stream.bet.take() {
            self.learner.settle(bet, true);
        }
        stream.continuations += 1;
        stream.continued_at = self.begun;
        stream.used = self.clock;
        stream.expect(first, touched.bet, touched.follow, view);
        let most = (stream.window * 2).min(self.max_window);
        stream.behind = self.ahead(&stream, most, view);
        if let Some(behind) = stream.behind {
            stream.window = behind.bet.slots();
        }
        self.table[i] = Some(stream);
        (self.latest.walk, self.latest.place) = (false, i);
        stream.behind.map(|behind| behind.range)
    }

    fn more(&mut self, touch: &Touch, view: &dyn SlotView) -> Option<SlotRange> {
        if !self.latest.walk {
            return None;
        }
        self.scans.as_mut()?.more(touch, view)
    }

    fn stream(&self) -> Option<StreamId> {
        let Latest { walk, place, .. } = self.latest;
        if walk {
            return None;
        }
        Some(StreamId {
            place: place as u8,
            begun: self.table[place]?.begun as u32,
        })
    }

    fn shorten(
        &mut self,
        window: &Window,
        fault: &Touch,
        most: u32,
        why: Short,
        view: &dyn SlotView,
    ) -> Window {
        let Latest {
            walk,
            place,
            run,
            bet,
        } = self.latest;
        if walk {
            return window.within(fault.slot, most);
        }
        if let (Some(stream), Some(bet)) = (&mut self.table[place], bet) {
            let slots = window.now.slots.min(most.saturating_add(1));
            if slots < window.now.slots {
                let follow = span::follow(view, fault.slot, stream.towards, slots);
                stream.run = run;
                if why == Short::InVain {
                    stream.window = slots;
                }
                stream.expect(fault.slot, bet.cut(slots), follow, view);
                stream.behind = None;
            } else {
                stream.shorten_behind(most - (slots - 1), view);
            }
        }
        window.within(fault.slot, most)
    }

    fn shorten_behind(
        &mut self,
        range: SlotRange,
        most: u32,
        view: &dyn SlotView,
    ) -> Option<SlotRange> {
        if self.latest.walk {
            return (most > 0).then_some(range);
        }
        let stream = self.table[self.latest.place].as_mut()?;
        stream.shorten_behind(most, view);
        stream.behind.map(|behind| behind.range)
    }

    fn wasted(&mut self, _: PageNo, slot: SlotNo) {
        if let Some(i) = self.reading(slot)
            && let Some(stream) = &mut self.table[i]
        {
            stream.window = (stream.window / 2).max(1);
            stream.wasted = true;
            stream.behind = None;
        }
    }
}

impl Stream {
    /// Whether a fault at `slot` continues the stream: the direction, and how many slots were
    /// passed over.
    fn goes_on_at(&self, slot: SlotNo, begun: u64) -> Option<(Direction, u32)> {
        let named = self
            .behind
            .is_some_and(|behind| span::contains(behind.range, slot));
        let beyond = if self.stale(begun) {
            0
        } else {
            (self.window / 2).max(STRIDE)
        };
        let on = self.next.and_then(|next| self.towards.distance(next, slot));
        if let Some(distance) = on.filter(|&distance| named || distance <= beyond) {
            return Some((self.towards, distance));
        }
        if self.plain == Some(slot) {
            return Some((self.towards, 0));
        }
        (self.other == Some(slot)).then_some((self.towards.opposite(), 0))
    }

    /// At most `most` slots are read behind the window.
    fn shorten_behind(&mut self, most: u32, view: &dyn SlotView) {
        let (Some(behind), Some(next)) = (self.behind, self.next) else {
            return;
        };
        let slots = behind.range.slots.min(most);
        if slots == behind.range.slots {
            return;
        }
        self.window = slots.max(1);
        self.behind = (slots > 0).then(|| Behind {
            range: self.towards.range(next, slots),
            bet: behind.bet.cut(slots),
            follow: span::follow(view, next, self.towards, slots),
        });
    }

    const fn stale(&self, begun: u64) -> bool {
        begun - self.continued_at >= STALE_AFTER
    }

    /// The window at a fault: as much of what `bet` allows as is paged out.
    fn read(&mut self, slot: SlotNo, bet: Bet, view: &dyn SlotView) -> SlotRange {
        let slots = span::run(view, slot, self.towards, bet.slots()).max(1);
        let follow = span::follow(view, slot, self.towards, slots);
        self.expect(slot, bet.cut(slots), follow, view);
        self.towards.range(slot, slots)
    }

    /// Bets that the next fault comes after the window that begins at `first`.
    ///
    /// The run of pages may go on in another place (`follow`): then that is the better bet.
    fn expect(&mut self, first: SlotNo, bet: Bet, follow: Option<SlotNo>, view: &dyn SlotView) {
        self.run = self.run.saturating_add(bet.slots());
        let end = self.towards.step(first, bet.slots());
        let (next, open) = follow.map_or_else(
            || over_gap(view, end, self.towards),
            |slot| (Some(slot), true),
        );
        self.plain = end.filter(|_| follow.is_some());
        self.next = next;
        // Where nothing is paged out no fault can tell how the run goes on.
        self.bet = open.then_some(bet);
    }
}

/// The first paged-out slot from `from` on, across a small gap, and whether there is one;
/// without one, `from` itself.
fn over_gap(
    view: &dyn SlotView,
    from: Option<SlotNo>,
    towards: Direction,
) -> (Option<SlotNo>, bool) {
    let Some(first) = from else {
        return (None, false);
    };
    let slots = (0..=GAP_MAX).filter_map(|n| towards.step(first, n));
    match slots
        .into_iter()
        .find(|&slot| view.paged_out(slot).is_some())
    {
        Some(slot) => (Some(slot), true),
        None => (from, false),
    }
}
