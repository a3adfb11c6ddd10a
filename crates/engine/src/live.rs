//! The live body: one thread that reads faults, asks the pager, and does what it says.

use std::collections::VecDeque;
use std::sync::Arc;

use outpage_core::contract::{
    Access, Action, ActionId, Event, Outcome, PageList, PageOutcome, Source, Waiter,
};
use outpage_core::page::{Queue, State};
use outpage_core::pager::Place;
use outpage_core::units::{Nanos, PAGE_BYTES, PageNo};
use outpage_store::{Cipher, Completion, Direction, Frame, SwapStore};
use outpage_sys::clock;
use outpage_sys::fd::Fd;
use outpage_sys::process::{self, Tid};
use outpage_sys::secret::Locked;
use outpage_sys::uffd::{Fault, FaultAccess};

use crate::astray::Astray;
use crate::beside::{Beside, Growth};
use crate::brain::Brain;
use crate::call::Calls;
use crate::compressed::Compressed;
use crate::contiguous::SetApart;
use crate::leaving::Topic;
use crate::lent::Lent;
use crate::notify::Notifier;
use crate::placement::Placement;
use crate::scope::Failure;
use crate::session::Session;
use crate::threads::Kept;
use crate::ticket::Needed;
use crate::together::Together;
use crate::transfer::{Transfer, Unsent};
use crate::world::World;
use crate::worth::Measured;

/// The pager looks at the shared budget and at its children this often.
pub(crate) const TICK: Nanos = Nanos(100_000_000);
/// How long a fault may wait while every page is refused as a victim before the pager gives up:
/// pins of ordinary I/O last milliseconds.
pub(crate) const STUCK_MAX: Nanos = Nanos(20_000_000_000);
/// How long it may take when the swap file is full: whatever is pinned then is pinned for a moment.
const FULL_MAX: Nanos = Nanos(1_000_000_000);
/// Pages that are taken out of the program after a fault that was served, or while one waits for a read. A choice: where they lie scattered it is a call of 2 us for
/// each, calculated 16 us for who touches something next, and a read of 50 us has three such parts. With 4 p99.9 of a hit in the pool was 250 to 454 us, with 8 187 to
/// 399, with all of 256 601 to 1,144 (five rounds by turns, load about 3); from 4 to 32 is plausible.
pub(crate) const DETACH_PAGES: usize = 8;
/// Rounds of the loop between two looks at the clock: a look costs 50 ns, a round 10 us.
const ROUNDS: u32 = 64;
/// Rounds with faults, at most, in which it is not looked for calls: a look in vain is a system call, 0.4 to 0.8 us of the 10 that a fault takes, and so
/// a call waits for 0.1 ms while other threads fault.
const DEAF_ROUNDS: u32 = 8;

/// Why the loop ends, for a while or for good, and the slot of who asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rest {
    /// The process is about to be forked.
    Fork(usize),
    /// The pager is to live on when the process ends.
    Outlive(usize),
    /// All memory is to go back to the program.
    Close(usize),
    /// The pager cannot go on.
    Failed(Failure),
}

