//! LRU, CLOCK, 2Q, ARC and S3-FIFO once more, in the plainest way: vectors of page numbers, first
//! element oldest, searched from end to end. Written from the papers, sharing nothing with the crate.

fn take(list: &mut Vec<u64>, page: u64) -> bool {
    let before = list.len();
    list.retain(|&other| other != page);
    list.len() < before
}

pub fn lru(string: &[u64], frames: usize) -> u64 {
    let mut memory = Vec::new();
    let mut misses = 0;
    for &page in string {
        if !take(&mut memory, page) {
            misses += 1;
            if memory.len() == frames {
                memory.remove(0);
            }
        }
        memory.push(page);
    }
    misses
}

pub fn clock(string: &[u64], frames: usize) -> u64 {
    // A FIFO in which a page that was referenced is moved to the end with its bit cleared.
    let mut memory: Vec<(u64, bool)> = Vec::new();
    let mut misses = 0;
    for &page in string {
        if let Some(found) = memory.iter_mut().find(|entry| entry.0 == page) {
            found.1 = true;
            continue;
        }
        misses += 1;
        while memory.len() == frames {
            let (oldest, referenced) = memory.remove(0);
            if referenced {
                memory.push((oldest, false));
            }
        }
        memory.push((page, false));
    }
    misses
}

pub fn two_q(string: &[u64], frames: usize) -> u64 {
    let (kin, kout) = (frames / 4, frames / 2);
    let (mut a1in, mut a1out, mut am) = (Vec::new(), Vec::new(), Vec::new());
    let mut misses = 0;
    for &page in string {
        if take(&mut am, page) {
            am.push(page);
            continue;
        }
        if a1in.contains(&page) {
            continue;
        }
        misses += 1;
        let remembered = a1out.contains(&page);
        if a1in.len() + am.len() == frames {
            if a1in.len() > kin {
                a1out.push(a1in.remove(0));
                if a1out.len() > kout {
                    a1out.remove(0);
                }
            } else {
                am.remove(0);
            }
        }
        if remembered {
            take(&mut a1out, page);
            am.push(page);
        } else {
            a1in.push(page);
        }
    }
    misses
}

#[derive(Default)]
struct ArcLists {
    c: usize,
    p: f64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

impl ArcLists {
    fn replace(&mut self, page: u64) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (t1 > self.p || (self.b2.contains(&page) && t1 == self.p)) {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }

    /// Figure 4, cases I to IV in order. Returns whether it was a hit.
    fn request(&mut self, page: u64) -> bool {
        if take(&mut self.t1, page) || take(&mut self.t2, page) {
            self.t2.push(page);
            return true;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&page) {
            let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + delta).min(self.c as f64);
            self.replace(page);
            take(&mut self.b1, page);
            self.t2.push(page);
        } else if self.b2.contains(&page) {
            let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - delta).max(0.0);
            self.replace(page);
            take(&mut self.b2, page);
            self.t2.push(page);
        } else {
            let all = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
            if self.t1.len() + self.b1.len() == self.c {
                if self.t1.len() < self.c {
                    self.b1.remove(0);
                    self.replace(page);
                } else {
                    self.t1.remove(0);
                }
            } else if all >= self.c {
                if all == 2 * self.c {
                    self.b2.remove(0);
                }
                self.replace(page);
            }
            self.t1.push(page);
        }
        false
    }
}

pub fn arc(string: &[u64], frames: usize) -> u64 {
    let mut lists = ArcLists {
        c: frames,
        ..ArcLists::default()
    };
    string.iter().filter(|&&page| !lists.request(page)).count() as u64
}

#[derive(Default)]
struct ThreeQueues {
    size: usize,
    s_size: usize,
    /// (page, freq), the tail first.
    s: Vec<(u64, u32)>,
    m: Vec<(u64, u32)>,
    g: Vec<u64>,
}

impl ThreeQueues {
    fn evict_s(&mut self) {
        let mut evicted = false;
        while !evicted && !self.s.is_empty() {
            let (page, freq) = self.s.remove(0);
            if freq > 1 {
                self.m.push((page, 0));
                if self.m.len() > self.size - self.s_size {
                    self.evict_m();
                }
            } else {
                self.g.push(page);
                while self.g.len() > self.size - self.s_size {
                    self.g.remove(0);
                }
                evicted = true;
            }
        }
    }

    fn evict_m(&mut self) {
        let mut evicted = false;
        while !evicted && !self.m.is_empty() {
            let (page, freq) = self.m.remove(0);
            if freq > 0 {
                self.m.push((page, freq - 1));
            } else {
                evicted = true;
            }
        }
    }
}

/// Algorithm 1 of the paper.
pub fn s3_fifo(string: &[u64], frames: usize) -> u64 {
    let mut queues = ThreeQueues {
        size: frames,
        s_size: (frames / 10).max(1),
        ..ThreeQueues::default()
    };
    let mut misses = 0;
    for &page in string {
        let resident = queues.s.iter_mut().chain(&mut queues.m);
        if let Some((_, freq)) = resident.into_iter().find(|entry| entry.0 == page) {
            *freq = (*freq + 1).min(3);
            continue;
        }
        misses += 1;
        while queues.s.len() + queues.m.len() == frames {
            if queues.s.len() >= queues.s_size {
                queues.evict_s();
            } else {
                queues.evict_m();
            }
        }
        if take(&mut queues.g, page) {
            queues.m.push((page, 0));
        } else {
            queues.s.push((page, 0));
        }
    }
    misses
}
