//! A pager over an address space without a kernel: the loop itself, round by round, on the test's own thread.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use outpage_core::units::{Nanos, PAGE_BYTES, PageNo, SlotRange};
use outpage_core::{discard, tier};
use outpage_store::{
    Allocation, BackendError, Completion, Config as StoreConfig, CopyAt, Delay, Delayed,
    Descriptors, FaultRates, Faulty, Grow, MemoryStore, Reopen, Request, Reserve, ReserveError,
    Store, SubmitError, SwapStore,
};

use super::fake::{Fake, Silent, at};
use super::stage::RW;
use crate::call::{Call, Calls};
use crate::config::Config;
use crate::frames::Frames;
use crate::live::Live;
use crate::scope::{FRAMES_TO_END, Failing, Reach};
use crate::session::Session;
use crate::start::new_pager;
use crate::world::{Mechanism, World};

/// Frames that a program of these tests may have.
pub(crate) const LIMIT: usize = 512;
/// Slots of its store.
const SLOTS: u32 = 1 << 15;
/// What is not done after so many rounds is never done.
const ROUNDS: usize = 100_000;
/// Requests that a store takes at once.
pub(crate) const DEPTH: u16 = 2;

/// Requests end while nobody has closed it. While it is closed none does before a thread that was named went on; then it is open again.
#[derive(Clone)]
pub(crate) struct Gate {
    fake: Fake,
    /// Whom it waits for; 0 while it is open.
    opens_after: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Gate {
    /// How often a store may be asked in vain before it is certain that nothing else is done.
    const ASKED_MAX: u64 = 2000;

    pub(crate) fn close_until_goes_on(&self, tid: u32) {
        self.asked.store(0, SeqCst);
        self.opens_after.store(tid.into(), SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opens_after.load(SeqCst) == 0
    }

    /// Opens it if who was named went on; whom it waits for otherwise.
    fn try_to_open(&self) -> Option<u32> {
        let tid = self.opens_after.load(SeqCst) as u32;
        if tid != 0 && self.fake.state().woken.contains(&tid) {
            self.opens_after.store(0, SeqCst);
        }
        (!self.is_open()).then_some(tid)
    }

    /// The time by which requests end.
    fn now(&self) -> u64 {
        let Some(tid) = self.try_to_open() else {
            return u64::MAX;
        };
        let asked = self.asked.fetch_add(1, SeqCst);
        assert!(asked < Self::ASKED_MAX, "thread {tid} waits for the store");
        0
    }
}

/// A store whose file takes its time to grow: until its gate is open, or nobody is ever going to open it.
struct Growing<S> {
    store: S,
    room: Room,
}

#[derive(Clone)]
struct Room {
    gate: Gate,
    in_vain: Arc<AtomicBool>,
}

impl Room {
    /// How often it looks at its gate, a millisecond apart.
    const LOOKS: usize = 2000;

    fn make(&self) {
        for _ in 0..Self::LOOKS {
            if self.gate.try_to_open().is_none() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.in_vain.store(true, SeqCst);
        self.gate.opens_after.store(0, SeqCst);
    }
}

impl Reserve for Room {
    fn reserve(&self, _: SlotRange) -> Result<Allocation, ReserveError> {
        self.make();
        Ok(Allocation::Reserved)
    }

    fn give_back(&self, _: SlotRange) {
        self.make();
    }
}

impl<S: Grow> Grow for Growing<S> {
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        self.room.make();
        self.store.reserve(slots)
    }

    fn beside(&self) -> Option<Box<dyn Reserve>> {
        Some(Box::new(self.room.clone()))
    }
}

impl<S: Reopen> Reopen for Growing<S> {
    fn carried_fd(&self) -> Option<RawFd> {
        self.store.carried_fd()
    }

    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        self.store.reopen_after_fork(descriptors)
    }
}

impl<S: Store> Store for Growing<S> {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        self.store.submit(request)
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        self.store.poll(out)
    }

    fn forget(&mut self, slots: SlotRange) {
        self.store.forget(slots);
    }

    fn wait(&mut self, timeout_ns: u64) -> bool {
        self.store.wait(timeout_ns)
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.store.wake_fd()
    }

    fn in_flight(&self) -> usize {
        self.store.in_flight()
    }

    fn depth(&self) -> usize {
        self.store.depth()
    }

    fn request_pages_max(&self) -> u32 {
        self.store.request_pages_max()
    }

    fn capacity_slots(&self) -> u32 {
        self.store.capacity_slots()
    }

    fn ram_bytes(&self) -> u64 {
        self.store.ram_bytes()
    }
}

/// The program, and its pager.
pub(crate) struct Paged {
    /// The file grew though who was to go on before did not.
    pub(crate) grew_in_vain: Arc<AtomicBool>,
    pub(crate) fake: Fake,
    pub(crate) live: Live,
    pub(crate) gate: Gate,
}

