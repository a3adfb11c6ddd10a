//! What the simulator keeps for each page beside the core's state of it, counted by the allocator,
//! under every system that `outpage sim` knows.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use outpage_core::contract::Access;
use outpage_core::units::{ObjectId, PageNo, PageRange};
use outpage_sim::programs::{Program, Step};
use outpage_sim::world::{DiskSpec, Setup, World};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of the simulator for each page that was touched, at most, beside the core's.
const PAGE_BYTES_MAX: f64 = 24.0;
/// Pages of the smaller world: whole slabs of the core's table.
const PAGES: u64 = 1 << 16;

/// Writes all its pages in order, again, and then each by itself in no order.
struct Touches {
    pages: u64,
    step: u64,
    object: u32,
}

impl Program for Touches {
    fn name(&self) -> &'static str {
        "touches"
    }

    fn footprint(&self) -> u64 {
        self.pages
    }

    fn step(&mut self) -> Step {
        let all = PageRange::new(PageNo::new(ObjectId(self.object), 0), self.pages);
        self.step += 1;
        let run = match self.step - 1 {
            0 => return Step::Map(all),
            1 | 2 => all,
            step if step < self.pages => {
                // Odd, so that every page has its turn.
                let index = step.wrapping_mul(0x9E37_79B9) % self.pages;
                PageRange::one(PageNo::new(ObjectId(self.object), index))
            }
            _ => return Step::End,
        };
        let access = Access::Write;
        Step::Touch {
            run,
            access,
            page_ns: 100,
        }
    }
}

/// The most bytes that a run of two programs of `pages` pages in all took, the core's left out.
fn beside_core(setup: Setup, pages: u64) -> i64 {
    let setup = Setup {
        frames: pages / 2,
        disk: DiskSpec::Named("nvme".to_owned()),
        ..setup
    };
    let before = BYTES.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let program = |object| {
        let (pages, step) = (pages / 2, 0);
        Box::new(Touches {
            pages,
            step,
            object,
        }) as Box<dyn Program>
    };
    let world = World::with_programs(&setup, vec![program(1), program(2)]).expect("sound");
    let report = world.run(&mut |_| {}).expect("swap is large");
    assert!(
        report.page_ins > pages && report.page_outs > pages,
        "it pages"
    );
    (PEAK.load(Ordering::Relaxed) - before) as i64 - report.core_bytes as i64
}

#[test]
fn at_most_24_bytes_a_page_beside_the_core() {
    let linux = |mut setup: Setup| {
        setup.policies.pageout = "linux".to_owned();
        setup.policies.readahead = "linux-slot".to_owned();
        setup
    };
    let live = || Setup::live(0, Vec::new());
    let bsd = |release| Setup::bsd(release, "bsd", 0, Vec::new());
    for (system, setup) in [
        ("live", live()),
        ("linux", linux(live())),
        ("bsd-6.2", bsd("6.2")),
        ("bsd-8.2", bsd("8.2")),
    ] {
        let few = beside_core(setup.clone(), PAGES);
        let many = beside_core(setup, 2 * PAGES);
        let a_page = (many - few) as f64 / PAGES as f64;
        eprintln!(
            "{system}: {a_page:.2} bytes a page, and {:.0} KiB",
            (2 * few - many) as f64 / 1024.0
        );
        assert!(a_page <= PAGE_BYTES_MAX, "{system}: {a_page} bytes a page");
    }
}
