//! Which pages leave: the policies of reclaim.
//!
//! The pager decides when victims are wanted and how many. A policy says which: it has the mapped pages on queues of its own
//! ([`Queue::Active`] and [`Queue::Second`], or what it likes), and remembers of those that left what it likes. What lies between, staged pages
//! that wait for page-out or are clean, is the same for all unless a policy says otherwise. A daemon ([`bsd`]) decides when by itself too, as in
//! the kernel that it comes from.

use alloc::boxed::Box;
use core::fmt;

use crate::choice;
use crate::contract::Body;
use crate::limits::Limits;
use crate::page::{DIRTY, PageId, Pages, Queue};
use crate::settings::{Setting, Values};
use marks::Marks;

mod auto;
pub mod bsd;
mod car;
mod early;
mod fifo;
mod lirs;
mod marks;
mod s3_fifo;
mod second_chance;
mod shadow;
mod two_queue;
mod watch;

pub use second_chance::SecondChance;

/// How a page came to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapped {
    /// Zero-filled or found resident: what was known of a page of this id is another's.
    Fresh,
    /// Touched for the first time since it was read back from its slot.
    PagedIn,
    /// Touched while it was staged: it was in use.
    Rescued,
    /// With a neighbour that was touched. Nobody asked for it yet.
    Along,
    /// The program said that it will need it soon.
    Needed,
    /// Could not be detached a while ago; may be tried again.
    Refused,
}

/// A reclaim policy. Called with the page on no queue, unless said. Nothing here allocates that [`Self::reserve`] made room for.
pub trait Reclaim: Send {
    /// Room for what is remembered of pages whose [`PageId::index`] is below `ids`; away from the fault path. What is remembered must not
    /// depend on it: a log is replayed without.
    fn reserve(&mut self, _ids: usize) {}

    /// Bytes of heap for what is remembered.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// What is remembered of pages, where another policy may go on with it.
    fn marks(&mut self) -> Option<&mut Marks> {
        None
    }

    /// Whether [`Self::victim`] looks at [`Queue::Second`].
    fn has_second(&self) -> bool {
        true
    }

    /// The page is mapped from now on: it is put on a queue of mapped pages.
    fn mapped(&mut self, pages: &mut Pages, id: PageId, how: Mapped);

    /// The next victim to detach, taken off its queue.
    fn victim(&mut self, pages: &mut Pages) -> Option<PageId>;

    /// Frames that are to be free or to hold staged pages.
    fn staged_low(&self, limits: &Limits) -> usize {
        limits.staged_low
    }

    /// How many pages [`Self::victim`] could name.
    fn victims(&self, pages: &Pages) -> usize {
        pages.queued(Queue::Active) + pages.queued(Queue::Second)
    }

    /// The page was detached; dirty or clean is in its flags.
    fn detached(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Inactive, id);
    }

    /// The page came with a read-ahead and waits, clean, for its first touch.
    fn read_ahead(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Inactive, id);
    }

    /// The page is clean from now on.
    fn cleaned(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Cache, id);
    }

    /// The page could not be written.
    fn not_written(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Inactive, id);
    }

    /// The next staged page to page out or to clean, taken off its queue.
    fn launder(&mut self, pages: &mut Pages) -> Option<PageId> {
        pages.pop(Queue::Inactive)
    }

    /// The next clean page to free, taken off its queue: the cache's oldest; clean inactive pages when the cache is
    /// empty and they are next anyway.
    fn release(&mut self, pages: &mut Pages) -> Option<PageId> {
        if let Some(id) = pages.pop(Queue::Cache) {
            return Some(id);
        }
        let head = pages.head(Queue::Inactive)?;
        if pages.has(head, DIRTY) {
            return None;
        }
        pages.pop(Queue::Inactive)
    }

    /// The page was mapped once, and its frame is given up: only its slot is left.
    fn left(&mut self, _pages: &Pages, _id: PageId) {}
}

/// `percent` of the frames in use, in frames.
fn share(pages: &Pages, percent: u32) -> usize {
    pages.framed() * percent as usize / 100
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
#[derive(Debug)]
pub struct Entry {
    /// The name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Whether it reads referenced bits: only for bodies that have them.
    pub needs_referenced: bool,
    /// What can be set of it.
    pub settings: &'static [&'static Setting],
    /// Makes one, of values of these settings.
    pub build: fn(&Values) -> Policy,
}

/// Every reclaim policy, the default first.
pub static REGISTRY: &[Entry] = &[
    early::ENTRY,
    second_chance::ENTRY,
    fifo::ENTRY,
    s3_fifo::ENTRY,
    two_queue::ENTRY,
    car::ENTRY,
    lirs::ENTRY,
    auto::ENTRY,
    bsd::ENTRY_6_2,
    bsd::ENTRY_8_2,
];

impl choice::Offer for Entry {
    const KIND: &'static str = "reclaim policy";

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
    /// Reads a name and settings, as in `s3-fifo:small=20`.
    ///
    /// # Errors
    /// When there is no such policy, it needs what `body` does not have, or a setting is wrong.
    pub fn parse(text: &str, body: Body) -> Result<Self, Refused<'_>> {
        Self::read(text, |name| find_for(name, body))
    }

    /// Makes one.
    #[must_use]
    pub fn build(&self) -> Policy {
        (self.entry().build)(self.values())
    }
}

/// The policy called `name`.
fn find(name: &str) -> Option<&'static Entry> {
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

impl fmt::Display for NotOffered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match find(name) {
            Some(_) => write!(
                f,
                "reclaim policy {name} needs referenced bits, which cannot be had here"
            )?,
            None => write!(f, "there is no reclaim policy '{name}'")?,
        }
        choice::list(f, offered(self.body))
    }
}

impl core::error::Error for NotOffered<'_> {}

/// The policy called `name`, if it works with `body`.
///
/// # Errors
/// When there is none of that name, or it needs what the body does not have.
fn find_for(name: &str, body: Body) -> Result<&'static Entry, NotOffered<'_>> {
    offered(body)
        .find(|entry| entry.name == name)
        .ok_or(NotOffered { name, body })
}
