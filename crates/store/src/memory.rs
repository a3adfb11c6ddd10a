//! A store in memory: for tests, and as the ground that wrappers are tested on.

use std::os::fd::RawFd;

use outpage_core::units::{PAGE_BYTES, SlotRange};

use crate::flight::{Flight, Step};
use crate::raw::Memory;
use crate::{
    Allocation, BackendError, Cause, Completion, Config, Descriptors, Direction, Grow, Reopen,
    Request, ReserveCause, ReserveError, Store, SubmitError, check_request, check_slots,
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

/// Slots in memory, which takes RAM for those that hold a page. What was never paged out to, or forgotten since, cannot be paged in from:
/// [`Cause::EndOfStore`] past the highest slot ever paged out to, as with a file, and [`Cause::Empty`] below.
pub struct MemoryStore {
    slots: Memory,
    /// The slots that hold a page, a bit each, and how many they are.
    held: Vec<u64>,
    pages: u64,
    capacity_slots: u32,
    /// The end of the highest slot paged out to.
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
    /// When `config` is out of range, or there is no room in the address space.
    #[must_use]
    pub fn new(capacity_slots: u32, copy_at: CopyAt, config: Config) -> Self {
        let config = config.check();
        let op = || Op {
            flight: Flight::new(config.request_pages_max),
            copied: false,
        };
        Self {
            slots: Memory::new((capacity_slots as usize).max(1) * PAGE_BYTES)
                .expect("room in the address space"),
            held: vec![0; (capacity_slots as usize).div_ceil(64)],
            pages: 0,
            capacity_slots,
            end: 0,
            copy_at,
            config,
            ops: (0..config.depth).map(|_| op()).collect(),
            active: 0,
        }
    }

    /// Copies operation `index`, page by page, as far as there is something in the slots.
    fn copy(&mut self, index: usize) {
        self.ops[index].copied = true;
        loop {
            let flight = &mut self.ops[index].flight;
            let frame = flight.iovecs()[0].prefix(PAGE_BYTES);
            let start = flight.offset() as usize;
            let bytes = start..start + PAGE_BYTES;
            let slot = start / PAGE_BYTES;
            let (word, bit) = (&mut self.held[slot / 64], 1 << (slot % 64));
            let step = match flight.direction {
                Direction::PageOut => {
                    frame.copy_to(&mut self.slots[bytes]);
                    self.pages += u64::from(*word & bit == 0);
                    *word |= bit;
                    self.end = self.end.max(slot + 1);
                    flight.advance(Ok(PAGE_BYTES))
                }
                Direction::PageIn if *word & bit != 0 => {
                    frame.fill(&self.slots[bytes]);
                    flight.advance(Ok(PAGE_BYTES))
                }
                Direction::PageIn if slot < self.end => flight.give_up_page(Cause::Empty),
                Direction::PageIn => flight.give_up(Cause::EndOfStore),
            };
            if step == Step::Done {
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

    fn forget(&mut self, slots: SlotRange) {
        check_slots(slots, self.capacity_slots);
        for slot in slots.iter() {
            let (word, bit) = (&mut self.held[slot.0 as usize / 64], 1 << (slot.0 % 64));
            self.pages -= u64::from(*word & bit != 0);
            *word &= !bit;
        }
        let bytes = slots.start.byte_offset() as usize..slots.end().byte_offset() as usize;
        if !bytes.is_empty() {
            self.slots.give_back(bytes);
        }
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
        self.capacity_slots
    }

    fn ram_bytes(&self) -> u64 {
        self.pages * PAGE_BYTES as u64
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Token};

    /// RAM below the store's memory, by the kernel's word.
    fn resident(store: &MemoryStore) -> usize {
        let (mut pages, bytes) = (vec![0_u8; store.capacity_slots as usize], store.slots.len());
        let base = store.slots.as_ptr();
        // SAFETY: a byte for each page of the mapping.
        #[allow(unsafe_code)]
        let told = unsafe { libc::mincore(base.cast_mut().cast(), bytes, pages.as_mut_ptr()) };
        assert_eq!(told, 0);
        pages.iter().filter(|&page| page & 1 == 1).count() * PAGE_BYTES
    }

    #[test]
    fn what_is_forgotten_takes_no_ram_and_is_never_zeroes() {
        let config = Config {
            depth: 2,
            request_pages_max: 16,
        };
        let mut store = MemoryStore::new(64, CopyAt::Submit, config);
        assert_eq!((store.ram_bytes(), resident(&store)), (0, 0));
        let memory = vec![[0_u64; PAGE_BYTES / 8]; 17].leak();
        let start = memory.as_mut_ptr().expose_provenance();
        let start = start.next_multiple_of(PAGE_BYTES);
        // SAFETY: leaked, and used by nobody else.
        #[allow(unsafe_code)]
        let frames: Vec<_> = (0..16)
            .map(|n| unsafe { Frame::new(start + n * PAGE_BYTES) })
            .collect();
        let carry_out = |store: &mut MemoryStore, direction| {
            let request = Request {
                token: Token(1),
                direction,
                slots: SlotRange::new(outpage_core::units::SlotNo(8), 16),
                frames: &frames,
                awaited: true,
            };
            store.submit(&request).unwrap();
            let mut out = Vec::with_capacity(1);
            assert_eq!(store.poll(&mut out), 1);
            out[0]
        };
        carry_out(&mut store, Direction::PageOut);
        assert_eq!(
            (store.ram_bytes(), resident(&store)),
            (16 * 4096, 16 * 4096)
        );
        store.forget(SlotRange::new(outpage_core::units::SlotNo(10), 5));
        store.forget(SlotRange::new(outpage_core::units::SlotNo(10), 4));
        assert_eq!(
            (store.ram_bytes(), resident(&store)),
            (11 * 4096, 11 * 4096)
        );
        let read = carry_out(&mut store, Direction::PageIn);
        assert_eq!(read.result.unwrap_err().cause, Cause::Empty);
        assert_eq!(read.failed.iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    }
}
