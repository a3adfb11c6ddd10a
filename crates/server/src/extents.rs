//! The store's slots, handed to clients in extents: a client's pages share none with another's.

use outpage_core::units::{SlotNo, SlotRange};

/// Slots of an extent: 4 MiB, four writes of the largest size. A choice: a thousand clients that page out little take 4 GiB of the store.
pub const EXTENT_SLOTS: u32 = 1024;

/// Which extents nobody has.
#[derive(Debug)]
pub struct Extents {
    /// Given back, the highest number first.
    free: Vec<u32>,
    /// Those from here on were never handed out.
    fresh: u32,
    count: u32,
}

impl Extents {
    /// Of a store of `slots` slots, those of a last extent that is not whole left out.
    #[must_use]
    pub const fn new(slots: u32) -> Self {
        Self {
            free: Vec::new(),
            fresh: 0,
            count: slots / EXTENT_SLOTS,
        }
    }

    /// The lowest extent that nobody has.
    pub fn take(&mut self) -> Option<SlotRange> {
        let extent = self.free.pop().or_else(|| {
            let fresh = self.fresh;
            (fresh < self.count).then(|| {
                self.fresh += 1;
                fresh
            })
        })?;
        Some(SlotRange::new(SlotNo(extent * EXTENT_SLOTS), EXTENT_SLOTS))
    }

    /// Nobody reads or writes `extents` any more, all of which were taken.
    pub fn give_back(&mut self, extents: &[SlotRange]) {
        let numbers = extents.iter().map(|range| range.start.0 / EXTENT_SLOTS);
        self.free.extend(numbers);
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        debug_assert!(self.free.is_sorted_by(|a, b| a > b), "given back twice");
    }

    /// Extents that somebody has.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.fresh as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_taken_and_none_twice() {
        let mut extents = Extents::new(3 * EXTENT_SLOTS + 7);
        let all: Vec<SlotRange> = std::iter::from_fn(|| extents.take()).collect();
        let starts: Vec<u32> = all.iter().map(|range| range.start.0).collect();
        assert_eq!(starts, [0, EXTENT_SLOTS, 2 * EXTENT_SLOTS]);
        extents.give_back(&all[..2]);
        assert_eq!((extents.taken(), extents.take()), (1, Some(all[0])));
        extents.give_back(&[all[2]]);
        assert_eq!(
            (extents.take(), extents.take()),
            (Some(all[1]), Some(all[2]))
        );
        assert_eq!(extents.take(), None);
    }
}
