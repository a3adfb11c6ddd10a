//! Who holds which part of the swap file that the processes of a tree share.
//!
//! The file is divided into extents. A process leases an extent before it puts slots there; a
//! forked child holds its parent's extents too, because both page in from them. An extent is free
//! when nobody holds it. The table is eight words of holder bits an extent, and needs no lock.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use outpage_sys::shareable;

use super::word::{self, place};
use super::{MEMBERS_MAX, MemberId};

/// Bytes in an extent: 16 MiB, 16 write chunks of the largest size.
pub const EXTENT_BYTES: u64 = 16 << 20;
/// Slots in an extent.
pub const EXTENT_SLOTS: u32 = (EXTENT_BYTES >> outpage_core::units::PAGE_SHIFT) as u32;
/// Most extents of a swap file: 1 TiB.
pub const EXTENTS_MAX: usize = 1 << 16;

const WORDS: usize = MEMBERS_MAX / 64;

shareable! {
    /// The table of holders.
    pub(super) struct Extents {
        /// No extent from here on was ever held: nobody looks there, which would give the table frames.
        end: AtomicU64,
        holders: [[AtomicU64; WORDS]; EXTENTS_MAX],
    }
}

impl Extents {
    /// Takes a free extent below `cap` for `member`; `None` when there is none.
    pub(super) fn lease(&self, member: MemberId, cap: usize) -> Option<u32> {
        let extents = &self.holders[..cap.min(EXTENTS_MAX)];
        word::lease(extents, &self.end, member)
    }

    /// Makes `to` a holder of everything that `from` holds.
    pub(super) fn share(&self, from: MemberId, to: MemberId) {
        word::share(self.ever_held(), from, to);
    }

    /// Ends `member`'s hold of one extent.
    pub(super) fn drop_one(&self, extent: u32, member: MemberId) {
        let (word, bit) = place(member);
        self.holders[extent as usize][word].fetch_and(!bit, SeqCst);
    }

    /// Whether somebody other than `member` holds `extent`.
    pub(super) fn is_shared(&self, extent: u32, member: MemberId) -> bool {
        let (mine, bit) = place(member);
        let words = self.holders[extent as usize].iter().enumerate();
        words
            .map(|(i, word)| word.load(SeqCst) & if i == mine { !bit } else { u64::MAX })
            .any(|others| others != 0)
    }

    /// Ends all holds of `member`.
    pub(super) fn drop_all(&self, member: MemberId) {
        word::drop_all(self.ever_held(), member);
    }

    fn ever_held(&self) -> &[[AtomicU64; WORDS]] {
        &self.holders[..(self.end.load(SeqCst) as usize).min(EXTENTS_MAX)]
    }

    /// How many members hold `extent`.
    #[cfg(test)]
    pub(super) fn holders(&self, extent: u32) -> u32 {
        self.holders[extent as usize]
            .iter()
            .map(|word| word.load(SeqCst).count_ones())
            .sum()
    }

    /// The extents that `member` holds.
    #[cfg(test)]
    pub(super) fn held_by(&self, member: MemberId) -> impl Iterator<Item = u32> {
        let (word, bit) = place(member);
        let held = move |words: &[AtomicU64; WORDS]| words[word].load(SeqCst) & bit != 0;
        (0_u32..)
            .zip(self.ever_held())
            .filter(move |(_, words)| held(words))
            .map(|(index, _)| index)
    }
}
