//! A scheduler like Linux's CFQ: every reader gets the disk for a slice of time in turn.
//!
//! After `block/cfq-iosched.c` of Linux 2.6.28. While the owner of the slice thinks, the disk waits
//! for its next read: `slice_idle`, but 2 ms only for one that seeks far, and not at all for one
//! that thinks longer on average. A read ends the slice of the writes; one that is as near as the
//! owner's own would be ends the wait for the owner. Left out: priorities, the age limit of
//! requests, and what the kernel does for disks with queues of their own.

use std::collections::{HashMap, VecDeque};

use super::elevator::Elevator;
use super::habits::Habits;
use super::{Next, Op, Request, Scheduler};

/// The tunables of `Documentation/block/cfq-iosched.txt` (Linux 2.6.30), at their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FairParams {
    /// `slice_sync`: a reader's slice.
    pub slice_sync_ms: u64,
    /// `slice_async`: the slice of the writes.
    pub slice_async_ms: u64,
    /// `slice_async_rq`: writes in a slice, an eighth of them (`cfq_prio_to_maxrq`: at the middle
    /// priority four times as many, and twice that).
    pub slice_async_requests: u64,
    /// `slice_idle`: how long the disk waits for the slice owner's next read.
    pub slice_idle_ms: u64,
}

impl Default for FairParams {
    fn default() -> Self {
        Self {
            slice_sync_ms: 100,
            slice_async_ms: 40,
            slice_async_requests: 2,
            slice_idle_ms: 8,
        }
    }
}

/// `CFQ_MIN_TT`: the wait for a reader that seeks far.
const SEEKY_IDLE_MS: u64 = 2;
/// `CIC_SEEKY`: far, in blocks; 8 * 1024 sectors.
const SEEKY_BLOCKS: u64 = 1024;
/// Of [`FairParams::slice_async_requests`].
const ASYNC_FACTOR: u64 = 8;

/// A reader's requests (or all writes), in the order of an elevator.
struct Turn {
    from: Option<u32>,
    requests: Elevator,
}

/// The scheduler. Writes are one queue for all, as the page daemon's are in CFQ.
pub struct Fair {
    params: FairParams,
    /// The front one has the disk.
    turns: VecDeque<Turn>,
    habits: HashMap<u32, Habits>,
    slice_ends: Option<u64>,
    /// In this slice.
    dispatched: u64,
    idle_until: Option<u64>,
    head: u64,
}

impl Fair {
    /// With no request.
    #[must_use]
    pub fn new(params: FairParams) -> Self {
        Self {
            params,
            turns: VecDeque::new(),
            habits: HashMap::new(),
            slice_ends: None,
            dispatched: 0,
            idle_until: None,
            head: 0,
        }
    }

    const fn idle_ns(&self) -> u64 {
        self.params.slice_idle_ms * 1_000_000
    }

    fn end_slice(&mut self) {
        (self.slice_ends, self.dispatched, self.idle_until) = (None, 0, None);
        if let Some(turn) = self.turns.pop_front()
            && turn.requests.len() > 0
        {
            self.turns.push_back(turn);
        }
    }

    /// Whether the front queue's slice is over, at `now`.
    fn slice_over(&self, now: u64, reader: bool) -> bool {
        let most = self.params.slice_async_requests * ASYNC_FACTOR;
        let spent = !reader && self.dispatched >= most;
        self.slice_ends.is_some_and(|ends| now >= ends) || spent
    }

    /// Until when the disk stays free for the front queue's reader `who`, who just had a read done.
    fn idles_until(&mut self, now: u64, who: u32) -> Option<u64> {
        let habits = self.habits.get(&who).copied().unwrap_or_default();
        if self.dispatched == 0 || habits.think.valid() && habits.think.value() > self.idle_ns() {
            return None;
        }
        let seeky = habits.seek.valid() && habits.seek.value() > SEEKY_BLOCKS;
        let seeky_ns = SEEKY_IDLE_MS * 1_000_000;
        let idle = if seeky {
            self.idle_ns().min(seeky_ns)
        } else {
            self.idle_ns()
        };
        let latest = now + idle;
        let ends = self.slice_ends.unwrap_or(latest);
        let until = *self.idle_until.get_or_insert(latest.min(ends));
        (now < until).then_some(until)
    }

    /// Whether a read goes before the queue that has the disk.
    fn preempts(&self, request: &Request) -> bool {
        let Some(front) = self.turns.front().filter(|_| self.dispatched > 0) else {
            return false;
        };
        match front.from {
            _ if request.op == Op::Write => false,
            None => true,
            Some(owner) if owner == request.from || self.idle_until.is_none() => false,
            Some(owner) => {
                let seek = self
                    .habits
                    .get(&owner)
                    .map_or_else(Default::default, |h| h.seek);
                seek.valid() && self.head.abs_diff(request.block) <= seek.value()
            }
        }
    }
}

impl Scheduler for Fair {
    fn push(&mut self, now: u64, request: Request) {
        let from = (request.op == Op::Read).then_some(request.from);
        if let Some(reader) = from {
            let think_max = 2 * self.idle_ns();
            self.habits
                .entry(reader)
                .or_default()
                .asks(now, &request, think_max);
        }
        let at = self.turns.iter().position(|turn| turn.from == from);
        let mut turn = at.and_then(|at| self.turns.get_mut(at));
        if let Some(turn) = &mut turn {
            turn.requests.add(request);
        } else {
            let mut requests = Elevator::default();
            requests.add(request);
            self.turns.push_back(Turn { from, requests });
        }
        if self.preempts(&request) {
            let own = self.turns.remove(at.unwrap_or(self.turns.len() - 1));
            self.end_slice();
            self.turns.push_front(own.expect("it was found or added"));
        }
    }

