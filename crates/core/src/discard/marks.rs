//! Which pages are discardable, and which were dropped while they were: bits by page, 64 pages a leaf.
//!
//! There are leaves for pages that have a state, or had one when they were marked, and none where nothing was marked.

use alloc::vec::Vec;

use crate::page::directory::{Directory, VACANT};
use crate::units::{PageNo, PageRange};

/// No leaf.
const NONE: u32 = u32::MAX;
/// Pages of a leaf, as a shift.
const SHIFT: u32 = 6;

/// Of 64 neighbouring pages.
#[derive(Clone, Copy, Default)]
struct Leaf {
    /// Page number of the first, by 64.
    base: u64,
    /// Discardable.
    marked: u64,
    /// Of those, the ones that could be dropped now, as far as is known.
    ready: u64,
    /// Of those marked, the ones that are so until the program writes to them.
    freed: u64,
    /// Dropped since they were marked, which nobody was told yet.
    lost: u64,
    /// Dropped, and not touched since.
    gone: u64,
    /// In the order in which pages were freed, the leaf before and the one after, if `queued`.
    older: u32,
    newer: u32,
    queued: bool,
}

impl Leaf {
    const fn is_empty(&self) -> bool {
        self.marked | self.lost | self.gone == 0
    }
}

/// The bits of all pages. Complexity: one look-up a page; ranges cost the smaller of their leaves and all leaves.
pub struct Marks {
    directory: Directory,
    leaves: Vec<Leaf>,
    free: Vec<u32>,
    marked: usize,
    ready: usize,
    /// The leaf in which the next page to drop is looked for, of those that were not freed.
    at: usize,
    /// Ends of the list of leaves in which pages were freed.
    oldest: u32,
    newest: u32,
}

impl Default for Marks {
    fn default() -> Self {
        Self::new()
    }
}

