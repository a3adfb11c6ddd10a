//! First in, first out, with a second chance: a staged page that is touched is rescued.
//!
//! The active, inactive and cache queues of 4.4BSD. Where BSD looks at referenced bits, this one
//! detaches the page and waits for a touch: the time on the inactive and cache queues is the second chance.

use super::{Mapped, Reclaim};
use crate::page::{DIRTY, PageId, Pages, Queue};

/// The policy; its state is the queues.
pub struct SecondChance;

impl Reclaim for SecondChance {
    fn name(&self) -> &'static str {
        "second-chance"
    }

    fn mapped(&mut self, pages: &mut Pages, id: PageId, _how: Mapped) {
        pages.push(Queue::Active, id);
    }

    fn detached(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Inactive, id);
    }

    fn read_ahead(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Inactive, id);
    }

    fn cleaned(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Cache, id);
    }

    fn not_written(&mut self, pages: &mut Pages, id: PageId) {
        pages.push(Queue::Inactive, id);
    }

    fn victim(&mut self, pages: &mut Pages) -> Option<PageId> {
        pages.pop(Queue::Active)
    }

    fn launder(&mut self, pages: &mut Pages) -> Option<PageId> {
        pages.pop(Queue::Inactive)
    }

    /// The cache's oldest; clean inactive pages when the cache is empty and they are next anyway.
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
}
