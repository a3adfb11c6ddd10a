//! Read-ahead that watches itself: orders in which a policy reads too much, and orders that it must not
//! lose sight of, under every policy that reads ahead.

use outpage_core::readahead::REGISTRY;
use outpage_core::units::PageNo;

use crate::swap_cache::Body;
use crate::world::page;

const FRAMES: usize = 1024;

/// A matrix in row-major order, each row so many pages.
#[derive(Clone, Copy)]
struct Matrix {
    rows: u64,
    row_pages: u64,
}

impl Matrix {
    fn pages(self) -> u64 {
        self.rows * self.row_pages
    }

    fn page(self, row: u64, column: u64) -> PageNo {
        page(1, row * self.row_pages + column)
    }

    /// Down the columns, `times` in each page's width.
    fn down_columns(self, times: u64) -> impl Iterator<Item = PageNo> {
        let columns = (0..self.row_pages).flat_map(move |column| (0..times).map(move |_| column));
        columns.flat_map(move |column| (0..self.rows).map(move |row| self.page(row, column)))
    }
}

/// Touches of a program that has written `pages` pages of one object in order, and all of another after them, so that the first
/// ones are paged out.
struct Run {
    body: Body,
    /// Pages read and major faults when the orders began.
    before: (u64, u64),
    /// Pages mapped along for one that was touched, not touched themselves.
    along: std::collections::BTreeSet<PageNo>,
    used: u64,
}

impl Run {
    fn new(policy: &str, govern: &str, pages: u64) -> Self {
        let written = (0..pages).map(|index| page(1, index));
        Self::behind(Body::new(policy, FRAMES, govern), FRAMES, written)
    }

    /// Behind `written`, in `frames` frames.
    fn behind(mut body: Body, frames: usize, written: impl Iterator<Item = PageNo>) -> Self {
        written.for_each(|page| body.touch(page));
        (0..2 * frames as u64).for_each(|index| body.touch(page(2, index)));
        let stats = body.pager.stats();
        let before = (stats.page_ins, stats.major_faults);
        Self {
            body,
            before,
            along: std::collections::BTreeSet::new(),
            used: 0,
        }
    }

    fn touch(&mut self, pages: impl Iterator<Item = PageNo>) {
        for page in pages {
            self.body.touch(page);
        }
    }

    /// The same, and watches which pages that are mapped along are touched before they leave.
    fn watch(&mut self, pages: impl Iterator<Item = PageNo>) {
        for page in pages {
            if self.along.remove(&page) && self.body.mapped.contains(&page) {
                self.used += 1;
            }
            let before = self.body.mapped.clone();
            self.body.touch(page);
            let new = self.body.mapped.difference(&before);
            self.along.extend(new.filter(|&&other| other != page));
            let mapped = &self.body.mapped;
            self.along.retain(|page| mapped.contains(page));
        }
    }

    fn page_ins(&self) -> u64 {
        self.body.pager.stats().page_ins - self.before.0
    }

    fn major_faults(&self) -> u64 {
        self.body.pager.stats().major_faults - self.before.1
    }
}

/// All policies that read ahead.
fn policies() -> impl Iterator<Item = &'static str> {
    let names = REGISTRY.iter().map(|entry| entry.name);
    names.filter(|name| *name != "none")
}

/// Few rows, each a slow stream, for which memory holds more than a window.
#[test]
fn no_read_is_larger_than_the_largest_window() {
    let matrix = Matrix {
        rows: 70,
        row_pages: 60,
    };
    for policy in policies() {
        let mut run = Run::new(policy, "govern=on", matrix.pages());
        run.touch(matrix.down_columns(4));
    }
}

/// More streams than any policy follows, side by side, in one object and each in its own: an array of structures' parts, the columns of a table.
#[test]
fn streams_side_by_side_are_read_in_windows_however_many() {
    const PAGES: u64 = 40_000;
    const FRAMES: usize = 16 * 1024;
    let cases = [20, 40, 64, 100].into_iter();
    let cases = cases.flat_map(|streams| [(streams, false), (streams, true)]);
    for ((streams, apart), downward) in cases.flat_map(|case| [(case, false), (case, true)]) {
        let len = PAGES / streams;
        let place = |stream, at| {
            if apart {
                page(10 + stream as u32, at)
            } else {
                page(1, stream * len + at)
            }
        };
        let written = (0..streams).flat_map(|stream| (0..len).map(move |at| place(stream, at)));
        let body = Body::new("stream", FRAMES, "govern=on");
        let mut run = Run::behind(body, FRAMES, written);
        let order = (0..len).map(|at| if downward { len - 1 - at } else { at });
        run.touch(order.flat_map(|at| (0..streams).map(move |stream| place(stream, at))));
        let (read, faults) = (run.page_ins(), run.major_faults());
        let case = format!(
            "{streams} streams, apart: {apart}, downward: {downward}: {read} pages read, {faults} faults"
        );
        // Downward ones that lie at one distance are taken for a walk across them, again and again.
        let in_windows = if downward { 3 } else { 5 };
        assert!(faults * in_windows < PAGES, "{case}");
        assert!(read < PAGES * 5 / 4, "{case}");
    }
}

