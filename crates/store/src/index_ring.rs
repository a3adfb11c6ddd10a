//! Queues of small numbers between one owner thread and many workers, without locks.
//!
//! At most `capacity` numbers are in a queue at any time; the owner sees to that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

fn places(capacity: usize) -> Box<[AtomicU32]> {
    (0..capacity.next_power_of_two())
        .map(|_| AtomicU32::new(0))
        .collect()
}

/// From one thread to many.
pub(crate) struct ToMany {
    places: Box<[AtomicU32]>,
    head: AtomicU64,
    tail: AtomicU64,
}

impl ToMany {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            places: places(capacity),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
        }
    }

    fn place(&self, position: u64) -> &AtomicU32 {
        &self.places[position as usize & (self.places.len() - 1)]
    }

    /// For the one sender.
    pub(crate) fn push(&self, number: u32) {
        let tail = self.tail.load(Ordering::Relaxed);
        self.place(tail).store(number, Ordering::Relaxed);
        self.tail.store(tail + 1, Ordering::Release);
    }

    /// For any receiver.
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        while head != self.tail.load(Ordering::Acquire) {
            // The place may be reused meanwhile, but then the head has moved and the exchange fails.
            let number = self.place(head).load(Ordering::Relaxed);
            let next = head + 1;
            match self
                .head
                .compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(number),
                Err(moved) => head = moved,
            }
        }
        None
    }
}

/// From many threads to one. A place holds the number plus one; 0 is an empty place.
pub(crate) struct ToOne {
    places: Box<[AtomicU32]>,
    head: AtomicU64,
    tail: AtomicU64,
}

impl ToOne {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            places: places(capacity),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
        }
    }

    fn place(&self, position: u64) -> &AtomicU32 {
        &self.places[position as usize & (self.places.len() - 1)]
    }

    /// For any sender.
    pub(crate) fn push(&self, number: u32) {
        let position = self.tail.fetch_add(1, Ordering::Relaxed);
        self.place(position).store(number + 1, Ordering::Release);
    }

    /// Whether `pop` has something. For the one receiver.
    pub(crate) fn is_empty(&self) -> bool {
        self.place(self.head.load(Ordering::Relaxed))
            .load(Ordering::Acquire)
            == 0
    }

    /// For the one receiver.
    pub(crate) fn pop(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        let number = self.place(head).load(Ordering::Acquire).checked_sub(1)?;
        // Emptied before the owner can let another number in, which a sender would put here.
        self.place(head).store(0, Ordering::Relaxed);
        self.head.store(head + 1, Ordering::Relaxed);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn numbers_come_out_in_order_and_wrap() {
        let (many, one) = (ToMany::new(3), ToOne::new(3));
        for round in 0..10 {
            for n in 0..3 {
                many.push(round * 3 + n);
                one.push(round * 3 + n);
            }
            for n in 0..3 {
                assert_eq!(many.pop(), Some(round * 3 + n));
                assert!(!one.is_empty());
                assert_eq!(one.pop(), Some(round * 3 + n));
            }
            assert_eq!((many.pop(), one.pop()), (None, None));
            assert!(one.is_empty());
        }
    }

    #[test]
    fn every_number_makes_the_round_trip_once_through_many_threads() {
        const DEPTH: usize = 8;
        const TRIPS: u32 = 20_000;
        let (many, one, stop) = (
            ToMany::new(DEPTH),
            ToOne::new(DEPTH),
            AtomicBool::new(false),
        );
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Acquire) {
                        many.pop().map_or_else(thread::yield_now, |n| one.push(n));
                    }
                });
            }
            let mut away = [false; DEPTH];
            let (mut sent, mut back) = (0, 0);
            while back < TRIPS {
                for (n, away) in away.iter_mut().enumerate() {
                    if !*away && sent < TRIPS {
                        (*away, sent) = (true, sent + 1);
                        many.push(n as u32);
                    }
                }
                match one.pop() {
                    Some(n) => {
                        assert!(std::mem::take(&mut away[n as usize]), "{n} came back twice");
                        back += 1;
                    }
                    None => thread::yield_now(),
                }
            }
            stop.store(true, Ordering::Release);
        });
    }
}
