//! Where a victim goes: into a pool of compressed pages in RAM, or to the store.
//!
//! The pool takes frames of the same limit: what it keeps, the program does not have. A page that comes back out of it costs a decompression
//! in place of a read. A policy says which victims go there, and how many frames the pool may take; the pager sends its oldest pages to
//! the store when it has more. How pages are compressed is the body's business.

use alloc::boxed::Box;
use core::fmt;

use crate::choice;
use crate::settings::{Setting, Values};
use crate::units::PageNo;

mod always;
mod auto;
mod cervera;
mod costs;

pub use auto::{BEYOND, Sight};
pub use costs::{Costs, Whence};

/// What led to a page that is out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// It is touched, and no touch before it led there.
    Apart,
    /// It is touched, as the next of a stream. In the store that counts where reading ahead would have brought it but for want of frames, or for more streams
    /// than it follows.
    Next,
    /// It is the next of a stream in the pool, and comes along with one that is touched.
    Along,
}

/// A tier policy. Nothing here allocates after construction. What a policy is told does nothing where it does not learn from it.
pub trait Tier: Send {
    /// Whether the victim goes to the pool. Asked once for each time that a page is to leave.
    fn pools(&mut self, victim: PageNo) -> bool;

    /// Whether victims that the store has as they are go there too. They keep their slots.
    fn pools_clean(&self) -> bool {
        true
    }

    /// The victim was compressed to `bytes` bytes.
    fn kept(&mut self, _victim: PageNo, _bytes: u16) {}

    /// The victim does not compress well enough to be kept.
    fn unfit(&mut self, _victim: PageNo) {}

    /// The page comes out of the pool because it is touched, or because one before it is.
    fn hit(&mut self, _page: PageNo, _how: Touched) {}

    /// A touch found the page in the store: it is read, with others as read-ahead says.
    fn missed(&mut self, _page: PageNo, _how: Touched) {}

    /// The page is read from the store, whether it was touched or not.
    fn read(&mut self, _page: PageNo) {}

    /// The page went from the pool to the store, or is only there from now on, the pool having more frames than it may.
    fn demoted(&mut self, _page: PageNo) {}

    /// Some more were waited for; asked now and then, so that the pool's part follows.
    fn weigh(&mut self, _sight: &Sight<'_>) {}

    /// Frames that the pool may take, with `frames` frames in all.
    fn pool_frames(&self, frames: usize) -> usize;

    /// The same where the store is full: what the pool does not take can go nowhere else.
    fn pool_frames_max(&self, frames: usize) -> usize {
        self.pool_frames(frames)
    }
}

/// How pages that go from the pool to the store are written there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Written {
    /// As pages: a slot holds what a page holds.
    Plain,
    /// As they were compressed, several in a block.
    Compressed,
}

/// One policy of the registry.
#[derive(Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Name of the codec that its pages are compressed by; empty where there is no pool.
    pub codec: &'static str,
    /// What it needs of the store.
    pub written: Written,
    /// What can be set of it.
    pub settings: &'static [&'static Setting],
    /// Makes one of values of these settings; `None` where there is no pool.
    pub build: fn(&Values) -> Option<Box<dyn Tier>>,
}

/// Every tier policy, the default first.
pub static REGISTRY: &[Entry] = &[
    auto::ENTRY,
    Entry {
        name: "none",
        summary: "every victim is written to the store",
        source: "Outpage",
        codec: "",
        written: Written::Plain,
        settings: &[],
        build: |_| None,
    },
    always::LZ4,
    always::ZSTD,
    cervera::ENTRY,
];

impl choice::Offer for Entry {
    const KIND: &'static str = "tier policy";

    fn registry() -> &'static [Self] {
        REGISTRY
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn settings(&self) -> &'static [&'static Setting] {
        self.settings
    }
}

/// A policy with what was set of it.
pub type Choice = choice::Choice<Entry>;

/// Why a policy cannot be had as it was asked for.
pub type Refused<'a> = choice::Refused<NotOffered<'a>>;

impl Choice {
    /// Reads a name and settings, as in `lz4:pool=50`, for a store that writes pages like `store` at most.
    ///
    /// # Errors
    /// When there is no such policy, it needs another store, or a setting is wrong.
    pub fn parse(text: &str, store: Written) -> Result<Self, Refused<'_>> {
        Self::read(text, |name| {
            let found = offered(store).find(|entry| entry.name == name);
            found.ok_or(NotOffered { name, store })
        })
    }

    /// Makes one; `None` where there is no pool.
    #[must_use]
    pub fn build(&self) -> Option<Box<dyn Tier>> {
        (self.entry().build)(self.values())
    }
}

/// The policies that work with a store that writes pages like `store` at most.
pub fn offered(store: Written) -> impl Iterator<Item = &'static Entry> {
    REGISTRY.iter().filter(move |entry| entry.written <= store)
}

/// A policy was asked for that there is not, or not for this store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOffered<'a> {
    /// The name that was asked for.
    pub name: &'a str,
    /// What the store can do.
    pub store: Written,
}

impl fmt::Display for NotOffered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match REGISTRY.iter().any(|entry| entry.name == name) {
            true => write!(
                f,
                "tier policy {name} is for the simulator alone: no live store writes pages as they were compressed"
            )?,
            false => write!(f, "there is no tier policy '{name}'")?,
        }
        choice::list(f, offered(self.store))
    }
}
