//! How pages move: the mechanisms that carry out the pager's actions on the program's memory.
//!
//! *Move* (Linux 6.8): a page leaves by `UFFDIO_MOVE` into the staging area and comes back the same
//! way; a staged page cannot change. *Write-protect* (Linux 5.7): a page is write-protected where
//! it is, written from a copy, then dropped with `MADV_DONTNEED`; it comes back by `UFFDIO_COPY`.
//! The mechanism belongs to a range: read-only, executable and locked ranges are served by copying
//! under either.

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::page::ContentHash;
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_sys::map::{self, Memory};
use outpage_sys::pagemap::{PageFlags, Pagemap};
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{Change, CopyMode, MoveMode, MoveOutcome, Outcome, Stop, Uffd};

use crate::frames::{Frames, Place, Places};
use crate::hash::{Hasher, is_zero};
use crate::regions::{Region, Regions};
use crate::releaser::Releaser;
use crate::scope::{Failing, Failure, Reach};
use crate::staged::Staged;
use crate::stays::{Stays, Why};
use crate::waiting::Waiting;

mod changing;
mod io;
mod outside;
mod protect;
mod spread;
mod trim;

use changing::KEPT;
use outside::Outside;
pub use spread::GAP_MAX;

/// The most pages one call acts on.
pub const RUN_PAGES: usize = outpage_core::pager::RUN_PAGES_MAX as usize;

/// A move to where nobody is known to wait: to staging, or to pages of which no fault is open. Whoever faulted there
/// and was not heard yet sleeps on until the fault is read; the page is resident then, and the pager's answer is a wake.
const NOBODY_WAITS: MoveMode = MoveMode {
    dont_wake: true,
    allow_source_holes: false,
};

/// How pages of ordinary ranges leave and come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// `UFFDIO_MOVE`.
    Move,
    /// Write-protect, copy, drop.
    WriteProtect,
}

impl Mechanism {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Move, Self::WriteProtect];

    /// Whether touches of mapped pages leave bits that the pager can read. Under neither: no kernel that this was tried on has them for a
    /// process of its own. What read-write protection offers (`Features::RWP_ASYNC`) would be told here, and to the pager as
    /// [`outpage_core::contract::Body::bits`].
    #[must_use]
    pub const fn has_reference_bits(self) -> bool {
        match self {
            Self::Move | Self::WriteProtect => false,
        }
    }
}

/// The program's memory, and what of it is where.
pub struct World {
    /// The descriptor that faults of the program come from, and messages about its mappings. The staging area is under it too: the kernel
    /// moves nothing there while a mapping changes, so what leaves is what lay there when its address was looked up.
    pub uffd: Uffd,
    /// The descriptor that calls come by.
    pub doorbells: Uffd,
    /// Where errors go that the pager cannot go on with.
    pub(crate) failing: Failing,
    /// Throws away pages of the program's while the pager hears of it.
    pub(crate) releaser: Releaser,
    /// Changes of mappings that are being attended to: first address, first one after it, what.
    pub(crate) changing: Vec<(usize, usize, Change)>,
    /// Frames not mapped in the program.
    pub frames: Frames,
    /// Which staged page is in which frame.
    pub staged: Staged,
    /// The managed ranges.
    pub regions: Regions,
    /// The run's hash function.
    pub hasher: Hasher,
    /// The hash of a page of zeroes.
    zero_hash: ContentHash,
    /// How ordinary ranges are served.
    pub mechanism: Mechanism,
    /// Pages duplicated because a fork shared them.
    pub cow_duplicates: u64,
    pub(crate) pagemap: Pagemap,
    pub(crate) memory: Memory,
    /// Pages that could not be released.
    pub(crate) stays: Stays,
    /// Pages that wait outside the program.
    outside: Outside,
    moves: Vec<MoveOutcome>,
    flags: Vec<PageFlags>,
    /// Who waits for a page.
    pub(crate) waiting: Waiting,
}

/// A run's part that is contiguous in memory too.
#[derive(Clone, Copy)]
struct Segment {
    address: usize,
    first: PageNo,
    pages: usize,
    plain: bool,
    region: Region,
}

