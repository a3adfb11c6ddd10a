//! Sizes that the pool keeps pages in: a page takes the smallest class that holds its bytes.
//!
//! A class is what so many objects in so many frames have each, so next to nothing is left over in a block. What rounding up and that
//! take together is 6 % in the mean. Few classes and small blocks: of each class half a block is empty as a rule, which counts where pages are few.

use outpage_core::units::PAGE_BYTES;

/// The largest class in bytes. What compresses to more is better read from the disk: it would save less than an eighth of a frame.
pub(super) const OBJECT_BYTES_MAX: usize = 3584;
/// Sizes are multiples of this.
const GRAIN: usize = 8;
/// Most frames of a block. A choice: with 3 the heaps of `tests/programs/heaps.py` lose as much, but half a hundredth more when all
/// share a pool. Each further frame would be one more that a nearly empty block holds.
pub(super) const BLOCK_FRAMES_MAX: usize = 4;

/// Frames of a block and objects in it, by class. Up to 512 bytes a frame each, 16 bytes and about 12 % apart; above that the fewest frames
/// that make steps of about a tenth. Of steps of 6, 8, 10 and 12 % these lost least on the heaps of `tests/programs/heaps.py`.
static BLOCKS: [(u8, u8); CLASSES] = [
    (1, 64),
    (1, 51),
    (1, 42),
    (1, 36),
    (1, 32),
    (1, 28),
    (1, 25),
    (1, 23),
    (1, 20),
    (1, 18),
    (1, 17),
    (1, 16),
    (1, 14),
    (1, 13),
    (1, 12),
    (1, 11),
    (1, 10),
    (1, 9),
    (1, 8),
    (2, 15),
    (1, 7),
    (2, 13),
    (1, 6),
    (2, 11),
    (1, 5),
    (3, 14),
    (3, 13),
    (1, 4),
    (3, 11),
    (3, 10),
    (1, 3),
    (4, 11),
    (2, 5),
    (3, 7),
    (4, 9),
    (1, 2),
    (4, 7),
    (3, 5),
    (2, 3),
    (3, 4),
    (4, 5),
    (1, 1),
];

/// The class of each size, by grains.
static OF_GRAINS: [u8; OBJECT_BYTES_MAX / GRAIN + 1] = {
    let mut classes = [0; OBJECT_BYTES_MAX / GRAIN + 1];
    let (mut grains, mut class) = (0, Class(0));
    while grains < classes.len() {
        if grains * GRAIN > class.bytes() {
            class.0 += 1;
        }
        classes[grains] = class.0;
        grains += 1;
    }
    classes
};

/// A size class by its number, 0 for the smallest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class(pub(super) u8);

/// How many there are.
pub(super) const CLASSES: usize = 42;

impl Class {
    /// The class for `bytes` bytes; `None` above [`OBJECT_BYTES_MAX`].
    pub(super) fn of(bytes: usize) -> Option<Self> {
        OF_GRAINS.get(bytes.div_ceil(GRAIN)).copied().map(Self)
    }

    /// Bytes of an object.
    pub(super) const fn bytes(self) -> usize {
        let (frames, objects) = self.block();
        let bytes = frames * PAGE_BYTES / objects / GRAIN * GRAIN;
        if bytes < OBJECT_BYTES_MAX {
            bytes
        } else {
            OBJECT_BYTES_MAX
        }
    }

    /// Frames of a block, and objects in it.
    pub(super) const fn block(self) -> (usize, usize) {
        let (frames, objects) = BLOCKS[self.0 as usize];
        (frames as usize, objects as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        let mut last = 0;
        for number in 0..CLASSES {
            let bytes = Class(number as u8).bytes();
            assert!(bytes > last, "class {number} of {bytes} bytes after {last}");
            for size in [last + 1, bytes] {
                assert_eq!(Class::of(size), Some(Class(number as u8)), "{size} bytes");
            }
            last = bytes;
        }
        assert_eq!(
            (last, Class::of(last + 1), Class::of(0)),
            (OBJECT_BYTES_MAX, None, Some(Class(0)))
        );
    }

    #[test]
    fn rounding_and_what_is_left_over_stay_small() {
        let classes = (0..CLASSES).map(|number| Class(number as u8));
        for class in classes {
            let (frames, objects) = class.block();
            let (taken, of) = (objects * class.bytes(), frames * PAGE_BYTES);
            assert!(frames <= BLOCK_FRAMES_MAX && taken <= of, "{class:?}");
            let left_over = 1.0 - taken as f64 / of as f64;
            let most = if class.bytes() <= 3200 { 0.03 } else { 0.13 };
            assert!(left_over <= most, "{class:?}: {left_over}");
        }
        let lost = |size: usize| {
            let (frames, objects) = Class::of(size).expect("a class").block();
            1.0 - (size * objects) as f64 / (frames * PAGE_BYTES) as f64
        };
        let mean =
            (512..=OBJECT_BYTES_MAX).map(lost).sum::<f64>() / (OBJECT_BYTES_MAX - 511) as f64;
        assert!(mean < 0.06, "{mean}");
    }
}