/// Everything the pager's thread owns.
pub struct Live {
    /// The brain.
    pub pager: Brain,
    /// The program's memory.
    pub world: World,
    /// Where paged-out bytes live.
    pub store: Box<dyn SwapStore + Send>,
    /// The budget shared with the other processes of the tree.
    pub session: Session,
    /// What the program's threads ask for.
    pub calls: Arc<Calls>,
    /// Frames this process may use.
    pub frames_max: usize,
    /// Extents that this process leased itself: those of its forefathers are not in it.
    pub(crate) leased: Vec<u32>,
    /// Extents that it had leased and that are to go back to the session.
    pub(crate) unneeded: Vec<u32>,
    /// Slots are kept for processes that were forked from this one.
    pub(crate) keeps_slots: bool,
    pub(crate) placement: Placement,
    pub(crate) next_tick: Nanos,
    /// When it looks at its share.
    pub(crate) next_share: Nanos,
    /// When it looks whether frames can go or be had.
    pub(crate) next_step: Nanos,
    /// Frames of the limit that it should hold, in pages.
    pub(crate) share: u64,
    /// What frames are worth to this process.
    pub(crate) worth: Measured,
    /// Rounds since it was looked for calls.
    deaf: u32,
    pub(crate) fault_ns: u64,
    pub(crate) detach_calls: u64,
    pub(crate) shared: crate::unmanaged::Shared,
    /// Memory that the home keeps.
    pub(crate) lent: Lent,
    /// A page of shared memory that went back to the program is lost.
    pub(crate) shared_lost: bool,
    pub(crate) check: crate::check::Check,
    pub(crate) astray: Astray,
    /// By the action's number.
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) completions: Vec<Completion>,
    outcomes: Vec<PageOutcome>,
    pub(crate) together: Option<Together>,
    /// Pages that are taken out of the program a part at a time.
    pub(crate) detaching: Option<Together>,
    /// An action that was polled too soon.
    pub(crate) held: Option<Action>,
    /// What is done beside the loop.
    pub(crate) beside: Beside,
    /// More slots that the pager was promised.
    pub(crate) growth: Option<Growth>,
    /// What the store had no room for, oldest first.
    pub(crate) unsent: VecDeque<Unsent>,
    /// Faults that were read while the loop waited for something, and could not be served then.
    pub(crate) later: VecDeque<Fault>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) stuck_since: Option<Nanos>,
    pub(crate) fork_asked: Option<usize>,
    /// The slot of who wants the pager to outlive the process.
    pub(crate) outlive_asked: Option<usize>,
    /// The slot of who wants the pager to end.
    pub(crate) close_asked: Option<usize>,
    /// All memory goes back: faults wait for that.
    pub(crate) winds_up: bool,
    /// The pages that were dropped, of those that were taken back last.
    pub(crate) taken_back: Option<PageList>,
    /// The parent of the pager's own process when it was last looked for; `None` while it lives in the program's.
    pub(crate) outlives: Option<u32>,
    /// When it looks whether anybody else uses its memory.
    pub(crate) next_look: Nanos,
    /// Address ranges that stay mapped until the fork is over.
    pub(crate) fork_keeps: Vec<(usize, usize)>,
    /// What was not forked of its forefathers' memory and is free: addresses and bytes.
    pub(crate) left_out: Vec<(usize, usize)>,
    /// What stays mapped for threads.
    pub(crate) kept: Vec<Kept>,
    /// /dev/userfaultfd, for the pagers of forked children, where it could be opened.
    pub(crate) device: Option<Fd>,
    /// The member that the child being forked will be.
    pub(crate) fork_member: Option<crate::session::Reserved>,
    /// What the child to come needs of the pager's descriptors.
    pub(crate) fork_needs: Needed,
    /// Frames set apart for transfers.
    pub(crate) pool: usize,
    /// What of them the store has.
    pub(crate) apart: Arc<SetApart>,
    /// What the store encrypts with.
    pub(crate) cipher: Option<Arc<Locked<Cipher>>>,
    /// The pool of compressed pages, where there is one.
    pub(crate) compressed: Option<Box<Compressed>>,
}

impl Live {
    /// With nothing managed yet.
    pub fn new(
        pager: Brain,
        world: World,
        store: Box<dyn SwapStore + Send>,
        session: Session,
        calls: Arc<Calls>,
        frames_max: usize,
    ) -> Self {
        Self {
            pager,
            world,
            completions: Vec::with_capacity(store.depth()),
            store,
            session,
            calls,
            frames_max,
            leased: Vec::new(),
            unneeded: Vec::new(),
            keeps_slots: false,
            placement: Placement::new(),
            next_tick: Nanos(0),
            next_share: Nanos(0),
            next_step: Nanos(0),
            share: 0,
            worth: Measured::default(),
            deaf: 0,
            fault_ns: 0,
            detach_calls: 0,
            shared: crate::unmanaged::Shared::default(),
            lent: Lent::default(),
            shared_lost: false,
            check: crate::check::Check::default(),
            astray: Astray::nobody(),
            transfers: Vec::new(),
            outcomes: Vec::with_capacity(256),
            together: Some(Together::new()),
            detaching: Some(Together::new()),
            held: None,
            beside: Beside::default(),
            growth: None,
            unsent: VecDeque::with_capacity(8),
            later: VecDeque::with_capacity(64),
            frames: Vec::with_capacity(1024),
            stuck_since: None,
            fork_asked: None,
            outlive_asked: None,
            close_asked: None,
            winds_up: false,
            taken_back: None,
            outlives: None,
            next_look: Nanos(0),
            fork_keeps: Vec::with_capacity(4),
            left_out: Vec::new(),
            kept: Vec::with_capacity(64),
            device: None,
            fork_member: None,
            fork_needs: Needed::default(),
            pool: 0,
            apart: Arc::default(),
            cipher: None,
            compressed: None,
        }
    }