/// Columns that are below, about and above what memory holds, in a matrix that it does not hold.
const MATRICES: [Matrix; 5] = [
    Matrix {
        rows: 150,
        row_pages: 20,
    },
    Matrix {
        rows: 400,
        row_pages: 6,
    },
    Matrix {
        rows: 700,
        row_pages: 5,
    },
    Matrix {
        rows: 1000,
        row_pages: 4,
    },
    Matrix {
        rows: 1300,
        row_pages: 3,
    },
];

#[test]
fn down_the_columns_no_policy_reads_much_more_than_what_is_touched() {
    for matrix in MATRICES {
        let read = |policy, govern| {
            let mut run = Run::new(policy, govern, matrix.pages());
            run.touch(matrix.down_columns(6));
            run.page_ins()
        };
        let none = read("none", "");
        for policy in policies() {
            let governed = read(policy, "govern=on");
            // What is read at most: half of what is of use, a sixteenth of what is demanded, and what accounts begin with.
            let begun = FRAMES as u64 / 4;
            let most = none + none / 2 + none / 16 + begun;
            assert!(
                governed <= most && (policy != "stream" || 2 * governed <= 3 * none),
                "{policy}, {} rows of {} pages: {governed}, without {none}",
                matrix.rows,
                matrix.row_pages
            );
        }
    }
}

#[test]
fn ungoverned_policies_read_as_their_sources_do() {
    let matrix = MATRICES[1];
    let read = |policy| {
        let mut run = Run::new(policy, "", matrix.pages());
        run.touch(matrix.down_columns(6));
        run.page_ins()
    };
    let none = read("none");
    for policy in ["stream", "bsd", "asp"] {
        assert!(read(policy) > 3 * none, "{policy}");
    }
}

#[test]
fn a_phase_that_turns_sequential_is_found_within_a_few_hundred_faults() {
    let matrix = Matrix {
        rows: 700,
        row_pages: 8,
    };
    for policy in policies() {
        let sequential = |govern, columns_first: bool| {
            let mut run = Run::new(policy, govern, matrix.pages());
            if columns_first {
                run.touch(matrix.down_columns(3));
            }
            let before = run.major_faults();
            run.touch((0..matrix.pages()).map(|index| page(1, index)));
            run.major_faults() - before
        };
        let (at_once, after) = (sequential("", false), sequential("govern=on", true));
        assert!(
            after <= at_once + 300,
            "{policy}: {after}, at best {at_once}"
        );
    }
}

#[test]
fn a_sequential_stream_is_read_ahead_beside_a_column_walk_in_the_same_object() {
    let matrix = Matrix {
        rows: 700,
        row_pages: 8,
    };
    let both = |policy, govern| {
        let mut run = Run::new(policy, govern, 2 * matrix.pages());
        let beside = (0..matrix.pages()).map(|index| page(1, matrix.pages() + index));
        let columns = matrix.down_columns(1);
        run.touch(columns.zip(beside).flat_map(|(a, b)| [a, b]));
        (run.page_ins(), run.major_faults())
    };
    let (none, governed) = (both("none", ""), both("stream", "govern=on"));
    assert!(
        2 * governed.0 <= 3 * none.0,
        "pages: {governed:?} for {none:?}"
    );
    assert!(
        4 * governed.1 <= 3 * none.1,
        "faults: {governed:?} for {none:?}"
    );
}

#[test]
fn the_sample_tells_how_many_of_the_pages_mapped_along_are_used() {
    // Of each eight pages so many are touched, in order.
    for wanted in [2, 4, 6, 8] {
        let mut run = Run::new("stream", "govern=on", 8 * FRAMES as u64);
        let touched = (0..8 * FRAMES as u64).filter(|index| index % 8 < wanted);
        run.watch(touched.map(|index| page(1, index)));
        // What is still mapped has no fate yet; as many frames are taken as memory has.
        (0..2 * FRAMES as u64).for_each(|index| run.body.touch(page(3, index)));
        let cache = run.body.pager.stats().swap_cache();
        if cache.mapped < 100 {
            assert!(wanted < 6, "{cache:?}");
            continue;
        }
        let truth = run.used as f64 / cache.mapped as f64;
        let told = cache.along().expect("a sample");
        assert!(
            told.low - 0.05 <= truth && truth <= told.high + 0.05,
            "{wanted} of 8: {truth:.2} of {} pages, told {told:?}",
            cache.mapped
        );
    }
}

#[test]
fn a_program_in_order_pays_next_to_nothing_for_the_sample() {
    let pages = 16 * FRAMES as u64;
    let faults = |govern| {
        let mut run = Run::new("stream", govern, pages);
        run.touch((0..pages).map(|index| page(1, index)));
        let stats = run.body.pager.stats();
        (stats.major_faults, stats.minor_faults, stats.page_ins)
    };
    let (off, on) = (faults(""), faults("govern=on"));
    assert!(on.0 <= off.0 + off.0 / 50 + 2, "major: {on:?} for {off:?}");
    assert!(on.1 <= off.1 + pages / 10, "minor: {on:?} for {off:?}");
    assert!(on.2 <= off.2 + off.2 / 50, "page-ins: {on:?} for {off:?}");
}
