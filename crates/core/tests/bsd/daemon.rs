//! The daemon by itself, on pages that a test puts where it wants them.

use outpage_core::page::{Bit, DIRTY, PageId, Pages, Queue, State};
use outpage_core::reclaim::bsd::{
    AtLimit, Daemon, Laundered, LimitUnit, Memory, Params, Release, SecondLook, ShortageUnit, Step,
};
use outpage_core::units::Nanos;

use crate::machine::page;

const FRAMES: usize = 4000;
/// Free pages below the waking level of 256 and above the least of 73, at [`FRAMES`] under 8.2.
const LOW: usize = 200;

struct World {
    pages: Pages,
    daemon: Daemon,
    free: usize,
    now: u64,
    made: u64,
    /// What laundering leads to: pages that are busy from then on.
    busy: bool,
    /// Clusters of two pages, of which so many make a buffer.
    clusters: u32,
    buffered: u32,
}

impl World {
    fn new(params: Params) -> Self {
        Self {
            pages: Pages::with_bits(true),
            daemon: Daemon::new(params, FRAMES),
            free: LOW,
            now: 0,
            made: 0,
            busy: true,
            clusters: 1,
            buffered: 0,
        }
    }

    fn kernel() -> Self {
        Self::new(Params::new(Release::V8_2))
    }

    /// A mapped page at the end of `queue`.
    fn page(&mut self, queue: Queue, dirty: bool) -> PageId {
        let id = self.pages.create(page(1, self.made), State::Mapping);
        self.made += 1;
        self.pages.set_state(id, State::Resident);
        self.pages.set_bit(id, Bit::Writable, true);
        self.pages.set_flag(id, DIRTY, dirty);
        self.pages.push(queue, id);
        id
    }

    fn pages(&mut self, count: usize, queue: Queue, dirty: bool) -> Vec<PageId> {
        (0..count).map(|_| self.page(queue, dirty)).collect()
    }

    fn step(&mut self) -> Step {
        let memory = Memory {
            free: self.free,
            slots_free: 1 << 20,
        };
        let step = self
            .daemon
            .advance(Nanos(self.now), &mut self.pages, memory);
        match step {
            Step::Cache(id) => {
                self.pages.set_state(id, State::Staged);
                self.pages.push(Queue::Cache, id);
                let available = self.free + self.pages.queued(Queue::Cache);
                self.daemon.freed(available);
            }
            Step::Launder(id) => {
                if self.busy {
                    self.pages.set_state(id, State::Writing);
                }
                self.buffered += 1;
                self.daemon.laundered(Laundered {
                    cluster: 2,
                    flushes: u32::from(self.buffered.is_multiple_of(self.clusters)),
                });
            }
            _ => {}
        }
        step
    }

    /// The steps to the end of the scan that is on its way or begins now.
    fn scan(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            match self.step() {
                Step::Flush => return steps,
                Step::Rest => panic!("no scan"),
                step => steps.push(step),
            }
        }
    }

    fn rest(&mut self) {
        let mut steps = 0;
        while self.step() != Step::Rest {
            steps += 1;
            assert!(steps < 100_000);
        }
    }

    fn queue(&self, queue: Queue) -> Vec<u64> {
        let mut indices = Vec::new();
        let mut at = self.pages.head(queue);
        while let Some(id) = at {
            indices.push(self.pages.number(id).index());
            at = self.pages.behind(id);
        }
        indices
    }
}

fn laundered(steps: &[Step]) -> usize {
    steps
        .iter()
        .filter(|step| matches!(step, Step::Launder(_)))
        .count()
}

#[test]
fn pass_0_over_a_dirty_queue_writes_nothing_and_leads_to_pass_1() {
    let mut world = World::kernel();
    world.pages(300, Queue::Inactive, true);
    world.daemon.wake();
    assert_eq!(world.scan(), [], "every page is spared once");
    assert_eq!(world.daemon.pass(), 0);
    assert_eq!(
        world.queue(Queue::Inactive),
        (0..300).collect::<Vec<_>>(),
        "one lap keeps the order"
    );
    // Nothing was freed, so that the next scan follows at once and does not spare.
    let steps = world.scan();
    assert_eq!(world.daemon.pass(), 1);
    let missing = world.daemon.levels().missing(LOW) as usize;
    assert_eq!((missing, laundered(&steps)), (202, 202), "a page each");
    assert_eq!(world.daemon.counters().spared, 300);
}

#[test]
fn pass_0_launders_32_clusters_and_goes_on_to_clean_pages() {
    let mut world = World::kernel();
    for id in world.pages(40, Queue::Inactive, true) {
        world.pages.set_bit(id, Bit::Seen, true);
    }
    let clean = world.page(Queue::Inactive, false);
    world.daemon.wake();
    let steps = world.scan();
    assert_eq!(laundered(&steps), 32);
    assert_eq!(steps.last(), Some(&Step::Cache(clean)));
    assert_eq!(
        world.queue(Queue::Inactive),
        (0..40).collect::<Vec<_>>(),
        "written pages and those beyond the limit stay"
    );
}

