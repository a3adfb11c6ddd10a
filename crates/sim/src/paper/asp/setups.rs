//! The runs of the ASP paper's evaluation, and what is varied in them.

use crate::paper::runs::{RunKey, Variation};
use crate::programs::{JvmParams, Spec};
use crate::world::{DiskSpec, Policies, Setup};

/// Guests at once.
const GUESTS: usize = 3;
/// 4 GiB of swap: four times what the guests are, so that slots are found in order.
const SWAP_SLOTS: u32 = 1 << 20;
/// Host memory of the runs that everything but memory is varied of: 512 MB, the only host memory
/// that the paper names (section 4.2, for its other experiments). Fixed before any run was made.
const MIDDLE: u64 = 512 << 8;

/// The disk schedulers.
pub(super) const SCHEDULERS: [&str; 2] = ["cfq", "anticipatory"];
/// Read-ahead, by what runs are called: the policy and its settings. `asp` keeps an entry for each
/// guest: a memory object. Linux before 3.14 read whole blocks.
pub(super) const READERS: [(&str, &str, &str); 8] = [
    ("page-cluster 3", "linux-slot", "block=fixed,page-cluster=3"),
    ("page-cluster 4", "linux-slot", "block=fixed,page-cluster=4"),
    ("page-cluster 5", "linux-slot", "block=fixed,page-cluster=5"),
    ("asp", "asp", "key=object,placement=aligned"),
    ("asp2", "asp2", "key=object,placement=aligned"),
    ("asp, target", "asp", "key=object,placement=target"),
    ("asp2, target", "asp2", "key=object,placement=target"),
    ("asp, centred", "asp", "key=object,placement=centred"),
];
/// What Table 1 compares, and `asp2`: under both schedulers. The others run under CFQ, the kernel's
/// default; Table 2 does not say.
const UNDER_BOTH: [&str; 6] = [
    "page-cluster 3",
    "asp",
    "asp2",
    "asp, target",
    "asp2, target",
    "asp, centred",
];

/// The variation of which the runs are those of the other policies.
pub(super) const TARGET: &str = "where a window of ASP begins: at the target";

const MEMORY: &str = "host memory, of the guests' 960 MB";
const ALL: &[&str] = &SCHEDULERS;

/// What the paper does not say, and what of the guests is a choice.
pub(super) const VARIATIONS: &[Variation] = &[
    memory("45 %", |s| s.frames = frames(s, 45)),
    memory("50 %", |s| s.frames = frames(s, 50)),
    memory("55 %", |s| s.frames = frames(s, 55)),
    memory("60 %", |s| s.frames = frames(s, 60)),
    memory("65 %", |s| s.frames = frames(s, 65)),
    memory("70 %", |s| s.frames = frames(s, 70)),
    memory("80 %", |s| s.frames = frames(s, 80)),
    Variation {
        cause: "where a window of ASP begins",
        value: "at the target",
        workloads: &[],
        apply: |_| {},
    },
    Variation {
        cause: "CPU time of transactions (the host had four cores, the model has one)",
        value: "a third",
        workloads: ALL,
        apply: |s| each(s, |p| p.transaction_ns /= 3),
    },
    Variation {
        cause: "warehouses in a heap",
        value: "3",
        workloads: ALL,
        apply: |s| each(s, |p| p.warehouses = 3),
    },
    Variation {
        cause: "services of the guests",
        value: "none",
        workloads: ALL,
        apply: |s| each(s, |p| p.service_period_us = 0),
    },
    Variation {
        cause: "services of the guests",
        value: "every 10 ms",
        workloads: ALL,
        apply: |s| each(s, |p| p.service_period_us = 10_000),
    },
    Variation {
        cause: "when the guests' first collections come",
        value: "all at once",
        workloads: ALL,
        apply: |s| each(s, |p| p.eden_percent = 0),
    },
    Variation {
        cause: "how often a collection looks into a page",
        value: "once",
        workloads: ALL,
        apply: |s| each(s, |p| p.visits = 1),
    },
    Variation {
        cause: "swap space (4 GB: slots are never used again)",
        value: "1 GB",
        workloads: ALL,
        apply: |s| s.swap_slots = 1 << 18,
    },
    Variation {
        cause: "random numbers",
        value: "another seed",
        workloads: ALL,
        apply: |s| each(s, |p| p.seed = 2),
    },
];

