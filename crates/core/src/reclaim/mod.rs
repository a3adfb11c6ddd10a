//! Which pages leave: the policies of reclaim.
//!
//! A policy orders pages on the queues of [`Pages`]; the pager decides when and how many.

use alloc::boxed::Box;

use crate::page::{PageId, Pages};

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
    /// Whether the policy reads referenced bits, which a live body does not have.
    fn needs_referenced(&self) -> bool {
        false
    }
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

/// One policy of the registry.
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Makes one.
    pub build: fn() -> Box<dyn Reclaim>,
}

/// Every reclaim policy.
pub static REGISTRY: &[Entry] = &[Entry {
    name: "second-chance",
    summary: "FIFO of mapped pages; staged pages that are touched become active again",
    source: "the two-list scheme of 4.4BSD, with staging in place of referenced bits",
    build: || Box::new(SecondChance),
}];

/// The policy called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|entry| entry.name == name)
}
