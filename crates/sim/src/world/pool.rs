//! A pool of compressed pages in RAM.

use std::collections::HashMap;

use outpage_core::contract::{ActionId, Event, Outcome, PageList, PageOutcome, Refusal};
use outpage_core::units::{Nanos, PAGE_BYTES, PageNo, SlotNo, SlotRange};

use super::process::Process;
use super::{Setup, World};

/// What is kept, and in how many frames.
pub(super) struct Pool {
    /// Of what it takes, so many percent hold nothing.
    loss_percent: u64,
    compress_ns: u32,
    decompress_ns: u32,
    /// Bytes by place.
    kept: HashMap<SlotNo, u16>,
    /// Their sum.
    bytes: u64,
    /// Frames that the pager was told of.
    told: usize,
    /// The most frames that the pager was told of.
    pub peak: usize,
    /// The most frames that were in use, by pages and by the pool.
    pub used_peak: usize,
}

impl Pool {
    /// An empty one, whose pages are compressed by `codec`.
    pub fn new(setup: &Setup, codec: &str) -> Self {
        let (compress_ns, decompress_ns) = setup.costs.of_codec(codec);
        Self {
            loss_percent: u64::from(setup.pool_loss_percent),
            compress_ns,
            decompress_ns,
            kept: HashMap::new(),
            bytes: 0,
            told: 0,
            peak: 0,
            used_peak: 0,
        }
    }

    /// Frames that the pool takes.
    pub fn frames(&self) -> usize {
        let used = PAGE_BYTES as u64 * (100 - self.loss_percent);
        (self.bytes * 100).div_ceil(used) as usize
    }

    /// Keeps `bytes` at `slot` if that takes no more than `frames_max` frames in all.
    fn keep(&mut self, slot: SlotNo, bytes: u16, frames_max: usize) -> bool {
        self.bytes += u64::from(bytes);
        if self.frames() > frames_max {
            self.bytes -= u64::from(bytes);
            return false;
        }
        let before = self.kept.insert(slot, bytes);
        assert!(before.is_none(), "{slot:?} is taken");
        true
    }

    /// Has nothing at `slot` any more; whether it had something.
    fn forget(&mut self, slot: SlotNo) -> bool {
        let bytes = self.kept.remove(&slot);
        self.bytes -= u64::from(bytes.unwrap_or(0));
        bytes.is_some()
    }
}

/// There is a pool wherever the pager speaks of one.
const A_POOL: &str = "a pool of compressed pages";

impl World {
    #[inline(never)]
    pub(super) fn compress(&mut self, id: ActionId, slots: SlotRange, pages: PageList, grant: u32) {
        let pool = self.pool.as_mut().expect(A_POOL);
        let frames_max = pool.frames() + grant as usize;
        let mut outcomes = core::mem::take(&mut self.outcomes);
        outcomes.clear();
        for (&page, slot) in pages.iter().zip(slots.iter()) {
            let bytes = self.sizes.bytes(page);
            self.now += u64::from(match bytes {
                Some(_) => pool.compress_ns,
                None => self.costs.unfit_ns,
            });
            outcomes.push(match bytes {
                None => PageOutcome::Refused(Refusal::Unfit),
                Some(bytes) if pool.keep(slot, bytes, frames_max) => PageOutcome::Kept { bytes },
                Some(_) => PageOutcome::Refused(Refusal::NoRoom),
            });
        }
        // So that the pager can use the list again.
        drop(pages);
        self.tell_pooled();
        self.done(id, Outcome::Pages(&outcomes));
        self.outcomes = outcomes;
    }

    #[inline(never)]
    pub(super) fn decompress(&mut self, id: ActionId, slots: SlotRange, pages: PageList) {
        let pool = self.pool.as_mut().expect(A_POOL);
        for slot in slots.iter() {
            assert!(pool.forget(slot), "nothing is kept at {slot:?}");
        }
        self.now += u64::from(pool.decompress_ns) * u64::from(slots.slots);
        if let Some(packed) = &mut self.packed {
            // Those that come along with a touch are counted as well: who they are is not told.
            let touched = |page: &PageNo| {
                let waits = |process: &Process| process.page == Some(*page);
                self.processes.iter().any(waits)
            };
            let leave = pages.iter().filter(|page| !touched(page));
            leave.for_each(|&page| packed.leaves_pool(page));
        }
        let mut outcomes = core::mem::take(&mut self.outcomes);
        outcomes.clear();
        outcomes.resize(pages.len(), PageOutcome::Done);
        drop(pages);
        self.tell_pooled();
        self.done(id, Outcome::Pages(&outcomes));
        self.outcomes = outcomes;
    }

    /// Nobody reads what is in `slots` any more. A disk has no use for that.
    pub(super) fn dead(&mut self, id: ActionId, slots: SlotRange) {
        if slots.start.is_pooled() {
            let pool = self.pool.as_mut().expect(A_POOL);
            for slot in slots.iter() {
                pool.forget(slot);
            }
            self.tell_pooled();
        }
        self.done(id, Outcome::Done);
    }

    /// Tells the pager how many frames the pool has, where that changed.
    fn tell_pooled(&mut self) {
        let pool = self.pool.as_mut().expect(A_POOL);
        let frames = pool.frames();
        if frames != pool.told {
            (pool.told, pool.peak) = (frames, pool.peak.max(frames));
            self.pager.handle(Nanos(self.now), Event::Pooled(frames));
        }
    }
}
