use super::*;
use crate::tests::random::Random;

/// A process as a naive model: `pages` pages, each touched so many times a second, the first one most often; a touch of one that has no
/// frame costs 100 us. Frames hold the pages that are touched most often.
#[derive(Clone)]
struct Model {
    touches: Vec<f64>,
    asleep: bool,
}

const COST: f64 = 100_000.0;

impl Model {
    /// Of `pages` pages the first is touched `most` times a second, the others by a power of their number.
    fn skewed(pages: usize, most: f64, power: f64) -> Self {
        let touches = (0..pages).map(|page| most / (page as f64 + 1.0).powf(power));
        Self {
            touches: touches.collect(),
            asleep: false,
        }
    }

    /// What it waits with so many frames, in ns a second.
    fn waits(&self, frames: u64) -> f64 {
        self.touches.iter().skip(frames as usize).sum::<f64>() * COST
    }

    fn claim(&self, limit: u64, held: u64) -> Claim {
        let mut claim = Claim::of(held, 0);
        claim.gives = true;
        let uses = self.touches.len() as u64;
        if self.asleep {
            claim.worth.asleep = true;
            claim.worth.least_pages = 2;
            return claim;
        }
        claim.wants = if uses > held {
            limit - held.min(limit)
        } else {
            0
        };
        let mut before = held;
        for span in 0..SPANS {
            let end = held + (limit >> (SPANS - 1 - span));
            claim.worth.gains[span] = (self.waits(before) - self.waits(end)) as u64;
            before = end;
        }
        let near = (held / 32).max(1);
        let used = held.min(uses);
        claim.worth = Worth {
            near: (self.waits(used - near.min(used)) - self.waits(used)) as u64,
            near_pages: near,
            spare_pages: held.saturating_sub(uses),
            least_pages: 2,
            ..claim.worth
        };
        claim
    }
}

/// Follows the shares, each process its own, until nothing moves; in each round some are late.
fn settle(limit: u64, models: &[Model], held: &mut [u64], random: &mut Random) -> usize {
    for round in 0..2_000 {
        let before = held.to_vec();
        let all = |held: &[u64]| -> Vec<Claim> {
            models
                .iter()
                .zip(held)
                .map(|(m, &h)| m.claim(limit, h))
                .collect()
        };
        let late = random.below(2) == 0;
        for at in 0..models.len() {
            let mut claims = all(held);
            divide(limit, &mut claims);
            let target = claims[at].target.min(limit);
            if late && random.below(3) == 0 {
                continue;
            }
            let free = limit - held.iter().sum::<u64>();
            if target > held[at] && claims[at].wants > 0 {
                held[at] += (target - held[at]).min(free);
            } else if target < held[at] {
                held[at] = target;
            }
            assert!(held.iter().sum::<u64>() <= limit);
        }
        if !late && before == held {
            return round;
        }
    }
    panic!("no end: {held:?}");
}

fn waits(models: &[Model], held: &[u64]) -> f64 {
    models.iter().zip(held).map(|(m, &h)| m.waits(h)).sum()
}

/// The best that any division could do that leaves each its floor: frame by frame to whom it saves most.
fn best(limit: u64, models: &[Model], floor: u64) -> f64 {
    let floors: u64 = models
        .iter()
        .map(|m| floor.min(m.touches.len() as u64))
        .sum();
    let above = |m: &Model| {
        m.touches
            .iter()
            .skip(floor as usize)
            .copied()
            .collect::<Vec<f64>>()
    };
    let mut all: Vec<f64> = models.iter().flat_map(above).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    all.iter().skip((limit - floors) as usize).sum::<f64>() * COST
}

#[test]
fn everything_fits() {
    let mut claims = [Claim::of(40, 20), Claim::of(30, 10)];
    divide(100, &mut claims);
    assert_eq!(claims.map(|claim| claim.target), [u64::MAX; 2]);
    divide(100, &mut []);
}

#[test]
fn frames_go_where_they_save_most_from_wherever_they_are() {
    let limit = 4_000;
    let mut random = Random(3);
    for _ in 0..40 {
        let count = 2 + random.below(7) as usize;
        let models: Vec<Model> = (0..count)
            .map(|_| {
                let pages = 200 + random.below(4_000) as usize;
                let power = 0.3 + random.below(100) as f64 / 100.0;
                Model::skewed(pages, 1.0 + random.below(2_000) as f64, power)
            })
            .collect();
        let mut held = vec![0; count];
        held[random.below(count as u64) as usize] = limit;
        settle(limit, &models, &mut held, &mut random);
        let equal = vec![limit / count as u64; count];
        let floor = limit / count as u64 / FLOOR_OF;
        let (reached, equal, best) = (
            waits(&models, &held),
            waits(&models, &equal),
            best(limit, &models, floor),
        );
        assert!(
            reached <= equal * 1.02 && reached <= best * 1.3 + COST,
            "{reached} against {equal} and {best}: {held:?}"
        );
        for (model, &held) in models.iter().zip(&held) {
            assert!(
                held >= floor.min(model.touches.len() as u64),
                "{held} of {floor}"
            );
        }
    }
}

#[test]
fn equals_stay_as_they_are() {
    let models = [
        Model::skewed(3_000, 500.0, 0.8),
        Model::skewed(3_000, 500.0, 0.8),
    ];
    let mut claims = [models[0].claim(1_000, 520), models[1].claim(1_000, 480)];
    divide(1_000, &mut claims);
    assert_eq!(claims.map(|claim| claim.target), [520, 480]);
}

