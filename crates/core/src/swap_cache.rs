//! What read-ahead was good for: the swap cache, for a program and for each memory object.
//!
//! A page that nobody asked for waits staged, clean and unmapped. Its touch is a hit; its release
//! without one is waste. Under [`Arrival::Mapped`](crate::readahead::Arrival::Mapped) neighbours are
//! mapped along with a touched page, and whether they are used is not seen: a governed policy keeps a
//! sample of them staged, and the rates take what it tells for the rest. Without a sample they are neither.

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
    /// Of those mapped along, pages that touched samples stand for.
    pub along_used: u64,
    /// Of those mapped along, pages that untouched samples stand for.
    pub along_unused: u64,
    /// The squares of what each sample stands for, summed.
    pub along_squares: u64,
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
        along_used: 0,
        along_unused: 0,
        along_squares: 0,
    };

    /// Hits as a share of the pages read ahead, those mapped along by their sample. Where none is mapped along,
    /// this is the hit rate of the ASP paper (HPDC 2010, section 4.1): swap cache hits by pages
    /// read less swap-ins. Where there is no sample, of the pages whose use can be seen.
    #[must_use]
    pub fn hit_rate(&self) -> Option<Rate> {
        let seen = self.read_ahead.checked_sub(self.mapped)?;
        self.rate(self.hits, seen)
    }

    /// Hits as a share of the pages whose fate is known, those mapped along by their sample.
    #[must_use]
    pub fn accuracy(&self) -> Option<Rate> {
        self.rate(self.hits, self.hits.saturating_add(self.waste))
    }

    /// `part` of `whole` pages whose use is seen, and what the sample tells of those mapped along.
    fn rate(&self, part: u64, whole: u64) -> Option<Rate> {
        let with = |used: f64| {
            let mapped = self.mapped as f64;
            (part as f64 + used * mapped) / (whole as f64 + mapped)
        };
        match self.along().filter(|_| self.mapped > 0) {
            Some(along) => Some(Rate {
                share: with(along.share),
                low: with(along.low),
                high: with(along.high),
            }),
            None => share(part, whole).map(Rate::exact),
        }
    }

    /// The share of the pages mapped along that is used, by their sample. `None` without one.
    ///
    /// The interval is Wilson's (Journal of the American Statistical Association 22, 1927) at 95 %, with the
    /// sample's effective size: its pages stand for different numbers of others.
    #[must_use]
    pub fn along(&self) -> Option<Rate> {
        /// The normal distribution's 97.5 % quantile.
        const Z: f64 = 1.96;
        let known = self.along_used.saturating_add(self.along_unused) as f64;
        let used = share(
            self.along_used,
            self.along_used.saturating_add(self.along_unused),
        )?;
        let n = known * known / (self.along_squares.max(1) as f64);
        let middle = used + Z * Z / (2.0 * n);
        let square = used * (1.0 - used) / n + Z * Z / (4.0 * n * n);
        let (reach, scale) = (Z * square_root(square), 1.0 + Z * Z / n);
        Some(Rate {
            share: used,
            low: ((middle - reach) / scale).max(0.0),
            high: ((middle + reach) / scale).min(1.0),
        })
    }

    /// The share of touches that would have been major faults, and were hits.
    #[must_use]
    pub fn coverage(&self) -> Option<Rate> {
        share(self.hits, self.hits.saturating_add(self.major_faults)).map(Rate::exact)
    }

    /// The share of hits that found their page already read.
    #[must_use]
    pub fn timeliness(&self) -> Option<Rate> {
        share(self.hits.checked_sub(self.late)?, self.hits).map(Rate::exact)
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
        self.along_used = self.along_used.saturating_add(other.along_used);
        self.along_unused = self.along_unused.saturating_add(other.along_unused);
        self.along_squares = self.along_squares.saturating_add(other.along_squares);
    }
}

/// A share, and the interval in which the true one lies with 95 % probability where it is estimated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// The share, 0 to 1.
    pub share: f64,
    /// The interval's lower end; the share itself where that is counted.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Rate {
    /// A share that is counted.
    const fn exact(share: f64) -> Self {
        Self {
            share,
            low: share,
            high: share,
        }
    }

    /// Whether it is an estimate.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        self.low < self.high
    }
}

/// Newton's iteration: `core` has no square root. `of` is from 0 to 1.
fn square_root(of: f64) -> f64 {
    // From above, where it converges; 40 halvings reach any root that matters here.
    (0..40).fold(1.0, |root, _| (root + of / root) / 2.0)
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
