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

/// The extents that one process holds, as it knows them itself: a bit each.
#[derive(Debug, Default)]
pub(super) struct Held(Vec<AtomicU64>);

impl Held {
    /// None of the `cap` extents that there are.
    pub(super) fn new(cap: u32) -> Self {
        let words = (cap as usize).div_ceil(64);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds an extent below the cap; returns whether it was not there.
    pub(super) fn insert(&self, extent: u32) -> bool {
        let bit = 1 << (extent % 64);
        self.0[extent as usize / 64].fetch_or(bit, SeqCst) & bit == 0
    }

    pub(super) fn remove(&self, extent: u32) {
        self.0[extent as usize / 64].fetch_and(!(1 << (extent % 64)), SeqCst);
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, SeqCst));
    }

    fn each(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = word.load(SeqCst);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
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

    /// Adds what `member` holds to `held`.
    pub(super) fn remember(&self, member: MemberId, held: &Held) {
        let (word, bit) = place(member);
        let known = held.0.len() * 64;
        for (extent, words) in (0_u32..).zip(self.ever_held()).take(known) {
            if words[word].load(SeqCst) & bit != 0 {
                held.insert(extent);
            }
        }
    }

    /// Whether the table has `member` as a holder of all that it knows to be its.
    pub(super) fn holds_all(&self, member: MemberId, held: &Held) -> bool {
        let (word, bit) = place(member);
        held.each()
            .all(|extent| self.holders[extent][word].load(SeqCst) & bit != 0)
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
