//! A heap with a copying generational collector after Appel (1989), over words that are there: what it touches is recorded.
//!
//! `[old | reserved | new]`: allocation goes upward through the new region. A minor collection copies what lives in it behind the old one; a
//! major one, when that has reached its limit, copies all that lives to the far end of the heap, from where it grows the other way. Pages that
//! a collection leaves empty are marked discardable, and taken back some at a time when something is put there.

use std::collections::VecDeque;

use outpage_core::contract::Access;
use outpage_core::units::PageRange;

use super::super::{Step, run};

/// Words of 32 bits of a page: those of a MIPS R3000.
pub(super) const PAGE_WORDS: usize = 1024;
/// Pages that were touched last, of which a touch is no news.
const RECENT: usize = 8;

/// A value: an integer if odd, else an object's place in words, twice.
pub(super) type Value = u32;

/// No object.
pub(super) const NIL: Value = 1;

/// An integer as a value.
pub(super) const fn int(number: u32) -> Value {
    number << 1 | 1
}

/// The integer that a value is.
pub(super) const fn number(value: Value) -> u32 {
    value >> 1
}

const fn is_object(value: Value) -> bool {
    value & 1 == 0
}

/// A value that is kept alive, and moves with its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Root(usize);

/// The sizes that the collector is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Pages of the heap.
    pub pages: usize,
    /// Pages of the old region from which on it is collected, at most half of the heap.
    pub old_limit: usize,
    /// Pages that are taken back at a time.
    pub take_back: usize,
}

/// What was done, in words.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Work {
    /// Allocated by the program.
    pub allocated: u64,
    /// Copied by the collector.
    pub copied: u64,
    /// Read by the program.
    pub read: u64,
    /// Collections of the new region, and of all.
    pub collections: (u64, u64),
}

/// What a heap's touches come to, as steps.
struct Recorder {
    object: u32,
    steps: VecDeque<Step>,
    recent: [u64; RECENT],
    at: usize,
    /// Words allocated since the last step.
    words: u64,
    /// CPU time of each, in 2^-16 nanoseconds.
    word_ns: u64,
}

impl Recorder {
    fn touch(&mut self, page: u64, access: Access) {
        let last = page << 1 | u64::from(access == Access::Write);
        if self.recent[(self.at + RECENT - 1) % RECENT] == last {
            return;
        }
        // A read after a write tells nothing new; a write after a read does.
        let seen = |&one: &u64| one == page << 1 | 1 || one == page << 1 && access == Access::Read;
        if self.recent.iter().any(seen) {
            return;
        }
        self.recent[self.at] = last;
        self.at = (self.at + 1) % RECENT;
        let ns = (std::mem::take(&mut self.words) * self.word_ns) >> 16;
        self.steps.push_back(Step::Touch {
            run: run(self.object, page, 1),
            access,
            page_ns: ns.min(u64::from(u32::MAX)) as u32,
        });
    }
}

/// The heap.
pub(super) struct Heap {
    sizes: Sizes,
    /// The words, once for each direction of growth: only one is in use but in a major collection.
    arenas: [Vec<u32>; 2],
    /// Which direction: 1 counts pages from the far end.
    arena: usize,
    /// Ends of the old region and of the new one's used part, its beginning and end; in words.
    old: usize,
    at: usize,
    new: usize,
    end: usize,
    roots: Vec<Value>,
    free_roots: Vec<usize>,
    /// Fields of old objects that were assigned, in words.
    assigned: Vec<usize>,
    marked: Vec<bool>,
    /// The page that is allocated or copied to, so that its being taken back is asked for once.
    recorder: Recorder,
    pub work: Work,
}

impl Heap {
    /// An empty heap in memory object `object`; a word that is allocated stands for `word_ns` / 2^16
    /// nanoseconds of CPU time, all else that is done with it included.
    pub fn new(sizes: Sizes, object: u32, word_ns: u64) -> Self {
        let words = sizes.pages * PAGE_WORDS;
        let mut heap = Self {
            sizes,
            arenas: [vec![0; words], vec![0; words]],
            arena: 0,
            old: 0,
            at: 0,
            new: 0,
            end: 0,
            roots: Vec::new(),
            free_roots: Vec::new(),
            assigned: Vec::new(),
            marked: vec![false; sizes.pages],
            recorder: Recorder {
                object,
                steps: VecDeque::new(),
                recent: [u64::MAX; RECENT],
                at: 0,
                words: 0,
                word_ns,
            },
            work: Work::default(),
        };
        heap.lay_out();
        heap
    }

