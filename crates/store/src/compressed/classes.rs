//! Sizes that the pool keeps pages in: a page takes the smallest class that holds its bytes.
//!
//! Between two powers of two there are 8 classes below 512 bytes and 16 above, so rounding up takes 12 % at most and 3 % as a rule. Objects of
//! a class lie in blocks of 1 to [`BLOCK_FRAMES_MAX`] frames, whichever leaves the least over.

use outpage_core::units::PAGE_BYTES;

/// The largest class in bytes. What compresses to more is better read from the disk: it would save less than an eighth of a frame.
pub(super) const OBJECT_BYTES_MAX: usize = 3584;
/// The smallest class in bytes.
const OBJECT_BYTES_MIN: usize = 64;
/// Most frames of a block. A choice: with 4 what is left over is 2 % of a block as a rule, 9 % at most up to 3200 bytes, and above that an
/// object takes a frame. Each further frame would be one more that a nearly empty block holds.
pub(super) const BLOCK_FRAMES_MAX: usize = 4;

/// Frames of a block and objects in it, by class: too much to be worked out for each page.
static BLOCKS: [(u8, u16); CLASSES] = {
    let mut blocks = [(0, 0); CLASSES];
    let mut number = 0;
    while number < CLASSES {
        let (frames, objects) = Class(number as u8).best_block();
        blocks[number] = (frames as u8, objects as u16);
        number += 1;
    }
    blocks
};

/// A size class by its number, 0 for the smallest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Class(pub(super) u8);

/// How many there are.
pub(super) const CLASSES: usize = 1 + 3 * 8 + 2 * 16 + 12;

impl Class {
    /// The class for `bytes` bytes; `None` above [`OBJECT_BYTES_MAX`].
    pub(super) const fn of(bytes: usize) -> Option<Self> {
        if bytes <= OBJECT_BYTES_MIN {
            return Some(Self(0));
        }
        if bytes > OBJECT_BYTES_MAX {
            return None;
        }
        let below = (bytes - 1).ilog2();
        let start = 1usize << below;
        let (steps, before) = Self::steps(below);
        let step = start / steps;
        Some(Self((before + (bytes - start).div_ceil(step)) as u8))
    }

    /// Steps to the next power of two, and the number of the class of 2^`log` bytes.
    const fn steps(log: u32) -> (usize, usize) {
        let octave = (log - OBJECT_BYTES_MIN.ilog2()) as usize;
        if octave < 3 {
            (8, octave * 8)
        } else {
            (16, 24 + (octave - 3) * 16)
        }
    }

    /// Bytes of an object.
    pub(super) const fn bytes(self) -> usize {
        let number = self.0 as usize;
        let (log, within) = if number < 24 {
            (6 + number / 8, number % 8)
        } else {
            (9 + (number - 24) / 16, (number - 24) % 16)
        };
        let start = 1usize << log;
        start + within * (start / if number < 24 { 8 } else { 16 })
    }

    /// Frames of a block, and objects in it.
    pub(super) fn block(self) -> (usize, usize) {
        let (frames, objects) = BLOCKS[usize::from(self.0)];
        (frames.into(), objects.into())
    }

    const fn best_block(self) -> (usize, usize) {
        let bytes = self.bytes();
        let (mut best, mut frames) = (1, 1);
        while frames <= BLOCK_FRAMES_MAX {
            let (over, least) = ((frames * PAGE_BYTES) % bytes, (best * PAGE_BYTES) % bytes);
            // In parts of a block.
            if over * best < least * frames {
                best = frames;
            }
            frames += 1;
        }
        (best, best * PAGE_BYTES / bytes)
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
            let most = if class.bytes() <= 3200 { 0.1 } else { 0.2 };
            assert!(left_over <= most, "{class:?}: {left_over}");
        }
        let lost = |size: usize| 1.0 - size as f64 / Class::of(size).map_or(0, Class::bytes) as f64;
        let mean =
            (512..=OBJECT_BYTES_MAX).map(lost).sum::<f64>() / (OBJECT_BYTES_MAX - 511) as f64;
        assert!(mean < 0.03, "{mean}");
    }
}
