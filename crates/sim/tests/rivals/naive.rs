//! LIRS, CLOCK-Pro and Belady's optimum once more, in the plainest way. Written from the papers,
//! sharing nothing with the crate.

/// Belady: of the resident pages, the one whose next reference is farthest leaves.
pub fn opt(string: &[u64], frames: usize) -> u64 {
    let mut memory: Vec<u64> = Vec::new();
    let mut misses = 0;
    for (at, page) in string.iter().enumerate() {
        if memory.contains(page) {
            continue;
        }
        misses += 1;
        if memory.len() == frames {
            let next = |page: &u64| {
                let later = string[at..].iter().position(|other| other == page);
                later.unwrap_or(usize::MAX)
            };
            let victim = (0..frames).max_by_key(|&slot| next(&memory[slot]));
            memory.remove(victim.expect("there is a frame"));
        }
        memory.push(*page);
    }
    misses
}

/// Sections 3.2 and 3.3 of the LIRS paper: S with its bottom first, Q with its front first.
struct LirsState {
    l_lirs: usize,
    l_hirs: usize,
    s: Vec<u64>,
    q: Vec<u64>,
    lir: Vec<u64>,
}

impl LirsState {
    fn prune(&mut self) {
        while self.s.first().is_some_and(|page| !self.lir.contains(page)) {
            self.s.remove(0);
        }
    }

    fn raise(&mut self, page: u64) {
        self.s.retain(|&other| other != page);
        self.s.push(page);
    }

    fn bottom_becomes_hir(&mut self) {
        let bottom = self.s.remove(0);
        self.lir.retain(|&other| other != bottom);
        self.q.push(bottom);
        self.prune();
    }

    fn access(&mut self, page: u64) -> bool {
        if self.lir.contains(&page) {
            self.raise(page);
            self.prune();
            return true;
        }
        let hit = self.q.contains(&page);
        if !hit && self.lir.len() < self.l_lirs {
            self.lir.push(page);
            self.raise(page);
            return false;
        }
        if !hit && self.q.len() == self.l_hirs {
            self.q.remove(0);
        }
        self.q.retain(|&other| other != page);
        let in_s = self.s.contains(&page);
        self.raise(page);
        if in_s {
            self.lir.push(page);
            self.bottom_becomes_hir();
        } else {
            self.q.push(page);
            self.prune();
        }
        hit
    }
}

pub fn lirs(string: &[u64], frames: usize) -> u64 {
    let l_hirs = (frames / 100).max(1);
    let mut state = LirsState {
        l_lirs: frames - l_hirs,
        l_hirs,
        s: Vec::new(),
        q: Vec::new(),
        lir: Vec::new(),
    };
    string.iter().filter(|&&page| !state.access(page)).count() as u64
}

#[derive(Clone, Copy)]
struct OnClock {
    page: u64,
    hot: bool,
    resident: bool,
    referenced: bool,
    test: bool,
}

/// The clock of the CLOCK-Pro paper as one vector from HANDhot to the list head. HANDcold is the
/// first resident cold page in it, HANDtest the first page in its test period.
struct ThreeHands {
    m: usize,
    m_c: usize,
    clock: Vec<OnClock>,
}

impl ThreeHands {
    fn hot(&self) -> usize {
        self.clock.iter().filter(|entry| entry.hot).count()
    }

    fn less_cold(&mut self, entry: OnClock) {
        if !entry.referenced && self.m_c > 1 {
            self.m_c -= 1;
        }
    }

    fn turn_hot(&mut self, at: usize) {
        let mut entry = self.clock.remove(at);
        entry.hot = true;
        entry.referenced = false;
        entry.test = false;
        self.clock.push(entry);
        if self.m_c + 1 < self.m {
            self.m_c += 1;
        }
        if self.hot() + self.m_c > self.m {
            self.hand_hot();
        }
    }

    fn hand_hot(&mut self) {
        while self.hot() > 0 {
            let mut entry = self.clock[0];
            if entry.hot && self.hot() + self.m_c <= self.m {
                return;
            }
            self.clock.remove(0);
            if entry.hot {
                if entry.referenced {
                    entry.referenced = false;
                } else {
                    entry.hot = false;
                }
            } else if entry.test {
                self.less_cold(entry);
                entry.test = false;
            }
            if entry.resident {
                self.clock.push(entry);
            }
        }
    }

    fn hand_cold(&mut self) {
        loop {
            let cold = |entry: &OnClock| entry.resident && !entry.hot;
            let at = self.clock.iter().position(cold).expect("a cold page");
            let mut entry = self.clock[at];
            if entry.referenced && entry.test {
                self.turn_hot(at);
            } else if entry.referenced {
                self.clock.remove(at);
                entry.referenced = false;
                entry.test = true;
                self.clock.push(entry);
            } else {
                if entry.test {
                    self.clock[at].resident = false;
                } else {
                    self.clock.remove(at);
                }
                return;
            }
        }
    }

    fn hand_test(&mut self) {
        while self.clock.iter().filter(|entry| !entry.resident).count() > self.m {
            let test = |entry: &OnClock| entry.test;
            let at = self.clock.iter().position(test).expect("a test period");
            let entry = self.clock[at];
            self.less_cold(entry);
            if entry.resident {
                self.clock[at].test = false;
            } else {
                self.clock.remove(at);
            }
        }
    }

    fn access(&mut self, page: u64) -> bool {
        let this = |entry: &OnClock| entry.page == page;
        if let Some(at) = self.clock.iter().position(this)
            && self.clock[at].resident
        {
            self.clock[at].referenced = true;
            return true;
        }
        if self.clock.iter().filter(|entry| entry.resident).count() == self.m {
            self.hand_cold();
            self.hand_test();
        }
        if let Some(at) = self.clock.iter().position(this) {
            self.clock[at].resident = true;
            self.turn_hot(at);
        } else {
            self.clock.push(OnClock {
                page,
                hot: false,
                resident: true,
                referenced: false,
                test: true,
            });
        }
        false
    }
}

pub fn clock_pro(string: &[u64], frames: usize) -> u64 {
    let mut hands = ThreeHands {
        m: frames,
        m_c: (frames / 100).max(1),
        clock: Vec::new(),
    };
    string.iter().filter(|&&page| !hands.access(page)).count() as u64
}
