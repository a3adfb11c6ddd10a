//! The runs: the machine of 1991, and what nobody knows of it, drawn.

use super::super::runs::{RunKey, Variation};
use crate::disk::{Params, RotatingParams};
use crate::programs::{MlParams, MlWork, Spec, TextureParams};
use crate::world::{Costs, DiskSpec, Policies, Setup};

/// Configurations, those of the paper first, with their discard policies.
pub(super) const CONFIGURATIONS: [(&str, &str); 5] = [
    ("NoPager", "none"),
    ("PagerNF", "nf"),
    ("PagerPF", "pf:pages=64"),
    ("PagerUF", "uf"),
    ("on-demand", "on-demand"),
];
pub(super) const WORKLOADS: [&str; 2] = ["compile", "sort"];
/// The program of section 1, which the paper does not measure.
pub(super) const TEXTURE: &str = "texture";
/// What is in the place of a memory size: the paper has one.
pub(super) const MEMORY: &str = "24 MB";
/// Runs of every configuration: what is drawn differs, and is the same for all configurations.
pub(super) const SEEDS: std::ops::RangeInclusive<u64> = 1..=20;
/// Of those, the ones that variations run with.
pub(super) const VARIED_SEEDS: std::ops::RangeInclusive<u64> = 1..=2;

/// What is not known, within the bounds that are named with each.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    /// Of the machine's 6,144 pages 4,096 to 5,120: a kernel of 2.5 to 4 MB, a tenth of the memory for its buffers (4.3BSD's `bufpages`), the name
    /// server and the pager.
    frames: u64,
    /// Average seek of DEC's SCSI drives of the time: RZ55 and RZ56 16 ms, RZ57 14.5 ms (DEC's drive list), with a millisecond either way.
    seek_average_us: u32,
    /// Where paging begins: behind a root partition of 16 to 300 MB.
    swap_at_mb: u32,
    /// Command overhead of a SCSI drive of the time with its driver: 0.7 to 2 ms (Ruemmler and Wilkes, 1994, give 1.1 to 1.5 ms for drives of
    /// 1991).
    overhead_us: u32,
    /// A fault that finds its page: 0.1 to 0.3 ms (Mach 2.5 on a MIPS R3000 of 25 MHz, by its count of instructions).
    soft_fault_us: u32,
    /// A fault that gets zeroes: that, and 4 KiB of stores at 10 to 25 MB/s.
    zero_fill_us: u32,
    /// Starting a transfer through Mach's inode pager, and its interrupt: 0.2 to 0.6 ms each.
    io_us: u32,
    /// A message to an external pager and its answer: 0.2 to 0.6 ms. Mach 2.5 takes 0.19 ms for an empty call between tasks on an R2000 of 16.7 MHz
    /// (Draves and others, SOSP 1991); the pager's work and the kernel's come to it.
    message_us: u32,
    /// Of the heap: one to one and a half times the machine's memory. The paper says that the collector's parameters matter on 24 MB, and not what they were; a
    /// smaller heap fits, and hardly anything is paged.
    heap_pages: u32,
    /// Of the heap, when the old region is collected: a third, or the half that is the most.
    old_percent: u32,
    /// Pages that the program takes back at a time: 4 to 64.
    take_back_pages: u32,
    /// What the compiler keeps: 3 to 6 MB, by the size of SML/NJ's image of the time.
    environment_pages: u32,
    /// CPU time of the program by the paper's, percent: 97 to 103, as its own four figures differ.
    user_percent: u32,
}

impl Drawn {
    fn of(seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
        let mut between = |least: u32, most: u32| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^= mixed >> 31;
            least + (((mixed >> 32) * u64::from(most - least + 1)) >> 32) as u32
        };
        let soft_fault_us = between(100, 300);
        Self {
            frames: u64::from(between(4_096, 5_120)),
            seek_average_us: between(13_500, 17_000),
            swap_at_mb: between(16, 300),
            overhead_us: between(700, 2_000),
            soft_fault_us,
            zero_fill_us: soft_fault_us + between(160, 400),
            io_us: between(200, 600),
            message_us: between(200, 600),
            heap_pages: between(6_144, 9_216),
            old_percent: between(33, 50),
            take_back_pages: between(4, 64),
            environment_pages: between(750, 1_500),
            user_percent: between(97, 103),
        }
    }

    /// 3,600 rpm, 1.25 to 2.2 MB/s off the platter, 0.3 to 1 GB, 4 MB/s SCSI, no write cache, 64 KiB of buffer (DEC's drive list; what is not in it
    /// is an estimate). The model's rates are whole megabytes.
    fn disk(&self) -> RotatingParams {
        RotatingParams {
            rpm: 3_600,
            seek_track_us: 4_000,
            seek_average_us: self.seek_average_us,
            seek_full_us: 35_000,
            switch_us: 1_500,
            outer_mb_s: 2,
            inner_mb_s: 2,
            capacity_gb: 1,
            bus_mb_s: 4,
            overhead_us: self.overhead_us,
            buffer_kib: 64,
            read_segments: 1,
            write_cache: false,
            write_extents: None,
            swap_at_mb: self.swap_at_mb,
            phase_us: 0,
        }
    }

    /// The program, with the CPU time of the paper's four configurations together, and an allocation of as many pages as `PagerUF` fills with zeroes: it flushes
    /// all that a collection leaves, so that each page that is used again is counted.
    fn program(&self, workload: &str, seed: u64) -> Spec {
        let (work, user_ms, allocated_pages) = match workload {
            "compile" => (MlWork::Compile, 168_500, 33_051),
            "sort" => (MlWork::Sort, 96_250, 24_491),
            _ => return Spec::Texture(TextureParams::default()),
        };
        Spec::Ml(MlParams {
            work,
            heap_pages: self.heap_pages,
            old_percent: self.old_percent,
            take_back_pages: self.take_back_pages,
            allocated_pages,
            environment_pages: self.environment_pages,
            user_ms: user_ms * self.user_percent / 100,
            seed,
        })
    }
}

