//! What is known of each memory object: its account, and how its pages are sampled.

use alloc::vec;
use alloc::vec::Vec;

use super::account::{Account, Amount};
use super::sample::hash_of;
use crate::units::ObjectId;

/// Objects with an account of their own; the least recently read one makes room. A choice: 30 KiB, of which only what is known is touched. The
/// columns of a table, each an object, that are walked side by side are up to hundreds; with 64 places none of 80 had an account for longer than a page.
const OBJECTS: usize = 256;

/// Places of the index, a few for each object.
const PLACES: usize = 1024;

/// Where nothing is known yet: a window of the default size gives several samples.
const INTERVAL_FIRST: u32 = 16;

/// The account of an object, and how its pages are sampled.
#[derive(Clone, Copy)]
pub(super) struct Object {
    id: ObjectId,
    pub(super) account: Account,
    /// One in so many pages that are mapped along is sampled, about.
    pub(super) interval: u32,
    /// Pages until the next one is sampled, and how many that one stands for. Of its own: of an object with little one page in a few is
    /// sampled, of one with much one in hundreds, and a countdown for both would sample the former as seldom, at the weight of a few.
    next: Countdown,
    /// Used samples in a row.
    pub(super) row: u32,
    /// How many of the last major faults were where a slow stream goes on, weighed.
    pub(super) slow: u8,
    /// What may be read ahead for slow streams before any of it is used: paid back first.
    pub(super) loan: Account,
    used: u64,
}

impl Object {
    /// Counts a page towards the next sample, one in `interval` pages: how many pages this one stands for if it is the one. `random` is anything.
    pub(super) const fn counted_down(&mut self, interval: u32, random: u64) -> Option<u32> {
        if interval * Countdown::STALE <= self.next.interval {
            self.next = Countdown::drawn(interval, random);
        }
        self.next.pages -= 1;
        if self.next.pages > 0 {
            return None;
        }
        let weight = self.next.interval;
        self.next = Countdown::drawn(interval, random.rotate_left(32));
        Some(weight)
    }
}

/// Pages of an object until one is sampled.
#[derive(Clone, Copy)]
struct Countdown {
    pages: u32,
    /// How many pages lie between two sampled ones in the mean: so many does the next one stand for.
    interval: u32,
}

impl Countdown {
    /// A sample is due long after it should be where the interval is so many times as short as when it was set. A choice, 2 to 8 are
    /// plausible; others were not tried.
    const STALE: u32 = 4;

    const FIRST: Self = Self {
        pages: INTERVAL_FIRST,
        interval: INTERVAL_FIRST,
    };

    /// One page in `interval`, anywhere in the next two intervals but one: strides must not meet the same pages always.
    const fn drawn(interval: u32, random: u64) -> Self {
        Self {
            pages: 1 + ((random >> 33) % (2 * interval as u64 - 1)) as u32,
            interval,
        }
    }
}

/// The objects that are known.
pub(super) struct Objects {
    known: Vec<Object>,
    /// Where an object may be, by a hash of its number.
    index: Vec<u16>,
}

impl Objects {
    /// None known.
    pub(super) fn new() -> Self {
        Self {
            known: Vec::with_capacity(OBJECTS),
            index: vec![0; PLACES],
        }
    }

    /// Accounts hold `most` from now on.
    pub(super) fn resize(&mut self, most: Amount) {
        for object in &mut self.known {
            object.account.resize(most);
            object.loan.resize(most);
        }
    }

    /// What is known of `id`, when `taken` frames had been taken. A new one begins with `first`, and holds at most `most`. A look at one
    /// place, or at all of them where objects share it.
    pub(super) fn get(
        &mut self,
        id: ObjectId,
        taken: u64,
        first: impl FnOnce() -> Account,
        most: Amount,
    ) -> &mut Object {
        let place = (hash_of(u64::from(id.0)) >> 32) as usize & (PLACES - 1);
        let guess = usize::from(self.index[place]);
        let is_it = |object: &Object| object.id == id;
        let at = match self.known.get(guess) {
            Some(object) if is_it(object) => guess,
            _ => {
                let found = self.known.iter().position(is_it);
                let at = found.unwrap_or_else(|| self.admit(id, first(), most));
                self.index[place] = at as u16;
                at
            }
        };
        let object = &mut self.known[at];
        object.used = taken;
        object
    }

    fn admit(&mut self, id: ObjectId, account: Account, most: Amount) -> usize {
        let object = Object {
            id,
            account,
            interval: INTERVAL_FIRST,
            next: Countdown::FIRST,
            row: 0,
            slow: 0,
            loan: Account::new(most, most),
            used: 0,
        };
        if self.known.len() < OBJECTS {
            self.known.push(object);
            return self.known.len() - 1;
        }
        let objects = self.known.iter().enumerate();
        let oldest = objects.min_by_key(|(_, object)| object.used);
        let at = oldest.map_or(0, |(at, _)| at);
        self.known[at] = object;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_its_account_until_it_is_the_one_unused_for_longest() {
        let most = Amount::pages(100);
        let mut objects = Objects::new();
        let mut get = |id: u32, taken| {
            let account = &mut objects
                .get(
                    ObjectId(id),
                    taken,
                    || Account::new(Amount::pages(1), most),
                    most,
                )
                .account;
            account.earn(Amount::pages(1));
            account.affords()
        };
        let many = OBJECTS as u32;
        for round in 1..5 {
            for id in 0..many {
                assert_eq!(get(id, round), 1 + round as u32, "object {id}");
            }
        }
        assert_eq!(get(0, 9), 6);
        assert_eq!(get(many, 10), 2, "a new one");
        assert_eq!(get(0, 11), 7);
        assert_eq!(get(1, 12), 2, "the oldest made room");
    }

    #[test]
    fn a_sample_stands_for_as_many_pages_as_there_are_to_one() {
        let most = Amount::pages(100);
        let mut objects = Objects::new();
        let object = objects.get(ObjectId(1), 0, || Account::new(most, most), most);
        for interval in [1, 7, 256, 3] {
            let (mut random, mut stood_for) = (1_u64, 0);
            let pages = interval * 2000;
            for _ in 0..pages {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                stood_for += object.counted_down(interval, random).unwrap_or(0);
            }
            assert!(
                stood_for.abs_diff(pages) < pages / 10,
                "{stood_for} of {pages}"
            );
        }
    }
}
