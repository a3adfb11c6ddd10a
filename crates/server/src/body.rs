//! One client's pager, and how what it wants is done.

use outpage_core::contract::{
    Access, Action, ActionId, Event, IoFailure, Outcome, PageList, PageOutcome, Refusal, Source,
    Waiter,
};
use outpage_core::page::State;
use outpage_core::pager::Pager;
use outpage_core::units::{Nanos, PAGE_BYTES, PageRange, SlotRange};
use outpage_store::{Direction, Frame};
use outpage_sys::process::Tid;
use outpage_sys::uffd::{Fault, FaultAccess, Message, Remote};
use outpage_sys::{clock, tasks};
use outpage_wire::{Lost, Stats};

use crate::common::{Common, Ended, Transfer};
use crate::extents::EXTENT_SLOTS;
use crate::memory::{Fatal, Memory};

/// How long a fault may wait for a frame before the client is given up, as under `outpage run` (`engine/src/live.rs`): when the store is full, and otherwise.
const FULL_MAX: Nanos = Nanos(1_000_000_000);
const STUCK_MAX: Nanos = Nanos(20_000_000_000);
/// What was given up is looked for so that the looks take a part of the time of at most one in this many. A choice: 5 %.
const LOOKS: u64 = 20;
/// Messages that are read at once.
const BATCH: usize = 32;

/// A client's memory and its pager.
pub struct Body {
    /// Its place among the clients.
    client: usize,
    /// Its process as this one numbers it.
    pid: u32,
    /// Whether its threads have the same numbers for both, which they have not in a namespace of the client's own; `None` before its first fault.
    same_tids: Option<bool>,
    pager: Pager,
    /// Its memory.
    pub memory: Memory,
    extents: Vec<SlotRange>,
    taken: Option<Lost>,
    outcomes: Vec<PageOutcome>,
    stuck_since: Option<Nanos>,
    /// It was told that the store is full.
    starved: bool,
    next_look: Nanos,
    waiters: u32,
    /// Faults that are not answered yet.
    waiting: usize,
    faults: u64,
    marked: u64,
}

impl Body {
    /// Of a client that has nothing yet, of process `pid`, which may have no frames but the least.
    pub fn new(client: usize, pid: u32, pager: Pager, uffd: Remote) -> Self {
        Self {
            client,
            pid,
            same_tids: None,
            pager,
            memory: Memory::new(uffd),
            extents: Vec::new(),
            taken: None,
            outcomes: Vec::new(),
            stuck_since: None,
            starved: false,
            next_look: Nanos(0),
            waiters: 0,
            waiting: 0,
            faults: 0,
            marked: 0,
        }
    }

    /// Its extents of the store; it has none any more.
    pub fn release_extents(&mut self) -> Vec<SlotRange> {
        std::mem::take(&mut self.extents)
    }

    /// Frames that it has, and that it may have.
    pub fn frames(&self) -> (u64, u64) {
        (
            self.pager.frames_used() as u64,
            self.pager.limits().frames as u64,
        )
    }

    /// Faults that are not answered yet.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Faults so far.
    pub const fn faults(&self) -> u64 {
        self.faults
    }

    /// Frames short of which it gets no more without waiting for one.
    pub fn margin(&self) -> u64 {
        let limits = self.pager.limits();
        (limits.staged_low + limits.reserve) as u64
    }

    /// Destroys an object; false as long as transfers of its pages are under way.
    pub fn destroy(&mut self, common: &mut Common, number: u32) -> bool {
        let Some(object) = self.memory.object(number) else {
            return true;
        };
        let range = object.range();
        if self.pager.busy(range) {
            return false;
        }
        self.handle(common, Event::Unmap(range));
        self.memory.destroy(number);
        true
    }

    /// Takes every page from the client, whose pager hears of nothing any more.
    pub fn seize(&mut self) {
        for object in self.memory.objects() {
            object.punch(0, object.range().pages);
        }
    }

    /// Frames that its files have and its pager does not know of.
    pub fn untold_frames(&self) -> u64 {
        let known = self.pager.frames_used() as u64;
        self.memory.frames().saturating_sub(known)
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let stats = self.pager.stats();
        let (frames, limit_frames) = self.frames();
        Stats {
            limit_frames,
            frames,
            objects: self.memory.size().0 as u64,
            minor_faults: stats.minor_faults,
            major_faults: stats.major_faults,
            zero_fills: stats.zero_fills,
            paged_in: stats.page_ins,
            paged_out: stats.page_outs,
            marked: self.marked,
            dropped_for_write: stats.dropped_for_write,
            dropped_clean: stats.dropped_clean,
            dropped_in_slots: stats.dropped_in_slots,
            flushed: stats.flushed,
            filled_for_dropped: stats.filled_for_dropped,
            kept: stats.given_back,
            lost: stats.taken_back_lost,
        }
    }