#[test]
fn the_papers_scan_ends_at_the_limit() {
    let mut world = World::new(Params {
        at_limit: AtLimit::Stop,
        ..Params::new(Release::V6_2)
    });
    for id in world.pages(40, Queue::Inactive, true) {
        world.pages.set_bit(id, Bit::Seen, true);
    }
    world.page(Queue::Inactive, false);
    world.daemon.wake();
    let steps = world.scan();
    assert_eq!((laundered(&steps), steps.len()), (32, 32));
}

#[test]
fn the_papers_second_look_holds_in_every_pass() {
    let mut world = World::new(Params {
        second_look: SecondLook::Always,
        ..Params::new(Release::V8_2)
    });
    world.pages(10, Queue::Inactive, true);
    world.daemon.wake();
    assert_eq!(world.scan(), []);
    let marked = world.scan();
    assert_eq!((world.daemon.pass(), laundered(&marked)), (1, 10));
    // New pages are spared in pass 1 too.
    let mut world = World::new(*world.daemon.params());
    world.daemon.wake();
    assert_eq!(world.scan(), []);
    world.pages(10, Queue::Inactive, true);
    assert_eq!((world.scan(), world.daemon.pass()), (Vec::new(), 1));
}

#[test]
fn units_of_the_limit_and_of_the_shortage() {
    let count = |limit_unit, shortage_unit, seen| {
        let mut world = World::new(Params {
            limit_unit,
            shortage_unit,
            ..Params::new(Release::V8_2)
        });
        world.clusters = 4;
        for id in world.pages(1000, Queue::Inactive, true) {
            world.pages.set_bit(id, Bit::Seen, seen);
        }
        world.daemon.wake();
        if !seen {
            world.scan();
        }
        laundered(&world.scan())
    };
    let missing = 202;
    // Pass 0: 32 clusters, or 32 buffers of 4 of them.
    let cluster = ShortageUnit::Cluster;
    assert_eq!(count(LimitUnit::Cluster, cluster, true), 32);
    assert_eq!(count(LimitUnit::Flush, cluster, true), 128);
    // Pass 1: as many as the shortage takes, each counting one, a quarter, or its two pages.
    assert_eq!(count(LimitUnit::Cluster, cluster, false), missing);
    assert_eq!(
        count(LimitUnit::Cluster, ShortageUnit::Flush, false),
        4 * missing
    );
    assert_eq!(
        count(LimitUnit::Cluster, ShortageUnit::Page, false),
        missing / 2
    );
}

#[test]
fn busy_pages_are_passed_over_and_the_active_queue_makes_up_for_them() {
    let mut world = World::kernel();
    let busy = world.pages(20, Queue::Inactive, true);
    for &id in &busy {
        world.pages.set_state(id, State::Writing);
    }
    // Old enough to go at the first visit.
    for id in world.pages(600, Queue::Active, true) {
        world.pages.set_age(id, 1);
    }
    world.daemon.wake();
    assert_eq!(world.scan(), []);
    let target = world.daemon.levels().inactive_target;
    let missing = world.daemon.levels().missing(LOW) as usize;
    assert_eq!(
        world.queue(Queue::Inactive)[..20],
        (0..20).collect::<Vec<_>>()
    );
    let more = world.daemon.counters().busy as usize;
    assert_eq!(more, 20);
    world.step();
    let inactive = world.pages.queued(Queue::Inactive);
    // What went over in pass 0: goal + target - inactive + busy ones.
    assert!(
        inactive >= 20 + (missing + target - 20 + more).min(600),
        "{inactive}"
    );
}

