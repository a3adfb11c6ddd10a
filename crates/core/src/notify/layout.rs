//! Where everything lies in the shared area. Numbers of words here, bytes in the header and in the docs.

use core::ops::RangeInclusive;

/// The first word: the bytes `O`, `P`, `H`, `N`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"OPHN");
/// The version of this layout. A guest refuses any other.
pub const VERSION: u32 = 1;
/// Entries that a ring may have, a power of two. The most are 4 MiB of entries.
pub const ENTRIES: RangeInclusive<u32> = 16..=1 << 20;
/// Frames that a guest may have: 2^31 of 4 KiB are 8 TiB, and a bit for each 256 MiB.
pub const FRAMES_MAX: u32 = 1 << 31;

/// Words of the header: one page, so that rings and bits begin at pages, and later versions have room.
pub(super) const HEADER: u32 = 1024;

// What the host writes once.
pub(super) const AT_MAGIC: u32 = 0;
pub(super) const AT_VERSION: u32 = 1;
pub(super) const AT_BYTES: u32 = 2;
pub(super) const AT_FRAMES: u32 = 3;
pub(super) const AT_OUT_OFFSET: u32 = 4;
pub(super) const AT_OUT_ENTRIES: u32 = 5;
pub(super) const AT_IN_OFFSET: u32 = 6;
pub(super) const AT_IN_ENTRIES: u32 = 7;
pub(super) const AT_BITS_OFFSET: u32 = 8;
// What it writes all the time: the next cache line of 64 bytes.
pub(super) const AT_OUT_HEAD: u32 = 16;
pub(super) const AT_IN_HEAD: u32 = 17;
pub(super) const AT_LOST: u32 = 18;
// What the guest writes: the line after that.
pub(super) const AT_OUT_TAIL: u32 = 32;
pub(super) const AT_IN_TAIL: u32 = 33;
pub(super) const AT_SEEN: u32 = 34;
pub(super) const AT_HIDDEN: u32 = 35;
pub(super) const AT_SKIPPED: u32 = 36;
pub(super) const AT_RESCUED: u32 = 37;

/// The sizes of an area, from which all places follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    frames: u32,
    entries: u32,
}

/// One ring, in words.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub head: u32,
    pub tail: u32,
    pub start: u32,
    pub entries: u32,
}

impl Ring {
    /// The word of entry `number`, counted from the first that there ever was.
    pub const fn at(&self, number: u32) -> u32 {
        self.start + (number & (self.entries - 1))
    }
}

impl Layout {
    /// For a guest of `frames` frames and rings of `entries` entries; `None` when there can be no such area:
    /// no frame or more than [`FRAMES_MAX`], entries out of [`ENTRIES`] or no power of two.
    #[must_use]
    pub fn new(frames: u32, entries: u32) -> Option<Self> {
        let sound = (1..=FRAMES_MAX).contains(&frames)
            && ENTRIES.contains(&entries)
            && entries.is_power_of_two();
        sound.then_some(Self { frames, entries })
    }

    /// Guest frames that have a bit.
    #[must_use]
    pub const fn frames(&self) -> u32 {
        self.frames
    }

    /// Words of 4 bytes that the area takes.
    #[must_use]
    pub const fn words(&self) -> usize {
        (self.bits() + self.frames.div_ceil(32)) as usize
    }

    /// The ring of frames that were paged out.
    pub(super) const fn out_ring(&self) -> Ring {
        Ring {
            head: AT_OUT_HEAD,
            tail: AT_OUT_TAIL,
            start: HEADER,
            entries: self.entries,
        }
    }

    /// The ring of frames that were paged in.
    pub(super) const fn in_ring(&self) -> Ring {
        Ring {
            head: AT_IN_HEAD,
            tail: AT_IN_TAIL,
            start: HEADER + self.entries,
            entries: self.entries,
        }
    }

    /// The first word of bits.
    pub(super) const fn bits(&self) -> u32 {
        HEADER + 2 * self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_of_768_mib_takes_what_the_docs_say() {
        let layout = Layout::new(768 << 8, 1 << 16).expect("a sound layout");
        // A page, two rings of 256 KiB, 24 KiB of bits.
        assert_eq!(layout.words() * 4, 4096 + 2 * 262_144 + 24_576);
        assert_eq!(layout.out_ring().at(65_536 + 3), HEADER + 3);
        assert_eq!(layout.in_ring().at(u32::MAX), HEADER + 2 * 65_536 - 1);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(Layout::new(0, 16).is_none());
        assert!(Layout::new(FRAMES_MAX + 1, 16).is_none());
        for entries in [0, 1, 8, 17, 24, (1 << 20) + 1, 1 << 21] {
            assert!(Layout::new(100, entries).is_none(), "{entries}");
        }
        assert!(Layout::new(FRAMES_MAX, 1 << 20).is_some());
        assert_eq!(Layout::new(1, 16).map(|l| l.words()), Some(1024 + 32 + 1));
    }
}