    /// It may have so many frames from now on.
    pub fn set_limit(&mut self, common: &mut Common, frames: u64) {
        self.handle(common, Event::Limit(frames as usize));
    }

    /// Time passed.
    pub fn tick(&mut self, common: &mut Common) {
        self.look(common);
        // Others may have left meanwhile.
        if self.starved {
            self.grow(common, EXTENT_SLOTS);
        }
        self.handle(common, Event::Tick);
        self.pager.replenish();
    }

    /// Serves the faults that wait. How many messages there were.
    pub fn serve_faults(&mut self, common: &mut Common) -> usize {
        let mut messages = [Message::Other; BATCH];
        let count = self.memory.read(&mut messages);
        for message in &messages[..count] {
            match message {
                Message::Fault(fault) => self.fault(common, fault),
                _ => self.memory.fail(Fatal::Violation(
                    "its userfaultfd tells of more than faults",
                )),
            }
        }
        count
    }

    fn fault(&mut self, common: &mut Common, fault: &Fault) {
        self.memory.forget_wakes();
        self.faults += 1;
        let address = fault.address & !(PAGE_BYTES - 1);
        let Some((page, extent)) = self.memory.find(address) else {
            // An object that was destroyed, as a rule: the touch meets what is there now.
            return self.memory.wake_at(address);
        };
        if clock::now() >= self.next_look {
            self.look(common);
        }
        self.follow(common, Tid(fault.tid));
        if self.pager.state(page) == State::Resident {
            common.placement.hold();
            self.memory.restore(page, address, fault.kind);
            return common.placement.woke(None, clock::now());
        }
        self.waiting += 1;
        let waiter = Waiter(self.waiters);
        self.waiters = self.waiters.wrapping_add(1);
        let access = match fault.access {
            FaultAccess::Write => Access::Write,
            FaultAccess::Read => Access::Read,
        };
        let event = Event::Fault {
            page,
            access,
            waiter,
            source: Source(fault.tid),
            extent,
        };
        self.handle(common, event);
    }

    /// The server may follow a thread that faulted, where it can tell which one it is.
    fn follow(&mut self, common: &mut Common, tid: Tid) {
        let pid = self.pid;
        let same = || tasks::is_thread_of(tid, pid);
        if *self.same_tids.get_or_insert_with(same) {
            common.placement.fault(tid, clock::now());
        }
    }

    /// Tells the pager what the attribute objects give up.
    fn look(&mut self, common: &mut Common) {
        let began = clock::now();
        let mut runs: Vec<PageRange> = Vec::new();
        for object in self.memory.objects().filter(|object| object.has_marks()) {
            object.take_marks(|run| runs.push(run));
        }
        for run in runs {
            self.marked += run.pages;
            self.handle(common, Event::Discardable(run));
        }
        let ended = clock::now();
        self.next_look = Nanos(ended.0 + LOOKS * (ended.0 - began.0));
    }

    /// Discardable pages of `range` may be dropped now.
    pub fn flush(&mut self, common: &mut Common, range: PageRange) {
        self.look(common);
        self.handle(common, Event::Flush(range));
    }

    /// The pages of `range` are wanted again. Which were dropped.
    pub fn take_back(&mut self, common: &mut Common, range: PageRange) -> Lost {
        if let Some(object) = self.memory.object(range.start.object().0) {
            object.clear_marks(range);
        }
        self.handle(common, Event::TakeBack(range));
        self.taken.take().unwrap_or_else(|| Lost::none(range.pages))
    }

    /// Tells the pager, and carries out what follows.
    fn handle(&mut self, common: &mut Common, event: Event<'_>) {
        self.pager.handle(clock::now(), event);
        while let Some(action) = self.pager.poll_action() {
            self.act(common, action);
        }
    }

