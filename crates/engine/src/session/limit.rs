//! The session on the fault path: frames, extents and counters. No lock, no system call.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use outpage_stats::layout::State;
use outpage_stats::{Counters, Counts, Latencies, Waits};

use super::{Claim, MemberId, MemberView, Session, Worth, share, word};

impl Session {
    /// The limit of the whole tree, in pages.
    #[must_use]
    pub fn limit_pages(&self) -> u64 {
        self.own.limit_pages
    }

    /// Extents that the swap file may have.
    #[must_use]
    pub fn extents_cap(&self) -> u32 {
        self.own.extents_cap
    }

    /// Frames that all members hold, in pages.
    #[must_use]
    pub fn reserved_pages(&self) -> u64 {
        self.head().reserved.word.load(Relaxed)
    }

    /// Most frames that all members held at once, in pages.
    #[must_use]
    pub fn peak_pages(&self) -> u64 {
        self.head().reserved_peak.word.load(Relaxed)
    }

    /// Takes up to `pages` frames out of the limit for this process; returns how many it got.
    ///
    /// A process killed in the middle loses them for the tree: the limit is never exceeded.
    ///
    /// # Panics
    /// When the process has not joined.
    pub fn reserve(&self, pages: u64) -> u64 {
        let head = self.head();
        let (reserved, peak) = (&head.reserved.word, &head.reserved_peak.word);
        let granted = word::take(reserved, peak, self.limit_pages(), pages);
        if granted == 0 {
            return 0;
        }
        self.set_held(self.held_pages() + granted);
        granted
    }

    /// Gives `pages` frames back.
    ///
    /// # Panics
    /// When the process does not hold that many.
    pub fn release(&self, pages: u64) {
        let held = self.held_pages();
        assert!(held >= pages, "{pages} frames released of {held} held");
        self.set_held(held - pages);
        self.head().reserved.word.fetch_sub(pages, SeqCst);
    }

    /// Frames that this process holds, in pages: 0 before it has joined.
    #[must_use]
    pub fn held_pages(&self) -> u64 {
        self.own.held_pages.load(Relaxed)
    }

    /// What this process holds, as it knows it itself and as others see it.
    fn set_held(&self, pages: u64) {
        self.own.held_pages.store(pages, Relaxed);
        let seen = &self.member(self.joined()).held_pages;
        seen.store(pages, SeqCst);
    }

    /// Says how many frames beyond those held this process could use now, in pages.
    ///
    /// # Panics
    /// When the process has not joined.
    pub fn want(&self, pages: u64) {
        self.member(self.joined()).wants_pages.store(pages, Relaxed);
    }

    /// Says what frames are worth to this process.
    ///
    /// # Panics
    /// When the process has not joined.
    pub fn bid(&self, worth: &Worth) {
        let bid = self.bid_of(self.joined());
        for (word, &gain) in bid.gains.iter().zip(&worth.gains) {
            word.store(gain, Relaxed);
        }
        bid.near.store(worth.near, Relaxed);
        bid.near_pages.store(worth.near_pages, Relaxed);
        bid.spare_pages.store(worth.spare_pages, Relaxed);
        bid.least_pages.store(worth.least_pages, Relaxed);
        bid.fixed_pages.store(worth.fixed_pages, Relaxed);
        bid.asleep.store(worth.asleep.into(), Relaxed);
    }

    /// Frames that this process should hold, so that the others get their share; in pages. `claims` is overwritten, and grows to one for
    /// each member. Equal numbers in the session give equal shares in every process, whose sum is what is lent or the limit.
    ///
    /// `u64::MAX` while everything that the members hold and want fits the limit. Else frames go where they save most (`session/share.rs`).
    ///
    /// # Panics
    /// When the process has not joined.
    pub fn target(&self, claims: &mut Vec<Claim>) -> u64 {
        let me = self.joined();
        claims.clear();
        let mut mine = 0;
        for id in MemberId::all() {
            let state = self.state_or_free(id);
            if state == State::Free {
                continue;
            }
            if id == me {
                mine = claims.len();
            }
            claims.push(self.claim_of(id, state));
        }
        share::divide(self.limit_pages(), claims);
        // A process that others wrote over has no entry, and learns of it at its next look.
        let target = claims.get(mine).map_or(u64::MAX, |claim| claim.target);
        self.member(me).target_pages.store(target, Relaxed);
        target
    }

