//! A scheduler like Linux's anticipatory one: batches of reads and of writes, and after a read a
//! short wait for the same program's next one.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::elevator::Elevator;
use super::{Next, Op, Request, Scheduler};

/// The tunables of `Documentation/block/as-iosched.txt` (Linux 2.6.30), at their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct AnticipatoryParams {
    /// `antic_expire`: the longest wait for the next read.
    pub antic_expire_us: u64,
    /// `read_batch_expire`: reads are served so long before writes get a turn.
    pub read_batch_ms: u64,
    /// `write_batch_expire`: and writes so long.
    pub write_batch_ms: u64,
    /// `read_expire`: a read older than this is served first.
    pub read_expire_ms: u64,
    /// `write_expire`: and a write.
    pub write_expire_ms: u64,
}

impl Default for AnticipatoryParams {
    fn default() -> Self {
        Self {
            antic_expire_us: 6_667,
            read_batch_ms: 500,
            write_batch_ms: 125,
            read_expire_ms: 125,
            write_expire_ms: 250,
        }
    }
}

/// One direction: requests in elevator order, and by age.
#[derive(Default)]
struct Lane {
    requests: Elevator,
    ages: VecDeque<(u64, Request)>,
}

impl Lane {
    fn push(&mut self, now: u64, request: Request) {
        self.requests.add(request);
        self.ages.push_back((now, request));
    }

    /// The oldest request if it is older than `limit`, otherwise the next upwards from `head`.
    fn pop(&mut self, now: u64, limit_ns: u64, head: u64) -> Option<Request> {
        self.requests.set_head(head);
        if let Some(&(since, oldest)) = self.ages.front()
            && now >= since + limit_ns
        {
            self.requests.set_head(oldest.block);
        }
        let request = self.requests.pop()?;
        self.ages.retain(|(_, waiting)| waiting.id != request.id);
        Some(request)
    }
}

/// The scheduler.
pub struct Anticipatory {
    params: AnticipatoryParams,
    reads: Lane,
    writes: Lane,
    reading: bool,
    batch_ends: u64,
    head: u64,
    /// The program whose next read is awaited, and until when.
    awaited: Option<(u32, u64)>,
    /// Of each program: when its last read was complete, and the mean of its thinking times.
    thinks: HashMap<u32, (u64, u64)>,
}

impl Anticipatory {
    /// With no request.
    #[must_use]
    pub fn new(params: AnticipatoryParams) -> Self {
        Self {
            params,
            reads: Lane::default(),
            writes: Lane::default(),
            reading: true,
            batch_ends: 0,
            head: 0,
            awaited: None,
            thinks: HashMap::new(),
        }
    }

    fn wait_ns(&self) -> u64 {
        self.params.antic_expire_us * 1_000
    }

    /// The other direction gets a batch if this one is empty, or its time is over and the other
    /// has requests.
    fn choose_batch(&mut self, now: u64) {
        let (here, there) = if self.reading {
            (self.reads.requests.len(), self.writes.requests.len())
        } else {
            (self.writes.requests.len(), self.reads.requests.len())
        };
        if there > 0 && (here == 0 || now >= self.batch_ends) {
            self.reading = !self.reading;
            let batch_ms = if self.reading {
                self.params.read_batch_ms
            } else {
                self.params.write_batch_ms
            };
            self.batch_ends = now + batch_ms * 1_000_000;
        }
    }
}

impl Scheduler for Anticipatory {
    fn push(&mut self, now: u64, request: Request) {
        match request.op {
            Op::Read => {
                if let Some((done, mean)) = self.thinks.get_mut(&request.from) {
                    // A weighted mean as the kernel keeps it: 7/8 of the old, 1/8 of the new.
                    *mean = (*mean * 7 + (now - (*done).min(now))) / 8;
                }
                if self.awaited.is_some_and(|(from, _)| from == request.from) {
                    self.awaited = None;
                }
                self.reads.push(now, request);
            }
            Op::Write => self.writes.push(now, request),
        }
    }

    fn next(&mut self, now: u64) -> Next {
        if let Some((_, until)) = self.awaited {
            if now < until && self.waiting() > 0 {
                return Next::Wait(until);
            } else if now < until {
                return Next::Empty;
            }
            self.awaited = None;
        }
        self.choose_batch(now);
        let (lane, limit_ms) = if self.reading {
            (&mut self.reads, self.params.read_expire_ms)
        } else {
            (&mut self.writes, self.params.write_expire_ms)
        };
        match lane.pop(now, limit_ms * 1_000_000, self.head) {
            Some(request) => {
                self.head = request.end();
                Next::Dispatch(request)
            }
            None => Next::Empty,
        }
    }

    fn completed(&mut self, now: u64, request: &Request) {
        if request.op == Op::Write {
            return;
        }
        let (done, mean) = self.thinks.entry(request.from).or_insert((now, 0));
        *done = now;
        let quick = *mean <= self.params.antic_expire_us * 1_000;
        let its_next = self.reads.ages.iter().any(|(_, r)| r.from == request.from);
        if quick && !its_next {
            self.awaited = Some((request.from, now + self.wait_ns()));
        }
    }

    fn waiting(&self) -> usize {
        self.reads.requests.len() + self.writes.requests.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(id: u32, from: u32, block: u64) -> Request {
        Request {
            id,
            op: Op::Read,
            block,
            blocks: 1,
            from,
        }
    }

    #[test]
    fn the_disk_waits_for_a_quick_reader_and_not_for_a_slow_one() {
        let mut a = Anticipatory::new(AnticipatoryParams::default());
        let (first, other) = (read(1, 1, 100), read(2, 2, 900));
        a.push(0, first);
        a.push(0, other);
        assert_eq!(a.next(0), Next::Dispatch(first));
        a.completed(5 * MS, &first);
        assert_eq!(a.next(5 * MS), Next::Wait(5 * MS + 6_667_000));
        let near = read(3, 1, 101);
        a.push(6 * MS, near);
        assert_eq!(a.next(6 * MS), Next::Dispatch(near));
        a.completed(7 * MS, &near);
        // It thinks for a second, which spoils its mean.
        assert_eq!(a.next(14 * MS), Next::Dispatch(other));
        let late = read(4, 1, 102);
        a.push(1_007 * MS, late);
        assert_eq!(a.next(1_007 * MS), Next::Dispatch(late));
        a.completed(1_008 * MS, &late);
        a.push(1_008 * MS, read(5, 2, 500));
        assert_eq!(a.next(1_008 * MS), Next::Dispatch(read(5, 2, 500)));
    }

    #[test]
    fn writes_wait_for_the_batch_of_reads_to_end() {
        let mut a = Anticipatory::new(AnticipatoryParams::default());
        let write = Request {
            op: Op::Write,
            ..read(9, 7, 50)
        };
        a.push(0, read(1, 1, 10));
        a.push(0, write);
        // The first batch has no time left: one read, then the write's turn.
        assert_eq!(a.next(0), Next::Dispatch(write));
        assert_eq!(a.next(0), Next::Dispatch(read(1, 1, 10)));
    }
}
