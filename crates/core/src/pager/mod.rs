//! The pager: when things happen.
//!
//! Feed it with [`Pager::handle`], then carry out what [`Pager::poll_action`] hands out until it
//! is empty. The pager does nothing by itself.

mod admit;
mod daemon;
mod evict;
mod fault;
mod govern;
mod ops;
mod pace;
mod parts;
mod range;
#[cfg(test)]
mod tests;
mod transfer;
mod view;
mod waits;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::contract::{Access, Action, ActionId, Body, Event, Outcome};
use crate::limits::Limits;
use crate::page::{Bit, DIRTY, PageId, Pages, Queue, State};
use crate::pageout::{Chunk, PageOut};
use crate::readahead::{Govern, Governor, Manner, ReadAhead};
use crate::reclaim::bsd::Daemon;
use crate::reclaim::{Policy, Reclaim, SecondChance};
use crate::slot_pool::SlotPool;
use crate::slots::{Placed, Slots};
use crate::stats::Stats;
use crate::swap_cache::Objects;
use crate::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};
use daemon::Flush;
use fault::Demand;
use ops::{Kind, Ops};
use view::View;
use waits::Waits;

/// What a pager is made of.
pub struct Setup {
    /// Which pages leave.
    pub reclaim: Policy,
    /// How victims are grouped.
    pub pageout: Box<dyn PageOut>,
    /// What else comes back.
    pub readahead: Box<dyn ReadAhead>,
    /// Where victims go: makes the slot allocator.
    pub slots: fn(u32) -> Box<dyn Slots>,
    /// RAM, in frames.
    pub frames: usize,
    /// The most slots the store can ever have.
    pub slots_max: u32,
    /// The most pages of one zero-fill, 1 for no fault-around.
    pub zero_around: u32,
    /// Staged neighbours that come along when a page is rescued.
    pub rescue_around: u32,
    /// What the body can tell.
    pub body: Body,
}

/// The most pages that one [`Action::Map`] or [`Action::Detach`] names.
pub const RUN_PAGES_MAX: u64 = 256;
/// The most pages below a run of which an action says that the program does not have them: as many as the live
/// body passes over to move two runs in one call (`engine/world/spread.rs` has what that costs).
pub const ABSENT_MAX: u64 = 3;
/// Writes in flight at once; BSD allows 4 (`nsw_wcount_async`), today's devices profit from more.
pub const WRITES_MAX: usize = 8;

/// What is known of a page beside its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The queue it is on.
    pub queue: Queue,
    /// Its slot, or `SlotNo::NONE`.
    pub slot: SlotNo,
    /// Its age, under a daemon.
    pub age: u8,
    /// It differs from its slot, or has none.
    pub dirty: bool,
    /// The program can read it ([`Bit::Mapped`]).
    pub mapped: bool,
    /// The program can write it, if it is mapped ([`Bit::Writable`]).
    pub writable: bool,
    /// Touched through its mapping ([`Bit::Referenced`]).
    pub referenced: bool,
    /// A reference was noted ([`Bit::Noted`]).
    pub noted: bool,
    /// Met dirty before ([`Bit::Seen`]).
    pub seen: bool,
}

/// The brain. Deterministic: equal events give equal actions.
pub struct Pager {
    pages: Pages,
    slots: SlotPool,
    reclaim: Box<dyn Reclaim>,
    pageout: Box<dyn PageOut>,
    readahead: Box<dyn ReadAhead>,
    manner: Manner,
    /// Says how much of what `readahead` names is read; `None` for all of it, and under a daemon.
    governor: Option<Box<Governor>>,
    limits: Limits,
    /// The most pages of a write.
    buffer: u32,
    zero_around: fault::ZeroAround,
    rescue_around: u32,
    ops: Ops,
    writes: usize,
    actions: VecDeque<Action>,
    waits: Waits,
    ready: Chunk,
    placed: Vec<Placed>,
    scratch: Vec<PageId>,
    growing: bool,
    pace: pace::Pace,
    swap_full: bool,
    search: evict::Search,
    /// Somebody who waited for a frame got one since the last tick.
    served: bool,
    write_failures_in_a_row: u32,
    stats: Stats,
    objects: Objects,
    /// The policy, when it drives itself; then `reclaim` has nothing to say.
    daemon: Option<Box<Daemon>>,
    /// The time of the last event.
    now: Nanos,
    /// Under a daemon: the chunk on its way, and the objects that were paged out once.
    flush: Flush,
    swap_objects: BTreeSet<ObjectId>,
}

