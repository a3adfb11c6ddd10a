//! Reclaim policies, each against lists that are searched from end to end, and their papers' examples.

use std::collections::VecDeque;

use outpage_core::contract::Body;
use outpage_core::page::{PageId, Pages, Queue, State};
use outpage_core::reclaim::{Choice, Mapped, Policy, Reclaim};
use outpage_core::units::{PageNo, SlotNo, SlotRange};
use proptest::prelude::*;

/// Pages of the program: few, so that they come back.
const PAGES: u64 = 60;
/// Each page has the slot of its number.
const SLOTS: u32 = 256;

/// The policies that have a model here.
const MODELLED: [&str; 4] = ["second-chance", "fifo", "s3-fifo", "two-queue"];

#[test]
fn every_policy_of_a_live_pager_has_a_model() {
    for entry in outpage_core::reclaim::offered(Body::default()) {
        let learned = super::reclaim_learned::MODELLED.contains(&entry.name);
        // What `auto` does is what these do, but for its sample.
        let known = MODELLED.contains(&entry.name) || learned || entry.name == "auto";
        assert!(known, "{} has no model", entry.name);
    }
}

fn policy(text: &str) -> Box<dyn Reclaim> {
    match Choice::parse(text, Body::default()).unwrap().build() {
        Policy::Driven(policy) => policy,
        Policy::Daemon(_) => panic!("{text} drives itself"),
    }
}

/// A policy, and what the pager would do with the pages that it names.
pub struct Machine {
    pub pages: Pages,
    pub policy: Box<dyn Reclaim>,
}

impl Machine {
    pub fn new(text: &str) -> Self {
        let (mut pages, mut policy) = (Pages::new(), policy(text));
        pages.reserve(4);
        pages.add_slots(SlotRange::new(SlotNo(0), SLOTS));
        policy.reserve(pages.ids());
        Self { pages, policy }
    }

    fn id(&self, page: u64) -> Option<PageId> {
        self.pages.find(PageNo::from_raw(page))
    }

    pub fn state(&self, page: u64) -> State {
        self.pages.state_of(PageNo::from_raw(page))
    }

    /// The program touches a page.
    pub fn touch(&mut self, page: u64) {
        let how = match self.state(page) {
            State::Untouched => Mapped::Fresh,
            State::Staged => Mapped::Rescued,
            State::PagedOut => Mapped::PagedIn,
            _ => return,
        };
        let id = self.id(page).unwrap_or_else(|| {
            let page = PageNo::from_raw(page);
            self.pages.create(page, State::Mapping)
        });
        if how == Mapped::PagedIn {
            self.pages.set_state(id, State::Reading);
            self.pages.set_state(id, State::Staged);
        }
        if how != Mapped::Fresh {
            self.pages.unqueue(id);
            self.pages.set_state(id, State::Mapping);
        }
        self.pages.set_state(id, State::Resident);
        self.policy.mapped(&mut self.pages, id, how);
    }

    /// The next victim is detached: it is clean at once.
    pub fn detach(&mut self) -> Option<u64> {
        let id = self.policy.victim(&mut self.pages)?;
        self.pages.set_state(id, State::Detaching);
        self.pages.set_state(id, State::Staged);
        self.policy.cleaned(&mut self.pages, id);
        Some(self.pages.number(id).raw())
    }

    /// The frame of the next clean page is given up.
    pub fn release(&mut self) -> Option<u64> {
        let id = self.policy.release(&mut self.pages)?;
        self.policy.left(&self.pages, id);
        let page = self.pages.number(id).raw();
        self.pages.set_slot(id, SlotNo(page as u32));
        self.pages.set_state(id, State::PagedOut);
        Some(page)
    }

    /// The program unmaps a page that is mapped or staged, or only in its slot.
    pub fn unmap(&mut self, page: u64) {
        if let Some(id) = self.id(page) {
            self.pages.unqueue(id);
            self.pages.forget(id);
        }
    }
}

/// What a policy does, in lists.
#[derive(Default)]
struct Naive {
    /// New pages, and those that count for more.
    queues: [VecDeque<u64>; 2],
    /// Victims, oldest first, and the queue that each came from.
    staged: VecDeque<(u64, usize)>,
    /// Departures in order; 0 for those that are remembered no more.
    departed: Vec<Option<u64>>,
    rescued_last: bool,
}

impl Naive {
    fn frames(&self) -> usize {
        self.queues[0].len() + self.queues[1].len() + self.staged.len()
    }

    fn has(&self, page: u64) -> bool {
        self.queues.iter().any(|queue| queue.contains(&page))
    }

    /// Whether the page is among the `most` that left last; not any more after that.
    fn recall(&mut self, page: u64, most: usize) -> bool {
        let at = self.departed.iter().rposition(|&p| p == Some(page));
        if let Some(at) = at {
            self.departed[at] = None;
        }
        at.is_some_and(|at| self.departed.len() - 1 - at < most)
    }

