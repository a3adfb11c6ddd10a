//! The runs of the ASP paper's evaluation, and what is varied in them.

use crate::paper::runs::{RunKey, Variation};
use crate::programs::{JvmParams, Spec};
use crate::world::{DiskSpec, Policies, Setup};

/// Guests at once.
const GUESTS: usize = 3;
/// 4 GiB of swap: four times what the guests are, so that slots are found in order.
const SWAP_SLOTS: u32 = 1 << 20;
/// Host memory of the runs that everything but memory is varied of, percent of the guests' 960 MB.
/// The paper does not publish its own: the middle of what is swept, fixed before any run was made.
const MIDDLE: u64 = 65;

/// The disk schedulers.
pub(super) const SCHEDULERS: [&str; 2] = ["cfq", "anticipatory"];
/// Read-ahead, by what runs are called: the policy and its settings. `asp` keeps an entry for each
/// guest: a memory object. Linux before 3.14 read whole blocks.
pub(super) const READERS: [(&str, &str, &str); 7] = [
    ("page-cluster 3", "linux-slot", "block=fixed,page-cluster=3"),
    ("page-cluster 4", "linux-slot", "block=fixed,page-cluster=4"),
    ("page-cluster 5", "linux-slot", "block=fixed,page-cluster=5"),
    ("asp", "asp", "key=object,placement=aligned"),
    ("asp2", "asp2", "key=object,placement=aligned"),
    ("asp, target", "asp", "key=object,placement=target"),
    ("asp2, target", "asp2", "key=object,placement=target"),
];
/// What Table 1 compares, and `asp2`: under both schedulers. The others run under CFQ, the kernel's
/// default; Table 2 does not say.
const UNDER_BOTH: [&str; 5] = [
    "page-cluster 3",
    "asp",
    "asp2",
    "asp, target",
    "asp2, target",
];

/// The variation of which the runs are those of the other policies.
pub(super) const TARGET: &str = "where a window of ASP begins: at the target";

const MEMORY: &str = "host memory, of the guests' 960 MB";
const ALL: &[&str] = &SCHEDULERS;

/// What the paper does not say, and what of the guests is a choice.
pub(super) const VARIATIONS: &[Variation] = &[
    memory("50 %", |s| s.frames = frames(s, 50)),
    memory("55 %", |s| s.frames = frames(s, 55)),
    memory("60 %", |s| s.frames = frames(s, 60)),
    memory("70 %", |s| s.frames = frames(s, 70)),
    memory("75 %", |s| s.frames = frames(s, 75)),
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

/// The variants whose only difference is memory, by rising size; the empty name is the middle.
pub(super) fn by_memory() -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = VARIATIONS
        .iter()
        .filter(|v| v.cause == MEMORY)
        .map(|v| (v.value, v.name()))
        .collect();
    all.push(("65 %", String::new()));
    all.sort_unstable();
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
        ..Setup::live(0, vec![Spec::Jvm(guest); GUESTS])
    };
    setup.frames = frames(&setup, MIDDLE);
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
            if !here || (!swept && name.ends_with("target")) {
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
