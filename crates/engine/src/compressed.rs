//! The pool of compressed pages, on the pager's thread.
//!
//! What is to be compressed waits in line and is done a page at a time, between messages: a fault waits for one page at most. A page
//! that somebody touched comes out at once.

use std::collections::VecDeque;
use std::mem;

use outpage_core::contract::{ActionId, Event, Outcome, PageList, PageOutcome, Refusal};
use outpage_core::units::{PAGE_BYTES, SlotNo, SlotRange};
use outpage_store::PageBits;
use outpage_store::compressed::{Codec, Memory, Pool, Unkept};
use outpage_sys::clock;
use outpage_sys::map::{self, Area};
use outpage_sys::own::Fork;
use outpage_sys::raw::Errno;

use crate::live::Live;
use crate::transfer::Transfer;

/// Objects that are moved at a tick so that frames come free: 100 us at 0.2 us each.
const MOVES: usize = 512;
/// Pages of one action that come out at once. Whatever takes more is no touch, and waits in line.
const AT_ONCE: usize = 8;

/// Memory of the pager's own for what is kept.
struct Room(Area);

impl Memory for Room {
    fn capacity(&self) -> usize {
        self.0.len() / PAGE_BYTES
    }

    fn bytes(&self, start: usize, end: usize) -> &[u8] {
        self.0.bytes(start, end - start)
    }

    fn bytes_mut(&mut self, start: usize, end: usize) -> &mut [u8] {
        self.0.bytes_mut(start, end - start)
    }

    fn give_back(&mut self, first: usize, count: usize) {
        // Where the program locked its future memory (`mlockall`) they stay, as everything does.
        let _ = map::release(self.0.start() + first * PAGE_BYTES, count * PAGE_BYTES);
    }
}

/// What is done page by page.
struct Job {
    id: ActionId,
    slots: SlotRange,
    /// Frames by which the pool may still grow; `None` where pages come out.
    grant: Option<usize>,
    /// The next page.
    at: usize,
}

/// The pool, and what is to be done about it.
pub(crate) struct Compressed {
    pool: Pool<Room>,
    jobs: VecDeque<Job>,
    /// Of the first job.
    outcomes: Vec<PageOutcome>,
    failed: PageBits,
    /// Frames that the pager was told of.
    told: usize,
    /// Pages that came out since one was compressed: where several come out for one touch, as many are compressed before the next.
    came_out: usize,
}

/// The place's number within the pool.
const fn inner(slot: SlotNo) -> u32 {
    slot.0 - SlotNo::POOL_START.0
}

impl Compressed {
    /// An empty pool that may grow to `frames` frames, for `places` pages at most.
    ///
    /// # Errors
    /// The kernel's, when there is no address space.
    pub(crate) fn new(frames: usize, places: u32, codec: Codec) -> Result<Self, Errno> {
        let area = Area::new(frames * PAGE_BYTES, Fork::Inherited)?;
        Ok(Self {
            pool: Pool::new(Room(area), places, codec),
            jobs: VecDeque::with_capacity(64),
            outcomes: Vec::with_capacity(AT_ONCE),
            failed: PageBits::NONE,
            told: 0,
            came_out: 0,
        })
    }

    /// Keeps the page, growing by what was granted for it and others at most.
    fn put(&mut self, slot: SlotNo, page: &[u8], grant: &mut usize) -> PageOutcome {
        let before = self.pool.frames();
        self.pool.set_limit(before + *grant);
        let page = page.try_into().expect("a page");
        let kept = self.pool.put(inner(slot), page);
        *grant = (before + *grant).saturating_sub(self.pool.frames());
        match kept {
            Ok(bytes) => PageOutcome::Kept { bytes },
            Err(Unkept::Unfit) => PageOutcome::Refused(Refusal::Unfit),
            Err(Unkept::NoRoom) => PageOutcome::Refused(Refusal::NoRoom),
        }
    }

    /// Takes the page out; whether it came.
    fn take(&mut self, slot: SlotNo, page: &mut [u8]) -> bool {
        let page = page.try_into().expect("a page");
        self.pool.take(inner(slot), page).is_ok()
    }
}

impl Live {
    /// Pages are kept in this pool from now on, if there is one.
    pub(crate) fn keep_compressed(&mut self, pool: Option<Box<Compressed>>) {
        self.compressed = pool;
        self.keep_for_copies();
    }

    /// Frames that the pool takes from the beginning.
    pub(crate) fn pool_fixed_frames(&self) -> usize {
        (self.compressed.as_ref()).map_or(0, |c| c.pool.fixed_frames())
    }

    /// Frames that the pool takes for what is in it.
    pub(crate) fn pool_frames(&self) -> usize {
        self.compressed.as_ref().map_or(0, |c| c.pool.frames())
    }

    fn of_pool(&mut self) -> &mut Compressed {
        self.compressed
            .as_mut()
            .expect("a pool of compressed pages")
    }

