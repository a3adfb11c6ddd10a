//! Frames of a store's own, given out to requests in consecutive pieces.

use crate::{Frame, FrameArea};

/// As a word has bits.
const UNITS_MAX: u32 = u64::BITS;

/// Frames, and which of them are in use: in units of as few frames as a word's bits allow.
pub(crate) struct Room {
    area: FrameArea,
    unit_pages: u32,
    /// A bit for each unit, set where it is in use or not there.
    taken: u64,
}

/// The units that a request has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lease {
    first: u32,
    units: u32,
}

impl Lease {
    const fn bits(self) -> u64 {
        (u64::MAX >> (UNITS_MAX - self.units)) << self.first
    }
}

impl Room {
    pub(crate) fn new(area: FrameArea) -> Self {
        let unit_pages = area.frames().div_ceil(UNITS_MAX).max(1);
        let mut room = Self {
            area,
            unit_pages,
            taken: 0,
        };
        room.clear();
        room
    }

    /// Frames there are, in use or not.
    pub(crate) const fn frames(&self) -> u32 {
        self.area.frames()
    }

    /// Nobody has any of it.
    pub(crate) fn clear(&mut self) {
        self.taken = match self.area.frames() / self.unit_pages {
            0 => u64::MAX,
            units => !Lease { first: 0, units }.bits(),
        };
    }

    /// Room for `pages` pages, in use afterwards.
    pub(crate) fn take(&mut self, pages: u32) -> Option<Lease> {
        let units = pages.div_ceil(self.unit_pages);
        let room = (0..=UNITS_MAX.checked_sub(units)?)
            .map(|first| Lease { first, units })
            .find(|lease| self.taken & lease.bits() == 0)?;
        self.taken |= room.bits();
        Some(room)
    }

    pub(crate) fn give_back(&mut self, lease: Lease) {
        debug_assert!(self.taken & lease.bits() == lease.bits());
        self.taken &= !lease.bits();
    }

    /// Frame number `at` of a lease, from 0 on.
    pub(crate) fn frame(&self, lease: Lease, at: usize) -> Frame {
        self.area.frame(lease.first * self.unit_pages + at as u32)
    }

    /// Units that are free.
    #[cfg(test)]
    pub(crate) const fn free(&self) -> u32 {
        self.taken.count_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(frames: u32) -> Room {
        // SAFETY: never part of a request.
        #[allow(unsafe_code)]
        Room::new(unsafe { FrameArea::new(0x10_000, frames) })
    }

    #[test]
    fn room_is_found_where_it_is_and_nowhere_else() {
        let mut room = room(512);
        let whole = room.take(512).unwrap();
        assert_eq!((room.take(1), room.free()), (None, 0));
        room.give_back(whole);
        let (first, second) = (room.take(256).unwrap(), room.take(249).unwrap());
        assert_eq!((second.first, second.units), (32, 32));
        assert_eq!(room.take(8), None);
        room.give_back(first);
        assert_eq!(room.take(257), None, "no two parts make a whole");
        assert_eq!(room.take(9).map(|l| (l.first, l.units)), Some((0, 2)));
        assert_eq!(room.frame(second, 3).address(), 0x10_000 + (256 + 3) * 4096);
        room.clear();
        assert!(room.take(512).is_some());
    }

    #[test]
    fn small_and_large_rooms_end_where_they_end() {
        assert_eq!(room(0).take(1), None);
        let mut one = room(1);
        assert_eq!(one.take(2), None);
        assert!(one.take(1).is_some() && one.take(1).is_none());
        let mut small = room(20);
        assert_eq!(small.take(21), None);
        assert!(small.take(20).is_some() && small.take(1).is_none());
        // Units of two frames, the last frame left over.
        assert!(room(127).take(126).is_some() && room(127).take(127).is_none());
        assert!(room(2000).take(1984).is_some() && room(2000).take(2001).is_none());
    }
}
