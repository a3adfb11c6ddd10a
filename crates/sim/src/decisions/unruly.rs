//! Threads that touch pages in several orders, and a store that fails, is late and answers in any order.
//!
//! Whatever happens is said by the run's number, the page or transfer it happens to and how often it
//! happened to it, never by how many actions there were: so it is the same however actions are made up.

use std::collections::{HashMap, HashSet};

use outpage_core::contract::{
    Access, Action, ActionId, Event, IoFailure, Outcome, PageList, PageOutcome, Refusal, Source,
    Waiter,
};
use outpage_core::limits::FRAMES_MIN;
use outpage_core::page::ContentHash;
use outpage_core::pager::Pager;
use outpage_core::record::Decisions;
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};

use super::cases::Unruly;
use super::ceiling::Ceiling;
use super::pool::Pool;
use crate::seed::mix;

/// Slots that the store grows by, as the live one does by extents.
const EXTENT_SLOTS: u32 = 256;
/// Ticks in a row without a thread that goes on, after which a run is over: its store is full, or every
/// page is refused.
const TICKS_MAX: u32 = 40;

/// What is chosen, so that the choices for one thing do not depend on those for another.
#[derive(Clone, Copy)]
enum Choice {
    Step = 1,
    Order,
    Write,
    Refuse,
    Late,
    Fail,
    Damage,
    BadSlot,
    Range,
}

/// Where pages are on their way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Read,
    Write,
    /// Into the pool, which may grow by so many frames.
    Compress(u32),
    Decompress,
}

/// A transfer under way.
struct Flight {
    due: u64,
    nth: u64,
    id: ActionId,
    way: Way,
    pages: PageList,
    slots: SlotRange,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    touches: u64,
    /// What it is about to touch.
    next: Option<(PageNo, bool)>,
    waits: bool,
}

struct Body<'a> {
    case: &'a Unruly,
    pager: Pager,
    decisions: Decisions,
    now: u64,
    /// What every page holds that does not hold zeroes, by what the threads wrote.
    truth: HashMap<PageNo, u64>,
    mapped: HashMap<PageNo, u64>,
    staged: HashMap<PageNo, u64>,
    lost: HashSet<PageNo>,
    store: HashMap<SlotNo, u64>,
    pool: Pool,
    ceiling: Ceiling,
    limit: usize,
    /// Times that a page was to be moved.
    moves: HashMap<PageNo, u64>,
    flights: Vec<Flight>,
    transfers: u64,
    threads: Vec<Thread>,
    granted: u32,
    /// Extents that the pager gave up: the next ones that it gets.
    given_up: Vec<SlotRange>,
    adopted: u64,
}

/// The decisions of a run.
pub(super) fn decisions(case: &Unruly) -> Decisions {
    let mut body = Body {
        case,
        pager: Pager::new(case.setup()),
        decisions: Decisions::new(),
        now: 0,
        truth: HashMap::new(),
        mapped: HashMap::new(),
        staged: HashMap::new(),
        lost: HashSet::new(),
        store: HashMap::new(),
        pool: Pool::default(),
        ceiling: Ceiling::new(case.frames),
        limit: case.frames,
        moves: HashMap::new(),
        flights: Vec::new(),
        transfers: 0,
        threads: vec![Thread::default(); case.threads as usize],
        granted: 0,
        given_up: Vec::new(),
        adopted: 0,
    };
    body.run();
    body.decisions
}

fn page(object: u32, index: u64) -> PageNo {
    PageNo::new(ObjectId(object), index)
}

fn hash_of(content: u64) -> ContentHash {
    ContentHash([content as u32, (content >> 32) as u32, 1])
}

