//! What the loop has done beside it, by a thread: growing the swap file, giving room of it back, and the search for processes that died.
//!
//! Each takes milliseconds, for which no thread of the program is to wait for its page. One thing is done at a time; the thread begins
//! with the first.

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outpage_core::contract::Event;
use outpage_core::units::{Nanos, SlotNo, SlotRange};
use outpage_store::Reserve;
use outpage_sys::clock;
use outpage_sys::fd::{self, Fd};
use outpage_sys::futex::{self, Scope};
use outpage_sys::process::Tid;
use outpage_sys::raw::Errno;
use outpage_sys::thread::{self, Options, Thread};

use crate::live::Live;
use crate::session::{EXTENT_SLOTS, Session};

/// System calls, the session's tables and /proc/PID/stat of a process that may be dead.
const STACK_BYTES: usize = 64 << 10;

/// Others may give room back, or end: what was told that there is none looks so often, three times before it gives up (`FULL_MAX`). A choice.
const ASK_AGAIN: Nanos = Nanos(300_000_000);

/// What is to be done.
enum Job {
    /// Make sure of room.
    Reserve(Box<dyn Reserve>, SlotRange),
    /// Give room back that nobody else has a hold of.
    GiveBack(Box<dyn Reserve>, SlotRange),
    /// Bury the dead.
    Reap(Session),
}

/// What came of it, and what it was done with: the thread frees nothing.
enum Answer {
    Reserved(Box<dyn Reserve>, bool),
    GaveBack(Box<dyn Reserve>, SlotRange),
    Reaped(Session),
}

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const ENDED: u32 = 2;

struct Order {
    state: AtomicU32,
    job: Mutex<Option<Job>>,
    answer: Mutex<Option<Answer>>,
    /// An eventfd that the loop hears.
    event: i32,
}

struct Helper {
    order: Arc<Order>,
    thread: Thread,
    event: Fd,
}

/// The thread, as the loop sees it.
#[derive(Default)]
pub(crate) struct Beside {
    helper: Option<Helper>,
    busy: bool,
    /// The session as somebody else sees it, whose locks are not the loop's.
    view: Option<Session>,
    /// When room that was not to be had is asked for again.
    asks_again: Option<Nanos>,
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(helper) = self.helper.take() {
            helper.order.state.store(ENDED, Ordering::Release);
            futex::wake(&helper.order.state, 1, Scope::Process);
            helper.thread.join();
        }
    }
}

impl Beside {
    /// Whether something is being done.
    pub(crate) const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Readable when something is done; -1 while nothing is under way.
    pub(crate) fn fd(&self) -> i32 {
        let helper = self.helper.as_ref().filter(|_| self.busy);
        helper.map_or(-1, |helper| helper.event.number())
    }

    /// Whether there was no room, which is asked for again: at the next look.
    #[cfg(test)]
    pub(crate) fn asks_again_at_once(&mut self) -> bool {
        self.asks_again.as_mut().map(|at| *at = Nanos(0)).is_some()
    }

    /// Its thread, if it has one.
    pub(crate) fn helper(&self) -> Option<Tid> {
        self.helper.as_ref().map(|helper| helper.thread.tid())
    }

    /// Searches for the dead by `view` from now on. Where none could be had, the loop does it.
    pub(crate) fn watch(&mut self, view: Option<Session>) {
        self.view = view;
    }

    /// In another process than that of the thread: what it was is forgotten, and so is the view where descriptors are `another` table's.
    ///
    /// # Panics
    /// When something is being done: nobody would ever say that it is.
    pub(crate) fn forget(&mut self, another: bool) {
        assert!(!self.busy, "the pager rests while a process is made of it");
        mem::forget(self.helper.take());
        self.asks_again = None;
        if another && let Some(view) = self.view.take() {
            view.abandon();
        }
    }