impl Segment {
    fn page(&self, i: usize) -> PageNo {
        PageNo::from_raw(self.first.raw() + i as u64)
    }

    fn at(&self, i: usize) -> usize {
        self.address + i * PAGE_BYTES
    }
}

impl World {
    /// With everything empty.
    #[must_use]
    pub fn new(
        [uffd, doorbells]: [Uffd; 2],
        frames: Frames,
        limit: usize,
        mechanism: Mechanism,
        pagemap: Pagemap,
        memory: Memory,
        seed: u64,
    ) -> Self {
        Self {
            uffd,
            doorbells,
            failing: Failing::new(Reach::Process),
            releaser: Releaser::default(),
            changing: Vec::with_capacity(16),
            frames,
            staged: Staged::new(limit),
            regions: Regions::new(),
            hasher: Hasher::new(seed),
            zero_hash: Hasher::new(seed).page(&[0; PAGE_BYTES]),
            mechanism,
            cow_duplicates: 0,
            pagemap,
            memory,
            stays: Stays::new(),
            outside: Outside::unbounded(),
            moves: vec![MoveOutcome::Absent; RUN_PAGES],
            flags: vec![PageFlags::default(); RUN_PAGES],
            waiting: Waiting::default(),
        }
    }

    fn segment(&self, run: PageRange) -> Result<Segment, usize> {
        let Some((address, follow)) = self.regions.address(run.start) else {
            return Err(1);
        };
        let region = *self.regions.at(address).expect("an address of a region");
        let pages = run.pages.min(follow) as usize;
        let plain = self.mechanism == Mechanism::Move && region.plain();
        Ok(Segment {
            address,
            first: run.start,
            pages,
            plain,
            region,
        })
    }

    /// Adds the outcomes of `run` to `out`.
    fn each_segment(
        &mut self,
        run: PageRange,
        out: &mut Vec<PageOutcome>,
        mut act: impl FnMut(&mut Self, Segment, &mut Vec<PageOutcome>),
    ) {
        let before = out.len() as u64;
        let mut left = run;
        while left.pages > 0 {
            let done = match self.segment(left) {
                Ok(segment) => {
                    let pages = segment.pages;
                    act(self, segment, out);
                    pages
                }
                Err(pages) => {
                    out.push(PageOutcome::Refused(Refusal::Gone));
                    pages
                }
            } as u64;
            left = PageRange::new(PageNo::from_raw(left.start.raw() + done), left.pages - done);
        }
        debug_assert_eq!(out.len() as u64, before + run.pages);
    }

    /// Notes that mapping `segment` woke who waits there: only if every page was mapped, for a refusal
    /// wakes nobody.
    fn woke(&mut self, segment: Segment, out: &[PageOutcome]) {
        let outcomes = &out[out.len() - segment.pages..];
        if outcomes.iter().all(|&o| o == PageOutcome::Done) {
            self.waiting
                .mapped(segment.address, segment.at(segment.pages));
        }
    }

    /// Lets whoever waits for the page at `address` go on, unless a mapping just did.
    pub fn wake(&mut self, address: usize) {
        if !self.waiting.is_awake(address) {
            let _ = self.uffd.wake(address, PAGE_BYTES);
        }
    }

    /// Maps zeroes at `run`.
    pub fn zero_fill(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        out.clear();
        self.but_changing(run, out, Self::zero_fill_run);
    }

    fn zero_fill_run(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        self.each_segment(run, out, |world, segment, out| {
            if segment.plain {
                world.zero_by_move(segment, out);
            } else {
                world.zero_by_kernel(segment, out);
            }
            world.woke(segment, out);
        });
    }

    fn zero_by_move(&mut self, segment: Segment, out: &mut Vec<PageOutcome>) {
        let mut i = 0;
        while i < segment.pages {
            let places = self.take_frames((segment.pages - i) as u32, true);
            self.move_in(segment, i, places, MoveMode::default(), out);
            for (place, &outcome) in places.iter().zip(&out[out.len() - places.count as usize..]) {
                if outcome == KEPT {
                    self.frames.set_free(place);
                }
            }
            i += places.count as usize;
        }
    }

