//! A store in memory: for tests, and as the ground that wrappers are tested on.

use std::os::fd::RawFd;

use outpage_core::units::{PAGE_BYTES, SlotRange};

use crate::flight::{Flight, Step};
use crate::{
    Allocation, BackendError, Completion, Config, Descriptors, Direction, Grow, Reopen, Request,
    ReserveCause, ReserveError, Store, SubmitError, check_request,
};

/// When the bytes are copied. Completions come with the next `poll` either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyAt {
    /// During `submit`.
    #[default]
    Submit,
    /// During the `poll` that completes the request, as late as possible: shows a caller that takes
    /// its frames back too early.
    Poll,
}

/// Slots in memory. As with a file, slots past the highest one paged out to cannot be paged in from.
pub struct MemoryStore {
    slots: Vec<u8>,
    /// Bytes up to the end of the highest slot paged out to.
    end: usize,
    copy_at: CopyAt,
    config: Config,
    ops: Vec<Op>,
    /// The first `active` operations are in flight, oldest first.
    active: usize,
}

struct Op {
    flight: Flight,
    /// Whether the bytes are.
    copied: bool,
}

impl MemoryStore {
    /// A store of `capacity_slots` slots.
    ///
    /// # Panics
    /// When `config` is out of range.
    #[must_use]
    pub fn new(capacity_slots: u32, copy_at: CopyAt, config: Config) -> Self {
        let config = config.check();
        let op = || Op {
            flight: Flight::new(config.request_pages_max),
            copied: false,
        };
        Self {
            slots: vec![0; capacity_slots as usize * PAGE_BYTES],
            end: 0,
            copy_at,
            config,
            ops: (0..config.depth).map(|_| op()).collect(),
            active: 0,
        }
    }

    /// Copies operation `index` as far as there are slots.
    fn copy(&mut self, index: usize) {
        self.ops[index].copied = true;
        let flight = &mut self.ops[index].flight;
        loop {
            let piece = flight.iovecs()[0];
            let start = flight.offset() as usize;
            let bytes = match flight.direction {
                Direction::PageOut => piece.len(),
                Direction::PageIn => piece.len().min(self.end.saturating_sub(start)),
            };
            let slots = &mut self.slots[start..start + bytes];
            match flight.direction {
                Direction::PageIn => piece.prefix(bytes).fill(slots),
                Direction::PageOut => {
                    piece.copy_to(slots);
                    self.end = self.end.max(start + bytes);
                }
            }
            if flight.advance(Ok(bytes)) == Step::Done {
                return;
            }
        }
    }
}

impl Store for MemoryStore {
    fn submit(&mut self, request: &Request<'_>) -> Result<(), SubmitError> {
        check_request(
            request,
            self.config.request_pages_max,
            self.capacity_slots(),
        );
        if self.active == self.ops.len() {
            return Err(SubmitError::Full);
        }
        let op = &mut self.ops[self.active];
        op.flight.start(request);
        op.copied = false;
        if self.copy_at == CopyAt::Submit {
            self.copy(self.active);
        }
        self.active += 1;
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let count = self.active.min(out.capacity() - out.len());
        for index in 0..count {
            if !self.ops[index].copied {
                self.copy(index);
            }
            out.push(self.ops[index].flight.completion());
        }
        self.ops[..self.active].rotate_left(count);
        self.active -= count;
        count
    }

    fn wait(&mut self, _timeout_ns: u64) -> bool {
        self.active > 0
    }

    fn wake_fd(&self) -> Option<RawFd> {
        None
    }

    fn in_flight(&self) -> usize {
        self.active
    }

    fn depth(&self) -> usize {
        self.ops.len()
    }

    fn request_pages_max(&self) -> u32 {
        self.config.request_pages_max
    }

    fn capacity_slots(&self) -> u32 {
        (self.slots.len() / PAGE_BYTES) as u32
    }

    fn ram_bytes(&self) -> u64 {
        self.slots.len() as u64
    }
}

/// Memory is there as soon as it is touched: there is nothing to reserve.
impl Grow for MemoryStore {
    fn reserve(&mut self, slots: SlotRange) -> Result<Allocation, ReserveError> {
        let (end, capacity) = (slots.start.byte_offset(), u64::from(self.capacity_slots()));
        let cap_bytes = capacity * PAGE_BYTES as u64;
        if end + u64::from(slots.slots) * PAGE_BYTES as u64 > cap_bytes {
            let cause = ReserveCause::TooLarge { cap_bytes };
            return Err(ReserveError { slots, cause });
        }
        Ok(Allocation::Reserved)
    }
}

/// A fork copies the memory: what parent and child write afterwards, each has for itself.
impl Reopen for MemoryStore {
    fn carried_fd(&self) -> Option<RawFd> {
        None
    }

    fn reopen_after_fork(&mut self, _descriptors: Descriptors) -> Result<(), BackendError> {
        self.active = 0;
        Ok(())
    }
}
