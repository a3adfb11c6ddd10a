//! CAR, LIRS and early eviction on the signs that a pager has, each against lists that are searched from end to end.

use std::collections::{HashMap, HashSet, VecDeque};

use outpage_core::page::State;
use proptest::prelude::*;

use super::reclaim::{Machine, Step, steps};

/// The policies that have a model here.
pub const MODELLED: [&str; 3] = ["car", "lirs", "early"];

/// Where a page that is touched was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Was {
    Nowhere,
    Staged,
    Gone,
}

/// What a policy does, in lists. `frames` are those in use, the page's own among them.
trait Model {
    fn touch(&mut self, page: u64, was: Was, frames: usize);
    fn victim(&mut self, frames: usize) -> Option<u64>;
    fn left(&mut self, page: u64, frames: usize);
    fn unmap(&mut self, page: u64);
}

fn take(list: &mut VecDeque<u64>, page: u64) {
    list.retain(|&p| p != page);
}

#[derive(Default)]
struct Car {
    clocks: [VecDeque<u64>; 2],
    second: HashSet<u64>,
    /// Departures: the page, and its clock.
    departed: Vec<(u64, usize)>,
    left: [usize; 2],
    target: usize,
}

impl Car {
    /// The clock that the page left among the last `most` departures; they are forgotten.
    fn recall(&mut self, page: u64, most: usize) -> Option<usize> {
        let at = self.departed.iter().rposition(|&(p, _)| p == page)?;
        let clock = self.departed[at].1;
        self.departed[at].0 = u64::MAX;
        (self.departed.len() - 1 - at < most).then_some(clock)
    }
}

impl Model for Car {
    fn touch(&mut self, page: u64, was: Was, frames: usize) {
        let from = match was {
            Was::Gone => self.recall(page, frames),
            _ => None,
        };
        let [first, second] = self.left;
        match from {
            Some(0) => self.target = (self.target + (second / first.max(1)).max(1)).min(frames),
            Some(_) => self.target = self.target.saturating_sub((first / second.max(1)).max(1)),
            None => {}
        }
        let again = was == Was::Staged || from.is_some();
        self.clocks[usize::from(again)].push_back(page);
        match again {
            true => self.second.insert(page),
            false => self.second.remove(&page),
        };
    }

    fn victim(&mut self, _frames: usize) -> Option<u64> {
        let first = usize::from(self.clocks[0].len() < self.target.max(1));
        let page = self.clocks[first].pop_front();
        page.or_else(|| self.clocks[1 - first].pop_front())
    }

    fn left(&mut self, page: u64, frames: usize) {
        let clock = usize::from(self.second.remove(&page));
        self.departed.push((page, clock));
        self.left[clock] += 1;
        if self.left.iter().sum::<usize>() > frames {
            self.left = self.left.map(|count| count / 2);
        }
    }

    fn unmap(&mut self, page: u64) {
        self.clocks.iter_mut().for_each(|clock| take(clock, page));
        self.second.remove(&page);
        self.recall(page, 0);
    }
}

#[derive(Default)]
struct Lirs {
    cold: VecDeque<u64>,
    hot: VecDeque<u64>,
    /// Of hot pages: the time between their last two uses, or when they were used where there was only one.
    spans: HashMap<u64, u32>,
    /// Of others: when they were used last.
    seen: HashMap<u64, u32>,
    now: u32,
    victims: u32,
}

impl Model for Lirs {
    fn touch(&mut self, page: u64, was: Was, _frames: usize) {
        if was != Was::Staged {
            self.now += 1;
        }
        if was == Was::Nowhere {
            self.unmap(page);
        }
        let age = self.seen.get(&page).map(|seen| self.now - seen);
        let oldest = self.hot.front().map(|hot| self.spans[hot]);
        let hot = match was {
            Was::Nowhere => false,
            Was::Staged => true,
            Was::Gone => age.is_some_and(|age| oldest.is_none_or(|span| age < span)),
        };
        if hot {
            if let Some(age) = age {
                self.spans.insert(page, age.max(1));
            }
            self.seen.remove(&page);
            self.hot.push_back(page);
        } else {
            self.seen.insert(page, self.now);
            self.cold.push_back(page);
        }
    }

