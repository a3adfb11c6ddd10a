//! Pages read ahead, from the read to their touch or release: what counts as what, and in which
//! order they come.

use std::collections::{BTreeSet, VecDeque};

use outpage_core::contract::{
    Access, Action, ActionId, Event, Outcome, PageOutcome, Source, Waiter,
};
use outpage_core::limits::FRAMES_MIN;
use outpage_core::page::{ContentHash, State};
use outpage_core::pager::{Pager, Setup};
use outpage_core::readahead::{self, Choice};
use outpage_core::swap_cache::{OBJECTS_MAX, Rate, SwapCache};
use outpage_core::units::{Nanos, ObjectId, PageNo, PageRange, SlotNo, SlotRange};
use outpage_core::{pageout, reclaim, slots};
use proptest::prelude::*;

use crate::world::page;

const OBJECT_PAGES: u64 = 3 * FRAMES_MIN as u64;

/// A body that carries out everything at once but reads, which wait in order.
pub(crate) struct Body {
    pub(crate) pager: Pager,
    pub(crate) mapped: BTreeSet<PageNo>,
    reads: VecDeque<(ActionId, SlotRange)>,
    woken: Vec<PageNo>,
    slots: u32,
    /// What the store takes in one request.
    read_max: u32,
}

fn hash(page: PageNo) -> ContentHash {
    ContentHash([page.raw() as u32, (page.raw() >> 32) as u32, 1])
}

