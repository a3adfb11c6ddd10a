//! The pager: when things happen.
//!
//! Feed it with [`Pager::handle`], then carry out what [`Pager::poll_action`] hands out until it
//! is empty. The pager does nothing by itself.
//!
//! What it knows is in a ledger (`ledger.rs`); what it does is up to one of two drivers: watermarks after every event
//! (`watermarks.rs`), or FreeBSD's page daemon (`daemon.rs`).

mod admit;
mod advised;
mod ahead;
mod daemon;
mod discarding;
mod drops;
mod ledger;
mod ops;
mod parts;
mod range;
mod room;
mod streams;
#[cfg(test)]
mod tests;
mod tiering;
mod view;
mod waits;
mod watermarks;

use alloc::boxed::Box;

use crate::contract::{Access, Action, Body, Event, Outcome};
use crate::discard::Discard;
use crate::limits::Limits;
use crate::page::{Bit, DIRTY, Pages, Queue, State};
use crate::pageout::PageOut;
use crate::readahead::ReadAhead;
use crate::reclaim::Policy;
use crate::reclaim::bsd::Daemon;
use crate::refaults::Refaults;
use crate::slot_pool::SlotPool;
use crate::slots::Slots;
use crate::stats::Stats;
use crate::swap_cache::Objects;
use crate::tier::Tier;
use crate::units::{Nanos, PageNo, PageRange, SlotNo};
use ahead::Ahead;
use daemon::PageDaemon;
use discarding::Discarding;
use ledger::{Ledger, departed};
use ops::Kind;
use tiering::Tiering;
use watermarks::{Around, Watermarks};

