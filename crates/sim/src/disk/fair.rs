//! A scheduler like Linux's CFQ: every reader gets the disk for a slice of time in turn.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::elevator::Elevator;
use super::{Next, Op, Request, Scheduler};

/// The tunables of `Documentation/block/cfq-iosched.txt` (Linux 2.6.30), at their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct FairParams {
    /// `slice_sync`: a reader's slice.
    pub slice_sync_ms: u64,
    /// `slice_async`: the slice of the writes.
    pub slice_async_ms: u64,
    /// `slice_async_rq`: writes in a slice, at most.
    pub slice_async_requests: u32,
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
    slice_ends: Option<u64>,
    dispatched: u32,
    idle_until: Option<u64>,
    head: u64,
}

impl Fair {
    /// With no request.
    #[must_use]
    pub const fn new(params: FairParams) -> Self {
        Self {
            params,
            turns: VecDeque::new(),
            slice_ends: None,
            dispatched: 0,
            idle_until: None,
            head: 0,
        }
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
    fn slice_over(&mut self, now: u64, reader: bool) -> bool {
        let slice_ms = if reader {
            self.params.slice_sync_ms
        } else {
            self.params.slice_async_ms
        };
        let ends = *self.slice_ends.get_or_insert(now + slice_ms * 1_000_000);
        let spent = !reader && self.dispatched >= self.params.slice_async_requests;
        now >= ends || spent
    }

    /// Until when the disk stays free for the front queue's reader, who just had a read done.
    fn idles_until(&mut self, now: u64) -> Option<u64> {
        if self.dispatched == 0 {
            return None;
        }
        let latest = now + self.params.slice_idle_ms * 1_000_000;
        let ends = self.slice_ends.unwrap_or(latest);
        let until = *self.idle_until.get_or_insert(latest.min(ends));
        (now < until).then_some(until)
    }
}

impl Scheduler for Fair {
    fn push(&mut self, _now: u64, request: Request) {
        let from = (request.op == Op::Read).then_some(request.from);
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.from == from) {
            turn.requests.add(request);
            return;
        }
        let mut requests = Elevator::default();
        requests.add(request);
        self.turns.push_back(Turn { from, requests });
    }

    fn next(&mut self, now: u64) -> Next {
        while let Some(front) = self.turns.front() {
            let (reader, own) = (front.from.is_some(), front.requests.len());
            let others = self.waiting() > own;
            let over = self.slice_over(now, reader);
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
                && reader
                && !over
                && let Some(until) = self.idles_until(now)
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

    fn waiting(&self) -> usize {
        self.turns.iter().map(|turn| turn.requests.len()).sum()
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
    fn writes_get_two_requests_in_their_turn() {
        let mut cfq = Fair::new(FairParams::default());
        for block in 0..4 {
            cfq.push(0, request(Op::Write, crate::disk::DAEMON, block));
        }
        cfq.push(0, request(Op::Read, 1, 100));
        assert_eq!([0; 3].map(|_| served(cfq.next(0))), [0, 1, 100]);
    }
}
