//! Runs that move in one call, on real page tables: what was asked for moves, and nothing else.

use std::sync::Arc;

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_engine::door::Kernel;
use outpage_engine::frames::Frames;
use outpage_engine::world::{GAP_MAX, Mechanism, RUN_PAGES, World};
use outpage_sys::map::Area;
use outpage_sys::own::Fork;
use outpage_sys::pagemap::Pagemap;
use outpage_sys::say;
use outpage_sys::uffd::{Features, Mode, Uffd, Wanted};

/// Some memory, managed by nobody but the test.
struct Bench {
    world: World,
    area: Area,
    pagemap: Pagemap,
    first: PageNo,
    out: Vec<PageOutcome>,
}

impl Bench {
    /// `pages` pages, of which those that `has` picks have a frame and hold their number; `None`, said loudly, where the
    /// kernel cannot move.
    fn new(pages: usize, has: impl Fn(usize) -> bool) -> Option<Self> {
        let wanted = Wanted {
            inherited: None,
            required: Features::MOVE,
            optional: Features::NONE,
        };
        let [uffd, own] = match [Uffd::open(&wanted), Uffd::open(&wanted)] {
            [Ok(uffd), Ok(own)] => [uffd, own],
            [Err(why), _] | [_, Err(why)] => {
                say::say(&["SKIPPED: ", &why.to_string()]);
                return None;
            }
        };
        let mut area = Area::new(pages * PAGE_BYTES, Fork::Inherited).unwrap();
        for page in (0..pages).filter(|&page| has(page)) {
            area.bytes_mut(page * PAGE_BYTES, PAGE_BYTES)
                .fill(content(page));
        }
        let frames = Frames::new(pages).unwrap();
        let (start, len) = frames.span();
        uffd.register(start, len, Mode::write_protect()).unwrap();
        uffd.register(area.start(), area.len(), Mode::missing())
            .unwrap();
        let door = Box::new(Kernel::new(uffd, Arc::default()).unwrap());
        let mut world = World::new(door, Box::new(own), frames, pages, Mechanism::Move, 1);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let end = area.start() + area.len();
        let region = world.space.add(area.start(), end, prot, false);
        Some(Self {
            world,
            area,
            pagemap: Pagemap::open().unwrap(),
            first: region.first,
            out: Vec::new(),
        })
    }

    fn run(&self, first: usize, pages: usize) -> PageRange {
        let first = self.first.raw() + first as u64;
        PageRange::new(PageNo::from_raw(first), pages as u64)
    }

    fn runs(&self, runs: &[(usize, usize)]) -> Vec<PageRange> {
        runs.iter().map(|&(first, n)| self.run(first, n)).collect()
    }

    fn detach(&mut self, runs: &[(usize, usize)]) -> Vec<PageOutcome> {
        let runs = self.runs(runs);
        self.out.clear();
        self.world.detach(&runs, &mut self.out);
        self.out.clone()
    }

    /// Maps `runs`, in as few calls as they are in step.
    fn map(&mut self, runs: &[(usize, usize)]) -> (usize, Vec<PageOutcome>) {
        let runs = self.runs(runs);
        let (mut left, mut pieces) = (runs.as_slice(), 0);
        self.out.clear();
        while !left.is_empty() {
            let (now, then) = left.split_at(self.world.in_step(left));
            self.world.map(now, false, &mut self.out);
            (left, pieces) = (then, pieces + 1);
        }
        (pieces, self.out.clone())
    }

    /// Whether the program has the page; its content is checked if it does.
    fn has(&self, page: usize) -> bool {
        let at = self.area.start() + page * PAGE_BYTES;
        let there = !self.pagemap.page(at).unwrap().empty();
        if there {
            let bytes = self.area.bytes(page * PAGE_BYTES, PAGE_BYTES);
            assert!(bytes.iter().all(|&b| b == content(page)), "page {page}");
        }
        there
    }
}

fn content(page: usize) -> u8 {
    (page % 255) as u8 + 1
}

const EVERY_OTHER: [(usize, usize); 4] = [(2, 1), (4, 1), (6, 2), (9, 1)];

#[test]
fn pages_go_and_come_back_in_step() {
    let Some(mut bench) = Bench::new(16, |page| page % 3 != 2 || page == 2) else {
        return;
    };
    let wanted = [(3, 2), (6, 2), (9, 2)];
    let went = bench.detach(&wanted);
    let all = went
        .iter()
        .all(|o| matches!(o, PageOutcome::Detached { zero: false, .. }));
    assert!(all && went.len() == 6, "{went:?}");
    let has: Vec<_> = (0..16).filter(|&page| bench.has(page)).collect();
    assert_eq!(has, [0, 1, 2, 12, 13, 15]);
    assert_eq!(bench.world.frames.populated(), 6);
    assert_eq!(bench.map(&wanted), (1, vec![PageOutcome::Done; 6]));
    assert!([3, 4, 6, 7, 9, 10].iter().all(|&page| bench.has(page)));
    assert!(bench.world.frames.populated() == 0 && bench.world.staged.is_empty());
}

