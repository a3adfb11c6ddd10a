//! How one limit is divided among the processes of a tree.
//!
//! Each process says what its next frames would save it and what its last ones do, both in nanoseconds of waiting a second, as
//! measured. Frames go from where they save least to where they save most, a part at a time, until nobody's next frame saves
//! much more than another's last. Every process works the same shares out of the same numbers, and follows its own.

use outpage_core::refaults::SPANS;

/// A frame moves where it saves so many times what it saved before, in halves. A choice: what is measured of two equal processes differs by
/// less, and frames do not go to and fro.
const TIMES_2: u64 = 3;
/// A frame that saves less, in ns a second, is worth no move: a wait of 100 us in 100 s. A choice.
const LEAST_GAIN: u64 = 1_000;
/// What a process may be taken of at a time while it runs, as a part of what it holds. Its measures follow, and stop it. A choice.
const TAKEN_OF: u64 = 16;
/// The same where a frame saves the other this many times as much and more. Choices: the measures of such a difference are not that wrong.
const MUCH_TAKEN_OF: u64 = 4;
const MUCH: u64 = 4;
/// Each process has this part of an equal share, whatever others save: what it does was not measured yet, or will be something else. A choice.
const FLOOR_OF: u64 = 4;
/// Moves that are worked out at a time. A choice: what is left comes next time.
const MOVES_MAX: usize = 64;
/// No process waits more, in ns a second: 64 threads that always wait. What says more is believed so far.
const WAITING_MAX: u64 = 64_000_000_000;

/// What frames are worth to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Worth {
    /// What 1/128 of the limit, 1/64 ... all of it would save it beyond the next smaller span, in ns a second.
    pub gains: [u64; SPANS],
    /// What its last `near_pages` frames save it, in ns a second.
    pub near: u64,
    /// How many those are.
    pub near_pages: u64,
    /// Frames that it does not use, in pages.
    pub spare_pages: u64,
    /// Frames without which it cannot work, in pages.
    pub least_pages: u64,
    /// Frames that it needs beside those: their pages cannot leave, being locked for instance. In pages.
    pub fixed_pages: u64,
    /// It neither ran nor touched anything for a while, and nobody waits for a page.
    pub asleep: bool,
}

/// What a process has and wants, and what it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Frames that it holds, in pages.
    pub held: u64,
    /// Frames beyond those that it could use, in pages.
    pub wants: u64,
    /// It can give frames back.
    pub gives: bool,
    /// What frames are worth to it.
    pub worth: Worth,
    /// Frames that it should hold, in pages: the answer.
    pub target: u64,
    floor: u64,
    /// It may come down so far now.
    down_to: u64,
    /// The same for whom a frame saves much more.
    far_down_to: u64,
}

/// What a process would pay for frames.
#[derive(Clone, Copy)]
struct Offer {
    /// In ns a second for each.
    each: u64,
    /// So many of them.
    frames: u64,
}

impl Claim {
    /// Of a process that keeps what it holds, and says nothing of its worth.
    pub fn of(held: u64, wants: u64) -> Self {
        Self {
            held,
            wants,
            ..Self::default()
        }
    }

    /// Frames that it would take still; none where it is to give some.
    fn wanted(&self) -> u64 {
        let got = self.target.checked_sub(self.held);
        got.map_or(0, |got| self.wants.saturating_sub(got))
    }

    /// The span of frames that saves most a frame.
    fn gain(&self, limit: u64) -> Offer {
        let got = self.target.saturating_sub(self.held);
        let room = limit.saturating_sub(self.target);
        let (mut saved, mut best) = (0_u64, Offer { each: 0, frames: 0 });
        for (span, &gain) in self.worth.gains.iter().enumerate() {
            let Some(frames) = (limit >> (SPANS - 1 - span)).checked_sub(got) else {
                continue;
            };
            saved += gain.min(WAITING_MAX);
            if frames > 0 && frames <= room.max(1) && saved / frames > best.each {
                best = Offer {
                    each: saved / frames,
                    frames,
                };
            }
        }
        best
    }

    /// What the next frame that it gives up saves it, in ns a second.
    fn loss(&self, limit: u64) -> u64 {
        let given = self.held.saturating_sub(self.target);
        if self.worth.asleep || given < self.worth.spare_pages {
            return 0;
        }
        let near = self.worth.near.min(WAITING_MAX) / self.worth.near_pages.max(1);
        near.max(self.gain(limit).each)
    }

    /// What it would pay: at least the least where it has less than an equal share would be.
    fn offer(&self, limit: u64, ceiling: u64) -> Offer {
        let wanted = self.wanted();
        let gain = self.gain(limit);
        let presumed = ceiling.saturating_sub(self.target);
        let offer = if gain.each < LEAST_GAIN && presumed > 0 {
            Offer {
                each: LEAST_GAIN,
                frames: presumed,
            }
        } else {
            gain
        };
        Offer {
            frames: offer.frames.min(wanted),
            ..offer
        }
    }
}

