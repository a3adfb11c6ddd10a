//! Which leaf describes which pages.

use alloc::vec::Vec;
use core::cell::Cell;

/// Leaf base to leaf index: open addressing, linear probing, at most half full.
pub(crate) struct Directory {
    pub(crate) cells: Vec<(u64, u32)>,
    pub(crate) used: usize,
    /// The cell found last: an event asks for one page several times, and for its neighbours.
    last: Cell<(u64, u32)>,
}

/// No leaf has this base: it is past the largest page number.
pub(crate) const VACANT: u64 = u64::MAX;

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            cells: alloc::vec![(VACANT, 0); 64],
            used: 0,
            last: Cell::new((VACANT, 0)),
        }
    }

    /// Fibonacci hashing: multiplication by 2^64 / golden ratio (Knuth, TAOCP vol. 3, 6.4).
    fn home(&self, base: u64) -> usize {
        let bits = self.cells.len().trailing_zeros();
        (base.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
    }

    fn find(&self, base: u64) -> usize {
        let mask = self.cells.len() - 1;
        let mut at = self.home(base);
        while self.cells[at].0 != base && self.cells[at].0 != VACANT {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    pub(crate) fn get(&self, base: u64) -> Option<u32> {
        let last = self.last.get();
        if last.0 == base {
            return Some(last.1);
        }
        self.look_up(base)
    }

    #[inline(never)]
    fn look_up(&self, base: u64) -> Option<u32> {
        let cell = self.cells[self.find(base)];
        (cell.0 == base).then(|| {
            self.last.set(cell);
            cell.1
        })
    }

    pub(crate) fn reserve(&mut self, more: usize) {
        if (self.used + more) * 2 <= self.cells.len() {
            return;
        }
        let size = ((self.used + more) * 2).next_power_of_two();
        let old = core::mem::replace(&mut self.cells, alloc::vec![(VACANT, 0); size]);
        self.used = 0;
        for (base, leaf) in old.into_iter().filter(|c| c.0 != VACANT) {
            self.insert(base, leaf);
        }
    }

    pub(crate) fn insert(&mut self, base: u64, leaf: u32) {
        self.reserve(1);
        let at = self.find(base);
        self.cells[at] = (base, leaf);
        self.used += 1;
    }

    /// Backward-shift deletion: no tombstones, so probes stay short.
    pub(crate) fn remove(&mut self, base: u64) {
        self.last.set((VACANT, 0));
        let mask = self.cells.len() - 1;
        let mut hole = self.find(base);
        let mut at = (hole + 1) & mask;
        while self.cells[at].0 != VACANT {
            let home = self.home(self.cells[at].0);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = self.cells[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.cells[hole].0 = VACANT;
        self.used -= 1;
    }
}
