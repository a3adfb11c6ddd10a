//! Early eviction, for loops: what came last leaves first, as long as older pages are worth as much.
//!
//! A program that goes round in a circle larger than memory wants next the page that was away for the longest time, and after it the oldest
//! of those that are there. So what came last leaves first, and what stays is found there in each round. A page that is used again while
//! it is staged stays.
//!
//! EELRU evicts early while pages that left early would not have been used sooner than old ones. Here some victims are old pages in any case, and
//! some came last: of each kind it is counted how many are wanted again soon. Where old pages are of less use, more of the victims are old.
//!
//! Pages leave in long runs, in the order in which they came. What stays of a loop is then in long runs too, and a stream that comes to the end of
//! one finds its next pages by one read.

use alloc::boxed::Box;

use super::marks::{Left, Marks};
use super::{Entry, Mapped, Policy, Reclaim};
use crate::page::{PageId, Pages, Queue};

pub(super) const ENTRY: Entry = Entry {
    name: "early",
    summary: "for loops larger than memory: the page that came last leaves first, unless it is used again at once",
    source: "Smaragdakis, Kaplan and Wilson, EELRU, SIGMETRICS 1999: early eviction",
    needs_referenced: false,
    settings: &[],
    build: |_| Policy::Driven(Box::new(Early::default())),
};

/// How many runs of victims that came last go with how many of old ones: of each there are always some, to learn of them.
const SHARES: [(u32, u32); 8] = [
    (31, 1),
    (15, 1),
    (7, 1),
    (3, 1),
    (1, 1),
    (1, 3),
    (1, 7),
    (1, 15),
];
/// Where it begins: three of four turns are of old pages, so that what a program uses once leaves almost as from a queue; to the first of
/// [`SHARES`] it is a sixth of the frames at least. SQLite, simulated in 16 MiB, waited 2,266 times from here and 10,593 times from the last.
const FIRST: usize = 5;

/// Victims of a turn of old pages, and of each turn of others, at most: as many as one write takes (`crate::pageout`, `packed`). Of 16 to 128
/// what it is counts little. In little memory they are a 32nd of the frames, so that something is learned in each round.
const TURN: u32 = 64;
const TURN_PART: u32 = 32;

/// Pages that came last leave so many in a row at most, and in the order in which they came, so that what stays and what leaves are long runs
/// and a stream finds its next pages: an eighth of the frames, for so many are staged at a time. In simulated runs of 64 MiB in 32 `sor` waited 1,101
/// times with 64, 360 with 256, 284 with 512 and 249 with 1024, which reads a fifteenth more;
/// that was before the newest were passed over.
const RUN: u32 = 512;
const RUN_PART: u32 = 8;

/// Pages leave between two changes of the share: of the frames this part, and of each kind so many are to be counted. Fewer tell nothing, and
/// with more a program of a few rounds is over before anything is learned.
const LEARN_PART: usize = 32;
const LEARN_LEAST: u32 = 8;

/// At each change a quarter of what was counted is forgotten, so that what counts are the pages that left with the last eighth of the frames. A
/// choice: over 75 simulated lines (25 traces at 25, 50 and 75 %) an eighth, and returns within half of the frames or all of them, take the same
/// time to a hundredth in the geometric mean; single lines change by up to a fifth.
const FADE: u32 = 4;
/// A page counts so much, so that few are forgotten as many are: of three whole ones a quarter is none, and they would count for ever.
/// A choice: the finer, the longer a last part of a page is remembered, and counts of 2^24 pages still fit.
const ONE: u32 = 1 << 8;
/// A return is soon until this part of the frames has left: a choice, as above.
const RECENT_PART: usize = 2;

/// Pages that were to leave, and how many of them were wanted again, each [`ONE`].
#[derive(Clone, Copy, Default)]
struct Account {
    left: u32,
    wanted: u32,
}

impl Account {
    fn fade(&mut self) {
        self.left -= self.left / FADE;
        self.wanted -= self.wanted.div_ceil(FADE);
    }

    /// Whether fewer than three quarters as many of its pages were wanted as of another's.
    fn below(self, other: Self) -> bool {
        let rate = |own: Self, against: Self| u64::from(own.wanted) * u64::from(against.left);
        4 * rate(self, other) < 3 * rate(other, self)
    }
}

/// Pages that came last and leave in a row.
struct Run {
    /// The next of them, and how many there are.
    next: PageId,
    left: u32,
}