    fn victim(&mut self, frames: usize) -> Option<u64> {
        self.victims += 1;
        if self.cold.len() > frames / 100 && self.victims < 32 {
            return self.cold.pop_front().or_else(|| self.hot.pop_front());
        }
        self.victims = 0;
        self.hot.pop_front().or_else(|| self.cold.pop_front())
    }

    fn left(&mut self, page: u64, _frames: usize) {
        if self.spans.remove(&page).is_some() {
            self.seen.insert(page, self.now);
        }
    }

    fn unmap(&mut self, page: u64) {
        take(&mut self.cold, page);
        take(&mut self.hot, page);
        self.spans.remove(&page);
        self.seen.remove(&page);
    }
}

/// How many turns of pages that came last go with how many of old ones.
/// What a page counts.
const ONE: usize = 256;
const SHARES: [[usize; 2]; 8] = [
    [31, 1],
    [15, 1],
    [7, 1],
    [3, 1],
    [1, 1],
    [1, 3],
    [1, 7],
    [1, 15],
];

struct Early {
    /// The last to come is the first.
    came: VecDeque<u64>,
    rescued: VecDeque<u64>,
    /// The next page of the run that leaves, and how many there are.
    run: (u64, usize),
    /// Old pages that are to leave.
    old: HashSet<u64>,
    /// Departures: the page, and whether it was old.
    departed: Vec<(u64, bool)>,
    /// Of those that came last and of old ones: left, wanted again.
    accounts: [[usize; 2]; 2],
    since: usize,
    share: usize,
    victims: usize,
    /// Whether the next old ones are rescued ones, and what those have a right to.
    second: bool,
    owed: usize,
}

impl Default for Early {
    fn default() -> Self {
        Self {
            came: VecDeque::new(),
            rescued: VecDeque::new(),
            run: (0, 0),
            old: HashSet::new(),
            departed: Vec::new(),
            accounts: [[0; 2]; 2],
            since: 0,
            share: 5,
            victims: 0,
            second: false,
            owed: 0,
        }
    }
}

impl Early {
    fn is_old(&mut self, frames: usize) -> bool {
        let turn = (frames / 32).clamp(1, 64);
        let [came, old] = SHARES[self.share].map(|turns| turns * turn);
        self.victims += 1;
        if self.victims > came + old {
            self.victims = 1;
            let both = self.came.len() + self.rescued.len();
            self.owed += self.rescued.len();
            self.second = self.owed >= both;
            self.owed -= if self.second { both } else { 0 };
        }
        self.victims > came
    }

    fn came_last(&mut self, frames: usize) -> Option<u64> {
        if self.run.1 == 0 || !self.came.contains(&self.run.0) {
            // The older half of twice as many.
            let count = (2 * (frames / 8).clamp(1, 512)).min(self.came.len());
            let first = *self.came.get(count.checked_sub(1)?)?;
            self.run = (first, count.div_ceil(2));
        }
        let page = self.run.0;
        let at = self.came.iter().position(|&p| p == page)?;
        self.run = match at.checked_sub(1) {
            Some(next) => (self.came[next], self.run.1 - 1),
            None => (page, 0),
        };
        self.came.remove(at)
    }
}

impl Model for Early {
    fn touch(&mut self, page: u64, was: Was, frames: usize) {
        match was {
            Was::Nowhere => {}
            Was::Staged => self.accounts[1][1] += ONE * usize::from(self.old.remove(&page)),
            Was::Gone => {
                let at = self.departed.iter().rposition(|&(p, _)| p == page);
                if let Some(at) = at.filter(|&at| self.departed.len() - 1 - at < frames / 2) {
                    self.accounts[usize::from(self.departed[at].1)][1] += ONE;
                }
            }
        }
        match was {
            Was::Staged => self.rescued.push_back(page),
            Was::Nowhere | Was::Gone => self.came.push_front(page),
        }
    }

