//! Other replacement policies, for comparison: each from its own paper, over plain strings of
//! page references.
//!
//! A rival sees single references and a fixed number of frames. It knows nothing of page-out,
//! clusters or read-ahead: what it shows is the number of misses of its replacement order alone.

use crate::trace::PageString;

mod arc;
mod clock;
mod clock_pro;
mod links;
mod lirs;
mod lru;
mod s3_fifo;
mod table;
mod two_q;

pub use table::{Cell, OPT, Progress, Table, compare};

/// A replacement policy over page numbers.
pub trait Rival {
    /// References `page` and returns whether it was resident. The page is resident afterwards.
    fn reference(&mut self, page: u32) -> bool;
}

/// What a policy is built from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// The frames, at least one.
    pub frames: u32,
    /// The numbers of the pages lie below this.
    pub pages: u32,
}

/// A policy in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The paper that it comes from.
    pub source: &'static str,
    /// Builds the policy with the parameters of its paper and no page resident.
    pub build: fn(Size) -> Box<dyn Rival>,
}

impl Entry {
    /// The misses of the policy on `string` with `frames` frames, first references included.
    ///
    /// # Panics
    /// When there is no frame.
    #[must_use]
    pub fn misses(&self, string: &PageString, frames: u32) -> u64 {
        assert!(frames > 0, "{} needs a frame", self.name);
        let mut rival = (self.build)(Size {
            frames,
            pages: string.distinct() as u32,
        });
        let missed = |&page: &u32| !rival.reference(page);
        string.numbers().filter(missed).count() as u64
    }
}

/// All policies.
pub static REGISTRY: &[Entry] = &[
    lru::ENTRY,
    clock::ENTRY,
    two_q::ENTRY,
    arc::ENTRY,
    lirs::ENTRY,
    clock_pro::ENTRY,
    s3_fifo::ENTRY,
];

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}
