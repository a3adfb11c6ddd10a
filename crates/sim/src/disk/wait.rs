//! A scheduler like Linux's anticipatory one: batches of reads and of writes, and after a read a
//! short wait for the same program's next one.
//!
//! After `block/as-iosched.c` of Linux 2.6. The wait is not begun, or ends, when a read is at hand
//! that is close: within 4 MiB above or 2 MiB below the last one, twice that for each millisecond
//! of the wait, or nearer than the awaited program's own seeks are on average. Nobody waits for a
//! program that thinks longer than the wait. Left out: programs that have exited, short seeks
//! backwards, and the count of writes in a batch, which in the kernel follows the batch's time.

use std::collections::{HashMap, VecDeque};

use super::elevator::Elevator;
use super::habits::Habits;
use super::{Next, Op, Request, Scheduler};

/// The tunables of `Documentation/block/as-iosched.txt` (Linux 2.6.30), at their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// A read so many blocks above the last one is close (`as_close_req`: 8192 sectors); below it, half.
const CLOSE_BLOCKS: u64 = 1024;
/// Thinking times count up to this (`MAX_THINKTIME`, 20 ms).
const THINK_MAX_NS: u64 = 20_000_000;

/// One direction: requests in elevator order, and by age.
#[derive(Default)]
struct Lane {
    requests: Elevator,
    ages: VecDeque<(u64, Request)>,
    /// Where the last one ended.
    head: u64,
    checked: u64,
}

impl Lane {
    fn push(&mut self, now: u64, request: Request) {
        self.requests.add(request);
        self.ages.push_back((now, request));
    }

    fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the oldest request is older than `limit`. Asked once in `limit` at most.
    fn expired(&mut self, now: u64, limit_ns: u64) -> bool {
        if now < self.checked + limit_ns {
            return false;
        }
        self.checked = now;
        let oldest = self.ages.front();
        oldest.is_some_and(|&(since, _)| now > since + limit_ns)
    }

    /// The next upwards from the last one, or the oldest.
    fn pop(&mut self, oldest: bool) -> Option<Request> {
        let from = match self.ages.front() {
            Some((_, request)) if oldest => request.block,
            _ => self.head,
        };
        self.requests.set_head(from);
        let request = self.requests.pop()?;
        self.ages.retain(|(_, waiting)| waiting.id != request.id);
        self.head = request.end();
        Some(request)
    }

    fn peek(&mut self) -> Option<Request> {
        self.requests.set_head(self.head);
        self.requests.peek()
    }
}

/// The wait for a program's next read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Off,
    /// Until then.
    On(u64),
    /// It was in vain, or ended: the next request is served whatever it is.
    Over,
}

/// The scheduler.
pub struct Anticipatory {
    params: AnticipatoryParams,
    reads: Lane,
    writes: Lane,
    reading: bool,
    batch_ends: u64,
    wait: Wait,
    /// Who had the last read, and when it was complete; none after a write.
    last: Option<(u32, u64)>,
    habits: HashMap<u32, Habits>,
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
            batch_ends: params.read_batch_ms * 1_000_000,
            wait: Wait::Off,
            last: None,
            habits: HashMap::new(),
        }
    }

    const fn wait_ns(&self) -> u64 {
        self.params.antic_expire_us * 1_000
    }

    /// Whether `read` is as near as one that would be waited for (`as_close_req`).
    fn close(&self, now: u64, read: &Request, (who, done): (u32, u64)) -> bool {
        let waited_ms = now.saturating_sub(done) / 1_000_000;
        let near = CLOSE_BLOCKS << waited_ms.min(20);
        let (last, next) = (self.reads.head, read.block);
        let seek = self.habits.get(&who).map_or(0, |h| h.seek.value());
        last <= next + near / 2 && next <= last + near || seek > last.abs_diff(next)
    }

    /// Whether there is no point in waiting for the last reader, `read` being at hand
    /// (`as_can_break_anticipation`).
    fn no_wait(&mut self, now: u64, read: Option<&Request>) -> bool {
        let Some(last @ (who, done)) = self.last else {
            return true;
        };
        let own = self.reads.ages.iter().any(|(_, r)| r.from == who);
        if own || now >= done + self.wait_ns() {
            return true;
        }
        if let Some(read) = read.filter(|read| self.close(now, read, last)) {
            // Who works in the same place counts as the program itself.
            let habits = self.habits.entry(who).or_default();
            habits.asks(now, read, THINK_MAX_NS);
            return true;
        }
        let think = self.habits.get(&who).map_or(0, |h| h.think.value());
        think > self.wait_ns()
    }

    fn expire_ns(&self, reads: bool) -> u64 {
        let ms = if reads {
            self.params.read_expire_ms
        } else {
            self.params.write_expire_ms
        };
        ms * 1_000_000
    }

    fn dispatch(&mut self, now: u64, oldest: bool) -> Next {
        let limit = self.expire_ns(self.reading);
        let lane = if self.reading {
            &mut self.reads
        } else {
            &mut self.writes
        };
        let oldest = oldest || lane.expired(now, limit);
        let Some(request) = lane.pop(oldest) else {
            return Next::Empty;
        };
        self.wait = Wait::Off;
        self.last = self.reading.then_some((request.from, now));
        Next::Dispatch(request)
    }

    /// The other direction has its turn, if there is anything.
    fn turn(&mut self, now: u64) -> Next {
        let (reads, writes) = (self.reads.len() > 0, self.writes.len() > 0);
        if !reads && !writes {
            return Next::Empty;
        }
        let fresh = !self.reading;
        self.reading = reads && !(writes && self.reading);
        let batch_ms = if self.reading {
            self.params.read_batch_ms
        } else {
            self.params.write_batch_ms
        };
        self.batch_ends = now + batch_ms * 1_000_000;
        self.dispatch(now, self.reading && fresh)
    }
}

