//! How much memory there is, and the levels at which reclaim starts and stops.

/// Frames, and the watermarks that follow from them. All in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The hard limit: pages in memory, in whatever state.
    pub frames: usize,
    /// Detach victims when free and staged pages fall below this.
    pub staged_low: usize,
    /// Page out when free, cache and writing pages fall below this.
    pub clean_low: usize,
    /// Frames that speculation (read-ahead, fault-around) leaves to demanded pages.
    pub reserve: usize,
    /// Most pages of one detach call, and victims of one scan.
    pub detach_batch: usize,
}

/// The smallest limit that can work: a page-out buffer and a read-ahead window of the default
/// size in flight, and as much again resident.
pub const FRAMES_MIN: usize = 256;

/// Of a thousand frames, those that are free or hold staged pages: an eighth, for the reason that [`Limits::new`] gives.
pub const STAGED_PERMILLE: u32 = 125;

impl Limits {
    /// The watermarks for `frames` frames and chunks of `chunk` pages.
    ///
    /// An eighth of the frames is staged: BSD's inactive target of a third (FreeBSD's `vm_pageout`)
    /// costs a minor fault on each touch of a staged page here, where BSD's inactive pages stay
    /// mapped. A thirty-second is kept clean or free, at least two chunks, so that a page-in waits
    /// for no write.
    ///
    /// # Panics
    /// When `frames` is below [`FRAMES_MIN`].
    #[must_use]
    pub fn new(frames: usize, chunk: usize) -> Self {
        assert!(
            frames >= FRAMES_MIN,
            "a limit of {frames} frames cannot work"
        );
        Self::beside(0, frames, chunk)
    }

    /// The same where `taken` of the frames are no page's: those of a pool of compressed pages. The watermarks are parts of the others.
    pub(crate) fn beside(taken: usize, all: usize, chunk: usize) -> Self {
        let frames = all.saturating_sub(taken).max(FRAMES_MIN / 2);
        let quarter = frames / 4;
        let clean_low = (frames / 32).max(2 * chunk).min(quarter / 2);
        Self {
            frames: all,
            staged_low: (frames / 8).max(clean_low + chunk).min(quarter),
            clean_low,
            reserve: (frames / 256).clamp(2, 64),
            detach_batch: 256.min(frames / 16),
        }
    }
}