impl Marks {
    /// No page is marked.
    #[must_use]
    pub fn new() -> Self {
        Self {
            directory: Directory::new(),
            leaves: Vec::new(),
            free: Vec::new(),
            marked: 0,
            ready: 0,
            at: 0,
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Pages that are discardable.
    #[must_use]
    pub const fn marked(&self) -> usize {
        self.marked
    }

    /// Of those, the ones that could be dropped now, as far as is known.
    #[must_use]
    pub const fn ready(&self) -> usize {
        self.ready
    }

    fn leaf(&self, page: PageNo) -> Option<u32> {
        if self.leaves.len() == self.free.len() {
            return None;
        }
        self.directory.get(page.raw() >> SHIFT)
    }

    fn bits(&self, page: PageNo, of: fn(&Leaf) -> u64) -> bool {
        let leaf = self.leaf(page).map(|at| &self.leaves[at as usize]);
        leaf.is_some_and(|leaf| of(leaf) & bit(page) != 0)
    }

    /// Whether the page is discardable.
    #[must_use]
    pub fn is_marked(&self, page: PageNo) -> bool {
        self.marked > 0 && self.bits(page, |leaf| leaf.marked)
    }

    /// Whether the page was dropped and not touched since.
    #[must_use]
    pub fn is_gone(&self, page: PageNo) -> bool {
        self.bits(page, |leaf| leaf.gone)
    }

    /// Changes the bits of one page, making room for them.
    fn change(&mut self, page: PageNo, change: impl FnOnce(&mut Leaf, u64)) {
        let base = page.raw() >> SHIFT;
        let at = self.leaf(page).unwrap_or_else(|| self.add(base));
        let leaf = &mut self.leaves[at as usize];
        let before = (leaf.marked.count_ones(), leaf.ready.count_ones());
        change(leaf, bit(page));
        let after = *leaf;
        self.marked = self.marked + after.marked.count_ones() as usize - before.0 as usize;
        self.ready = self.ready + after.ready.count_ones() as usize - before.1 as usize;
        if after.is_empty() {
            self.remove(at);
        }
    }

    fn add(&mut self, base: u64) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::default());
            self.leaves.len() as u32 - 1
        });
        self.leaves[at as usize] = Leaf {
            base,
            ..Leaf::default()
        };
        self.directory.insert(base, at);
        at
    }

    fn remove(&mut self, at: u32) {
        self.unlink(at);
        let leaf = &mut self.leaves[at as usize];
        let base = core::mem::replace(&mut leaf.base, VACANT);
        self.directory.remove(base);
        self.free.push(at);
    }

    /// The page is discardable from now on.
    pub fn mark(&mut self, page: PageNo) {
        self.change(page, |leaf, bit| {
            leaf.marked |= bit;
            leaf.freed &= !bit;
        });
    }

    /// The page is discardable until the program writes to it, and could be dropped.
    pub fn free(&mut self, page: PageNo) {
        self.change(page, |leaf, bit| {
            leaf.marked |= bit;
            leaf.ready |= bit;
            leaf.freed |= bit;
        });
        let at = self.leaf(page).expect("marked just now");
        if self.newest != at {
            self.unlink(at);
            self.link_newest(at);
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = core::mem::replace(&mut self.newest, at);
        match self.leaves.get_mut(before as usize) {
            Some(leaf) => leaf.newer = at,
            None => self.oldest = at,
        }
        let leaf = &mut self.leaves[at as usize];
        (leaf.older, leaf.newer, leaf.queued) = (before, NONE, true);
    }

    fn unlink(&mut self, at: u32) {
        let leaf = &mut self.leaves[at as usize];
        if !core::mem::take(&mut leaf.queued) {
            return;
        }
        let (older, newer) = (leaf.older, leaf.newer);
        match self.leaves.get_mut(older as usize) {
            Some(leaf) => leaf.newer = newer,
            None => self.oldest = newer,
        }
        match self.leaves.get_mut(newer as usize) {
            Some(leaf) => leaf.older = older,
            None => self.newest = older,
        }
    }

    /// The next page that was freed and could be dropped, of the leaf in which none was freed for longest.
    fn next_freed(&mut self) -> Option<PageNo> {
        loop {
            let at = self.oldest;
            let leaf = self.leaves.get_mut(at as usize)?;
            let freed = leaf.ready & leaf.freed;
            if freed != 0 {
                leaf.ready &= !(freed & freed.wrapping_neg());
                self.ready -= 1;
                let offset = u64::from(freed.trailing_zeros());
                return Some(PageNo::from_raw(leaf.base << SHIFT | offset));
            }
            self.unlink(at);
        }
    }

    /// Whether the page is discardable until the program writes to it, or was: that is not known here.
    #[must_use]
    pub fn is_freed(&self, page: PageNo) -> bool {
        self.marked > 0 && self.bits(page, |leaf| leaf.freed)
    }

    /// If the page is discardable, it could be dropped from now on.
    pub fn settled(&mut self, page: PageNo) {
        if self.is_marked(page) {
            self.change(page, |leaf, bit| leaf.ready |= bit);
        }
    }

    /// The page is no more what was marked.
    pub fn forget(&mut self, page: PageNo) {
        if self.is_marked(page) {
            self.change(page, |leaf, bit| {
                leaf.marked &= !bit;
                leaf.ready &= !bit;
                leaf.freed &= !bit;
            });
        }
    }

    /// The page, which was discardable, was dropped.
    pub fn lose(&mut self, page: PageNo) {
        self.change(page, |leaf, bit| {
            leaf.lost |= bit;
            leaf.gone |= bit;
        });
    }

    /// The page gets zeroes. Whether it was dropped before.
    pub fn filled(&mut self, page: PageNo) -> bool {
        let gone = self.is_gone(page);
        if gone {
            self.change(page, |leaf, bit| leaf.gone &= !bit);
        }
        gone
    }

    /// The next page that could be dropped; it is not named again before it is marked or settles again. Of those that were freed, what was freed last comes
    /// last: programs take it again first. The others come after them, round all.
    pub fn next_ready(&mut self) -> Option<PageNo> {
        if self.ready == 0 {
            return None;
        }
        if let Some(page) = self.next_freed() {
            return Some(page);
        }
        loop {
            let at = self.at % self.leaves.len();
            let leaf = &mut self.leaves[at];
            if leaf.ready != 0 {
                let offset = leaf.ready.trailing_zeros();
                leaf.ready &= leaf.ready - 1;
                self.ready -= 1;
                return Some(PageNo::from_raw(leaf.base << SHIFT | u64::from(offset)));
            }
            self.at = at + 1;
        }
    }

    /// The pages of `range` are not discardable any more: calls `visit` with each that was, or was dropped, and whether it was dropped; in no order.
    pub fn take_back(&mut self, range: PageRange, visit: &mut dyn FnMut(PageNo, bool)) {
        self.clear(
            range,
            |leaf, mask| {
                let (marked, lost) = (leaf.marked & mask, leaf.lost & mask);
                leaf.lost &= !mask;
                (marked, lost)
            },
            visit,
        );
    }

    /// What the pages of `range` held is not wanted any more, nor what became of it.
    pub fn drop_range(&mut self, range: PageRange) {
        self.clear(
            range,
            |leaf, mask| {
                leaf.lost &= !mask;
                leaf.gone &= !mask;
                (0, 0)
            },
            &mut |_, _| {},
        );
    }

    fn clear(
        &mut self,
        range: PageRange,
        mut take: impl FnMut(&mut Leaf, u64) -> (u64, u64),
        visit: &mut dyn FnMut(PageNo, bool),
    ) {
        if self.leaves.len() == self.free.len() || range.pages == 0 {
            return;
        }
        let first = range.start.raw() >> SHIFT;
        let last = (range.start.raw() + range.pages - 1) >> SHIFT;
        let few = last - first < self.leaves.len() as u64;
        let looks = if few {
            last - first + 1
        } else {
            self.leaves.len() as u64
        };
        for look in 0..looks {
            let at = if few {
                self.directory.get(first + look)
            } else {
                let base = self.leaves[look as usize].base;
                (first..=last).contains(&base).then_some(look as u32)
            };
            let Some(at) = at else { continue };
            let leaf = &mut self.leaves[at as usize];
            let mask = mask(leaf.base, range);
            self.marked -= (leaf.marked & mask).count_ones() as usize;
            self.ready -= (leaf.ready & mask).count_ones() as usize;
            let (kept, lost) = take(leaf, mask);
            leaf.marked &= !mask;
            leaf.ready &= !mask;
            leaf.freed &= !mask;
            let base = leaf.base;
            if leaf.is_empty() {
                self.remove(at);
            }
            let mut left = kept | lost;
            while left != 0 {
                let offset = left.trailing_zeros();
                left &= left - 1;
                let page = PageNo::from_raw(base << SHIFT | u64::from(offset));
                visit(page, lost >> offset & 1 == 1);
            }
        }
    }

    /// Bytes of heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>()
            + self.free.capacity() * 4
            + self.directory.cells.len() * size_of::<(u64, u32)>()
    }
}

