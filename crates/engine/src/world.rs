//! How pages move: the mechanisms that carry out the pager's actions on the program's memory.
//!
//! *Move* (Linux 6.8): a page leaves by `UFFDIO_MOVE` into the staging area and comes back the same
//! way. *Write-protect* (Linux 5.7): a page is write-protected where it is, copied to the staging area,
//! then dropped with `MADV_DONTNEED`; it comes back by `UFFDIO_COPY`. Under either a staged page cannot change, and each touch of it is a fault.
//! The mechanism belongs to a range: read-only and executable ranges are served by copying
//! under either. Shared memory is copied too, and leaves its file (`world/mover/sharing.rs`).

use outpage_core::contract::{PageOutcome, Refusal};
use outpage_core::page::ContentHash;
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_sys::raw::Errno;
use outpage_sys::uffd::{Change, MoveOutcome};
use outpage_sys::{clock, map};

use crate::door::{Bells, Door};
use crate::frames::{FrameNo, FrameRange, Frames};
use crate::hash::{Hasher, is_zero};
use crate::leaving::{Listeners, Topic};
use crate::notify::Notifier;
use crate::regions::Region;
use crate::scope::{Failing, Failure, Reach};
use crate::space::Space;
use crate::staged::Staged;
use crate::views::Views;
use crate::waiting::Waiting;

mod changing;
mod io;
mod mover;
mod spread;
mod trim;

#[cfg(test)]
mod tests;

use changing::KEPT;
use mover::{Copies, Mover, Moving, Protecting, Sharing};
pub use spread::GAP_MAX;

/// The most pages one call acts on.
pub const RUN_PAGES: usize = outpage_core::pager::RUN_PAGES_MAX as usize;

/// How often threads in the kernel are let go on before freed pages are not looked at after all. A choice; one is enough for whoever was read just now.
const PASSES: u32 = 16;

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

    /// Whether touches of mapped pages leave bits that the pager can read. Under neither. Read-write protection (`Features::RWP_ASYNC`, Linux
    /// 7.3) leaves some, which PAGEMAP_SCAN reads; the kernel takes it together with faults of missing pages, and refuses it together
    /// with write-protection. It would be told here, and to the pager as [`outpage_core::contract::Body::bits`].
    #[must_use]
    pub const fn has_reference_bits(self) -> bool {
        match self {
            Self::Move | Self::WriteProtect => false,
        }
    }

    /// Whether pages of ordinary ranges are moved: the staging area is under the program's descriptor then, for moves go by that.
    #[must_use]
    pub const fn moves(self) -> bool {
        match self {
            Self::Move => true,
            Self::WriteProtect => false,
        }
    }

    /// Who serves `region`, where the staging area has protection `staging`.
    fn mover(self, region: &Region, staging: i32) -> &'static dyn Mover {
        match self {
            _ if region.view != 0 => &Sharing,
            Self::Move if region.is_like(staging) => &Moving,
            Self::Move | Self::WriteProtect => &Protecting,
        }
    }
}

/// The program's memory, and what of it is where.
pub struct World {
    /// Where faults of the program come from, and messages about its mappings. The staging area is behind it too: the kernel
    /// moves nothing there while a mapping changes, so what leaves is what lay there when its address was looked up.
    pub door: Box<dyn Door>,
    /// Where calls come by.
    pub bells: Box<dyn Bells>,
    /// Where errors go that the pager cannot go on with.
    pub(crate) failing: Failing,
    /// Frames not mapped in the program.
    pub frames: Frames,
    /// Which staged page is in which frame.
    pub staged: Staged,
    /// The managed ranges, and what is happening to them.
    pub space: Space,
    /// The run's hash function.
    pub hasher: Hasher,
    /// The hash of a page of zeroes.
    zero_hash: ContentHash,
    /// How ordinary ranges are served.
    pub mechanism: Mechanism,
    /// Frames within the limit for copies of pages that cannot be moved, 1 at least: one at a time may be beyond it.
    pub(crate) kept_for_copies: usize,
    /// Pages that leave by copies.
    copies: Copies,
    /// Pages duplicated because a fork shared them.
    pub cow_duplicates: u64,
    /// Shared memory that is managed.
    pub(crate) views: Views,
    moves: Vec<MoveOutcome>,
    /// Which of a run's pages are there.
    there: Vec<bool>,
    /// Who waits for a page.
    pub(crate) waiting: Waiting,
    /// Tells a guest, where there is one, what it would wait for.
    pub(crate) notifiers: Vec<Notifier>,
    /// Hear of pages before they leave.
    pub(crate) listeners: Listeners,
}