    /// Moves frames to the program; `places` become empty, or free where the move was refused. Where the mapping is
    /// moving away they stay as they are, and the outcome is [`KEPT`].
    fn move_in(
        &mut self,
        segment: Segment,
        i: usize,
        places: Places,
        how: MoveMode,
        out: &mut Vec<PageOutcome>,
    ) {
        let count = places.count as usize;
        let from = self.frames.address(places.start);
        let report = &mut self.moves[..count];
        self.uffd
            .move_run(segment.at(i), from, how, report, &self.pagemap);
        for (k, place) in places.iter().enumerate() {
            out.push(match self.moves[k] {
                MoveOutcome::Moved => {
                    self.frames.set_empty(place);
                    PageOutcome::Done
                }
                MoveOutcome::Changing => self.not_now(segment.at(i + k), place),
                MoveOutcome::Exists => self.not_copied(segment, i + k, place),
                _ => self.copy_page_in(segment, i + k, place),
            });
        }
    }

    /// What a move could not do, a copy does: into ranges whose protection differs from staging's.
    fn copy_page_in(&mut self, segment: Segment, i: usize, place: Place) -> PageOutcome {
        let (at, from) = (segment.at(i), self.frames.address(place));
        let copied = self.patiently(at, |uffd| {
            uffd.copy(at, from, PAGE_BYTES, CopyMode::default())
        });
        let outcome = match copied.stop {
            None => PageOutcome::Done,
            Some(Stop::Again) => return self.not_now(at, place),
            Some(Stop::Exists) => return self.not_copied(segment, i, place),
            Some(Stop::NoMemory) => {
                self.out_of_memory(Errno::ENOMEM);
                return KEPT;
            }
            Some(_) => PageOutcome::Refused(Refusal::Gone),
        };
        self.frames.set_free(place);
        outcome
    }

    /// The program has that page.
    fn not_copied(&mut self, segment: Segment, i: usize, place: Place) -> PageOutcome {
        if self.mechanism == Mechanism::WriteProtect {
            // It never left, and may have been written since.
            self.stayed(segment.page(i), Why::Found);
        }
        self.frames.set_free(place);
        PageOutcome::Refused(Refusal::Present)
    }

    fn zero_by_kernel(&mut self, segment: Segment, out: &mut Vec<PageOutcome>) {
        let (mut i, mut span) = (0, segment.pages);
        while i < segment.pages {
            // Beyond the first page nothing is known to be as it was.
            let most = if self.is_calm() { span } else { 1 };
            let pages = most.min(segment.pages - i);
            let Outcome { bytes, stop } = self.patiently(segment.at(i), |uffd| {
                uffd.zeropage(segment.at(i), pages * PAGE_BYTES)
            });
            let done = bytes / PAGE_BYTES;
            out.extend((0..done).map(|_| PageOutcome::Done));
            i += done;
            let Some(stop) = stop.filter(|&s| s != Stop::Again || done == 0) else {
                continue;
            };
            // One call serves one mapping; a region can be several.
            if stop == Stop::BadRange && done == 0 && pages > 1 {
                span = pages / 2;
                continue;
            }
            out.push(PageOutcome::Refused(match stop {
                Stop::Exists => Refusal::Present,
                _ => {
                    if stop == Stop::NoMemory {
                        self.out_of_memory(Errno::ENOMEM);
                    }
                    Refusal::Gone
                }
            }));
            i += 1;
        }
    }

    /// Puts the staged pages of `run` back into the program. If a page of it is `awaited`, who waits there
    /// goes on; others are not looked for, which saves a lock and a walk along all who wait.
    fn map_run(&mut self, run: PageRange, awaited: bool, out: &mut Vec<PageOutcome>) {
        self.but_changing(run, out, |world, run, out| {
            world.map_calm_run(run, awaited, out);
        });
    }

