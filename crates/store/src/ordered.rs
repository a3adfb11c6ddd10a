//! Reads that somebody waits for before writes, for which nobody does.
//!
//! As mq-deadline does in the kernel (`block/mq-deadline.c`, Linux 6.12), and here because most machines run a fast disk without
//! a scheduler: what was handed to it is done in any order, and a read waits behind all writes before it.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use outpage_core::units::SlotRange;

use crate::inside::{carried_inside, grows_inside, of_the_store_inside};
use crate::slab::Slab;
use crate::{
    BackendError, Clock, Completion, Descriptors, Direction, Frame, Reopen, Request, Store,
    SubmitError, Token,
};

/// So many writes are under way while a read is. One keeps a disk writing that does several things at once, and a read waits for
/// no more than that one on a disk that does not.
const WRITES_BESIDE_READS: usize = 1;

/// A write that was held back for so long goes before reads, in nanoseconds. A choice: page-outs free the frames that page-ins
/// wait for, so it is far below the kernel's 5 s for writes (`write_expire`), and far above what a write takes (0.2 to 5 ms).
pub const WRITE_DEADLINE_NS: u64 = 50_000_000;

/// A request that was taken.
struct Flight {
    token: Token,
    direction: Direction,
    slots: SlotRange,
    since: u64,
    /// It is a read that somebody waits for.
    awaited: bool,
}

/// A store that hands reads on at once, and holds writes back while reads are under way that somebody waits for
/// ([`Request::awaited`]), each for [`WRITE_DEADLINE_NS`] at most. Read-ahead holds none back: streams write as fast as they read.
///
/// Writes go in their order. A held write counts as one in flight ([`Store::in_flight`]). Whoever sleeps on [`Store::wake_fd`]
/// learns of a deadline with the end of what it was held back for.
pub struct Ordered<S, C> {
    store: S,
    clock: C,
    flights: Slab<Flight>,
    /// Writes that were not handed on yet, oldest first.
    held: VecDeque<u64>,
    /// Of each flight, by its number: the frames of a held write.
    frames: Vec<Vec<Frame>>,
    /// Reads under way in the store inside that somebody waits for.
    awaited: usize,
    /// Writes under way there.
    writes: usize,
}

impl<S: Store, C: Clock> Ordered<S, C> {
    /// Wraps `store`, which nothing is in flight in. Keeps 8 bytes of address space for each page of each request in flight.
    pub fn new(store: S, clock: C) -> Self {
        let (depth, pages) = (store.depth(), store.request_pages_max() as usize);
        Self {
            store,
            clock,
            flights: Slab::new(depth),
            held: VecDeque::with_capacity(depth),
            frames: (0..depth).map(|_| Vec::with_capacity(pages)).collect(),
            awaited: 0,
            writes: 0,
        }
    }

    /// The store inside.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    /// Of the flight `index`, which the store inside took.
    fn handed_on(&mut self, index: u64) {
        let flight = self.flights.get_mut(index);
        self.awaited += usize::from(flight.awaited);
        self.writes += usize::from(flight.direction == Direction::PageOut);
    }

    /// Whether the next write need not wait for reads.
    const fn may_write(&self) -> bool {
        self.awaited == 0 || self.writes < WRITES_BESIDE_READS
    }

    fn hold(&mut self, index: u64, frames: &[Frame]) {
        let held = &mut self.frames[index as usize];
        held.clear();
        held.extend_from_slice(frames);
        self.held.push_back(index);
    }

    /// Hands on what need not wait any longer.
    fn hand_on(&mut self) {
        while let Some(&index) = self.held.front() {
            let since = self.flights.get_mut(index).since;
            let is_due = || self.clock.now_ns().saturating_sub(since) >= WRITE_DEADLINE_NS;
            if !self.may_write() && !is_due() || !self.hand_on_held(index) {
                return;
            }
            self.held.pop_front();
        }
    }

    /// Whether the store inside took it.
    fn hand_on_held(&mut self, index: u64) -> bool {
        let taken = self.store.submit(&Request {
            token: Token(index),
            direction: Direction::PageOut,
            slots: self.flights.get_mut(index).slots,
            frames: &self.frames[index as usize],
            awaited: false,
        });
        if taken.is_ok() {
            self.handed_on(index);
        }
        taken.is_ok()
    }

    /// Until the oldest held write is due.
    fn until_due(&mut self) -> Option<u64> {
        let index = *self.held.front()?;
        let since = self.flights.get_mut(index).since;
        let waited = self.clock.now_ns().saturating_sub(since);
        Some(WRITE_DEADLINE_NS.saturating_sub(waited))
    }
}

