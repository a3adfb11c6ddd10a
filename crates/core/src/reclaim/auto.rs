//! The policy that would have waited least lately.
//!
//! Of sixteen groups of pages one is in a sample. Each touch of it that is seen is told to a shadow of each candidate, a small pager with the sample's share of the
//! frames ([`super::shadow`]), and the candidate whose shadow would have waited least lately is asked about all pages. So that touches of the sample are seen,
//! its pages are taken out of the program again soon after each, and wait there, staged: a touch is a minor fault. They
//! leave when the shadow of the candidate in charge says so.
//!
//! All candidates have the mapped pages on the same two queues and remember the same of those that left, so that a change moves nothing.

use alloc::boxed::Box;

use super::marks::{Left, Marks};
use super::shadow::{ALONE, Shadow, driven};
use super::watch::{GROUP, SAMPLE, Watch, sampled, sampled_of};
use super::{Entry, Mapped, Policy, Reclaim, car, early, lirs, s3_fifo, second_chance, two_queue};
use crate::page::{DIRTY, PageId, Pages, Queue};
use crate::units::PageNo;

pub(super) const ENTRY: Entry = Entry {
    name: "auto",
    summary: "the policy that would have waited least lately, by shadows of a sample of pages",
    source: "Outpage; shadows of a sample: Waldspurger, Saemundsson, Ahmad and Park, Cache modeling and optimization using miniature simulations, USENIX ATC 2017",
    needs_referenced: false,
    settings: &[],
    build: |_| Policy::Driven(Box::new(Auto::new())),
};

/// The candidates, the one that begins first. Of all it is the one that alone misses least in the geometric mean (docs/policies.md).
static CANDIDATES: [Entry; KINDS] = [
    early::ENTRY,
    second_chance::ENTRY,
    s3_fifo::ENTRY,
    two_queue::ENTRY,
    car::ENTRY,
    lirs::ENTRY,
];
const KINDS: usize = 6;

/// Of so many victims one is a page of the sample that is to be watched: all of them have their turn while a quarter of the frames are taken.
const WATCH: u32 = 4;

/// What misses cost, and whom they cost least lately.
///
/// The candidates are compared at the ends of periods, short ones at first: a program that was just begun may be over soon.
struct Contest {
    /// Who is in charge.
    leader: usize,
    /// What each shadow's misses in this period cost.
    missed: [u32; KINDS],
    /// The same of periods before, each counted for less than the one after it.
    before: [u32; KINDS],
    /// Touches in this period that any of them missed.
    touches: u32,
    /// The length of this period in such touches, in parts of the shadow's frames.
    length: u32,
}

impl Contest {
    /// The parts in which lengths are counted: so many are all of the frames.
    const PARTS: u32 = 16;
    /// The longest period: as many touches as four times the frames, a round of a loop four times as large as memory.
    const LONGEST: u32 = 4 * Self::PARTS;
    /// No period is shorter, in touches: of fewer misses no difference would be more than chance.
    const LEAST: u32 = 16;
    /// Of what a period cost a quarter counts in the next one.
    const KEPT: u32 = 4;
    /// Who is to take over cost a twenty-fifth less, and four waits less: less is chance, and a change costs.
    const LEAD: (u32, u32) = (25, 4 * ALONE);

    const fn new() -> Self {
        Self {
            leader: 0,
            missed: [0; KINDS],
            before: [0; KINDS],
            touches: 0,
            length: 1,
        }
    }

    /// A touch that some shadow missed. Who is to be in charge, at the end of a period.
    fn touched(&mut self, frames: usize) -> Option<usize> {
        self.touches += 1;
        let length = frames as u64 * u64::from(self.length) / u64::from(Self::PARTS);
        if u64::from(self.touches) < length.max(u64::from(Self::LEAST)) {
            return None;
        }
        self.touches = 0;
        self.length = (2 * self.length).min(Self::LONGEST);
        for (before, missed) in self.before.iter_mut().zip(&mut self.missed) {
            *before = *before / Self::KEPT + core::mem::take(missed);
        }
        let score = |at: usize| self.before[at];
        let best = (0..KINDS).min_by_key(|&at| score(at))?;
        let (part, least) = Self::LEAD;
        let lead = score(self.leader) - score(best);
        (lead > score(best) / part + least).then_some(best)
    }
}

