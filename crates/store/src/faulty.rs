//! Seeded faults around any store.
//!
//! **Fault model.** Reported faults: a page-in or page-out that fails with EIO before the first byte,
//! a page-out that fails with ENOSPC before the first byte, a transfer that fails with EIO after some
//! whole pages, a page-in of which one page fails with EIO and its frame is scribbled on. Silent faults: a page-out that reports success but leaves the old bytes in the last
//! slots (torn), a page-in with one wrong bit. Nothing is lost in other slots or frames, and
//! completions are neither lost nor doubled.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use outpage_core::units::{PAGE_BYTES, SlotRange};

use crate::inside::{carried_inside, grows_inside, of_the_store_inside};
use crate::slab::Slab;
use crate::{
    BackendError, Cause, Completion, Descriptors, Direction, Frame, PageBits, Reopen, Request,
    Store, StoreError, SubmitError, Token,
};

/// Bits in a page.
const PAGE_BITS: usize = PAGE_BYTES * 8;

/// What the frame of a bad page has in it, which nobody may take for its content.
static SCRIBBLE: [u8; PAGE_BYTES] = [0xbd; PAGE_BYTES];

/// How often each fault strikes, in requests of its direction out of 1000.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// A page-in fails with EIO.
    pub read_error: u16,
    /// A page-out fails with EIO.
    pub write_error: u16,
    /// A page-out fails with ENOSPC.
    pub no_space: u16,
    /// A page-in fails with EIO after part of its pages, possibly none.
    pub short_read: u16,
    /// A page-out fails with EIO after part of its pages, possibly none.
    pub short_write: u16,
    /// One page of a page-in fails with EIO.
    pub bad_page: u16,
    /// A page-out succeeds but part of its pages, at least the last, keep their old bytes.
    pub torn_write: u16,
    /// A page-in succeeds but one bit is wrong.
    pub bit_flip: u16,
}

/// How many requests each fault has struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InjectedFaults {
    /// See [`FaultRates::read_error`].
    pub read_errors: u64,
    /// See [`FaultRates::write_error`].
    pub write_errors: u64,
    /// See [`FaultRates::no_space`].
    pub no_space: u64,
    /// See [`FaultRates::short_read`].
    pub short_reads: u64,
    /// See [`FaultRates::short_write`].
    pub short_writes: u64,
    /// See [`FaultRates::bad_page`].
    pub bad_pages: u64,
    /// See [`FaultRates::torn_write`].
    pub torn_writes: u64,
    /// See [`FaultRates::bit_flip`].
    pub bit_flips: u64,
}

/// A store that fails on purpose. Which request meets which fault follows from the seed and the
/// number of the request alone; one fault's rate does not shift another's victims.
pub struct Faulty<S> {
    store: S,
    seed: u64,
    rates: FaultRates,
    injected: InjectedFaults,
    /// Requests taken so far.
    number: u64,
    flights: Slab<Flight>,
    /// Requests that ended without reaching the store.
    done: VecDeque<Completion>,
}

/// A request that reached the store, whole or in part.
struct Flight {
    token: Token,
    direction: Direction,
    slots: SlotRange,
    /// The pages that were passed on, from the first on.
    passed: u32,
    harm: Harm,
}

/// What is done to a request that the store inside carried out.
#[derive(Clone, Copy)]
enum Harm {
    None,
    /// It is said to have failed with this error after the pages that were passed on.
    Fails(i32),
    /// This bit of the frame is wrong.
    Flips(Frame, usize),
    /// The page, with this frame, is said to be bad.
    Bad(u32, Frame),
}

/// The faults, by the number that keeps their dice apart.
#[derive(Clone, Copy)]
enum Fault {
    Error,
    NoSpace,
    Short,
    Torn,
    Flip,
    /// Not a fault: where within the request one strikes.
    Place,
    BadPage,
}