impl<S: Store, C: Clock> Store for Ordered<S, C> {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        if self.flights.is_full() {
            return Err(SubmitError::Full);
        }
        let (direction, slots) = (request.direction, request.slots);
        let index = self.flights.insert(Flight {
            token: request.token,
            direction,
            slots,
            since: 0,
            awaited: request.awaited && direction == Direction::PageIn,
        });
        if direction == Direction::PageOut && !(self.held.is_empty() && self.may_write()) {
            crate::check_request(request, self.request_pages_max(), self.capacity_slots());
            self.flights.get_mut(index).since = self.clock.now_ns();
            self.hold(index, request.frames);
            self.hand_on();
            return Ok(());
        }
        let taken = self.store.submit(&Request {
            token: Token(index),
            ..*request
        });
        match taken {
            Ok(()) => self.handed_on(index),
            Err(_) => drop(self.flights.remove(index)),
        }
        taken
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let first = out.len();
        let count = self.store.poll(out);
        for completion in &mut out[first..] {
            let flight = self.flights.remove(completion.token.0);
            self.awaited -= usize::from(flight.awaited);
            self.writes -= usize::from(flight.direction == Direction::PageOut);
            completion.token = flight.token;
        }
        self.hand_on();
        count
    }

    fn wait(&mut self, timeout_ns: u64) -> bool {
        let due = self.until_due().unwrap_or(u64::MAX);
        let ended = self.store.wait(timeout_ns.min(due));
        self.hand_on();
        ended
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.store.wake_fd()
    }

    fn in_flight(&self) -> usize {
        self.flights.len()
    }

    of_the_store_inside!(sizes);

    of_the_store_inside!(forgetting);

    of_the_store_inside!(ram);
}

grows_inside!(Ordered, C);

impl<S: Reopen, C> Reopen for Ordered<S, C> {
    carried_inside!();

    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        self.flights.clear();
        self.held.clear();
        (self.awaited, self.writes) = (0, 0);
        self.store.reopen_after_fork(descriptors)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use outpage_core::units::SlotNo;
    use proptest::prelude::*;

    use super::*;
    use crate::Direction::{PageIn, PageOut};
    use crate::{Config, CopyAt, Counting, MemoryStore};

