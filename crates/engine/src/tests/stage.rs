//! What tests stand on: a program whose address space is a map ([`super::fake`]), and worlds over it.

use outpage_core::contract::{PageList, PageOutcome};
use outpage_core::page::ContentHash;
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_store::PageBits;
use outpage_sys::uffd::Mode;

use super::fake::{Fake, Silent, at};
use crate::door::Door;
use crate::frames::{FrameNo, Frames};
use crate::scope::{Failing, Reach};
use crate::world::{Mechanism, World};

pub(crate) const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Frames that a stage has.
pub(crate) const FRAMES: usize = 64;

/// A world, and the program that it serves: pages 0 and up, one region.
pub(crate) struct Stage {
    pub(crate) fake: Fake,
    pub(crate) world: World,
    first: PageNo,
}

impl Stage {
    /// Of `pages` pages, none of which is there.
    pub(crate) fn new(mechanism: Mechanism, pages: usize) -> Self {
        let fake = Fake::new();
        let frames = Frames::new(FRAMES).expect("address space");
        let door = Box::new(fake.clone());
        let mut world = World::new(door, Box::new(Silent), frames, FRAMES, mechanism, 1);
        world.failing = Failing::new(Reach::Regions);
        let first = Self::manage(&fake, &mut world, 0, pages);
        Self { fake, world, first }
    }

    fn manage(fake: &Fake, world: &mut World, from: usize, pages: usize) -> PageNo {
        let (start, len) = (at(from), pages * PAGE_BYTES);
        fake.register(start, len, Mode::both()).expect("a set");
        world.space.add(start, start + len, RW, false).first
    }

    pub(crate) fn page(&self, page: usize) -> PageNo {
        PageNo::from_raw(self.first.raw() + page as u64)
    }

    pub(crate) fn run(&self, first: usize, pages: usize) -> PageRange {
        PageRange::new(self.page(first), pages as u64)
    }

    /// The protection of `pages` pages from `first` on is another.
    pub(crate) fn protect(&mut self, first: usize, pages: usize, prot: i32) {
        let len = pages * PAGE_BYTES;
        self.world.space.change(at(first), len, |r| r.prot = prot);
    }

    pub(crate) fn zero_fill(&mut self, first: usize, pages: usize) -> Vec<PageOutcome> {
        let (run, mut out) = (self.run(first, pages), Vec::new());
        self.world.zero_fill(run, &mut out);
        out
    }

    pub(crate) fn detach(&mut self, runs: &[(usize, usize)]) -> Vec<PageOutcome> {
        let runs: Vec<_> = runs.iter().map(|&(first, n)| self.run(first, n)).collect();
        let mut out = Vec::new();
        self.world.detach(&runs, &mut out);
        out
    }

    pub(crate) fn map(&mut self, runs: &[(usize, usize)], awaited: bool) -> Vec<PageOutcome> {
        let runs: Vec<_> = runs.iter().map(|&(first, n)| self.run(first, n)).collect();
        let (mut left, mut out) = (runs.as_slice(), Vec::new());
        while !left.is_empty() {
            let (now, then) = left.split_at(self.world.in_step(left));
            self.world.map(now, awaited, &mut out);
            left = then;
        }
        out
    }

    pub(crate) fn release(&mut self, pages: &[usize]) {
        let pages: Vec<_> = pages.iter().map(|&page| self.page(page)).collect();
        self.world.release(&pages);
    }

    /// What a store would get to write for `pages`: of each the byte that it is filled with.
    pub(crate) fn write(&self, pages: &[usize]) -> Vec<u8> {
        let written = pages.iter().map(|&page| {
            let place = self.world.place_to_write(self.page(page));
            let content = self.world.frames.content(place);
            assert!(content.iter().all(|b| *b == content[0]), "of one piece");
            content[0]
        });
        written.collect()
    }

    /// Reads `pages`, each filled with a byte, as a store would; those that `failed` are not read.
    pub(crate) fn read(&mut self, pages: &[(usize, u8)], failed: &[u32]) -> Vec<PageOutcome> {
        let hashes = pages.iter().map(|&(_, byte)| self.hash(byte)).collect();
        self.read_expecting(pages, hashes, failed)
    }

    pub(crate) fn read_expecting(
        &mut self,
        pages: &[(usize, u8)],
        hashes: Vec<ContentHash>,
        failed: &[u32],
    ) -> Vec<PageOutcome> {
        let list = PageList::new(pages.iter().map(|p| self.page(p.0)).collect(), hashes);
        let mut places = Vec::new();
        self.world.frames_to_read(&list, &mut places);
        for (&place, &(_, byte)) in places.iter().zip(pages) {
            self.world.frames.content_mut(place).fill(byte);
        }
        let mut bits = PageBits::NONE;
        failed.iter().for_each(|&at| bits.insert(at));
        let mut out = Vec::new();
        self.world.stage_intact(&list, &places, &bits, &mut out);
        out
    }

    pub(crate) fn hash(&self, byte: u8) -> ContentHash {
        self.world.hasher.page(&[byte; PAGE_BYTES])
    }

    /// Frames in use outside the program.
    pub(crate) fn frames_in_use(&self) -> usize {
        self.world.frames.populated() - self.world.frames.free()
    }

    pub(crate) fn place_of(&self, page: usize) -> Option<FrameNo> {
        self.world.staged.get(self.page(page))
    }
}
