//! The pool of compressed pages, as the pager sees it: how many frames it has, and what is under way.

use alloc::boxed::Box;

use super::streams::{IN_POOL, IN_STORE, Streams};
use super::waits::Wait;
use crate::contract::Waiter;
use crate::limits::FRAMES_MIN;
use crate::page::PageId;
use crate::tier::{Costs, Tier};
use crate::units::Nanos;

/// Pages of one compression. A touch of one of them waits for all, at 2 to 4 us each; with fewer an action is asked for too often.
pub(super) const COMPRESS_PAGES: usize = 8;
/// Compressions under way at once: one is carried out and one waits, so that the body never runs out. More would keep pages from being rescued.
const COMPRESSIONS_MAX: usize = 2;
/// Frames that compressing takes beside those of what comes out smaller: a pool that begins a block of its largest takes 4, less the one that the page
/// leaves.
const BLOCK_FRAMES: usize = 3;
/// Frames that are charged though nothing is in them, so that a pool which has all others can still make way: as many pages as one compression
/// takes.
const ASIDE_FRAMES: usize = COMPRESS_PAGES;
/// Refaults between two looks at the pool's part, or a 64th of all frames: in a step of a 32nd of the frames no more is moved than was waited for. A choice.
const WEIGHED: usize = 1024;
/// Demotions under way at once, in pages: as many as one write of the default size takes.
pub(super) const DEMOTIONS_MAX: usize = 64;

/// Frames that the pool leaves to pages whatever it may take: half of the least that can work, or a sixteenth, below which the pages that run a program
/// leave before they were used. A choice.
const PAGES_MIN: usize = FRAMES_MIN / 2;

/// Frames that a compression may take of the pool's.
pub(super) const fn grant(pages: usize) -> usize {
    pages + BLOCK_FRAMES
}

/// Where victims go, and what is known of the pool. Without a policy there is no pool.
pub(super) struct Tiering {
    pub policy: Option<Box<dyn Tier>>,
    /// Frames that the pool has, as the body said last.
    frames: usize,
    /// Frames by which it may grow for what is under way.
    granted: usize,
    /// Of those that are set aside, how many have pages that left the pool in them.
    lent: usize,
    /// Frames that may be in use: all of them, or what is in use still after the limit was lowered.
    ceiling: usize,
    compressions: usize,
    /// Refaults that were waited for since the pool's part was weighed.
    waited: usize,
    /// What touches of pages that are out cost.
    pub costs: Costs,
    /// Touches of staged pages that were in use before.
    pub rescued: u64,
    /// Pages that are taken out of the pool to be written to the store.
    pub demoting: usize,
    /// What is touched one after another of what the pool has.
    pub streams: Streams<IN_POOL>,
    /// The same of what the store has.
    pub walks: Streams<IN_STORE>,
    /// The store is full or nearly so: what compresses goes to the pool, whatever that saves.
    pub takes_all: bool,
}

impl Tiering {
    /// An empty pool.
    pub fn new(policy: Option<Box<dyn Tier>>) -> Self {
        Self {
            policy,
            frames: 0,
            granted: 0,
            lent: 0,
            ceiling: usize::MAX,
            compressions: 0,
            waited: 0,
            costs: Costs::default(),
            rescued: 0,
            demoting: 0,
            streams: Streams::default(),
            walks: Streams::default(),
            takes_all: false,
        }
    }

    /// Frames that only the pool may take: when no other is to be had, pages can leave still.
    pub const fn reserve(&self) -> usize {
        if self.policy.is_some() {
            grant(COMPRESS_PAGES)
        } else {
            0
        }
    }

    /// The body says how many frames the pool has.
    pub const fn has(&mut self, frames: usize) {
        self.frames = frames;
    }

    /// Frames that the pool has.
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// Frames that no page can have: the pool's, those that it may take, and those set aside.
    pub const fn charged(&self) -> usize {
        self.frames + self.granted + self.aside()
    }

    /// Frames set aside for pages that leave a pool which has all others.
    pub const fn aside(&self) -> usize {
        if self.policy.is_some() {
            ASIDE_FRAMES - self.lent
        } else {
            0
        }
    }

    /// Pages take so many of the frames that are set aside: what is charged for them is no more than before.
    pub const fn lend(&mut self, frames: usize) {
        assert!(frames <= self.aside(), "frames that are not set aside");
        self.lent += frames;
    }