    const DEPTH: u16 = 8;
    /// A slot for each token.
    const SLOTS: u32 = 1024;
    /// The token of a read that nobody waits for.
    const AHEAD: u64 = 999;

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    /// A store of which it is known what it was handed, and the time.
    struct Stage<'a> {
        store: Ordered<Counting<MemoryStore>, &'a dyn Fn() -> u64>,
        page: Box<Page>,
    }

    impl<'a> Stage<'a> {
        fn new(clock: &'a dyn Fn() -> u64) -> Self {
            let config = Config {
                depth: DEPTH,
                request_pages_max: 2,
            };
            let memory = MemoryStore::new(SLOTS, CopyAt::Poll, config);
            Self {
                store: Ordered::new(Counting::new(memory), clock),
                page: Box::new(Page([7; 4096])),
            }
        }

        fn submit(&mut self, token: u64, direction: Direction) -> Result<(), SubmitError> {
            let address = self.page.0.as_mut_ptr().expose_provenance();
            // SAFETY: it lives as long as the store, and nobody else uses it.
            #[allow(unsafe_code)]
            let frame = unsafe { Frame::new(address) };
            self.store.submit(&Request {
                token: Token(token),
                direction,
                slots: SlotRange::new(SlotNo(token as u32), 1),
                frames: &[frame],
                awaited: direction == PageIn && token != AHEAD,
            })
        }

        fn submit_all(&mut self, tokens: std::ops::Range<u64>, direction: Direction) {
            for token in tokens {
                self.submit(token, direction).unwrap();
            }
        }

        /// Requests that the store inside was handed.
        fn handed(&self, direction: Direction) -> u64 {
            self.store.inner().counts(direction).requests
        }

        /// What ends with one poll, `most` at most.
        fn poll(&mut self, most: usize) -> Vec<u64> {
            let mut out = Vec::with_capacity(most);
            self.store.poll(&mut out);
            out.iter().map(|c| c.token.0).collect()
        }

        fn poll_all(&mut self) -> Vec<u64> {
            let mut ended = Vec::new();
            while self.store.in_flight() > 0 {
                ended.extend(self.poll(DEPTH.into()));
            }
            ended
        }
    }

    #[test]
    fn writes_wait_for_reads_and_reads_for_nobody() {
        let mut stage = Stage::new(&|| 0);
        stage.submit_all(0..3, PageOut);
        assert_eq!(stage.handed(PageOut), 3, "nothing is read: none waits");
        stage.submit(10, PageIn).unwrap();
        stage.submit(4, PageOut).unwrap();
        stage.submit(11, PageIn).unwrap();
        assert_eq!((stage.handed(PageIn), stage.handed(PageOut)), (2, 3));
        assert_eq!(stage.store.in_flight(), 6);
        let mut ended = stage.poll_all();
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 2, 4, 10, 11]);
    }

    #[test]
    fn a_read_that_nobody_waits_for_holds_no_write_back() {
        let mut stage = Stage::new(&|| 0);
        stage.submit(AHEAD, PageIn).unwrap();
        stage.submit_all(0..3, PageOut);
        assert_eq!(stage.handed(PageOut), 3);
    }

    #[test]
    fn one_write_goes_beside_reads_and_the_next_when_it_is_due() {
        let now = Cell::new(5);
        let clock = || now.get();
        let mut stage = Stage::new(&clock);
        stage.submit(1, PageIn).unwrap();
        stage.submit_all(2..4, PageOut);
        assert_eq!(stage.handed(PageOut), 1);
        now.set(5 + WRITE_DEADLINE_NS - 1);
        stage.poll(0);
        assert_eq!(stage.handed(PageOut), 1);
        now.set(5 + WRITE_DEADLINE_NS);
        stage.poll(0);
        assert_eq!(stage.handed(PageOut), 2);
    }

    #[test]
    fn a_full_store_counts_what_it_holds() {
        let mut stage = Stage::new(&|| 0);
        stage.submit(50, PageIn).unwrap();
        stage.submit_all(1..DEPTH.into(), PageOut);
        assert_eq!(stage.submit(51, PageIn), Err(SubmitError::Full));
        assert_eq!(stage.store.in_flight(), usize::from(DEPTH));
    }

    /// What a store that does as it should has handed on, told by the rule and not by how it is done.
    #[derive(Default)]
    struct Model {
        /// Of reads under way.
        reads: Vec<u64>,
        writes: Vec<u64>,
        /// Since when.
        held: VecDeque<(u64, u64)>,
    }

    impl Model {
        fn settle(&mut self, now: u64) {
            while let Some(&(token, since)) = self.held.front() {
                let free = self.reads.is_empty() || self.writes.len() < WRITES_BESIDE_READS;
                if !free && now - since < WRITE_DEADLINE_NS {
                    return;
                }
                self.held.pop_front();
                self.writes.push(token);
            }
        }

        fn ended(&mut self, token: u64) {
            self.reads.retain(|&t| t != token);
            self.writes.retain(|&t| t != token);
        }
    }

    proptest! {
        /// Whatever is asked for in whatever order: what is handed on is what the model hands on, and every request ends once, writes in their order.
        #[test]
        fn every_request_goes_when_the_rule_says(steps in prop::collection::vec(0..5_u8, 1..300)) {
            let now = Cell::new(0);
            let clock = || now.get();
            let mut stage = Stage::new(&clock);
            let (mut model, mut asked, mut ended) = (Model::default(), Vec::new(), Vec::new());
            for (token, step) in (0..).zip(steps) {
                match step {
                    0 if stage.submit(token, PageIn).is_ok() => {
                        model.reads.push(token);
                        asked.push((token, PageIn));
                    }
                    1 | 2 if stage.submit(token, PageOut).is_ok() => {
                        model.held.push_back((token, now.get()));
                        model.settle(now.get());
                        asked.push((token, PageOut));
                    }
                    3 => now.set(now.get() + WRITE_DEADLINE_NS / 3),
                    4 => {
                        for token in stage.poll(1) {
                            model.ended(token);
                            ended.push(token);
                        }
                        model.settle(now.get());
                    }
                    _ => {}
                }
                let of = |wanted| asked.iter().filter(|a| a.1 == wanted).count();
                prop_assert_eq!(stage.handed(PageIn), of(PageIn) as u64, "a read waits");
                prop_assert_eq!(stage.handed(PageOut), (of(PageOut) - model.held.len()) as u64);
            }
            ended.extend(stage.poll_all());
            let is_write = |token: &&u64| asked.contains(&(**token, PageOut));
            prop_assert!(ended.iter().filter(is_write).is_sorted());
            ended.sort_unstable();
            let all: Vec<_> = asked.iter().map(|a| a.0).collect();
            prop_assert_eq!(ended, all);
        }
    }
}
