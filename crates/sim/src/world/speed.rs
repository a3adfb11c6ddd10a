//! How fast the simulator itself is, for the benchmarks and the report of `outpage paper moc`.

use std::time::{Duration, Instant};

use outpage_core::contract::Access;
use outpage_core::units::{ObjectId, PageNo, PageRange};
use serde::Serialize;

use super::{DiskSpec, Policies, Report, Setup, World};
use crate::disk::{Params, SolidParams};
use crate::programs::{Program, SorParams, Spec, Step};

/// A program that writes all its pages in order, again and again.
pub struct Passes {
    pages: u64,
    left: u64,
    mapped: bool,
}

impl Passes {
    /// `passes` passes over `pages` pages.
    #[must_use]
    pub const fn new(pages: u64, passes: u64) -> Self {
        Self {
            pages,
            left: passes,
            mapped: false,
        }
    }
}

impl Program for Passes {
    fn name(&self) -> &'static str {
        "passes"
    }

    fn footprint(&self) -> u64 {
        self.pages
    }

    fn step(&mut self) -> Step {
        let run = PageRange::new(PageNo::new(ObjectId(1), 0), self.pages);
        if !self.mapped {
            self.mapped = true;
            return Step::Map(run);
        }
        if self.left == 0 {
            return Step::End;
        }
        self.left -= 1;
        // A nanosecond a page: time passes, but nothing falls due.
        Step::Touch {
            run,
            access: Access::Write,
            page_ns: 1,
        }
    }
}

/// A set-up of the page daemon with a fast disk and no read-ahead.
fn paging(frames: u64) -> Setup {
    let mut setup = Setup::bsd("6.2", "bsd", frames, Vec::new());
    setup.disk = DiskSpec::Named("nvme".to_owned());
    setup.policies.readahead = "none".to_owned();
    setup
}

/// A disk that takes no time, so that what is measured is the simulator.
#[must_use]
pub const fn instant_disk() -> DiskSpec {
    DiskSpec::Params(Params::Solid(SolidParams {
        read_ns: 1,
        read_block_ns: 0,
        write_ns: 1,
        write_block_ns: 0,
        channels: 64,
    }))
}

/// The live policies in `frames` frames, `readahead` apart, with no page but the one that is touched along
/// with a fault, and an instant disk.
#[must_use]
pub fn alone(frames: u64, readahead: &str) -> Setup {
    Setup {
        disk: instant_disk(),
        policies: Policies {
            readahead: readahead.to_owned(),
            zero_around: 1,
            rescue_around: 0,
            ..Policies::default()
        },
        ..Setup::live(frames, Vec::new())
    }
}

/// Runs `passes` over `pages` in `frames`; the report, and how long that took.
///
/// # Panics
/// When swap does not hold the pages.
#[must_use]
pub fn timed_passes(frames: u64, pages: u64, passes: u64) -> (Report, Duration) {
    timed(&paging(frames), pages, passes)
}

/// As [`timed_passes`], under `setup`.
///
/// # Panics
/// As [`timed_passes`], and when `setup` is not sound.
#[must_use]
pub fn timed(setup: &Setup, pages: u64, passes: u64) -> (Report, Duration) {
    let program: Box<dyn Program> = Box::new(Passes::new(pages, passes));
    let world = World::with_programs(setup, vec![program]).expect("a sound set-up");
    let start = Instant::now();
    let report = world.run(&mut |_| {}).expect("swap holds the program");
    (report, start.elapsed())
}

/// Seconds by the number of something: on a straight line if the simulator is linear in it.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    /// Of what.
    pub what: &'static str,
    /// (How many, seconds).
    pub points: Vec<(u64, f64)>,
}

/// How time grows with references, with pages and with programs: the best of three each.
///
/// # Panics
/// Not with the registered policies.
#[must_use]
pub fn scaling() -> Vec<Scaling> {
    let best =
        |run: &dyn Fn() -> Duration| (0..3).map(|_| run().as_secs_f64()).fold(f64::MAX, f64::min);
    let references = [2_000_u64, 4_000, 8_000, 16_000].map(|passes| {
        let seconds = best(&|| timed_passes(30_000, 20_000, passes).1);
        (passes * 20_000, seconds)
    });
    let pages = [50_000_u64, 100_000, 200_000, 400_000];
    let pages = pages.map(|pages| (pages, best(&|| timed_passes(pages / 2, pages, 2).1)));
    let programs = [1_u64, 2, 4, 8].map(|count| {
        let sor = Spec::Sor(SorParams {
            n: 1000,
            sweeps: 3,
            ..SorParams::default()
        });
        let mut setup = Setup::bsd("6.2", "bsd", 1500 * count, vec![sor; count as usize]);
        // Slices so short that none ends before the last begins.
        setup.quantum_ms = 1;
        let seconds = best(&|| {
            let world = World::new(&setup).expect("a sound set-up");
            let start = Instant::now();
            let report = world.run(&mut |_| {}).expect("swap holds them");
            assert!(report.page_outs > 0, "they page");
            start.elapsed()
        });
        (count, seconds)
    });
    vec![
        Scaling {
            what: "touches of mapped pages",
            points: references.to_vec(),
        },
        Scaling {
            what: "pages of a program twice as large as memory",
            points: pages.to_vec(),
        },
        Scaling {
            what: "programs that page at once",
            points: programs.to_vec(),
        },
    ]
}
