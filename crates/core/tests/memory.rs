//! What the state of touched pages takes, counted by the allocator, under every policy set that a
//! live body can have.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use outpage_core::contract::{Access, Action, Body, Event, Outcome, PageOutcome, Source, Waiter};
use outpage_core::page::ContentHash;
use outpage_core::pager::{Pager, Setup};
use outpage_core::settings::Values;
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};
use outpage_core::{pageout, readahead, reclaim, slots};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of state for each page that was touched, at most.
const PAGE_BYTES_MAX: usize = 32;
/// Bytes beside that: two slabs of leaves in reserve, buffers, tables of fixed size.
const CONSTANT_BYTES: usize = 1 << 20;
/// Pages that the leaves of a slab describe, so that sizes do not differ by what is left of one.
const SLAB_PAGES: u64 = 1 << 14;
/// Slots that the store grants at a time.
const EXTENT_SLOTS: u32 = 4096;

/// Answers everything at once. Contents are version numbers; every access writes.
struct Machine {
    pager: Pager,
    versions: Vec<u32>,
    in_slots: Vec<u32>,
    random: u64,
}

impl Machine {
    fn new(pages: u64, setup: Setup) -> Self {
        Self {
            pager: Pager::new(setup),
            versions: vec![0; pages as usize],
            in_slots: Vec::new(),
            random: 1,
        }
    }

    fn hash(version: u32) -> ContentHash {
        ContentHash([version, 1, 1])
    }

    fn touch(&mut self, index: u64) {
        let page = PageNo::new(ObjectId(1), index);
        self.versions[index as usize] += 1;
        let fault = Event::Fault {
            page,
            access: Access::Write,
            waiter: Waiter(0),
            source: Source(0),
            extent: PageRange::new(PageNo::new(ObjectId(1), 0), self.versions.len() as u64),
        };
        self.pager.handle(Nanos(0), fault);
        self.drive();
        self.pager.handle(Nanos(0), Event::Tick);
        self.drive();
    }

    fn drive(&mut self) {
        while let Some(action) = self.pager.poll_action() {
            let (id, outcome);
            let outcomes: Vec<_>;
            match action {
                Action::ZeroFill { id: op, run, .. } | Action::Map { id: op, run, .. } => {
                    outcomes = run.iter().map(|_| PageOutcome::Done).collect();
                    (id, outcome) = (op, Outcome::Pages(&outcomes));
                }
                Action::Detach { id: op, run, .. } => {
                    let detached = |page: PageNo| PageOutcome::Detached {
                        hash: Self::hash(self.versions[page.index() as usize]),
                        zero: false,
                    };
                    outcomes = run.iter().map(detached).collect();
                    (id, outcome) = (op, Outcome::Pages(&outcomes));
                }
                Action::PageOut {
                    id: op,
                    slots,
                    pages,
                    ..
                } => {
                    for (page, slot) in pages.iter().zip(slots.iter()) {
                        self.in_slots[slot.0 as usize] = self.versions[page.index() as usize];
                    }
                    (id, outcome) = (op, Outcome::Done);
                }
                Action::PageIn {
                    id: op,
                    slots,
                    pages,
                    ..
                } => {
                    let read = slots.iter().map(|slot| self.in_slots[slot.0 as usize]);
                    assert!(read.map(Self::hash).eq(pages.hashes().iter().copied()));
                    // A demanded page is written anew once it is mapped.
                    (id, outcome) = (op, Outcome::Done);
                }
                Action::Compress { .. } | Action::Decompress { .. } => {
                    unreachable!("there is no pool")
                }
                Action::Drop { .. } => unreachable!("nothing is freed"),
                Action::Release { id: op, .. }
                | Action::Dead { id: op, .. }
                | Action::Poison { id: op, .. } => {
                    (id, outcome) = (op, Outcome::Done);
                }
                Action::Grow { .. } => {
                    let start = SlotNo(self.in_slots.len() as u32);
                    self.in_slots
                        .resize(self.in_slots.len() + EXTENT_SLOTS as usize, 0);
                    let range = SlotRange::new(start, EXTENT_SLOTS);
                    self.pager.handle(Nanos(0), Event::Grown(range));
                    continue;
                }
                Action::Wake { .. } | Action::TakenBack { .. } | Action::Shrink { .. } => continue,
                Action::Exhausted { .. } => panic!("out of memory"),
            }
            self.pager.handle(Nanos(0), Event::Done { id, outcome });
        }
    }

    fn touch_at_random(&mut self, touches: u64) {
        for _ in 0..touches {
            // Knuth's MMIX generator.
            self.random = (self.random.wrapping_mul(6_364_136_223_846_793_005))
                .wrapping_add(1_442_695_040_888_963_407);
            self.touch((self.random >> 33) % self.versions.len() as u64);
        }
    }
}