#[test]
fn what_nobody_named_stays() {
    let Some(mut bench) = Bench::new(16, |_| true) else {
        return;
    };
    let went = bench.detach(&EVERY_OTHER);
    assert_eq!(went.len(), 5);
    let gone: Vec<_> = (0..16).filter(|&page| !bench.has(page)).collect();
    assert_eq!(gone, [2, 4, 6, 7, 9]);
    assert_eq!(bench.world.frames.populated(), 5);
    // What is there already stops the call at once; then the pages come by themselves.
    assert_eq!(bench.map(&EVERY_OTHER), (1, vec![PageOutcome::Done; 5]));
    assert!((0..16).all(|page| bench.has(page)));
    assert_eq!(bench.world.frames.populated(), 0);
}

#[test]
fn what_is_not_there_is_absent() {
    let Some(mut bench) = Bench::new(16, |page| ![4, 6, 7].contains(&page)) else {
        return;
    };
    let absent = PageOutcome::Refused(Refusal::Absent);
    let went = bench.detach(&EVERY_OTHER);
    assert_eq!([went[1], went[2], went[3]], [absent; 3]);
    assert!(
        [went[0], went[4]]
            .iter()
            .all(|o| matches!(o, PageOutcome::Detached { .. }))
    );
    assert_eq!(bench.world.frames.populated(), 2);
}

#[test]
fn a_poisoned_page_between_stays_poisoned() {
    let Some(mut bench) = Bench::new(16, |page| page != 5) else {
        return;
    };
    let poisoned = bench.area.start() + 5 * PAGE_BYTES;
    if bench.world.door.poison(poisoned, PAGE_BYTES).stop.is_some() {
        return say::say(&["SKIPPED: this kernel cannot poison pages"]);
    }
    let went = bench.detach(&EVERY_OTHER);
    assert!(
        went.iter()
            .all(|o| matches!(o, PageOutcome::Detached { .. })),
        "{went:?}"
    );
    assert!(
        bench.pagemap.page(poisoned).unwrap().swapped(),
        "the marker is gone"
    );
    assert_eq!(bench.map(&EVERY_OTHER).1, [PageOutcome::Done; 5]);
    assert!((0..16).all(|page| page == 5 || bench.has(page)));
    assert!(bench.pagemap.page(poisoned).unwrap().swapped());
    assert_eq!(bench.world.frames.populated(), 0);
}

/// Two mappings where the pager knows one region: no call may span them.
#[test]
fn a_mapping_that_was_split_costs_no_page() {
    let Some(mut bench) = Bench::new(16, |_| true) else {
        return;
    };
    let between = bench.area.start() + 5 * PAGE_BYTES;
    outpage_sys::map::mprotect(between, PAGE_BYTES, libc::PROT_READ).unwrap();
    let went = bench.detach(&EVERY_OTHER);
    assert!(
        went.iter()
            .all(|o| matches!(o, PageOutcome::Detached { .. })),
        "{went:?}"
    );
    assert!((0..16).all(|page| bench.has(page) != [2, 4, 6, 7, 9].contains(&page)));
    assert_eq!(bench.map(&EVERY_OTHER).1, [PageOutcome::Done; 5]);
    assert!((0..16).all(|page| bench.has(page)));
    assert_eq!(bench.world.frames.populated(), 0);
}

#[test]
fn random_runs_keep_every_byte() {
    const PAGES: usize = 96;
    let Some(mut bench) = Bench::new(PAGES, |page| page % 2 == 0 || page % 7 < 3) else {
        return;
    };
    let all: Vec<_> = (0..PAGES).filter(|&page| bench.has(page)).collect();
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let mut together = 0;
    for _ in 0..2000 {
        let out = random(2) == 0;
        // Runs of pages that can go that way, with gaps as the pager makes them.
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for page in random(PAGES)..PAGES {
            let can = all.contains(&page) && bench.has(page) == out;
            match runs.last_mut() {
                _ if !can || random(8) == 0 => {}
                Some((first, pages)) if *first + *pages == page => *pages += 1,
                Some(&mut (first, pages)) if page - first - pages > GAP_MAX as usize => break,
                _ => runs.push((page, 1)),
            }
        }
        let pages: Vec<usize> = runs.iter().flat_map(|r| r.0..r.0 + r.1).collect();
        if runs.is_empty() {
            continue;
        }
        if out {
            assert!(
                bench
                    .detach(&runs)
                    .iter()
                    .all(|o| matches!(o, PageOutcome::Detached { .. }))
            );
        } else {
            let (pieces, outcomes) = bench.map(&runs);
            assert!(
                outcomes.iter().all(|&o| o == PageOutcome::Done),
                "{outcomes:?}"
            );
            together += runs.len() - pieces;
        }
        assert!(pages.iter().all(|&page| bench.has(page) != out));
        let away = all.iter().filter(|&&page| !bench.has(page)).count();
        assert_eq!(
            (bench.world.frames.populated(), bench.world.staged.len()),
            (away, away)
        );
    }
    assert!(together > 100, "{together} runs came together with others");
    const { assert!(PAGES <= RUN_PAGES) };
}