/// Mach's kernel, which pages by itself or asks an external pager.
fn setup(seed: u64, workload: &str, configuration: &str, discard: &str) -> Setup {
    let drawn = Drawn::of(seed);
    // On demand is in the kernel: section 5.
    let external = configuration.starts_with("Pager");
    let us = |us: u32| us * 1_000;
    Setup {
        frames: drawn.frames,
        swap_slots: 1 << 16,
        policies: Policies {
            // A page that is touched on the inactive queue is active again: Mach's modified FIFO.
            reclaim: "second-chance".to_owned(),
            pageout: "single".to_owned(),
            readahead: "none".to_owned(),
            slots: "blist".to_owned(),
            discard: discard.to_owned(),
            zero_around: 1,
            rescue_around: 0,
            ..Policies::default()
        },
        disk: DiskSpec::Params(Params::Rotating(drawn.disk())),
        // 4.3BSD's `disksort`.
        scheduler: "elevator".to_owned(),
        costs: Costs {
            soft_fault_ns: us(drawn.soft_fault_us),
            zero_fill_ns: us(drawn.zero_fill_us),
            pager_ns: if external { us(drawn.message_us) } else { 0 },
            io_ns: us(drawn.io_us),
            io_done_ns: us(drawn.io_us),
            ..Costs::default()
        },
        ..Setup::live(drawn.frames, vec![drawn.program(workload, seed)])
    }
}

const BOTH: &[&str] = &WORKLOADS;

fn each_ml(setup: &mut Setup, change: impl Fn(&mut MlParams)) {
    for program in &mut setup.programs {
        if let Spec::Ml(params) = program {
            change(params);
        }
    }
}

fn flushes(setup: &mut Setup, pages: u32) {
    if setup.policies.discard.starts_with("pf") {
        setup.policies.discard = format!("pf:pages={pages}");
    }
}

/// What is varied, at the other draws.
pub(super) const VARIATIONS: &[Variation] = &[
    Variation {
        cause: "size of the heap",
        value: "4,600 pages (18 MB)",
        workloads: BOTH,
        apply: |s| each_ml(s, |p| p.heap_pages = 4_600),
    },
    Variation {
        cause: "size of the heap",
        value: "12,288 pages (48 MB)",
        workloads: BOTH,
        apply: |s| each_ml(s, |p| p.heap_pages = 12_288),
    },
    Variation {
        cause: "allocation",
        value: "as much again",
        workloads: BOTH,
        apply: |s| each_ml(s, |p| p.allocated_pages *= 2),
    },
    Variation {
        cause: "usable memory",
        value: "3,600 pages (14 MB)",
        workloads: BOTH,
        apply: |s| s.frames = 3_600,
    },
    Variation {
        cause: "pages flushed with a victim",
        value: "8",
        workloads: BOTH,
        apply: |s| flushes(s, 8),
    },
];

/// Every run: the paper's, the texture's, then the variations.
pub(in crate::paper) fn setups() -> Vec<(RunKey, Setup)> {
    let mut setups = Vec::new();
    let mut add = |variation: Option<&Variation>, workload: &str, seed: u64| {
        for (configuration, discard) in CONFIGURATIONS {
            let mut setup = setup(seed, workload, configuration, discard);
            let mut key = RunKey::new(MEMORY, workload, configuration).seeded(seed);
            if let Some(variation) = variation {
                (variation.apply)(&mut setup);
                key = key.varied(&variation.name());
            }
            setups.push((key, setup));
        }
    };
    for workload in WORKLOADS.into_iter().chain([TEXTURE]) {
        SEEDS.for_each(|seed| add(None, workload, seed));
    }
    for variation in VARIATIONS {
        for workload in variation.workloads {
            VARIED_SEEDS.for_each(|seed| add(Some(variation), workload, seed));
        }
    }
    setups
}