    /// The next step of what was done so far.
    pub fn step(&mut self) -> Option<Step> {
        self.recorder.steps.pop_front()
    }

    /// The page of the program's memory that a word is on.
    fn page(&self, arena: usize, word: usize) -> usize {
        let page = word / PAGE_WORDS;
        if arena == 0 {
            page
        } else {
            self.sizes.pages - 1 - page
        }
    }

    fn touch(&mut self, arena: usize, word: usize, access: Access) {
        let page = self.page(arena, word);
        if access == Access::Write && self.marked[page] {
            self.take_back(arena, word);
        }
        self.recorder.touch(page as u64, access);
    }

    /// Takes back the page of `word` and those behind it that are marked, in the direction of growth.
    fn take_back(&mut self, arena: usize, word: usize) {
        let first = word / PAGE_WORDS;
        let end = (first + self.sizes.take_back).min(self.sizes.pages);
        let mut run = first..first;
        while run.end < end && {
            let page = self.page(arena, run.end * PAGE_WORDS);
            std::mem::take(&mut self.marked[page])
        } {
            run.end += 1;
        }
        let range = self.range(arena, run);
        self.recorder.steps.push_back(Step::TakeBack(range));
    }

    /// The program's memory at pages of an arena.
    fn range(&self, arena: usize, pages: std::ops::Range<usize>) -> PageRange {
        let count = (pages.end - pages.start) as u64;
        let first = if arena == 0 {
            pages.start
        } else {
            self.sizes.pages - pages.end
        };
        run(self.recorder.object, first as u64, count)
    }

    /// What is on `pages` of the arena is not wanted any more.
    fn discard(&mut self, arena: usize, pages: std::ops::Range<usize>) {
        if pages.is_empty() {
            return;
        }
        for page in pages.clone() {
            let page = self.page(arena, page * PAGE_WORDS);
            self.marked[page] = true;
        }
        let range = self.range(arena, pages);
        self.recorder.steps.push_back(Step::Discardable(range));
        self.recorder.steps.push_back(Step::Flush(range));
        self.recorder.recent = [u64::MAX; RECENT];
    }

    /// Divides what is free in halves, the upper one the new region.
    fn lay_out(&mut self) {
        let used = self.old.div_ceil(PAGE_WORDS);
        let half = (self.sizes.pages - used) / 2;
        self.end = self.sizes.pages * PAGE_WORDS;
        self.new = (self.sizes.pages - half) * PAGE_WORDS;
        self.at = self.new;
    }

    /// Keeps `value` alive.
    pub fn root(&mut self, value: Value) -> Root {
        let at = self.free_roots.pop().unwrap_or_else(|| {
            self.roots.push(NIL);
            self.roots.len() - 1
        });
        self.roots[at] = value;
        Root(at)
    }

    /// What is kept there now.
    pub fn of(&self, root: Root) -> Value {
        self.roots[root.0]
    }

    /// Keeps another value there.
    pub fn set(&mut self, root: Root, value: Value) {
        self.roots[root.0] = value;
    }

    /// Does not keep it any more.
    pub fn drop_root(&mut self, root: Root) {
        self.roots[root.0] = NIL;
        self.free_roots.push(root.0);
    }

    /// A new object of these fields. Values that are not in roots may not be used after it: objects move.
    ///
    /// # Panics
    /// When what lives does not fit.
    pub fn alloc<const N: usize>(&mut self, fields: [Value; N]) -> Value {
        if self.at + N + 1 > self.end {
            let kept = fields.map(|field| self.root(field));
            self.collect();
            let fields = kept.map(|root| self.of(root));
            kept.into_iter().for_each(|root| self.drop_root(root));
            assert!(self.at + N < self.end, "what lives does not fit");
            return self.put(fields);
        }
        self.put(fields)
    }