    /// Serves faults and calls until the pager has to rest.
    pub fn run(&mut self) -> Rest {
        let mut rounds = 0;
        loop {
            let done = self.round();
            if let Some(rest) = self.rests() {
                if !matches!(rest, Rest::Failed(_)) {
                    self.drive();
                }
                return rest;
            }
            rounds = (rounds + 1) % ROUNDS;
            if rounds == 0 {
                // Constant faults leave no idle round.
                self.tick_if_due();
            }
            // A thread that was woken on this CPU ran at once and may have faulted again: what nobody
            // waits for is done when there is nothing to read.
            if done == 0 {
                self.between_events();
                if self.may_sleep() {
                    self.sleep();
                }
            }
        }
    }

    /// Serves what there is to serve; how much that was.
    pub(crate) fn round(&mut self) -> usize {
        let messages = self.read_messages();
        let completions = self.complete_io();
        self.drive_on();
        self.attend_to_covered();
        self.trim();
        messages + completions
    }

    /// Why the loop is to end, if it is.
    fn rests(&mut self) -> Option<Rest> {
        let failed = self.world.failing.take().map(Rest::Failed);
        failed
            .or_else(|| self.close_asked.take().map(Rest::Close))
            .or_else(|| self.fork_asked.take().map(Rest::Fork))
            .or_else(|| self.outlive_asked.take().map(Rest::Outlive))
    }

    /// Work that nobody waits for.
    pub(crate) fn between_events(&mut self) {
        self.pager.replenish();
        self.pager.flush(false);
        self.world.waiting.wakes_are_old();
        // The process may end at any moment: what others see is never older than the last event.
        self.publish();
        self.tick_if_due();
    }

    fn tick_if_due(&mut self) {
        let now = clock::now();
        if now >= self.next_tick {
            self.next_tick = Nanos(now.0 + TICK.0);
            self.tick(now);
        } else {
            self.share_if_due(now);
        }
    }

    fn read_messages(&mut self) -> usize {
        let mut count = 0;
        self.world.door.gather();
        loop {
            count += self.attend_to_known_changes();
            let later = self.later.pop_front();
            let Some(fault) = later.or_else(|| self.world.door.next_fault()) else {
                break;
            };
            self.fault(&fault);
            count += 1;
        }
        self.deaf = (self.deaf + 1) % DEAF_ROUNDS;
        if count > 0 && self.deaf != 0 {
            return count;
        }
        self.world.bells.gather();
        while let Some(address) = self.world.bells.next_ring() {
            if let Some(slot) = self.calls.rung(address) {
                self.call(slot);
            }
            count += 1;
        }
        count
    }

