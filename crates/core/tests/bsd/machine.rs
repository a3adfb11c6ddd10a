//! A body with bits: programs that touch pages, a swap store, and transfers that are answered at
//! once or when the test says so. It checks that no content is lost.

use std::collections::{BTreeMap, HashMap, VecDeque};

use outpage_core::contract::{Access, Action, ActionId, Body, Event, IoFailure, Outcome};
use outpage_core::contract::{PageOutcome, Source, Waiter};
use outpage_core::page::{Queue, State};
use outpage_core::pager::{Pager, Place, Setup};
use outpage_core::reclaim::Policy;
use outpage_core::reclaim::bsd::{Params, Release};
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};
use outpage_core::{pageout, readahead, slots};

/// The entry that every page lies in.
pub const EXTENT_PAGES: u64 = 1 << 20;

pub fn page(object: u32, index: u64) -> PageNo {
    PageNo::new(ObjectId(object), index)
}

/// What a machine is made of.
#[derive(Clone)]
pub struct Plan {
    pub params: Params,
    pub frames: usize,
    pub slots: u32,
    pub pageout: &'static str,
    pub pageout_params: Option<pageout::Params>,
    pub readahead: &'static str,
    pub allocator: &'static str,
}

impl Plan {
    pub fn new(release: Release, frames: usize) -> Self {
        Self {
            params: Params::new(release),
            frames,
            slots: 1 << 16,
            pageout: "bsd",
            pageout_params: None,
            readahead: "bsd",
            allocator: "blist",
        }
    }

    pub fn start(&self) -> Machine {
        let pageout = pageout::find(self.pageout).unwrap();
        let ahead = readahead::Choice::ungoverned(readahead::find(self.readahead).unwrap());
        let settings = match (self.readahead, self.params.release) {
            ("bsd", Release::V6_2) => "lastr=every-fault",
            _ => "",
        };
        let setup = Setup {
            reclaim: Policy::Daemon(self.params),
            pageout: (pageout.build)(self.pageout_params.unwrap_or(pageout.params())),
            readahead: ahead.with(settings).unwrap().build(),
            slots: slots::find(self.allocator).unwrap().build,
            tier: None,
            discard: None,
            frames: self.frames,
            slots_max: self.slots,
            zero_around: 1,
            rescue_around: 0,
            body: Body { bits: true },
        };
        let mut machine = Machine {
            pager: Pager::new(setup),
            now: 0,
            held: VecDeque::new(),
            hold_writes: false,
            hold_reads: false,
            waiting: BTreeMap::new(),
            next_waiter: 0,
            content: HashMap::new(),
            truth: BTreeMap::new(),
            store: HashMap::new(),
            writes: Vec::new(),
            reads: Vec::new(),
            versions: 0,
            exhausted: 0,
            lenient: false,
        };
        // The first two slots of a device are never used.
        machine.event(Event::Grown(SlotRange::new(SlotNo(2), self.slots - 2)));
        machine.event(Event::Full);
        machine
    }
}

/// An unanswered transfer.
pub struct Held {
    pub id: ActionId,
    pub out: bool,
    pub pages: Vec<PageNo>,
    pub slots: SlotRange,
}

pub struct Machine {
    pub pager: Pager,
    pub now: u64,
    pub held: VecDeque<Held>,
    pub hold_writes: bool,
    pub hold_reads: bool,
    /// Whose touch is not over.
    pub waiting: BTreeMap<u32, (PageNo, Access)>,
    next_waiter: u32,
    /// What is in memory.
    content: HashMap<PageNo, u64>,
    /// What each page ought to hold.
    pub truth: BTreeMap<PageNo, u64>,
    store: HashMap<u32, u64>,
    /// Slots and pages of each write and read, in order.
    pub writes: Vec<(SlotRange, Vec<PageNo>)>,
    pub reads: Vec<(SlotRange, Vec<PageNo>)>,
    versions: u64,
    pub exhausted: usize,
    /// Touches may be left waiting: for memory that never comes.
    pub lenient: bool,
}

impl Machine {
    pub fn event(&mut self, event: Event<'_>) {
        self.pager.handle(Nanos(self.now), event);
        self.drive();
    }

    fn drive(&mut self) {
        while let Some(action) = self.pager.poll_action() {
            match action {
                Action::ZeroFill { id, run, .. } => {
                    assert_eq!(run.pages, 1);
                    self.content.insert(run.start, 0);
                    self.truth.insert(run.start, 0);
                    let outcomes = [PageOutcome::Done];
                    let outcome = Outcome::Pages(&outcomes);
                    self.pager
                        .handle(Nanos(self.now), Event::Done { id, outcome });
                }
                Action::PageIn {
                    id, slots, pages, ..
                } => self.transfer(id, slots, &pages, false),
                Action::PageOut {
                    id, slots, pages, ..
                } => self.transfer(id, slots, &pages, true),
                Action::Wake { waiter, page } => {
                    let (wanted, access) = self.waiting.remove(&waiter.0).expect("waits");
                    assert_eq!(wanted, page);
                    self.touch_as(waiter.0, page, access);
                }
                Action::Poison { id, .. } | Action::Dead { id, .. } => {
                    let outcome = Outcome::Done;
                    self.pager
                        .handle(Nanos(self.now), Event::Done { id, outcome });
                }
                Action::TakenBack { .. } => {}
                Action::Exhausted { .. } => self.exhausted += 1,
                Action::Grow { .. } | Action::Shrink { .. } => {}
                other => panic!("a daemon does not ask for {other:?}"),
            }
            assert!(self.pager.frames_used() <= self.pager.limits().frames);
        }
    }

