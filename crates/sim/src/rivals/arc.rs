//! ARC: two LRU lists, for pages seen once and seen again, that share the frames by what their
//! ghosts say.

use super::links::{Links, List};
use super::{Entry, Rival, Size};

pub(super) const ENTRY: Entry = Entry {
    name: "arc",
    summary: "recency and frequency lists whose shares follow the hits among pages that just left",
    source: "Megiddo and Modha, ARC, FAST 2003, figure 4; no parameter",
    build: |size| Box::new(Arc::new(size)),
};

struct Arc {
    frames: u32,
    /// The share of `t1` that is aimed at, in pages: a real number in the paper.
    p: f64,
    links: Links,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
    place: Vec<Place>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    T1,
    T2,
    /// Left `t1`; not resident.
    B1,
    /// Left `t2`; not resident.
    B2,
}

impl Arc {
    fn new(size: Size) -> Self {
        Self {
            frames: size.frames,
            p: 0.0,
            links: Links::new(size.pages),
            t1: List::EMPTY,
            t2: List::EMPTY,
            b1: List::EMPTY,
            b2: List::EMPTY,
            place: vec![Place::Nowhere; size.pages as usize],
        }
    }

    /// REPLACE(x, p) of the paper; `in_b2` says whether x lies in B2.
    fn replace(&mut self, in_b2: bool) {
        let t1 = f64::from(self.t1.len());
        if self.t1.len() > 0 && (t1 > self.p || (in_b2 && t1 == self.p)) {
            if let Some(victim) = self.t1.pop(&mut self.links) {
                self.b1.push(&mut self.links, victim);
                self.place[victim as usize] = Place::B1;
            }
        } else if let Some(victim) = self.t2.pop(&mut self.links) {
            self.b2.push(&mut self.links, victim);
            self.place[victim as usize] = Place::B2;
        }
    }

    /// Case IV: the page is on no list.
    fn make_room(&mut self) {
        let l1 = self.t1.len() + self.b1.len();
        let both = l1 + self.t2.len() + self.b2.len();
        if l1 == self.frames {
            let ghosts = self.t1.len() < self.frames;
            let list = if ghosts { &mut self.b1 } else { &mut self.t1 };
            if let Some(forgotten) = list.pop(&mut self.links) {
                self.place[forgotten as usize] = Place::Nowhere;
            }
            if ghosts {
                self.replace(false);
            }
        } else if both >= self.frames {
            if both == 2 * self.frames
                && let Some(forgotten) = self.b2.pop(&mut self.links)
            {
                self.place[forgotten as usize] = Place::Nowhere;
            }
            self.replace(false);
        }
    }
}

impl Rival for Arc {
    fn reference(&mut self, page: u32) -> bool {
        let (b1, b2) = (f64::from(self.b1.len()), f64::from(self.b2.len()));
        let place = self.place[page as usize];
        let links = &mut self.links;
        match place {
            Place::T1 => self.t1.remove(links, page),
            Place::T2 => self.t2.remove(links, page),
            Place::B1 => {
                self.p = (self.p + (b2 / b1).max(1.0)).min(f64::from(self.frames));
                self.replace(false);
                self.b1.remove(&mut self.links, page);
            }
            Place::B2 => {
                self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
                self.replace(true);
                self.b2.remove(&mut self.links, page);
            }
            Place::Nowhere => {
                self.make_room();
                self.t1.push(&mut self.links, page);
                self.place[page as usize] = Place::T1;
                return false;
            }
        }
        self.t2.push(&mut self.links, page);
        self.place[page as usize] = Place::T2;
        matches!(place, Place::T1 | Place::T2)
    }
}
