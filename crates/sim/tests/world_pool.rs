//! Worlds that keep victims compressed in RAM.

use outpage_core::contract::Access;
use outpage_core::units::{ObjectId, PageNo, PageRange};
use outpage_sim::programs::{Program, Spec, Step, ZigzagParams};
use outpage_sim::world::speed::Passes;
use outpage_sim::world::{Ratio, Report, Setup, SetupError, World};

const FRAMES: u64 = 1024;
/// So many that the first pages to leave find room in the pool: with fewer some of them are written, for want of a frame to compress in.
const MANY: u64 = 8192;

/// The live policies, page by page, with `tier` and pages of `ratio`.
fn setup(tier: &str, ratio: Ratio) -> Setup {
    let mut setup = Setup::live(FRAMES, Vec::new());
    tier.clone_into(&mut setup.policies.tier);
    // In order, so that which page is compressed when can be told.
    setup.policies.reclaim = "second-chance".to_owned();
    setup.policies.readahead = "none".to_owned();
    setup.policies.zero_around = 1;
    setup.policies.rescue_around = 0;
    setup.ratio = ratio;
    setup
}

/// The same in [`MANY`] frames.
fn large(tier: &str, ratio: Ratio) -> Setup {
    Setup {
        frames: MANY,
        ..setup(tier, ratio)
    }
}

/// Ten passes that write `pages` pages.
fn run(setup: &Setup, pages: u64) -> Report {
    run_program(setup, Box::new(Passes::new(pages, 10)))
}

fn run_program(setup: &Setup, program: Box<dyn Program>) -> Report {
    let world = World::with_programs(setup, vec![program]).expect("a sound set-up");
    let report = world.run(&mut |_| {}).expect("swap is large");
    assert!(report.pooled_frames_peak <= report.frames, "{report:?}");
    report
}

/// Pages that came out of the pool for a touch, their own or that of one before.
fn out_of(report: &Report) -> u64 {
    report.pool_hits + report.pool_along
}

#[test]
fn what_fits_compressed_is_never_read() {
    let none = run(&large("none", Ratio::Uniform(4.0)), 2 * MANY);
    assert!(none.page_ins > 9 * MANY && none.pool_hits == 0);
    assert_eq!((none.compressed, none.pool_frames_peak), (0, 0));

    let lz4 = run(&large("lz4", Ratio::Uniform(4.0)), 2 * MANY);
    assert_eq!((lz4.page_ins, lz4.page_outs, lz4.demoted), (0, 0, 0));
    let out = out_of(&lz4);
    assert!(out > 9 * MANY, "{out}");
    assert!(
        4 * lz4.pool_hits < out,
        "passes are streams: {} of {out}",
        lz4.pool_hits
    );
    // A pass misses every page: it is taken out and put in again.
    assert_eq!(lz4.compressed_bytes, 1024 * lz4.compressed);
    assert!(lz4.elapsed_ns < none.elapsed_ns / 10);
    assert_eq!(lz4.major_faults, 0);
}

#[test]
fn compression_takes_the_time_that_it_is_said_to_take() {
    let dear = |change: fn(&mut Setup)| {
        let mut setup = large("lz4", Ratio::Uniform(4.0));
        change(&mut setup);
        run(&setup, 2 * MANY)
    };
    let base = dear(|_| {});
    let packs = dear(|setup| setup.costs.compress_ns += 1000);
    let unpacks = dear(|setup| setup.costs.decompress_ns += 1000);
    // Without a disk nothing depends on when something happens.
    assert_eq!(
        (base.compressed, out_of(&base)),
        (packs.compressed, out_of(&unpacks))
    );
    assert_eq!(packs.elapsed_ns - base.elapsed_ns, 1000 * base.compressed);
    assert_eq!(unpacks.elapsed_ns - base.elapsed_ns, 1000 * out_of(&base));
    assert_eq!(
        packs.programs[0].cpu_ns - base.programs[0].cpu_ns,
        1000 * base.compressed
    );
}

#[test]
fn pages_that_do_not_compress_cost_their_tries() {
    let none = run(&setup("none", Ratio::Uniform(1.0)), 2 * FRAMES);
    let mut tried = setup("lz4", Ratio::Uniform(1.0));
    // As many as are kept for compressing.
    tried.frames += 11;
    let tried = run(&tried, 2 * FRAMES);
    assert_eq!(
        (tried.compressed, tried.pool_hits, tried.pool_frames_peak),
        (0, 0, 0)
    );
    assert!(tried.unfit >= tried.page_outs, "each is tried");
    let close = |one: u64, other: u64| one.abs_diff(other) * 100 <= other;
    assert!(close(tried.page_ins, none.page_ins), "{tried:?} {none:?}");
    assert!(close(tried.page_outs, none.page_outs), "{tried:?} {none:?}");
}

/// Pages that were written as they were compressed take less of the disk both ways, and as many slots.
#[test]
fn what_is_written_compressed_moves_by_its_size() {
    let with = |tier: &str, ratio| {
        let mut setup = setup(tier, Ratio::Uniform(ratio));
        setup.policies.readahead = "bsd".to_owned();
        run(&setup, 2 * FRAMES)
    };
    let [plain, packed] = ["lz4:pool=5", "cervera:pool=5"].map(|tier| with(tier, 4.0));
    assert_eq!(plain.disk.blocks_written, plain.page_outs);
    assert_eq!(plain.disk.blocks_read, plain.page_ins);
    let (written, read) = (packed.disk.blocks_written, packed.disk.blocks_read);
    assert!(
        packed.demoted > FRAMES && packed.page_ins > 5 * FRAMES,
        "{packed:?}"
    );
    // Each write and each read may have a block more than a quarter of its pages.
    assert!(4 * written >= packed.page_outs && 4 * read >= packed.page_ins);
    assert!(4 * written <= packed.page_outs + 4 * packed.page_out_writes);
    assert!(4 * read <= packed.page_ins + 8 * packed.page_in_reads);
    assert!(packed.elapsed_ns < plain.elapsed_ns, "{packed:?} {plain:?}");

    // What does not compress is written as it is.
    let [plain, packed] = ["lz4:pool=5", "cervera:pool=5"].map(|tier| with(tier, 1.0));
    assert_eq!(plain, packed);
    // A pool that has room for all is one as any other.
    let [plain, packed] = ["lz4:pool=75", "cervera:pool=75"].map(|tier| {
        let setup = large(tier, Ratio::Uniform(4.0));
        run(&setup, 2 * MANY)
    });
    assert_eq!(plain, packed);
}

