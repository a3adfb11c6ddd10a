//! Written blocks that a drive keeps until it has time for them.

use std::collections::BTreeMap;

/// Extents of written blocks, neighbours merged.
#[derive(Default)]
pub(super) struct WriteCache {
    /// First block to the block after the last.
    extents: BTreeMap<u64, u64>,
    blocks: u64,
}

impl WriteCache {
    /// Blocks held.
    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Stretches of neighbouring blocks held.
    pub(super) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Whether `start..end` touches or overlaps what is held.
    pub(super) fn extends(&self, start: u64, end: u64) -> bool {
        let below = self.extents.range(..=end).next_back();
        below.is_some_and(|(_, &until)| until >= start)
    }

    /// Whether all of `start..end` is held.
    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        let below = self.extents.range(..=start).next_back();
        below.is_some_and(|(_, &until)| until >= end)
    }

    /// Takes in `start..end`; what was held of it before is replaced.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        while let Some((&s, &e)) = self.extents.range(..=end).next_back()
            && e >= start
        {
            self.extents.remove(&s);
            self.blocks -= e - s;
            (start, end) = (start.min(s), end.max(e));
        }
        self.extents.insert(start, end);
        self.blocks += end - start;
    }

    /// Removes the first extent at or above `head`, or else the lowest, cut to `most` blocks.
    pub(super) fn take(&mut self, head: u64, most: u64) -> Option<(u64, u64)> {
        let above = self.extents.range(head..).next();
        let (&start, &end) = above.or_else(|| self.extents.iter().next())?;
        self.extents.remove(&start);
        let cut = end.min(start + most);
        if cut < end {
            self.extents.insert(cut, end);
        }
        self.blocks -= cut - start;
        Some((start, cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_and_overlaps_count_once() {
        let mut cache = WriteCache::default();
        cache.add(10, 12);
        cache.add(14, 16);
        cache.add(12, 14);
        assert_eq!((cache.blocks(), cache.holds(10, 16)), (6, true));
        cache.add(11, 20);
        assert_eq!((cache.blocks(), cache.holds(10, 21)), (10, false));
        assert_eq!(cache.take(0, 100), Some((10, 20)));
        assert_eq!((cache.take(0, 100), cache.blocks()), (None, 0));
    }

    #[test]
    fn destaging_goes_up_and_starts_again_below() {
        let mut cache = WriteCache::default();
        cache.add(5, 6);
        cache.add(50, 60);
        assert_eq!(cache.take(20, 4), Some((50, 54)));
        assert_eq!(cache.take(54, 100), Some((54, 60)));
        assert_eq!(cache.take(60, 100), Some((5, 6)));
    }
}