    fn act(&mut self, common: &mut Common, action: Action) {
        match action {
            Action::ZeroFill { id, run, .. } => {
                common.placement.hold();
                self.by_page(id, |memory, out| memory.zero(run, out));
            }
            Action::Map { id, run, .. } => {
                common.placement.hold();
                self.by_page(id, |memory, out| memory.map(run, out));
            }
            Action::Detach { id, run, .. } => {
                let hasher = common.hasher;
                self.by_page(id, |memory, out| memory.detach(hasher, run, out));
            }
            Action::PageIn {
                id, slots, pages, ..
            } => self.page_in(common, id, slots, pages),
            Action::PageOut {
                id, slots, pages, ..
            } => {
                let frames = self.memory.frames_of(&pages);
                self.submit(common, id, slots, pages, Direction::PageOut, frames);
            }
            Action::Release { id, pages, .. } => {
                self.memory.release(&pages);
                drop(pages);
                self.done(id, Outcome::Done);
            }
            Action::Dead { id, slots, .. } => {
                common.store.forget(slots);
                self.done(id, Outcome::Done);
            }
            Action::Poison { id, page } => {
                self.memory.poison(page);
                self.done(id, Outcome::Done);
            }
            Action::Wake { page, .. } => {
                self.stuck_since = None;
                self.waiting -= 1;
                self.memory.wake(page);
                common.placement.woke(None, clock::now());
            }
            Action::TakenBack { range, lost } => {
                let mut bits = Lost::none(range.pages);
                lost.iter()
                    .for_each(|page| bits.set(page.raw() - range.start.raw()));
                self.taken = Some(bits);
            }
            Action::Grow { slots } => self.grow(common, slots),
            Action::Shrink { slots, .. } => self.shrink(common, slots),
            Action::Exhausted { swap_full } => self.exhausted(swap_full),
            Action::Compress { .. } | Action::Decompress { .. } => {
                unreachable!("there is no pool of compressed pages")
            }
            Action::Drop { .. } => {
                unreachable!("clients mark pages, none is freed by the kernel's call")
            }
        }
    }

    fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.pager.handle(clock::now(), Event::Done { id, outcome });
    }

    fn by_page(&mut self, id: ActionId, act: impl FnOnce(&mut Memory, &mut Vec<PageOutcome>)) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.clear();
        act(&mut self.memory, &mut outcomes);
        self.done(id, Outcome::Pages(&outcomes));
        self.outcomes = outcomes;
    }

    fn page_in(&mut self, common: &mut Common, id: ActionId, slots: SlotRange, pages: PageList) {
        if !self.memory.allocate(&pages) {
            let unread = vec![PageOutcome::Refused(Refusal::Unread); pages.len()];
            drop(pages);
            return self.done(id, Outcome::Pages(&unread));
        }
        let frames = self.memory.frames_of(&pages);
        self.submit(common, id, slots, pages, Direction::PageIn, frames);
    }

    fn submit(
        &self,
        common: &mut Common,
        id: ActionId,
        slots: SlotRange,
        pages: PageList,
        direction: Direction,
        frames: Vec<Frame>,
    ) {
        let transfer = Transfer {
            client: self.client,
            id,
            pages,
            reading: direction == Direction::PageIn,
        };
        common.submit(transfer, slots, direction, frames);
    }

    /// A transfer of this client's has ended.
    pub fn ended(&mut self, common: &mut Common, ended: Ended) {
        self.memory.forget_wakes();
        let Ended {
            transfer,
            result,
            failed,
        } = ended;
        let Transfer {
            id, pages, reading, ..
        } = transfer;
        if reading {
            let hasher = common.hasher;
            self.by_page(id, |memory, out| {
                memory.stage_intact(hasher, &pages, &failed, out)
            });
        } else {
            drop(pages);
            let outcome = match result {
                Ok(()) => Outcome::Done,
                Err(error) if error.is_no_space() => Outcome::Failed(IoFailure::NoSpace),
                Err(_) => Outcome::Failed(IoFailure::Device),
            };
            self.done(id, outcome);
        }
        while let Some(action) = self.pager.poll_action() {
            self.act(common, action);
        }
    }

    fn grow(&mut self, common: &mut Common, slots: u32) {
        for _ in 0..slots.div_ceil(EXTENT_SLOTS) {
            let extent = common.extents.take();
            let reserved = extent.filter(|&extent| {
                let reserved = common.store.reserve(extent);
                if reserved.is_err() {
                    common.extents.give_back(&[extent]);
                }
                reserved.is_ok()
            });
            let now = clock::now();
            match reserved {
                Some(extent) => {
                    self.starved = false;
                    self.extents.push(extent);
                    self.pager.handle(now, Event::Grown(extent));
                }
                None => {
                    self.starved = true;
                    return self.pager.handle(now, Event::Full);
                }
            }
        }
    }

    /// Nothing is in an extent any more: others may have it. The file keeps its room for them.
    fn shrink(&mut self, common: &mut Common, slots: SlotRange) {
        self.extents.retain(|&extent| extent != slots);
        common.store.forget(slots);
        common.extents.give_back(&[slots]);
    }

    /// Nothing can leave and somebody waits for a frame.
    fn exhausted(&mut self, swap_full: bool) {
        let now = clock::now();
        let waited = now.0 - self.stuck_since.get_or_insert(now).0;
        if swap_full && waited > FULL_MAX.0 {
            self.memory.fail(Fatal::StoreFull);
        } else if waited > STUCK_MAX.0 {
            self.memory.fail(Fatal::NoVictims);
        }
    }
}
