//! Where pages lie in a swap space that has them as they were compressed.
//!
//! The pages of a write that compress lie one behind the other, over the ends of blocks; those that do not follow, each in a block of its
//! own. So a write takes as many blocks as the sum of its sizes. Blocks of a write to the slots behind the last write's lie behind its
//! blocks; any other write begins where its first slot does. They never reach beyond the slots, so that no space is saved, and the disk's
//! head has no gaps to pass over. That a later write has other blocks than all that is still needed is not looked after: blocks are times
//! here, not contents.

use std::collections::{HashMap, HashSet};

use outpage_core::units::{PAGE_BYTES, PageNo, SlotNo, SlotRange};

use crate::disk::Op;

const BLOCK: u64 = PAGE_BYTES as u64;

/// Blocks of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Blocks {
    /// The first.
    pub start: u64,
    /// How many, at least one.
    pub count: u32,
}

/// What was written at a slot.
#[derive(Clone, Copy)]
struct Place {
    /// The byte of the disk where it begins.
    from: u64,
    bytes: u16,
    compressed: bool,
}

impl Place {
    const fn new(from: u64, bytes: u16, compressed: bool) -> Self {
        Self {
            from,
            bytes,
            compressed,
        }
    }
}

/// The swap space.
pub(super) struct Packed {
    places: HashMap<SlotNo, Place>,
    /// Behind the last write: its slots, and its blocks.
    next: (SlotNo, u64),
    compress_ns: u64,
    decompress_ns: u64,
    /// What decompressing takes of the pages of each read under way.
    decompressing: HashMap<u32, u64>,
    /// Pages that left the pool for the disk: they are compressed.
    compressed: HashSet<PageNo>,
}

impl Packed {
    /// An empty one; a page takes `compress_ns` to compress and `decompress_ns` to decompress.
    pub fn new(compress_ns: u32, decompress_ns: u32) -> Self {
        Self {
            places: HashMap::new(),
            next: (SlotNo::NONE, 0),
            compress_ns: u64::from(compress_ns),
            decompress_ns: u64::from(decompress_ns),
            compressed: HashSet::new(),
            decompressing: HashMap::new(),
        }
    }

    /// What transfer `id` of `slots` takes of the disk; `bytes` is what each page comes to, `None` where it does not compress.
    pub fn transfer(
        &mut self,
        id: u32,
        op: Op,
        slots: SlotRange,
        bytes: impl Iterator<Item = Option<u16>>,
    ) -> Blocks {
        match op {
            Op::Write => self.write(slots, bytes),
            Op::Read => {
                let (blocks, compressed) = self.read(slots);
                self.decompressing
                    .insert(id, compressed * self.decompress_ns);
                blocks
            }
        }
    }

    /// What decompressing takes of the pages that transfer `id` has read.
    pub fn decompress_ns(&mut self, id: u32) -> u64 {
        self.decompressing.remove(&id).unwrap_or(0)
    }

    /// The page leaves the pool for the disk.
    pub fn leaves_pool(&mut self, page: PageNo) {
        self.compressed.insert(page);
    }

    /// What compressing takes of `pages`, of which each comes to so many bytes, before they are written: those that passed the pool are not
    /// compressed yet.
    pub fn compress_ns(&mut self, pages: impl Iterator<Item = (PageNo, Option<u16>)>) -> u64 {
        let written =
            pages.filter(|(page, bytes)| !self.compressed.remove(page) && bytes.is_some());
        written.count() as u64 * self.compress_ns
    }

    fn write(&mut self, slots: SlotRange, bytes: impl Iterator<Item = Option<u16>>) -> Blocks {
        let start = match self.next {
            (slot, block) if slot == slots.start => block,
            _ => u64::from(slots.start.0),
        };
        let mut at = start * BLOCK;
        let mut plain = Vec::new();
        for (slot, bytes) in slots.iter().zip(bytes) {
            let Some(bytes) = bytes else {
                plain.push(slot);
                continue;
            };
            self.places.insert(slot, Place::new(at, bytes, true));
            at += u64::from(bytes);
        }
        let mut end = at.div_ceil(BLOCK);
        for slot in plain {
            let place = Place::new(end * BLOCK, PAGE_BYTES as u16, false);
            self.places.insert(slot, place);
            end += 1;
        }
        // Pages of one word again and again come to nothing, but a write is one.
        let end = end.max(start + 1);
        self.next = (slots.end(), end);
        let count = (end - start) as u32;
        Blocks { start, count }
    }

