//! Moving a run of pages, whatever the kernel answers half-way.

use outpage_core::units::PAGE_BYTES;

use super::{MoveMode, Outcome, Stop, Uffd};
use crate::pagemap::Pagemap;
use crate::raw::Errno;

/// What became of one page of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MoveOutcome {
    /// It is at the destination.
    Moved,
    /// It is where it was: pinned, or shared with another process since a fork.
    Busy,
    /// There was no page at the source.
    #[default]
    Absent,
    /// It is where it was: the destination has a page already.
    Exists,
    /// It is where it was: what lies at the source or at the destination is changing ([`Uffd::is_disturbed`]).
    Changing,
    /// It is where it was: `EINVAL` for a mapping whose protection or lock differs from the other side's.
    Refused(Errno),
}

/// Extra attempts for pages in use, in one run. A direct-I/O completion is posted before the pages are
/// unpinned, and then one repetition is enough; a page shared by fork stays as it is.
const BUSY_TRIES: u32 = 16;
/// Calls in a row that get nowhere with `EAGAIN`, before the page counts as refused.
const AGAIN_TRIES: u32 = 1000;

/// The state of one run: pages `..at` are settled.
struct Run {
    dst: usize,
    src: usize,
    at: usize,
    /// Pages to ask for at once; halved when a call is refused as a whole.
    span: usize,
    busy_tries: u32,
    again_tries: u32,
}

impl Uffd {
    /// Moves `report.len()` pages from `src` to `dst` and reports on each page.
    ///
    /// Settled here: repetition after `EAGAIN`, short counts, pages pinned for a moment, and mappings
    /// that were split (the run is halved until its parts fit, so that every page that can move does).
    /// No page is written to, so nothing is lost on any path.
    ///
    /// **Every destination page must be missing when the call starts.** Some kernels (6.18 is one) do not
    /// clear an `EAGAIN` inside the call, and then meet pages as present that they have just moved. A
    /// page gone from `src` and found at `dst` therefore counts as moved. The kernel wakes nobody for it: that
    /// is made up for here, unless `how` forbids it.
    pub fn move_run(
        &self,
        dst: usize,
        src: usize,
        how: MoveMode,
        report: &mut [MoveOutcome],
        pagemap: &Pagemap,
    ) {
        let (busy_tries, again_tries) = (BUSY_TRIES, AGAIN_TRIES);
        let mut run = Run {
            dst,
            src,
            at: 0,
            span: report.len(),
            busy_tries,
            again_tries,
        };
        while run.at < report.len() {
            let mut pages = run.span.min(report.len() - run.at);
            let skip = run.at * PAGE_BYTES;
            // A change that was read is under way: the kernel would let pages in where they are not wanted any more, or out that
            // are others by now.
            if !self.is_calm() {
                if self.is_disturbed(dst + skip) || self.is_disturbed(src + skip) {
                    run.settle(report, 1, MoveOutcome::Changing);
                    continue;
                }
                pages = 1;
            }
            let outcome = self.move_pages(dst + skip, src + skip, pages * PAGE_BYTES, how);
            if outcome.bytes == 0 && outcome.stop == Some(Stop::Again) {
                self.let_change_pass();
            }
            let at = run.at;
            run.take(outcome, pages, report, pagemap);
            let found_moved = outcome.bytes == 0 && run.at > at && report[at] == MoveOutcome::Moved;
            if found_moved && !how.dont_wake {
                let _ = self.wake(dst + skip, PAGE_BYTES);
            }
        }
    }
}

impl Run {
    /// Draws the conclusions from a call for the next `pages` pages.
    fn take(
        &mut self,
        outcome: Outcome,
        pages: usize,
        report: &mut [MoveOutcome],
        pagemap: &Pagemap,
    ) {
        self.settle(report, outcome.bytes / PAGE_BYTES, MoveOutcome::Moved);
        match outcome.stop {
            None => self.span = pages.saturating_mul(2),
            // The next call tells why this one stopped.
            Some(_) if outcome.bytes > 0 => {}
            Some(stop) => self.stopped(stop, pages, report, pagemap),
        }
    }

    /// A call for `pages` pages did nothing: decides about the first of them, or how to go on.
    fn stopped(&mut self, stop: Stop, pages: usize, report: &mut [MoveOutcome], pagemap: &Pagemap) {
        let verdict = match stop {
            Stop::Again if self.again_tries > 0 => {
                self.again_tries -= 1;
                return;
            }
            Stop::Busy if self.busy_tries > 0 => {
                self.busy_tries -= 1;
                return core::hint::spin_loop();
            }
            Stop::BadRange if pages > 1 => {
                self.span = pages / 2;
                return;
            }
            Stop::Busy => MoveOutcome::Busy,
            Stop::NoSource => MoveOutcome::Absent,
            Stop::Exists if self.has_moved(pagemap) => MoveOutcome::Moved,
            Stop::Exists => MoveOutcome::Exists,
            other => MoveOutcome::Refused(other.errno()),
        };
        self.settle(report, 1, verdict);
    }

    /// Whether the first unsettled page is gone from the source and present at the destination.
    fn has_moved(&self, pagemap: &Pagemap) -> bool {
        let page = |start: usize| pagemap.page(start + self.at * PAGE_BYTES);
        match (page(self.src), page(self.dst)) {
            (Ok(src), Ok(dst)) => src.empty() && !dst.empty(),
            _ => false,
        }
    }

    fn settle(&mut self, report: &mut [MoveOutcome], pages: usize, outcome: MoveOutcome) {
        if pages > 0 {
            report[self.at..self.at + pages].fill(outcome);
            self.at += pages;
            self.again_tries = AGAIN_TRIES;
        }
    }
}