    fn put<const N: usize>(&mut self, fields: [Value; N]) -> Value {
        let at = self.at;
        self.at += N + 1;
        self.work.allocated += N as u64 + 1;
        self.recorder.words += N as u64 + 1;
        self.touch(self.arena, at, Access::Write);
        self.touch(self.arena, at + N, Access::Write);
        let words = &mut self.arenas[self.arena];
        words[at] = int(N as u32);
        words[at + 1..=at + N].copy_from_slice(&fields);
        (at as u32) << 1
    }

    /// A field of an object.
    pub fn get(&mut self, object: Value, field: usize) -> Value {
        debug_assert!(is_object(object));
        let at = (object >> 1) as usize + 1 + field;
        self.work.read += 1;
        self.touch(self.arena, at, Access::Read);
        self.arenas[self.arena][at]
    }

    /// Assigns a field.
    pub fn assign(&mut self, object: Value, field: usize, value: Value) {
        let at = (object >> 1) as usize + 1 + field;
        self.touch(self.arena, at, Access::Write);
        self.arenas[self.arena][at] = value;
        if at < self.old {
            self.assigned.push(at);
        }
    }

    /// A minor collection, and a major one if the old region is at its limit then.
    fn collect(&mut self) {
        self.minor();
        if self.old.div_ceil(PAGE_WORDS) >= self.sizes.old_limit {
            self.major();
        }
        self.lay_out();
    }

    fn minor(&mut self) {
        self.work.collections.0 += 1;
        let (from, new, end) = (self.arena, self.new, self.at);
        let mut scan = self.old;
        for at in 0..self.roots.len() {
            self.roots[at] = self.copied(self.roots[at], from, new, from);
        }
        for at in std::mem::take(&mut self.assigned) {
            self.forward(at, from, new, from);
        }
        while scan < self.old {
            scan = self.forward_object(scan, from, new, from);
        }
        // A page that is not full was written, too.
        self.discard(from, new / PAGE_WORDS..end.div_ceil(PAGE_WORDS));
    }

    fn major(&mut self) {
        self.work.collections.1 += 1;
        let (from, to, end) = (self.arena, 1 - self.arena, self.old);
        self.old = 0;
        for at in 0..self.roots.len() {
            self.roots[at] = self.copied(self.roots[at], from, 0, to);
        }
        let mut scan = 0;
        while scan < self.old {
            scan = self.forward_object(scan, from, 0, to);
        }
        self.discard(from, 0..end.div_ceil(PAGE_WORDS));
        self.arena = to;
    }

    /// Forwards the fields of the object at `at` of arena `to`; returns where the next one is.
    fn forward_object(&mut self, at: usize, from: usize, least: usize, to: usize) -> usize {
        let fields = number(self.arenas[to][at]) as usize;
        for field in at + 1..=at + fields {
            self.forward(field, from, least, to);
        }
        at + 1 + fields
    }

    /// Copies what the word at `at` of arena `to` names, and has it name the copy.
    fn forward(&mut self, at: usize, from: usize, least: usize, to: usize) {
        self.touch(to, at, Access::Read);
        let value = self.arenas[to][at];
        let moved = self.copied(value, from, least, to);
        if moved != value {
            self.touch(to, at, Access::Write);
            self.arenas[to][at] = moved;
        }
    }