    fn map_calm_run(&mut self, run: PageRange, awaited: bool, out: &mut Vec<PageOutcome>) {
        let how = if awaited {
            MoveMode::default()
        } else {
            NOBODY_WAITS
        };
        self.each_segment(run, out, |world, segment, out| {
            let mut i = 0;
            while i < segment.pages {
                i += match world.staged.get(segment.page(i)) {
                    Some(place) => world.map_staged(segment, i, place, how, out),
                    None => world.unprotect(segment, i, out),
                };
            }
            if awaited {
                world.woke(segment, out);
            }
        });
    }

    fn map_staged(
        &mut self,
        segment: Segment,
        i: usize,
        first: Place,
        how: MoveMode,
        out: &mut Vec<PageOutcome>,
    ) -> usize {
        let mut count = 1;
        while i + count < segment.pages
            && self.staged.get(segment.page(i + count)) == Some(Place(first.0 + count as u32))
        {
            count += 1;
        }
        let places = Places {
            start: first,
            count: count as u32,
        };
        if segment.plain {
            self.move_in(segment, i, places, how, out);
        } else {
            self.copy_run_in(segment, i, places, out);
        }
        let fared = out.len() - count;
        for k in (0..count).filter(|k| out[fared + k] != KEPT) {
            self.staged.remove(segment.page(i + k));
        }
        count
    }

    /// Pages that are protected in place may be written again.
    fn unprotect(&mut self, segment: Segment, i: usize, out: &mut Vec<PageOutcome>) -> usize {
        let mut count = 1;
        while i + count < segment.pages && self.staged.get(segment.page(i + count)).is_none() {
            count += 1;
        }
        let first = out.len();
        out.resize(first + count, PageOutcome::Done);
        let mut fared = [true; RUN_PAGES];
        self.protect(segment.at(i), count, false, |k, done| fared[k] = done);
        for k in (0..count).filter(|&k| !fared[k]) {
            let moving = self.change_at(segment.at(i + k)) == Some(Change::Moved);
            out[first + k] = if moving {
                KEPT
            } else {
                PageOutcome::Refused(Refusal::Gone)
            };
        }
        count
    }

    /// Takes `run` out of the program, but for pages whose mapping is changing: where they were may be something else.
    fn detach_run(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        if self.is_calm() {
            return self.detach_calm_run(run, out);
        }
        for page in run.iter() {
            let address = self.regions.address(page).map(|found| found.0);
            if address.is_some_and(|at| self.is_disturbed(at)) {
                out.push(PageOutcome::Refused(Refusal::Busy));
            } else {
                self.detach_calm_run(PageRange::one(page), out);
            }
        }
    }

    fn detach_calm_run(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        self.each_segment(run, out, |world, segment, out| {
            if segment.region.holds_no_victim() {
                out.extend((0..segment.pages).map(|_| PageOutcome::Refused(Refusal::Busy)));
            } else if segment.plain {
                world.detach_by_move(segment, out);
            } else {
                world.detach_by_protect(segment, out);
            }
        });
    }

    fn detach_by_move(&mut self, segment: Segment, out: &mut Vec<PageOutcome>) {
        let mut i = 0;
        while i < segment.pages {
            let places = self.frames.take_empty((segment.pages - i) as u32);
            let count = places.count as usize;
            let to = self.frames.address(places.start);
            let report = &mut self.moves[..count];
            self.uffd
                .move_run(to, segment.at(i), NOBODY_WAITS, report, &self.pagemap);
            for (k, place) in places.iter().enumerate() {
                let mut outcome = self.moves[k];
                if outcome == MoveOutcome::Busy {
                    outcome = self.move_shared(segment.at(i + k), place);
                }
                out.push(match outcome {
                    MoveOutcome::Moved => self.moved_out(segment.page(i + k), place),
                    other => {
                        self.frames.set_empty(place);
                        if other == MoveOutcome::Absent {
                            self.absent(segment.at(i + k))
                        } else {
                            PageOutcome::Refused(Refusal::Busy)
                        }
                    }
                });
            }
            i += count;
        }
    }

