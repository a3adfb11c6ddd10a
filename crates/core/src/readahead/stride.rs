//! Walks by address: faults at one distance, as down the columns of a matrix, several walks in turn.
//!
//! What is next is known, so that it is read by itself: the pages passed over are not. The distance need not be
//! whole: rows of 24,000 bytes are 5.86 pages apart.

use super::{RUNS_MAX, SlotView};
use crate::units::{ObjectId, PageNo, SlotNo};

/// Walks told apart: more arrays than a loop usually walks at once.
const WALKS: usize = 8;

/// Touches among which walks begin: four steps of three walks in turn.
const RECENT: usize = 12;

/// The longest step, in pages: rows of 4 MiB. Of random touches few come that close to each other.
const STEP_MAX: u64 = 1024;

/// Steps read ahead at most: as many reads as disks have in flight before they stop gaining from more.
pub(super) const DEPTH_MAX: u32 = 16;

const _: () = assert!(DEPTH_MAX as usize <= RUNS_MAX);

/// The shortest: less is a stream, whatever it skips.
const STEP_MIN: i64 = 3 * PAGE / 2;

/// How far back, at most, a page is looked for that was passed over.
const BACK_MAX: i64 = 8;

/// Steps over which a walk goes on when those between were in memory.
const PASSED_MAX: i64 = 2 * DEPTH_MAX as i64;

/// Of how far a walk is off, one part in so many is taken for the step's: with 2 steps of 5.86 pages swing, with 8 those of
/// 24,000 and of 33,333 bytes take a third longer to settle.
const CORRECTION: i64 = 4;

/// Steps behind which several pages were touched in a row before a walk is taken for rows that are read whole. A choice: one may be
/// chance, and each more has single pages of [`DEPTH_MAX`] rows read first. Plausible are 1 to 4.
const ROWS_SURE: u8 = 2;

/// A page, in 65536ths.
const PAGE: i64 = 1 << 16;

#[derive(Clone, Copy)]
struct Walk {
    object: ObjectId,
    first: i64,
    last: i64,
    /// Steps from the first page to the last.
    steps: i64,
    /// Where in the last page the walk is, as far as the pages so far tell, in 65536ths.
    within: i64,
    /// One step, likewise.
    step: i64,
    /// How many steps are read ahead.
    depth: u32,
    /// How far behind the last page the touch was that began with the page next to it and went on from there; 0 for none.
    run: i64,
    /// Steps behind which there was one, as far as [`ROWS_SURE`].
    rows: u8,
    /// The time of the last use, on a clock that counts touches.
    used: u64,
}

/// The walks that are followed.
pub(super) struct Strides {
    walks: [Option<Walk>; WALKS],
    /// The last touches that continued none, a ring.
    recent: [Option<PageNo>; RECENT],
    next: usize,
    clock: u64,
}

/// Where a walk goes on.
#[derive(Clone, Copy)]
pub(super) struct Going {
    walk: Walk,
}

impl Strides {
    /// None known.
    pub(super) const fn new() -> Self {
        Self {
            walks: [None; WALKS],
            recent: [None; RECENT],
            next: 0,
            clock: 0,
        }
    }

    /// A fault on `page`: the walk that it continues. Takes time in the square of [`RECENT`].
    pub(super) fn fault(&mut self, page: PageNo) -> Option<Going> {
        self.clock += 1;
        if self.in_row(page) {
            return None;
        }
        if let Some(walk) = self.go_on(page) {
            return walk.going();
        }
        self.begin(page);
        self.recent[self.next] = Some(page);
        self.next = (self.next + 1) % RECENT;
        None
    }

    /// A page that was read ahead is touched: the walk that it continues.
    pub(super) fn hit(&mut self, page: PageNo) -> Option<Going> {
        self.clock += 1;
        if self.in_row(page) {
            return None;
        }
        self.go_on(page)?.going()
    }

    /// Whether `page` is of a row that is read whole, from the page on where a walk is.
    fn in_row(&mut self, page: PageNo) -> bool {
        let mut found = false;
        for walk in self.walks.iter_mut().flatten() {
            found |= walk.runs_to(page);
        }
        found
    }

    fn go_on(&mut self, page: PageNo) -> Option<Walk> {
        let clock = self.clock;
        let steps = |walk: &Option<Walk>| walk.as_ref().and_then(|walk| walk.steps_to(page));
        let found = self.walks.iter().enumerate();
        let found = found.filter_map(|(i, walk)| Some((steps(walk)?, i)));
        let (steps, i) = found.min()?;
        let walk = self.walks[i].as_mut()?;
        walk.advance(page, steps);
        walk.depth = (walk.depth * 2).min(DEPTH_MAX);
        walk.used = clock;
        Some(*walk)
    }

