//! Which pages to keep: the greedy rule behind every bound.

use std::collections::BinaryHeap;

/// "Not kept".
const NOT_KEPT: u64 = u64::MAX;

/// Pages that are kept in memory until a given time, at most as many as there are frames.
///
/// Keeping a page until a time saves one transfer. When too many are to be kept, the one with
/// the farthest time is given up. That saves the most transfers in total: the spans are intervals
/// of a line, at most `frames` of which may overlap, and giving up the one that ends last at the
/// first point of overload is optimal (Carlisle and Lloyd, On the k-coloring of intervals,
/// Discrete Applied Mathematics 59, 1995; Faigle and Nawijn, Note on scheduling intervals on-line,
/// Discrete Applied Mathematics 58, 1995). Over the next references it is Belady's rule.
pub(super) struct Keep {
    frames: usize,
    /// Pages kept now.
    kept: usize,
    /// Until when each page is kept.
    until: Vec<u64>,
    /// (until, page), the farthest first. An entry that `until` disagrees with is void.
    farthest: BinaryHeap<(u64, u32)>,
}

impl Keep {
    pub(super) fn new(frames: u32, pages: usize) -> Self {
        Self {
            frames: frames as usize,
            kept: 0,
            until: vec![NOT_KEPT; pages],
            farthest: BinaryHeap::new(),
        }
    }

    /// Pages kept now.
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    /// `page` is referenced: it takes a frame, and others make room. Returns whether it was kept
    /// until now.
    pub(super) fn reference(&mut self, page: u32) -> bool {
        let kept = self.until[page as usize] != NOT_KEPT;
        if !kept && self.kept == self.frames {
            self.give_up();
        }
        kept
    }

    /// Keeps `page`, the one referenced last, until `time`, or no longer at all. Until then nobody
    /// asks for it by a time.
    pub(super) fn keep(&mut self, page: u32, time: Option<u64>) {
        let until = &mut self.until[page as usize];
        let was_kept = *until != NOT_KEPT;
        match time {
            Some(time) if *until == time => {}
            Some(time) => {
                *until = time;
                self.kept += usize::from(!was_kept);
                self.farthest.push((time, page));
                self.compact();
            }
            None => {
                *until = NOT_KEPT;
                self.kept -= usize::from(was_kept);
            }
        }
    }

    fn give_up(&mut self) {
        while let Some((time, page)) = self.farthest.pop() {
            if self.until[page as usize] == time {
                self.until[page as usize] = NOT_KEPT;
                self.kept -= 1;
                return;
            }
        }
        unreachable!("every kept page has an entry");
    }

    /// Drops void entries once they are most: memory stays O(frames), and the cost of a
    /// reference O(log frames), spread over the references that made them void.
    fn compact(&mut self) {
        if self.farthest.len() > 64 + 4 * self.kept {
            let until = &self.until;
            self.farthest
                .retain(|&(time, page)| until[page as usize] == time);
        }
    }
}

/// For each reference, the next one to the same page that `counts`: its index, or `None`.
pub(super) fn next_counted(
    references: impl DoubleEndedIterator<Item = (u32, bool)> + ExactSizeIterator,
    pages: usize,
    counts: impl Fn(bool) -> bool,
) -> Vec<Option<u64>> {
    let mut next = vec![None; references.len()];
    let mut seen = vec![None; pages];
    for (at, (page, wrote)) in references.enumerate().rev() {
        next[at] = seen[page as usize];
        if counts(wrote) {
            seen[page as usize] = Some(at as u64);
        }
    }
    next
}