#[test]
fn sleepers_leave_first_and_whoever_runs_pays_nothing() {
    let limit = 1_200;
    let asleep = Model {
        asleep: true,
        ..Model::skewed(400, 1_000.0, 0.5)
    };
    let models = [
        Model::skewed(2_000, 100.0, 0.5),
        Model::skewed(400, 2_000.0, 0.5),
        asleep,
    ];
    let mut claims: Vec<Claim> = models.iter().map(|m| m.claim(limit, 400)).collect();
    divide(limit, &mut claims);
    let targets: Vec<u64> = claims.iter().map(|claim| claim.target).collect();
    assert_eq!(
        targets,
        [798, 400, 2],
        "all at once, but for what it needs to wake"
    );
    let mut held = [798, 400, 2];
    let mut awake = models.clone();
    awake[2].asleep = false;
    let mut claims: Vec<Claim> = awake
        .iter()
        .zip(held)
        .map(|(m, h)| m.claim(limit, h))
        .collect();
    divide(limit, &mut claims);
    assert!(claims[2].target >= 400 / FLOOR_OF, "{:?}", claims[2]);
    settle(limit, &awake, &mut held, &mut Random(1));
    assert!(held[2] > 200, "{held:?}");
}

#[test]
fn a_newcomer_gets_its_floor_at_once_and_what_nobody_uses() {
    let limit = 1_000;
    let busy = Model::skewed(5_000, 500.0, 0.3).claim(limit, 1_000);
    let mut claims = [
        busy,
        Claim {
            gives: true,
            ..Claim::of(0, 1_000)
        },
    ];
    divide(limit, &mut claims);
    assert_eq!(claims.map(|claim| claim.target), [875, 125]);
    let mut claims = [
        busy,
        Claim {
            gives: true,
            ..Claim::of(0, 1_000)
        },
    ];
    claims[0].worth.spare_pages = 700;
    divide(limit, &mut claims);
    assert_eq!(claims.map(|claim| claim.target), [500, 500]);
}

#[test]
fn who_has_no_pager_gives_nothing() {
    let taker = Model::skewed(2_000, 500.0, 0.3).claim(1_000, 500);
    let mut claims = [taker, Claim::of(500, 0)];
    divide(1_000, &mut claims);
    assert_eq!(claims.map(|claim| claim.target), [500, 500]);
}

#[test]
fn frames_whose_pages_cannot_leave_are_no_part_of_the_floor() {
    let limit = 1_000;
    let busy = Model::skewed(5_000, 500.0, 0.3).claim(limit, 800);
    let mut locked = Claim {
        gives: true,
        ..Claim::of(200, 800)
    };
    locked.worth.least_pages = 16;
    let mut claims = [busy, locked];
    divide(limit, &mut claims);
    assert_eq!(claims[1].target, 188, "a sixteenth goes to who saves by it");
    locked.worth.fixed_pages = 200;
    let mut claims = [busy, locked];
    divide(limit, &mut claims);
    assert_eq!(claims[1].target, 325, "none of its 200 can be used again");
    (locked.worth.asleep, locked.wants) = (true, 0);
    let mut claims = [Claim { wants: 500, ..busy }, locked];
    divide(limit, &mut claims);
    assert_eq!(claims[1].target, 200, "nothing can be had of who sleeps");
}

#[test]
fn a_scan_that_would_fit_with_more_is_worth_them_all() {
    // Each page as often as the others: only with all frames it waits no more.
    let mut scan = Claim {
        gives: true,
        ..Claim::of(500, 500)
    };
    scan.worth.gains[SPANS - 2] = 800_000_000;
    let mut idle = Claim {
        gives: true,
        ..Claim::of(500, 0)
    };
    (idle.worth.near, idle.worth.near_pages) = (1_000_000, 10);
    let mut claims = [scan, idle];
    divide(1_000, &mut claims);
    assert_eq!(claims.map(|claim| claim.target), [625, 375]);
}

#[test]
fn whatever_others_say_the_sum_is_never_above_the_limit() {
    let mut random = Random(7);
    let any = |random: &mut Random, limit: u64| match random.below(5) {
        0 => 0,
        1 => random.below(limit + 1),
        2 => limit,
        3 => u64::MAX,
        _ => random.next(),
    };
    for _ in 0..20_000 {
        let limit = [0, 1, 100, 6_000, 1 << 28][random.below(5) as usize];
        let count = 1 + random.below(6) as usize;
        let mut claims: Vec<Claim> = (0..count)
            .map(|_| Claim {
                gives: random.below(4) > 0,
                worth: Worth {
                    gains: std::array::from_fn(|_| any(&mut random, limit)),
                    near: any(&mut random, limit),
                    near_pages: any(&mut random, limit),
                    spare_pages: any(&mut random, limit),
                    least_pages: any(&mut random, limit),
                    fixed_pages: any(&mut random, limit),
                    asleep: random.below(4) == 0,
                },
                ..Claim::of(any(&mut random, limit), any(&mut random, limit))
            })
            .collect();
        divide(limit, &mut claims);
        if claims.iter().all(|claim| claim.target == u64::MAX) {
            continue;
        }
        let sum = |of: fn(&Claim) -> u64| claims.iter().map(|c| u128::from(of(c))).sum::<u128>();
        let held = sum(|claim| claim.held);
        assert!(
            sum(|claim| claim.target) <= held.max(limit.into()),
            "{limit} {claims:?}"
        );
        for claim in &claims {
            let most = claim.held.saturating_add(claim.wants);
            assert!(claim.target <= most, "{claim:?}");
            assert!(claim.gives || claim.target >= claim.held, "{claim:?}");
        }
    }
}
