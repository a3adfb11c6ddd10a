//! Frames outside the program under write-protect, on real page tables: never too many, and no byte is lost.

use std::sync::Arc;

use outpage_core::contract::{PageList, PageOutcome, Refusal};
use outpage_core::page::ContentHash;
use outpage_core::units::{PAGE_BYTES, PageNo, PageRange};
use outpage_engine::door::Kernel;
use outpage_engine::frames::Frames;
use outpage_engine::world::{Mechanism, World};
use outpage_sys::map::Area;
use outpage_sys::own::Fork;
use outpage_sys::pagemap::Pagemap;
use outpage_sys::say;
use outpage_sys::uffd::{Features, Mode, Uffd, Wanted};

const PAGES: usize = 32;
const OUTSIDE_MAX: usize = 8;

/// Memory of which nothing is there yet.
struct Bench {
    world: World,
    area: Area,
    first: PageNo,
    pagemap: Pagemap,
}

impl Bench {
    /// `None`, said loudly, where there is no userfaultfd that protects.
    fn new() -> Option<Self> {
        let wanted = Wanted {
            required: Features::PAGEFAULT_FLAG_WP,
            ..Wanted::default()
        };
        let [uffd, own] = match [Uffd::open(&wanted), Uffd::open(&wanted)] {
            [Ok(uffd), Ok(own)] => [uffd, own],
            [Err(why), _] | [_, Err(why)] => {
                say::say(&["SKIPPED: ", &why.to_string()]);
                return None;
            }
        };
        let area = Area::new(PAGES * PAGE_BYTES, Fork::Inherited).unwrap();
        uffd.register(area.start(), area.len(), Mode::both())
            .unwrap();
        let frames = Frames::new(PAGES).unwrap();
        let door = Box::new(Kernel::new(uffd, Arc::default()).unwrap());
        let mechanism = Mechanism::WriteProtect;
        let mut world = World::new(door, Box::new(own), frames, PAGES, mechanism, 1);
        world.bound_outside(OUTSIDE_MAX);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let end = area.start() + area.len();
        let first = world.space.add(area.start(), end, prot, false).first;
        let pagemap = Pagemap::open().unwrap();
        Some(Self {
            world,
            area,
            first,
            pagemap,
        })
    }

    fn page(&self, page: usize) -> PageNo {
        PageNo::from_raw(self.first.raw() + page as u64)
    }

    fn address(&self, page: usize) -> usize {
        self.area.start() + page * PAGE_BYTES
    }

    /// Reads `pages` as the store would: each holds its number.
    fn read(&mut self, pages: &[usize]) {
        let numbers: Vec<_> = pages.iter().map(|&page| self.page(page)).collect();
        let mut places = Vec::new();
        self.world.frames_to_read(&numbers, &mut places);
        for (i, &place) in places.iter().enumerate() {
            self.world
                .frames
                .content_mut(place)
                .fill(pages[i] as u8 + 1);
            self.world.stage_read(numbers[i], place);
        }
    }

    fn map(&mut self, first: usize, pages: u64) -> Vec<PageOutcome> {
        let mut out = Vec::new();
        let run = PageRange::new(self.page(first), pages);
        self.world.map(&[run], true, &mut out);
        out
    }

    fn is_inside(&self, page: usize) -> bool {
        !self.pagemap.page(self.address(page)).unwrap().empty()
    }

    fn holds_its_number(&self, page: usize) -> bool {
        let content = self.area.bytes(page * PAGE_BYTES, PAGE_BYTES);
        content.iter().all(|&byte| byte == page as u8 + 1)
    }
}

#[test]
fn what_was_read_waits_outside_until_frames_run_short() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.read(&[0, 1, 2, 3, 4, 5]);
    assert!(
        (0..6).all(|page| !bench.is_inside(page)),
        "the first touch is seen"
    );
    for page in 6..20 {
        bench.read(&[page]);
        assert!(bench.world.frames.populated() <= OUTSIDE_MAX);
    }
    let inside: Vec<_> = (0..20).filter(|&page| bench.is_inside(page)).collect();
    let oldest: Vec<_> = (0..20 - OUTSIDE_MAX).collect();
    assert_eq!(inside, oldest);
    assert!(oldest.iter().all(|&page| bench.holds_its_number(page)));
    // Some are protected there, the others come by one call.
    assert_eq!(bench.map(0, 20), [PageOutcome::Done; 20]);
    assert!((0..20).all(|page| bench.is_inside(page) && bench.holds_its_number(page)));
    assert_eq!(bench.world.frames.free(), bench.world.frames.populated());
    assert!(bench.world.staged.is_empty());
    assert_eq!(bench.world.frames_too_many(20, 20), 0);
}

#[test]
fn a_page_that_is_written_from_its_frame_keeps_it() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.read(&[3]);
    let (mut frames, mut copies) = (Vec::new(), Vec::new());
    let written = PageList::new(vec![bench.page(3)], vec![ContentHash::default()]);
    bench
        .world
        .frames_to_write(&written, &mut frames, &mut copies);
    assert!(copies.is_empty());
    (0..20)
        .filter(|&page| page != 3)
        .for_each(|page| bench.read(&[page]));
    assert!(!bench.is_inside(3) && bench.is_inside(0));
    assert_eq!(bench.map(3, 1), [PageOutcome::Done]);
    assert!(bench.holds_its_number(3));
}

#[test]
fn a_page_that_never_left_is_not_overwritten() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    bench.read(&[0, 1, 2]);
    let there = bench.address(1);
    let filled = bench.world.door.zeropage(there, PAGE_BYTES);
    assert!(filled.stop.is_none());
    let fared = [
        PageOutcome::Done,
        PageOutcome::Refused(Refusal::Present),
        PageOutcome::Done,
    ];
    assert_eq!(bench.map(0, 3), fared);
    assert!(bench.holds_its_number(0) && bench.holds_its_number(2));
    let content = bench.area.bytes(PAGE_BYTES, PAGE_BYTES);
    assert!(content.iter().all(|&byte| byte == 0));
    assert!(bench.world.staged.is_empty());
}
