//! Which pages leave: the policies of reclaim.
//!
//! A policy orders pages on the queues of [`Pages`]; the pager decides when and how many. A
//! daemon ([`bsd`]) decides that by itself, as in the kernel that it comes from.

use alloc::boxed::Box;

use crate::contract::Body;
use crate::page::{PageId, Pages};

pub mod bsd;
mod second_chance;

pub use second_chance::SecondChance;

/// How a page came to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapped {
    /// Zero-filled or found resident.
    Fresh,
    /// Read back from its slot.
    PagedIn,
    /// Touched while it was staged.
    Rescued,
    /// Could not be detached a while ago; may be tried again.
    Refused,
}

/// A reclaim policy. Called with the page on no queue, unless said.
pub trait Reclaim: Send {
    /// The name on the command line.
    fn name(&self) -> &'static str;
    /// The page is mapped from now on.
    fn mapped(&mut self, pages: &mut Pages, id: PageId, how: Mapped);
    /// The page was detached; dirty or clean is in its flags.
    fn detached(&mut self, pages: &mut Pages, id: PageId);
    /// The page came with a read-ahead and waits, clean, for its first touch.
    fn read_ahead(&mut self, pages: &mut Pages, id: PageId);
    /// The page is clean from now on.
    fn cleaned(&mut self, pages: &mut Pages, id: PageId);
    /// The page could not be written.
    fn not_written(&mut self, pages: &mut Pages, id: PageId);
    /// The next victim to detach, taken off its queue.
    fn victim(&mut self, pages: &mut Pages) -> Option<PageId>;
    /// The next staged page to page out or to clean, taken off its queue.
    fn launder(&mut self, pages: &mut Pages) -> Option<PageId>;
    /// The next clean page to free, taken off its queue.
    fn release(&mut self, pages: &mut Pages) -> Option<PageId>;
}

/// A policy, by who drives it.
pub enum Policy {
    /// The pager: whenever it needs victims, clean pages or frames.
    Driven(Box<dyn Reclaim>),
    /// It drives itself.
    Daemon(bsd::Params),
}

impl Policy {
    /// Whether the policy reads referenced bits, which a live body does not have.
    #[must_use]
    pub const fn needs_referenced(&self) -> bool {
        matches!(self, Self::Daemon(_))
    }
}

/// One policy of the registry.
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Whether it reads referenced bits: only for bodies that have them.
    pub needs_referenced: bool,
    /// Makes one.
    pub build: fn() -> Policy,
}

/// Every reclaim policy.
pub static REGISTRY: &[Entry] = &[
    Entry {
        name: "second-chance",
        summary: "FIFO of mapped pages; staged pages that are touched become active again",
        source: "the two-list scheme of 4.4BSD, with staging in place of referenced bits",
        needs_referenced: false,
        build: || Policy::Driven(Box::new(SecondChance)),
    },
    Entry {
        name: "bsd-6.2",
        summary: "the page daemon of FreeBSD 6.2: four queues, passes, aged references",
        source: "FreeBSD 6.2, vm_pageout.c; the baseline of MOC",
        needs_referenced: true,
        build: || Policy::Daemon(bsd::Params::new(bsd::Release::V6_2)),
    },
    Entry {
        name: "bsd-8.2",
        summary: "the page daemon of FreeBSD 8.2: as 6.2, with cached pages out of their objects",
        source: "FreeBSD 8.2, vm_pageout.c; the baseline of mClustering",
        needs_referenced: true,
        build: || Policy::Daemon(bsd::Params::new(bsd::Release::V8_2)),
    },
];

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}

/// The policies that work with `body`.
pub fn offered(body: Body) -> impl Iterator<Item = &'static Entry> {
    REGISTRY
        .iter()
        .filter(move |entry| body.bits || !entry.needs_referenced)
}

/// A policy was asked for that there is not, or not for this body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOffered<'a> {
    /// The name that was asked for.
    pub name: &'a str,
    /// The body.
    pub body: Body,
}

impl core::fmt::Display for NotOffered<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = self.name;
        match find(name) {
            Some(_) => write!(
                f,
                "reclaim policy {name} needs referenced bits, which cannot be had here"
            )?,
            None => write!(f, "there is no reclaim policy '{name}'")?,
        }
        let mut before = "; there are ";
        for entry in offered(self.body) {
            write!(f, "{before}{}", entry.name)?;
            before = ", ";
        }
        Ok(())
    }
}

impl core::error::Error for NotOffered<'_> {}

/// The policy called `name`, if it works with `body`.
///
/// # Errors
/// When there is none of that name, or it needs what the body does not have.
pub fn find_for(name: &str, body: Body) -> Result<&'static Entry, NotOffered<'_>> {
    offered(body)
        .find(|entry| entry.name == name)
        .ok_or(NotOffered { name, body })
}
