//! What lies in the shared memory, byte for byte the same in every process of the tree.

use std::sync::atomic::{AtomicU32, AtomicU64};

use outpage_sys::shareable;

use super::MEMBERS_MAX;
use super::counters::{Counters, Counts};
use super::extents::Extents;
use super::latency::{Latencies, Waits};
use super::objects::Table;

/// `OUTPAGES` in ASCII: the first eight bytes.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"OUTPAGES");
/// Changes with every change of [`Layout`].
pub(super) const VERSION: u32 = 4;

/// State of a member entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Nobody's.
    Free = 0,
    /// Reserved by a parent for the child that it is about to fork.
    Forking = 1,
    /// A process with a pager; alive while the pager holds the member's lock.
    Live = 2,
    /// A process that fits as yet; alive while the session's /proc has a process of that number and
    /// start.
    Direct = 3,
}

impl State {
    /// `None` for a number that no process of this version wrote.
    pub(super) fn from_raw(raw: u32) -> Option<Self> {
        [Self::Free, Self::Forking, Self::Live, Self::Direct]
            .into_iter()
            .find(|&state| state as u32 == raw)
    }
}

shareable! {
    /// One process. Cache-line aligned: each pager writes its own entry all the time.
    #[repr(align(64))]
    pub(super) struct Member {
        /// A [`State`].
        pub(super) state: AtomicU32,
        /// Process id in the namespace `pid_namespace`; 0 while a fork has not returned. Of a process in
        /// direct mode, that in the session's /proc.
        pub(super) pid: AtomicU32,
        /// Inode of the pid namespace that `pid` belongs to.
        pub(super) pid_namespace: AtomicU64,
        /// Distinguishes the users of this entry over time.
        pub(super) generation: AtomicU64,
        /// While it is reserved for a fork: the generation of the process that forks.
        pub(super) forked_by: AtomicU64,
        /// While it is reserved for a fork: since when, in ns. Of a process in direct mode: its start in the
        /// session's /proc, in clock ticks.
        pub(super) since: AtomicU64,
        /// Frames reserved, in pages.
        pub(super) held_pages: AtomicU64,
        /// Frames it would reserve beyond those if it could, in pages.
        pub(super) wants_pages: AtomicU64,
        /// Frames it should come down to, in pages.
        pub(super) target_pages: AtomicU64,
    }
}

shareable! {
    /// What a process counted.
    #[derive(Debug, Default)]
    pub(super) struct Ledger {
        pub(super) counters: Counters,
        /// How long its threads waited.
        pub(super) latencies: Latencies,
    }
}

const _: () = assert!(size_of::<Member>() == 64);

impl Ledger {
    /// As before the first count.
    pub(super) fn clear(&self) {
        self.counters.write(&Counts::default());
        self.latencies.write(&Waits::default());
    }
}

shareable! {
    /// The whole. All zeroes is a valid value of every field.
    pub(super) struct Layout {
        pub(super) magic: AtomicU64,
        pub(super) version: AtomicU32,
        /// The mechanism in use, chosen by the first process: 0 unknown, 1 move, 2 write-protect.
        pub(super) mechanism: AtomicU32,
        /// The keeper, as the session's /proc has it, and the inode of its pid namespace; 0: none yet.
        pub(super) keeper_pid: AtomicU32,
        /// The entry at which the next search for ended processes in direct mode begins.
        pub(super) search_from: AtomicU32,
        pub(super) keeper_started: AtomicU64,
        pub(super) keeper_namespace: AtomicU64,
        /// The limit of the whole tree, in pages.
        pub(super) limit_pages: AtomicU64,
        /// Extents that the swap file may have.
        pub(super) extents_cap: AtomicU64,
        /// Generations handed out.
        pub(super) generations: AtomicU64,
        /// Frames reserved by all members, in pages.
        pub(super) reserved: Aligned,
        /// Most of `reserved` at once, in pages.
        pub(super) reserved_peak: Aligned,
        /// What the processes that are gone counted.
        pub(super) retired: Ledger,
        pub(super) members: [Member; MEMBERS_MAX],
        /// What each member counted. Apart from the members, whose states are looked through often: a
        /// look, a read like any other, gives every page that it meets a frame.
        pub(super) ledgers: [Ledger; MEMBERS_MAX],
        /// Memory objects of processes that are gone.
        pub(super) retired_objects: Table,
        /// The memory objects of each member, apart as the ledgers are.
        pub(super) objects: [Table; MEMBERS_MAX],
        pub(super) extents: Extents,
    }
}

shareable! {
    /// A word that shares its cache line with nothing.
    #[repr(align(64))]
    pub(super) struct Aligned {
        pub(super) word: AtomicU64,
    }
}
