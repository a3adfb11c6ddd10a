//! A request in flight: what is left of it after each transfer that the kernel reports.

use outpage_core::units::{PAGE_BYTES, PAGE_SHIFT, SlotNo, SlotRange};

use crate::{Cause, Direction, IoVec, Request, StoreError, Token};

/// Most consecutive transfers without a whole page before the request fails. Interruptions come
/// singly, and a device that short-changes a page this often will do so again.
const STALLS_MAX: u32 = 64;

/// One request and how far it got. Made once, used for many requests, one after the other.
pub(crate) struct Flight {
    pub(crate) token: Token,
    pub(crate) direction: Direction,
    slots: SlotRange,
    pages_done: u32,
    /// The pieces of memory; those before `first` are done. Capacity fixed at construction.
    iovecs: Vec<IoVec>,
    first: usize,
    stalls: u32,
}

/// What to do after a transfer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Transfer [`Flight::iovecs`] at [`Flight::offset`].
    Again,
    /// The request has ended.
    Done(Result<(), StoreError>),
}

impl Flight {
    pub(crate) fn new(pages_max: u32) -> Self {
        Self {
            token: Token(0),
            direction: Direction::PageIn,
            slots: SlotRange::new(SlotNo(0), 0),
            pages_done: 0,
            iovecs: Vec::with_capacity(pages_max as usize),
            first: 0,
            stalls: 0,
        }
    }

    /// Takes the request over; neighbouring frames become one piece.
    pub(crate) fn start(&mut self, request: &Request<'_>) {
        assert!(request.frames.len() <= self.iovecs.capacity());
        (self.token, self.direction) = (request.token, request.direction);
        self.slots = request.slots;
        (self.pages_done, self.first, self.stalls) = (0, 0, 0);
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
        self.slots.start.byte_offset() + self.bytes_done()
    }

    /// The memory of the rest.
    pub(crate) fn iovecs(&self) -> &[IoVec] {
        &self.iovecs[self.first..]
    }

    /// Judges one transfer: the bytes moved, or an error number.
    ///
    /// Only whole pages count and the rest of a page is transferred again, so that every transfer
    /// stays aligned for `O_DIRECT`.
    pub(crate) fn advance(&mut self, transferred: Result<usize, i32>) -> Step {
        let bytes = match transferred {
            Ok(bytes) => bytes,
            Err(errno @ (libc::EINTR | libc::EAGAIN)) => return self.stalled(Cause::Errno(errno)),
            Err(errno) => return Step::Done(Err(self.error(Cause::Errno(errno)))),
        };
        self.skip(bytes >> PAGE_SHIFT);
        if self.pages_done == self.slots.slots {
            return Step::Done(Ok(()));
        }
        let cause = match self.direction {
            Direction::PageIn => Cause::EndOfStore,
            Direction::PageOut => Cause::NoProgress,
        };
        match bytes {
            0 => Step::Done(Err(self.error(cause))),
            1..PAGE_BYTES => self.stalled(cause),
            _ => Step::Again,
        }
    }

    /// The request's failure for `cause`, as far as it got.
    pub(crate) fn error(&self, cause: Cause) -> StoreError {
        let (direction, slots) = (self.direction, self.slots);
        StoreError {
            direction,
            slots,
            bytes_done: self.bytes_done(),
            cause,
        }
    }

    fn bytes_done(&self) -> u64 {
        u64::from(self.pages_done) << PAGE_SHIFT
    }

    fn stalled(&mut self, cause: Cause) -> Step {
        self.stalls += 1;
        if self.stalls < STALLS_MAX {
            Step::Again
        } else {
            Step::Done(Err(self.error(cause)))
        }
    }

    fn skip(&mut self, pages: usize) {
        if pages > 0 {
            self.stalls = 0;
        }
        let left = (self.slots.slots - self.pages_done) as usize;
        assert!(pages <= left, "the kernel moved more than it was asked to");
        self.pages_done += pages as u32;
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
        assert_eq!(flight.advance(Ok(4096)), Step::Done(Ok(())));
    }

    #[test]
    fn the_end_of_the_store_is_an_error_that_counts_the_pages_before_it() {
        let mut flight = flight(Direction::PageIn, &[0x4000, 0x5000]);
        assert_eq!(flight.advance(Ok(4096)), Step::Again);
        let error = flight.error(Cause::EndOfStore);
        assert_eq!(error.bytes_done, 4096);
        assert_eq!(flight.advance(Ok(0)), Step::Done(Err(error)));
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
        let error = flight.error(Cause::Errno(libc::EAGAIN));
        assert_eq!(flight.advance(Err(libc::EAGAIN)), Step::Done(Err(error)));
    }

    #[test]
    fn less_than_a_page_again_and_again_ends() {
        let mut flight = flight(Direction::PageOut, &[0x4000]);
        let steps: Vec<_> = (0..STALLS_MAX).map(|_| flight.advance(Ok(100))).collect();
        let error = flight.error(Cause::NoProgress);
        assert_eq!(steps.last(), Some(&Step::Done(Err(error))));
        assert!(steps[..steps.len() - 1].iter().all(|s| *s == Step::Again));
    }
}