const fn memory(value: &'static str, apply: fn(&mut Setup)) -> Variation {
    Variation {
        cause: MEMORY,
        value,
        workloads: ALL,
        apply,
    }
}

/// The variants whose only difference is memory, in percent and ascending; the empty name is that
/// of 512 MB.
pub(super) fn by_memory() -> Vec<(f64, String)> {
    let swept = VARIATIONS.iter().filter(|v| v.cause == MEMORY);
    let percent = |v: &Variation| -> f64 {
        let number = v.value.trim_end_matches(" %").parse();
        number.expect("a number of percent")
    };
    let mut all: Vec<_> = swept.map(|v| (percent(v), v.name())).collect();
    all.push((53.3, String::new()));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// So many percent of the guests' memory.
fn frames(setup: &Setup, percent: u64) -> u64 {
    let pages = setup.programs.iter().map(|spec| match spec {
        Spec::Jvm(params) => params.memory_pages,
        _ => 0,
    });
    pages.sum::<u64>() * percent / 100
}

fn each(setup: &mut Setup, change: impl Fn(&mut JvmParams)) {
    for program in &mut setup.programs {
        if let Spec::Jvm(params) = program {
            change(params);
        }
    }
}

/// Guests that do the same, but do not collect at once: real ones do not begin as one.
fn guests(guest: JvmParams) -> Vec<Spec> {
    let apart = |n: u64| {
        Spec::Jvm(JvmParams {
            eden_percent: 100 * n / GUESTS as u64,
            ..guest
        })
    };
    (0..GUESTS as u64).map(apart).collect()
}

fn setup(guest: JvmParams, scheduler: &str, readahead: &str, settings: &str) -> Setup {
    let mut setup = Setup {
        swap_slots: SWAP_SLOTS,
        disk: DiskSpec::Named("sata-320".to_owned()),
        scheduler: scheduler.to_owned(),
        policies: Policies {
            pageout: "linux".to_owned(),
            readahead: readahead.to_owned(),
            readahead_settings: format!("{settings},arrival=staged"),
            zero_around: 1,
            rescue_around: 0,
            ..Policies::default()
        },
        ..Setup::live(0, guests(guest))
    };
    // Small guests have as small a host.
    setup.frames = MIDDLE * guest.memory_pages / JvmParams::default().memory_pages;
    setup
}

/// Every run of the evaluation: the paper's, then the variations.
pub(in crate::paper) fn setups() -> Vec<(RunKey, Setup)> {
    setups_of(JvmParams::default())
}

/// The same with other guests.
pub(super) fn setups_of(guest: JvmParams) -> Vec<(RunKey, Setup)> {
    let mut setups = Vec::new();
    let mut add = |variation: Option<&Variation>, scheduler: &str| {
        let swept = variation.is_none_or(|v| v.cause == MEMORY);
        for (name, readahead, settings) in READERS {
            let here = scheduler == SCHEDULERS[0] || UNDER_BOTH.contains(&name);
            // The placement is swept with memory, and stays with all else.
            if !here || (!swept && name.contains(", ")) {
                continue;
            }
            let mut setup = setup(guest, scheduler, readahead, settings);
            let mut key = key(scheduler, name);
            if let Some(variation) = variation {
                (variation.apply)(&mut setup);
                key = key.varied(&variation.name());
            }
            setups.push((key, setup));
        }
    };
    for scheduler in SCHEDULERS {
        add(None, scheduler);
    }
    for variation in VARIATIONS {
        for scheduler in variation.workloads {
            add(Some(variation), scheduler);
        }
    }
    setups
}

/// The key of a run: what is swept is a variant, so the memory is always the guests'.
pub(super) fn key(scheduler: &str, reader: &str) -> RunKey {
    RunKey::new("3 x 320 MB", scheduler, reader)
}
