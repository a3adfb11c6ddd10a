//! Pages whose content may be dropped: which they are, and the policy.

use alloc::boxed::Box;

use crate::discard::{Discard, Marks};

/// A look in vain costs 0.6 us (`MADV_PAGEOUT` of a page that was written, Linux 6.18); writing another page, and a fault when it is wanted again, more than
/// so many.
const LOOKS_WORTH: usize = 16;
/// Looks in vain before others leave: 0.6 ms. A choice.
const VAIN_MAX: usize = 1024;

/// What is discardable, and the policy that says when it is dropped. Without a policy nothing is.
pub(super) struct Discarding {
    pub policy: Option<Box<dyn Discard>>,
    pub marks: Marks,
    /// Detaches of pages that are to be dropped, unanswered.
    pub flushing: usize,
    /// So many frames are taken before freed pages are tried ahead of other victims again.
    pub rest: usize,
    /// Looks in vain, as far as pages that went do not make up for them.
    vain: usize,
}

impl Discarding {
    /// Nothing is marked.
    pub fn new(policy: Option<Box<dyn Discard>>) -> Self {
        Self {
            policy,
            marks: Marks::new(),
            flushing: 0,
            rest: 0,
            vain: 0,
        }
    }

    /// See [`Discard::leaves_first`].
    pub fn leaves_first(&self) -> bool {
        let policy = self.policy.as_ref();
        policy.is_some_and(|policy| policy.leaves_first())
    }

    /// Whether a page is known that could be dropped, and is to be before others leave.
    pub fn first_is_ready(&self) -> bool {
        self.marks.ready() > 0 && self.rest == 0 && self.leaves_first()
    }

    /// Of pages that were to be dropped so many went, and so many had been written. Where hardly any goes others leave for as many frames as pages were
    /// looked at, so that a program that frees and writes again pays for one look a frame.
    pub const fn dropped(&mut self, went: usize, written: usize) {
        let spared = went.saturating_mul(LOOKS_WORTH);
        self.vain = self.vain.saturating_sub(spared) + written;
        if self.vain >= VAIN_MAX {
            self.rest += self.vain;
            self.vain = 0;
        }
    }

    /// So many frames were taken.
    pub const fn took_frames(&mut self, frames: usize) {
        self.rest = self.rest.saturating_sub(frames);
    }

    /// How many pages are dropped with a victim that is to be written now.
    pub fn ahead(&self) -> usize {
        let policy = self.policy.as_ref().filter(|_| self.flushing == 0);
        policy.map_or(0, |policy| policy.ahead() as usize)
    }

    /// See [`Discard::follows`].
    pub fn follows(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.follows())
    }
}
