//! CLOCK-Pro: LIRS's idea on a clock with three hands, with a share of cold pages that adapts.

use super::links::{Links, List};
use super::{Entry, Rival, Size};

pub(super) const ENTRY: Entry = Entry {
    name: "clock-pro",
    summary: "hot and cold pages on one clock; a page that left is tested for an early return",
    source: "Jiang, Chen and Zhang, CLOCK-Pro, USENIX 2005, section 4: adaptive share of cold \
             pages, as many non-resident pages as frames",
    build: |size| Box::new(ClockPro::new(size)),
};

/// The clock is kept as a list that begins at HANDhot, the tail in the paper's words, and ends
/// at the list head: a page that HANDhot moves by goes to the end. The other two hands point, as
/// section 4.2 defines them, to the resident cold page and to the page in its test period that
/// lie farthest from the head. Pages become cold or begin a test at the head only, so both are
/// the first of a list of their own.
///
/// Where section 4 leaves a choice: the cold share begins at 1 %, the share of LIRS; it stays
/// between one page and all but one; a cold page found referenced outside its test period begins
/// one at the head; a test period that HANDhot or HANDtest ends takes one page off the cold share
/// only when the page's referenced bit is clear.
///
/// O(1) a reference, but for what HANDhot moves by: pages whose bits hits have set, and cold
/// pages between two hot ones.
struct ClockPro {
    frames: u32,
    /// The share of resident cold pages that is aimed at (m_c), in pages.
    cold_target: u32,
    hot: u32,
    non_resident: u32,
    clock_links: Links,
    clock: List,
    cold_links: Links,
    /// Resident cold pages in clock order; HANDcold is at the first.
    cold: List,
    test_links: Links,
    /// Pages in their test period in clock order; HANDtest is at the first.
    test: List,
    pages: Vec<Page>,
}

#[derive(Clone, Copy, Default)]
struct Page {
    /// Hot pages are resident.
    hot: bool,
    resident: bool,
    referenced: bool,
    /// In its test period. A cold page that is not resident is, or it is not on the clock.
    tested: bool,
}

impl ClockPro {
    fn new(size: Size) -> Self {
        Self {
            frames: size.frames,
            cold_target: (size.frames / 100).max(1),
            hot: 0,
            non_resident: 0,
            clock_links: Links::new(size.pages),
            clock: List::EMPTY,
            cold_links: Links::new(size.pages),
            cold: List::EMPTY,
            test_links: Links::new(size.pages),
            test: List::EMPTY,
            pages: vec![Page::default(); size.pages as usize],
        }
    }

    fn grow_cold_share(&mut self) {
        let most = (self.frames - 1).max(1);
        self.cold_target = (self.cold_target + 1).min(most);
    }

    /// Ends the test period of `page`. One that is not resident leaves the clock.
    fn end_test(&mut self, page: u32) {
        let state = &mut self.pages[page as usize];
        state.tested = false;
        self.test.remove(&mut self.test_links, page);
        if !state.referenced {
            self.cold_target = (self.cold_target - 1).max(1);
        }
        if !state.resident {
            self.non_resident -= 1;
            self.clock.remove(&mut self.clock_links, page);
        }
    }

    /// `page`, on the clock and in its test period, was referenced: it becomes hot at the head.
    fn promote(&mut self, page: u32) {
        let state = &mut self.pages[page as usize];
        state.hot = true;
        state.referenced = false;
        state.tested = false;
        self.test.remove(&mut self.test_links, page);
        self.clock.renew(&mut self.clock_links, page);
        self.hot += 1;
        self.grow_cold_share();
        self.run_hand_hot();
    }

    /// HANDhot: hot pages become cold until their share is met; it stops at a hot page.
    fn run_hand_hot(&mut self) {
        if self.hot + self.cold_target <= self.frames {
            return;
        }
        while self.hot > 0
            && let Some(page) = self.clock.first()
        {
            if self.pages[page as usize].hot {
                if self.hot + self.cold_target <= self.frames {
                    return;
                }
                self.sweep_hot(page);
            } else {
                self.sweep_cold(page);
            }
        }
    }

    fn sweep_hot(&mut self, page: u32) {
        let state = &mut self.pages[page as usize];
        if state.referenced {
            state.referenced = false;
        } else {
            state.hot = false;
            self.hot -= 1;
            self.cold.push(&mut self.cold_links, page);
        }
        self.clock.renew(&mut self.clock_links, page);
    }

    fn sweep_cold(&mut self, page: u32) {
        if self.pages[page as usize].tested {
            self.end_test(page);
        }
        if self.pages[page as usize].resident {
            self.clock.renew(&mut self.clock_links, page);
            self.cold.renew(&mut self.cold_links, page);
        }
    }

    /// HANDcold: frees a frame. There is a resident cold page, for hot pages leave room for one.
    fn run_hand_cold(&mut self) {
        while let Some(page) = self.cold.first() {
            let Page {
                referenced, tested, ..
            } = self.pages[page as usize];
            match (referenced, tested) {
                (true, true) => {
                    self.cold.remove(&mut self.cold_links, page);
                    self.promote(page);
                }
                (true, false) => {
                    self.pages[page as usize].referenced = false;
                    self.pages[page as usize].tested = true;
                    self.clock.renew(&mut self.clock_links, page);
                    self.cold.renew(&mut self.cold_links, page);
                    self.test.push(&mut self.test_links, page);
                }
                (false, _) => {
                    self.evict(page);
                    return;
                }
            }
        }
    }

    fn evict(&mut self, page: u32) {
        self.cold.remove(&mut self.cold_links, page);
        self.pages[page as usize].resident = false;
        if self.pages[page as usize].tested {
            self.non_resident += 1;
        } else {
            self.clock.remove(&mut self.clock_links, page);
        }
        self.run_hand_test();
    }

    /// HANDtest: the pages that are remembered without being resident are at most as many as
    /// there are frames.
    fn run_hand_test(&mut self) {
        while self.non_resident > self.frames
            && let Some(page) = self.test.first()
        {
            self.end_test(page);
        }
    }
}

impl Rival for ClockPro {
    fn reference(&mut self, page: u32) -> bool {
        let at = page as usize;
        if self.pages[at].resident {
            self.pages[at].referenced = true;
            return true;
        }
        if self.hot + self.cold.len() == self.frames {
            self.run_hand_cold();
        }
        self.pages[at].resident = true;
        if self.pages[at].tested {
            self.non_resident -= 1;
            self.promote(page);
        } else {
            self.pages[at].tested = true;
            self.clock.push(&mut self.clock_links, page);
            self.cold.push(&mut self.cold_links, page);
            self.test.push(&mut self.test_links, page);
        }
        false
    }
}