    fn transfer(&mut self, id: ActionId, slots: SlotRange, pages: &[PageNo], out: bool) {
        let pages = pages.to_vec();
        assert_eq!(pages.len() as u32, slots.slots);
        if out {
            self.writes.push((slots, pages.clone()));
            for (page, slot) in pages.iter().zip(slots.iter()) {
                assert!(slot.0 >= 2);
                // Nobody may write to the page before this is done.
                self.store.insert(slot.0, self.content[page]);
            }
        } else {
            self.reads.push((slots, pages.clone()));
        }
        self.held.push_back(Held {
            id,
            out,
            pages,
            slots,
        });
        if !(if out {
            self.hold_writes
        } else {
            self.hold_reads
        }) {
            self.answer(self.held.len() - 1, true);
        }
    }

    /// Answers transfer `at` of those that are held.
    pub fn answer(&mut self, at: usize, well: bool) {
        let held = self.held.remove(at).expect("held");
        for (page, slot) in held.pages.iter().zip(held.slots.iter()) {
            if held.out {
                assert_eq!(self.store[&slot.0], self.content[page], "written meanwhile");
            } else if well {
                let content = self.store[&slot.0];
                assert_eq!(content, self.truth[page], "{page:?} came back wrong");
                self.content.insert(*page, content);
            }
        }
        let outcome = if well {
            Outcome::Done
        } else {
            Outcome::Failed(IoFailure::Device)
        };
        self.event(Event::Done {
            id: held.id,
            outcome,
        });
    }

    pub fn answer_all(&mut self) {
        while !self.held.is_empty() {
            self.answer(0, true);
        }
    }

    /// Time passes; the daemon is told when it wants to be.
    pub fn pass(&mut self, nanos: u64) {
        let until = self.now + nanos;
        while let Some(at) = self.pager.next_deadline().filter(|at| at.0 <= until) {
            self.now = self.now.max(at.0);
            self.event(Event::Timer);
        }
        self.now = until;
    }

    fn touch_as(&mut self, waiter: u32, page: PageNo, access: Access) {
        if self.pager.touch(PageRange::one(page), access) == 1 {
            assert_eq!(self.content[&page], self.truth[&page], "{page:?}");
            if access == Access::Write {
                self.versions += 1;
                self.content.insert(page, self.versions);
                self.truth.insert(page, self.versions);
            }
            return;
        }
        if self.pager.state(page) == State::Poisoned {
            self.truth.remove(&page);
            return;
        }
        self.waiting.insert(waiter, (page, access));
        let extent = PageRange::new(self::page(page.object().0, 0), EXTENT_PAGES);
        self.event(Event::Fault {
            page,
            access,
            waiter: Waiter(waiter),
            source: Source(waiter),
            extent,
        });
    }

    /// One touch; it may be waiting when this returns.
    pub fn begin(&mut self, page: PageNo, access: Access) -> u32 {
        let waiter = self.next_waiter;
        self.next_waiter += 1;
        self.touch_as(waiter, page, access);
        waiter
    }

    /// One touch to its end: answers what it waits for, and lets time pass.
    pub fn touch(&mut self, page: PageNo, access: Access) {
        let waiter = self.begin(page, access);
        for _ in 0..if self.lenient { 3 } else { 100 } {
            if !self.waiting.contains_key(&waiter) {
                return;
            }
            self.answer_all();
            if self.waiting.contains_key(&waiter) {
                self.pass(500_000_000);
            }
        }
        assert!(self.lenient, "{page:?} never comes");
    }

    pub fn write(&mut self, pages: impl IntoIterator<Item = PageNo>) {
        pages
            .into_iter()
            .for_each(|page| self.touch(page, Access::Write));
    }

    pub fn read(&mut self, pages: impl IntoIterator<Item = PageNo>) {
        pages
            .into_iter()
            .for_each(|page| self.touch(page, Access::Read));
    }

    /// Nobody wants what is in the range.
    pub fn forget(&mut self, range: PageRange) {
        self.truth.retain(|&page, _| !range.contains(page));
        self.content.retain(|&page, _| !range.contains(page));
    }

    /// Pages that are free or cached.
    pub fn available(&self) -> usize {
        self.pager.frames_free() + self.pager.queued(Queue::Cache)
    }

    pub fn place(&self, page: PageNo) -> Place {
        self.pager.place_of(page).expect("touched")
    }

    /// Every page is where it is said to be, with its content.
    pub fn check(&self) {
        for (&page, &truth) in &self.truth {
            let state = self.pager.state(page);
            match state {
                State::Untouched => assert_eq!(truth, 0, "{page:?} was dropped"),
                State::PagedOut => {
                    let slot = self.place(page).slot;
                    assert_eq!(self.store[&slot.0], truth, "{page:?} in {slot:?}");
                }
                State::Reading => {}
                _ => assert_eq!(self.content[&page], truth, "{page:?}"),
            }
            if let Some(place) = self.pager.place_of(page) {
                let mapped = match state {
                    State::Resident => true,
                    State::Writing => place.mapped,
                    _ => false,
                };
                assert_eq!(place.mapped, mapped, "{page:?} {state:?}");
                assert!(!place.writable || place.mapped, "{page:?}");
                assert!(state != State::Writing || !place.writable, "{page:?}");
            }
        }
    }
}
