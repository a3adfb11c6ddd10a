//! What lies in the shared memory, byte for byte the same in every process of the tree and for whoever looks.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use outpage_sys::shareable;

use outpage_core::refaults::SPANS;

use crate::counters::{Counters, Counts};
use crate::latency::{Latencies, Waits};
use crate::objects::Table;

/// Most processes at once that have a part of the limit.
pub const MEMBERS_MAX: usize = 512;

/// `OUTPAGES` in ASCII: the first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"OUTPAGES");
/// Changes with every change of [`Board`] and of what processes with a pager keep behind it.
pub const VERSION: u32 = 9;
/// Name of the memfd, as its links under /proc have it.
pub const FILE_NAME: &std::ffi::CStr = c"outpage-session";
/// What [`Head::mechanism`] stands for, as users write it.
pub const MECHANISMS: [&str; 3] = ["auto", "move", "write-protect"];

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
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        [Self::Free, Self::Forking, Self::Live, Self::Direct]
            .into_iter()
            .find(|&state| state as u32 == raw)
    }
}

shareable! {
    /// One process. Cache-line aligned: each pager writes its own entry all the time.
    #[repr(align(64))]
    #[derive(Default)]
    pub struct Member {
        /// A [`State`].
        pub state: AtomicU32,
        /// Process id in the namespace `pid_namespace`; 0 while a fork has not returned. Of a process in
        /// direct mode, that in the session's /proc.
        pub pid: AtomicU32,
        /// Inode of the pid namespace that `pid` belongs to.
        pub pid_namespace: AtomicU64,
        /// Distinguishes the users of this entry over time.
        pub generation: AtomicU64,
        /// While it is reserved for a fork: the generation of the process that forks.
        pub forked_by: AtomicU64,
        /// While it is reserved for a fork: since when, in ns. Of a process in direct mode: its start in the
        /// session's /proc, in clock ticks.
        pub since: AtomicU64,
        /// Frames reserved, in pages.
        pub held_pages: AtomicU64,
        /// Frames it would reserve beyond those if it could, in pages.
        pub wants_pages: AtomicU64,
        /// Frames it should come down to, in pages.
        pub target_pages: AtomicU64,
    }
}

shareable! {
    /// What frames are worth to a process, by which a limit that is too small is divided. Written by its pager alone; cache-line aligned as
    /// the entries are.
    #[repr(align(64))]
    #[derive(Default)]
    pub struct Bid {
        /// What so many frames more would save beyond the next smaller span, in ns a second: 1/128 of the limit, 1/64 ... all of it.
        pub gains: [AtomicU64; SPANS],
        /// What the last `near_pages` frames that it has save, in ns a second.
        pub near: AtomicU64,
        /// How many those are.
        pub near_pages: AtomicU64,
        /// Frames that it holds and does not use, in pages.
        pub spare_pages: AtomicU64,
        /// Frames without which it cannot work, in pages.
        pub least_pages: AtomicU64,
        /// Frames that it needs beside those: their pages cannot leave. In pages.
        pub fixed_pages: AtomicU64,
        /// 1 where it neither ran nor touched anything for a while, and nobody waits for a page.
        pub asleep: AtomicU64,
    }
}

shareable! {
    /// What a process counted.
    #[derive(Debug, Default)]
    pub struct Ledger {
        /// Events, amounts and peaks.
        pub counters: Counters,
        /// How long its threads waited.
        pub latencies: Latencies,
    }
}

const _: () = assert!(size_of::<Member>() == 64);

impl Bid {
    /// As of a process that says nothing yet.
    pub fn clear(&self) {
        let words = [
            &self.near,
            &self.near_pages,
            &self.spare_pages,
            &self.least_pages,
            &self.fixed_pages,
        ];
        for word in words.into_iter().chain(&self.gains).chain([&self.asleep]) {
            word.store(0, Relaxed);
        }
    }
}

impl Ledger {
    /// As before the first count.
    pub fn clear(&self) {
        self.counters.write(&Counts::default());
        self.latencies.write(&Waits::default());
    }
}

shareable! {
    /// What is one for a whole run.
    #[derive(Default)]
    pub struct Head {
        /// [`MAGIC`]; another number where a process found the session damaged.
        pub magic: AtomicU64,
        /// [`VERSION`].
        pub version: AtomicU32,
        /// The mechanism in use, chosen by the first process: its place in [`MECHANISMS`].
        pub mechanism: AtomicU32,
        /// The entry at which the next search for ended processes in direct mode begins.
        pub search_from: AtomicU32,
        /// The keeper, as the session's /proc has it; 0: none yet.
        pub keeper_pid: AtomicU32,
        /// Its start, in clock ticks from the machine's.
        pub keeper_started: AtomicU64,
        /// The inode of its pid namespace; 0: not known.
        pub keeper_namespace: AtomicU64,
        /// The program that was started, as the session's /proc has it; 0: none yet.
        pub program_pid: AtomicU64,
        /// Its start, in clock ticks from the machine's.
        pub program_started: AtomicU64,
        /// The process that keeps the run's shared memory, as the launcher has it; 0: there is none.
        pub home_pid: AtomicU64,
        /// The limit of the whole tree, in pages.
        pub limit_pages: AtomicU64,
        /// Extents that the swap file may have.
        pub extents_cap: AtomicU64,
        /// Generations handed out.
        pub generations: AtomicU64,
        /// Frames reserved by all members, in pages.
        pub reserved: Aligned,
        /// Most of `reserved` at once, in pages.
        pub reserved_peak: Aligned,
    }
}

shareable! {
    /// What the processes of a run tell each other, and whoever looks: the start of the memfd. All zeroes is a valid value of
    /// every field.
    pub struct Board {
        /// What is one for all.
        pub head: Head,
        /// What the processes that are gone counted.
        pub retired: Ledger,
        /// The processes.
        pub members: [Member; MEMBERS_MAX],
        /// What frames are worth to those that have a pager. Apart from the members as what follows is.
        pub bids: [Bid; MEMBERS_MAX],
        /// What each member counted. Apart from the members, whose states are looked through often: a
        /// look, a read like any other, gives every page that it meets a frame.
        pub ledgers: [Ledger; MEMBERS_MAX],
        /// Memory objects of processes that are gone.
        pub retired_objects: Table,
        /// The memory objects of each member, apart as the ledgers are.
        pub objects: [Table; MEMBERS_MAX],
    }
}

shareable! {
    /// A word that shares its cache line with nothing.
    #[repr(align(64))]
    #[derive(Default)]
    pub struct Aligned {
        /// The word.
        pub word: AtomicU64,
    }
}
