//! The algorithms that processes run on shared words at once, for words of any kind: those of the
//! session, and those of a model checker, which tries every order of their steps.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

use super::MemberId;

/// A word that several processes read and write.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn swap(&self, value: u64, order: Ordering) -> u64;
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
    fn fetch_max(&self, value: u64, order: Ordering) -> u64;
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64>;

    /// A step between a write and reads of other words, none of which may go first: nothing where
    /// `SeqCst` accesses have one order, as those of the language do.
    fn in_order() {}
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }
    #[inline]
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
    #[inline]
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }
    #[inline]
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }
    #[inline]
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_max(value, order)
    }
    #[inline]
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(old, new, SeqCst, SeqCst)
    }
}

/// Takes up to `pages` frames out of `limit`, of which `reserved` are taken; returns how many. `peak`
/// is the most that ever were.
pub(super) fn take<W: Word>(reserved: &W, peak: &W, limit: u64, pages: u64) -> u64 {
    let mut held = reserved.load(Relaxed);
    loop {
        let granted = pages.min(limit.saturating_sub(held));
        if granted == 0 {
            return 0;
        }
        match reserved.compare_exchange(held, held + granted) {
            Ok(_) => {
                peak.fetch_max(held + granted, Relaxed);
                return granted;
            }
            Err(now) => held = now,
        }
    }
}

/// Gives back all frames that a process which is gone `held`; returns whether so many were reserved.
pub(super) fn give_back<W: Word>(reserved: &W, held: &W) -> bool {
    let pages = held.swap(0, SeqCst);
    reserved.fetch_sub(pages, SeqCst) >= pages
}

/// Word and bit of a member among the holders of an extent.
pub(super) fn place(member: MemberId) -> (usize, u64) {
    (member.index() / 64, 1 << (member.index() % 64))
}

/// Takes the first of `extents` that nobody holds for `member`; `None` when there is none. `end` is
/// raised above each that is looked at.
pub(super) fn lease<W: Word, const N: usize>(
    extents: &[[W; N]],
    end: &W,
    member: MemberId,
) -> Option<u32> {
    // A scan that met somebody else's attempt may have skipped an extent that both gave up.
    const SCANS_MAX: usize = 16;
    for _ in 0..SCANS_MAX {
        let mut contended = false;
        for (index, words) in (0_u32..).zip(extents) {
            if u64::from(index) >= end.load(SeqCst) {
                // Before the lease: who is killed in between is buried whole.
                end.fetch_max(u64::from(index) + 1, SeqCst);
            }
            match try_lease(words, member) {
                Attempt::Leased => return Some(index),
                Attempt::Held => {}
                Attempt::Contended => contended = true,
            }
        }
        if !contended {
            return None;
        }
    }
    None
}

enum Attempt {
    Leased,
    Held,
    Contended,
}

/// Claims the member's own word first and then looks at the others: of two that do so at once, at
/// least one sees the other and gives way.
fn try_lease<W: Word, const N: usize>(words: &[W; N], member: MemberId) -> Attempt {
    if words.iter().any(|word| word.load(SeqCst) != 0) {
        return Attempt::Held;
    }
    let (mine, bit) = place(member);
    if words[mine].compare_exchange(0, bit).is_err() {
        return Attempt::Contended;
    }
    W::in_order();
    let mut others = words.iter().enumerate().filter(|&(i, _)| i != mine);
    if others.any(|(_, word)| word.load(SeqCst) != 0) {
        words[mine].fetch_and(!bit, SeqCst);
        return Attempt::Contended;
    }
    Attempt::Leased
}

/// Makes `to` a holder of every one of `extents` that `from` holds.
pub(super) fn share<W: Word, const N: usize>(extents: &[[W; N]], from: MemberId, to: MemberId) {
    let ((from_word, from_bit), (to_word, to_bit)) = (place(from), place(to));
    for words in extents {
        if words[from_word].load(SeqCst) & from_bit != 0 {
            words[to_word].fetch_or(to_bit, SeqCst);
        }
    }
}

/// Ends all holds of `member`.
pub(super) fn drop_all<W: Word, const N: usize>(extents: &[[W; N]], member: MemberId) {
    let (word, bit) = place(member);
    for words in extents {
        if words[word].load(SeqCst) & bit != 0 {
            words[word].fetch_and(!bit, SeqCst);
        }
    }
}

#[cfg(test)]
mod models;
