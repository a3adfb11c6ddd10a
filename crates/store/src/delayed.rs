//! Completions that take their time, counted in polls or on a clock of the caller.

use std::os::fd::RawFd;

use crate::inside::{carried_inside, grows_inside, of_the_store_inside};
use crate::slab::Slab;
use crate::{BackendError, Completion, Descriptors, Reopen, Request, Store, SubmitError, Token};

/// A source of time; tests bring one that they set.
pub trait Clock {
    /// Nanoseconds since an origin of its own; never less than before.
    fn now_ns(&self) -> u64;
}

impl<F: Fn() -> u64> Clock for F {
    fn now_ns(&self) -> u64 {
        self()
    }
}

/// How long a request takes at least, from `submit` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// It completes with this call of `poll` (1: the next one).
    Polls(u64),
    /// Nanoseconds of the clock.
    Nanos(u64),
}

/// A store whose requests complete no earlier than `delay` after `submit`. The bytes may move at any
/// time before.
///
/// It has no [`Store::wake_fd`], and [`Store::wait`] does not sleep the delay off: it returns early.
pub struct Delayed<S, C> {
    store: S,
    clock: C,
    delay: Delay,
    polls: u64,
    flights: Slab<Flight>,
    scratch: Vec<Completion>,
}

struct Flight {
    token: Token,
    /// In polls or nanoseconds, as the delay.
    due: u64,
    /// Once the store inside is done.
    ended: Option<Completion>,
}

impl<S: Store, C: Clock> Delayed<S, C> {
    /// Wraps `store`. The clock is not read when the delay is in polls.
    pub fn new(store: S, delay: Delay, clock: C) -> Self {
        let depth = store.depth();
        Self {
            store,
            clock,
            delay,
            polls: 0,
            flights: Slab::new(depth),
            scratch: Vec::with_capacity(depth),
        }
    }

    /// The store inside.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    fn now(&self) -> u64 {
        match self.delay {
            Delay::Polls(_) => self.polls,
            Delay::Nanos(_) => self.clock.now_ns(),
        }
    }

    /// Learns what the store inside is done with.
    fn collect(&mut self) {
        self.store.poll(&mut self.scratch);
        for completion in self.scratch.drain(..) {
            self.flights.get_mut(completion.token.0).ended = Some(completion);
        }
    }

    fn ready(&mut self) -> bool {
        let now = self.now();
        self.flights
            .iter_mut()
            .any(|flight| flight.due <= now && flight.ended.is_some())
    }
}

impl<S: Store, C: Clock> Store for Delayed<S, C> {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        if self.flights.is_full() {
            return Err(SubmitError::Full);
        }
        let (Delay::Polls(delay) | Delay::Nanos(delay)) = self.delay;
        let due = self.now().saturating_add(delay);
        let index = self.flights.insert(Flight {
            token: request.token,
            due,
            ended: None,
        });
        let inner = Request {
            token: Token(index),
            ..*request
        };
        let result = self.store.submit(&inner);
        if result.is_err() {
            self.flights.remove(index);
        }
        result
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        self.polls += 1;
        self.collect();
        let (now, before) = (self.now(), out.len());
        while out.len() < out.capacity() {
            let due = |flight: &Flight| flight.due <= now && flight.ended.is_some();
            let Some(flight) = self.flights.take_first(due) else {
                break;
            };
            let ended = flight.ended.expect("checked by `due`");
            out.push(Completion {
                token: flight.token,
                ..ended
            });
        }
        out.len() - before
    }

    fn wait(&mut self, timeout_ns: u64) -> bool {
        self.collect();
        if self.flights.iter_mut().all(|flight| flight.ended.is_none()) {
            self.store.wait(timeout_ns);
            self.collect();
        }
        self.ready()
    }

    fn wake_fd(&self) -> Option<RawFd> {
        None
    }

    fn in_flight(&self) -> usize {
        self.flights.len()
    }

    of_the_store_inside!(sizes);

    of_the_store_inside!(forgetting);

    of_the_store_inside!(ram);
}

grows_inside!(Delayed, C);

impl<S: Reopen, C> Reopen for Delayed<S, C> {
    carried_inside!();

    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        self.flights.clear();
        self.store.reopen_after_fork(descriptors)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use outpage_core::units::{SlotNo, SlotRange};

    use super::*;
    use crate::{Config, CopyAt, Direction, MemoryStore};

    fn memory() -> MemoryStore {
        MemoryStore::new(
            8,
            CopyAt::Submit,
            Config {
                depth: 4,
                request_pages_max: 1,
            },
        )
    }

    /// A request that fails at once in the store inside, so that no frame is needed.
    fn submit(store: &mut impl Store, token: u64) {
        // SAFETY: page-in past the end touches no frame.
        #[allow(unsafe_code)]
        let frames = [unsafe { crate::Frame::new(0x1000) }];
        let slots = SlotRange::new(SlotNo(0), 1);
        let (token, direction) = (Token(token), Direction::PageIn);
        store
            .submit(&Request {
                token,
                direction,
                slots,
                frames: &frames,
                awaited: true,
            })
            .unwrap();
    }

    #[test]
    fn a_request_completes_with_its_poll_and_not_before() {
        let mut store = Delayed::new(memory(), Delay::Polls(3), || unreachable!());
        let mut out = Vec::with_capacity(4);
        submit(&mut store, 1);
        assert_eq!(store.poll(&mut out), 0);
        submit(&mut store, 2);
        assert_eq!(store.poll(&mut out), 0);
        assert_eq!((store.poll(&mut out), out[0].token), (1, Token(1)));
        assert_eq!((store.poll(&mut out), out[1].token), (1, Token(2)));
        assert_eq!(store.in_flight(), 0);
    }

    #[test]
    fn a_request_completes_when_the_clock_says_so() {
        let clock = Cell::new(100);
        let mut store = Delayed::new(memory(), Delay::Nanos(50), || clock.get());
        let mut out = Vec::with_capacity(4);
        submit(&mut store, 1);
        clock.set(149);
        assert!(!store.wait(u64::MAX));
        assert_eq!(store.poll(&mut out), 0);
        clock.set(150);
        assert!(store.wait(0));
        assert_eq!(store.poll(&mut out), 1);
    }
}
