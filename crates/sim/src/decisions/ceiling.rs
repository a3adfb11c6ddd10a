//! The most frames that a run may use: the limit, or what was beyond it when it came, and less and less of that.

use outpage_core::limits::FRAMES_MIN;

/// The most frames, and what it follows.
pub(super) struct Ceiling {
    /// In use at most.
    pub frames: usize,
    /// In a forked child, until then pages may stay.
    pub rests_until: u64,
    /// In use at the last look.
    used: usize,
    /// They left since the limit was exceeded, and nothing took their place.
    left: usize,
}

impl Ceiling {
    pub fn new(frames: usize) -> Self {
        Self {
            frames,
            rests_until: 0,
            used: 0,
            left: 0,
        }
    }

    /// So many pages have frames that nobody asked for, `held` with all others.
    pub fn adopted(&mut self, pages: usize, held: usize) {
        self.frames = self.frames.max(held);
        self.used += pages;
        self.left = self.left.saturating_sub(pages);
    }

    /// All that was asked for was done, `used` frames are in use, and `held` with those that are set aside. Above the limit a page that somebody waits for
    /// takes the place of four that left; in a child that rests some may come before any has left.
    pub fn lower(&mut self, used: usize, held: usize, limit: usize, rests: bool) {
        let taken = used.saturating_sub(self.used.max(limit));
        self.left = (self.left + self.used.saturating_sub(used)).saturating_sub(4 * taken);
        if used <= limit {
            let at_once = if rests { FRAMES_MIN } else { 0 };
            self.left = 4 * at_once;
            self.frames = self.frames.max(held + at_once);
        }
        self.used = used;
        self.frames = limit.max((held + self.left / 4).min(self.frames));
    }
}