impl Run {
    /// The next one. O(1), but for the first of a run: O(its length).
    fn next(&mut self, pages: &Pages) -> Option<PageId> {
        if self.left == 0 || pages.queue(self.next) != Queue::Active {
            let most = 2 * (pages.framed() as u32 / RUN_PART).clamp(1, RUN);
            (self.next, self.left) = (pages.last(Queue::Active)?, 1);
            while self.left < most
                && let Some(before) = pages.before(self.next)
            {
                (self.next, self.left) = (before, self.left + 1);
            }
            // What came after those was perhaps not used yet: it was read ahead.
            self.left = self.left.div_ceil(2);
        }
        let id = self.next;
        match pages.behind(id) {
            Some(next) => (self.next, self.left) = (next, self.left - 1),
            None => self.left = 0,
        }
        Some(id)
    }
}

/// Whose turn it is to leave.
struct Turns {
    /// Which of [`SHARES`].
    share: usize,
    /// Victims since the last turn of old pages ended.
    victims: u32,
    /// Whether the next old pages are some that were rescued, and what those have a right to, in pages queued: they leave in proportion.
    second: bool,
    owed: usize,
}

impl Turns {
    /// Whether the next victim is an old page.
    fn is_old(&mut self, pages: &Pages) -> bool {
        let (came, old) = SHARES[self.share];
        let turn = (pages.framed() as u32 / TURN_PART).clamp(1, TURN);
        self.victims += 1;
        if self.victims <= came * turn {
            return false;
        }
        if self.victims > (came + old) * turn {
            self.victims = 1;
            let second = pages.queued(Queue::Second);
            let both = pages.queued(Queue::Active) + second;
            self.owed += second;
            self.second = self.owed >= both;
            if self.second {
                self.owed -= both;
            }
            return false;
        }
        true
    }
}

/// What was learned of pages that came last, and of old ones.
#[derive(Default)]
struct Learned {
    accounts: [Account; 2],
    /// Pages that left since the last change.
    since: usize,
}

impl Learned {
    /// A page left. Whether more of the victims are to be old, or fewer, if there is enough to go by.
    fn left(&mut self, frames: usize) -> Option<bool> {
        self.since += 1;
        let [came, old] = self.accounts;
        if self.since <= frames / LEARN_PART || came.left.min(old.left) < LEARN_LEAST * ONE {
            return None;
        }
        self.since = 0;
        self.accounts.iter_mut().for_each(Account::fade);
        Some(old.below(came))
    }
}

/// The policy: `Active` has pages as they came, and gives them from its end; `Second` has those that were rescued.
pub(super) struct Early {
    turns: Turns,
    run: Run,
    learned: Learned,
    marks: Marks,
}

impl Default for Early {
    fn default() -> Self {
        Self {
            turns: Turns {
                share: FIRST,
                victims: 0,
                second: false,
                owed: 0,
            },
            run: Run {
                next: PageId::NONE,
                left: 0,
            },
            learned: Learned::default(),
            marks: Marks::default(),
        }
    }
}

impl Early {
    /// The oldest page of the queue whose turn it is.
    fn oldest(&mut self, pages: &Pages) -> Option<PageId> {
        let (came, second) = (pages.head(Queue::Active), pages.head(Queue::Second));
        let id = if self.turns.second {
            second.or(came)
        } else {
            came.or(second)
        }?;
        self.marks.set_old(id);
        self.learned.accounts[1].left += ONE;
        Some(id)
    }

    /// A page is touched that was to leave, or left.
    fn wanted(&mut self, pages: &Pages, id: PageId, how: Mapped) {
        let from = match how {
            Mapped::Rescued => self.marks.take_old(id).then_some(Left::Second),
            _ => self.marks.recall_from(id, pages.framed() / RECENT_PART),
        };
        if let Some(from) = from {
            self.learned.accounts[from as usize].wanted += ONE;
        }
    }
}

impl Reclaim for Early {
    fn reserve(&mut self, ids: usize) {
        self.marks.reserve(ids);
    }

    fn heap_bytes(&self) -> usize {
        self.marks.heap_bytes()
    }

    fn marks(&mut self) -> Option<&mut Marks> {
        Some(&mut self.marks)
    }

    fn mapped(&mut self, pages: &mut Pages, id: PageId, how: Mapped) {
        match how {
            Mapped::Fresh => self.marks.forget(id),
            Mapped::PagedIn | Mapped::Rescued => self.wanted(pages, id, how),
            Mapped::Along | Mapped::Needed | Mapped::Refused => {}
        }
        match how {
            Mapped::Fresh | Mapped::PagedIn | Mapped::Along => pages.push(Queue::Active, id),
            Mapped::Rescued | Mapped::Needed | Mapped::Refused => pages.push(Queue::Second, id),
        }
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        let id = if self.turns.is_old(pages) {
            self.oldest(pages)
        } else {
            let came = self.run.next(pages);
            came.or_else(|| pages.head(Queue::Second))
        }?;
        pages.unqueue(id);
        Some(id)
    }