impl Paged {
    /// Of `pages` pages, none of which is there.
    pub(crate) fn new(mechanism: Mechanism, pages: usize) -> Self {
        Self::with_faults(mechanism, pages, FaultRates::default())
    }

    /// The same, over a store that fails so often.
    pub(crate) fn with_faults(mechanism: Mechanism, pages: usize, rates: FaultRates) -> Self {
        let fake = Fake::new();
        let gate = Gate {
            fake: fake.clone(),
            opens_after: Arc::default(),
            asked: Arc::default(),
        };
        let clock = {
            let gate = gate.clone();
            move || gate.now()
        };
        let request_pages_max = 1024;
        let config = StoreConfig {
            depth: DEPTH,
            request_pages_max,
        };
        let memory = MemoryStore::new(SLOTS, CopyAt::Poll, config);
        let grew_in_vain = Arc::<AtomicBool>::default();
        let store = Growing {
            store: Faulty::new(Delayed::new(memory, Delay::Nanos(1), clock), 5, rates),
            room: Room {
                gate: gate.clone(),
                in_vain: grew_in_vain.clone(),
            },
        };
        let live = Self::live(mechanism, &fake, Box::new(store));
        let mut paged = Self {
            grew_in_vain,
            fake,
            live,
            gate,
        };
        paged.manage(0, pages);
        paged
    }

    fn live(mechanism: Mechanism, fake: &Fake, store: Box<dyn SwapStore + Send>) -> Live {
        // Every page that leaves goes to the store, but for those that were freed.
        let config = Config {
            tier: tier::Choice::parse("none", tier::Written::Plain).expect("one of them"),
            discard: discard::Choice::parse("on-demand").expect("one of them"),
            ..Config::new((LIMIT * PAGE_BYTES) as u64)
        };
        let swap_bytes = u64::from(SLOTS) * PAGE_BYTES as u64;
        let (mut session, _) = Session::create(LIMIT as u64, swap_bytes).expect("session");
        session.join().expect("join");
        let pager = new_pager(&config, SLOTS, LIMIT).expect("settings that hold without one");
        let frames = Frames::new(LIMIT + FRAMES_TO_END).expect("address space");
        let door = Box::new(fake.clone());
        let mut world = World::new(door, Box::new(Silent), frames, LIMIT, mechanism, 1);
        world.failing = Failing::new(Reach::Regions);
        let calls = Arc::new(Calls::new().expect("address space"));
        let mut live = Live::new(pager, world, store, session, calls, LIMIT);
        live.take_share();
        live.placement.unbind(outpage_sys::process::Tid(0), true);
        live
    }

    /// `pages` pages from `first` on are mapped, and the pager is told.
    pub(crate) fn manage(&mut self, first: usize, pages: usize) {
        let taken = self.call(Call::Take {
            addr: at(first),
            len: pages * PAGE_BYTES,
            prot: RW,
            fresh: true,
        });
        assert_eq!(taken, 0);
    }

    pub(crate) fn call(&mut self, call: Call) -> isize {
        let result = self.live.serve(call, 0);
        self.live.drive();
        result
    }

    /// The number of the page at `page`.
    pub(crate) fn number(&self, page: usize) -> PageNo {
        let region = self.live.world.space.at(at(page)).expect("managed");
        region.page(at(page))
    }

    pub(crate) fn rounds_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        for round in 0..ROUNDS {
            if is_done(self) {
                return;
            }
            if self.live.round() == 0 {
                self.live.between_events();
                // What leaves a part at a time does not wait for a tick either.
                self.live.drive();
                // What only a tick tries again does not wait for the clock.
                if round % 8 == 7 {
                    self.live.next_tick = Nanos(0);
                }
            }
        }
        panic!("it is never done");
    }

    /// Thread `tid` reads or writes a page, and waits as long as it has to: the byte that it finds.
    pub(crate) fn touch(&mut self, tid: u32, page: usize, write: Option<u8>) -> u8 {
        loop {
            if let Some(byte) = self.fake.touch(tid, at(page), write) {
                return byte;
            }
            self.rounds_until(|paged| !paged.fake.sleeps(tid));
        }
    }

    /// Writes pages of `range` until `page` is out.
    pub(crate) fn push_out(&mut self, page: usize, range: std::ops::Range<usize>) {
        use outpage_core::page::State;
        let number = self.number(page);
        for other in range {
            self.touch(1, other, Some(1));
            if self.live.pager.state(number) == State::PagedOut {
                return;
            }
        }
        panic!("page {page} stays");
    }

    /// Nothing is under way.
    pub(crate) fn settle(&mut self) {
        self.live.drive();
        self.rounds_until(|paged| paged.live.pager.in_flight() == 0);
    }

    /// Forgets who went on so far.
    pub(crate) fn forget_woken(&self) {
        self.fake.state().woken.clear();
    }
}