    /// Whether three earlier touches and this one are at one distance: then a walk has begun.
    fn begin(&mut self, page: PageNo) {
        let object = page.object();
        let same = |at: &&PageNo| at.object() == object;
        let recent = || {
            self.recent
                .iter()
                .flatten()
                .filter(same)
                .map(|at| index(*at))
        };
        let near = |to: i64| recent().find(|at| at.abs_diff(to) <= 1);
        let last = index(page);
        let found = recent().find_map(|before| {
            let step = last - before;
            // A stream touches those between too.
            let stream = recent().any(|at| at == last - step.signum());
            if stream || !(2..=STEP_MAX).contains(&step.unsigned_abs()) {
                return None;
            }
            near(near(before - step)? - step)
        });
        let Some(first) = found else {
            return;
        };
        let walk = Walk {
            object,
            first,
            last,
            steps: 3,
            within: PAGE / 2,
            step: (last - first) * PAGE / 3,
            depth: 1,
            run: 0,
            rows: 0,
            used: self.clock,
        };
        let places = self.walks.iter_mut();
        if let Some(place) = places.min_by_key(|walk| walk.map(|walk| walk.used)) {
            *place = Some(walk);
        }
    }
}

/// Fits: the index of a page has 36 bits.
const fn index(page: PageNo) -> i64 {
    page.index() as i64
}

impl Walk {
    /// How many steps it is to `page`, if it lies where the walk goes on.
    fn steps_to(&self, page: PageNo) -> Option<i64> {
        let (distance, step) = (index(page) - self.last, self.step);
        let near = distance.unsigned_abs() <= STEP_MAX * PASSED_MAX as u64;
        if self.object != page.object() || !near || step.abs() < STEP_MIN {
            return None;
        }
        let steps = (distance * PAGE + step / 2) / step;
        let off = (self.within + steps * step).div_euclid(PAGE) - distance;
        ((1..=PASSED_MAX).contains(&steps) && off.abs() <= 1).then_some(steps)
    }

    /// Goes so many steps, to `page`. Where that is not where the walk was thought to be, the step is a little off: as
    /// far as the first and the last page leave room.
    fn advance(&mut self, page: PageNo, steps: i64) {
        let distance = index(page) - self.last;
        let at = self.within + steps * self.step - distance * PAGE;
        self.within = at.clamp(0, PAGE - 1);
        self.last += distance;
        self.run = 0;
        self.steps += steps;
        let step = self.step - (at - self.within) / CORRECTION;
        let (mean, room) = (
            (self.last - self.first) * PAGE / self.steps,
            PAGE / self.steps,
        );
        self.step = step.clamp(mean - room, mean + room);
    }

    /// What is read ahead of it, unless the walk only goes from row to row, each of which is read whole: that is for streams.
    fn going(self) -> Option<Going> {
        (self.rows < ROWS_SURE).then_some(Going { walk: self })
    }

    /// A touch of `page`. Whether it is of a row that is read whole: behind the walk's last page, in either direction, and not where the walk goes
    /// on. A column of two pages is no row, so the page next to the last one does not suffice.
    fn runs_to(&mut self, page: PageNo) -> bool {
        let distance = index(page) - self.last;
        let within = (1..self.step.abs() / PAGE - 1).contains(&distance.abs());
        if self.object != page.object() || !within {
            return false;
        }
        let begins = self.run == 0 && distance.abs() == 1;
        let farther = self.run != 0
            && distance.signum() == self.run.signum()
            && distance.abs() > self.run.abs();
        // Once for each step: where the run goes on it has counted.
        if farther && self.run.abs() == 1 {
            self.rows = (self.rows + 1).min(ROWS_SURE);
        }
        if begins || farther {
            self.run = distance;
        }
        self.rows == ROWS_SURE
    }

    /// The page `n` pages on from the last one.
    fn page(&self, n: i64) -> Option<PageNo> {
        let index = u64::try_from(self.last + n).ok()?;
        PageNo::new(self.object, 0).checked_add(index)
    }
}

impl Going {
    /// Whether the pages passed over on the way were not brought along: the one half a step back is paged out.
    pub(super) fn passes_over(&self, view: &dyn SlotView) -> bool {
        let half = self.walk.step / PAGE / 2;
        let between = self.walk.page(-half.clamp(-BACK_MAX, BACK_MAX));
        between.is_some_and(|page| view.slot_of(page).is_some())
    }