#[test]
fn an_active_page_takes_eleven_visits_to_age() {
    let mut world = World::kernel();
    // Enough that one scan is enough, too little for the page to be left alone.
    world.free = world.daemon.levels().wake();
    let id = world.page(Queue::Active, true);
    // As a fault leaves it.
    world.pages.set_age(id, 5);
    world.pages.set_bit(id, Bit::Noted, true);
    world.pages.set_bit(id, Bit::Referenced, true);
    let mut ages = Vec::new();
    while world.pages.queue(id) == Queue::Active {
        world.now += 1_000_000_000;
        world.daemon.wake();
        world.scan();
        world.step();
        ages.push(world.pages.age(id));
        assert!(ages.len() < 100);
    }
    assert_eq!(ages, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    assert!(
        world.pages.bit(id, Bit::Mapped),
        "inactive pages stay mapped"
    );
    assert_eq!(world.pages.state(id), State::Resident);
}

#[test]
fn ages_are_capped_at_64() {
    let mut world = World::kernel();
    let id = world.page(Queue::Active, false);
    world.pages.set_age(id, 63);
    world.pages.set_bit(id, Bit::Referenced, true);
    world.daemon.wake();
    world.scan();
    world.step();
    assert_eq!(world.pages.age(id), 64);
}

#[test]
fn inactive_pages_that_were_referenced_become_active() {
    for (noted, referenced, age) in [(true, true, 10), (true, false, 9), (false, true, 9)] {
        let mut world = World::kernel();
        let id = world.page(Queue::Inactive, true);
        world.pages.set_bit(id, Bit::Noted, noted);
        world.pages.set_bit(id, Bit::Referenced, referenced);
        world.pages.set_bit(id, Bit::Seen, true);
        world.daemon.wake();
        assert_eq!(world.scan(), []);
        let place = (world.pages.queue(id), world.pages.age(id));
        assert_eq!(place, (Queue::Active, age), "{noted} {referenced}");
        assert!(world.pages.bit(id, Bit::Seen), "the mark stays");
        assert!(!world.pages.bit(id, Bit::Noted) && !world.pages.bit(id, Bit::Referenced));
        assert_eq!(world.daemon.counters().reactivated, 1);
    }
}

#[test]
fn a_scan_that_freed_a_page_is_followed_by_rest_and_pass_0() {
    let mut world = World::kernel();
    world.pages(3, Queue::Inactive, false);
    world.daemon.wake();
    assert_eq!(world.scan().len(), 3, "clean pages go to the cache");
    world.rest();
    assert!(world.daemon.lets_go(), "whoever waited tries again");
    assert_eq!(world.daemon.pass(), 0);
    world.daemon.wake();
    world.pages(300, Queue::Inactive, true);
    assert_eq!(world.scan(), [], "pass 0 spares");
}

#[test]
fn passes_rise_with_a_breath_between_them_and_fall_step_by_step() {
    let mut world = World::kernel();
    world.busy = false;
    world.free = 10;
    world.daemon.wake();
    world.scan();
    world.scan();
    assert_eq!(world.daemon.pass(), 1);
    world.rest();
    assert_eq!(
        world.daemon.deadline(),
        Some(Nanos(500_000_000)),
        "pass 2 waits half a second"
    );
    // More demand does not cut that short.
    world.daemon.wake();
    assert_eq!(world.step(), Step::Rest);
    world.now = 500_000_000;
    world.scan();
    assert_eq!(world.daemon.pass(), 2);
    // Memory appears: the flag falls, the pass to 1, after a quiet time to 0.
    world.free = 3000;
    world.rest();
    assert_eq!(world.daemon.pass(), 1);
    assert_eq!(world.daemon.deadline(), Some(Nanos(5_500_000_000)));
    world.now = 5_500_000_000;
    world.rest();
    assert_eq!(world.daemon.pass(), 0);
}

#[test]
fn a_breath_ends_when_the_demand_was_met_and_came_back() {
    let mut world = World::kernel();
    world.free = 10;
    world.daemon.wake();
    world.scan();
    world.scan();
    world.rest();
    world.daemon.freed(100);
    world.daemon.wake();
    assert!(!world.daemon.rests(Nanos(world.now)));
    world.scan();
    assert_eq!(world.daemon.pass(), 2);
}

#[test]
fn the_idle_daemon_sweeps_every_five_seconds_and_wholly_every_twenty() {
    let mut world = World::kernel();
    let levels = *world.daemon.levels();
    world.free = levels.inactive_target + levels.cache_max + levels.min - 1;
    let ids = world.pages(1000, Queue::Active, true);
    for &id in &ids {
        world.pages.set_age(id, 2);
    }
    let mut visited = Vec::new();
    for second in [5u64, 10, 15, 20] {
        world.now = second * 1_000_000_000;
        let before = world.daemon.counters().scanned_active;
        world.rest();
        visited.push(world.daemon.counters().scanned_active - before);
    }
    let memory = world.free + 1000;
    let part = (levels.target * 1000 / memory) as u64;
    assert_eq!(visited, [part, part, part, 1000]);
    // The head of the queue was visited twice by now, and had age 2: at the next visit it is old
    // enough and leaves, unmapped.
    assert_eq!(world.pages.queued(Queue::Inactive), 0);
    for second in [25u64, 30, 35, 40] {
        world.now = second * 1_000_000_000;
        world.rest();
    }
    let gone: Vec<_> = ids
        .iter()
        .filter(|&&id| world.pages.queue(id) == Queue::Inactive)
        .collect();
    assert!(!gone.is_empty());
    assert!(gone.iter().all(|&&id| !world.pages.bit(id, Bit::Mapped)));
}

#[test]
fn the_sweep_does_nothing_where_memory_is_plentiful() {
    let mut world = World::kernel();
    let levels = *world.daemon.levels();
    world.free = levels.inactive_target + levels.cache_max + levels.min;
    world.pages(100, Queue::Active, true);
    world.now = 5_000_000_000;
    world.rest();
    assert_eq!(world.daemon.counters().sweeps, 0);
}

#[test]
fn failed_allocations_raise_the_shortage() {
    let mut world = World::kernel();
    for _ in 0..7 {
        world.daemon.failed();
    }
    world.pages(400, Queue::Inactive, true);
    world.scan();
    // The deficit counts in the first scan only.
    assert_eq!(laundered(&world.scan()), 202);
    let mut world = World::kernel();
    for id in world.pages(400, Queue::Inactive, false) {
        world.pages.set_slot(id, outpage_core::units::SlotNo(9));
    }
    for _ in 0..7 {
        world.daemon.failed();
    }
    assert_eq!(world.scan().len(), 209);
}
