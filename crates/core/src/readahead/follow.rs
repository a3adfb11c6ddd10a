//! When the page behind a read is wanted: how much more could have been read at once.
//!
//! The rows of a matrix that is read down its columns are streams, slow ones and more than any policy keeps apart. Where the
//! page behind a read of `w` pages is wanted `t` frames later, so much has been read for all the others; reading `k` pages
//! for each takes `t / w * k` frames in the same time. What memory holds of that is of use, what goes beyond is in vain.

use alloc::vec;
use alloc::vec::Vec;

use super::sample::hash;
use crate::units::PageNo;

/// At most so many places, of 32 bytes. Rows of a matrix; of more some are forgotten.
const PLACES: usize = 1 << 13;

/// At least so many.
const PLACES_MIN: usize = 512;

/// A stream that goes on within fewer frames is none of many, and policies see it by themselves, unless they have lost it. A choice, a common window.
const SLOW: u64 = 64;

#[derive(Clone, Copy)]
struct Place {
    page: PageNo,
    since: u64,
    pages: u32,
    /// How many should have been read: more where the row of slots ended.
    meant: u32,
    /// They are those above the page, and the stream runs downward.
    downward: bool,
}

/// Where a page is that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Behind no read that is known.
    Elsewhere,
    /// Behind one of a stream that policies see by themselves.
    Followed,
    /// Behind one of a slow stream: how many pages of it could be read at once, how many were meant to be, and whether it runs downward.
    Behind {
        fits: u32,
        meant: u32,
        downward: bool,
    },
}

/// A read that a stream may go on behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// The page that is wanted next if it does.
    pub(crate) next: PageNo,
    /// Pages that were read.
    pub(crate) pages: u32,
    /// How many should have been, had their slots been one row.
    pub(crate) meant: u32,
    /// The next page is below those that were read.
    pub(crate) downward: bool,
}

/// Pages behind reads, found by number; of the two that share places with a new one the older makes room.
pub(super) struct Follow {
    places: Vec<Option<Place>>,
}

impl Follow {
    /// None known.
    pub(super) fn new() -> Self {
        Self {
            places: vec![None; PLACES_MIN],
        }
    }

    /// For a memory of `frames` frames: a place for 32 of them at most, which is a byte a frame. What is known is
    /// forgotten where the table grows.
    pub(super) fn resize(&mut self, frames: usize) {
        let most = (frames / 32).clamp(PLACES_MIN, PLACES);
        let wanted = 1 << most.ilog2();
        if wanted > self.places.len() {
            self.places = vec![None; wanted];
        }
    }

    /// The two places where `page` may be: with one, streams at regular distances meet in places of others again and again.
    fn pair(&mut self, page: PageNo) -> &mut [Option<Place>] {
        let at = (hash(page) >> 32) as usize & (self.places.len() - 2);
        &mut self.places[at..at + 2]
    }

    /// `read` was made when so many frames had been taken.
    pub(super) fn read(&mut self, read: Read, taken: u64) {
        let page = read.next;
        let new = Place {
            page,
            since: taken,
            pages: read.pages,
            meant: read.meant,
            downward: read.downward,
        };
        // The same page, else none, else the older.
        let age = |place: &&mut Option<Place>| {
            place
                .map(|old| (old.page != page, old.since))
                .filter(|&(other, _)| other)
        };
        if let Some(place) = self.pair(page).iter_mut().min_by_key(age) {
            *place = Some(new);
        }
    }

    /// The place of `page`, if it is as it has to be, which has none from then on.
    fn take(&mut self, page: PageNo, is_so: impl Fn(&Place) -> bool) -> Option<Place> {
        let is_it = |place: &Place| place.page == page && is_so(place);
        let mut pair = self.pair(page).iter_mut();
        pair.find(|place| place.as_ref().is_some_and(is_it))?.take()
    }

    /// `page` is below one that was read alone, when nobody knew which way that goes on.
    fn turned(&mut self, page: PageNo) -> Option<Place> {
        let alone = |place: &Place| place.pages == 1 && !place.downward;
        let found = self.take(page.checked_add(2)?, alone)?;
        Some(Place {
            downward: true,
            ..found
        })
    }

    /// `page` is wanted, where memory has `frames` frames. The policy has `lost` a stream that it takes for a new one.
    pub(super) fn wanted(&mut self, page: PageNo, taken: u64, frames: usize, lost: bool) -> Wanted {
        let found = self.take(page, |_| true);
        let Some(found) = found.or_else(|| self.turned(page)) else {
            return Wanted::Elsewhere;
        };
        let took = taken - found.since;
        if !lost && took < SLOW {
            return Wanted::Followed;
        }
        // An eighth is for what is on its way in and out.
        let held = frames as u64 - frames as u64 / 8;
        let fits = held * u64::from(found.pages) / took.max(1);
        Wanted::Behind {
            fits: u32::try_from(fits).unwrap_or(u32::MAX),
            meant: found.meant,
            downward: found.downward,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ObjectId;

    fn up_to(next: PageNo, pages: u32) -> Read {
        Read {
            next,
            pages,
            meant: pages,
            downward: false,
        }
    }

    #[test]
    fn so_much_fits_as_all_streams_together_have_room_for() {
        // 500 streams, each read by one page, then by two, in a memory of 1600 frames: 1400 / 500 = 2.8.
        let page = |stream: u64, at: u64| PageNo::new(ObjectId(1), stream * 100 + at);
        let (mut follow, mut taken) = (Follow::new(), 0);
        for (at, pages) in [(0, 1), (1, 2), (3, 2)] {
            for stream in 0..500 {
                let found = follow.wanted(page(stream, at), taken, 1600, false);
                match at {
                    0 => assert_eq!(found, Wanted::Elsewhere),
                    // Places are shared by chance: a stream may be forgotten.
                    _ => assert!(
                        match found {
                            Wanted::Behind { fits, .. } => fits == 2 || (at == 1 && fits == 1),
                            other => other == Wanted::Elsewhere,
                        },
                        "{found:?}"
                    ),
                }
                taken += u64::from(pages);
                let next = page(stream, at + u64::from(pages));
                follow.read(up_to(next, pages), taken);
            }
        }
        let mut wanted = |after, lost| {
            follow.read(up_to(page(0, 90), 1), taken);
            follow.wanted(page(0, 90), taken + after, 1600, lost)
        };
        assert_eq!(wanted(3, false), Wanted::Followed, "a fast one");
        let behind = Wanted::Behind {
            fits: 100,
            meant: 1,
            downward: false,
        };
        assert_eq!(
            wanted(14, true),
            behind,
            "one that the policy follows no more"
        );
        assert_eq!(
            follow.wanted(page(0, 90), taken, 1600, false),
            Wanted::Elsewhere
        );
    }
}
