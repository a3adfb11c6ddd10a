//! Beside an exact machine: pages in order of use, the first in frames, the next in the pool, the others in the store.

use alloc::vec::Vec;

use super::*;
use crate::refaults::Departed;
use crate::tier::Whence;
use crate::units::{Nanos, ObjectId, PageNo};

const FRAMES: usize = 1024;

struct Machine {
    /// The last one used first.
    order: Vec<u32>,
    departed: Departed,
    pool: usize,
    rescued: u64,
    waited: u64,
    cost: u64,
}

impl Machine {
    fn new(pages: u32) -> Self {
        Self {
            order: (0..pages).collect(),
            departed: Departed::and_beyond(FRAMES, BEYOND),
            pool: 0,
            rescued: 0,
            waited: 0,
            cost: 0,
        }
    }

    const fn resident(&self) -> usize {
        FRAMES - self.pool
    }

    const fn staged(&self) -> usize {
        self.resident() / 8
    }

    /// One touch; a page comes to one in `ratio`.
    fn touch(&mut self, page: u32, ratio: usize) {
        let number = |page: u32| PageNo::new(ObjectId(1), u64::from(page));
        let at = self
            .order
            .iter()
            .position(|&p| p == page)
            .expect("one of them");
        let (resident, staged) = (self.resident(), self.staged());
        if at >= resident {
            self.waited += 1;
            if at < resident + self.pool * ratio {
                self.departed.unpacked(number(page));
                self.cost += Costs::default().hit_ns();
            } else {
                self.departed.read(number(page));
                self.cost += Costs::default().read_ns();
            }
            self.departed.left(number(self.order[resident - 1]));
        } else if at >= resident - staged {
            self.rescued += 1;
        }
        self.order[..=at].rotate_right(1);
    }

    /// The pool has so many frames from now on.
    fn has(&mut self, pool: usize) {
        let (before, after) = (self.resident(), FRAMES - pool);
        for at in after..before {
            self.departed
                .left(PageNo::new(ObjectId(1), u64::from(self.order[at])));
        }
        for at in before..after {
            self.departed
                .comes_along(PageNo::new(ObjectId(1), u64::from(self.order[at])));
        }
        self.pool = pool;
    }
}