    /// Starts the thread, if there is none yet: its stack takes a place in the address space.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(&mut self) -> Result<(), Errno> {
        if self.helper.is_none() {
            self.helper = Some(start()?);
        }
        Ok(())
    }

    /// Has `job` done.
    ///
    /// # Errors
    /// The kernel's, when the thread cannot be started; with the job.
    ///
    /// # Panics
    /// When something is being done.
    fn ask(&mut self, job: Job) -> Result<(), (Job, Errno)> {
        assert!(!self.busy, "one thing at a time");
        if let Err(error) = self.start() {
            return Err((job, error));
        }
        if let Some(helper) = &self.helper {
            let order = &helper.order;
            *order.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
            order.state.store(ASKED, Ordering::Release);
            futex::wake(&order.state, 1, Scope::Process);
            self.busy = true;
        }
        Ok(())
    }

    fn answer(&mut self) -> Option<Answer> {
        let helper = self.helper.as_ref().filter(|_| self.busy)?;
        if helper.order.state.load(Ordering::Acquire) != IDLE {
            return None;
        }
        let _ = fd::read(helper.event.number(), &mut [0; 8]);
        self.busy = false;
        let answer = helper.order.answer.lock();
        answer.unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Order {
    fn work(&self) {
        loop {
            match self.state.load(Ordering::Acquire) {
                IDLE => drop(futex::wait(&self.state, IDLE, None, Scope::Process)),
                ENDED => return,
                _ => {
                    self.carry_out();
                    // It may be told to end meanwhile.
                    let _ = (self.state).compare_exchange(
                        ASKED,
                        IDLE,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    );
                    let _ = fd::write(self.event, &1_u64.to_ne_bytes());
                }
            }
        }
    }

    fn carry_out(&self) {
        let job = self
            .job
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let answer = job.map(|job| match job {
            Job::Reserve(by, slots) => {
                let done = by.reserve(slots).is_ok();
                Answer::Reserved(by, done)
            }
            Job::GiveBack(by, slots) => {
                by.give_back(slots);
                Answer::GaveBack(by, slots)
            }
            Job::Reap(view) => {
                view.reap();
                Answer::Reaped(view)
            }
        });
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }
}

fn start() -> Result<Helper, Errno> {
    let event = fd::eventfd()?;
    let order = Arc::new(Order {
        state: AtomicU32::new(IDLE),
        job: Mutex::new(None),
        answer: Mutex::new(None),
        event: event.number(),
    });
    let options = Options {
        name: c"outpage-beside",
        stack_bytes: STACK_BYTES,
        share_files: true,
        process: false,
        untraced: false,
        known: !thread::is_bare(),
    };
    let theirs = order.clone();
    let thread = thread::spawn(|order: Arc<Order>| order.work(), theirs, &options)?;
    Ok(Helper {
        order,
        thread,
        event,
    })
}

/// What the pager was promised of more slots.
pub(crate) struct Growth {
    /// Extents, that under way among them.
    left: u32,
    /// For which room is being made.
    extent: Option<u32>,
    /// The dead were searched for the next one.
    searched: bool,
}

/// The slots of an extent.
const fn slots_of(extent: u32) -> SlotRange {
    SlotRange::new(SlotNo(extent * EXTENT_SLOTS), EXTENT_SLOTS)
}

impl Live {
    /// Asks again for room that there was not, when that is due.
    pub(crate) fn ask_again(&mut self, now: Nanos) {
        let due = self.beside.asks_again.is_some_and(|at| at <= now);
        if due && self.growth.is_none() && !self.beside.is_busy() {
            self.beside.asks_again = None;
            self.grow(EXTENT_SLOTS);
        }
    }

    /// The pager asked for more slots: leases extents of the shared swap file. It hears of each when there is room for it.
    pub(crate) fn grow(&mut self, slots: u32) {
        // Some of it may be what it needed no more just before.
        while let Some(extent) = self.unneeded.pop() {
            self.session.release_extent(extent);
        }
        let left = slots.div_ceil(EXTENT_SLOTS).max(1);
        if let Some(growth) = &mut self.growth {
            // It is asked for already, for there was none before.
            growth.left += left;
            return;
        }
        self.growth = Some(Growth {
            left,
            extent: None,
            searched: false,
        });
        self.grow_on();
    }

    /// Goes on with that until it is done, or something is being done beside.
    fn grow_on(&mut self) {
        while !self.beside.is_busy()
            && let Some(growth) = &mut self.growth
        {
            let Some(extent) = self.session.lease_extent() else {
                // Extents of processes that died are free again.
                if mem::replace(&mut growth.searched, true) {
                    return self.grown(None);
                }
                self.bury_the_dead();
                continue;
            };
            growth.searched = false;
            let slots = slots_of(extent);
            let by = self.store.beside();
            if let Some(by) = by {
                // Or it would stay on the CPU that the pager is bound to.
                self.placement.let_go();
                growth.extent = Some(extent);
                if self.beside.ask(Job::Reserve(by, slots)).is_ok() {
                    return;
                }
            }
            let done = self.store.reserve(slots).is_ok();
            self.reserved(extent, done);
        }
    }

    fn reserved(&mut self, extent: u32, done: bool) {
        if !done {
            self.session.release_extent(extent);
            return self.grown(None);
        }
        self.leased.push(extent);
        self.grown(Some(slots_of(extent)));
    }

    /// The pager needs the extent of `slots` no more: it goes back to the session, and its room to the file system, as soon as nothing else is done beside. One that
    /// a child holds, too, is the pager's again: as long as the child lives nobody else could have it.
    pub(crate) fn shrink(&mut self, slots: SlotRange) {
        let extent = slots.start.0 / EXTENT_SLOTS;
        assert_eq!(slots, slots_of(extent), "an extent as it was granted");
        if self.session.shares_any(&[extent]) {
            return self.pager.handle(clock::now(), Event::Grown(slots));
        }
        // What it needs it asks for.
        self.beside.asks_again = None;
        self.leased.retain(|&leased| leased != extent);
        self.unneeded.push(extent);
        self.shrink_on();
    }

    fn shrink_on(&mut self) {
        while !self.beside.is_busy()
            && let Some(extent) = self.unneeded.pop()
        {
            let slots = slots_of(extent);
            if let Some(by) = self.store.beside() {
                self.placement.let_go();
                if self.beside.ask(Job::GiveBack(by, slots)).is_ok() {
                    return;
                }
            }
            self.session.release_extent(extent);
        }
    }

    /// Tells the pager of `slots` more, or that there are no more.
    fn grown(&mut self, slots: Option<SlotRange>) {
        let growth = self.growth.as_mut();
        let left = growth.map_or(0, |growth| {
            growth.left -= 1;
            growth.left
        });
        if left == 0 || slots.is_none() {
            self.growth = None;
        }
        let now = clock::now();
        self.beside.asks_again = slots.is_none().then(|| Nanos(now.0 + ASK_AGAIN.0));
        let event = slots.map_or(Event::Full, Event::Grown);
        self.pager.handle(now, event);
    }

    /// Frees what processes had that died: at once where nobody can do it beside, else soon.
    pub(crate) fn bury_the_dead(&mut self) {
        if self.beside.is_busy() {
            return;
        }
        self.placement.let_go();
        let Some(view) = self.beside.view.take() else {
            self.session.reap();
            return;
        };
        if let Err((Job::Reap(view), _)) = self.beside.ask(Job::Reap(view)) {
            self.session.reap();
            self.beside.view = Some(view);
        }
    }

    /// Takes what was done beside; how much that was.
    pub(crate) fn take_what_was_done_beside(&mut self) -> usize {
        match self.beside.answer() {
            None => return 0,
            Some(Answer::Reaped(view)) => self.beside.view = Some(view),
            Some(Answer::GaveBack(by, slots)) => {
                drop(by);
                // Not before: whoever leases it next may have written there.
                self.session.release_extent(slots.start.0 / EXTENT_SLOTS);
            }
            Some(Answer::Reserved(by, done)) => {
                drop(by);
                let extent = self.growth.as_mut().and_then(|growth| growth.extent.take());
                if let Some(extent) = extent {
                    self.reserved(extent, done);
                }
            }
        }
        self.grow_on();
        self.shrink_on();
        1
    }
}