/// The policy.
struct Auto {
    candidates: [Box<dyn Reclaim>; KINDS],
    shadows: [Shadow; KINDS],
    contest: Contest,
    /// What is remembered of pages while the one in charge remembers nothing.
    marks: Marks,
    watch: Watch,
    /// Victims since the last one that was to be watched.
    victims: u32,
    /// Whose turn it is where pages are on a queue that the one in charge does not look at.
    second: bool,
}

impl Auto {
    fn new() -> Self {
        Self {
            candidates: core::array::from_fn(|at| driven(&CANDIDATES[at])),
            shadows: core::array::from_fn(|at| Shadow::new(&CANDIDATES[at])),
            contest: Contest::new(),
            marks: Marks::default(),
            watch: Watch::default(),
            victims: 0,
            second: false,
        }
    }

    /// Tells the shadows that a page of the sample was touched.
    fn tell(&mut self, pages: &Pages, sampled: usize, how: Mapped) {
        let page = PageNo::from_raw(sampled as u64);
        let frames = pages.framed().div_ceil(SAMPLE);
        let mut any = false;
        for (shadow, missed) in self.shadows.iter_mut().zip(&mut self.contest.missed) {
            if how == Mapped::Fresh {
                shadow.forget(page);
            }
            let cost = shadow.touch(page, frames);
            *missed += cost;
            any |= cost > 0;
        }
        if any && let Some(best) = self.contest.touched(frames) {
            self.change(best);
        }
    }

    /// Another candidate is in charge from now on, and goes on with what is remembered of pages.
    fn change(&mut self, to: usize) {
        if let Some(marks) = self.candidates[self.contest.leader].marks() {
            core::mem::swap(marks, &mut self.marks);
        }
        self.contest.leader = to;
        if let Some(marks) = self.candidates[to].marks() {
            core::mem::swap(marks, &mut self.marks);
        }
    }

    fn leader(&mut self) -> &mut dyn Reclaim {
        &mut *self.candidates[self.contest.leader]
    }

    /// Whether the page is in the sample and would be in memory under the one in charge.
    fn stays(&self, id: PageId) -> bool {
        let shadow = &self.shadows[self.contest.leader];
        sampled(id).is_some_and(|sampled| shadow.has(PageNo::from_raw(sampled as u64)))
    }

    fn park(&self, pages: &mut Pages, id: PageId, queue: Queue) {
        let stays = self.stays(id);
        pages.push(if stays { Queue::Watched } else { queue }, id);
    }

    /// What is remembered of a page that was mapped, while the one in charge remembers nothing.
    fn remember(&mut self, pages: &Pages, id: PageId, how: Mapped) {
        match how {
            Mapped::Fresh => self.marks.forget(id),
            Mapped::PagedIn => {
                let again = self.marks.recall(id, pages.framed());
                self.marks.set_proved(id, again);
            }
            Mapped::Rescued => self.marks.set_proved(id, true),
            Mapped::Along | Mapped::Needed | Mapped::Refused => {}
        }
    }
}

impl Reclaim for Auto {
    fn reserve(&mut self, ids: usize) {
        let sampled = sampled_of(ids);
        for shadow in &mut self.shadows {
            shadow.reserve(sampled);
        }
        self.watch.reserve(sampled);
        match self.candidates[self.contest.leader].marks() {
            Some(marks) => marks.reserve(ids),
            None => self.marks.reserve(ids),
        }
    }

    fn heap_bytes(&self) -> usize {
        let shadows: usize = self.shadows.iter().map(Shadow::heap_bytes).sum();
        let candidates: usize = self.candidates.iter().map(|one| one.heap_bytes()).sum();
        shadows + candidates + self.marks.heap_bytes() + self.watch.heap_bytes()
    }

