//! The BSD slot allocator: a radix tree of bitmaps with lowest-address first fit.
//!
//! Source of the placement rule: FreeBSD `kern/subr_blist.c` (6.2 to 8.2). A run of up to 32 slots
//! lies inside one 32-slot leaf, at the lowest address that has room. Ours: longer runs, and the
//! summaries are kept exact, so a search never visits a subtree that cannot serve it.

use alloc::vec::Vec;

use crate::units::{SlotNo, SlotRange};

/// Slots in a leaf: the bits of its bitmap, as in the kernel. A run of up to this many slots never
/// crosses a leaf boundary.
pub const LEAF_SLOTS: u32 = u32::BITS;

/// Children of an inner node (`BLIST_META_RADIX`).
const RADIX: usize = 16;

/// What an inner node knows about the leaves below it.
#[derive(Clone, Copy, Default, Debug)]
struct Summary {
    /// Free slots.
    free: u32,
    /// The longest free run inside any one leaf, in slots.
    longest: u8,
    /// Wholly free leaves at the low end, in leaves.
    head: u32,
    /// Wholly free leaves at the high end, in leaves.
    tail: u32,
    /// The longest run of wholly free leaves, in leaves.
    best: u32,
}

impl Summary {
    /// All but the count.
    const fn shape(self) -> (u8, u32, u32, u32) {
        (self.longest, self.head, self.tail, self.best)
    }
}

/// A slot allocator over slots `0..capacity`, all of them unavailable at first.
///
/// After construction nothing here allocates heap memory. Allocating and freeing a run of `n`
/// slots costs `O(n / 32 + log16(capacity))`.
#[derive(Clone, Debug)]
pub struct Blist {
    capacity: u32,
    usable: u32,
    /// Behind the highest slot made usable.
    end: u32,
    /// One bit a slot, 1 = free.
    leaves: Vec<u32>,
    /// The longest free run of each leaf, in slots.
    longest: Vec<u8>,
    /// Inner nodes, the level above the leaves first; the last level is the root alone.
    levels: Vec<Vec<Summary>>,
}

