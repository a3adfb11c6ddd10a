//! LRU: the page that was not referenced for longest leaves.

use super::links::{Links, List};
use super::{Entry, Rival, Size};

pub(super) const ENTRY: Entry = Entry {
    name: "lru",
    summary: "the page that was not referenced for longest leaves",
    source: "Mattson, Gecsei, Slutz and Traiger, IBM Systems Journal 9(2), 1970, section \
             \"Least recently used\"",
    build: |size| Box::new(Lru::new(size)),
};

struct Lru {
    frames: u32,
    links: Links,
    /// Resident pages, the one referenced last at the end.
    order: List,
    resident: Vec<bool>,
}

impl Lru {
    fn new(size: Size) -> Self {
        Self {
            frames: size.frames,
            links: Links::new(size.pages),
            order: List::EMPTY,
            resident: vec![false; size.pages as usize],
        }
    }
}

impl Rival for Lru {
    fn reference(&mut self, page: u32) -> bool {
        if self.resident[page as usize] {
            self.order.renew(&mut self.links, page);
            return true;
        }
        if self.order.len() == self.frames
            && let Some(victim) = self.order.pop(&mut self.links)
        {
            self.resident[victim as usize] = false;
        }
        self.order.push(&mut self.links, page);
        self.resident[page as usize] = true;
        false
    }
}
