//! The runs of the ASP paper's evaluation, and what is varied in them.

use crate::paper::draw::{DRAWS, draw};
use crate::paper::runs::{RunKey, Variation};
use crate::programs::{JvmParams, Spec};
use crate::world::{DiskSpec, Policies, Setup};

/// Guests at once.
const GUESTS: usize = 3;
/// 4 GiB of swap: four times what the guests are, so that slots are found in order.
const SWAP_SLOTS: u32 = 1 << 20;
/// Host memory of the runs that everything but memory is varied of: 512 MB, the only host memory
/// that the paper names (section 4.2, for its other experiments). It came with the curves over memory, after the runs of the first report had
/// been seen.
const MIDDLE: u64 = 512 << 8;
/// How long SPECjbb2000 measures: two minutes (its run rules); SPECjbb2005 takes four. The paper does not say which it was.
const TIMED_MS: u32 = 120_000;

/// The disk schedulers.
pub(super) const SCHEDULERS: [&str; 2] = ["cfq", "anticipatory"];
/// Draws that variations run with: of those of every row, the first.
pub(super) const VARIED: std::ops::RangeInclusive<u64> = 1..=5;

/// Where a read-ahead policy runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    /// At 512 MB only, nothing else varied.
    Once,
    /// At every memory size.
    Memory,
    /// Under every variation besides.
    Everything,
}

/// Read-ahead, by what runs are called.
pub(super) struct Reader {
    pub name: &'static str,
    policy: &'static str,
    settings: &'static str,
    at: At,
    /// Under both schedulers, as in Table 1. The others run under CFQ, the kernel's default; Table 2
    /// does not say.
    both: bool,
}

/// What the paper's rows of ASP are judged by: its improved design, with two slots (section 3.1.3).
pub(super) const ASP: &str = "asp2";

/// ASP keeps an entry for each guest: a memory object. Linux before 3.14 read whole blocks.
pub(super) const READERS: [Reader; 10] = [
    linux("page-cluster 3", "block=fixed,page-cluster=3", true),
    linux("page-cluster 4", "block=fixed,page-cluster=4", false),
    linux("page-cluster 5", "block=fixed,page-cluster=5", false),
    asp(ASP, "key=object,placement=aligned", At::Everything),
    Reader {
        policy: "asp",
        ..asp("asp", "key=object,placement=aligned", At::Everything)
    },
    asp("asp2, target", "key=object,placement=target", At::Memory),
    asp("asp2, centred", "key=object,placement=centred", At::Memory),
    asp("asp2, one entry", "key=one,placement=aligned", At::Once),
    asp(
        "asp2, MDIS 32",
        "key=object,placement=aligned,mdis=32",
        At::Once,
    ),
    asp(
        "asp2, all reset",
        "key=object,placement=aligned,reset=all",
        At::Once,
    ),
];

const fn linux(name: &'static str, settings: &'static str, both: bool) -> Reader {
    Reader {
        name,
        policy: "linux-slot",
        settings,
        at: At::Everything,
        both,
    }
}

const fn asp(name: &'static str, settings: &'static str, at: At) -> Reader {
    Reader {
        name,
        policy: "asp2",
        settings,
        at,
        both: true,
    }
}

/// Variations of ASP alone: the runs are those of another reader, Linux stays as it is.
pub(super) const OF_ASP: [(Variation, &str); 6] = [
    (
        of_asp("slots of an entry of ASP", "one (section 3.1.2)"),
        "asp",
    ),
    (
        of_asp(
            "what a fault near neither slot resets",
            "places too, not sizes alone",
        ),
        "asp2, all reset",
    ),
    (
        of_asp("where a window of ASP begins", "at the target"),
        "asp2, target",
    ),
    (
        of_asp("where a window of ASP begins", "half below the target"),
        "asp2, centred",
    ),
    (
        of_asp("entries of ASP", "one for the whole host"),
        "asp2, one entry",
    ),
    (of_asp("MDIS of ASP", "32"), "asp2, MDIS 32"),
];

/// The kernel counts every page that a fault finds in the swap cache (`find_success` of
/// `mm/swap_state.c`); the runs are the same.
pub(super) const EVERY_FIND: Variation = Variation {
    cause: "what counts as a hit (the first touch of a page that was read along)",
    value: "every page found in the swap cache, those on their way out too",
    workloads: &[],
    apply: |_| {},
};

const fn of_asp(cause: &'static str, value: &'static str) -> Variation {
    Variation {
        cause,
        value,
        workloads: &[],
        apply: |_| {},
    }
}

/// Scores of these are by the time that all transactions took.
pub(super) const FIXED_WORK: Variation = Variation {
    cause: "how long guests run (two minutes each)",
    value: "300,000 transactions each, whatever they take",
    workloads: ALL,
    apply: |s| each(s, |p| p.timed_ms = 0),
};

const MEMORY: &str = "host memory, of the guests' 960 MB";
const ALL: &[&str] = &SCHEDULERS;

