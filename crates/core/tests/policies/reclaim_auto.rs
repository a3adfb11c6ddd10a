//! `auto`: what it picks, and that no page is lost by its sample or by a change.

use std::collections::HashSet;

use outpage_core::contract::Body;
use outpage_core::page::{PageId, Pages, Queue, State};
use outpage_core::reclaim::{Choice, Mapped, Policy, Reclaim};
use outpage_core::units::{PageNo, SlotNo, SlotRange};
use proptest::prelude::*;

/// What the pager does with frames, an eighth of them staged, as watermarks have it.
struct Machine {
    pages: Pages,
    policy: Box<dyn Reclaim>,
    frames: usize,
    /// Pages that were read back, in order, by a number made of all of them.
    missed: u64,
    order: u64,
}

impl Machine {
    fn new(name: &str, frames: usize, pages: u32) -> Self {
        let Policy::Driven(policy) = Choice::parse(name, Body::default()).unwrap().build() else {
            panic!("{name} drives itself");
        };
        let mut table = Pages::new();
        table.add_slots(SlotRange::new(SlotNo(0), pages));
        Self {
            pages: table,
            policy,
            frames,
            missed: 0,
            order: 0,
        }
    }

    fn touch(&mut self, number: u64) {
        let page = PageNo::from_raw(number);
        let how = match self.pages.state_of(page) {
            State::Untouched => Mapped::Fresh,
            State::Staged => Mapped::Rescued,
            State::PagedOut => Mapped::PagedIn,
            _ => return,
        };
        let found = self.pages.find(page);
        let id = found.unwrap_or_else(|| self.pages.create(page, State::Mapping));
        match how {
            Mapped::Fresh => self.pages.set_slot(id, SlotNo(number as u32)),
            Mapped::PagedIn => {
                self.missed += 1;
                self.order = (self.order ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.pages.set_state(id, State::Reading);
                self.pages.set_state(id, State::Staged);
                self.pages.set_state(id, State::Mapping);
            }
            _ => {
                self.pages.unqueue(id);
                self.pages.set_state(id, State::Mapping);
            }
        }
        self.pages.set_state(id, State::Resident);
        self.policy.mapped(&mut self.pages, id, how);
        if how != Mapped::Rescued {
            self.balance();
        }
    }

    fn balance(&mut self) {
        for _ in 0..8 {
            let watched = self.pages.queued(Queue::Watched);
            let staged = self.pages.count(State::Staged);
            if self.pages.framed() + self.frames / 8 + watched <= self.frames + staged {
                break;
            }
            self.detach();
        }
        while self.pages.framed() > self.frames {
            if self.release().is_none() && self.detach().is_none() {
                panic!("no page leaves");
            }
        }
    }

    fn detach(&mut self) -> Option<PageId> {
        let id = self.policy.victim(&mut self.pages)?;
        self.pages.set_state(id, State::Detaching);
        self.pages.set_state(id, State::Staged);
        self.policy.detached(&mut self.pages, id);
        if let Some(id) = self.policy.launder(&mut self.pages) {
            self.policy.cleaned(&mut self.pages, id);
        }
        Some(id)
    }

    fn release(&mut self) -> Option<PageId> {
        let id = self.policy.release(&mut self.pages)?;
        self.policy.left(&self.pages, id);
        self.pages.set_state(id, State::PagedOut);
        Some(id)
    }

    fn unmap(&mut self, number: u64) {
        if let Some(id) = self.pages.find(PageNo::from_raw(number)) {
            self.pages.unqueue(id);
            self.pages.forget(id);
        }
    }
}

/// Knuth's MMIX generator.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Page-ins of a string of touches in `frames`.
fn missed(name: &str, frames: usize, touches: impl Iterator<Item = u64>) -> u64 {
    let mut machine = Machine::new(name, frames, 1 << 14);
    touches.for_each(|page| machine.touch(page));
    machine.missed
}

const ALONE: [&str; 6] = [
    "second-chance",
    "s3-fifo",
    "two-queue",
    "car",
    "early",
    "lirs",
];

/// The misses of `auto` by those of the best candidate and of the worst.
fn beside(frames: usize, touches: &[u64]) -> (f64, f64) {
    let of = |name: &&str| missed(name, frames, touches.iter().copied());
    let alone: Vec<u64> = ALONE.iter().map(of).collect();
    let auto = of(&"auto") as f64;
    let (least, most) = (alone.iter().min().unwrap(), alone.iter().max().unwrap());
    (auto / *least as f64, auto / *most as f64)
}

#[test]
fn a_loop_is_taken_for_one() {
    let touches: Vec<u64> = (0..12).flat_map(|_| 0..4000).collect();
    let (best, worst) = beside(3000, &touches);
    assert!(best < 1.1 && worst < 0.6, "{best:.2} {worst:.2}");
}

#[test]
fn pages_that_are_used_again_soon_stay_whatever_is_scanned() {
    let (mut at, mut scanned) = (1, 1000);
    let touches: Vec<u64> = (0..60_000)
        .map(|n| match n % 2 {
            0 => random(&mut at) % 1000,
            _ => {
                scanned = 1000 + (scanned + 1) % 6000;
                scanned
            }
        })
        .collect();
    let (best, worst) = beside(2000, &touches);
    assert!(best < 1.1 && worst < 0.95, "{best:.2} {worst:.2}");
}

#[test]
fn where_all_are_the_same_it_costs_nothing() {
    let mut at = 1;
    let touches: Vec<u64> = (0..60_000).map(|_| random(&mut at) % 4000).collect();
    let (best, _) = beside(2000, &touches);
    assert!(best < 1.05, "{best:.2}");
}

#[test]
fn room_that_was_made_before_changes_nothing() {
    let run = |ids: usize| {
        let mut machine = Machine::new("auto", 500, 4096);
        machine.policy.reserve(ids);
        let mut at = 7;
        for n in 0..40_000 {
            let loops = n / 5000 % 2 == 0;
            machine.touch(if loops {
                n % 700
            } else {
                random(&mut at) % 2000
            });
        }
        (machine.missed, machine.order)
    };
    let one = run(0);
    assert!(one.0 > 1000);
    assert_eq!(one, run(0));
    assert_eq!(one, run(1 << 16));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_page_is_lost(
        frames in 40..200_usize,
        steps in prop::collection::vec((0..8_u32, 0..600_u64, 1..40_u64), 1..120),
    ) {
        let mut machine = Machine::new("auto", frames, 1024);
        for (kind, page, count) in steps {
            match kind {
                0 => (page..page + count).for_each(|page| machine.unmap(page)),
                1..=4 => (page..page + count).for_each(|page| machine.touch(page)),
                _ => (0..count).for_each(|n| machine.touch((page * n) % 600)),
            }
        }
        // Every page that has a frame leaves, once.
        let framed = machine.pages.framed();
        let mut gone = HashSet::new();
        while let Some(id) = machine.release().or_else(|| {
            machine.detach();
            machine.release()
        }) {
            prop_assert!(gone.insert(id.index()));
        }
        prop_assert_eq!((gone.len(), machine.pages.framed()), (framed, 0));
    }
}