impl Blist {
    /// An allocator for up to `capacity` slots, none of which is usable yet.
    ///
    /// Takes about 5.3 bytes for every 32 slots of capacity, whether usable or not.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let leaves = capacity.div_ceil(LEAF_SLOTS) as usize;
        let mut levels = Vec::new();
        let mut nodes = leaves;
        loop {
            nodes = nodes.div_ceil(RADIX).max(1);
            levels.push(alloc::vec![Summary::default(); nodes]);
            if nodes == 1 {
                break;
            }
        }
        Self {
            capacity,
            usable: 0,
            end: 0,
            leaves: alloc::vec![0; leaves],
            longest: alloc::vec![0; leaves],
            levels,
        }
    }

    /// The number of slots that could be made usable at most.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The number of slots made usable so far, free or not.
    #[must_use]
    pub const fn usable(&self) -> u32 {
        self.usable
    }

    /// The number of free slots.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.root().free
    }

    /// Bytes of heap that it has written to: those of the leaves below the highest slot made usable.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let inner = self.levels.iter().map(Vec::len).sum::<usize>() * size_of::<Summary>();
        let leaf = size_of::<u32>() + size_of::<u8>();
        let leaves = self.leaves.len() * leaf + inner;
        (leaves as u64 * u64::from(self.end) / u64::from(self.capacity.max(1))) as usize
    }

    /// As [`super::Slots::free_word`].
    #[must_use]
    pub fn free_word(&self, word: u32) -> u64 {
        let leaf = |at: usize| self.leaves.get(at).map_or(0, |&leaf| u64::from(leaf));
        let low = word as usize * 2;
        leaf(low) | leaf(low + 1) << LEAF_SLOTS
    }

    /// Makes `range` usable: its slots become free. The swap file grows by such extents.
    ///
    /// # Panics
    /// When the range leaves the capacity or holds a slot that is free already.
    pub fn add(&mut self, range: SlotRange) {
        self.usable += range.slots;
        self.end = self.end.max(range.start.0.saturating_add(range.slots));
        self.set(range, true);
    }

    /// Takes `slots` consecutive free slots, the lowest that fit; `None` when there are none.
    ///
    /// Up to [`LEAF_SLOTS`] slots come from inside one leaf, as in the kernel. A longer run takes
    /// consecutive wholly free leaves and starts at the first one's first slot; what it does not
    /// need of the last leaf stays free.
    ///
    /// # Panics
    /// When `slots` is zero.
    pub fn alloc(&mut self, slots: u32) -> Option<SlotRange> {
        assert!(slots > 0, "a run has at least one slot");
        let start = if slots <= LEAF_SLOTS {
            self.find_in_leaf(slots)?
        } else {
            self.find_leaves(slots.div_ceil(LEAF_SLOTS))? * LEAF_SLOTS
        };
        let run = SlotRange::new(SlotNo(start), slots);
        self.set(run, false);
        Some(run)
    }

    /// Gives back allocated slots: any span, whatever the runs were that it was allocated in.
    ///
    /// # Panics
    /// When the range leaves the capacity, holds a free slot, or more slots are freed than were
    /// made usable.
    pub fn free(&mut self, range: SlotRange) {
        self.set(range, true);
        assert!(
            self.available() <= self.usable,
            "{range:?} was never made usable"
        );
    }

    /// Whether `slot` is free.
    #[must_use]
    pub fn is_free(&self, slot: SlotNo) -> bool {
        let leaf = (slot.0 / LEAF_SLOTS) as usize;
        self.leaves
            .get(leaf)
            .is_some_and(|bits| bits >> (slot.0 % LEAF_SLOTS) & 1 == 1)
    }

    fn root(&self) -> &Summary {
        // `new` always ends the levels with a level of one node.
        &self.levels[self.levels.len() - 1][0]
    }

    /// The lowest slot where `slots` (at most a leaf) are free within one leaf.
    fn find_in_leaf(&self, slots: u32) -> Option<u32> {
        let want = slots as u8;
        if self.root().longest < want {
            return None;
        }
        let mut node = 0;
        for level in (0..self.levels.len()).rev() {
            let mut children = node * RADIX..self.children_end(level, node);
            node = children.find(|&child| self.child_longest(level, child) >= want)?;
        }
        let starts = run_starts(self.leaves[node], slots);
        Some(node as u32 * LEAF_SLOTS + starts.trailing_zeros())
    }

    /// The first of the lowest `want` consecutive wholly free leaves.
    fn find_leaves(&self, want: u32) -> Option<u32> {
        if self.root().best < want {
            return None;
        }
        let mut node = 0;
        for level in (0..self.levels.len()).rev() {
            let span = leaves_below(level);
            // Wholly free leaves just below `child`.
            let mut before = 0;
            let mut inside = None;
            for child in node * RADIX..self.children_end(level, node) {
                let below = self.child(level, child);
                if before + below.head >= want {
                    return Some(child as u32 * span - before);
                }
                if below.best >= want {
                    inside = Some(child);
                    break;
                }
                before = if below.tail == span {
                    before + span
                } else {
                    below.tail
                };
            }
            node = inside?;
        }
        Some(node as u32)
    }

    /// Marks `range` free or taken, and brings the summaries up to date.
    fn set(&mut self, range: SlotRange, free: bool) {
        let end = u64::from(range.start.0) + u64::from(range.slots);
        assert!(
            end <= u64::from(self.capacity),
            "{range:?} leaves the capacity"
        );
        if range.slots == 0 {
            return;
        }
        let first = (range.start.0 / LEAF_SLOTS) as usize;
        let last = ((end - 1) as u32 / LEAF_SLOTS) as usize;
        let shape =
            |blist: &Self, leaf: usize| (blist.longest[leaf], blist.leaves[leaf] == u32::MAX);
        let shape_before = shape(self, first);
        for leaf in first..=last {
            let low = range.start.0.saturating_sub(leaf as u32 * LEAF_SLOTS);
            let high = (end - leaf as u64 * u64::from(LEAF_SLOTS)).min(u64::from(LEAF_SLOTS));
            let mask = (u32::MAX >> (LEAF_SLOTS - (high as u32 - low))) << low;
            let bits = &mut self.leaves[leaf];
            assert!(
                *bits & mask == if free { 0 } else { mask },
                "{range:?} is partly so already"
            );
            *bits ^= mask;
            self.longest[leaf] = longest_run(*bits);
        }
        let mut reshaped = first != last || shape(self, first) != shape_before;
        let (mut low, mut high) = (first, last);
        for level in 0..self.levels.len() {
            (low, high) = (low / RADIX, high / RADIX);
            if low == high && !reshaped {
                // Only the count differs, which is most often so.
                let count = &mut self.levels[level][low].free;
                *count = if free {
                    *count + range.slots
                } else {
                    *count - range.slots
                };
                continue;
            }
            reshaped = false;
            for node in low..=high {
                let sum = self.sum(level, node);
                let before = core::mem::replace(&mut self.levels[level][node], sum);
                reshaped |= before.shape() != sum.shape();
            }
        }
    }

    /// The summary of `node` from its children.
    fn sum(&self, level: usize, node: usize) -> Summary {
        let span = leaves_below(level);
        let mut sum = Summary::default();
        let mut seen = 0;
        for child in node * RADIX..self.children_end(level, node) {
            let below = self.child(level, child);
            sum.free += below.free;
            sum.longest = sum.longest.max(below.longest);
            sum.best = sum.best.max(below.best).max(sum.tail + below.head);
            if sum.head == seen {
                sum.head += below.head;
            }
            sum.tail = if below.tail == span {
                sum.tail + span
            } else {
                below.tail
            };
            seen += span;
        }
        sum
    }

    /// The end of the children of `node`, as indices into the level below.
    fn children_end(&self, level: usize, node: usize) -> usize {
        let below = if level == 0 {
            self.leaves.len()
        } else {
            self.levels[level - 1].len()
        };
        ((node + 1) * RADIX).min(below)
    }

    fn child_longest(&self, level: usize, child: usize) -> u8 {
        if level == 0 {
            self.longest[child]
        } else {
            self.levels[level - 1][child].longest
        }
    }

    fn child(&self, level: usize, child: usize) -> Summary {
        if level > 0 {
            return self.levels[level - 1][child];
        }
        let bits = self.leaves[child];
        let whole = u32::from(bits == u32::MAX);
        Summary {
            free: bits.count_ones(),
            longest: self.longest[child],
            head: whole,
            tail: whole,
            best: whole,
        }
    }
}

/// Leaves below one child of a node on `level`.
const fn leaves_below(level: usize) -> u32 {
    (RADIX as u32).pow(level as u32)
}

/// The bits at which a run of `slots` ones begins.
const fn run_starts(mut bits: u32, slots: u32) -> u32 {
    let mut have = 1;
    while have < slots {
        let step = if have < slots - have {
            have
        } else {
            slots - have
        };
        bits &= bits >> step;
        have += step;
    }
    bits
}

/// The length of the longest run of ones.
const fn longest_run(mut bits: u32) -> u8 {
    let mut run = 0;
    while bits != 0 {
        bits &= bits >> 1;
        run += 1;
    }
    run
}