/// The most bytes that a pager of `pages` touched pages in half as many frames holds: after two
/// passes in order, after touches at random, and after some while a forked child is there.
fn bytes(pages: u64, reclaim: &reclaim::Entry, sets: [usize; 3]) -> usize {
    let [pageout, slots, readahead] = sets;
    let (pageout, slots) = (&pageout::REGISTRY[pageout], &slots::REGISTRY[slots]);
    let readahead = &readahead::REGISTRY[readahead];
    let before = BYTES.load(Ordering::Relaxed);
    let mut machine = Machine::new(
        pages,
        Setup {
            reclaim: (reclaim.build)(&Values::defaults(reclaim.settings)),
            pageout: (pageout.build)(pageout.params()),
            readahead: readahead::Choice::plain(readahead).build(),
            slots: slots.build,
            tier: None,
            discard: None,
            frames: pages as usize / 2,
            slots_max: 4 * pages as u32,
            zero_around: 16,
            rescue_around: 4,
            body: Body::default(),
        },
    );
    let held = |machine: &Machine| {
        let own = (machine.versions.capacity() + machine.in_slots.capacity()) * size_of::<u32>();
        BYTES.load(Ordering::Relaxed) - before - own
    };
    (0..2 * pages).for_each(|touch| machine.touch(touch % pages));
    let dense = held(&machine);
    machine.touch_at_random(pages);
    let scattered = held(&machine);
    machine.pager.handle(Nanos(0), Event::Forking);
    machine.touch_at_random(pages / 4);
    let forked = held(&machine);
    dense.max(scattered).max(forked)
}

fn assert_few_bytes(reclaim: &reclaim::Entry, sets: [usize; 3]) {
    let name = [
        pageout::REGISTRY[sets[0]].name,
        slots::REGISTRY[sets[1]].name,
        readahead::REGISTRY[sets[2]].name,
    ];
    let few = bytes(SLAB_PAGES, reclaim, sets);
    let most = SLAB_PAGES as usize * PAGE_BYTES_MAX + CONSTANT_BYTES;
    assert!(few <= most, "{name:?}: {few} bytes");
    let more = bytes(3 * SLAB_PAGES, reclaim, sets);
    let per_page = (more - few) as f64 / (2 * SLAB_PAGES) as f64;
    println!("{name:?}: {per_page:.2} bytes a page, {few} for the first {SLAB_PAGES}");
    assert!(
        per_page <= PAGE_BYTES_MAX as f64,
        "{name:?}: {per_page:.2} bytes a page"
    );
}

#[test]
// One test: it counts what the whole process allocates.
fn core_state_is_at_most_32_bytes_a_touched_page_and_few_for_what_victims_are_chosen_by() {
    let remembers_nothing = reclaim::REGISTRY.iter().find(|one| one.name == "fifo");
    let remembers_nothing = remembers_nothing.expect("a registered policy");
    // What one part of a set keeps for a page does not depend on the others: each of them beside the defaults of the rest.
    let parts = [
        pageout::REGISTRY.len(),
        slots::REGISTRY.len(),
        readahead::REGISTRY.len(),
    ];
    for (part, offered) in parts.into_iter().enumerate() {
        for choice in usize::from(part > 0)..offered {
            let mut sets = [0; 3];
            sets[part] = choice;
            assert_few_bytes(remembers_nothing, sets);
        }
    }
    for entry in reclaim::offered(Body::default()) {
        let bytes = |pages| bytes(pages, entry, [0; 3]);
        let per_page = (bytes(3 * SLAB_PAGES) - bytes(SLAB_PAGES)) as f64 / (2 * SLAB_PAGES) as f64;
        let remembered = match entry.name {
            "second-chance" | "fifo" => 0.0,
            _ => 4.0,
        };
        let most = PAGE_BYTES_MAX as f64 + remembered;
        assert!(
            per_page <= most,
            "{}: {per_page:.2} bytes a page",
            entry.name
        );
        let reserved = reserved(entry);
        println!("{}: room for {reserved:.2} bytes a page", entry.name);
        // The shadows of `auto` have a page of sixteen each, and come in slabs.
        let most = if entry.name == "auto" {
            AUTO_BYTES_MAX
        } else {
            remembered
        };
        // The tables of slabs take a little more.
        assert!(
            reserved <= most + 0.1,
            "{}: {reserved:.2} bytes a page",
            entry.name
        );
    }
}

/// What `auto` makes room for, in bytes a page: a mark of 4, and a sixteenth of six small tables of pages, of five tables of marks, and
/// of what is to be watched.
const AUTO_BYTES_MAX: f64 = 18.0;

/// Room that a policy makes for what it remembers, in bytes a page, where there are many pages.
fn reserved(entry: &reclaim::Entry) -> f64 {
    let reclaim::Policy::Driven(mut policy) = (entry.build)(&Values::defaults(entry.settings))
    else {
        panic!("{} drives itself", entry.name);
    };
    let pages = 64 * SLAB_PAGES as usize;
    let before = BYTES.load(Ordering::Relaxed);
    policy.reserve(pages);
    (BYTES.load(Ordering::Relaxed) - before) as f64 / pages as f64
}