    /// After an event: `used` frames of a limit of `frames` are in use. What is free is set aside again before anybody else may have it, above the
    /// limit too where it was lowered: nothing else brings down a pool that has all frames.
    pub fn settle(&mut self, used: usize, frames: usize) {
        let most = self.ceiling.max(frames);
        let back = most.saturating_sub(used).min(self.lent);
        self.lent -= back;
        self.ceiling = most.min(used + back).max(frames);
    }

    /// A wait for a page is over; whose it was.
    pub fn ended(&mut self, wait: &Wait, now: Nanos) -> Waiter {
        if let Some((whence, since)) = wait.brings {
            let took = Nanos(now.0.saturating_sub(since.0));
            self.costs.waited(whence, took);
        }
        wait.waiter
    }

    /// Whether one more compression may be under way.
    pub const fn may_compress(&self) -> bool {
        self.policy.is_some() && self.compressions < COMPRESSIONS_MAX
    }

    /// One more refault was waited for. Whether the pool's part is to be weighed, with `frames` frames in all.
    pub const fn is_due(&mut self, frames: usize) -> bool {
        self.waited += 1;
        let due = self.waited >= WEIGHED && self.waited >= frames / 64;
        if due {
            self.waited = 0;
        }
        due
    }

    /// Whether nothing is under way to the pool or from it to the store.
    pub const fn is_idle(&self) -> bool {
        self.compressions == 0 && self.demoting == 0
    }

    /// Frames that the pool has above what it may, with `frames` in all.
    pub fn over(&self, frames: usize) -> usize {
        let most = (self.policy.as_ref()).map_or(0, |policy| match self.takes_all {
            true => policy.pool_frames_max(frames),
            false => policy.pool_frames(frames),
        });
        let most = most.min(frames.saturating_sub(PAGES_MIN.max(frames / 16)));
        self.frames.saturating_sub(most)
    }

    /// A compression of so many pages begins.
    pub const fn begins(&mut self, pages: usize) {
        self.compressions += 1;
        self.granted += grant(pages);
    }

    /// It has ended.
    pub const fn ends(&mut self, pages: usize) {
        self.compressions -= 1;
        self.granted -= grant(pages);
    }
}

/// Victims that are compressed together, as they are gathered.
#[derive(Default)]
pub(super) struct Batch {
    ids: [Option<PageId>; COMPRESS_PAGES],
    pages: usize,
}

impl Batch {
    /// Whether no further page finds room in it.
    pub const fn is_full(&self) -> bool {
        self.pages == COMPRESS_PAGES
    }

    /// A dirty page that was taken off its queue goes along.
    pub const fn add(&mut self, id: PageId) {
        self.ids[self.pages] = Some(id);
        self.pages += 1;
    }

    /// How many pages go along.
    pub const fn len(&self) -> usize {
        self.pages
    }

    /// Which.
    pub fn ids(&self) -> impl Iterator<Item = PageId> {
        self.ids.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Values;
    use crate::tier;

    fn tiering() -> Tiering {
        let lz4 = tier::REGISTRY.iter().find(|entry| entry.name == "lz4");
        let lz4 = lz4.expect("it is one of them");
        Tiering::new((lz4.build)(&Values::defaults(lz4.settings)))
    }

    #[test]
    fn lent_frames_come_back_out_of_what_others_give_up() {
        let mut tiering = tiering();
        tiering.settle(100, 100);
        tiering.lend(ASIDE_FRAMES);
        assert_eq!((tiering.aside(), tiering.charged()), (0, 0));
        // Half of what would be needed is free.
        tiering.settle(96, 100);
        assert_eq!(tiering.aside(), 4);
        tiering.settle(90, 100);
        assert_eq!(tiering.aside(), ASIDE_FRAMES);
    }

    #[test]
    fn above_a_lowered_limit_nobody_else_has_what_is_given_up() {
        let mut tiering = tiering();
        tiering.settle(100, 100);
        tiering.settle(100, 50);
        tiering.lend(6);
        tiering.settle(100, 50);
        assert_eq!(tiering.aside(), 2);
        tiering.settle(97, 50);
        assert_eq!(tiering.aside(), 5);
        // What came back counts: it is not given a second time.
        tiering.settle(100, 50);
        assert_eq!(tiering.aside(), 5);
    }

    #[test]
    #[should_panic(expected = "not set aside")]
    fn no_more_is_lent_than_is_set_aside() {
        tiering().lend(ASIDE_FRAMES + 1);
    }
}