    pub(crate) fn fault(&mut self, fault: &Fault) {
        // What was mapped before this fault was read did not wake its thread.
        self.world.waiting.wakes_are_old();
        self.hear_what_was_freed();
        let now = clock::now();
        let tid = Tid(fault.tid);
        let Some(region) = self.world.space.at(fault.address).copied() else {
            self.placement.fault(tid, now);
            self.stray(tid, fault.address);
            self.placement.woke(Some(tid), now);
            return;
        };
        self.astray.goes_on(tid);
        let page = region.page(fault.address);
        let access = if fault.access == FaultAccess::Write {
            Access::Write
        } else {
            Access::Read
        };
        let Some(begun) = self.world.waiting.begin(tid, page, access, now) else {
            return;
        };
        let waiter = begun.waiter;
        if let Some((left, page)) = begun.left {
            self.leaves(left, page, now);
        }
        self.placement.fault(tid, now);
        self.keep_up(tid, waiter);
        self.recheck_resident(&region, fault);
        self.count_fault(page);
        self.pager.handle(
            now,
            Event::Fault {
                page,
                access,
                waiter,
                source: Source(fault.tid),
                extent: region.pages(),
            },
        );
        self.drive_on();
        // Who waits is not kept waiting by what leaves; whoever touches something next pays for a part of it.
        if self.world.waiting.is_empty() && self.detach_some(DETACH_PAGES) {
            self.drive_on();
        }
    }

    /// A thread has left `page`, for which it waited under the name of `waiter`. One of the same number, in another namespace of processes, may wait there
    /// still: its fault starts again.
    fn leaves(&mut self, waiter: Waiter, page: PageNo, now: Nanos) {
        self.pager.handle(now, Event::Left(waiter));
        if let Some((address, _)) = self.world.space.address(page) {
            self.world.wake(address);
        }
    }

    fn call(&mut self, slot: usize) {
        if let Some(call) = self.calls.take(slot) {
            let result = self.serve(call, slot);
            let resting = [self.fork_asked, self.outlive_asked, self.close_asked];
            if resting.contains(&Some(slot)) {
                return; // Answered by whoever has the pager rest.
            }
            self.calls.answer(slot, result);
        }
        self.resolve_bell(slot);
    }

    /// The thread that rang goes on.
    pub(crate) fn resolve_bell(&mut self, slot: usize) {
        let address = self.calls.span().0 + slot * PAGE_BYTES;
        self.world.bells.resolve(address);
    }

    /// Carries out what the pager wants until it wants nothing.
    pub(crate) fn drive(&mut self) {
        self.carry_out();
        while self.detach_some(usize::MAX) {
            self.carry_out();
        }
    }

    /// The same, but for pages that are taken out of the program: these can wait, unless frames are short.
    pub(crate) fn drive_on(&mut self) {
        self.carry_out();
        if self.is_detaching() && self.is_short() {
            self.drive();
        }
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.held.take().or_else(|| self.pager.poll_action()) {
            self.act(action);
        }
    }