    /// The slots of the next pages that are paged out, in the order in which the walk gets there.
    pub(super) fn next<'a>(&self, view: &'a dyn SlotView) -> impl Iterator<Item = SlotNo> + 'a {
        let walk = self.walk;
        let pages = (1..=i64::from(walk.depth)).map(move |n| {
            let distance = (walk.within + n * walk.step).div_euclid(PAGE);
            walk.page(distance)
        });
        pages.flatten().filter_map(|page| view.slot_of(page))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Every page is paged out, in the slot of its number.
    struct Out;

    impl SlotView for Out {
        fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
            Some(PageNo::new(ObjectId(1), slot.0.into()))
        }

        fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
            Some(SlotNo(page.index() as u32))
        }
    }

    fn page(index: u64) -> PageNo {
        PageNo::new(ObjectId(1), index)
    }

    /// Row `n` of a walk over rows of so many bytes, from byte `start` on.
    fn row(start: u64, bytes: u64, n: u64) -> u64 {
        (start + n * bytes) / 4096
    }

    /// How many of what is named is touched in the next rows, and how much is named, in `rows` rows of walks
    /// that take turns.
    fn named(walks: &[(u64, u64)], rows: u64) -> (usize, usize) {
        let mut strides = Strides::new();
        let (mut right, mut all) = (0, 0);
        for n in 0..rows {
            for &(start, bytes) in walks {
                let Some(going) = strides.fault(page(row(start, bytes, n))) else {
                    continue;
                };
                let next: Vec<u64> = (1..=u64::from(DEPTH_MAX))
                    .map(|m| row(start, bytes, n + m))
                    .collect();
                let slots: Vec<SlotNo> = going.next(&Out).collect();
                all += slots.len();
                right += slots
                    .iter()
                    .filter(|slot| next.contains(&slot.0.into()))
                    .count();
            }
        }
        (right, all)
    }

    #[test]
    fn rows_of_any_length_are_found_alone_and_in_turn() {
        for bytes in [8192, 9104, 24_000, 65_536, 200_000, 1 << 20] {
            let alone = named(&[(0, bytes)], 200);
            assert!(alone.1 > 180 * DEPTH_MAX as usize, "{bytes}: {alone:?}");
            assert!(alone.0 * 4 >= alone.1 * 3, "{bytes}: {alone:?}");
            let two = named(&[(0, bytes), (1 << 30, 24_000)], 200);
            assert!(two.1 > 2 * 150 * DEPTH_MAX as usize, "{bytes}: {two:?}");
            assert!(two.0 * 4 >= two.1 * 3, "{bytes}: {two:?}");
        }
    }

    #[test]
    fn touches_in_order_and_at_random_are_no_walks() {
        assert_eq!(named(&[(0, 4096)], 1000), (0, 0));
        let (mut strides, mut random, mut found) = (Strides::new(), 1_u64, 0);
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            found += u32::from(strides.fault(page((random >> 33) % 16_384)).is_some());
        }
        assert!(found < 300, "{found}");
    }

    #[test]
    fn a_walk_goes_on_over_rows_in_memory_and_downward() {
        let mut strides = Strides::new();
        let down = |n: u64| page(100_000 - 6 * n);
        (0..50).for_each(|n| {
            strides.fault(down(n));
        });
        let going = strides.hit(down(60)).expect("the same walk");
        let next: Vec<SlotNo> = going.next(&Out).collect();
        let expected: Vec<SlotNo> = (61..61 + u64::from(DEPTH_MAX))
            .map(|n| SlotNo(down(n).index() as u32))
            .collect();
        assert_eq!(next, expected);
        assert!(strides.hit(page(5000)).is_none());
    }

    /// The pages that are in memory, by number.
    struct There(Vec<bool>);

    impl SlotView for There {
        fn paged_out(&self, slot: SlotNo) -> Option<PageNo> {
            (!self.0[slot.0 as usize]).then(|| page(slot.0.into()))
        }

        fn slot_of(&self, page: PageNo) -> Option<SlotNo> {
            let there = self.0.get(page.index() as usize)?;
            (!there).then_some(SlotNo(page.index() as u32))
        }
    }

    /// How many pages are named in `rows` rows, each below the one before, of which the first `wide` of `pages` pages are touched upward. At a
    /// fault where nothing is named `window` pages are mapped, whose touches are not seen.
    fn named_in_rows(pages: u64, wide: u64, window: u64, rows: u64) -> usize {
        let (mut strides, mut named) = (Strides::new(), 0);
        let all = (rows * pages) as usize;
        let mut out = There(alloc::vec![false; all]);
        let mut staged = alloc::vec![false; all];
        for n in 1..=rows {
            let start = (rows - n) * pages;
            for at in start..start + wide {
                let index = at as usize;
                let going = match (out.0[index], staged[index]) {
                    (true, false) => continue,
                    (true, true) => strides.hit(page(at)),
                    (false, _) => strides.fault(page(at)),
                };
                let fault = !core::mem::replace(&mut out.0[index], true);
                if let Some(going) = going.filter(|going| going.passes_over(&out)) {
                    let next: Vec<SlotNo> = going.next(&out).collect();
                    named += next.len();
                    for slot in next {
                        (out.0[slot.0 as usize], staged[slot.0 as usize]) = (true, true);
                    }
                } else if fault {
                    let end = all.min(index + window as usize);
                    out.0[index..end].fill(true);
                }
            }
        }
        named
    }

    #[test]
    fn rows_that_are_read_whole_are_left_to_streams_however_they_lie() {
        for (pages, wide) in [(45, 45), (45, 44), (100, 45), (250, 250)] {
            for window in [1, 2, 8, 16, 32] {
                let named = named_in_rows(pages, wide, window, 1000);
                // What a walk names before it is found out.
                let most = 2 * DEPTH_MAX as usize;
                assert!(named <= most, "{pages} {wide} {window}: {named}");
            }
        }
        for wide in [1, 2] {
            let named = named_in_rows(45, wide, 1, 1000);
            assert!(named > 900 * wide as usize, "{wide} wide: {named}");
        }
    }
}
