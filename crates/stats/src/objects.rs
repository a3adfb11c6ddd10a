//! What read-ahead did for each memory object: of every process, and the largest of those gone.

use std::cmp::Reverse;

use outpage_core::swap_cache::{OBJECTS_MAX, Objects, SwapCache};
use outpage_core::units::PageNo;
use outpage_sys::shareable;

use crate::counters::Counter;

shareable! {
    /// A memory object in shared memory. All zeroes: none.
    #[derive(Debug, Default)]
    struct Row {
        pid: Counter,
        first: Counter,
        last: Counter,
        major_faults: Counter,
        page_ins: Counter,
        read_ahead: Counter,
        mapped: Counter,
        hits: Counter,
        late: Counter,
        waste: Counter,
        along_used: Counter,
        along_unused: Counter,
        along_squares: Counter,
    }
}

shareable! {
    /// The objects of one process. Its pager writes, anybody reads.
    pub struct Table {
        rows: [Row; OBJECTS_MAX],
        /// The sum of what has no row.
        others: Row,
    }
}

/// What read-ahead did for one memory object of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectUse {
    /// The process, as the pid namespace of its pager numbers it.
    pub pid: u32,
    /// The lowest page that was read; its index is its address when it was mapped, in pages.
    pub first: PageNo,
    /// The highest.
    pub last: PageNo,
    /// What was counted.
    pub counts: SwapCache,
}

/// The objects that most was read of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectUses {
    /// Most pages read first.
    pub largest: Vec<ObjectUse>,
    /// The sum of all others.
    pub others: SwapCache,
}

impl Row {
    fn read(&self) -> ObjectUse {
        ObjectUse {
            pid: self.pid.get() as u32,
            first: PageNo::from_raw(self.first.get()),
            last: PageNo::from_raw(self.last.get()),
            counts: SwapCache {
                major_faults: self.major_faults.get(),
                page_ins: self.page_ins.get(),
                read_ahead: self.read_ahead.get(),
                mapped: self.mapped.get(),
                hits: self.hits.get(),
                late: self.late.get(),
                waste: self.waste.get(),
                along_used: self.along_used.get(),
                along_unused: self.along_unused.get(),
                along_squares: self.along_squares.get(),
            },
        }
    }

    fn write(&self, object: &ObjectUse) {
        self.pid.set(u64::from(object.pid));
        self.first.set(object.first.raw());
        self.last.set(object.last.raw());
        self.write_counts(&object.counts);
    }

    fn write_counts(&self, counts: &SwapCache) {
        self.major_faults.set(counts.major_faults);
        self.page_ins.set(counts.page_ins);
        self.read_ahead.set(counts.read_ahead);
        self.mapped.set(counts.mapped);
        self.hits.set(counts.hits);
        self.late.set(counts.late);
        self.waste.set(counts.waste);
        self.along_used.set(counts.along_used);
        self.along_unused.set(counts.along_unused);
        self.along_squares.set(counts.along_squares);
    }
}

impl Default for Table {
    fn default() -> Self {
        Self {
            rows: std::array::from_fn(|_| Row::default()),
            others: Row::default(),
        }
    }
}

impl Table {
    /// Shows others the places of `objects` that `changed` has bits of, and the sum of the rest, as those of process `pid`.
    pub fn publish(&self, objects: &Objects, changed: u64, pid: u32) {
        let mut left = changed;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let object = &objects.as_slice()[at];
            self.set(
                at,
                &ObjectUse {
                    pid,
                    first: object.first,
                    last: object.last,
                    counts: object.counts,
                },
            );
        }
        self.others.write_counts(objects.others());
    }

    /// Replaces the object at place `at`.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn set(&self, at: usize, object: &ObjectUse) {
        self.rows[at].write(object);
    }

    /// Takes the objects of a process that is gone in, and leaves `gone` empty.
    pub fn bury(&self, gone: &Self) {
        for object in gone.objects() {
            self.take(&object);
        }
        let mut others = self.others();
        others.add(&gone.others());
        self.others.write_counts(&others);
        gone.clear();
    }

    /// The objects of which anything was counted.
    pub fn objects(&self) -> impl Iterator<Item = ObjectUse> {
        let all = self.rows.iter().map(Row::read);
        all.filter(|row| row.counts != SwapCache::ZERO)
    }

    /// The sum of what has no place of its own.
    #[must_use]
    pub fn others(&self) -> SwapCache {
        self.others.read().counts
    }

    /// Takes a row in, which pushes the smallest one out where there is no room.
    fn take(&self, object: &ObjectUse) {
        let pages = |row: &&Row| row.page_ins.get();
        let Some(smallest) = self.rows.iter().min_by_key(pages) else {
            return;
        };
        let mut others = self.others.read().counts;
        if pages(&smallest) < object.counts.page_ins {
            others.add(&smallest.read().counts);
            smallest.write(object);
        } else {
            others.add(&object.counts);
        }
        self.others.write_counts(&others);
    }

    fn clear(&self) {
        let none = Row::default().read();
        let used = self.rows.iter().chain([&self.others]);
        used.filter(|row| row.read() != none)
            .for_each(|row| row.write(&none));
    }
}

/// The `most` objects of all `tables` that most pages were read of, and the sum of the others.
pub fn largest<'a>(tables: impl Iterator<Item = &'a Table>, most: usize) -> ObjectUses {
    let mut uses = ObjectUses::default();
    for table in tables {
        uses.largest.extend(table.objects());
        uses.others.add(&table.others());
    }
    let order = |object: &ObjectUse| (Reverse(object.counts.page_ins), object.pid, object.first);
    uses.largest.sort_by_key(order);
    for object in uses.largest.drain(most.min(uses.largest.len())..) {
        uses.others.add(&object.counts);
    }
    uses
}
