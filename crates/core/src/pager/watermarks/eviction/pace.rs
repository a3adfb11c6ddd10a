//! How far detaching and page-out run ahead of the program: as far as it takes frames.
//!
//! A staged page that is touched is rescued, and the watermarks ask for another one in its place.
//! Where a program uses nearly all of its frames again and again, that would detach its pages for
//! ever, and write those that it changed, without any frame being needed. So a rescue earns nothing:
//! what is detached and written ahead is earned by frames that are taken, for zeroes, a page-in or a page of the pool.

/// Victims that may be detached for each frame taken. With fewer, hot pages are not told from cold
/// ones; with more, a program pays minor faults for pages that are only looked at. Of 2, 4, 8 and 16,
/// replaying `sqlite3` that builds two indexes of 400,000 and 800,000 rows in 43 to 53 % of its memory: 2 read up
/// to 63 % more pages than 8; 16 read at most 11 % fewer and took up to 1.7 times the minor faults.
const VICTIMS_A_FRAME: usize = 8;

/// The same for a frame that a page out of the pool takes. A touch in the pool costs a quarter of a read (`crate::tier`), and about what the touch of a
/// staged page costs: looking at eight would cost more than all that they save. Of 8, 4, 2 and 1, replaying the first 5.2 million references of OCaml's interpreter with
/// 800,000 strings in a table, in 43 MiB of 56: 103,963, 94,524, 77,974 and 95,462 minor faults, and 2,498 to 2,714 major ones. The first 0.8 million of Perl with a hash of
/// 200,000, in 40 to 85 %, wait with 2 within a twentieth of what they wait with 8 (20 us for a minor fault, 85 for a major one).
const VICTIMS_A_POOLED: usize = 2;

/// What frames were taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pager::watermarks) enum Taken {
    /// Zeroes, or pages that are read.
    Filled,
    /// Pages out of the pool.
    Pooled,
}

impl Taken {
    /// Victims that may be detached for each of these frames.
    const fn victims(self) -> usize {
        match self {
            Self::Filled => VICTIMS_A_FRAME,
            Self::Pooled => VICTIMS_A_POOLED,
        }
    }
}

/// What may still be done ahead of demand, in pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Pace {
    /// Victims to detach.
    pub victims: usize,
    /// Dirty pages to write: one for each frame taken keeps up with any program.
    pub writes: usize,
}

impl Pace {
    /// `frames` frames were taken. Not more than `most` pages are ever due.
    pub fn taken(&mut self, what: Taken, frames: usize, most: usize) {
        self.victims = (self.victims + frames * what.victims()).min(most);
        self.writes = (self.writes + frames).min(most);
    }

    /// So many victims are being detached.
    pub fn detached(&mut self, pages: usize) {
        self.victims = self.victims.saturating_sub(pages);
    }

    /// So many dirty pages are being written.
    pub fn written(&mut self, pages: usize) {
        self.writes = self.writes.saturating_sub(pages);
    }
}