/// What becomes of a request.
enum Plan {
    Pass,
    Fail(i32),
    Short { pages: u32 },
    Torn { pages: u32 },
    Flip { bit: usize },
    BadPage { page: u32 },
}

impl<S: Store> Faulty<S> {
    /// Wraps `store`.
    pub fn new(store: S, seed: u64, rates: FaultRates) -> Self {
        let depth = store.depth();
        Self {
            store,
            seed,
            rates,
            injected: InjectedFaults::default(),
            number: 0,
            flights: Slab::new(depth),
            done: VecDeque::with_capacity(depth),
        }
    }

    /// The faults so far.
    pub const fn injected(&self) -> InjectedFaults {
        self.injected
    }

    /// From now on, these rates.
    pub const fn set_rates(&mut self, rates: FaultRates) {
        self.rates = rates;
    }

    /// The store inside.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    /// A number for this request and purpose, as good as random (SplitMix64, Steele et al. 2014).
    fn roll(&self, fault: Fault) -> u64 {
        let step = self.number.wrapping_mul(8).wrapping_add(fault as u64 + 1);
        let mut z = self
            .seed
            .wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn strikes(&self, fault: Fault, per_mille: u16) -> bool {
        self.roll(fault) % 1000 < u64::from(per_mille)
    }

    fn plan(&self, request: &Request<'_>) -> Plan {
        let (rates, pages) = (&self.rates, request.slots.slots);
        let place = self.roll(Fault::Place);
        let part = (place % u64::from(pages)) as u32;
        let (error, short) = match request.direction {
            Direction::PageIn => (rates.read_error, rates.short_read),
            Direction::PageOut => (rates.write_error, rates.short_write),
        };
        let out = request.direction == Direction::PageOut;
        if self.strikes(Fault::Error, error) {
            Plan::Fail(libc::EIO)
        } else if out && self.strikes(Fault::NoSpace, rates.no_space) {
            Plan::Fail(libc::ENOSPC)
        } else if self.strikes(Fault::Short, short) {
            Plan::Short { pages: part }
        } else if out && self.strikes(Fault::Torn, rates.torn_write) {
            Plan::Torn { pages: part }
        } else if !out && self.strikes(Fault::Flip, rates.bit_flip) {
            Plan::Flip {
                bit: (place % (u64::from(pages) * PAGE_BITS as u64)) as usize,
            }
        } else if !out && self.strikes(Fault::BadPage, rates.bad_page) {
            Plan::BadPage { page: part }
        } else {
            Plan::Pass
        }
    }

    fn count(&mut self, plan: &Plan, direction: Direction) {
        let injected = &mut self.injected;
        let counter = match (plan, direction) {
            (Plan::Pass, _) => return,
            (Plan::Fail(libc::ENOSPC), _) => &mut injected.no_space,
            (Plan::Fail(_), Direction::PageIn) => &mut injected.read_errors,
            (Plan::Fail(_), Direction::PageOut) => &mut injected.write_errors,
            (Plan::Short { .. }, Direction::PageIn) => &mut injected.short_reads,
            (Plan::Short { .. }, Direction::PageOut) => &mut injected.short_writes,
            (Plan::Torn { .. }, _) => &mut injected.torn_writes,
            (Plan::Flip { .. }, _) => &mut injected.bit_flips,
            (Plan::BadPage { .. }, _) => &mut injected.bad_pages,
        };
        *counter += 1;
    }

    /// Passes the first `pages` pages on.
    fn pass(&mut self, request: &Request<'_>, passed: u32, harm: Harm) -> Result<(), SubmitError> {
        let (token, direction, slots) = (request.token, request.direction, request.slots);
        let index = self.flights.insert(Flight {
            token,
            direction,
            slots,
            passed,
            harm,
        });
        let part = Request {
            token: Token(index),
            slots: SlotRange::new(slots.start, passed),
            frames: &request.frames[..passed as usize],
            ..*request
        };
        let result = self.store.submit(&part);
        if result.is_err() {
            self.flights.remove(index);
        }
        result
    }

    /// What the caller gets for a completion of the store.
    fn end(&mut self, completion: Completion) -> Completion {
        let Flight {
            token,
            direction,
            slots,
            passed,
            harm,
        } = self.flights.remove(completion.token.0);
        let (mut failed, mut cause) = (completion.failed, completion.result.err().map(|e| e.cause));
        let harm = if cause.is_some() { Harm::None } else { harm };
        match harm {
            Harm::None => {}
            Harm::Fails(errno) => cause = Some(Cause::Errno(errno)),
            Harm::Flips(frame, bit) => frame.as_iovec().flip(bit),
            Harm::Bad(page, frame) => {
                frame.as_iovec().fill(&SCRIBBLE);
                failed.insert(page);
                cause = Some(Cause::Errno(libc::EIO));
            }
        }
        let Some(cause) = cause else {
            return Completion::whole(token);
        };
        // Also for a part of the request, the error names the whole of it.
        failed.merge(&PageBits::of(passed..slots.slots));
        ended(token, direction, slots, failed, cause)
    }
}

/// The end of a request of which some pages failed.
fn ended(
    token: Token,
    direction: Direction,
    slots: SlotRange,
    failed: PageBits,
    cause: Cause,
) -> Completion {
    let good = slots.slots - failed.count();
    let error = StoreError {
        direction,
        slots,
        bytes_done: u64::from(good) * PAGE_BYTES as u64,
        cause,
    };
    Completion {
        token,
        result: Err(error),
        failed,
    }
}

impl<S: Store> Store for Faulty<S> {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        crate::check_request(request, self.request_pages_max(), self.capacity_slots());
        if self.in_flight() == self.depth() {
            return Err(SubmitError::Full);
        }
        let (direction, slots) = (request.direction, request.slots);
        let plan = self.plan(request);
        let (passed, harm) = match plan {
            Plan::Pass => (slots.slots, Harm::None),
            Plan::Fail(errno) => (0, Harm::Fails(errno)),
            Plan::Short { pages } => (pages, Harm::Fails(libc::EIO)),
            Plan::Torn { pages } => (pages, Harm::None),
            Plan::Flip { bit } => {
                let frame = request.frames[bit / PAGE_BITS];
                (slots.slots, Harm::Flips(frame, bit % PAGE_BITS))
            }
            Plan::BadPage { page } => {
                let frame = request.frames[page as usize];
                (slots.slots, Harm::Bad(page, frame))
            }
        };
        if passed > 0 {
            self.pass(request, passed, harm)?;
        } else {
            self.done.push_back(match harm {
                Harm::Fails(errno) => {
                    let (failed, cause) = (PageBits::of(0..slots.slots), Cause::Errno(errno));
                    ended(request.token, direction, slots, failed, cause)
                }
                _ => Completion::whole(request.token),
            });
        }
        self.count(&plan, direction);
        self.number += 1;
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let before = out.len();
        while out.len() < out.capacity() {
            let Some(completion) = self.done.pop_front() else {
                break;
            };
            out.push(completion);
        }
        let first = out.len();
        self.store.poll(out);
        for completion in &mut out[first..] {
            *completion = self.end(*completion);
        }
        out.len() - before
    }

    fn wait(&mut self, timeout_ns: u64) -> bool {
        !self.done.is_empty() || self.store.wait(timeout_ns)
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.store.wake_fd()
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }

    of_the_store_inside!(sizes);

    of_the_store_inside!(forgetting);

    of_the_store_inside!(ram);
}

grows_inside!(Faulty);

impl<S: Reopen> Reopen for Faulty<S> {
    carried_inside!();

    fn reopen_after_fork(&mut self, descriptors: Descriptors) -> Result<(), BackendError> {
        self.flights.clear();
        self.done.clear();
        self.store.reopen_after_fork(descriptors)
    }
}