/// A page that was only read since it was written is in the store as it is, whatever pool it went to meanwhile.
#[test]
fn no_clean_page_is_written_again() {
    let pages = 4 * FRAMES;
    let page_outs = |tier: &str| {
        let setup = setup(tier, Ratio::Uniform(2.0));
        let zigzag = ZigzagParams {
            pages,
            passes: 8,
            writes: false,
            touch_ns: 500,
        };
        run_program(&setup, Spec::Zigzag(zigzag).build(1)).page_outs
    };
    let [none, cervera, lz4] = ["none", "cervera", "lz4:pool=5"].map(page_outs);
    assert!(
        none <= pages && cervera <= pages && lz4 <= pages,
        "{none} {cervera} {lz4}"
    );
}

#[test]
fn a_pool_has_no_more_frames_than_it_may() {
    for (ratio, percent) in [(2.0, 20), (4.0, 50), (1.5, 75), (8.0, 5)] {
        let setup = setup(&format!("lz4:pool={percent}"), Ratio::Uniform(ratio));
        let report = run(&setup, 8 * FRAMES);
        let most = FRAMES * percent / 100;
        // What is under way may go beyond it until the oldest have left.
        assert!(report.pool_frames_peak >= most, "{ratio} {percent}");
        assert!(
            report.pool_frames_peak <= most + 80,
            "{} {most}",
            report.pool_frames_peak
        );
        assert!(report.demoted > 0 && report.page_outs >= report.demoted);
    }
}

#[test]
fn what_is_lost_in_a_pool_takes_frames() {
    let with = |loss| {
        let mut setup = large("lz4", Ratio::Uniform(4.0));
        setup.pool_loss_percent = loss;
        run(&setup, 2 * MANY).pool_frames_peak
    };
    let (none, half) = (with(0), with(50));
    // The pages that the larger pool takes the place of are in it, too.
    assert!(half > 2 * none - 20, "{half} {none}");
}

/// Writes ranges of `pages` pages, each of which it gives back before the next.
struct GivesBack(Vec<Step>);

impl GivesBack {
    fn new(pages: u64, ranges: u64) -> Self {
        let range = |nth| PageRange::new(PageNo::new(ObjectId(1), nth * pages), pages);
        let touch = |run| Step::Touch {
            run,
            access: Access::Write,
            page_ns: 1,
        };
        let steps = |nth| [range(nth)].map(|r| [Step::Unmap(r), touch(r), touch(r), Step::Map(r)]);
        Self((0..ranges).flat_map(steps).flatten().collect())
    }
}

impl Program for GivesBack {
    fn name(&self) -> &'static str {
        "gives back"
    }

    fn footprint(&self) -> u64 {
        0
    }

    fn step(&mut self) -> Step {
        self.0.pop().unwrap_or(Step::End)
    }
}

#[test]
fn memory_that_is_given_back_leaves_the_pool() {
    let setup = large("lz4", Ratio::Uniform(4.0));
    let report = run_program(&setup, Box::new(GivesBack::new(2 * MANY, 5)));
    // One range fits, compressed, and no two do.
    assert_eq!((report.page_ins, report.page_outs), (0, 0));
    assert!(out_of(&report) > 5 * MANY);
}

#[test]
fn programs_that_share_memory_share_the_pool() {
    let zigzag = Spec::Zigzag(ZigzagParams {
        pages: 900,
        passes: 4,
        writes: true,
        touch_ns: 500,
    });
    let mut setup = setup("lz4", Ratio::Heap);
    setup.programs = vec![zigzag, zigzag];
    // So that neither is over before the other begins.
    setup.quantum_ms = 1;
    let report = World::new(&setup).expect("sound").run(&mut |_| {});
    let report = report.expect("swap is large");
    assert!(
        report.pool_hits > 0 && report.pooled_frames_peak <= FRAMES,
        "{report:?}"
    );
    assert!(report.unfit > 0, "a heap has pages that do not compress");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |setup: &Setup| match World::new(setup) {
        Err(SetupError::Tier(why)) => why,
        Err(other) => other.to_string(),
        Ok(_) => panic!("{setup:?} is refused"),
    };
    let why = refused(&setup("zip", Ratio::Heap));
    assert!(why.contains("'zip'") && why.contains("lz4"), "{why}");
    let why = refused(&setup("lz4:pool=99", Ratio::Heap));
    assert!(why.contains("5 to 90"), "{why}");
    let mut daemon = Setup::bsd("8.2", "bsd", FRAMES, Vec::new());
    daemon.policies.tier = "lz4".to_owned();
    assert!(refused(&daemon).contains("bsd-8.2"));
    daemon.policies.tier = "none".to_owned();
    assert!(World::new(&daemon).is_ok());
    let mut loss = setup("lz4", Ratio::Heap);
    loss.pool_loss_percent = 51;
    assert!(refused(&loss).contains("0 to 50"));
}
