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

pub use auto::{BEYOND, Sight};

/// What led to a page in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// It is touched, and no touch before it led there.
    Apart,
    /// It is touched, as the next of a stream.
    Next,
    /// It is the next of a stream, and comes along with one that is touched.
    Along,
}

/// A tier policy. Nothing here allocates after construction.
pub trait Tier: Send {
    /// Whether the victim goes to the pool. Asked once for each time that a page is to be written.
    fn pools(&mut self, victim: PageNo) -> bool;

    /// The victim was compressed to `bytes` bytes.
    fn kept(&mut self, victim: PageNo, bytes: u16);

    /// The victim does not compress well enough to be kept.
    fn unfit(&mut self, victim: PageNo);

    /// The page comes out of the pool because it is touched, or because one before it is.
    fn hit(&mut self, page: PageNo, how: Touched);

    /// A touch found the page in the store: it is read, with others as read-ahead says.
    fn missed(&mut self, page: PageNo);

    /// The page is read from the store, whether it was touched or not.
    fn read(&mut self, page: PageNo);

    /// The page went from the pool to the store, the pool having more frames than it may.
    fn demoted(&mut self, page: PageNo);

    /// Some more were waited for; asked now and then, so that the pool's part follows.
    fn weigh(&mut self, sight: &Sight<'_>);

    /// Frames that the pool may take, with `frames` frames in all.
    fn pool_frames(&self, frames: usize) -> usize;
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
        settings: &[],
        build: |_| None,
    },
    always::LZ4,
    always::ZSTD,
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
pub type Refused<'a> = choice::Refused<NoSuch<'a>>;

impl Choice {
    /// Reads a name and settings, as in `lz4:pool=50`.
    ///
    /// # Errors
    /// When there is no such policy, or a setting is wrong.
    pub fn parse(text: &str) -> Result<Self, Refused<'_>> {
        Self::read(text, |name| {
            let found = REGISTRY.iter().find(|entry| entry.name == name);
            found.ok_or(NoSuch(name))
        })
    }

    /// Makes one; `None` where there is no pool.
    #[must_use]
    pub fn build(&self) -> Option<Box<dyn Tier>> {
        (self.entry().build)(self.values())
    }
}

/// There is no tier policy of this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuch<'a>(pub &'a str);

impl fmt::Display for NoSuch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no tier policy '{}'", self.0)?;
        choice::list(f, REGISTRY.iter())
    }
}