impl Body {
    /// Read-ahead is not governed unless `settings` say so.
    pub(crate) fn new(policy: &str, frames: usize, settings: &str) -> Self {
        let readahead = Choice::ungoverned(readahead::find(policy).unwrap());
        let readahead = readahead.for_frames(frames).with(settings).unwrap();
        let pageout = pageout::find("packed").unwrap();
        let body = outpage_core::contract::Body { bits: false };
        let in_order = reclaim::Choice::parse("second-chance", body).unwrap();
        let setup = Setup {
            reclaim: in_order.build(),
            pageout: (pageout.build)(pageout::Params {
                buffer_pages: 16,
                ..pageout.params()
            }),
            readahead: readahead.build(),
            slots: slots::find("log").unwrap().build,
            tier: None,
            discard: None,
            frames,
            slots_max: 1 << 18,
            zero_around: 1,
            rescue_around: 0,
            body,
        };
        Self {
            read_max: readahead.max_window(),
            pager: Pager::new(setup),
            mapped: BTreeSet::new(),
            reads: VecDeque::new(),
            woken: Vec::new(),
            slots: 0,
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.pager.handle(Nanos(0), event);
        while let Some(action) = self.pager.poll_action() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        let done = |run: PageRange| vec![PageOutcome::Done; run.pages as usize];
        match action {
            Action::ZeroFill { id, run, .. } | Action::Map { id, run, .. } => {
                self.mapped.extend(run.iter());
                self.done(id, Outcome::Pages(&done(run)));
            }
            Action::Detach { id, run, .. } => {
                let mut outcomes = Vec::new();
                for page in run.iter() {
                    assert!(self.mapped.remove(&page));
                    let hash = hash(page);
                    outcomes.push(PageOutcome::Detached { hash, zero: false });
                }
                self.done(id, Outcome::Pages(&outcomes));
            }
            Action::PageIn {
                id, slots, pages, ..
            } => {
                assert!(slots.slots <= self.read_max, "{slots:?} in one read");
                let intact = pages
                    .iter()
                    .zip(pages.hashes())
                    .all(|(&p, &h)| h == hash(p));
                assert!(intact, "the hash that was told at the detach");
                self.reads.push_back((id, slots));
            }
            Action::Drop { .. } => unreachable!("nothing is freed"),
            Action::Compress { .. } | Action::Decompress { .. } => unreachable!("there is no pool"),
            Action::PageOut { id, .. }
            | Action::Release { id, .. }
            | Action::Dead { id, .. }
            | Action::Poison { id, .. } => {
                self.done(id, Outcome::Done);
            }
            Action::Wake { page, .. } => self.woken.push(page),
            Action::Grow { slots } => {
                let range = SlotRange::new(SlotNo(self.slots), slots);
                self.slots += slots;
                self.tell(Event::Grown(range));
            }
            Action::TakenBack { .. } | Action::Shrink { .. } => {}
            Action::Exhausted { .. } => panic!("there is always a frame"),
        }
    }

    fn done(&mut self, id: ActionId, outcome: Outcome<'_>) {
        self.tell(Event::Done { id, outcome });
    }

    /// The oldest read ends; its slots.
    fn read(&mut self) -> SlotRange {
        let (id, slots) = self.reads.pop_front().unwrap();
        self.done(id, Outcome::Done);
        slots
    }

    /// A touch, which may fault. Reads stay open.
    fn begin(&mut self, page: PageNo) {
        if self.mapped.contains(&page) {
            return;
        }
        self.tell(Event::Fault {
            page,
            access: Access::Read,
            waiter: Waiter(1),
            source: Source(1),
            extent: PageRange::new(PageNo::new(page.object(), 0), 1 << 20),
        });
    }

    /// A touch, and all reads.
    pub(crate) fn touch(&mut self, page: PageNo) {
        self.begin(page);
        while !self.reads.is_empty() {
            self.read();
        }
        assert!(self.mapped.contains(&page) || self.pager.state(page) != State::Resident);
    }

    /// Touches all of `object`, so that its first pages leave.
    fn fill(&mut self, object: u32) {
        (0..OBJECT_PAGES).for_each(|index| self.touch(page(object, index)));
    }
}

fn share(rate: Option<Rate>) -> Option<f64> {
    rate.map(|rate| rate.share)
}

/// A body of which the first pages of object 1 are paged out, in consecutive slots.
fn paged_out(policy: &str, settings: &str) -> Body {
    let mut body = Body::new(policy, FRAMES_MIN, settings);
    body.fill(1);
    (0..64).for_each(|n| assert_eq!(body.pager.state(page(1, n)), State::PagedOut));
    body
}

#[test]
fn a_staged_page_waits_for_its_own_touch_which_is_a_hit() {
    let mut body = paged_out("asp", "");
    body.touch(page(1, 8));
    // The window of 8: the demanded page mapped, seven staged, clean and unmapped.
    assert!(body.mapped.contains(&page(1, 8)));
    for n in 9..16 {
        assert_eq!(body.pager.state(page(1, n)), State::Staged);
    }
    for n in [9, 11, 12] {
        body.touch(page(1, n));
        assert!(body.mapped.contains(&page(1, n)));
    }
    let stats = body.pager.stats();
    assert_eq!((stats.read_ahead, stats.read_ahead_hits), (7, 3));
    assert_eq!(stats.read_ahead_mapped, 0);
    assert_eq!(stats.windows.0[8], 1);
    // (pages read - swap-ins) is 8 - 1.
    let cache = stats.swap_cache();
    assert_eq!(cache.page_ins - cache.major_faults, 7);
    assert_eq!(share(cache.hit_rate()), Some(3.0 / 7.0));
    assert_eq!(share(cache.coverage()), Some(3.0 / 4.0));
    assert_eq!(
        (share(cache.accuracy()), share(cache.timeliness())),
        (Some(1.0), Some(1.0))
    );
}

/// Touches every second page of object 1, so that its pages lie in neighbouring slots and are no neighbours.
fn skipping(policy: &str) -> Body {
    let mut body = Body::new(policy, FRAMES_MIN, "");
    (0..OBJECT_PAGES / 2).for_each(|n| body.touch(page(1, 2 * n)));
    body.fill(2);
    body
}

#[test]
fn a_rescue_maps_on_along_the_stream_of_slots() {
    let mut body = skipping("stream");
    let mut faults = 0;
    for n in 0..OBJECT_PAGES / 2 {
        let page = page(1, 2 * n);
        faults += u32::from(!body.mapped.contains(&page));
        body.touch(page);
        assert!(body.mapped.contains(&page));
    }
    let stats = body.pager.stats();
    // Sixteen pages a fault once the stream runs, and its windows go on being read ahead.
    assert!(u64::from(faults) < OBJECT_PAGES / 2 / 4, "{faults} faults");
    assert!(stats.major_faults < OBJECT_PAGES / 2 / 16, "{stats:?}");
}

#[test]
fn a_swap_cache_maps_nothing_along_the_stream() {
    let mut body = skipping("linux-slot");
    (0..64).for_each(|n| body.touch(page(1, 2 * n)));
    assert_eq!(body.pager.stats().read_ahead_mapped, 0);
}

#[test]
fn what_is_released_untouched_is_waste() {
    let mut body = paged_out("asp", "");
    body.touch(page(1, 8));
    body.touch(page(1, 10));
    body.fill(2);
    let cache = body.pager.stats().swap_cache();
    assert_eq!((cache.read_ahead, cache.hits, cache.waste), (7, 1, 6));
    assert_eq!(share(cache.accuracy()), Some(1.0 / 7.0));
}

#[test]
fn a_touch_while_the_page_is_read_is_a_late_hit() {
    let mut body = paged_out("asp", "demand-first=2");
    body.begin(page(1, 8));
    body.read();
    body.begin(page(1, 12));
    body.touch(page(1, 14));
    let cache = body.pager.stats().swap_cache();
    assert_eq!((cache.major_faults, cache.hits, cache.late), (1, 2, 2));
    body.touch(page(1, 15));
    let cache = body.pager.stats().swap_cache();
    assert_eq!(share(cache.timeliness()), Some(1.0 / 3.0));
}

#[test]
fn pages_mapped_along_are_neither_hits_nor_waste() {
    let mut body = paged_out("asp", "arrival=mapped");
    body.touch(page(1, 8));
    (8..16).for_each(|n| assert!(body.mapped.contains(&page(1, n))));
    let cache = body.pager.stats().swap_cache();
    assert_eq!((cache.read_ahead, cache.mapped, cache.hits), (7, 7, 0));
    assert_eq!((cache.hit_rate(), cache.accuracy()), (None, None));
}

#[test]
fn the_demanded_page_comes_first_and_its_reader_goes_on() {
    let mut body = paged_out("asp", "demand-first=8");
    body.begin(page(1, 11));
    let sizes: Vec<u32> = body.reads.iter().map(|read| read.1.slots).collect();
    assert_eq!(
        sizes,
        [1, 4, 3],
        "the page, then what lies above and below it"
    );
    body.woken.clear();
    body.read();
    assert_eq!(body.woken, [page(1, 11)]);
    assert_eq!(body.pager.state(page(1, 12)), State::Reading);
    while !body.reads.is_empty() {
        body.read();
    }
    for n in (8..11).chain(12..16) {
        assert_eq!(body.pager.state(page(1, n)), State::Staged);
    }
    assert_eq!(body.pager.stats().read_ahead, 7);
    // Smaller windows are read as a whole.
    let mut body = paged_out("asp", "demand-first=9");
    body.begin(page(1, 11));
    assert_eq!(body.reads.len(), 1);
}

/// The next window is asked for when a stream goes on, and again at the first touch of it: before
/// the pages of this one are used up.
#[test]
fn the_next_window_is_read_behind_this_one() {
    let mut body = paged_out("stream", "max=8");
    let mut at = 0;
    while body.reads.len() < 2 {
        while !body.reads.is_empty() {
            body.read();
        }
        at += 1;
        body.begin(page(1, at));
    }
    let (now, behind) = (body.reads[0].1, body.reads[1].1);
    assert_eq!(now.end(), behind.start);
    body.woken.clear();
    body.read();
    assert_eq!(
        body.woken,
        [page(1, at)],
        "nobody waits for the window behind"
    );
    body.read();
    let marker = page(1, at + u64::from(now.slots));
    assert_eq!(body.pager.state(marker), State::Staged);
    body.begin(marker);
    assert!(body.mapped.contains(&marker), "no read to wait for");
    assert_eq!(body.reads.len(), 1, "and the window after it is on its way");
    assert_eq!(body.reads[0].1.start, behind.end());
}

#[test]
fn holes_in_a_window_make_several_reads() {
    let mut body = paged_out("linux-slot", "");
    body.touch(page(1, 10));
    body.fill(2);
    // Of the block, one page is mapped again in between.
    body.touch(page(1, 11));
    body.begin(page(1, 13));
    for (_, slots) in &body.reads {
        assert!(slots.slots >= 1);
    }
    while !body.reads.is_empty() {
        body.read();
    }
    assert!(body.mapped.contains(&page(1, 13)));
}

#[test]
fn more_objects_than_places_keep_exact_sums() {
    let mut body = Body::new("asp", FRAMES_MIN, "");
    let objects = OBJECTS_MAX as u32 + 20;
    for round in 0..4 {
        for object in 1..=objects {
            (0..24).for_each(|n| body.touch(page(object, (n * 7 + round) % 40)));
        }
    }
    let table = body.pager.objects();
    assert_eq!(table.as_slice().len(), OBJECTS_MAX);
    assert!(table.others().page_ins > 0);
    assert_eq!(sum(&body.pager), body.pager.stats().swap_cache());
}

fn sum(pager: &Pager) -> SwapCache {
    let mut sum = *pager.objects().others();
    for object in pager.objects().as_slice() {
        let counts = object.counts;
        sum.major_faults += counts.major_faults;
        sum.page_ins += counts.page_ins;
        sum.read_ahead += counts.read_ahead;
        sum.mapped += counts.mapped;
        sum.hits += counts.hits;
        sum.late += counts.late;
        sum.waste += counts.waste;
    }
    sum
}

#[derive(Clone, Debug)]
enum Step {
    /// Pages from here on, so many, so far apart.
    Touch(u32, u64, u64, u64),
    /// The same, the reads staying open for a while.
    Begin(u32, u64),
    Discard(u32, u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let at = (1u32..=3, 0..OBJECT_PAGES);
    prop_oneof![
        6 => (at.clone(), 1..40u64, 1..4u64)
            .prop_map(|((object, from), pages, by)| Step::Touch(object, from, pages, by)),
        4 => at.clone().prop_map(|(object, from)| Step::Begin(object, from)),
        1 => (at, 1..60u64).prop_map(|((object, from), pages)| Step::Discard(object, from, pages)),
    ]
}

fn take(body: &mut Body, step: &Step) {
    match *step {
        Step::Touch(object, from, pages, by) => {
            for n in 0..pages {
                body.touch(page(object, (from + n * by) % OBJECT_PAGES));
            }
        }
        Step::Begin(object, from) => body.begin(page(object, from)),
        Step::Discard(object, from, pages) => {
            while !body.reads.is_empty() {
                body.read();
            }
            let range = PageRange::new(page(object, from), pages.min(OBJECT_PAGES - from));
            range.iter().for_each(|page| {
                body.mapped.remove(&page);
            });
            body.tell(Event::Discard(range));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every page read ahead ends as exactly one of the four.
    #[test]
    fn counts_add_up(
        policy in 0..readahead::REGISTRY.len(),
        staged in any::<bool>(),
        demand_first in prop_oneof![Just(0u32), 1u32..20],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let entry = &readahead::REGISTRY[policy];
        let has = |name| entry.settings.iter().any(|setting| setting.name == name);
        let arrival = if staged { "staged" } else { "mapped" };
        let settings = if has("arrival") {
            format!("arrival={arrival},demand-first={demand_first}")
        } else {
            String::new()
        };
        let mut body = Body::new(entry.name, FRAMES_MIN, &settings);
        for step in &steps {
            take(&mut body, step);
            let s = body.pager.stats();
            let ended = s.read_ahead_hits + s.read_ahead_mapped
                + s.read_ahead_waste + s.read_ahead_dropped;
            let open = body.pager.count(State::Staged) + body.pager.count(State::Reading);
            prop_assert!(ended <= s.read_ahead && s.read_ahead <= ended + open as u64);
            prop_assert!(s.read_ahead_late <= s.read_ahead_hits);
            prop_assert_eq!(sum(&body.pager), s.swap_cache());
        }
        for object in 1..=3 {
            take(&mut body, &Step::Discard(object, 0, OBJECT_PAGES));
        }
        let s = body.pager.stats();
        let ended = s.read_ahead_hits + s.read_ahead_mapped
            + s.read_ahead_waste + s.read_ahead_dropped;
        prop_assert_eq!(ended, s.read_ahead);
        prop_assert_eq!(s.page_ins - s.read_ahead, s.major_faults);
        let stages = entry.needs_touches || staged && has("arrival");
        prop_assert!(s.read_ahead_mapped == 0 || !stages);
    }
}

#[test]
fn an_object_is_told_from_another() {
    let mut body = paged_out("asp", "");
    body.touch(page(1, 8));
    body.touch(page(1, 9));
    let of = |body: &Body, object| {
        let table = body.pager.objects().as_slice();
        let found = table.iter().find(|entry| entry.id == ObjectId(object));
        found.map(|entry| (entry.counts.page_ins, entry.counts.hits))
    };
    assert_eq!(of(&body, 1), Some((8, 1)));
    assert_eq!(of(&body, 2), None);
    let read = body.pager.objects().as_slice()[0];
    assert_eq!((read.first, read.last), (page(1, 8), page(1, 15)));
}