impl Body<'_> {
    fn choice(&self, what: Choice, nth: u64) -> u64 {
        mix(mix(self.case.seed, what as u64), nth)
    }

    fn happens(&self, what: Choice, nth: u64, permille: u64) -> bool {
        self.choice(what, nth) % 1000 < permille
    }

    fn run(&mut self) {
        for step in 0..self.case.touches {
            self.now += 2_000 + self.choice(Choice::Step, step) % 3_000;
            self.end_due();
            let who = (self.choice(Choice::Order, step) % self.threads.len() as u64) as usize;
            if !self.can_run(who) {
                return;
            }
            self.go_on(who);
            if step % 500 == 499 {
                self.range_event(step / 500);
            }
            if step % 200 == 199 {
                self.tell(Event::Tick);
            }
        }
        while !self.flights.is_empty() {
            self.end_next();
        }
    }

    /// Waits until thread `who` can run; false if it never can.
    fn can_run(&mut self, who: usize) -> bool {
        for _ in 0..TICKS_MAX {
            while self.threads[who].waits && !self.flights.is_empty() {
                self.end_next();
            }
            if !self.threads[who].waits {
                return true;
            }
            self.now += 100_000_000;
            self.tell(Event::Tick);
        }
        false
    }

    /// The thread touches the page that it waited for, or the next one.
    fn go_on(&mut self, who: usize) {
        let (page, writes) = self.threads[who]
            .next
            .unwrap_or_else(|| self.next_touch(who));
        if !self.mapped.contains_key(&page) && !self.lost.contains(&page) {
            self.threads[who].next = Some((page, writes));
            return self.fault(who, page, writes);
        }
        let nth = self.threads[who].touches * 64 + who as u64;
        self.threads[who].next = None;
        self.threads[who].touches += 1;
        let Some(content) = self.mapped.get_mut(&page) else {
            return;
        };
        let expected = self.truth.get(&page).copied().unwrap_or(0);
        assert_eq!(*content, expected, "{page:?} has another content");
        if writes {
            // Now and then zeroes, which need no slot.
            let written = if nth.is_multiple_of(19) { 0 } else { nth + 1 };
            *content = written;
            self.truth.insert(page, written);
        }
    }

    /// In order, back, with a stride, at random, in runs, or a few pages again and again.
    fn next_touch(&self, who: usize) -> (PageNo, bool) {
        let (n, pages) = (self.threads[who].touches, self.case.pages);
        let key = n * 64 + who as u64;
        let random = self.choice(Choice::Order, !key);
        let phase = n / 700 + who as u64;
        let index = match (phase + self.case.seed) % 6 {
            0 => n % pages,
            1 => pages - 1 - n % pages,
            2 => n * 3 % pages,
            3 => random % pages,
            4 => (self.choice(Choice::Order, !(n / 16 * 64)) + n % 16) % pages,
            _ if random.is_multiple_of(8) => (random >> 8) % pages,
            _ => (random >> 8) % (pages / 6),
        };
        (page(1, index), self.happens(Choice::Write, key, 400))
    }

    fn fault(&mut self, who: usize, page: PageNo, writes: bool) {
        self.threads[who].waits = true;
        self.tell(Event::Fault {
            page,
            access: if writes { Access::Write } else { Access::Read },
            waiter: Waiter(who as u32),
            source: Source(who as u32),
            extent: PageRange::new(self::page(1, 0), self.case.pages),
        });
    }

    /// Something happens to a range, or to the process.
    fn range_event(&mut self, nth: u64) {
        let chosen = self.choice(Choice::Range, nth);
        let start = (chosen >> 8) % self.case.pages;
        let pages = (1 + (chosen >> 40) % 60).min(self.case.pages - start);
        let range = PageRange::new(page(1, start), pages);
        match chosen % 7 {
            0 => self.drop_range(range, Event::Discard(range)),
            1 => self.drop_range(range, Event::Unmap(range)),
            2 => self.limit(FRAMES_MIN.max(self.case.frames * 9 / 10)),
            3 => self.limit(self.case.frames),
            4 => self.adopt(pages),
            5 => self.fork(chosen >> 63 == 1),
            _ => self.tell(Event::ChildrenGone),
        }
    }

    fn drop_range(&mut self, range: PageRange, event: Event<'_>) {
        let touches = |flight: &Flight| flight.pages.iter().any(|&page| range.contains(page));
        while self.flights.iter().any(touches) {
            self.end_next();
        }
        for page in range.iter() {
            self.mapped.remove(&page);
            self.truth.remove(&page);
            self.lost.remove(&page);
        }
        self.tell(event);
    }

    fn adopt(&mut self, pages: u64) {
        let range = PageRange::new(page(2, self.adopted), pages);
        self.adopted += pages;
        for page in range.iter() {
            self.mapped.insert(page, page.raw());
            self.truth.insert(page, page.raw());
        }
        let held = self.frames() + self.pager.frames_aside();
        self.ceiling.adopted(pages as usize, held);
        self.tell(Event::Adopt(range));
    }

    fn limit(&mut self, frames: usize) {
        self.limit = frames;
        self.ceiling.frames = self.ceiling.frames.max(frames);
        self.tell(Event::Limit(frames));
    }

    /// Frames in use, those of the pool among them.
    fn frames(&self) -> usize {
        let takes = |flight: &&Flight| matches!(flight.way, Way::Read | Way::Decompress);
        let taking = self.flights.iter().filter(takes);
        let taking: usize = taking.map(|flight| flight.pages.len()).sum();
        self.mapped.len() + self.staged.len() + taking + self.pool.frames()
    }

    fn check_frames(&self) {
        let frames = self.frames();
        assert!(
            frames <= self.ceiling.frames,
            "{frames} of {} frames",
            self.ceiling.frames
        );
    }

    /// All that the pager asked for was done: it may not take again what it gave up, but for a fourth of it. Before, what it counts is ahead of what was done.
    fn lower_ceiling(&mut self) {
        let frames = self.frames();
        // What the pool was granted, or is set aside for it, is its own though it is not used yet.
        let used = self.pager.frames_used();
        let held = (frames + self.pager.frames_aside()).max(used);
        let rests = self.now < self.ceiling.rests_until;
        self.ceiling.lower(used, held, self.limit, rests);
    }

    /// The run goes on in the child or in the parent.
    fn fork(&mut self, in_child: bool) {
        self.end_all();
        self.tell(Event::Forking);
        self.end_all();
        if in_child {
            self.threads
                .iter_mut()
                .for_each(|thread| thread.waits = false);
            // The pager's tenth of a second, and the times of the events until it begins.
            self.ceiling.rests_until = self.now + 101_000_000;
            self.tell(Event::Forked);
        }
    }

    fn end_all(&mut self) {
        while !self.flights.is_empty() {
            self.end_next();
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.now += 1;
        self.pager.handle(Nanos(self.now), event);
        while let Some(action) = self.pager.poll_action() {
            self.act(action);
            self.check_frames();
        }
        self.lower_ceiling();
    }

    fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.now += 1;
        let done = Event::Done { id, outcome };
        self.pager.handle(Nanos(self.now), done);
    }

    fn act(&mut self, action: Action) {
        self.decisions.action(&action);
        match action {
            Action::ZeroFill { id, run, .. } => self.each(id, run, Self::zero_fill),
            Action::Map { id, run, .. } => self.each(id, run, Self::map),
            Action::Detach { id, run, .. } => self.each(id, run, Self::detach),
            Action::PageIn {
                id, slots, pages, ..
            } => self.begin(id, Way::Read, pages, slots),
            Action::PageOut {
                id, slots, pages, ..
            } => self.begin(id, Way::Write, pages, slots),
            Action::Compress {
                id,
                slots,
                pages,
                grant,
                ..
            } => self.begin(id, Way::Compress(grant), pages, slots),
            Action::Decompress {
                id, slots, pages, ..
            } => self.begin(id, Way::Decompress, pages, slots),
            Action::Release { id, pages, .. } => {
                for page in pages.iter() {
                    let content = self.staged.remove(page);
                    assert!(content.is_some(), "{page:?} has no frame");
                }
                self.done(id, Outcome::Done);
            }
            Action::Poison { id, page } => {
                self.lost.insert(page);
                self.truth.remove(&page);
                self.done(id, Outcome::Done);
            }
            Action::Dead { id, slots, .. } if slots.start.is_pooled() => {
                self.pool.forget(slots);
                self.pooled(id, Outcome::Done);
            }
            // It takes no time: what is decided afterwards is the same without it.
            Action::Dead { id, .. } => {
                let outcome = Outcome::Done;
                let done = Event::Done { id, outcome };
                self.pager.handle(Nanos(self.now), done);
            }
            Action::Drop { .. } => unreachable!("no thread here frees"),
            Action::Wake { waiter, .. } => self.threads[waiter.0 as usize].waits = false,
            Action::Grow { .. } => self.grow(),
            Action::Shrink { slots, .. } => self.given_up.push(slots),
            Action::TakenBack { .. } | Action::Exhausted { .. } => {}
        }
    }

    fn each(&mut self, id: ActionId, run: PageRange, act: fn(&mut Self, PageNo) -> PageOutcome) {
        let outcomes: Vec<_> = run.iter().map(|page| act(self, page)).collect();
        self.done(id, Outcome::Pages(&outcomes));
    }

    /// Whether moving the page is refused this time.
    fn refuses(&mut self, page: PageNo) -> bool {
        let nth = self.moves.entry(page).or_default();
        *nth += 1;
        let nth = page.raw().wrapping_mul(1 << 20) + *nth;
        self.happens(Choice::Refuse, nth, self.case.refusals)
    }

    fn zero_fill(&mut self, page: PageNo) -> PageOutcome {
        if self.refuses(page) {
            return PageOutcome::Refused(Refusal::Busy);
        }
        self.mapped.insert(page, 0);
        PageOutcome::Done
    }

    fn map(&mut self, page: PageNo) -> PageOutcome {
        if self.refuses(page) {
            return PageOutcome::Refused(Refusal::Busy);
        }
        let content = self.staged.remove(&page).expect("a staged page is mapped");
        self.mapped.insert(page, content);
        PageOutcome::Done
    }

    fn detach(&mut self, page: PageNo) -> PageOutcome {
        let refused = self.refuses(page);
        if refused && !self.moves[&page].is_multiple_of(4) {
            return PageOutcome::Refused(Refusal::Busy);
        }
        let content = self
            .mapped
            .remove(&page)
            .expect("a mapped page is detached");
        if refused {
            self.truth.remove(&page);
            return PageOutcome::Refused(Refusal::Absent);
        }
        self.staged.insert(page, content);
        PageOutcome::Detached {
            hash: hash_of(content),
            zero: content == 0,
        }
    }

    fn grow(&mut self) {
        let slots = EXTENT_SLOTS.min(self.case.slots_max - self.granted);
        let range = self.given_up.pop().unwrap_or_else(|| {
            let fresh = SlotRange::new(SlotNo(self.granted), slots);
            self.granted += slots;
            fresh
        });
        let event = if range.slots == 0 {
            Event::Full
        } else {
            Event::Grown(range)
        };
        self.pager.handle(Nanos(self.now), event);
    }

    fn begin(&mut self, id: ActionId, way: Way, pages: PageList, slots: SlotRange) {
        if matches!(way, Way::Write | Way::Compress(_)) {
            let staged = pages.iter().map(|page| hash_of(self.staged[page]));
            assert!(staged.eq(pages.hashes().iter().copied()), "{id:?}");
        }
        let nth = self.transfers;
        self.transfers += 1;
        let takes = match way {
            Way::Read | Way::Write => 50_000 + self.choice(Choice::Late, nth) % 400_000,
            // A page takes a few microseconds, and others' may go first.
            _ => 2_000 + self.choice(Choice::Late, nth) % 40_000,
        };
        self.flights.push(Flight {
            due: self.now + takes,
            nth,
            id,
            way,
            pages,
            slots,
        });
    }

    fn end_due(&mut self) {
        while self.flights.iter().any(|flight| flight.due <= self.now) {
            self.end_next();
        }
    }

    /// The transfer that is due first ends.
    fn end_next(&mut self) {
        let due = self.flights.iter().enumerate();
        let next = due.min_by_key(|(_, flight)| (flight.due, flight.nth));
        let at = next.expect("something is under way").0;
        let flight = self.flights.swap_remove(at);
        self.now = self.now.max(flight.due);
        match flight.way {
            Way::Read => self.read(&flight),
            Way::Write => self.written(&flight),
            Way::Compress(grant) => self.compressed(&flight, grant as usize),
            Way::Decompress => self.decompressed(&flight),
        }
        while let Some(action) = self.pager.poll_action() {
            self.act(action);
            self.check_frames();
        }
        self.lower_ceiling();
    }

    /// The answer to what changed the pool.
    fn pooled(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.now += 1;
        let frames = Event::Pooled(self.pool.frames());
        self.pager.handle(Nanos(self.now), frames);
        self.done(id, outcome);
    }

    fn compressed(&mut self, flight: &Flight, grant: usize) {
        let frames_max = self.pool.frames() + grant;
        let kept = flight.pages.iter().zip(flight.slots.iter());
        let kept = kept.map(|(page, slot)| self.pool.keep(slot, self.staged[page], frames_max));
        let outcomes: Vec<_> = kept.collect();
        self.pooled(flight.id, Outcome::Pages(&outcomes));
    }

    fn decompressed(&mut self, flight: &Flight) {
        let mut outcomes = Vec::new();
        for (nth, (&page, slot)) in (0..).zip(flight.pages.iter().zip(flight.slots.iter())) {
            let content = self.pool.take(slot);
            let expected = flight.pages.hashes()[nth as usize];
            assert_eq!(hash_of(content), expected, "{page:?} has another content");
            // RAM that fails: the page is lost.
            let key = flight.nth * 1024 + nth;
            if self.happens(Choice::Damage, key, self.case.read_failures / 20) {
                outcomes.push(PageOutcome::Refused(Refusal::Damaged));
                continue;
            }
            self.staged.insert(page, content);
            outcomes.push(PageOutcome::Done);
        }
        self.pooled(flight.id, Outcome::Pages(&outcomes));
    }

    fn written(&mut self, flight: &Flight) {
        if self.happens(Choice::Fail, flight.nth, self.case.write_failures) {
            let full = flight.nth.is_multiple_of(4);
            let why = if full {
                IoFailure::NoSpace
            } else {
                IoFailure::Device
            };
            return self.done(flight.id, Outcome::Failed(why));
        }
        for (page, slot) in flight.pages.iter().zip(flight.slots.iter()) {
            self.store.insert(slot, self.staged[page]);
        }
        self.done(flight.id, Outcome::Done);
    }

    fn read(&mut self, flight: &Flight) {
        let bad = |slot: SlotNo| self.happens(Choice::BadSlot, slot.0.into(), self.case.bad_slots);
        let fails = self.happens(Choice::Fail, flight.nth, self.case.read_failures);
        if fails || flight.slots.iter().any(bad) {
            return self.done(flight.id, Outcome::Failed(IoFailure::Device));
        }
        let mut outcomes = Vec::new();
        for (nth, (&page, slot)) in (0..).zip(flight.pages.iter().zip(flight.slots.iter())) {
            let key = flight.nth * 1024 + nth;
            let damaged = self.happens(Choice::Damage, key, self.case.read_failures / 10);
            let content = if damaged { u64::MAX } else { self.store[&slot] };
            let intact = hash_of(content) == flight.pages.hashes()[nth as usize];
            assert_eq!(intact, !damaged, "{page:?} has another content in {slot:?}");
            if intact {
                self.staged.insert(page, content);
            }
            outcomes.push(match intact {
                true => PageOutcome::Done,
                false => PageOutcome::Refused(Refusal::Damaged),
            });
        }
        self.done(flight.id, Outcome::Pages(&outcomes));
    }
}