    /// A page that a fork left shared, be it one before this pager began, is made this process's own by a write that changes nothing.
    fn move_shared(&mut self, address: usize, place: Place) -> MoveOutcome {
        let Ok(flags) = self.pagemap.page(address) else {
            return MoveOutcome::Busy;
        };
        if !flags.present() {
            return MoveOutcome::Busy;
        }
        // Needed even when the other process is gone: the kernel goes on treating the page as shared.
        if !map::make_exclusive(address) {
            return MoveOutcome::Busy;
        }
        self.cow_duplicates += u64::from(!flags.exclusive());
        let to = self.frames.address(place);
        let report = &mut self.moves[..1];
        self.uffd
            .move_run(to, address, NOBODY_WAITS, report, &self.pagemap);
        self.moves[0]
    }

    fn moved_out(&mut self, page: PageNo, place: Place) -> PageOutcome {
        let content = self.frames.content(place);
        let zero = is_zero(content);
        let hash = self.hash_of(content, zero);
        self.staged.insert(page, place);
        PageOutcome::Detached { hash, zero }
    }

    fn hash_of(&self, content: &[u8], zero: bool) -> ContentHash {
        if zero {
            self.zero_hash
        } else {
            self.hasher.page(content)
        }
    }

    /// Gives up the memory of staged pages; their content is in the store, zero, or not wanted.
    pub fn release(&mut self, pages: &[PageNo]) {
        let mut at = 0;
        while at < pages.len() {
            if let Some(place) = self.staged.remove(pages[at]) {
                self.frames.set_free(place);
                at += 1;
                continue;
            }
            let Some((address, follow)) = self.regions.address(pages[at]) else {
                at += 1;
                continue;
            };
            let mut count = 1;
            while (count as u64) < follow
                && pages
                    .get(at + count)
                    .is_some_and(|p| p.raw() == pages[at].raw() + count as u64)
                && self.staged.get(pages[at + count]).is_none()
            {
                count += 1;
            }
            self.release_or_note(address, &pages[at..at + count]);
            // A writer that met the protection waits for it to go; it faults again, as missing.
            let _ = self.uffd.wake(address, count * PAGE_BYTES);
            at += count;
        }
    }

    /// The kernel has no memory for a frame within the limit.
    fn out_of_memory(&self, error: Errno) {
        self.failing.fail(Failure::NoMemory(error));
    }

    /// The page at `address` is not staged: who writes to it may.
    pub fn may_be_written(&self, address: usize) {
        let _ = self.patiently(address, |uffd| {
            uffd.write_protect(address, PAGE_BYTES, false)
        });
    }

    /// In a forked child: a page that is staged in place is protected again.
    pub fn protect_again(&mut self, page: PageNo) {
        if self.staged.get(page).is_some() {
            return;
        }
        if let Some((address, _)) = self.regions.address(page) {
            let _ = self.patiently(address, |uffd| {
                uffd.write_protect(address, PAGE_BYTES, true)
            });
        }
    }

    /// Whoever touches the page gets a signal from now on (`UFFDIO_POISON`, Linux 6.6).
    pub fn poison(&mut self, page: PageNo) {
        if let Some(place) = self.staged.remove(page) {
            self.frames.set_free(place);
        }
        if let Some((address, _)) = self.regions.address(page) {
            self.signal(address);
        }
    }

    /// Whoever touches what is at `address` gets a signal from now on.
    pub(crate) fn signal(&self, address: usize) {
        let poisoned = self.patiently(address, |uffd| uffd.poison(address, PAGE_BYTES));
        let unwanted = self.change_at(address) == Some(Change::Removed);
        if poisoned.stop.is_some() && !unwanted && !self.is_mapped_over(address) {
            let why = "could not be read back, and this kernel cannot signal it";
            self.failing.fail(Failure::Page(address, why));
            // The pager ends: nobody changes what is there.
            let _ = map::mprotect(address, PAGE_BYTES, libc::PROT_NONE);
        }
        let _ = self.uffd.wake(address, PAGE_BYTES);
    }
}