    /// The blocks in which any of the pages lies, each once, as if they lay side by side; and how many of the pages are compressed.
    fn read(&self, slots: SlotRange) -> (Blocks, u64) {
        let places: Vec<Place> = slots.iter().map(|slot| self.places[&slot]).collect();
        let compressed = places.iter().filter(|place| place.compressed).count() as u64;
        let filled = places.iter().filter(|place| place.bytes > 0);
        let of = |place: &Place| {
            let last = place.from + u64::from(place.bytes) - 1;
            place.from / BLOCK..=last / BLOCK
        };
        let mut blocks: Vec<u64> = filled.flat_map(of).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let nothing = places.first().map_or(0, |place| place.from / BLOCK);
        let blocks = Blocks {
            start: blocks.first().copied().unwrap_or(nothing),
            count: blocks.len().max(1) as u32,
        };
        (blocks, compressed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::seed::mix;

    fn slots(start: u32, count: u32) -> SlotRange {
        SlotRange::new(SlotNo(start), count)
    }

    /// Every byte of every write where it is said to be: the owner of a byte is a slot.
    #[derive(Default)]
    struct Naive {
        bytes: Vec<(u64, SlotNo)>,
        behind: Option<(SlotNo, u64)>,
    }

    impl Naive {
        fn write(&mut self, slots: SlotRange, sizes: &[Option<u16>]) -> Blocks {
            let behind = self.behind.filter(|behind| behind.0 == slots.start);
            let start = behind.map_or(u64::from(slots.start.0), |behind| behind.1);
            self.bytes
                .retain(|(_, slot)| !slots.iter().any(|s| s == *slot));
            let mut at = start * 4096;
            for round in [true, false] {
                for (slot, size) in slots.iter().zip(sizes) {
                    if size.is_some() == round {
                        for _ in 0..size.unwrap_or(4096) {
                            self.bytes.push((at, slot));
                            at += 1;
                        }
                    }
                }
                at = at.next_multiple_of(4096);
            }
            let end = (at / 4096).max(start + 1);
            self.behind = Some((slots.end(), end));
            let count = (end - start) as u32;
            Blocks { start, count }
        }

        fn read(&self, slots: SlotRange) -> BTreeSet<u64> {
            let wanted = self
                .bytes
                .iter()
                .filter(|(_, slot)| slots.iter().any(|s| s == *slot));
            wanted.map(|(at, _)| at / 4096).collect()
        }
    }

    #[test]
    fn blocks_are_those_of_a_naive_model() {
        let (mut packed, mut naive) = (Packed::new(3000, 1000), Naive::default());
        let mut known = Vec::new();
        let mut next = 10;
        for n in 0..120 {
            let draw = |what: u64, most: u64| mix(n, what) % most;
            let count = 1 + draw(1, 12) as u32;
            let start = if draw(2, 4) == 0 {
                10 + draw(3, 200) as u32
            } else {
                next
            };
            let run = slots(start, count);
            next = run.end().0;
            let sizes: Vec<_> = (0..count)
                .map(|at| match mix(n, 100 + u64::from(at)) % 8 {
                    0 => None,
                    1 => Some(0),
                    more => Some((more * 450) as u16),
                })
                .collect();
            let written = packed.transfer(0, Op::Write, run, sizes.iter().copied());
            assert_eq!(written, naive.write(run, &sizes), "{n}");
            let sum: u32 = sizes
                .iter()
                .map(|size| u32::from(size.unwrap_or(4096)))
                .sum();
            assert_eq!(written.count, sum.div_ceil(4096).max(1));
            known.retain(|(slot, _): &(SlotNo, _)| !run.iter().any(|s| s == *slot));
            known.extend(run.iter().zip(sizes));
            let from = run.start.0 + draw(4, u64::from(count)) as u32;
            let part = slots(from, run.end().0 - from);
            let expected = naive.read(part);
            let read = packed.transfer(7, Op::Read, part, std::iter::empty());
            assert_eq!(read.count as usize, expected.len().max(1));
            if let Some(first) = expected.first() {
                assert_eq!(read.start, *first);
            }
            let of_part = |size: &&(SlotNo, Option<u16>)| part.iter().any(|s| s == size.0);
            let compressed = known.iter().filter(of_part).filter(|size| size.1.is_some());
            assert_eq!(packed.decompress_ns(7), 1000 * compressed.count() as u64);
            assert_eq!(packed.decompress_ns(7), 0, "it is charged once");
        }
    }

    #[test]
    fn what_comes_from_the_pool_is_not_compressed_again() {
        let mut packed = Packed::new(3000, 0);
        let page = PageNo::from_raw;
        packed.leaves_pool(page(1));
        let pages = [(1, Some(9)), (2, Some(9)), (3, None), (4, Some(0))];
        let mut ns = || packed.compress_ns(pages.into_iter().map(|(n, bytes)| (page(n), bytes)));
        assert_eq!([ns(), ns()], [2 * 3000, 3 * 3000]);
    }

    #[test]
    fn writes_side_by_side_have_blocks_side_by_side() {
        let mut packed = Packed::new(3000, 0);
        let mut write = |start| packed.write(slots(start, 8), [Some(1024); 8].into_iter());
        let starts = [64, 72, 80, 16].map(|start| write(start).start);
        assert_eq!(starts, [64, 66, 68, 16]);
        // Pages of two writes, in one read.
        let (blocks, compressed) = packed.read(slots(70, 6));
        assert_eq!(
            (blocks, compressed),
            (
                Blocks {
                    start: 65,
                    count: 2
                },
                6
            )
        );
    }
}
