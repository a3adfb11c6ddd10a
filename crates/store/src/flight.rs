//! A request in flight: what is left of it after each transfer that the kernel reports.

use outpage_core::units::{PAGE_BYTES, PAGE_SHIFT, SlotNo, SlotRange};

use crate::{Cause, Completion, Direction, IoVec, PageBits, Request, StoreError, Token};

/// Most consecutive transfers without a whole page before the request fails. Interruptions come
/// singly, and a device that short-changes a page this often will do so again.
const STALLS_MAX: u32 = 64;

/// Pages of one page-in that are found bad one by one; after that many the disk counts as gone, and what was not tried yet fails
/// untried. A choice: a bad sector is one page, or a few neighbours.
const BAD_MAX: u32 = 8;

/// One request and how far it got. Made once, used for many requests, one after the other.
pub(crate) struct Flight {
    pub(crate) token: Token,
    pub(crate) direction: Direction,
    slots: SlotRange,
    /// Pages that were transferred or given up.
    passed: u32,
    /// Those that were given up.
    failed: PageBits,
    /// Why the first was.
    cause: Option<Cause>,
    /// The pieces of memory; those before `first` are done. Capacity fixed at construction.
    iovecs: Vec<IoVec>,
    first: usize,
    /// Most pages of the next transfer. Below [`WHOLE`] each piece is one page.
    span: u32,
    stalls: u32,
}

/// A transfer of all that is left.
const WHOLE: u32 = u32::MAX;

/// What to do after a transfer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Transfer [`Flight::iovecs`] at [`Flight::offset`].
    Again,
    /// The request has ended: [`Flight::completion`].
    Done,
}

impl Flight {
    pub(crate) fn new(pages_max: u32) -> Self {
        Self {
            token: Token(0),
            direction: Direction::PageIn,
            slots: SlotRange::new(SlotNo(0), 0),
            passed: 0,
            failed: PageBits::NONE,
            cause: None,
            iovecs: Vec::with_capacity(pages_max as usize),
            first: 0,
            span: WHOLE,
            stalls: 0,
        }
    }

    /// Takes the request over; neighbouring frames become one piece.
    pub(crate) fn start(&mut self, request: &Request<'_>) {
        assert!(request.frames.len() <= self.iovecs.capacity());
        (self.token, self.direction) = (request.token, request.direction);
        self.slots = request.slots;
        (self.passed, self.first, self.stalls) = (0, 0, 0);
        (self.failed, self.cause, self.span) = (PageBits::NONE, None, WHOLE);
        self.iovecs.clear();
        for frame in request.frames {
            let next = frame.as_iovec();
            if !self.iovecs.last_mut().is_some_and(|last| last.merge(next)) {
                self.iovecs.push(next);
            }
        }
    }