    fn touch(&mut self, name: &str, page: u64) {
        if self.has(page) {
            return;
        }
        let staged = self.staged.iter().position(|&(p, _)| p == page);
        let from = staged.map(|at| self.staged.remove(at).unwrap().1);
        // The page is in memory again, or its frame is about to be taken.
        let frames = self.frames() + 1;
        let to = match (name, from) {
            ("second-chance", _) | ("fifo", None) => 0,
            ("fifo" | "s3-fifo", Some(_)) => 1,
            ("s3-fifo", None) => usize::from(self.recall(page, frames * 90 / 100)),
            ("two-queue", Some(queue)) => queue,
            ("two-queue", None) => usize::from(self.recall(page, frames * 50 / 100)),
            (name, _) => panic!("{name} has no model"),
        };
        self.queues[to].push_back(page);
    }

    fn detach(&mut self, name: &str) -> Option<u64> {
        let first = match name {
            "second-chance" => 0,
            "fifo" => {
                self.rescued_last = !self.rescued_last;
                usize::from(self.rescued_last)
            }
            "s3-fifo" => usize::from(self.queues[0].len() <= self.frames() * 10 / 100),
            "two-queue" => usize::from(self.queues[0].len() <= self.frames() * 25 / 100),
            name => panic!("{name} has no model"),
        };
        let from = if self.queues[first].is_empty() {
            1 - first
        } else {
            first
        };
        let page = self.queues[from].pop_front()?;
        self.staged.push_back((page, from));
        Some(page)
    }

    fn release(&mut self) -> Option<u64> {
        let (page, from) = self.staged.pop_front()?;
        if from == 0 {
            self.departed.push(Some(page));
        }
        Some(page)
    }

    fn unmap(&mut self, page: u64) {
        self.queues
            .iter_mut()
            .for_each(|q| q.retain(|&p| p != page));
        self.staged.retain(|&(p, _)| p != page);
        self.recall(page, 0);
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Touch(u64),
    Detach,
    Release,
    Unmap(u64),
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        12 => (0..PAGES).prop_map(Step::Touch),
        6 => Just(Step::Detach),
        5 => Just(Step::Release),
        1 => (0..PAGES).prop_map(Step::Unmap),
    ];
    prop::collection::vec(one, 1..600)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn victims_are_those_of_plain_lists(
        name in prop::sample::select(&MODELLED[..]),
        steps in steps(),
    ) {
        let (mut machine, mut naive) = (Machine::new(name), Naive::default());
        for step in steps {
            match step {
                Step::Touch(page) => {
                    machine.touch(page);
                    naive.touch(name, page);
                }
                Step::Detach => prop_assert_eq!(machine.detach(), naive.detach(name)),
                Step::Release => prop_assert_eq!(machine.release(), naive.release()),
                Step::Unmap(page) => {
                    machine.unmap(page);
                    naive.unmap(page);
                }
            }
            let mapped = naive.queues[0].len() + naive.queues[1].len();
            prop_assert_eq!(machine.policy.victims(&machine.pages), mapped);
        }
    }
}

/// Touches, and the page that leaves for each that needs a frame, of `frames`.
fn leaves(text: &str, frames: usize, touches: &[u64]) -> Vec<u64> {
    let mut machine = Machine::new(text);
    let mut gone = Vec::new();
    for &page in touches {
        let there = machine.state(page).has_frame();
        if !there && machine.pages.framed() == frames {
            machine.detach();
            gone.extend(machine.release());
        }
        machine.touch(page);
    }
    gone
}

#[test]
fn a_scan_does_not_drive_out_what_was_wanted_again() {
    // Pages 1 and 2 leave, are wanted again, and then 100 others come once.
    let mut touches: Vec<u64> = (1..=12).chain([1, 2]).collect();
    touches.extend(100..200);
    for text in ["two-queue", "s3-fifo"] {
        let gone = leaves(text, 10, &touches);
        let after = &gone[4..];
        assert!(
            !after.contains(&1) && !after.contains(&2),
            "{text}: {after:?}"
        );
    }
    for text in ["second-chance", "fifo"] {
        let gone = leaves(text, 10, &touches);
        assert!(gone[4..].contains(&1), "{text}");
    }
}

#[test]
fn without_memory_of_what_left_a_scan_drives_out_everything() {
    let touches: Vec<u64> = (1..=12).chain([1, 2]).chain(100..200).collect();
    let gone = leaves("two-queue:out=1", 10, &touches);
    assert!(gone[4..].contains(&1) && gone[4..].contains(&2));
}

#[test]
fn a_page_that_is_mapped_along_is_not_taken_for_one_in_use() {
    for text in ["s3-fifo", "two-queue", "second-chance", "fifo"] {
        let mut machine = Machine::new(text);
        machine.touch(7);
        machine.detach();
        let id = machine.id(7).unwrap();
        machine.pages.unqueue(id);
        machine.pages.set_state(id, State::Mapping);
        machine.pages.set_state(id, State::Resident);
        machine.policy.mapped(&mut machine.pages, id, Mapped::Along);
        assert_eq!(machine.pages.queue(id), Queue::Active, "{text}");
    }
}
