//! 2Q: a page enters the main list only when it is wanted again after it left a FIFO.

use super::links::{Links, List};
use super::{Entry, Rival, Size};

pub(super) const ENTRY: Entry = Entry {
    name: "2q",
    summary: "new pages pass a FIFO; those wanted again after it enter an LRU list",
    source: "Johnson and Shasha, 2Q, VLDB 1994, section 3.2 (full version): Kin 25 %, Kout 50 %",
    build: |size| Box::new(TwoQ::new(size)),
};

struct TwoQ {
    frames: u32,
    /// A1in is cut back once it holds more pages than this: 25 % of the frames (section 3.2).
    kin: u32,
    /// The pages that A1out remembers: 50 % of the frames (section 3.2).
    kout: u32,
    links: Links,
    a1in: List,
    a1out: List,
    am: List,
    place: Vec<Place>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    A1in,
    /// Not resident.
    A1out,
    Am,
}

impl TwoQ {
    fn new(size: Size) -> Self {
        Self {
            frames: size.frames,
            kin: size.frames / 4,
            kout: size.frames / 2,
            links: Links::new(size.pages),
            a1in: List::EMPTY,
            a1out: List::EMPTY,
            am: List::EMPTY,
            place: vec![Place::Nowhere; size.pages as usize],
        }
    }

    /// `reclaimfor` of the paper: frees a frame when none is free.
    fn reclaim(&mut self) {
        if self.a1in.len() + self.am.len() < self.frames {
            return;
        }
        if self.a1in.len() > self.kin {
            if let Some(victim) = self.a1in.pop(&mut self.links) {
                self.a1out.push(&mut self.links, victim);
                self.place[victim as usize] = Place::A1out;
            }
            if self.a1out.len() > self.kout
                && let Some(forgotten) = self.a1out.pop(&mut self.links)
            {
                self.place[forgotten as usize] = Place::Nowhere;
            }
        } else if let Some(victim) = self.am.pop(&mut self.links) {
            self.place[victim as usize] = Place::Nowhere;
        }
    }
}

impl Rival for TwoQ {
    fn reference(&mut self, page: u32) -> bool {
        let at = page as usize;
        match self.place[at] {
            Place::Am => {
                self.am.renew(&mut self.links, page);
                true
            }
            Place::A1in => true,
            Place::A1out => {
                // In the paper's order: the page is still remembered while a frame is freed, and
                // may be what A1out forgets for it.
                self.reclaim();
                if self.place[at] == Place::A1out {
                    self.a1out.remove(&mut self.links, page);
                }
                self.am.push(&mut self.links, page);
                self.place[at] = Place::Am;
                false
            }
            Place::Nowhere => {
                self.reclaim();
                self.a1in.push(&mut self.links, page);
                self.place[at] = Place::A1in;
                false
            }
        }
    }
}