/// Waiting in the second half of a run of `touches`, with a part that is weighed or one that stays.
fn run(
    pages: u32,
    ratio: usize,
    touches: usize,
    fixed: Option<usize>,
    next: impl Fn(u64, usize) -> u32,
) -> (u64, usize) {
    let mut machine = Machine::new(pages);
    let mut part = Part::new(75);
    let (mut seed, mut seen) = (7_u64, 0);
    machine.has(fixed.unwrap_or_else(|| part.frames(FRAMES)));
    for n in 0..touches {
        if n == touches / 2 {
            machine.cost = 0;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        machine.touch(next(seed >> 33, n), ratio);
        if machine.waited >= seen + 1024 {
            seen = machine.waited;
            let beyond = machine.departed.beyond.as_ref().expect("it was asked for");
            part.weigh(
                &Sight {
                    frames: FRAMES,
                    pool: machine.pool,
                    staged: machine.staged(),
                    rescued: machine.rescued,
                    costs: Costs::default(),
                    near: &machine.departed.counts,
                    far: &beyond.counts,
                },
                Victims {
                    size: 1000 / ratio as u64,
                    pooled: 1000,
                },
            );
            if fixed.is_none() {
                machine.has(part.frames(FRAMES));
            }
        }
    }
    (machine.cost, machine.pool)
}

/// Weighed, and the best of those that stay.
fn compared(pages: u32, ratio: usize, next: impl Fn(u64, usize) -> u32 + Copy) -> (u64, u64) {
    const TOUCHES: usize = 60_000;
    let fixed = [1, 2, 4, 8, 12].map(|n| run(pages, ratio, TOUCHES, Some(n * FRAMES / 16), next));
    let best = fixed.iter().min().expect("some");
    let weighed = run(pages, ratio, TOUCHES, None, next);
    (weighed.0, best.0)
}

/// Small numbers more often: the square of an even distribution.
fn uneven(random: u64, pages: u64) -> u32 {
    let one = random % 65_536;
    (one * one / 65_536 * pages / 65_536) as u32
}

#[test]
fn the_part_that_is_found_is_nearly_as_good_as_the_best() {
    for ratio in [2, 5] {
        for pages in [1200, 3000] {
            let (weighed, best) = compared(pages, ratio, |r, _| (r % u64::from(pages)) as u32);
            assert!(weighed <= best * 4 / 3, "even, {pages}, {ratio}");
            let (weighed, best) = compared(pages, ratio, |r, _| uneven(r, u64::from(pages)));
            assert!(weighed <= best * 4 / 3, "uneven, {pages}, {ratio}");
        }
    }
}

#[test]
fn where_few_frames_less_would_be_far_worse_they_stay() {
    for ratio in [2, 4] {
        // Nine of ten touches are of 700 pages, in no order; the others go round once in a while.
        let next = |r: u64, n: usize| {
            if r.is_multiple_of(100) {
                700 + (n / 100 % 2300) as u32
            } else {
                (r / 100 % 700) as u32
            }
        };
        let (weighed, best) = compared(3000, ratio, next);
        assert!(weighed <= best * 3 / 2, "{ratio}");
    }
}

#[test]
fn what_is_read_from_afar_now_and_then_says_nothing_of_how_far_the_pool_reaches() {
    // A Perl hash, of which nearly all that comes back is found in the pool, within as many frames as there are.
    let found = [2, 6, 11, 20, 325, 1146, 1445, 947, 0, 0, 0];
    let read = [0, 0, 0, 0, 2, 15, 6, 100, 15, 0, 0];
    let mut bins = [Bin::default(); BINS];
    for (bin, (hits, reads)) in bins.iter_mut().zip(found.into_iter().zip(read)) {
        *bin = Bin { hits, reads };
    }
    let counts = Refaults::default();
    let sight = Sight {
        frames: 3800,
        pool: 1311,
        staged: 400,
        rescued: 0,
        costs: Costs::default(),
        near: &counts,
        far: &counts,
    };
    let victims = Victims {
        size: 485,
        pooled: 1000,
    };
    let model = Model::new(&bins, &sight, victims, 0);
    assert!((2703..=3800).contains(&model.reach), "{}", model.reach);
    let (here, less) = (model.cost(0), model.cost(600));
    assert!(
        less > here * 5 / 4,
        "half of the pool less: {less} for {here}"
    );
}

#[test]
fn the_first_step_from_the_pool_is_small_and_each_after_it_twice_as_large() {
    let counts = Refaults::default();
    let sight = |pool: usize| Sight {
        frames: FRAMES,
        pool,
        staged: 0,
        rescued: 0,
        costs: Costs::default(),
        near: &counts,
        far: &counts,
    };
    let mut part = Part::new(75);
    part.now = FRAMES / 2;
    let mut taken = Vec::new();
    for _ in 0..6 {
        let had = part.now;
        part.go(1, &sight(had));
        taken.push(had - part.now);
    }
    assert_eq!(taken, [8, 16, 32, 64, 128, 128]);
    let had = part.now;
    part.go(-1, &sight(had));
    assert_eq!(part.now - had, 32, "what is not filled costs nothing");
    part.step = 0;
    let had = part.now;
    part.go(-16, &sight(had));
    assert_eq!(part.now - had, 128, "it goes where it sees the least");
}

#[test]
fn what_a_touch_costs_decides_whether_a_pool_is_worth_its_frames() {
    // Half of what is touched at random is out; a page comes to half of one.
    let end = |read: u64| {
        let mut machine = Machine::new(2 * FRAMES as u32);
        let mut part = Part::new(75);
        let (mut seed, mut seen, mut costs) = (7_u64, 0, Costs::default());
        (0..2000).for_each(|_| costs.waited(Whence::Store, Nanos(read)));
        machine.has(part.frames(FRAMES));
        for _ in 0..30_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            machine.touch(((seed >> 33) % (2 * FRAMES as u64)) as u32, 2);
            if machine.waited >= seen + 1024 {
                seen = machine.waited;
                let beyond = machine.departed.beyond.as_ref().expect("it was asked for");
                let sight = Sight {
                    frames: FRAMES,
                    pool: machine.pool,
                    staged: machine.staged(),
                    rescued: machine.rescued,
                    costs,
                    near: &machine.departed.counts,
                    far: &beyond.counts,
                };
                let victims = Victims {
                    size: 500,
                    pooled: 1000,
                };
                part.weigh(&sight, victims);
                machine.has(part.frames(FRAMES));
            }
        }
        machine.pool
    };
    let (fast, slow) = (end(15_000), end(8_000_000));
    assert!(fast < FRAMES / 8, "a read costs less than a touch: {fast}");
    assert!(slow > FRAMES / 2, "a disk of 8 ms: {slow}");
}