    /// Where the object is once it is copied, if it lies at `least` or above in arena `from`.
    fn copied(&mut self, value: Value, from: usize, least: usize, to: usize) -> Value {
        let at = (value >> 1) as usize;
        if !is_object(value) || at < least {
            return value;
        }
        self.touch(from, at, Access::Read);
        let header = self.arenas[from][at];
        if is_object(header) {
            return header;
        }
        let words = number(header) as usize + 1;
        let new = self.old;
        self.old += words;
        self.work.copied += words as u64;
        self.touch(from, at + words - 1, Access::Read);
        self.touch(to, new, Access::Write);
        self.touch(to, new + words - 1, Access::Write);
        for word in 0..words {
            self.arenas[to][new + word] = self.arenas[from][at + word];
        }
        let moved = (new as u32) << 1;
        // A forwarded object has its new place for a header.
        self.touch(from, at, Access::Write);
        self.arenas[from][at] = moved;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(pages: usize, old_limit: usize) -> Heap {
        let sizes = Sizes {
            pages,
            old_limit,
            take_back: 3,
        };
        Heap::new(sizes, 1, 0)
    }

    /// A repeatable stream of numbers.
    fn random(seed: &mut u64, end: u32) -> u32 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) as u32 % end
    }

    /// A graph kept twice: in the heap, and as lists beside it. Fields are numbers or other nodes, shared and in circles.
    #[test]
    fn what_can_be_reached_is_what_was_put_there() {
        const NODES: usize = 200;
        let (mut heap, mut seed) = (heap(40, 1), 3);
        let mut roots: Vec<Option<Root>> = vec![None; NODES];
        // The node of that number, as it must be: its fields, each a number or a node.
        let mut truth: Vec<[Result<u32, usize>; 3]> = vec![[Err(0); 3]; NODES];
        let filler = |seed: &mut u64| int(random(seed, 1 << 20));
        for round in 0..60_000 {
            let node = random(&mut seed, NODES as u32) as usize;
            let mut fields = [NIL; 3];
            let mut known = [Ok(0); 3];
            for (field, known) in fields.iter_mut().zip(&mut known) {
                let other = random(&mut seed, NODES as u32) as usize;
                (*field, *known) = match roots[other].filter(|_| random(&mut seed, 2) == 0) {
                    Some(root) => (heap.of(root), Err(other)),
                    None => (filler(&mut seed), Ok(0)),
                };
                if known.is_ok() {
                    *known = Ok(number(*field));
                }
            }
            match roots[node] {
                // Assigned in place: old objects come to name new ones.
                Some(root) => {
                    let object = heap.of(root);
                    (0..3).for_each(|field| heap.assign(object, field, fields[field]));
                }
                None => {
                    let object = heap.alloc(fields);
                    roots[node] = Some(heap.root(object));
                }
            }
            truth[node] = known;
            // Garbage.
            heap.alloc([NIL, filler(&mut seed)]);
            if round % 500 == 0 {
                check(&mut heap, &roots, &truth);
            }
        }
        check(&mut heap, &roots, &truth);
        assert!(
            heap.work.collections.0 > 8 && heap.work.collections.1 > 1,
            "{:?}",
            heap.work
        );
    }

    fn check(heap: &mut Heap, roots: &[Option<Root>], truth: &[[Result<u32, usize>; 3]]) {
        for (root, known) in roots.iter().zip(truth) {
            let Some(root) = root else { continue };
            for (field, known) in known.iter().enumerate() {
                let value = heap.get(heap.of(*root), field);
                match *known {
                    Ok(known) => assert_eq!(value, int(known)),
                    Err(other) => assert_eq!(value, heap.of(roots[other].expect("a node"))),
                }
            }
        }
    }

    /// Nothing is written to a page that is marked, and what is read of it is not read as what it was.
    #[test]
    fn pages_are_taken_back_before_they_are_written() {
        let mut heap = heap(64, 32);
        let mut marked = [false; 64];
        let (mut marks, mut backs) = (0, 0);
        let list = heap.root(NIL);
        for at in 0..200_000 {
            let tail = if at % 3000 == 0 { NIL } else { heap.of(list) };
            let cell = heap.alloc([int(at), tail]);
            heap.set(list, cell);
            while let Some(step) = heap.step() {
                let index = |range: PageRange| range.start.index() as usize;
                let pages = |range: PageRange| index(range)..index(range) + range.pages as usize;
                match step {
                    Step::Discardable(range) => {
                        marked[pages(range)].fill(true);
                        marks += range.pages;
                    }
                    Step::TakeBack(range) => {
                        assert!(marked[pages(range)].iter().all(|&marked| marked));
                        marked[pages(range)].fill(false);
                        backs += range.pages;
                    }
                    Step::Touch { run, .. } => assert!(!marked[index(run)], "{run:?}"),
                    Step::Flush(_) => {}
                    step => panic!("{step:?}"),
                }
            }
        }
        assert!(backs > 64 && marks >= backs, "{marks} {backs}");
    }
}
