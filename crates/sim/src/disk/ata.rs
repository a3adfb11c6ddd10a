//! The queue of FreeBSD's ATA driver: sorted, but from the first request that waits.

use std::collections::VecDeque;

use super::{Next, Request, Scheduler};

/// Two ascending runs, the second for the next turn (`dev/ata/ata-queue.c:ata_sort_queue`, FreeBSD
/// 6 to 8). What belongs to which is decided by the first request that waits, not by the one in
/// service, which has left the queue: a request between the two waits for the next turn, and
/// whoever goes on adding to the first run keeps it waiting.
#[derive(Default)]
pub struct Ata(VecDeque<Request>);

impl Ata {
    /// Where the second run begins, or the end.
    fn turn(&self) -> usize {
        let falls = |at: &usize| self.0[*at].block < self.0[at - 1].block;
        (1..self.0.len()).find(falls).unwrap_or(self.0.len())
    }
}

impl Scheduler for Ata {
    fn push(&mut self, _now: u64, request: Request) {
        let turn = self.turn();
        let run = match self.0.front() {
            Some(first) if request.block < first.block => turn..self.0.len(),
            Some(_) => 1..turn,
            None => 0..0,
        };
        let end = run.end;
        let behind = |at: &usize| self.0[*at].block > request.block;
        let at = run.into_iter().find(behind).unwrap_or(end);
        self.0.insert(at, request);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Op;

    fn push(queue: &mut Ata, blocks: &[u64]) {
        for &block in blocks {
            let request = Request {
                id: block as u32,
                op: Op::Write,
                block,
                blocks: 2,
                from: 0,
            };
            queue.push(0, request);
        }
    }

    fn serve(queue: &mut Ata) -> Option<u64> {
        match queue.next(0) {
            Next::Dispatch(request) => Some(request.block),
            _ => None,
        }
    }

    fn rest(mut queue: Ata) -> Vec<u64> {
        std::iter::from_fn(|| serve(&mut queue)).collect()
    }

    #[test]
    fn what_lies_below_the_first_waits_for_the_next_turn() {
        let mut queue = Ata::default();
        push(&mut queue, &[50, 10, 90, 20, 70]);
        assert_eq!(rest(queue), [50, 70, 90, 10, 20]);
    }

    #[test]
    fn what_lies_between_the_one_in_service_and_the_first_waits_as_well() {
        let mut queue = Ata::default();
        push(&mut queue, &[40, 60]);
        assert_eq!(serve(&mut queue), Some(40));
        push(&mut queue, &[50, 62, 64]);
        assert_eq!(serve(&mut queue), Some(60));
        // Writes that go on upwards pass the one at 50 again and again.
        push(&mut queue, &[66]);
        assert_eq!(rest(queue), [62, 64, 66, 50]);
    }
}
