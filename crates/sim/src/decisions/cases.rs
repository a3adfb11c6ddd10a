//! Which runs there are: all that varies is chosen by the run's number.

use outpage_core::contract::Body;
use outpage_core::limits::FRAMES_MIN;
use outpage_core::pager::Setup as PagerSetup;
use outpage_core::readahead::{Arrival, Choice, Govern, Manner};
use outpage_core::tier::Written;
use outpage_core::{pageout, readahead, reclaim, slots, tier};

use super::POOLED_FROM;
use crate::programs::{
    ColumnParams, FftParams, JoinParams, MergeParams, MicroParams, PhasesParams, RunsParams, Spec,
    TransposeParams, ZigzagParams,
};
use crate::seed::mix;
use crate::world::{DiskSpec, Ratio, Setup};

/// Choices, one after the other.
struct Choices {
    seed: u64,
    made: u64,
}

impl Choices {
    const fn new(run: u32) -> Self {
        Self {
            seed: run as u64,
            made: 0,
        }
    }

    const fn below(&mut self, end: u64) -> u64 {
        self.made += 1;
        mix(self.seed, self.made) % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A run in a world.
#[derive(Debug)]
pub(super) struct Case {
    pub setup: Setup,
    /// Of 1000 transfers, how many fail.
    pub failures: u32,
}

/// The world of run `run`.
pub(super) fn world(run: u32) -> Case {
    let mut choices = Choices::new(run);
    let programs: Vec<Spec> = (0..1 + choices.below(2))
        .map(|_| program(&mut choices))
        .collect();
    let pages: u64 = programs.iter().map(|p| p.build(1).footprint()).sum();
    let frames = (pages * (15 + choices.below(50)) / 100).max(FRAMES_MIN as u64);
    let pooled = run >= POOLED_FROM;
    let mut setup = match choices.below(3) {
        // A daemon has no pool.
        0 if !pooled => Setup::bsd(choices.of(&["6.2", "8.2"]), "bsd", frames, programs),
        _ => Setup::live(frames, programs),
    };
    let live = setup.policies.readahead == "stream";
    setup.policies.pageout = named(&mut choices, pageout::REGISTRY.iter().map(|e| e.name));
    if live {
        setup.policies.readahead = named(&mut choices, readahead::REGISTRY.iter().map(|e| e.name));
        setup.policies.slots = named(&mut choices, slots::REGISTRY.iter().map(|e| e.name));
        setup.policies.zero_around = choices.of(&[1, 16, 64]);
        setup.policies.rescue_around = choices.of(&[0, 8]);
    }
    setup.swap_slots = choices.of(&[1 << 16, 1 << 16, 1 << 16, 1500]);
    let disks = ["barracuda-7200.9", "seagate-160", "sata-320"];
    setup.disk = DiskSpec::Named(choices.of(&disks).to_owned());
    let failures = choices.of(&[0, 0, 5, 40]);
    if pooled {
        setup.policies.tier = tier(&mut choices);
        let uniform = Ratio::Uniform;
        let ratios = [1.0, 1.5, 2.0, 4.0, 16.0].map(uniform);
        setup.ratio = choices.of(&[&ratios[..], &[Ratio::Heap]].concat());
    }
    Case { setup, failures }
}

/// A policy that has a pool, of one size or another.
fn tier(choices: &mut Choices) -> String {
    let pooled = tier::offered(Written::Plain).filter(|e| !e.codec.is_empty());
    let entry = choices.of(&pooled.collect::<Vec<_>>());
    let percent = choices.of(&[5, 20, 50, 75, 90]);
    let has_size = entry.settings.iter().any(|setting| setting.name == "pool");
    match has_size {
        true => format!("{}:pool={percent}", entry.name),
        false => entry.name.to_owned(),
    }
}

fn named(choices: &mut Choices, names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<_> = names.collect();
    choices.of(&names).to_owned()
}

/// A program small enough that a run takes milliseconds.
fn program(choices: &mut Choices) -> Spec {
    let pages = 800 + choices.below(1600);
    let (touches, seed, touch_ns) = (20_000, 1 + choices.below(1 << 20), 500);
    match choices.below(9) {
        0 => Spec::Runs(RunsParams {
            pages,
            longest: 1 + choices.below(64),
            touches,
            seed,
            touch_ns,
        }),
        1 => Spec::Phases(PhasesParams {
            pages,
            phase: 500 + choices.below(2000),
            touches,
            seed,
            touch_ns,
        }),
        2 => Spec::Zigzag(ZigzagParams {
            pages,
            passes: 6,
            writes: choices.below(2) == 0,
            touch_ns,
        }),
        3 => Spec::Column(ColumnParams {
            pages,
            row_bytes: choices.of(&[8192, 16_384, 40_960]),
            step_bytes: 4096,
            arrays: 1,
            writes: choices.below(2) == 0,
            passes: 3,
            touch_ns,
        }),
        4 => Spec::Join(JoinParams {
            pages,
            touch_ns,
            ..JoinParams::default()
        }),
        5 => Spec::Merge(MergeParams {
            pages,
            ways: 2 + choices.below(14),
            seed,
            touch_ns,
            ..MergeParams::default()
        }),
        6 => Spec::Transpose(TransposeParams {
            pages,
            touch_ns,
            ..TransposeParams::default()
        }),
        7 => Spec::Fft(FftParams {
            pages: 1024,
            touch_ns,
            ..FftParams::default()
        }),
        _ => Spec::Micro(MicroParams {
            cluster_pages: choices.of(&[1, 4, 16]),
            pages: pages / 16 * 16,
            page_ns: touch_ns,
        }),
    }
}

/// A run of threads and a store that misbehave.
#[derive(Debug)]
pub(super) struct Unruly {
    pub seed: u64,
    /// Positions in the registries: page-out, read-ahead, slots.
    pub policies: (usize, usize, usize),
    pub tier: String,
    pub chunk: u32,
    /// Read-ahead, and how the pager treats what it names.
    pub readahead: (Choice, Manner),
    pub frames: usize,
    pub slots_max: u32,
    pub zero_around: u32,
    pub rescue_around: u32,
    /// Pages that are touched, threads, touches.
    pub pages: u64,
    pub threads: u32,
    pub touches: u64,
    /// Of 1000 writes, reads, slots and pages to be moved: how many fail, give something else, can be
    /// written and never read, are refused.
    pub write_failures: u64,
    pub read_failures: u64,
    pub bad_slots: u64,
    pub refusals: u64,
}

/// What run `run` is made of.
pub(super) fn unruly(run: u32) -> Unruly {
    let mut choices = Choices::new(run);
    let policies = (
        choices.below(pageout::REGISTRY.len() as u64) as usize,
        choices.below(readahead::REGISTRY.len() as u64) as usize,
        choices.below(slots::REGISTRY.len() as u64) as usize,
    );
    let frames = FRAMES_MIN + choices.below(400) as usize;
    let entry = &readahead::REGISTRY[policies.1];
    let common = Choice::ungoverned(entry).for_frames(frames);
    let max_window = choices.of(&[8, 32, 64, common.max_window()]);
    let arrivals = [Arrival::Mapped, Arrival::Staged, common.manner().arrival];
    // Some policies cannot be set to all of this; the pager treats what they name as it is told all the same.
    let manner = Manner {
        arrival: choices.of(&arrivals),
        demand_first: choices.of(&[0, 0, 8]),
        govern: choices.of(&[Govern::On, Govern::Off]),
        read_max: max_window,
    };
    let key = choices.of(&["key=one", "key=object", "key=source"]);
    let has_key = entry.settings.iter().any(|setting| setting.name == "key");
    let wanted = common
        .with_window(max_window)
        .and_then(|choice| choice.with(if has_key { key } else { "" }))
        .ok()
        .filter(|choice| choice.check().is_ok());
    let plain = (common, common.manner());
    let mut unruly = Unruly {
        seed: u64::from(run),
        policies,
        tier: "none".to_owned(),
        chunk: choices.of(&[1, 16, 16, 64]),
        readahead: wanted.map_or(plain, |wanted| (wanted, manner)),
        frames,
        slots_max: choices.of(&[1 << 14, 1 << 14, 700]),
        zero_around: choices.of(&[1, 16, 64]),
        rescue_around: choices.of(&[0, 8]),
        pages: frames as u64 * (110 + choices.below(200)) / 100,
        threads: 1 + choices.below(5) as u32,
        touches: 9000,
        write_failures: choices.of(&[0, 0, 20, 200]),
        read_failures: choices.of(&[0, 0, 20, 100]),
        bad_slots: choices.of(&[0, 0, 0, 10]),
        refusals: choices.of(&[0, 10, 50]),
    };
    if run >= POOLED_FROM {
        unruly.tier = tier(&mut choices);
    }
    unruly
}

impl Unruly {
    pub(super) fn setup(&self) -> PagerSetup {
        let pageout = &pageout::REGISTRY[self.policies.0];
        let (readahead, manner) = &self.readahead;
        let tier = tier::Choice::parse(&self.tier, Written::Plain).expect("it is of the registry");
        PagerSetup {
            reclaim: reclaim::Choice::default().build(),
            pageout: (pageout.build)(pageout::Params {
                buffer_pages: self.chunk,
                ..pageout.params()
            }),
            readahead: (readahead.entry().build)(readahead.values(), *manner),
            slots: slots::REGISTRY[self.policies.2].build,
            tier: tier.build(),
            discard: None,
            frames: self.frames,
            slots_max: self.slots_max,
            zero_around: self.zero_around,
            rescue_around: self.rescue_around,
            body: Body::default(),
        }
    }
}
