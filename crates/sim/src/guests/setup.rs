//! What a machine with guests is made of.

use outpage_core::contract::Event;
use outpage_core::pager::Pager;
use outpage_core::units::Nanos;

use super::sysbench::{Sysbench, SysbenchParams};
use crate::disk::Queue;
use crate::programs::{Jvm, JvmParams, Program};
use crate::world::{self, Costs, DiskSpec, Policies, SetupError};

/// What runs in a guest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Work {
    /// Sysbench's memory test.
    Sysbench(SysbenchParams),
    /// A Java heap. Its pages are those of the guest's processes, not its frames.
    Jvm(JvmParams),
}

impl Work {
    /// The program, its pages in memory object `object`.
    pub(super) fn build(&self, object: u32) -> Box<dyn Program> {
        match *self {
            Self::Sysbench(params) => Box::new(Sysbench::new(params, object)),
            Self::Jvm(params) => Box::new(Jvm::new(params, object)),
        }
    }
}

/// The notifier of a guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotifySetup {
    /// Entries of a ring.
    pub entries: u32,
    /// The guest drains the rings so often, microseconds.
    pub drain_us: u32,
    /// The most pages that it hides, percent of its frames.
    pub hidden_percent: u32,
    /// Whether it gives all hidden pages back when it is out of memory.
    pub rescues: bool,
}

/// A guest.
#[derive(Clone, PartialEq, Debug)]
pub struct GuestSetup {
    /// Frames that its programs can use: its memory without its kernel's.
    pub frames: u64,
    /// Of these, frames that a balloon holds from the beginning.
    pub balloon: u64,
    /// Slots of its swap space; 0 for none.
    pub swap_slots: u32,
    /// Where its swap space begins on the disk, MiB behind the host's.
    pub swap_at_mib: u64,
    /// Its policies.
    pub policies: Policies,
    /// Whether, and how, it is told of what the host pages out.
    pub notify: Option<NotifySetup>,
    /// What it runs.
    pub work: Work,
}

/// A host and its guests.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Frames for the guests: the host's memory without its kernel's and that of the guests' kernels.
    pub frames: u64,
    /// Slots of its swap space.
    pub swap_slots: u32,
    /// Its policies.
    pub policies: Policies,
    /// The disk that all swap spaces are on.
    pub disk: DiskSpec,
    /// Its scheduler.
    pub scheduler: String,
    /// CPU time of what kernels do, in the host and in the guests.
    pub costs: Costs,
    /// The guests.
    pub guests: Vec<GuestSetup>,
}

impl Setup {
    /// The host's pager, and the disk.
    pub(super) fn host(&self) -> Result<(Pager, Queue), SetupError> {
        let level = self.level(self.frames, self.swap_slots, &self.policies);
        Ok((level.pager()?.0, level.queue()?))
    }

    /// A guest's pager. Without swap space it does nothing until its frames are gone.
    pub(super) fn guest(&self, guest: &GuestSetup) -> Result<Pager, SetupError> {
        let frames = guest.frames.saturating_sub(guest.balloon);
        let level = self.level(frames, guest.swap_slots, &guest.policies);
        let mut pager = level.pager()?.0;
        if guest.swap_slots == 0 {
            pager.handle(Nanos(0), Event::Limit(2 * frames as usize));
        }
        Ok(pager)
    }

    fn level(&self, frames: u64, slots: u32, policies: &Policies) -> world::Setup {
        world::Setup {
            // Two that a device never uses, and one, so that there is a range.
            swap_slots: slots.max(3),
            policies: policies.clone(),
            disk: self.disk.clone(),
            scheduler: self.scheduler.clone(),
            costs: self.costs,
            ..world::Setup::live(frames, Vec::new())
        }
    }
}