/// A run's part that is contiguous in memory too.
#[derive(Clone, Copy)]
struct Segment {
    address: usize,
    first: PageNo,
    pages: usize,
    mover: &'static dyn Mover,
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
        door: Box<dyn Door>,
        bells: Box<dyn Bells>,
        frames: Frames,
        limit: usize,
        mechanism: Mechanism,
        seed: u64,
    ) -> Self {
        Self {
            door,
            bells,
            failing: Failing::new(Reach::Process),
            frames,
            staged: Staged::new(limit),
            space: Space::new(),
            hasher: Hasher::new(seed),
            zero_hash: Hasher::new(seed).page(&[0; PAGE_BYTES]),
            mechanism,
            kept_for_copies: 1,
            copies: Copies::new(),
            cow_duplicates: 0,
            views: Views::default(),
            moves: vec![MoveOutcome::Absent; RUN_PAGES],
            there: vec![false; RUN_PAGES],
            waiting: Waiting::default(),
            notifiers: Vec::new(),
            listeners: Listeners::default(),
        }
    }

    /// Who hears of such pages.
    pub(crate) const fn who_hears(&mut self, topic: Topic) -> &mut Vec<Notifier> {
        match topic {
            Topic::Out => &mut self.notifiers,
            Topic::Leaving => self.listeners.all(),
        }
    }

    fn segment(&self, run: PageRange) -> Result<Segment, usize> {
        let Some((address, follow)) = self.space.address(run.start) else {
            return Err(1);
        };
        let region = *self.space.at(address).expect("an address of a region");
        let pages = run.pages.min(follow) as usize;
        let mover = self.mechanism.mover(&region, self.frames.prot());
        Ok(Segment {
            address,
            first: run.start,
            pages,
            mover,
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
            let end = segment.at(segment.pages);
            self.waiting.mapped(segment.address, end, clock::now());
        }
    }

    /// Lets whoever waits for the page at `address` go on, unless a mapping just did.
    pub fn wake(&mut self, address: usize) {
        if self.waiting.awake_since(address).is_none() {
            self.door.wake(address, PAGE_BYTES);
        }
    }

    /// Maps zeroes at `run`.
    pub fn zero_fill(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        out.clear();
        self.but_changing(run, out, Self::zero_fill_run);
        for notifier in &mut self.notifiers {
            // What the guest gave back while it was out.
            run.iter().for_each(|page| notifier.paged_in(page));
        }
    }

    fn zero_fill_run(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        self.each_segment(run, out, |world, segment, out| {
            segment.mover.zero(world, segment, out);
            world.woke(segment, out);
        });
    }

    /// Puts the staged pages of `run` back into the program. If a page of it is `awaited`, who waits there
    /// goes on; others are not looked for, which saves a lock and a walk along all who wait.
    fn map_run(&mut self, run: PageRange, awaited: bool, out: &mut Vec<PageOutcome>) {
        self.but_changing(run, out, |world, run, out| {
            world.map_calm_run(run, awaited, out);
        });
    }

    fn map_calm_run(&mut self, run: PageRange, awaited: bool, out: &mut Vec<PageOutcome>) {
        self.each_segment(run, out, |world, segment, out| {
            let mut i = 0;
            while i < segment.pages {
                let place = world.staged.get(segment.page(i));
                let place = place.expect("a staged page has a frame");
                i += world.map_staged(segment, i, place, awaited, out);
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
        first: FrameNo,
        awaited: bool,
        out: &mut Vec<PageOutcome>,
    ) -> usize {
        let mut count = 1;
        while i + count < segment.pages
            && self.staged.get(segment.page(i + count)) == Some(FrameNo(first.0 + count as u32))
        {
            count += 1;
        }
        let places = FrameRange {
            start: first,
            count: count as u32,
        };
        segment.mover.put(self, segment, i, places, awaited, out);
        let fared = out.len() - count;
        for k in (0..count).filter(|k| out[fared + k] != KEPT) {
            self.staged.remove(segment.page(i + k));
        }
        count
    }

    /// Takes `run` out of the program, but for pages whose mapping is changing: where they were may be something else.
    fn detach_run(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        if self.is_calm() {
            return self.detach_calm_run(run, out);
        }
        for page in run.iter() {
            let address = self.space.address(page).map(|found| found.0);
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
            } else {
                segment.mover.take(world, segment, out);
            }
        });
    }

    /// Has the kernel drop those pages of `run` that the program has not written since it freed them, and says which those are.
    pub fn drop_freed(&mut self, run: PageRange, out: &mut Vec<PageOutcome>) {
        out.clear();
        // A thread that told of a change a moment ago is in the kernel still, and as long as one is, a page that is not there may be somewhere else.
        for _ in 0..PASSES {
            if !self.door.is_changing(self.frames.span().0) {
                break;
            }
            self.door.let_change_pass();
        }
        let told = !self.door.is_changing(self.frames.span().0);
        self.each_segment(run, out, |world, segment, out| {
            let mut there = std::mem::take(&mut world.there);
            let there_yet = &mut there[..segment.pages];
            let undisturbed = |i| !world.is_disturbed(segment.at(i));
            let looked = told
                && (world.is_calm() || (0..segment.pages).all(undisturbed))
                && world.door.drop_unwritten(segment.address, segment.pages)
                && world.door.there(segment.address, there_yet).is_ok();
            out.extend((0..segment.pages).map(|i| {
                if looked && !there_yet[i] && world.absent(segment.at(i)) != KEPT {
                    PageOutcome::Done
                } else {
                    PageOutcome::Refused(Refusal::Busy)
                }
            }));
            world.there = there;
        });
    }

    fn moved_out(&mut self, page: PageNo, place: FrameNo) -> PageOutcome {
        // What the program freed once and nobody has written since the kernel may drop, here too. From now on it has been written; if it went just
        // before, it is zeroes.
        self.frames.write_nothing(place);
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
        for &page in pages {
            if let Some(place) = self.staged.remove(page) {
                self.frames.set_free(place);
            }
        }
    }

    /// Up to `wanted` neighbouring frames, in use afterwards; `zeroed` asks for zeroes in them.
    fn take_frames(&mut self, wanted: u32, zeroed: bool) -> FrameRange {
        match self.frames.take(wanted, zeroed) {
            Ok(places) => places,
            Err(error) => {
                self.out_of_memory(error);
                // Whoever writes there asks the kernel once more.
                self.frames.take_empty(wanted)
            }
        }
    }

    /// Free frames beyond `limit` frames in all, of which `used` are in use.
    #[must_use]
    pub fn frames_too_many(&self, used: usize, limit: usize) -> usize {
        (used + self.frames.free()).saturating_sub(limit)
    }

    /// The kernel has no memory for a frame within the limit.
    fn out_of_memory(&self, error: Errno) {
        self.failing.fail(Failure::NoMemory(error));
    }

    /// The page at `address` is not staged: who writes to it may.
    pub fn may_be_written(&self, address: usize) {
        let _ = self.patiently(address, |door| {
            door.write_protect(address, PAGE_BYTES, false)
        });
    }

    /// Whoever touches the page gets a signal from now on (`UFFDIO_POISON`, Linux 6.6). Not while its mapping is changing: whoever
    /// touches it faults, and this is asked for again.
    pub fn poison(&mut self, page: PageNo) {
        if let Some(place) = self.staged.remove(page) {
            self.frames.set_free(place);
        }
        if let Some((address, _)) = self.space.address(page)
            && !self.is_disturbed(address)
        {
            self.signal(address);
        }
    }

    /// Whoever touches what is at `address` gets a signal from now on.
    pub(crate) fn signal(&self, address: usize) {
        // Of a page that left under protection a marker may stay, which the kernel does not replace by another (`mfill_atomic_pte_poison`).
        self.may_be_written(address);
        let poisoned = self.patiently(address, |door| door.poison(address, PAGE_BYTES));
        let unwanted = self.change_at(address) == Some(Change::Removed);
        if poisoned.stop.is_some() && !unwanted && !self.is_mapped_over(address) {
            let why = "could not be read back, and this kernel cannot signal it";
            self.failing.fail(Failure::Page(address, why));
            // The pager ends: nobody changes what is there.
            let _ = map::mprotect(address, PAGE_BYTES, libc::PROT_NONE);
        }
        self.door.wake(address, PAGE_BYTES);
    }
}
