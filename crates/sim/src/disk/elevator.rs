//! The two schedulers without idling: in order of arrival, and the one-way elevator.

use std::collections::VecDeque;

use super::{Next, Request, Scheduler};

/// In order of arrival.
#[derive(Default)]
pub struct Fifo(VecDeque<Request>);

impl Scheduler for Fifo {
    fn push(&mut self, _now: u64, request: Request) {
        self.0.push_back(request);
    }

    fn next(&mut self, _now: u64) -> Next {
        self.0.pop_front().map_or(Next::Empty, Next::Dispatch)
    }

    fn pass(&mut self, _request: &Request) -> bool {
        true
    }

    fn waiting(&self) -> usize {
        self.0.len()
    }
}

/// Requests in order of their blocks, served upwards from the end of the last one, then from the
/// lowest again. Requests for one block keep their order of arrival.
#[derive(Default)]
pub struct Elevator {
    /// Few requests wait at once: shifting them costs less than a tree.
    sorted: Vec<Request>,
    head: u64,
}

impl Elevator {
    /// The next one's place.
    fn next_at(&self) -> Option<usize> {
        if self.sorted.is_empty() {
            return None;
        }
        let above = self.sorted.partition_point(|r| r.block < self.head);
        // No division: this is asked twice for every request.
        Some(if above < self.sorted.len() { above } else { 0 })
    }

    /// The next one.
    pub(super) fn peek(&self) -> Option<Request> {
        Some(self.sorted[self.next_at()?])
    }

    pub(super) fn pop(&mut self) -> Option<Request> {
        let request = self.sorted.remove(self.next_at()?);
        self.head = request.end();
        Some(request)
    }

    pub(super) const fn len(&self) -> usize {
        self.sorted.len()
    }

    pub(super) fn add(&mut self, request: Request) {
        let behind = self.sorted.partition_point(|r| r.block <= request.block);
        self.sorted.insert(behind, request);
    }

    pub(super) const fn set_head(&mut self, block: u64) {
        self.head = block;
    }
}

impl Scheduler for Elevator {
    fn push(&mut self, _now: u64, request: Request) {
        self.add(request);
    }

    fn next(&mut self, _now: u64) -> Next {
        self.pop().map_or(Next::Empty, Next::Dispatch)
    }

    fn pass(&mut self, request: &Request) -> bool {
        self.head = request.end();
        true
    }

    fn waiting(&self) -> usize {
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Op;

    fn order(scheduler: &mut dyn Scheduler, blocks: &[u64]) -> Vec<u64> {
        for (id, &block) in (0..).zip(blocks) {
            let (op, from) = (Op::Write, 0);
            scheduler.push(
                0,
                Request {
                    id,
                    op,
                    block,
                    blocks: 2,
                    from,
                },
            );
        }
        let mut out = Vec::new();
        while let Next::Dispatch(request) = scheduler.next(0) {
            out.push(request.block);
        }
        out
    }

    #[test]
    fn fifo_keeps_the_order() {
        assert_eq!(order(&mut Fifo::default(), &[5, 1, 9]), [5, 1, 9]);
    }

    #[test]
    fn the_elevator_goes_up_and_starts_again_below() {
        let mut elevator = Elevator::default();
        assert_eq!(order(&mut elevator, &[50, 10, 90]), [10, 50, 90]);
        // It stands at 92 now.
        assert_eq!(order(&mut elevator, &[50, 95, 10]), [95, 10, 50]);
    }
}
