//! What read-ahead was good for: the swap cache, for a program and for each memory object.
//!
//! A page that nobody asked for waits staged, clean and unmapped. Its touch is a hit; its release
//! without one is waste. Under [`Arrival::Mapped`](crate::readahead::Arrival::Mapped) neighbours are
//! mapped along with a touched page, and whether they are used is not seen: they are neither.

use crate::units::ObjectId;

/// Counts of pages, and the rates made of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapCache {
    /// Faults that read the store: swap-ins.
    pub major_faults: u64,
    /// Pages read.
    pub page_ins: u64,
    /// Of these, pages that nobody had asked for.
    pub read_ahead: u64,
    /// Of those, mapped along unseen.
    pub mapped: u64,
    /// Of those, touched.
    pub hits: u64,
    /// Of the hits, those whose page was still being read.
    pub late: u64,
    /// Of the pages read ahead, released untouched.
    pub waste: u64,
}

impl SwapCache {
    /// Hits as a share of the pages read ahead whose use can be seen. Where none is mapped along,
    /// this is the hit rate of the ASP paper (HPDC 2010, section 4.1): swap cache hits by pages
    /// read less swap-ins.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        share(self.hits, self.read_ahead.checked_sub(self.mapped)?)
    }

    /// Hits as a share of the pages whose fate is known.
    #[must_use]
    pub fn accuracy(&self) -> Option<f64> {
        share(self.hits, self.hits + self.waste)
    }

    /// The share of touches that would have been major faults, and were hits.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        share(self.hits, self.hits + self.major_faults)
    }

    /// The share of hits that found their page already read.
    #[must_use]
    pub fn timeliness(&self) -> Option<f64> {
        share(self.hits.checked_sub(self.late)?, self.hits)
    }

    fn add(&mut self, other: &Self) {
        self.major_faults += other.major_faults;
        self.page_ins += other.page_ins;
        self.read_ahead += other.read_ahead;
        self.mapped += other.mapped;
        self.hits += other.hits;
        self.late += other.late;
        self.waste += other.waste;
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Objects that are told apart. A choice: 4 KiB of counters, and a search of a tenth of a
/// microsecond where objects take turns.
pub const OBJECTS_MAX: usize = 64;

/// The counts of each memory object, in a table that never grows.
///
/// Where there are more objects, the one with the fewest pages read makes room; its counts go to
/// [`Self::others`], so the sums stay exact. An object that comes back begins at zero.
#[derive(Clone, Debug)]
pub struct Objects {
    table: [(ObjectId, SwapCache); OBJECTS_MAX],
    known: usize,
    last: usize,
    others: SwapCache,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            table: [(ObjectId(0), SwapCache::default()); OBJECTS_MAX],
            known: 0,
            last: 0,
            others: SwapCache::default(),
        }
    }
}

impl Objects {
    /// The counts of `object`, to be changed.
    pub(crate) fn of(&mut self, object: ObjectId) -> &mut SwapCache {
        let known = &self.table[..self.known];
        if known.get(self.last).is_none_or(|entry| entry.0 != object) {
            let found = known.iter().position(|entry| entry.0 == object);
            self.last = found.unwrap_or_else(|| self.admit(object));
        }
        &mut self.table[self.last].1
    }

    fn admit(&mut self, object: ObjectId) -> usize {
        let at = if self.known < OBJECTS_MAX {
            self.known += 1;
            self.known - 1
        } else {
            let entries = self.table.iter().enumerate();
            let fewest = entries.min_by_key(|(_, entry)| entry.1.page_ins);
            let at = fewest.map_or(0, |(at, _)| at);
            self.others.add(&self.table[at].1);
            at
        };
        self.table[at] = (object, SwapCache::default());
        at
    }

    /// The objects that have a place in the table.
    #[must_use]
    pub fn as_slice(&self) -> &[(ObjectId, SwapCache)] {
        &self.table[..self.known]
    }

    /// What the objects counted that had to make room.
    #[must_use]
    pub const fn others(&self) -> &SwapCache {
        &self.others
    }
}
