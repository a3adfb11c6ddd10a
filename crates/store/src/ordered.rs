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
    /// Of each flight, from its number times the largest request on: the frames of a held write.
    frames: Vec<Option<Frame>>,
    /// What was handed on last.
    handed: Vec<Frame>,
    /// Reads under way in the store inside that somebody waits for.
    awaited: usize,
    /// Writes under way there.
    writes: usize,
}

impl<S: Store, C: Clock> Ordered<S, C> {
    /// Wraps `store`, which nothing is in flight in. Keeps 16 bytes of address space for each page of each request in flight.
    pub fn new(store: S, clock: C) -> Self {
        let (depth, pages) = (store.depth(), store.request_pages_max() as usize);
        Self {
            store,
            clock,
            flights: Slab::new(depth),
            held: VecDeque::with_capacity(depth),
            frames: vec![None; depth * pages],
            handed: Vec::with_capacity(pages),
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
        let start = index as usize * self.store.request_pages_max() as usize;
        for (to, &frame) in self.frames[start..].iter_mut().zip(frames) {
            *to = Some(frame);
        }
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
        let Flight {
            direction, slots, ..
        } = *self.flights.get_mut(index);
        let start = index as usize * self.store.request_pages_max() as usize;
        self.handed.clear();
        let held = &self.frames[start..start + slots.slots as usize];
        self.handed.extend(held.iter().flatten());
        let taken = self.store.submit(&Request {
            token: Token(index),
            direction,
            slots,
            frames: &self.handed,
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
    use crate::{Config, CopyAt, Counting, MemoryStore};

    const DEPTH: u16 = 8;
    const SLOTS: u32 = 64;
    /// The token of a read that nobody waits for.
    const AHEAD: u64 = 999;

    type Inside<'a> = Ordered<Counting<MemoryStore>, &'a dyn Fn() -> u64>;

    fn ordered(clock: &dyn Fn() -> u64) -> Inside<'_> {
        let config = Config {
            depth: DEPTH,
            request_pages_max: 2,
        };
        Ordered::new(
            Counting::new(MemoryStore::new(SLOTS, CopyAt::Poll, config)),
            clock,
        )
    }

    /// Page-ins of slots that nobody wrote, which fail without touching a frame; page-outs are never polled here, or have frames.
    fn submit(
        store: &mut impl Store,
        token: u64,
        direction: Direction,
        frame: Frame,
    ) -> Result<(), SubmitError> {
        store.submit(&Request {
            token: Token(token),
            direction,
            slots: SlotRange::new(SlotNo(token as u32 % SLOTS), 1),
            frames: &[frame],
            awaited: direction == Direction::PageIn && token != AHEAD,
        })
    }

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    fn frame(page: &mut Page) -> Frame {
        // SAFETY: it lives to the end of its test, and nobody else uses it.
        #[allow(unsafe_code)]
        unsafe {
            Frame::new(page.0.as_mut_ptr().expose_provenance())
        }
    }

    fn handed(store: &Inside<'_>, direction: Direction) -> u64 {
        store.inner().counts(direction).requests
    }

    #[test]
    fn writes_wait_for_reads_and_reads_for_nobody() {
        let mut page = Box::new(Page([7; 4096]));
        let frame = frame(&mut page);
        let clock = || 0;
        let mut store = ordered(&clock);
        for token in 0..3 {
            submit(&mut store, token, Direction::PageOut, frame).unwrap();
        }
        assert_eq!(
            handed(&store, Direction::PageOut),
            3,
            "nothing is read: none waits"
        );
        submit(&mut store, 10, Direction::PageIn, frame).unwrap();
        submit(&mut store, 4, Direction::PageOut, frame).unwrap();
        submit(&mut store, 11, Direction::PageIn, frame).unwrap();
        assert_eq!(handed(&store, Direction::PageIn), 2);
        assert_eq!(handed(&store, Direction::PageOut), 3);
        assert_eq!(store.in_flight(), 6);
        let mut out = Vec::with_capacity(8);
        while store.in_flight() > 0 {
            store.poll(&mut out);
        }
        let mut tokens: Vec<_> = out.iter().map(|c| c.token.0).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [0, 1, 2, 4, 10, 11]);
    }

    #[test]
    fn a_read_that_nobody_waits_for_holds_no_write_back() {
        let mut page = Box::new(Page([7; 4096]));
        let frame = frame(&mut page);
        let clock = || 0;
        let mut store = ordered(&clock);
        submit(&mut store, AHEAD, Direction::PageIn, frame).unwrap();
        for token in 0..3 {
            submit(&mut store, token, Direction::PageOut, frame).unwrap();
        }
        assert_eq!(handed(&store, Direction::PageOut), 3);
    }

    #[test]
    fn one_write_goes_beside_reads_and_the_next_when_it_is_due() {
        let mut page = Box::new(Page([7; 4096]));
        let frame = frame(&mut page);
        let now = Cell::new(5);
        let clock = || now.get();
        let mut store = ordered(&clock);
        submit(&mut store, 1, Direction::PageIn, frame).unwrap();
        submit(&mut store, 2, Direction::PageOut, frame).unwrap();
        submit(&mut store, 3, Direction::PageOut, frame).unwrap();
        assert_eq!(handed(&store, Direction::PageOut), 1);
        let mut nowhere = Vec::new();
        now.set(5 + WRITE_DEADLINE_NS - 1);
        store.poll(&mut nowhere);
        assert_eq!(handed(&store, Direction::PageOut), 1);
        now.set(5 + WRITE_DEADLINE_NS);
        store.poll(&mut nowhere);
        assert_eq!(handed(&store, Direction::PageOut), 2);
    }

    #[test]
    fn a_full_store_counts_what_it_holds() {
        let mut page = Box::new(Page([7; 4096]));
        let frame = frame(&mut page);
        let clock = || 0;
        let mut store = ordered(&clock);
        submit(&mut store, 50, Direction::PageIn, frame).unwrap();
        for token in 1..u64::from(DEPTH) {
            submit(&mut store, token, Direction::PageOut, frame).unwrap();
        }
        let more = submit(&mut store, 51, Direction::PageIn, frame);
        assert_eq!(more, Err(SubmitError::Full));
        assert_eq!(store.in_flight(), usize::from(DEPTH));
    }

    proptest! {
        /// Whatever is asked for in whatever order: every request ends once, writes in their order, and none is late.
        #[test]
        fn every_request_ends_and_writes_in_their_order(steps in prop::collection::vec(0..4_u8, 1..200)) {
            let mut page = Box::new(Page([7; 4096]));
            let frame = frame(&mut page);
            let now = Cell::new(0);
            let clock = || now.get();
            let mut store = ordered(&clock);
            let (mut asked, mut ended) = (Vec::new(), Vec::new());
            let mut oldest_held = None;
            for (token, step) in (0..).zip(steps) {
                let direction = if step == 0 { Direction::PageIn } else { Direction::PageOut };
                match step {
                    0 | 1 => {
                        if submit(&mut store, token, direction, frame).is_ok() {
                            asked.push((token, direction));
                        }
                    }
                    2 => now.set(now.get() + WRITE_DEADLINE_NS / 3),
                    _ => {
                        let mut out = Vec::with_capacity(1);
                        store.poll(&mut out);
                        ended.extend(out.iter().map(|c| c.token.0));
                    }
                }
                let writes = (asked.iter()).filter(|a| a.1 == Direction::PageOut).count() as u64;
                let reads = (asked.iter()).filter(|a| a.1 == Direction::PageIn).count() as u64;
                prop_assert_eq!(handed(&store, Direction::PageIn), reads, "a read waits");
                let is_held = handed(&store, Direction::PageOut) < writes;
                if !is_held {
                    oldest_held = None;
                } else if step == 3 || oldest_held.is_none() {
                    prop_assert!(store.until_due() > Some(0), "a write is late");
                    oldest_held = Some(now.get());
                }
            }
            let mut out = Vec::with_capacity(DEPTH.into());
            while store.in_flight() > 0 {
                out.clear();
                store.poll(&mut out);
                ended.extend(out.iter().map(|c| c.token.0));
            }
            let is_write = |token: &&u64| asked.contains(&(**token, Direction::PageOut));
            prop_assert!(ended.iter().filter(is_write).is_sorted());
            ended.sort_unstable();
            let all: Vec<_> = asked.iter().map(|a| a.0).collect();
            prop_assert_eq!(ended, all);
        }
    }
}