    fn mapped(&mut self, pages: &mut Pages, id: PageId, how: Mapped) {
        self.leader().mapped(pages, id, how);
        if self.leader().marks().is_none() {
            self.remember(pages, id, how);
        }
        if let Some(sampled) = sampled(id) {
            self.watch.push(sampled, id);
            if how != Mapped::Refused {
                self.tell(pages, sampled, how);
            }
        }
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        self.victims += 1;
        if self.victims > (WATCH - 1) * GROUP as u32 {
            if self.victims >= WATCH * GROUP as u32 {
                self.victims = 0;
            }
            if let Some(id) = self.watch.pop(pages) {
                return Some(id);
            }
        }
        self.second = !self.second;
        let left_over = self.second && !self.leader().has_second();
        let first = left_over.then(|| pages.pop(Queue::Second)).flatten();
        first
            .or_else(|| self.leader().victim(pages))
            .or_else(|| pages.pop(Queue::Second))
    }

    fn detached(&mut self, pages: &mut Pages, id: PageId) {
        self.park(pages, id, Queue::Inactive);
    }

    fn read_ahead(&mut self, pages: &mut Pages, id: PageId) {
        let watched = sampled(id).is_some();
        pages.push(
            if watched {
                Queue::Watched
            } else {
                Queue::Inactive
            },
            id,
        );
    }

    fn cleaned(&mut self, pages: &mut Pages, id: PageId) {
        self.park(pages, id, Queue::Cache);
    }

    fn launder(&mut self, pages: &mut Pages) -> Option<PageId> {
        if let Some(id) = pages.pop(Queue::Watched) {
            if !self.stays(id) {
                return Some(id);
            }
            pages.push(Queue::Watched, id);
        }
        pages.pop(Queue::Inactive)
    }

    fn release(&mut self, pages: &mut Pages) -> Option<PageId> {
        pages.pop(Queue::Cache).or_else(|| {
            let clean = |&queue: &Queue| {
                let head = pages.head(queue);
                head.is_some_and(|head| !pages.has(head, DIRTY))
            };
            let queue = [Queue::Inactive, Queue::Watched].into_iter().find(clean)?;
            pages.pop(queue)
        })
    }

    fn left(&mut self, pages: &Pages, id: PageId) {
        self.leader().left(pages, id);
        if self.leader().marks().is_none() {
            let from = if self.marks.is_proved(id) {
                Left::Second
            } else {
                Left::First
            };
            self.marks.leaves_from(id, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Periods of 16 touches: in each, `missed` of them by each candidate.
    fn leaders(periods: &[[u32; KINDS]]) -> alloc::vec::Vec<usize> {
        let mut contest = Contest::new();
        let mut leaders = alloc::vec::Vec::new();
        for &missed in periods {
            contest.missed = missed;
            for _ in 1..16 {
                assert_eq!(contest.touched(1), None);
            }
            if let Some(best) = contest.touched(1) {
                contest.leader = best;
            }
            leaders.push(contest.leader);
        }
        leaders
    }

    #[test]
    fn who_misses_least_takes_over_and_chance_changes_nothing() {
        let few = [1600, 1440, 1600, 1600, 1600, 1600];
        assert_eq!(leaders(&[few]), [1]);
        // Within a twenty-fifth and four.
        let close = [1600, 1488, 1600, 1600, 1600, 1600];
        assert_eq!(leaders(&[close]), [0]);
        assert_eq!(
            leaders(&[few, [1440, 1504, 1440, 1440, 1440, 1440]]),
            [1, 1]
        );
    }

    #[test]
    fn what_was_missed_long_ago_counts_for_nothing() {
        let first = [800, 16_000, 16_000, 16_000, 16_000, 16_000];
        let then = [3200, 1600, 3200, 3200, 3200, 3200];
        assert_eq!(leaders(&[first, then, then, then]), [0, 0, 1, 1]);
    }

    #[test]
    fn periods_become_longer() {
        let mut contest = Contest::new();
        let mut lengths = alloc::vec::Vec::new();
        let mut touches = 0;
        while lengths.len() < 9 {
            touches += 1;
            // Never by more than chance.
            let period = contest.touches;
            assert_eq!(contest.touched(1600), None);
            if contest.touches < period {
                lengths.push(core::mem::take(&mut touches));
            }
        }
        assert_eq!(lengths, [100, 200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
    }
}