    /// Whether the pager has fewer frames to give at once than half of what it keeps so, or more in use than it may.
    fn is_short(&self) -> bool {
        let (pager, limits) = (&self.pager, self.pager.limits());
        let at_once =
            pager.frames_free() + pager.queued(Queue::Cache) + pager.count(State::Writing);
        at_once < limits.clean_low / 2 || pager.frames_used() > limits.frames
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::ZeroFill { id, run, .. } => {
                self.placement.hold();
                self.world.waiting.maps(clock::now());
                self.pages_done(id, |w, out| w.zero_fill(run, out));
            }
            Action::Map {
                id,
                run,
                absent_below,
            } => {
                self.placement.hold();
                self.map(id, run, absent_below);
            }
            Action::Detach {
                id,
                run,
                absent_below,
            } => self.detach(id, run, absent_below),
            Action::Drop { id, run } => {
                if process::has_swap() {
                    self.let_frees_be_lazy(false);
                }
                self.pages_done(id, |w, out| w.drop_freed(run, out));
            }
            Action::Release { id, pages, .. } => {
                self.world.release(&pages);
                self.tell_released(&pages);
                drop(pages);
                self.done(id, Outcome::Done);
            }
            Action::Poison { id, page } => {
                // Before the signal, which as a rule is the end of the process.
                self.publish();
                self.world.poison(page);
                self.done(id, Outcome::Done);
            }
            Action::PageIn {
                id, slots, pages, ..
            } => self.submit(id, slots, pages, Direction::PageIn),
            Action::PageOut {
                id, slots, pages, ..
            } => self.submit(id, slots, pages, Direction::PageOut),
            Action::Compress {
                id,
                slots,
                pages,
                grant,
                ..
            } => self.compress(id, slots, pages, grant),
            Action::Decompress {
                id, slots, pages, ..
            } => self.decompress(id, slots, pages),
            Action::Dead { id, slots, .. } => {
                if slots.start.is_pooled() {
                    self.forget_compressed(slots);
                } else {
                    self.store.forget(slots);
                }
                self.done(id, Outcome::Done);
            }
            Action::Wake { waiter, page } => self.wake(waiter, page),
            Action::TakenBack { lost, .. } => self.taken_back = Some(lost),
            Action::Grow { slots } => self.grow(slots),
            // After those that told slots dead, each of which is answered when it is carried out.
            Action::Shrink { slots, .. } => self.shrink(slots),
            Action::Exhausted { swap_full } => self.exhausted(swap_full),
        }
    }

    pub(crate) fn pages_done(
        &mut self,
        id: ActionId,
        act: impl FnOnce(&mut World, &mut Vec<PageOutcome>),
    ) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        act(&mut self.world, &mut outcomes);
        self.pager.handle(
            clock::now(),
            Event::Done {
                id,
                outcome: Outcome::Pages(&outcomes),
            },
        );
        self.outcomes = outcomes;
    }

    pub(crate) fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.pager.handle(clock::now(), Event::Done { id, outcome });
    }

    fn wake(&mut self, waiter: Waiter, page: PageNo) {
        self.stuck_since = None;
        let address = self.world.space.address(page).map(|found| found.0);
        let woken = address.and_then(|address| self.world.waiting.awake_since(address));
        if let Some(address) = address {
            self.world.wake(address);
        }
        let now = clock::now();
        let waited = self.world.waiting.end(waiter);
        self.placement.woke(waited.as_ref().map(|w| w.tid), now);
        let Some(waited) = waited else {
            return;
        };
        let took = woken.unwrap_or(now).0.saturating_sub(waited.since.0);
        self.fault_ns += took;
        if waited.major || waited.pooled {
            self.worth.waited(took, !waited.major);
        }
        let latencies = self.session.latencies();
        if waited.major {
            latencies.major.record(took);
        } else {
            latencies.minor.record(took);
        }
    }

    /// Nothing can leave and somebody waits for a frame.
    fn exhausted(&mut self, swap_full: bool) {
        let now = clock::now();
        let waited = now.0 - self.stuck_since.get_or_insert(now).0;
        if swap_full && waited > FULL_MAX.0 {
            self.world.failing.fail(Failure::SwapFull);
        }
        if waited > STUCK_MAX.0 {
            self.world.failing.fail(Failure::NoVictims);
        }
    }

    /// Counts a touch for whoever subscribed to the page.
    fn count_fault(&mut self, page: PageNo) {
        if self.world.notifiers.is_empty() {
            return;
        }
        let is_stored = |place: Place| !place.slot.is_pooled();
        let reads = self.pager.state(page) == State::PagedOut
            && self.pager.place_of(page).is_some_and(is_stored);
        for notifier in &mut self.world.notifiers {
            notifier.faulted(page, reads);
        }
    }

    /// A guest, where there is one, hears which of `pages` are in the store alone now; those of zeroes are nowhere.
    fn tell_released(&mut self, pages: &[PageNo]) {
        for notifier in &mut self.world.notifiers {
            for &page in pages {
                if notifier.knows(page) && self.pager.state(page) == State::PagedOut {
                    notifier.paged_out(page);
                }
            }
        }
    }

    /// In a forked child: the parent's other threads are not here to wait, and what was counted so far
    /// is the parent's.
    pub(crate) fn forget_parent(&mut self) {
        self.world.waiting.forget();
        (self.fault_ns, self.detach_calls) = (0, 0);
        self.world.cow_duplicates = 0;
        for topic in Topic::ALL {
            let all = self.world.who_hears(topic);
            all.drain(..).for_each(Notifier::forget_parent);
        }
        self.stuck_since = None;
        (self.fork_asked, self.fork_member) = (None, None);
        (self.outlive_asked, self.outlives) = (None, None);
        self.fork_keeps.clear();
        self.kept.clear();
        self.later.clear();
    }
}

#[cfg(test)]
mod tests;
