//! CLOCK: a circle of pages and a hand that spares those referenced since it last came by.

use super::{Entry, Rival, Size};

pub(super) const ENTRY: Entry = Entry {
    name: "clock",
    summary: "FIFO that gives a page which was referenced one more round",
    source: "Corbato, A paging experiment with the Multics system, MIT Project MAC, 1968: one \
             bit of history",
    build: |size| Box::new(Clock::new(size)),
};

/// A page is loaded with its bit clear, as a page enters the clocks of Bansal and Modha (CAR,
/// FAST 2004, figure 2): the reference that loads it is the miss and counts as nothing else.
struct Clock {
    frames: u32,
    /// The circle; the hand is an index into it, and a new page takes the place of its victim.
    circle: Vec<u32>,
    hand: usize,
    state: Vec<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Resident,
    Referenced,
}

impl Clock {
    fn new(size: Size) -> Self {
        Self {
            frames: size.frames,
            circle: Vec::new(),
            hand: 0,
            state: vec![State::Absent; size.pages as usize],
        }
    }

    fn replace(&mut self, page: u32) {
        loop {
            let candidate = &mut self.circle[self.hand];
            let state = &mut self.state[*candidate as usize];
            let spared = *state == State::Referenced;
            if spared {
                *state = State::Resident;
            } else {
                *state = State::Absent;
                *candidate = page;
            }
            self.hand += 1;
            if self.hand == self.circle.len() {
                self.hand = 0;
            }
            if !spared {
                return;
            }
        }
    }
}

impl Rival for Clock {
    fn reference(&mut self, page: u32) -> bool {
        if self.state[page as usize] != State::Absent {
            self.state[page as usize] = State::Referenced;
            return true;
        }
        if self.circle.len() < self.frames as usize {
            self.circle.push(page);
        } else {
            self.replace(page);
        }
        self.state[page as usize] = State::Resident;
        false
    }
}