/// What the paper does not say, and what of the guests is a choice, in runs of their own.
const CHANGES: &[Variation] = &[
    memory("45 %", |s| s.frames = frames(s, 45)),
    memory("50 %", |s| s.frames = frames(s, 50)),
    memory("55 %", |s| s.frames = frames(s, 55)),
    memory("60 %", |s| s.frames = frames(s, 60)),
    memory("65 %", |s| s.frames = frames(s, 65)),
    FIXED_WORK,
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
        value: "640 MB",
        workloads: ALL,
        apply: |s| s.swap_slots = 640 << 8,
    },
    Variation {
        cause: "where pages go in the swap space (one behind the other)",
        value: "Linux's runs of 256 slots, the lowest first",
        workloads: ALL,
        apply: |s| "linux".clone_into(&mut s.policies.slots),
    },
    Variation {
        cause: "reclaim (an eighth of the frames is staged)",
        value: "as many inactive pages as active ones, the two lists of Linux below 1 GB",
        workloads: ALL,
        apply: |s| "second-chance:staged=500".clone_into(&mut s.policies.reclaim),
    },
    Variation {
        cause: "page-out (linux: 32 pages in access order)",
        value: "packed",
        workloads: ALL,
        apply: |s| s.policies.pageout = "packed".to_owned(),
    },
    Variation {
        cause: "how long the schedulers wait for a reader's next read",
        value: "not at all",
        workloads: ALL,
        apply: |s| {
            let none = match s.scheduler.as_str() {
                "cfq" => "cfq:idle-ms=0",
                _ => "anticipatory:antic-expire-us=0",
            };
            none.clone_into(&mut s.scheduler);
        },
    },
    Variation {
        cause: "a reader's slice of CFQ (100 ms)",
        value: "400 ms",
        workloads: &[SCHEDULERS[0]],
        apply: |s| "cfq:slice-ms=400".clone_into(&mut s.scheduler),
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

/// Every variation.
pub(super) fn variations() -> Vec<Variation> {
    let of_asp = OF_ASP.iter().map(|(variation, _)| *variation);
    let varied = CHANGES.iter().copied().chain(of_asp);
    varied.chain([EVERY_FIND]).collect()
}

/// The variants whose only difference is memory, in percent and ascending; the empty name is that
/// of 512 MB.
pub(super) fn by_memory() -> Vec<(f64, String)> {
    let swept = CHANGES.iter().filter(|v| v.cause == MEMORY);
    let percent = |v: &Variation| -> f64 {
        let number = v.value.trim_end_matches(" %").parse();
        number.expect("a number of percent")
    };
    let mut all: Vec<_> = swept.map(|v| (percent(v), v.name())).collect();
    all.push((53.3, String::new()));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// So many percent of the guests' memory, as drawn: the set-up has 512 of 960 MB.
const fn frames(setup: &Setup, percent: u64) -> u64 {
    setup.frames * percent * 960 / (512 * 100)
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

fn setup(guest: JvmParams, scheduler: &str, reader: &Reader) -> Setup {
    let mut setup = Setup {
        swap_slots: SWAP_SLOTS,
        disk: DiskSpec::Named("sata-320".to_owned()),
        scheduler: scheduler.to_owned(),
        policies: Policies {
            reclaim: "second-chance".to_owned(),
            pageout: "linux".to_owned(),
            readahead: reader.policy.to_owned(),
            readahead_settings: format!("{},arrival=staged", reader.settings),
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
    let guest = JvmParams {
        timed_ms: TIMED_MS,
        ..JvmParams::default()
    };
    setups_of(guest, *DRAWS.end())
}

/// The same with other guests, and so many draws.
pub(super) fn setups_of(guest: JvmParams, draws: u64) -> Vec<(RunKey, Setup)> {
    let mut setups = Vec::new();
    let mut add = |variation: Option<&Variation>, scheduler: &str, seed: u64| {
        let needed = match variation {
            None => At::Once,
            Some(variation) if variation.cause == MEMORY => At::Memory,
            Some(_) => At::Everything,
        };
        let runs = |r: &&Reader| r.at >= needed && (r.both || scheduler == SCHEDULERS[0]);
        for reader in READERS.iter().filter(runs) {
            let mut setup = setup(guest, scheduler, reader);
            draw(&mut setup, seed);
            let mut key = key(scheduler, reader.name).seeded(seed);
            if let Some(variation) = variation {
                (variation.apply)(&mut setup);
                key = key.varied(&variation.name());
            }
            setups.push((key, setup));
        }
    };
    for seed in 1..=draws {
        for scheduler in SCHEDULERS {
            add(None, scheduler, seed);
        }
        if !VARIED.contains(&seed) {
            continue;
        }
        for variation in CHANGES {
            for scheduler in variation.workloads {
                add(Some(variation), scheduler, seed);
            }
        }
    }
    setups
}

/// The key of a run: what is swept is a variant, so the memory is always the guests'.
pub(super) fn key(scheduler: &str, reader: &str) -> RunKey {
    RunKey::new("3 x 320 MB", scheduler, reader)
}