    fn claim_of(&self, id: MemberId, state: State) -> Claim {
        let (member, bid) = (self.member(id), self.bid_of(id));
        let (held, wants) = (&member.held_pages, &member.wants_pages);
        let mut claim = Claim::of(held.load(Relaxed), wants.load(Relaxed));
        if state == State::Live {
            claim.gives = true;
            claim.worth = Worth {
                gains: std::array::from_fn(|span| bid.gains[span].load(Relaxed)),
                near: bid.near.load(Relaxed),
                near_pages: bid.near_pages.load(Relaxed),
                spare_pages: bid.spare_pages.load(Relaxed),
                least_pages: bid.least_pages.load(Relaxed),
                fixed_pages: bid.fixed_pages.load(Relaxed),
                asleep: bid.asleep.load(Relaxed) != 0,
            };
            if claim.worth.asleep {
                claim.wants = 0;
            }
        }
        claim
    }

    /// Leases a free extent of the swap file to this process; `None`: the file is at its cap.
    ///
    /// # Panics
    /// When the process has not joined.
    #[must_use]
    pub fn lease_extent(&self) -> Option<u32> {
        let (me, table) = (self.joined(), self.extents());
        let extent = table.lease(me, self.extents_cap() as usize)?;
        if !self.own.extents.insert(extent) {
            // This process holds it, and the table forgot.
            self.condemn();
            return None;
        }
        Some(extent)
    }

    /// Ends this process's hold of `extent`; it is free once no other member holds it.
    ///
    /// # Panics
    /// When the process has not joined.
    pub fn release_extent(&self, extent: u32) {
        self.own.extents.remove(extent);
        self.extents().drop_one(extent, self.joined());
    }

    /// Whether another member holds any of `extents`, which this process leased. Then it, or one of its
    /// forefathers, was forked from this process; members that died count until they are buried.
    ///
    /// # Panics
    /// When the process has not joined.
    #[must_use]
    pub fn shares_any(&self, extents: &[u32]) -> bool {
        let (me, table) = (self.joined(), self.extents());
        extents.iter().any(|&extent| table.is_shared(extent, me))
    }

    /// How many members hold `extent`.
    #[cfg(test)]
    pub(super) fn extent_holders(&self, extent: u32) -> u32 {
        self.extents().holders(extent)
    }

    /// The extents that `member` holds, in ascending order.
    #[cfg(test)]
    pub(super) fn extents_of(&self, member: MemberId) -> impl Iterator<Item = u32> {
        self.extents().held_by(member)
    }

    /// This process's counters.
    ///
    /// # Panics
    /// When the process has not joined.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.ledger(self.joined()).counters
    }

    /// The counters of all processes, those that are gone included.
    #[must_use]
    pub fn totals(&self) -> Counts {
        let mut total = self.board().retired.counters.read();
        for view in self.members() {
            total.merge(&view.counts, view.state == State::Live);
        }
        total
    }

    /// How long this process's threads waited for faults.
    ///
    /// # Panics
    /// When the process has not joined.
    #[must_use]
    pub fn latencies(&self) -> &Latencies {
        &self.ledger(self.joined()).latencies
    }

    /// How long the threads of all processes waited, those that are gone included.
    #[must_use]
    pub fn waits(&self) -> Waits {
        let mut total = self.board().retired.latencies.read();
        for view in self.members() {
            total.merge(&self.ledger(view.id).latencies.read());
        }
        total
    }

    /// The members, in order of their ids.
    pub fn members(&self) -> impl Iterator<Item = MemberView> {
        MemberId::all().filter_map(|id| {
            let (state, member) = (self.state_or_free(id), self.member(id));
            (state != State::Free).then(|| MemberView {
                id,
                state,
                pid: member.pid.load(Relaxed),
                held_pages: member.held_pages.load(Relaxed),
                counts: self.ledger(id).counters.read(),
            })
        })
    }

    /// Records the mechanism that the first process chose, for the summary.
    pub fn set_mechanism(&self, mechanism: crate::config::Mechanism) {
        self.head().mechanism.store(mechanism as u32, Relaxed);
    }

    /// The mechanism in use; `Auto` while no process has had to page.
    #[must_use]
    pub fn mechanism(&self) -> crate::config::Mechanism {
        use crate::config::Mechanism;
        match self.head().mechanism.load(Relaxed) {
            1 => Mechanism::Move,
            2 => Mechanism::WriteProtect,
            _ => Mechanism::Auto,
        }
    }
}