    fn next(&mut self, now: u64) -> Next {
        while let Some(front) = self.turns.front() {
            let (reader, own) = (front.from, front.requests.len());
            let others = self.waiting() > own;
            let over = self.slice_over(now, reader.is_some());
            if own > 0 && !(over && others) {
                let front = self.turns.front_mut().expect("there is one");
                front.requests.set_head(self.head);
                let request = front.requests.pop().expect("it has requests");
                self.head = request.end();
                self.dispatched += 1;
                self.idle_until = None;
                return Next::Dispatch(request);
            }
            if own == 0
                && !over
                && let Some(who) = reader
                && let Some(until) = self.idles_until(now, who)
            {
                return if others {
                    Next::Wait(until)
                } else {
                    Next::Empty
                };
            }
            self.end_slice();
        }
        Next::Empty
    }

    /// A slice begins when its first request is done.
    fn completed(&mut self, now: u64, request: &Request) {
        let reader = (request.op == Op::Read).then_some(request.from);
        if let Some(habits) = reader.and_then(|reader| self.habits.get_mut(&reader)) {
            habits.served(now);
        }
        if self.turns.front().is_some_and(|front| front.from == reader) {
            let slice_ms = match request.op {
                Op::Read => self.params.slice_sync_ms,
                Op::Write => self.params.slice_async_ms,
            };
            self.slice_ends.get_or_insert(now + slice_ms * 1_000_000);
        }
    }

    fn waiting(&self) -> usize {
        self.turns.iter().map(|turn| turn.requests.len()).sum()
    }

    fn idles(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, from: u32, block: u64) -> Request {
        Request {
            id: block as u32,
            op,
            block,
            blocks: 1,
            from,
        }
    }

    fn served(next: Next) -> u64 {
        match next {
            Next::Dispatch(request) => request.block,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_disk_waits_for_the_slice_owner_and_then_turns_to_others() {
        let mut cfq = Fair::new(FairParams::default());
        cfq.push(0, request(Op::Read, 1, 100));
        cfq.push(0, request(Op::Read, 2, 500));
        assert_eq!(served(cfq.next(0)), 100);
        // Reader 1 computes for 3 ms: its next read comes before reader 2's.
        assert_eq!(cfq.next(1_000_000), Next::Wait(9_000_000));
        cfq.push(4_000_000, request(Op::Read, 1, 101));
        assert_eq!(served(cfq.next(4_000_000)), 101);
        // Longer than slice_idle: reader 2 has the disk.
        assert_eq!(cfq.next(5_000_000), Next::Wait(13_000_000));
        assert_eq!(served(cfq.next(13_000_000)), 500);
    }

    #[test]
    fn writes_get_sixteen_requests_in_their_turn_and_a_read_ends_it() {
        let mut cfq = Fair::new(FairParams::default());
        let write = |block| request(Op::Write, crate::disk::DAEMON, block);
        (0..20).for_each(|block| cfq.push(0, write(block)));
        // It came before the first write was begun, so it waits its turn.
        cfq.push(0, request(Op::Read, 1, 100));
        let first: Vec<_> = (0..17).map(|_| served(cfq.next(0))).collect();
        assert_eq!(first[15..], [15, 100]);
        cfq.completed(1_000_000, &request(Op::Read, 1, 100));
        assert_eq!(cfq.next(1_000_000), Next::Wait(9_000_000));
        // After 8 ms the writes go on, until the next read.
        assert_eq!(served(cfq.next(9_000_000)), 16);
        cfq.push(9_000_000, request(Op::Read, 1, 200));
        assert_eq!(served(cfq.next(10_000_000)), 200);
    }

    /// Reader 1 reads `blocks` one after the other, each asked for 1 ms after the last was done;
    /// the time is that of the last one's completion.
    fn habitual(cfq: &mut Fair, blocks: &[u64]) -> u64 {
        let mut now = 0;
        for &block in blocks {
            let read = request(Op::Read, 1, block);
            cfq.push(now, read);
            assert_eq!(cfq.next(now), Next::Dispatch(read));
            now += 5_000_000;
            cfq.completed(now, &read);
            now += 1_000_000;
        }
        now - 1_000_000
    }

    #[test]
    fn the_wait_is_short_for_a_reader_that_seeks_and_ends_with_a_read_as_near_as_its_own() {
        let mut cfq = Fair::new(FairParams::default());
        let now = habitual(&mut cfq, &[0, 50_000, 3_000, 70_000]);
        cfq.push(now, request(Op::Read, 2, 9_000_000));
        assert_eq!(cfq.next(now), Next::Wait(now + 2_000_000));
        cfq.push(now, request(Op::Read, 3, 60_000));
        assert_eq!(served(cfq.next(now)), 60_000);
        // A sequential reader has the whole of slice_idle.
        let mut cfq = Fair::new(FairParams::default());
        let now = habitual(&mut cfq, &[0, 1, 2, 3]);
        cfq.push(now, request(Op::Read, 2, 9_000_000));
        assert_eq!(cfq.next(now), Next::Wait(now + 8_000_000));
    }

    #[test]
    fn nobody_waits_for_a_reader_that_thinks_for_long() {
        let mut cfq = Fair::new(FairParams::default());
        for (n, block) in (0..6).zip(0..) {
            let read = request(Op::Read, 1, block);
            cfq.push(n * 15_000_000, read);
            assert_eq!(cfq.next(n * 15_000_000), Next::Dispatch(read));
            cfq.completed(n * 15_000_000 + 5_000_000, &read);
        }
        cfq.push(80_000_000, request(Op::Read, 2, 500));
        assert_eq!(served(cfq.next(80_000_000)), 500);
    }
}
