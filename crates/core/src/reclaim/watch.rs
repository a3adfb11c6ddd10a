//! A sample of the pages, and which of them are to be taken out of the program next, so that their touches are seen.

use alloc::vec::Vec;

use crate::page::{PageId, Pages, Queue};

/// Pages of which one is in the sample. Of a program with 2,000 frames 125 are, by which policies are told apart whose misses differ by a
/// tenth; with fewer pages in it chance decides, with more the shadows take more memory.
pub(super) const SAMPLE: usize = 16;

/// Pages that are in the sample together: with single ones it would break the clusters and windows of all others. As many as the smallest
/// window of the policies that read ahead, so that a sampled page tells whether its neighbours come along.
pub(super) const GROUP: usize = 16;

/// The page's number in the sample, if it is in it: one group of each sixteen neighbouring ones, at a place that is another each time, so
/// that no stride misses all of them.
pub(super) const fn sampled(id: PageId) -> Option<usize> {
    let (group, within) = (id.index() / GROUP, id.index() % GROUP);
    let (block, place) = (group / SAMPLE, group % SAMPLE);
    // Knuth, The Art of Computer Programming 3, section 6.4: 2^32 by the golden ratio. The upper bits are mixed best.
    let mixed = (block as u32).wrapping_mul(0x9e37_79b9);
    if (mixed >> (u32::BITS - SAMPLE.trailing_zeros())) as usize == place {
        Some(block * GROUP + within)
    } else {
        None
    }
}

/// How many pages of the sample there are at most among `ids` names.
pub(super) const fn sampled_of(ids: usize) -> usize {
    ids.div_ceil(SAMPLE * GROUP) * GROUP
}

/// Pages of the sample that were mapped, in order. O(1) each; 9 bytes for each page of the sample.
#[derive(Default)]
pub(super) struct Watch {
    /// Numbers in the sample, from `first` on.
    ring: Vec<u32>,
    first: usize,
    len: usize,
    /// Of each page of the sample: whether it is in the ring, and its name.
    listed: Vec<bool>,
    ids: Vec<PageId>,
}

impl Watch {
    /// Makes room for `pages` of the sample.
    pub(super) fn reserve(&mut self, pages: usize) {
        if self.ring.len() >= pages {
            return;
        }
        let pages = pages.next_power_of_two();
        let mut ring = Vec::with_capacity(pages);
        let places = self.first..self.first + self.len;
        ring.extend(places.map(|at| self.ring[at % self.ring.len()]));
        ring.resize(pages, 0);
        (self.ring, self.first) = (ring, 0);
        self.listed.resize(pages, false);
        self.ids.resize(pages, PageId::NONE);
    }

    /// Bytes of heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.ring.len() * (size_of::<u32>() + size_of::<bool>() + size_of::<PageId>())
    }

    /// The page, which has this number in the sample, was mapped.
    pub(super) fn push(&mut self, number: usize, id: PageId) {
        self.reserve(number + 1);
        self.ids[number] = id;
        if !core::mem::replace(&mut self.listed[number], true) {
            let at = (self.first + self.len) % self.ring.len();
            self.ring[at] = number as u32;
            self.len += 1;
        }
    }

    /// The one that was mapped first of those that still are, off its queue.
    pub(super) fn pop(&mut self, pages: &mut Pages) -> Option<PageId> {
        while self.len > 0 {
            let number = self.ring[self.first] as usize;
            self.first = (self.first + 1) % self.ring.len();
            self.len -= 1;
            self.listed[number] = false;
            let id = self.ids[number];
            if matches!(pages.queue(id), Queue::Active | Queue::Second) {
                pages.unqueue(id);
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::State;
    use crate::units::PageNo;

    #[test]
    fn one_of_sixteen_is_in_the_sample_and_no_stride_misses_all() {
        let mut pages = Pages::new();
        let ids: Vec<PageId> = (0..65_536)
            .map(|n| pages.create(PageNo::from_raw(n), State::Resident))
            .collect();
        let numbers: Vec<usize> = ids.iter().filter_map(|&id| sampled(id)).collect();
        assert_eq!(numbers, (0..4096).collect::<Vec<_>>());
        for stride in [2, 4, 8, 16, 32, 64, 128, 256] {
            let found = (0..ids.len())
                .step_by(stride)
                .filter(|&n| sampled(ids[n]).is_some());
            let fair = ids.len() / stride / SAMPLE;
            let found = found.count();
            assert!(
                (fair / 2..=2 * fair).contains(&found),
                "{stride}: {found} of {fair}"
            );
        }
    }

    #[test]
    fn pages_come_once_in_order_and_only_while_they_are_mapped() {
        let mut pages = Pages::new();
        let mut watch = Watch::default();
        let ids: Vec<PageId> = (0..4096)
            .map(|n| pages.create(PageNo::from_raw(n), State::Resident))
            .filter(|&id| sampled(id).is_some())
            .collect();
        for (number, &id) in ids.iter().enumerate() {
            pages.push(Queue::Active, id);
            watch.push(number, id);
            watch.push(number / 2, ids[number / 2]);
        }
        pages.unqueue(ids[1]);
        let first = watch.pop(&mut pages);
        assert_eq!((first, pages.queue(ids[0])), (Some(ids[0]), Queue::None));
        // It grows with its order kept.
        watch.reserve(1000);
        let rest: Vec<PageId> = core::iter::from_fn(|| watch.pop(&mut pages)).collect();
        assert_eq!(rest, ids[2..]);
    }
}