    /// Where the rest starts in the store, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.slots.start.byte_offset() + (u64::from(self.passed) << PAGE_SHIFT)
    }

    /// The memory of the next transfer.
    pub(crate) fn iovecs(&self) -> &[IoVec] {
        let rest = &self.iovecs[self.first..];
        &rest[..rest.len().min(self.span as usize)]
    }

    /// Judges one transfer: the bytes moved, or an error number.
    ///
    /// Only whole pages count and the rest of a page is transferred again, so that every transfer
    /// stays aligned for `O_DIRECT`.
    pub(crate) fn advance(&mut self, transferred: Result<usize, i32>) -> Step {
        let bytes = match transferred {
            Ok(bytes) => bytes,
            Err(errno @ (libc::EINTR | libc::EAGAIN)) => return self.stalled(Cause::Errno(errno)),
            Err(errno) => return self.refused(Cause::Errno(errno)),
        };
        let pages = bytes >> PAGE_SHIFT;
        self.skip(pages);
        if pages > 0 {
            self.stalls = 0;
            self.span = self.span.saturating_mul(2);
        }
        if self.passed == self.slots.slots {
            return Step::Done;
        }
        let cause = match self.direction {
            Direction::PageIn => Cause::EndOfStore,
            Direction::PageOut => Cause::NoProgress,
        };
        match bytes {
            0 => self.give_up(cause),
            1..PAGE_BYTES => self.stalled(cause),
            _ => Step::Again,
        }
    }

    /// The rest cannot be transferred.
    pub(crate) fn give_up(&mut self, cause: Cause) -> Step {
        self.cause.get_or_insert(cause);
        for page in self.passed..self.slots.slots {
            self.failed.insert(page);
        }
        self.passed = self.slots.slots;
        Step::Done
    }

    /// What is told of the request when it has ended.
    pub(crate) fn completion(&self) -> Completion {
        let (direction, slots, failed) = (self.direction, self.slots, self.failed);
        let bytes_done = u64::from(slots.slots - failed.count()) << PAGE_SHIFT;
        let result = self.cause.map_or(Ok(()), |cause| {
            Err(StoreError {
                direction,
                slots,
                bytes_done,
                cause,
            })
        });
        Completion {
            token: self.token,
            result,
            failed,
        }
    }

    /// The device refused a transfer. The pages of a page-in are looked for by halves, so that a bad one costs no other; those of
    /// a page-out are in memory still, and go elsewhere.
    fn refused(&mut self, cause: Cause) -> Step {
        let left = self.slots.slots - self.passed;
        let tried = left.min(self.span);
        if self.direction == Direction::PageOut || self.failed.count() == BAD_MAX {
            return self.give_up(cause);
        }
        if tried > 1 {
            self.part();
            self.span = tried / 2;
            return Step::Again;
        }
        if self.give_up_page(cause) == Step::Done {
            return Step::Done;
        }
        self.part();
        self.span = 1;
        Step::Again
    }

    /// The next page cannot be transferred.
    pub(crate) fn give_up_page(&mut self, cause: Cause) -> Step {
        self.cause.get_or_insert(cause);
        self.failed.insert(self.passed);
        self.skip(1);
        if self.passed == self.slots.slots {
            return Step::Done;
        }
        Step::Again
    }

    /// Makes each page of the rest a piece of its own: there is room for a piece a page.
    fn part(&mut self) {
        if self.span != WHOLE {
            return;
        }
        self.iovecs.drain(..self.first);
        self.first = 0;
        let mut from = self.iovecs.len();
        let mut to = (self.slots.slots - self.passed) as usize;
        let empty = self.iovecs[0].prefix(0);
        self.iovecs.resize(to, empty);
        // From the back: no piece is written over before it was read, for each is at least a page.
        while from > 0 {
            from -= 1;
            let mut piece = self.iovecs[from];
            to -= piece.len() >> PAGE_SHIFT;
            for page in to.. {
                if piece.len() == 0 {
                    break;
                }
                self.iovecs[page] = piece.prefix(PAGE_BYTES);
                piece.cut(PAGE_BYTES);
            }
        }
        debug_assert_eq!(to, 0);
    }

    fn stalled(&mut self, cause: Cause) -> Step {
        self.stalls += 1;
        if self.stalls < STALLS_MAX {
            Step::Again
        } else {
            self.give_up(cause)
        }
    }

    fn skip(&mut self, pages: usize) {
        let left = (self.slots.slots - self.passed).min(self.span) as usize;
        assert!(pages <= left, "the kernel moved more than it was asked to");
        self.passed += pages as u32;
        let mut bytes = pages * PAGE_BYTES;
        while bytes > 0 {
            bytes -= self.iovecs[self.first].cut(bytes);
            if self.iovecs[self.first].len() == 0 {
                self.first += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    fn flight(direction: Direction, addresses: &[usize]) -> Flight {
        // SAFETY: no transfer happens.
        #[allow(unsafe_code)]
        let frames: Vec<_> = addresses
            .iter()
            .map(|&a| unsafe { Frame::new(a) })
            .collect();
        let slots = SlotRange::new(SlotNo(10), frames.len() as u32);
        let mut flight = Flight::new(frames.len() as u32);
        flight.start(&Request {
            token: Token(7),
            direction,
            slots,
            frames: &frames,
            awaited: true,
        });
        flight
    }

    fn pieces(flight: &Flight) -> Vec<(usize, usize)> {
        flight
            .iovecs()
            .iter()
            .map(|v| (v.base(), v.len()))
            .collect()
    }

    /// The error that the flight ended with: why, the bytes that were transferred, the pages that were not.
    fn ended(flight: &Flight) -> (Cause, u64, Vec<u32>) {
        let completion = flight.completion();
        let error = completion.result.unwrap_err();
        (
            error.cause,
            error.bytes_done,
            completion.failed.iter().collect(),
        )
    }

    /// A disk with bad pages: a transfer fails whole if it touches one. Returns how many transfers there were.
    fn on_bad_disk(flight: &mut Flight, bad: impl Fn(u64) -> bool) -> u32 {
        for tries in 1..1000 {
            let start = flight.offset() >> PAGE_SHIFT;
            let bytes: usize = flight.iovecs().iter().map(|piece| piece.len()).sum();
            let pages = start..start + (bytes >> PAGE_SHIFT) as u64;
            let moved = if pages.clone().any(&bad) {
                Err(libc::EIO)
            } else {
                Ok(bytes)
            };
            if flight.advance(moved) == Step::Done {
                return tries;
            }
        }
        panic!("it never ends");
    }

    #[test]
    fn a_bad_page_costs_no_other() {
        let addresses: Vec<_> = (1..=64).map(|n| 0x1000 * (n + n / 10)).collect();
        for bad in 0..64 {
            let mut flight = flight(Direction::PageIn, &addresses);
            let tries = on_bad_disk(&mut flight, |slot| slot == 10 + bad);
            let left = (Cause::Errno(libc::EIO), 63 * 4096, vec![bad as u32]);
            assert_eq!(ended(&flight), left);
            assert!(tries <= 24, "{tries} transfers for page {bad}");
        }
        let mut flight = flight(Direction::PageIn, &addresses);
        on_bad_disk(&mut flight, |slot| [10, 11, 50, 73].contains(&slot));
        assert_eq!(ended(&flight).2, [0, 1, 40, 63]);
    }

    #[test]
    fn pieces_stay_where_they_are_when_a_page_is_bad() {
        let addresses = [0x4000, 0x5000, 0x9000, 0x8000, 0xa000];
        let mut flight = flight(Direction::PageIn, &addresses);
        assert_eq!(flight.advance(Ok(4096)), Step::Again);
        let mut seen = vec![(0x4000, 0x1000)];
        for _ in 0..20 {
            let pieces = pieces(&flight);
            let moved = if flight.offset() == 12 * 4096 || pieces.len() > 1 {
                Err(libc::EIO)
            } else {
                Ok(4096)
            };
            if moved.is_ok() || pieces.len() == 1 {
                seen.extend(pieces);
            }
            if flight.advance(moved) == Step::Done {
                break;
            }
        }
        assert_eq!(seen, addresses.map(|address| (address, 0x1000)));
        assert_eq!(ended(&flight).2, [2]);
    }

    #[test]
    fn a_disk_that_is_gone_is_given_up_and_a_page_out_at_once() {
        let addresses: Vec<_> = (1..=64).map(|n| 0x2000 * n).collect();
        let mut reads = flight(Direction::PageIn, &addresses);
        let tries = on_bad_disk(&mut reads, |_| true);
        assert_eq!((tries, ended(&reads).2.len()), (6 + BAD_MAX + 1, 64));
        let mut writes = flight(Direction::PageOut, &addresses);
        assert_eq!(writes.advance(Ok(3 * 4096)), Step::Again);
        assert_eq!(writes.advance(Err(libc::ENOSPC)), Step::Done);
        let failed: Vec<_> = (3..64).collect();
        assert_eq!(
            ended(&writes),
            (Cause::Errno(libc::ENOSPC), 3 * 4096, failed)
        );
    }

    #[test]
    fn neighbours_become_one_piece_and_nothing_else() {
        let flight = flight(Direction::PageIn, &[0x4000, 0x5000, 0x9000, 0x8000, 0x6000]);
        let expected = [
            (0x4000, 0x2000),
            (0x9000, 0x1000),
            (0x8000, 0x1000),
            (0x6000, 0x1000),
        ];
        assert_eq!(pieces(&flight), expected);
        assert_eq!(flight.offset(), 10 * 4096);
    }

    #[test]
    fn a_short_transfer_goes_on_at_the_last_whole_page() {
        let mut flight = flight(Direction::PageOut, &[0x4000, 0x5000, 0x6000, 0x9000]);
        assert_eq!(flight.advance(Ok(4096 + 4095)), Step::Again);
        assert_eq!(pieces(&flight), [(0x5000, 0x2000), (0x9000, 0x1000)]);
        assert_eq!(flight.offset(), 11 * 4096);
        assert_eq!(flight.advance(Ok(2 * 4096)), Step::Again);
        assert_eq!(pieces(&flight), [(0x9000, 0x1000)]);
        assert_eq!(flight.advance(Ok(4096)), Step::Done);
        assert_eq!(flight.completion(), Completion::whole(Token(7)));
    }

    #[test]
    fn the_end_of_the_store_is_an_error_that_counts_the_pages_before_it() {
        let mut flight = flight(Direction::PageIn, &[0x4000, 0x5000]);
        assert_eq!(flight.advance(Ok(4096)), Step::Again);
        assert_eq!(flight.advance(Ok(0)), Step::Done);
        assert_eq!(ended(&flight), (Cause::EndOfStore, 4096, vec![1]));
    }

    #[test]
    fn interruptions_are_retried_but_not_for_ever() {
        let mut flight = flight(Direction::PageIn, &[0x4000, 0x9000]);
        for round in 0..2 {
            for _ in 0..STALLS_MAX - 1 {
                assert_eq!(flight.advance(Err(libc::EINTR)), Step::Again);
            }
            if round == 0 {
                assert_eq!(flight.advance(Ok(4096)), Step::Again);
            }
        }
        assert_eq!(flight.advance(Err(libc::EAGAIN)), Step::Done);
        let cause = Cause::Errno(libc::EAGAIN);
        assert_eq!(ended(&flight), (cause, 4096, vec![1]));
    }

    #[test]
    fn less_than_a_page_again_and_again_ends() {
        let mut flight = flight(Direction::PageOut, &[0x4000]);
        let steps: Vec<_> = (0..STALLS_MAX).map(|_| flight.advance(Ok(100))).collect();
        assert_eq!(steps.last(), Some(&Step::Done));
        assert_eq!(ended(&flight), (Cause::NoProgress, 0, vec![0]));
        assert!(steps[..steps.len() - 1].iter().all(|s| *s == Step::Again));
    }
}