impl Pager {
    /// A pager with no pages.
    ///
    /// # Panics
    /// When `frames` is below [`crate::limits::FRAMES_MIN`], or the policy needs bits that the body
    /// does not have ([`crate::reclaim::offered`] says which do).
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let buffer = setup.pageout.buffer_pages();
        assert!(
            setup.body.bits || !setup.reclaim.needs_referenced(),
            "the reclaim policy needs a body with bits"
        );
        let (reclaim, daemon): (Box<dyn Reclaim>, _) = match setup.reclaim {
            Policy::Driven(policy) => (policy, None),
            Policy::Daemon(params) => {
                let daemon = Daemon::new(params, setup.frames);
                (Box::new(SecondChance), Some(Box::new(daemon)))
            }
        };
        let manner = setup.readahead.manner();
        let mut pages = if setup.body.bits {
            Pages::with_bits(daemon.is_some())
        } else {
            Pages::new()
        };
        pages.reserve(256);
        Self {
            pages,
            slots: SlotPool::new(setup.slots_max, setup.slots),
            limits: Limits::new(setup.frames, buffer as usize),
            buffer,
            zero_around: fault::ZeroAround::new(setup.zero_around),
            rescue_around: setup.rescue_around,
            reclaim,
            ready: Chunk::with_capacity(buffer),
            pageout: setup.pageout,
            governor: (manner.govern == Govern::On && daemon.is_none())
                .then(|| Box::new(Governor::new(setup.frames))),
            manner,
            readahead: setup.readahead,
            ops: Ops::new(),
            writes: 0,
            actions: VecDeque::with_capacity(256),
            waits: Waits::new(),
            placed: Vec::with_capacity(64),
            scratch: Vec::with_capacity(2048),
            growing: false,
            pace: pace::Pace::default(),
            swap_full: false,
            search: evict::Search::Idle,
            served: false,
            write_failures_in_a_row: 0,
            stats: Stats::default(),
            objects: Objects::default(),
            daemon,
            now: Nanos(0),
            flush: Flush::default(),
            swap_objects: BTreeSet::new(),
        }
    }

    /// Takes in what happened at `now`; what follows from it comes out of [`Self::poll_action`].
    ///
    /// # Panics
    /// On a programmer's error: an answer to no question, a range with unanswered actions unmapped. See [`Self::admits`].
    #[inline]
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        if self.daemon.is_some() {
            return self.handle_under_daemon(now, event);
        }
        self.now = now;
        match event {
            Event::Fault {
                page,
                access,
                waiter,
                source,
                extent,
            } => {
                let demand = Demand {
                    page,
                    access,
                    waiter,
                    source,
                    extent,
                    retried: false,
                };
                self.fault(now, &demand);
            }
            Event::Done { id, outcome } => self.done(id, outcome),
            event => self.handle_other(event),
        }
        self.follow_up(now);
    }

    /// All but faults and answers.
    fn handle_other(&mut self, event: Event<'_>) {
        match event {
            Event::Fault { .. } | Event::Done { .. } => unreachable!("handled before"),
            Event::Adopt(range) => self.adopt(range),
            Event::Unmap(range) | Event::Discard(range) => self.discard(range),
            Event::Grown(range) => {
                self.add_slots(range);
                (self.growing, self.swap_full) = (false, false);
            }
            Event::Full => (self.growing, self.swap_full) = (false, true),
            Event::Limit(frames) => {
                self.limits = Limits::new(frames, self.buffer as usize);
                if let Some(governor) = &mut self.governor {
                    governor.resize(frames);
                }
            }
            Event::Forking => self.slots.keep_for_child(&self.pages),
            Event::Forked => self.forked(),
            Event::ChildrenGone => {
                self.slots.children_gone();
                self.swap_full = false;
            }
            Event::Tick => self.tick(),
            Event::Timer => {}
        }
    }

    /// What follows every event.
    fn follow_up(&mut self, now: Nanos) {
        if !self.balanced() {
            self.settle_down(now);
        }
        self.stats.frames_peak = self.stats.frames_peak.max(self.frames_used() as u64);
    }

    /// Serves who waits for a frame and brings the queues back to their watermarks.
    #[inline(never)]
    fn settle_down(&mut self, now: Nanos) {
        loop {
            self.retry_pending(now);
            self.balance();
            // Balancing may have found the frame that somebody waits for.
            if self.waits.frames() == 0 || self.room(1) == 0 {
                break;
            }
        }
    }

    /// The next thing to do; `None` when all is done for now.
    #[inline]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Touches the pages of `run` one after the other, until one needs an [`Event::Fault`]; returns
    /// how many needed none. Sets their referenced bits, and their modified bits on writes.
    ///
    /// # Panics
    /// When the body has no bits.
    pub fn touch(&mut self, run: PageRange, access: Access) -> u64 {
        self.pages.touch(run, access)
    }

    /// How many pages of `run` [`Self::touch`] would touch.
    ///
    /// # Panics
    /// When the body has no bits.
    #[must_use]
    pub fn touchable(&self, run: PageRange, access: Access) -> u64 {
        self.pages.touchable(run, access)
    }

    /// When the pager wants an [`Event::Timer`] at the latest; `None` for as long as nothing else
    /// happens. To be asked again after every event.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.daemon.as_ref().and_then(|daemon| daemon.deadline())
    }

    /// The daemon, if the reclaim policy is one: its levels, pass and counters.
    #[must_use]
    pub fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_deref()
    }

    /// Pages on `queue`.
    #[must_use]
    pub fn queued(&self, queue: Queue) -> usize {
        self.pages.queued(queue)
    }

    /// What is known of the page beside its state; `None` if it is untouched.
    #[must_use]
    pub fn place_of(&self, page: PageNo) -> Option<Place> {
        let id = self.pages.find(page)?;
        Some(Place {
            queue: self.pages.queue(id),
            slot: self.pages.slot(id),
            age: self.pages.age(id),
            dirty: self.pages.has(id, DIRTY) || self.pages.bit(id, Bit::Modified),
            mapped: self.pages.bit(id, Bit::Mapped),
            writable: self.pages.bit(id, Bit::Writable),
            referenced: self.pages.bit(id, Bit::Referenced),
            noted: self.pages.bit(id, Bit::Noted),
            seen: self.pages.bit(id, Bit::Seen),
        })
    }

    /// Whether an unanswered action touches `range`. The body answers it before it reports `Unmap` or `Discard`.
    #[must_use]
    pub fn busy(&self, range: PageRange) -> bool {
        let overlaps = |run: PageRange| {
            run.start.raw() < range.start.raw() + range.pages
                && range.start.raw() < run.start.raw() + run.pages
        };
        self.ops.iter().any(|op| match op.kind {
            Kind::Free => false,
            Kind::ZeroFill | Kind::Map | Kind::Detach | Kind::Poison => overlaps(op.run),
            Kind::PageIn | Kind::PageOut | Kind::Release => {
                op.pages().iter().any(|&p| range.contains(p))
            }
        })
    }

    /// Makes room for the next touches, away from the fault path: allocates nothing for the next
    /// 64 leaves (4096 neighbouring pages) after it.
    pub fn replenish(&mut self) {
        self.pages.reserve(64);
    }

    /// Unanswered actions.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.ops.unanswered()
    }

    /// The page's state.
    #[must_use]
    pub fn state(&self, page: PageNo) -> State {
        self.pages.state_of(page)
    }

    /// Pages in `state`.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.pages.count(state)
    }

    /// Frames in use.
    #[must_use]
    pub fn frames_used(&self) -> usize {
        self.pages.framed()
    }

    /// Frames that may still be used.
    #[must_use]
    pub fn frames_free(&self) -> usize {
        self.limits.frames.saturating_sub(self.frames_used())
    }

    /// The watermarks.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Calls `visit` with every staged page.
    pub fn each_staged(&self, visit: &mut dyn FnMut(PageNo)) {
        self.pages.in_state(State::Staged, visit);
    }

    /// Slots in use.
    #[must_use]
    pub const fn slots_used(&self) -> usize {
        self.slots.used()
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What read-ahead did for each memory object.
    #[must_use]
    pub const fn objects(&self) -> &Objects {
        &self.objects
    }

    /// See [`Objects::take_changed`].
    pub const fn take_changed_objects(&mut self) -> u64 {
        self.objects.take_changed()
    }

    /// Bytes of heap for the state of pages and slots.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pages.heap_bytes() + self.slots.heap_bytes()
    }

    #[inline]
    fn start(&mut self, kind: Kind, run: PageRange) -> ActionId {
        self.ops.start(kind, run, self.now)
    }

    /// The page signals from now on: whoever waits for it goes on.
    fn poisoned(&mut self, op: ActionId) {
        self.wake(self.ops[op].run.start);
    }

    fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        let kind = self.ops[id].kind;
        match (kind, outcome) {
            (Kind::ZeroFill, Outcome::Pages(o)) => self.mapped(id, o, true),
            (Kind::Map, Outcome::Pages(o)) => self.mapped(id, o, false),
            (Kind::Detach, Outcome::Pages(o)) => self.detached(id, o),
            (Kind::PageIn, Outcome::Pages(o)) => self.paged_in(id, Some(o)),
            (Kind::PageIn, Outcome::Done) => self.paged_in(id, None),
            (Kind::PageIn, Outcome::Failed(_)) => self.page_in_failed(id),
            (Kind::PageOut, Outcome::Done) => self.paged_out(id),
            (Kind::PageOut, Outcome::Failed(why)) => self.page_out_failed(id, why),
            (Kind::Release, Outcome::Done) => {}
            (Kind::Poison, Outcome::Done) => self.poisoned(id),
            (kind, outcome) => panic!("{outcome:?} does not answer {kind:?}"),
        }
        self.ops.finish(id);
    }

    fn add_slots(&mut self, range: SlotRange) {
        self.slots.add(range);
        self.pages.add_slots(range);
    }

    /// The page, which has an entry because an action or a policy holds it.
    #[inline]
    fn known(&self, page: PageNo) -> PageId {
        self.pages.place(page).expect("a page in hand has an entry")
    }

    fn is_awaited(&self, page: PageNo) -> bool {
        self.waits.is_awaited(page)
    }

    /// Lets everybody who waits for `page` go on, after what is to be done already.
    fn wake(&mut self, page: PageNo) {
        while let Some(waiter) = self.waits.take(page) {
            self.actions.push_back(Action::Wake { waiter, page });
        }
    }

    /// Lets everybody who waits for `page`, which is mapped, go on before anything else is done.
    fn wake_first(&mut self, page: PageNo) {
        while let Some(waiter) = self.waits.take(page) {
            self.actions.push_front(Action::Wake { waiter, page });
        }
    }

    /// In the forked child: nobody waits, the slots are the parent's.
    fn forked(&mut self) {
        assert!(self.ops.unanswered() == 0, "forked with unanswered actions");
        self.waits.forget();
        self.actions.clear();
        self.slots.disown();
        (self.growing, self.swap_full) = (false, false);
        self.stats = Stats::default();
        self.objects = Objects::default();
    }
}
