//! The cluster of a victim: which of its neighbours are written along.

use super::Inactive;
use crate::units::{PageNo, PageRange};

/// The order in which neighbours of a victim are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClusterWindow {
    /// Down to the next index that is a multiple of the limit, then up, then further down if the
    /// way down was only paused. FreeBSD `vm/vm_pageout.c:vm_pageout_clean`. In a dense area the
    /// clusters are aligned blocks; a victim at a multiple of the limit takes the pages below it.
    #[default]
    Kernel,
    /// Half the limit downward, the victim included, half of it upward, then the rest in the
    /// direction that was not blocked. mClustering, section 2.
    Paper,
}

/// The pages that are written with `victim`: consecutive, at most `limit`, all taking part.
///
/// Neighbours are asked about one at a time and a direction ends at the first that does not take
/// part. The victim itself is taken without asking.
///
/// # Panics
/// When `limit` is zero.
#[must_use]
pub fn cluster(
    victim: PageNo,
    limit: u32,
    window: ClusterWindow,
    view: &dyn Inactive,
) -> PageRange {
    assert!(limit > 0, "a cluster has at least its victim");
    let mut run = Run {
        low: victim,
        high: victim,
        pages: 1,
        blocked: false,
        view,
    };
    match window {
        ClusterWindow::Kernel => {
            let aligned = |page: PageNo| page.index().is_multiple_of(u64::from(limit));
            // The victim's own alignment does not pause the walk, only that of an accepted page.
            while run.pages < limit && run.down() && !aligned(run.low) {}
            while run.pages < limit && run.up() {}
            while run.pages < limit && run.down() {}
        }
        ClusterWindow::Paper => {
            let below = limit.div_ceil(2);
            while run.pages < below && run.down() {}
            // A blocked way down leaves its share to the way up.
            let most = if run.blocked {
                limit
            } else {
                below + limit / 2
            };
            while run.pages < most && run.up() {}
            while run.pages < limit && run.down() {}
        }
    }
    PageRange::new(run.low, u64::from(run.pages))
}

/// A run of pages that grows at both ends.
struct Run<'a> {
    low: PageNo,
    high: PageNo,
    pages: u32,
    /// The page below `low` does not take part.
    blocked: bool,
    view: &'a dyn Inactive,
}

impl Run<'_> {
    /// Takes the page below, if it takes part.
    fn down(&mut self) -> bool {
        if self.blocked {
            return false;
        }
        match self
            .low
            .checked_sub(1)
            .filter(|&page| self.view.takes_part(page))
        {
            Some(page) => {
                self.low = page;
                self.pages += 1;
                true
            }
            None => {
                self.blocked = true;
                false
            }
        }
    }

    /// Takes the page above, if it takes part.
    fn up(&mut self) -> bool {
        let Some(page) = self
            .high
            .checked_add(1)
            .filter(|&page| self.view.takes_part(page))
        else {
            return false;
        };
        self.high = page;
        self.pages += 1;
        true
    }
}
