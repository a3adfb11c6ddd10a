//! What is done with pages whose content the program has given up until further notice.
//!
//! A program marks pages discardable and takes them back later; in between the pager may drop what is in them, without a write, and says page by
//! page whether it did. A policy says when. The source of all but `on-demand` is Subramanian, "Managing Discardable Pages with an External
//! Pager", 1991, section 2.2; `on-demand` is what its section 5 hopes for.

use alloc::boxed::Box;
use core::fmt;

use crate::choice;
use crate::settings::{Setting, Values};

mod marks;
mod nf;
mod on_demand;
mod pf;
mod uf;

pub use marks::Marks;

/// A discard policy. Under each of them a discardable page that is to be written is dropped in its place, and one that is only in its slot is
/// dropped when it is marked.
pub trait Discard: Send {
    /// Whether discardable pages leave before all others, as many as frames are wanted, and stay as they are until their frames are.
    fn leaves_first(&self) -> bool {
        false
    }

    /// The most pages that are dropped with a victim that is to be written, unless some dropped so are on their way still.
    fn ahead(&self) -> u32 {
        0
    }

    /// Whether pages are dropped when the program asks for it.
    fn follows(&self) -> bool {
        false
    }
}

/// One policy of the registry.
#[derive(Debug)]
pub struct Entry {
    /// The name in settings.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What can be set of it.
    pub settings: &'static [&'static Setting],
    /// Makes one of values of these settings; `None` where marks are not kept.
    pub build: fn(&Values) -> Option<Box<dyn Discard>>,
}

/// Every discard policy, the default first.
pub static REGISTRY: &[Entry] = &[
    Entry {
        name: "none",
        summary: "discardable pages are pages as any other",
        source: "NoPager of Subramanian, 1991",
        settings: &[],
        build: |_| None,
    },
    nf::ENTRY,
    pf::ENTRY,
    uf::ENTRY,
    on_demand::ENTRY,
];

impl choice::Offer for Entry {
    const KIND: &'static str = "discard policy";

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
    /// Reads a name and settings, as in `pf:pages=64`.
    ///
    /// # Errors
    /// When there is no such policy, or a setting is wrong.
    pub fn parse(text: &str) -> Result<Self, Refused<'_>> {
        Self::read(text, |name| {
            let found = REGISTRY.iter().find(|entry| entry.name == name);
            found.ok_or(NoSuch(name))
        })
    }

    /// Makes one; `None` where marks are not kept.
    #[must_use]
    pub fn build(&self) -> Option<Box<dyn Discard>> {
        (self.entry().build)(self.values())
    }
}

/// There is no discard policy of this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuch<'a>(pub &'a str);

impl fmt::Display for NoSuch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no discard policy '{}'", self.0)?;
        choice::list(f, REGISTRY.iter())
    }
}
