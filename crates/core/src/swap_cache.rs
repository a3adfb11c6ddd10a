//! What read-ahead was good for: the swap cache, for a program and for each memory object.
//!
//! A page that nobody asked for waits staged, clean and unmapped. Its touch is a hit; its release
//! without one is waste. Under [`Arrival::Mapped`](crate::readahead::Arrival::Mapped) neighbours are
//! mapped along with a touched page, and whether they are used is not seen: they are neither.

use crate::units::{ObjectId, PageNo};

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
    /// Nothing counted.
    pub const ZERO: Self = Self {
        major_faults: 0,
        page_ins: 0,
        read_ahead: 0,
        mapped: 0,
        hits: 0,
        late: 0,
        waste: 0,
    };

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
        share(self.hits, self.hits.saturating_add(self.waste))
    }

    /// The share of touches that would have been major faults, and were hits.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        share(self.hits, self.hits.saturating_add(self.major_faults))
    }

    /// The share of hits that found their page already read.
    #[must_use]
    pub fn timeliness(&self) -> Option<f64> {
        share(self.hits.checked_sub(self.late)?, self.hits)
    }

    /// Takes other counts in. Sums stop at the largest number: counts may come from memory that others write.
    pub const fn add(&mut self, other: &Self) {
        self.major_faults = self.major_faults.saturating_add(other.major_faults);
        self.page_ins = self.page_ins.saturating_add(other.page_ins);
        self.read_ahead = self.read_ahead.saturating_add(other.read_ahead);
        self.mapped = self.mapped.saturating_add(other.mapped);
        self.hits = self.hits.saturating_add(other.hits);
        self.late = self.late.saturating_add(other.late);
        self.waste = self.waste.saturating_add(other.waste);
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Objects that are told apart. A choice: 4 KiB of counters, and a search of a tenth of a
/// microsecond where objects take turns.
pub const OBJECTS_MAX: usize = 64;

/// The counts of one memory object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Which.
    pub id: ObjectId,
    /// The lowest page of it that was read.
    pub first: PageNo,
    /// The highest.
    pub last: PageNo,
    /// What was counted.
    pub counts: SwapCache,
}

impl Object {
    const NONE: Self = Self {
        id: ObjectId(0),
        first: PageNo::from_raw(0),
        last: PageNo::from_raw(0),
        counts: SwapCache::ZERO,
    };
}

/// The counts of each memory object, in a table that never grows.
///
/// Where there are more objects, the one with the fewest pages read makes room; its counts go to
/// [`Self::others`], so the sums stay exact. An object that comes back begins at zero.
#[derive(Clone, Debug)]
pub struct Objects {
    table: [Object; OBJECTS_MAX],
    known: usize,
    last: usize,
    /// A bit for each place of the table: it is another than it was. [`OBJECTS_MAX`] are 64.
    changed: u64,
    others: SwapCache,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            table: [Object::NONE; OBJECTS_MAX],
            known: 0,
            last: 0,
            changed: 0,
            others: SwapCache::ZERO,
        }
    }
}

impl Objects {
    /// The counts of the object of `page`, to be changed.
    pub(crate) fn of(&mut self, page: PageNo) -> &mut SwapCache {
        &mut self.object(page).counts
    }

    /// Counts `page`, which is being read, and asked for or not.
    pub(crate) fn read(&mut self, page: PageNo, demanded: bool) {
        let object = self.object(page);
        if object.counts.page_ins == 0 {
            (object.first, object.last) = (page, page);
        }
        object.first = object.first.min(page);
        object.last = object.last.max(page);
        object.counts.page_ins += 1;
        object.counts.read_ahead += u64::from(!demanded);
    }

    fn object(&mut self, page: PageNo) -> &mut Object {
        let id = page.object();
        let known = &self.table[..self.known];
        if known.get(self.last).is_none_or(|entry| entry.id != id) {
            let found = known.iter().position(|entry| entry.id == id);
            self.last = found.unwrap_or_else(|| self.admit(page));
        }
        self.changed |= 1 << self.last;
        &mut self.table[self.last]
    }

    fn admit(&mut self, page: PageNo) -> usize {
        let at = if self.known < OBJECTS_MAX {
            self.known += 1;
            self.known - 1
        } else {
            let entries = self.table.iter().enumerate();
            let fewest = entries.min_by_key(|(_, entry)| entry.counts.page_ins);
            let at = fewest.map_or(0, |(at, _)| at);
            self.others.add(&self.table[at].counts);
            at
        };
        self.table[at] = Object {
            id: page.object(),
            first: page,
            last: page,
            counts: SwapCache::ZERO,
        };
        at
    }

    /// The objects that have a place in the table.
    #[must_use]
    pub fn as_slice(&self) -> &[Object] {
        &self.table[..self.known]
    }

    /// The places of [`Self::as_slice`] that changed since the last call, as bits.
    pub const fn take_changed(&mut self) -> u64 {
        core::mem::replace(&mut self.changed, 0)
    }

    /// What the objects counted that had to make room.
    #[must_use]
    pub const fn others(&self) -> &SwapCache {
        &self.others
    }
}