impl Scheduler for Anticipatory {
    fn push(&mut self, now: u64, request: Request) {
        if request.op == Op::Write {
            self.writes.push(now, request);
            return;
        }
        let habits = self.habits.entry(request.from).or_default();
        habits.asks(now, &request, THINK_MAX_NS);
        self.reads.push(now, request);
        if matches!(self.wait, Wait::On(_)) && self.no_wait(now, Some(&request)) {
            self.wait = Wait::Over;
        }
    }

    fn next(&mut self, now: u64) -> Next {
        let (reads, writes) = (self.reads.len() > 0, self.writes.len() > 0);
        if let Wait::On(until) = self.wait {
            if now < until {
                return if reads || writes {
                    Next::Wait(until)
                } else {
                    Next::Empty
                };
            }
            self.wait = Wait::Over;
        }
        if reads && writes && now >= self.batch_ends {
            return self.turn(now);
        }
        if self.reading {
            if self.reads.expired(now, self.expire_ns(true)) {
                return self.dispatch(now, true);
            }
            let candidate = self.reads.peek();
            if self.wait == Wait::Off && !self.no_wait(now, candidate.as_ref()) {
                let until = self.last.map_or(now, |(_, done)| done + self.wait_ns());
                self.wait = Wait::On(until);
                return if reads || writes {
                    Next::Wait(until)
                } else {
                    Next::Empty
                };
            }
        }
        if reads && self.reading || writes && !self.reading {
            if reads && !writes {
                self.batch_ends = now + self.params.read_batch_ms * 1_000_000;
            }
            return self.dispatch(now, false);
        }
        self.turn(now)
    }

    fn completed(&mut self, now: u64, request: &Request) {
        if request.op == Op::Write {
            return;
        }
        if let Some(habits) = self.habits.get_mut(&request.from) {
            habits.served(now);
        }
        if let Some((who, done)) = &mut self.last
            && *who == request.from
        {
            *done = now;
        }
    }

    fn waiting(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    fn idles(&self) -> bool {
        true
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
        let (first, far) = (read(1, 1, 100), read(2, 2, 900_000));
        a.push(0, first);
        a.push(0, far);
        assert_eq!(a.next(0), Next::Dispatch(first));
        a.completed(5 * MS, &first);
        assert_eq!(a.next(5 * MS), Next::Wait(5 * MS + 6_667_000));
        let near = read(3, 1, 101);
        a.push(6 * MS, near);
        assert_eq!(a.next(6 * MS), Next::Dispatch(near));
        a.completed(7 * MS, &near);
        // It does not come: the wait ends.
        assert_eq!(a.next(7 * MS), Next::Wait(7 * MS + 6_667_000));
        assert_eq!(a.next(14 * MS), Next::Dispatch(far));
        a.completed(20 * MS, &far);
        // Three thinking times of a second spoil its mean.
        for n in 1..4_u32 {
            let late = read(3 + n, 1, 101 + u64::from(n));
            let now = u64::from(n) * 1_000 * MS;
            a.push(now, late);
            assert_eq!(a.next(now), Next::Dispatch(late));
            a.completed(now + MS, &late);
        }
        let other = read(9, 2, 900_000);
        a.push(3_001 * MS, other);
        assert_eq!(a.next(3_001 * MS), Next::Dispatch(other));
    }

    #[test]
    fn a_close_read_of_another_program_is_served_at_once() {
        let mut a = Anticipatory::new(AnticipatoryParams::default());
        let (first, close) = (read(1, 1, 10_000), read(2, 2, 11_000));
        a.push(0, first);
        assert_eq!(a.next(0), Next::Dispatch(first));
        a.completed(5 * MS, &first);
        a.push(5 * MS, close);
        assert_eq!(a.next(5 * MS), Next::Dispatch(close));
        // Farther than 1024 blocks above: not at once, but after a millisecond.
        let further = read(3, 3, 12_500);
        a.completed(9 * MS, &close);
        a.push(9 * MS, further);
        assert_eq!(a.next(9 * MS), Next::Wait(9 * MS + 6_667_000));
        a.push(10 * MS + MS / 2, read(4, 4, 12_600));
        assert_eq!(a.next(10 * MS + MS / 2), Next::Dispatch(further));
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
        assert_eq!(a.next(0), Next::Dispatch(read(1, 1, 10)));
        a.completed(MS, &read(1, 1, 10));
        a.push(2 * MS, read(2, 1, 11));
        assert_eq!(a.next(2 * MS), Next::Dispatch(read(2, 1, 11)));
        a.completed(501 * MS, &read(2, 1, 11));
        a.push(501 * MS, read(3, 1, 12));
        // 500 ms are over: a batch of writes, then reads again.
        assert_eq!(a.next(501 * MS), Next::Dispatch(write));
        assert_eq!(a.next(502 * MS), Next::Dispatch(read(3, 1, 12)));
    }
}