/// What a pager is made of.
pub struct Setup {
    /// Which pages leave.
    pub reclaim: Policy,
    /// How victims are grouped.
    pub pageout: Box<dyn PageOut>,
    /// What else comes back.
    pub readahead: Box<dyn ReadAhead>,
    /// Which slots pages get in the store: makes the slot allocator.
    pub slots: fn(u32) -> Box<dyn Slots>,
    /// Which victims are kept compressed in RAM; `None` where the body has no pool for them.
    pub tier: Option<Box<dyn Tier>>,
    /// When discardable pages are dropped; `None` where marks are not kept.
    pub discard: Option<Box<dyn Discard>>,
    /// RAM, in frames.
    pub frames: usize,
    /// The most slots the store can ever have, and places a pool of compressed pages.
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
    /// Where that is a place of the pool, the slot of the store that has the same, or `SlotNo::NONE`.
    pub stored: SlotNo,
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

/// Who decides when: chosen once, by the reclaim policy.
enum Driver {
    /// Watermarks, after every event.
    Watermarks(Watermarks),
    /// A daemon that is woken.
    Daemon(PageDaemon),
}

impl Driver {
    fn replenish(&mut self, pages: &Pages) {
        match self {
            Self::Watermarks(driver) => driver.replenish(pages),
            // It remembers nothing beside the pages.
            Self::Daemon(_) => {}
        }
    }
}

/// The brain. Deterministic: equal events give equal actions.
pub struct Pager {
    ledger: Ledger,
    driver: Driver,
}

impl Pager {
    /// A pager with no pages.
    ///
    /// # Panics
    /// When `frames` is below [`crate::limits::FRAMES_MIN`], the policy needs bits that the body
    /// does not have ([`crate::reclaim::offered`] says which do), or a daemon is given a tier or a discard policy.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        assert!(
            setup.body.bits || !setup.reclaim.needs_referenced(),
            "the reclaim policy needs a body with bits"
        );
        assert!(setup.slots_max <= SlotNo::POOL_START.0, "slots of the pool");
        let limits = Limits::new(setup.frames, setup.pageout.buffer_pages() as usize);
        let mut slots = SlotPool::new(setup.slots_max, setup.slots);
        let tier = Tiering::new(setup.tier);
        if tier.policy.is_some() {
            slots = slots.with_pool(setup.slots_max);
        }
        let (mut driver, ahead) = match setup.reclaim {
            Policy::Driven(reclaim) => {
                let manner = setup.readahead.manner();
                let around = Around {
                    zeroes: setup.zero_around,
                    rescued: setup.rescue_around,
                };
                let driver = Watermarks::new(reclaim, setup.pageout, &manner, around);
                let ahead = Ahead::governed(setup.readahead, &manner, setup.frames);
                (Driver::Watermarks(driver), ahead)
            }
            Policy::Daemon(params) => {
                assert!(tier.policy.is_none(), "a daemon writes to the store alone");
                assert!(setup.discard.is_none(), "a daemon drops nothing");
                let driver = PageDaemon::new(params, setup.pageout, setup.frames);
                (Driver::Daemon(driver), Ahead::whole(setup.readahead))
            }
        };
        let pages = if setup.body.bits {
            Pages::with_bits(matches!(driver, Driver::Daemon(_)))
        } else {
            Pages::new()
        };
        let discarding = Discarding::new(setup.discard);
        let ledger = Ledger::new(pages, slots, ahead, tier, discarding, limits);
        driver.replenish(&ledger.pages);
        Self { ledger, driver }
    }

    /// Takes in what happened at `now`; what follows from it comes out of [`Self::poll_action`].
    ///
    /// # Panics
    /// On a programmer's error: an answer to no question, a range with unanswered actions unmapped. See [`Self::admits`].
    #[inline]
    pub fn handle(&mut self, now: Nanos, event: Event<'_>) {
        let ledger = &mut self.ledger;
        ledger.now = now;
        // Nothing follows from it: no page and no frame comes of slots that are told dead.
        if let Event::Done { id, outcome } = event
            && ledger.ops[id].kind == Kind::Dead
        {
            assert!(
                matches!(outcome, Outcome::Done),
                "{outcome:?} of dead slots"
            );
            return ledger.dead(id);
        }
        match &mut self.driver {
            Driver::Watermarks(driver) => driver.handle(ledger, event),
            Driver::Daemon(driver) => driver.handle(ledger, event),
        }
        room::settle(ledger);
        room::tell_dead(ledger);
        if matches!(event, Event::Tick) {
            ledger.tell_dead();
            room::shrink(ledger);
        }
        let held = ledger.pages.framed() + ledger.tier.frames();
        ledger.stats.frames_peak = ledger.stats.frames_peak.max(held as u64);
    }

    /// The next thing to do; `None` when all is done for now.
    #[inline]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.ledger.actions.pop_front()
    }

    /// Touches the pages of `run` one after the other, until one needs an [`Event::Fault`]; returns
    /// how many needed none. Sets their referenced bits, and their modified bits on writes.
    ///
    /// # Panics
    /// When the body has no bits.
    pub fn touch(&mut self, run: PageRange, access: Access) -> u64 {
        self.ledger.pages.touch(run, access)
    }

    /// How many pages of `run` [`Self::touch`] would touch.
    ///
    /// # Panics
    /// When the body has no bits.
    #[must_use]
    pub fn touchable(&self, run: PageRange, access: Access) -> u64 {
        self.ledger.pages.touchable(run, access)
    }

    /// When the pager wants an [`Event::Timer`] at the latest; `None` for as long as nothing else
    /// happens. To be asked again after every event.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.daemon()?.deadline()
    }

    /// The daemon, if the reclaim policy is one: its levels, pass and counters.
    #[must_use]
    pub const fn daemon(&self) -> Option<&Daemon> {
        match &self.driver {
            Driver::Watermarks(_) => None,
            Driver::Daemon(driver) => Some(driver.daemon()),
        }
    }

    /// Pages on `queue`.
    #[must_use]
    pub fn queued(&self, queue: Queue) -> usize {
        self.ledger.pages.queued(queue)
    }

    /// What is known of the page beside its state; `None` if it is untouched.
    #[must_use]
    pub fn place_of(&self, page: PageNo) -> Option<Place> {
        let id = self.ledger.pages.find(page)?;
        Some(Place {
            queue: self.ledger.pages.queue(id),
            slot: self.ledger.pages.slot(id),
            stored: self.ledger.slots.stored_in(self.ledger.pages.slot(id)),
            age: self.ledger.pages.age(id),
            dirty: self.ledger.pages.has(id, DIRTY) || self.ledger.pages.bit(id, Bit::Modified),
            mapped: self.ledger.pages.bit(id, Bit::Mapped),
            writable: self.ledger.pages.bit(id, Bit::Writable),
            referenced: self.ledger.pages.bit(id, Bit::Referenced),
            noted: self.ledger.pages.bit(id, Bit::Noted),
            seen: self.ledger.pages.bit(id, Bit::Seen),
        })
    }

    /// Whether an unanswered action touches `range`. The body answers it before it reports `Unmap` or `Discard`.
    #[must_use]
    pub fn busy(&self, range: PageRange) -> bool {
        self.ledger.busy(range)
    }

    /// Makes room for the next touches, away from the fault path: allocates nothing for the next
    /// 64 leaves (4096 neighbouring pages) after it.
    pub fn replenish(&mut self) {
        self.ledger.pages.reserve(64);
        self.driver.replenish(&self.ledger.pages);
    }

    /// Unanswered actions.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.ledger.ops.unanswered()
    }

    /// The page's state.
    #[must_use]
    pub fn state(&self, page: PageNo) -> State {
        self.ledger.pages.state_of(page)
    }

    /// Pages in `state`.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.ledger.pages.count(state)
    }

    /// Frames in use, those included that a pool of compressed pages was granted or that are set aside for it.
    #[must_use]
    pub fn frames_used(&self) -> usize {
        self.ledger.frames_used()
    }

    /// Of the frames in use, those that nothing is in: set aside so that a pool which has all others can make way.
    #[must_use]
    pub const fn frames_aside(&self) -> usize {
        self.ledger.tier.aside()
    }

    /// Whether this is a forked child's and was so a moment ago: what it has beyond its limit stays for now ([`Event::Forked`]).
    #[must_use]
    pub fn rests(&self) -> bool {
        match &self.driver {
            Driver::Watermarks(driver) => driver.rests(&self.ledger),
            Driver::Daemon(_) => false,
        }
    }

    /// Frames that may still be used.
    #[must_use]
    pub fn frames_free(&self) -> usize {
        self.ledger.frames_free()
    }

    /// The watermarks.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.ledger.limits
    }

    /// Whether the page is discardable.
    #[must_use]
    pub fn is_discardable(&self, page: PageNo) -> bool {
        self.ledger.discarding.marks.is_marked(page)
    }

    /// Slots in use.
    #[must_use]
    pub const fn slots_used(&self) -> usize {
        self.ledger.slots.used()
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.ledger.stats
    }

    /// Measures from now on what up to `frames` frames would save. A tier policy that weighs it decides otherwise then.
    pub fn measure_up_to(&mut self, frames: usize) {
        self.ledger.departed = departed(frames, &self.ledger.tier);
    }

    /// What more frames would have saved, and what the last ones save.
    #[must_use]
    pub const fn refaults(&self) -> &Refaults {
        &self.ledger.departed.counts
    }

    /// What read-ahead did for each memory object.
    #[must_use]
    pub const fn objects(&self) -> &Objects {
        &self.ledger.objects
    }

    /// See [`Objects::take_changed`].
    pub const fn take_changed_objects(&mut self) -> u64 {
        self.ledger.objects.take_changed()
    }

    /// Bytes of heap for the state of pages and slots, and for what victims are chosen by.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let policy = match &self.driver {
            Driver::Watermarks(driver) => driver.heap_bytes(),
            Driver::Daemon(_) => 0,
        };
        self.ledger.pages.heap_bytes()
            + self.ledger.slots.heap_bytes()
            + policy
            + self.ledger.discarding.marks.heap_bytes()
            + self.ledger.advised.heap_bytes()
    }
}