/// Says in each claim which part of `limit` pages it should hold: `u64::MAX` while everything fits. O(moves and claims).
///
/// The sum is at most the limit, or what is held where that is more. Nobody who gives comes below its floor, a quarter of an equal share, but for
/// who sleeps: it comes down to the least that it can work with. Either is beside the frames that it holds and whose pages cannot leave.
pub fn divide(limit: u64, claims: &mut [Claim]) {
    for claim in &mut *claims {
        // Nobody holds or wants more, whatever is written there.
        (claim.held, claim.wants) = (claim.held.min(limit), claim.wants.min(limit));
    }
    let demand = |claim: &Claim| claim.held.saturating_add(claim.wants);
    let wanted = claims.iter().map(demand).fold(0, u64::saturating_add);
    if wanted <= limit {
        return claims.iter_mut().for_each(|claim| claim.target = u64::MAX);
    }
    let ceiling = ceiling(limit, claims);
    let equal = limit / claims.len() as u64;
    for claim in &mut *claims {
        let fixed = claim.worth.fixed_pages.min(claim.held);
        let least = claim.worth.least_pages.min(equal) + fixed;
        claim.target = claim.held;
        claim.floor = (equal / FLOOR_OF + fixed).max(least).min(demand(claim));
        let by = |part: u64| {
            let pace = (claim.held / part).max(claim.worth.spare_pages);
            claim.held.saturating_sub(pace).max(claim.floor)
        };
        (claim.down_to, claim.far_down_to) = if !claim.gives {
            (claim.held, claim.held)
        } else if claim.worth.asleep {
            (least, least)
        } else {
            (by(TAKEN_OF), by(MUCH_TAKEN_OF))
        };
    }
    let held = claims
        .iter()
        .map(|claim| claim.held)
        .fold(0, u64::saturating_add);
    let mut free = limit.saturating_sub(held);
    for _ in 0..MOVES_MAX {
        if !move_one(limit, ceiling, claims, &mut free) {
            break;
        }
    }
}

/// Moves frames to whom they are worth most, from where nobody has them or who would miss them least. False when nothing is to be moved.
fn move_one(limit: u64, ceiling: u64, claims: &mut [Claim], free: &mut u64) -> bool {
    let Some((taker, offer)) = best_taker(limit, ceiling, claims) else {
        return *free > 0 && give_rest(claims, free);
    };
    if *free > 0 {
        let frames = offer.frames.min(*free);
        claims[taker].target += frames;
        *free -= frames;
        return true;
    }
    let gain = offer.each.saturating_mul(2);
    let givers = claims.iter().enumerate().filter_map(|(at, claim)| {
        let loss = claim.loss(limit).saturating_mul(TIMES_2);
        // One who waits for nothing has said nothing: it is asked by and by.
        let down_to = if loss > 0 && gain >= loss.saturating_mul(MUCH) {
            claim.far_down_to
        } else {
            claim.down_to
        };
        let gives = at != taker && gain >= loss && claim.target > down_to;
        gives.then(|| (loss, at, claim.target - down_to))
    });
    let Some((_, giver, most)) = givers.min() else {
        return false;
    };
    let from = &mut claims[giver];
    let given = from.held.saturating_sub(from.target);
    let mut frames = offer.frames.min(most);
    if !from.worth.asleep && given < from.worth.spare_pages {
        // The others have another worth.
        frames = frames.min(from.worth.spare_pages - given);
    }
    from.target -= frames;
    claims[taker].target += frames;
    true
}

/// Who would pay most: first of all who has less than its floor.
fn best_taker(limit: u64, ceiling: u64, claims: &[Claim]) -> Option<(usize, Offer)> {
    let wanting = claims
        .iter()
        .enumerate()
        .filter(|(_, claim)| claim.wanted() > 0);
    let offers = wanting.map(|(at, claim)| {
        let missing = claim.floor.saturating_sub(claim.target);
        let offer = if missing > 0 {
            Offer {
                each: u64::MAX,
                frames: missing.min(claim.wanted()),
            }
        } else {
            claim.offer(limit, ceiling)
        };
        (at, offer)
    });
    offers
        .filter(|(_, offer)| offer.each >= LEAST_GAIN && offer.frames > 0)
        .max_by_key(|&(at, offer)| (offer.each, std::cmp::Reverse(at)))
}

/// Frames that save nobody anything go to who has least and wants them.
fn give_rest(claims: &mut [Claim], free: &mut u64) -> bool {
    let wanting = claims.iter_mut().filter(|claim| claim.wanted() > 0);
    let Some(claim) = wanting.min_by_key(|claim| claim.target) else {
        return false;
    };
    let frames = claim.wanted().min(*free);
    claim.target += frames;
    *free -= frames;
    true
}

/// The largest equal ceiling under which the demands fit the limit, which they do not without one.
///
/// A process that asks for less than the ceiling gets all it asks for, and what it leaves goes to
/// the others (max-min fairness). In pages. O(n) a round, of which there are few: each leaves only larger demands.
fn ceiling(limit: u64, claims: &[Claim]) -> u64 {
    let demand = |claim: &Claim| claim.held.saturating_add(claim.wants);
    let mut ceiling = 0;
    loop {
        let (mut left, mut larger) = (limit, 0);
        for claim in claims {
            if demand(claim) > ceiling {
                larger += 1;
            } else {
                left = left.saturating_sub(demand(claim));
            }
        }
        let next = left.checked_div(larger).unwrap_or(ceiling);
        if next <= ceiling {
            return ceiling;
        }
        ceiling = next;
    }
}

#[cfg(test)]
mod tests;