const fn bit(page: PageNo) -> u64 {
    1 << (page.raw() & ((1 << SHIFT) - 1))
}

/// The pages of `range` in the leaf of that base, one bit each.
fn mask(base: u64, range: PageRange) -> u64 {
    let start = base << SHIFT;
    let end = start.saturating_add(64);
    let from = range.start.raw().max(start) - start;
    let to = (range.start.raw() + range.pages).min(end).max(start) - start;
    let below = |pages: u64| {
        if pages >= 64 {
            u64::MAX
        } else {
            (1 << pages) - 1
        }
    };
    below(to) & !below(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    fn page(index: u64) -> PageNo {
        PageNo::from_raw(index)
    }

    /// What the bits are to say of a page.
    #[derive(Clone, Copy, Default, PartialEq, Debug)]
    struct Known {
        marked: bool,
        freed: bool,
        lost: bool,
        gone: bool,
    }

    /// A repeatable walk over all operations, beside a map of the same.
    #[test]
    fn bits_say_what_a_map_says() {
        let (mut marks, mut map) = (Marks::new(), BTreeMap::<u64, Known>::new());
        let mut seed = 7u64;
        let mut random = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % end
        };
        for _ in 0..20_000 {
            let (at, pages) = (random(700), 1 + random(200));
            let known = map.entry(at).or_default();
            match random(7) {
                0 | 1 => {
                    marks.mark(page(at));
                    (known.marked, known.freed) = (true, false);
                }
                6 => {
                    marks.free(page(at));
                    (known.marked, known.freed) = (true, true);
                }
                2 => {
                    marks.forget(page(at));
                    marks.lose(page(at));
                    *known = Known {
                        marked: false,
                        freed: false,
                        lost: true,
                        gone: true,
                    };
                }
                3 => {
                    assert_eq!(marks.filled(page(at)), known.gone);
                    known.gone = false;
                }
                4 => {
                    let mut found = alloc::vec::Vec::new();
                    let range = PageRange::new(page(at), pages);
                    marks.take_back(range, &mut |page, lost| found.push((page.raw(), lost)));
                    found.sort_unstable();
                    let mut expected = alloc::vec::Vec::new();
                    for (&at, known) in map.range_mut(at..at + pages) {
                        if known.marked || known.lost {
                            expected.push((at, known.lost));
                        }
                        (known.marked, known.freed, known.lost) = (false, false, false);
                    }
                    assert_eq!(found, expected);
                }
                _ => {
                    marks.drop_range(PageRange::new(page(at), pages));
                    map.range_mut(at..at + pages)
                        .for_each(|(_, known)| *known = Known::default());
                }
            }
            assert_eq!(
                marks.marked(),
                map.values().filter(|known| known.marked).count()
            );
        }
        for (&at, known) in &map {
            assert_eq!(marks.is_marked(page(at)), known.marked);
            assert_eq!(marks.is_freed(page(at)), known.freed);
            assert_eq!(marks.is_gone(page(at)), known.gone);
        }
        marks.drop_range(PageRange::new(page(0), 1000));
        assert_eq!(
            marks.leaves.len(),
            marks.free.len(),
            "no leaf is left behind"
        );
    }

    #[test]
    fn each_page_is_named_once_until_it_settles_again() {
        let mut marks = Marks::new();
        for at in [3, 64, 65, 1000] {
            marks.mark(page(at));
            marks.settled(page(at));
        }
        marks.settled(page(5));
        let all = |marks: &mut Marks| {
            let named = core::iter::from_fn(|| marks.next_ready());
            named.map(PageNo::raw).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(all(&mut marks), [3, 64, 65, 1000]);
        assert_eq!(all(&mut marks), []);
        marks.settled(page(65));
        marks.settled(page(3));
        marks.forget(page(3));
        assert_eq!((all(&mut marks), marks.ready()), (alloc::vec![65], 0));
    }

    #[test]
    fn what_was_freed_last_is_named_last() {
        let mut marks = Marks::new();
        for at in [640, 7, 128, 64, 641] {
            marks.free(page(at));
        }
        marks.mark(page(0));
        marks.settled(page(0));
        marks.drop_range(PageRange::new(page(128), 64));
        let named = core::iter::from_fn(|| marks.next_ready());
        let named: alloc::vec::Vec<_> = named.map(PageNo::raw).collect();
        assert_eq!(named, [7, 64, 640, 641, 0]);
        assert_eq!((marks.oldest, marks.newest), (NONE, NONE));
        marks.free(page(7));
        assert_eq!(marks.next_ready(), Some(page(7)), "freed anew");
    }
}