    /// Has the pages compressed when their turn comes.
    pub(crate) fn compress(&mut self, id: ActionId, slots: SlotRange, pages: PageList, grant: u32) {
        let mut places = self.transfer_of(id);
        places.clear();
        self.transfers[id.0 as usize] = Transfer::of_pool(pages, places);
        self.of_pool().jobs.push_back(Job {
            id,
            slots,
            grant: Some(grant as usize),
            at: 0,
        });
    }

    /// Takes pages out: at once where a touch may wait for them.
    pub(crate) fn decompress(&mut self, id: ActionId, slots: SlotRange, pages: PageList) {
        let mut places = self.transfer_of(id);
        self.world.frames_to_read(&pages, &mut places);
        let count = pages.len();
        self.world.waiting.unpacks(&pages);
        self.transfers[id.0 as usize] = Transfer::of_pool(pages, places);
        let mut job = Job {
            id,
            slots,
            grant: None,
            at: 0,
        };
        if count > AT_ONCE {
            self.of_pool().jobs.push_back(job);
            return;
        }
        self.of_pool().came_out += count;
        let mut failed = PageBits::NONE;
        while job.at < count {
            self.take_one(&mut job, &mut failed);
        }
        self.taken_out(id, &failed);
    }

    /// Nothing is kept for these places any more.
    pub(crate) fn forget_compressed(&mut self, slots: SlotRange) {
        let start = inner(slots.start);
        self.of_pool().pool.forget(start, start + slots.slots);
        self.tell_pooled();
    }

    /// Does a page, or as many as came out since; how many times a job got on.
    pub(crate) fn compress_some(&mut self) -> usize {
        let pages = self.compressed.as_mut().map(|c| mem::take(&mut c.came_out));
        let pages = pages.unwrap_or(0).clamp(1, AT_ONCE);
        (0..pages)
            .map(|_| self.compress_next())
            .take_while(|&done| done > 0)
            .count()
    }

    /// Does a page of the first job, and answers the action when it was the last; how many were answered or got on.
    fn compress_next(&mut self) -> usize {
        let Some(compressed) = &mut self.compressed else {
            return 0;
        };
        let Some(mut job) = compressed.jobs.pop_front() else {
            return 0;
        };
        let count = self.transfers[job.id.0 as usize].pages.len();
        if job.grant.is_some() {
            self.put_one(&mut job);
        } else {
            let mut failed = compressed.failed;
            self.take_one(&mut job, &mut failed);
            self.of_pool().failed = failed;
        }
        if job.at < count {
            self.of_pool().jobs.push_front(job);
            return 1;
        }
        self.world.waiting.wakes_are_old();
        let failed = mem::take(&mut self.of_pool().failed);
        if job.grant.is_none() {
            self.taken_out(job.id, &failed);
        } else {
            self.put_in(job.id);
        }
        1
    }

    fn put_one(&mut self, job: &mut Job) {
        let index = job.id.0 as usize;
        let page = self.transfers[index].pages[job.at];
        let slot = SlotNo(job.slots.start.0 + job.at as u32);
        job.at += 1;
        let place = self.world.place_to_write(page);
        let compressed = self.compressed.as_mut().expect("it has a job");
        let grant = job.grant.as_mut().expect("pages go in");
        let outcome = compressed.put(slot, self.world.frames.content(place), grant);
        compressed.outcomes.push(outcome);
    }

    fn take_one(&mut self, job: &mut Job, failed: &mut PageBits) {
        let place = self.transfers[job.id.0 as usize].places[job.at];
        let slot = SlotNo(job.slots.start.0 + job.at as u32);
        let compressed = self.compressed.as_mut().expect("it has a job");
        if !compressed.take(slot, self.world.frames.content_mut(place)) {
            failed.insert(job.at as u32);
        }
        job.at += 1;
    }

    fn put_in(&mut self, id: ActionId) {
        drop(mem::take(&mut self.transfers[id.0 as usize].pages));
        self.tell_pooled();
        let mut outcomes = mem::take(&mut self.of_pool().outcomes);
        self.done(id, Outcome::Pages(&outcomes));
        outcomes.clear();
        self.of_pool().outcomes = outcomes;
    }

    fn taken_out(&mut self, id: ActionId, failed: &PageBits) {
        self.tell_pooled();
        let transfer = &mut self.transfers[id.0 as usize];
        let pages = mem::take(&mut transfer.pages);
        let mut places = mem::take(&mut transfer.places);
        self.read_done(id, pages, &places, failed);
        places.clear();
        self.transfers[id.0 as usize].places = places;
    }

    /// Tells the pager how many frames the pool has, where that changed.
    fn tell_pooled(&mut self) {
        let compressed = self.of_pool();
        let frames = compressed.pool.frames();
        if frames != compressed.told {
            compressed.told = frames;
            self.pager.handle(clock::now(), Event::Pooled(frames));
        }
    }

    /// Gathers what lies scattered in the pool, so that frames come free.
    pub(crate) fn compact(&mut self) {
        if let Some(compressed) = &mut self.compressed
            && compressed.pool.compact(MOVES) > 0
        {
            self.tell_pooled();
        }
    }
}