    fn victim(&mut self, frames: usize) -> Option<u64> {
        if !self.is_old(frames) {
            let came = self.came_last(frames);
            return came.or_else(|| self.rescued.pop_front());
        }
        let page = match self.second {
            true => self.rescued.pop_front().or_else(|| self.came.pop_back()),
            false => self.came.pop_back().or_else(|| self.rescued.pop_front()),
        }?;
        self.old.insert(page);
        self.accounts[1][0] += ONE;
        Some(page)
    }

    fn left(&mut self, page: u64, frames: usize) {
        let old = self.old.remove(&page);
        self.accounts[0][0] += ONE * usize::from(!old);
        self.departed.push((page, old));
        self.since += 1;
        let [[came, came_wanted], [old, old_wanted]] = self.accounts;
        if self.since <= frames / 32 || came.min(old) < 8 * ONE {
            return;
        }
        self.since = 0;
        // Fewer than three quarters as many of the old ones were wanted.
        self.share = match 4 * old_wanted * came < 3 * came_wanted * old {
            true => (self.share + 1).min(SHARES.len() - 1),
            false => self.share.saturating_sub(1),
        };
        self.accounts = self
            .accounts
            .map(|[left, wanted]| [left - left / 4, wanted - wanted.div_ceil(4)]);
    }

    fn unmap(&mut self, page: u64) {
        take(&mut self.came, page);
        take(&mut self.rescued, page);
        self.old.remove(&page);
        let departed = self.departed.iter_mut();
        departed
            .filter(|(p, _)| *p == page)
            .for_each(|(p, _)| *p = u64::MAX);
    }
}

fn model(name: &str) -> Box<dyn Model> {
    match name {
        "car" => Box::new(Car::default()),
        "lirs" => Box::new(Lirs::default()),
        "early" => Box::new(Early::default()),
        name => panic!("{name} has no model"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn victims_are_those_of_plain_lists(
        name in prop::sample::select(&MODELLED[..]),
        steps in prop::collection::vec(steps(), 1..4),
    ) {
        let (mut machine, mut model) = (Machine::new(name), model(name));
        let mut staged = VecDeque::new();
        for step in steps.into_iter().flatten() {
            match step {
                Step::Touch(page) => {
                    let was = match machine.state(page) {
                        State::Untouched => Was::Nowhere,
                        State::Staged => Was::Staged,
                        State::PagedOut => Was::Gone,
                        _ => continue,
                    };
                    machine.touch(page);
                    take(&mut staged, page);
                    model.touch(page, was, machine.pages.framed());
                }
                Step::Detach => {
                    let page = machine.detach();
                    prop_assert_eq!(page, model.victim(machine.pages.framed()));
                    staged.extend(page);
                }
                Step::Release => {
                    let frames = machine.pages.framed();
                    let page = machine.release();
                    prop_assert_eq!(page, staged.pop_front());
                    page.into_iter().for_each(|page| model.left(page, frames));
                }
                Step::Unmap(page) => {
                    machine.unmap(page);
                    take(&mut staged, page);
                    model.unmap(page);
                }
            }
        }
    }
}

/// What is read back of `rounds` of touches to pages 0 to `pages`, with `frames`, an eighth of them staged.
fn missed(name: &str, frames: usize, pages: u64, rounds: u64) -> u64 {
    let mut machine = Machine::new(name);
    let mut missed = 0;
    for page in (0..rounds).flat_map(|_| 0..pages) {
        missed += u64::from(machine.state(page) == State::PagedOut);
        machine.touch(page);
        while machine.pages.count(State::Staged) < frames / 8 && machine.pages.framed() >= frames {
            machine.detach();
        }
        while machine.pages.framed() > frames {
            machine.release();
        }
    }
    missed
}

#[test]
fn of_a_loop_a_third_larger_than_memory_early_eviction_alone_keeps_much() {
    let (frames, pages, rounds) = (120, 160, 12);
    let all = (rounds - 1) * pages;
    // A quarter does not fit, and of what does an eighth is staged, and an eighth came just before.
    assert!(missed("early", frames, pages, rounds) < all * 3 / 5);
    assert_eq!(missed("second-chance", frames, pages, rounds), all);
}
