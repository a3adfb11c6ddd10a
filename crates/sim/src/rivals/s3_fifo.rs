//! S3-FIFO: a small FIFO filters pages that come once, a main FIFO with reinsertion holds the rest.

use super::links::{Links, List};
use super::{Entry, Rival, Size};

pub(super) const ENTRY: Entry = Entry {
    name: "s3-fifo",
    summary: "a small FIFO before the main one, and a queue of the pages that the small one lost",
    source: "Yang, Zhang, Qiu, Yue and Vinayak, FIFO queues are all you need, SOSP 2023, \
             algorithm 1: S 10 %, G as many entries as M",
    build: |size| Box::new(S3Fifo::new(size)),
};

/// The counter of a page stops here: 2 bits (section 4.1).
const COUNT_MAX: u8 = 3;

struct S3Fifo {
    frames: u32,
    /// The target of S: 10 % of the frames (section 4.1), at least one page.
    small_target: u32,
    links: Links,
    small: List,
    main: List,
    ghost: List,
    place: Vec<Place>,
    /// References since the page came, at most [`COUNT_MAX`].
    count: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Small,
    Main,
    /// Not resident.
    Ghost,
}

impl S3Fifo {
    fn new(size: Size) -> Self {
        Self {
            frames: size.frames,
            small_target: (size.frames / 10).max(1),
            links: Links::new(size.pages),
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: List::EMPTY,
            place: vec![Place::Nowhere; size.pages as usize],
            count: vec![0; size.pages as usize],
        }
    }

    /// M's share: what S does not have. G remembers as many pages (section 4.1).
    const fn main_target(&self) -> u32 {
        self.frames - self.small_target
    }

    fn evict_small(&mut self) {
        while let Some(tail) = self.small.pop(&mut self.links) {
            if self.count[tail as usize] <= 1 {
                self.remember(tail);
                return;
            }
            self.main.push(&mut self.links, tail);
            self.place[tail as usize] = Place::Main;
            // Section 4.1: the bits are cleared during the move.
            self.count[tail as usize] = 0;
            if self.main.len() > self.main_target() {
                self.evict_main();
            }
        }
    }

    fn evict_main(&mut self) {
        while let Some(tail) = self.main.pop(&mut self.links) {
            if self.count[tail as usize] == 0 {
                self.place[tail as usize] = Place::Nowhere;
                return;
            }
            self.count[tail as usize] -= 1;
            self.main.push(&mut self.links, tail);
        }
    }

    fn remember(&mut self, page: u32) {
        self.ghost.push(&mut self.links, page);
        self.place[page as usize] = Place::Ghost;
        if self.ghost.len() > self.main_target()
            && let Some(forgotten) = self.ghost.pop(&mut self.links)
        {
            self.place[forgotten as usize] = Place::Nowhere;
        }
    }
}

impl Rival for S3Fifo {
    fn reference(&mut self, page: u32) -> bool {
        let at = page as usize;
        if matches!(self.place[at], Place::Small | Place::Main) {
            self.count[at] = (self.count[at] + 1).min(COUNT_MAX);
            return true;
        }
        while self.small.len() + self.main.len() >= self.frames {
            if self.small.len() >= self.small_target {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
        if self.place[at] == Place::Ghost {
            self.ghost.remove(&mut self.links, page);
            self.main.push(&mut self.links, page);
            self.place[at] = Place::Main;
        } else {
            self.small.push(&mut self.links, page);
            self.place[at] = Place::Small;
        }
        self.count[at] = 0;
        false
    }
}
