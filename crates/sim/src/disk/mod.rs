//! Modelled disks and their schedulers.
//!
//! A [`Device`] knows how long a request takes from where it stands; a [`Scheduler`] knows which
//! request is next; a [`Queue`] puts the two together. Blocks are pages of 4 KiB, counted from the
//! start of the swap partition.

mod ata;
mod elevator;
mod fair;
mod habits;
mod models;
mod queue;
mod rotating;
mod seek;
mod settings;
mod solid;
mod wait;
mod write_cache;

pub use ata::Ata;
pub use elevator::{Elevator, Fifo};
pub use fair::{Fair, FairParams};
pub use models::{MODELS, Model, Params, model};
pub use queue::{Finished, Queue, QueueStats};
pub use rotating::{Rotating, RotatingParams};
pub use seek::SeekCurve;
pub use settings::{Refused, Setting, Tunables, scheduler};
pub use solid::{SolidParams, SolidState, fit};
pub use wait::{Anticipatory, AnticipatoryParams};

use serde::{Deserialize, Serialize};

/// Bytes in a block: a page.
pub const BLOCK_BYTES: u64 = outpage_core::units::PAGE_BYTES as u64;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Disk to memory; somebody usually waits.
    Read,
    /// Memory to disk.
    Write,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Named by whoever submits it.
    pub id: u32,
    /// Read or write.
    pub op: Op,
    /// The first block.
    pub block: u64,
    /// How many.
    pub blocks: u32,
    /// For whom: a program's number. Writes of the page daemon have one of their own.
    pub from: u32,
}

impl Request {
    /// The first block after the request.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.block + self.blocks as u64
    }
}

/// Who submits page-outs.
pub const DAEMON: u32 = u32::MAX;

/// How long things take.
pub trait Device: Send {
    /// Begins `request` at `now`; returns when it is complete. Calls come in order of time.
    fn begin(&mut self, now: u64, request: &Request) -> u64;

    /// Commands that the device takes at once.
    fn depth(&self) -> u32 {
        1
    }
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Begin this one.
    Dispatch(Request),
    /// Leave the disk idle until then, unless a request arrives.
    Wait(u64),
    /// There is nothing.
    Empty,
}

/// Which request is next.
pub trait Scheduler: Send {
    /// A request arrives.
    fn push(&mut self, now: u64, request: Request);
    /// The disk is free.
    fn next(&mut self, now: u64) -> Next;
    /// A request that was dispatched is complete.
    fn completed(&mut self, now: u64, request: &Request) {
        let _ = (now, request);
    }
    /// `request` arrives where nothing waits and the disk is free: whether it begins at once, as after
    /// [`Self::push`] and [`Self::next`]. False where that is to be decided by these.
    fn pass(&mut self, request: &Request) -> bool {
        let _ = request;
        false
    }
    /// Requests that wait.
    fn waiting(&self) -> usize;
    /// Whether it may leave the disk idle for a request to come: then [`Self::next`] is to be asked
    /// even when nothing waits.
    fn idles(&self) -> bool {
        false
    }
}

/// A scheduler of the registry.
pub struct SchedulerEntry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What can be set of it.
    pub settings: &'static [Setting],
    /// Makes one.
    pub build: fn(&Tunables) -> Box<dyn Scheduler>,
}

/// Every scheduler.
pub static SCHEDULERS: &[SchedulerEntry] = &[
    SchedulerEntry {
        name: "fifo",
        summary: "in order of arrival",
        source: "-",
        settings: &[],
        build: |_| Box::new(Fifo::default()),
    },
    SchedulerEntry {
        name: "elevator",
        summary: "one-way elevator: upwards from the last request, then from the lowest",
        source: "4.4BSD disksort; FreeBSD bioq_disksort(9)",
        settings: &[],
        build: |_| Box::new(Elevator::default()),
    },
    SchedulerEntry {
        name: "ata",
        summary: "one-way elevator that starts at the first request that waits",
        source: "FreeBSD 6 to 8, dev/ata/ata-queue.c:ata_sort_queue",
        settings: &[],
        build: |_| Box::new(Ata::default()),
    },
    SchedulerEntry {
        name: "cfq",
        summary: "time slices for each reader, one queue for writes, idling for the next read",
        source: "Linux Documentation/block/cfq-iosched.txt",
        settings: settings::CFQ,
        build: |tunables| Box::new(Fair::new(tunables.cfq)),
    },
    SchedulerEntry {
        name: "anticipatory",
        summary: "batches of reads and of writes, waiting for the last reader's next read",
        source: "Linux Documentation/block/as-iosched.txt; Iyer and Druschel, SOSP 2001",
        settings: settings::ANTICIPATORY,
        build: |tunables| Box::new(Anticipatory::new(tunables.anticipatory)),
    },
];

/// Nanoseconds that `blocks` blocks take at `bytes_per_s`, rounded up.
#[must_use]
pub fn transfer_ns(blocks: u64, bytes_per_s: u64) -> u64 {
    (blocks * BLOCK_BYTES * 1_000_000_000).div_ceil(bytes_per_s)
}