    fn left(&mut self, pages: &Pages, id: PageId) {
        if self.marks.take_old(id) {
            self.marks.leaves_from(id, Left::Second);
        } else {
            self.learned.accounts[0].left += ONE;
            self.marks.leaves_from(id, Left::First);
        }
        if let Some(older) = self.learned.left(pages.framed()) {
            let share = &mut self.turns.share;
            *share = match older {
                true => (*share + 1).min(SHARES.len() - 1),
                false => share.saturating_sub(1),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::page::State;
    use crate::units::PageNo;

    fn mapped(policy: &mut Early, pages: &mut Pages, count: u64) -> Vec<PageId> {
        let come = |n| {
            let id = pages.create(PageNo::from_raw(n), State::Resident);
            policy.mapped(pages, id, Mapped::Fresh);
            id
        };
        (0..count).map(come).collect()
    }

    fn victims(policy: &mut Early, pages: &mut Pages, count: usize) -> Vec<u64> {
        let next = |_| {
            let id = policy.victim(pages).expect("a page");
            pages.number(id).raw()
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn what_came_last_leaves_in_long_runs_and_in_order() {
        let (mut policy, mut pages) = (Early::default(), Pages::new());
        policy.turns.share = 0;
        mapped(&mut policy, &mut pages, 1024);
        // An eighth, and not the eighth that came after it.
        let first: Vec<u64> = (768..896).collect();
        assert_eq!(victims(&mut policy, &mut pages, 128), first);
        // What comes meanwhile does not end a run.
        let run = victims(&mut policy, &mut pages, 1);
        let id = pages.create(PageNo::from_raw(2000), State::Resident);
        policy.mapped(&mut pages, id, Mapped::PagedIn);
        assert_eq!(victims(&mut policy, &mut pages, 1), [run[0] + 1]);
    }

    #[test]
    fn a_run_of_which_a_page_went_begins_anew() {
        let (mut policy, mut pages) = (Early::default(), Pages::new());
        policy.turns.share = 0;
        let ids = mapped(&mut policy, &mut pages, 256);
        assert_eq!(victims(&mut policy, &mut pages, 2), [192, 193]);
        pages.unqueue(ids[194]);
        pages.forget(ids[194]);
        // A quarter of those that are there reaches beyond the three that are gone.
        assert_eq!(victims(&mut policy, &mut pages, 3), [191, 195, 196]);
    }

    #[test]
    fn old_pages_leave_by_turns_and_those_that_were_rescued_in_proportion() {
        let (mut policy, mut pages) = (Early::default(), Pages::new());
        policy.turns.share = 4;
        let ids = mapped(&mut policy, &mut pages, 4096);
        for &id in &ids[3072..] {
            pages.unqueue(id);
            policy.mapped(&mut pages, id, Mapped::Rescued);
        }
        let left = victims(&mut policy, &mut pages, 16 * TURN as usize);
        let old: Vec<&[u64]> = left.chunks(TURN as usize).skip(1).step_by(2).collect();
        assert_eq!(old[0], (0..64).collect::<Vec<u64>>());
        let rescued = old.iter().filter(|turn| turn[0] >= 3072).count();
        assert_eq!(rescued, 2, "a quarter of eight turns: {left:?}");
    }

    #[test]
    fn the_kind_that_is_wanted_less_leaves_more() {
        let mut learned = Learned::default();
        let mut tell = |came: u32, old: u32| {
            for (account, wanted) in learned.accounts.iter_mut().zip([came, old]) {
                *account = Account {
                    left: 100 * ONE,
                    wanted: wanted * ONE,
                };
            }
            (0..=1024 / LEARN_PART).find_map(|_| learned.left(1024))
        };
        assert_eq!(tell(40, 29), Some(true));
        assert_eq!(tell(40, 30), Some(false));
        // A loop: nothing is wanted soon.
        assert_eq!(tell(0, 0), Some(false));
        learned.accounts[1] = Account {
            left: 7 * ONE,
            wanted: 0,
        };
        assert_eq!((0..100).find_map(|_| learned.left(1024)), None);
    }

    #[test]
    fn what_few_pages_taught_is_forgotten_when_a_loop_goes_on() {
        let mut learned = Learned::default();
        learned.accounts[0] = Account {
            left: 10 * ONE,
            wanted: 3 * ONE,
        };
        // Nearly all that leave are old ones, and nothing is wanted again.
        let mut older = Vec::new();
        for n in 0..4096 {
            learned.accounts[usize::from(n % 8 != 0)].left += ONE;
            older.extend(learned.left(1024));
        }
        assert_eq!(older.first(), Some(&true));
        assert_eq!(older.last(), Some(&false), "{older:?}");
    }
}
