//! The runs of the MOC paper's evaluation, and what is varied in them.

use crate::paper::draw::{DRAWS, draw};
use crate::paper::runs::{
    AS_THE_TEXT, ATA, RunKey, Variation, as_the_text, disk_with, each_sor, scan_of_the_papers,
};
use crate::programs::{Growth, Layout, LuParams, MicroParams, Ns2Params, SorParams, Spec};
use crate::world::{LastrSetting, Setup, WindowSetting};

/// Pages that programs can have of 512 MB: the 126,000 that FreeBSD hands to its virtual memory
/// less 6,000 (24 MB) for what the kernel and an idle system keep wired. The latter is a guess;
/// 114,000 to 126,000 are shown.
const FRAMES_512: u64 = 120_000;
/// The same when files have filled the buffer cache, which stays wired: 62 MB by `vfs_bio.c` (50
/// buffers, 1,024 for the first 64 MB and 2,867 for the rest, of 16 KiB each).
const FRAMES_BUFFERS: u64 = 105_000;
/// The same of 1 GB: 254,000 less 6,000.
const FRAMES_1G: u64 = 248_000;
/// 3 GB of swap, where the paper had 2: with 2 GB the larger inputs at once fill it under MOC (the
/// heap of NS2 with 1000 nodes is not known well). Slots are taken from the lowest on, so that runs
/// that stay well below 2 GB see no difference; for the programs at once the effect is shown.
const SWAP_SLOTS: u32 = 3 << 18;

pub(super) const SMALL: &str = "512 MB";
pub(super) const LARGE: &str = "1 GB";
pub(super) const POLICIES: [&str; 2] = ["bsd", "moc"];
pub(super) const CLUSTERS: [u64; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

/// The programs of a workload, by its name in the table of claims.
fn programs(workload: &str) -> Vec<Spec> {
    let sor = |n| {
        Spec::Sor(SorParams {
            n,
            ..SorParams::default()
        })
    };
    let lu = |n| {
        Spec::Lu(LuParams {
            n,
            ..LuParams::default()
        })
    };
    let ns2 = Spec::Ns2(Ns2Params::default());
    match workload {
        "ns2" => vec![ns2],
        "sor" => vec![sor(8000)],
        "lu" => vec![lu(10_000)],
        "all" => vec![ns2, sor(8000), lu(10_000)],
        "all_larger" => vec![
            Spec::Ns2(Ns2Params::thousand_nodes()),
            sor(10_000),
            lu(11_000),
        ],
        micro => {
            let cluster_pages = micro
                .trim_start_matches("micro ")
                .parse()
                .expect("a cluster size");
            vec![Spec::Micro(MicroParams {
                cluster_pages,
                ..MicroParams::default()
            })]
        }
    }
}

fn setup(memory: &str, workload: &str, policy: &str) -> Setup {
    let frames = if memory == SMALL {
        FRAMES_512
    } else {
        FRAMES_1G
    };
    Setup {
        swap_slots: SWAP_SLOTS,
        scheduler: ATA.to_owned(),
        ..Setup::bsd("6.2", policy, frames, programs(workload))
    }
}

const ALONE: &[&str] = &["ns2", "sor", "lu"];
const PAGED: &[&str] = &["ns2", "sor", "lu", "all"];
/// Everything that pages on 512 MB; the microbenchmarks from the fifth on.
const PAGED_AND_MICRO: &[&str] = &[
    "ns2", "sor", "lu", "all", "micro 1", "micro 2", "micro 4", "micro 6", "micro 8", "micro 10",
    "micro 12", "micro 14", "micro 16",
];

/// The setting of the write cache, on the same disk.
fn write_cache_off(setup: &mut Setup) {
    disk_with(setup, |p| p.write_cache = false);
}

fn fifo(setup: &mut Setup) {
    setup.scheduler = "fifo".to_owned();
}

fn each_ns2(setup: &mut Setup, change: impl Fn(&mut Ns2Params)) {
    for program in &mut setup.programs {
        if let Spec::Ns2(params) = program {
            change(params);
        }
    }
}

/// The growth of NS2's heap, evenly in the first half in all runs.
const HEAP: &str = "how the heap of NS2 grows";
const PAGED_WITH_NS2: &[&str] = &["ns2", "all"];

/// What NS2 is, where it is not the model.
const MODEL: &str = "NS2";

/// As in a recording of the real program, whose heap reaches its last size in a storm of five seconds
/// that touches 63 to 80 % of it a second.
fn storm(params: &mut Ns2Params) {
    params.growth = Growth::Steps;
    params.storm_rounds = 5;
}

/// Another draw of the random numbers of NS2 (seeds are odd: the lowest bit is always set): how far two runs of one policy differ by chance.
const CHANCE: &str = "chance: other random numbers of NS2";

/// The paper does not say how the three programs were started. From one command line they begin at
/// once, by hand within seconds. NS2, SOR and LU, in this order.
const START: &str = "when the programs start";
const START_AND_MOVES: &str = "when SOR starts, and runs of NS2 that move in a second";
/// What is varied at 1 GB only: the runs that part ways are there.
const AT_1G: [&str; 3] = [CHANCE, START, START_AND_MOVES];

/// SOR begins after the others.
fn sor_later(setup: &mut Setup, ms: u32) {
    setup.starts_ms = vec![0, ms, 0];
}

/// All that pages, on both memory sizes, and the microbenchmarks.
const EVERYTHING: &[&str] = &[
    "ns2",
    "sor",
    "lu",
    "all",
    "all_larger",
    "micro 1",
    "micro 2",
    "micro 4",
    "micro 6",
    "micro 8",
    "micro 10",
    "micro 12",
    "micro 14",
    "micro 16",
];

/// What is not known of the paper's machine, kernel and programs. The write cache is first, and last what stands for NS2.
pub(super) const VARIATIONS: &[Variation] = &[
    Variation {
        cause: "write cache of the disk",
        value: "off",
        workloads: PAGED_AND_MICRO,
        apply: write_cache_off,
    },
    Variation {
        cause: "separate stretches that the write cache holds, where all runs have as many as fit",
        value: "16",
        workloads: &["ns2", "sor", "lu", "micro 1", "micro 6"],
        apply: |s| disk_with(s, |p| p.write_extents = Some(16)),
    },
    Variation {
        cause: "scheduler",
        value: "upwards from the last request",
        workloads: PAGED,
        apply: |s| s.scheduler = "elevator".to_owned(),
    },
    Variation {
        cause: "scheduler",
        value: "in order of arrival",
        workloads: ALONE,
        apply: fifo,
    },
    Variation {
        cause: "scheduler and write cache",
        value: "in order of arrival, off",
        workloads: ALONE,
        apply: |s| {
            fifo(s);
            write_cache_off(s);
        },
    },
    Variation {
        cause: "usable memory",
        value: "100,000 pages",
        workloads: &["ns2"],
        apply: |s| s.frames = 100_000,
    },
    Variation {
        cause: "usable memory",
        value: "105,000 pages, with a full buffer cache",
        workloads: ALONE,
        apply: |s| s.frames = FRAMES_BUFFERS,
    },
    Variation {
        cause: "usable memory",
        value: "114,000 pages",
        workloads: ALONE,
        apply: |s| s.frames = 114_000,
    },
    Variation {
        cause: "usable memory",
        value: "126,000 pages",
        workloads: ALONE,
        apply: |s| s.frames = 126_000,
    },
    Variation {
        cause: "usable memory, and the write cache off",
        value: "126,000 pages",
        workloads: &["sor"],
        apply: |s| {
            s.frames = 126_000;
            write_cache_off(s);
        },
    },
    Variation {
        cause: "a scan that ends at its limit, and spares every dirty page once, as the paper says",
        value: "both",
        workloads: PAGED,
        apply: scan_of_the_papers,
    },
    Variation {
        cause: "the limit of a scan counted in writes, as in the paper's figure 8",
        value: "counted so",
        workloads: ALONE,
        apply: |s| s.policies.bsd.limit_counts_writes = true,
    },
    Variation {
        cause: "clusters of 8 pages to each side of the victim",
        value: "so",
        workloads: ALONE,
        apply: |s| s.policies.window = WindowSetting::Paper,
    },
    Variation {
        cause: "page-outs in flight",
        value: "1",
        workloads: ALONE,
        apply: |s| s.policies.bsd.writes_max = Some(1),
    },
    Variation {
        cause: "page-outs in flight",
        value: "2",
        workloads: &["sor"],
        apply: |s| s.policies.bsd.writes_max = Some(2),
    },
    Variation {
        cause: "page-outs in flight",
        value: "16",
        workloads: &["sor"],
        apply: |s| s.policies.bsd.writes_max = Some(16),
    },
    Variation {
        cause: "page-outs in flight, and the write cache",
        value: "1, off",
        workloads: &["sor"],
        apply: |s| {
            s.policies.bsd.writes_max = Some(1);
            write_cache_off(s);
        },
    },
    Variation {
        cause: "page-outs in flight, and the scan as the paper says",
        value: "1, both",
        workloads: &["sor"],
        apply: |s| {
            s.policies.bsd.writes_max = Some(1);
            scan_of_the_papers(s);
        },
    },
    Variation {
        cause: "page-outs in flight, and the scan as the paper says",
        value: "2, both",
        workloads: &["sor"],
        apply: |s| {
            s.policies.bsd.writes_max = Some(2);
            scan_of_the_papers(s);
        },
    },
    Variation {
        cause: "page-outs in flight, and usable memory",
        value: "2, 123,000 pages",
        workloads: &["sor"],
        apply: |s| {
            s.policies.bsd.writes_max = Some(2);
            s.frames = 123_000;
        },
    },
    Variation {
        cause: "page-outs in flight, and usable memory",
        value: "2, 126,000 pages",
        workloads: &["sor"],
        apply: |s| {
            s.policies.bsd.writes_max = Some(2);
            s.frames = 126_000;
        },
    },
    Variation {
        cause: "a scan as the paper says, and usable memory",
        value: "123,000 pages",
        workloads: &["sor"],
        apply: |s| {
            scan_of_the_papers(s);
            s.frames = 123_000;
        },
    },
    Variation {
        cause: "a scan as the paper says, and the scheduler",
        value: "in order of arrival",
        workloads: &["sor"],
        apply: |s| {
            scan_of_the_papers(s);
            fifo(s);
        },
    },
    Variation {
        cause: "when a fault counts as sequential",
        value: "after a read only",
        workloads: ALONE,
        apply: |s| s.policies.lastr = LastrSetting::MajorFaults,
    },
    Variation {
        cause: "when a fault counts as sequential",
        value: "never",
        workloads: ALONE,
        apply: |s| s.policies.lastr = LastrSetting::Off,
    },
    Variation {
        cause: "sweeps of SOR",
        value: "3",
        workloads: &["sor", "all"],
        apply: |s| each_sor(s, |p| p.sweeps = 3),
    },
    Variation {
        cause: "sweeps of SOR",
        value: "15",
        workloads: &["sor"],
        apply: |s| each_sor(s, |p| p.sweeps = 15),
    },
    Variation {
        cause: "rows of SOR",
        value: "as glibc lays them out",
        workloads: &["sor"],
        apply: |s| each_sor(s, |p| p.layout = Layout::Glibc),
    },
    Variation {
        cause: "runs of NS2 that move in a second",
        value: "none",
        workloads: &["ns2", "all", "all_larger"],
        apply: |s| each_ns2(s, |p| p.moved_percent = 0),
    },
    Variation {
        cause: "runs of NS2 that move in a second",
        value: "5 %, the median of the measurement",
        workloads: &["ns2", "all"],
        apply: |s| each_ns2(s, |p| p.moved_percent = 5),
    },
    Variation {
        cause: "runs of NS2 that move in a second",
        value: "20 %",
        workloads: &["ns2"],
        apply: |s| each_ns2(s, |p| p.moved_percent = 20),
    },
    Variation {
        cause: "runs of NS2 that move in a second",
        value: "40 %",
        workloads: &["ns2"],
        apply: |s| each_ns2(s, |p| p.moved_percent = 40),
    },
    Variation {
        cause: HEAP,
        value: "in three steps, as recorded",
        workloads: &["ns2"],
        apply: |s| each_ns2(s, |p| p.growth = Growth::Steps),
    },
    Variation {
        cause: HEAP,
        value: "in steps, the last with a storm, as recorded",
        workloads: PAGED_WITH_NS2,
        apply: |s| each_ns2(s, storm),
    },
    Variation {
        cause: HEAP,
        value: "in steps, the last with a storm that writes 80 % of the heap",
        workloads: &["ns2"],
        apply: |s| {
            each_ns2(s, |p| {
                storm(p);
                p.storm_percent = 55;
            });
        },
    },
    Variation {
        cause: "heap of NS2 with 1000 nodes",
        value: "a fifth larger",
        workloads: &["all_larger"],
        apply: |s| each_ns2(s, |p| p.pages += p.pages / 5),
    },
    Variation {
        cause: CHANCE,
        value: "second draw",
        workloads: &["all"],
        apply: |s| each_ns2(s, |p| p.seed = 9),
    },
    Variation {
        cause: CHANCE,
        value: "third draw",
        workloads: &["all"],
        apply: |s| each_ns2(s, |p| p.seed = 11),
    },
    Variation {
        cause: START,
        value: "SOR after 1 s",
        workloads: &["all"],
        apply: |s| sor_later(s, 1_000),
    },
    Variation {
        cause: START,
        value: "SOR after 2 s",
        workloads: &["all"],
        apply: |s| sor_later(s, 2_000),
    },
    Variation {
        cause: START,
        value: "SOR after 3 s",
        workloads: &["all"],
        apply: |s| sor_later(s, 3_000),
    },
    Variation {
        cause: START,
        value: "LU after 2 s",
        workloads: &["all"],
        apply: |s| s.starts_ms = vec![0, 0, 2_000],
    },
    Variation {
        cause: START_AND_MOVES,
        value: "2 s after the others, 5 %",
        workloads: &["all"],
        apply: |s| {
            sor_later(s, 2_000);
            each_ns2(s, |p| p.moved_percent = 5);
        },
    },
    Variation {
        cause: "command overhead of the disk",
        value: "1 ms",
        workloads: &["ns2", "sor"],
        apply: |s| disk_with(s, |p| p.overhead_us = 1_000),
    },
    Variation {
        cause: "where the swap partition lies",
        value: "80 GB from the outer edge, in the middle of the disk",
        workloads: &["sor"],
        apply: |s| disk_with(s, |p| p.swap_at_mb = 80_000),
    },
    Variation {
        cause: AS_THE_TEXT,
        value: "all of it",
        workloads: EVERYTHING,
        apply: as_the_text,
    },
    Variation {
        cause: "swap space",
        value: "the paper's 2 GB",
        workloads: &["all", "all_larger"],
        apply: |s| s.swap_slots = 1 << 19,
    },
    Variation {
        cause: MODEL,
        value: "the closed form",
        workloads: PAGED_WITH_NS2,
        apply: |s| each_ns2(s, |p| p.recorded = false),
    },
];

/// Every run of the evaluation: the paper's at every draw, then the variations at the constants. With NS2 `recorded` its model is a variation, and those
/// of the model's parameters are left out.
pub(in crate::paper) fn setups(recorded: bool) -> Vec<(RunKey, Setup)> {
    let setup = |memory, workload, policy| {
        let mut setup = setup(memory, workload, policy);
        each_ns2(&mut setup, |p| p.recorded = recorded && p.nodes == 700);
        setup
    };
    // The longest runs first, so that no thread is left with one at the end.
    let mut cases: Vec<(&str, &str)> = vec![(SMALL, "all"), (LARGE, "all_larger"), (LARGE, "all")];
    cases.extend(ALONE.iter().flat_map(|w| [(SMALL, *w), (LARGE, *w)]));
    cases.extend(PAGED_AND_MICRO[4..].iter().map(|w| (SMALL, *w)));
    let mut setups = Vec::new();
    for (memory, workload) in cases {
        for number in std::iter::once(0).chain(DRAWS) {
            for policy in POLICIES {
                let mut setup = setup(memory, workload, policy);
                draw(&mut setup, number);
                let key = RunKey::new(memory, workload, policy);
                setups.push((key.seeded(number), setup));
            }
        }
    }
    for variation in variations(recorded) {
        for workload in variation.workloads {
            let memories: &[&str] = match *workload {
                "all" if AT_1G.contains(&variation.cause) => &[LARGE],
                "all" => &[SMALL, LARGE],
                "all_larger" => &[LARGE],
                _ => &[SMALL],
            };
            for (memory, policy) in memories
                .iter()
                .flat_map(|memory| POLICIES.map(|policy| (memory, policy)))
            {
                let mut setup = setup(memory, workload, policy);
                let before = setup.programs.clone();
                (variation.apply)(&mut setup);
                if recorded && of_the_model(&before, &setup.programs) {
                    continue;
                }
                let key = RunKey::new(memory, workload, policy);
                setups.push((key.varied(&variation.name()), setup));
            }
        }
    }
    setups
}

/// The variations: the model of NS2 among them where the base is a recording.
pub(super) fn variations(recorded: bool) -> &'static [Variation] {
    let [others @ .., model] = VARIATIONS else {
        return VARIATIONS;
    };
    debug_assert_eq!(model.cause, MODEL);
    if recorded { VARIATIONS } else { others }
}

/// Whether NS2 is recorded in both, and its parameters differ.
fn of_the_model(before: &[Spec], varied: &[Spec]) -> bool {
    let mut pairs = before.iter().zip(varied);
    pairs.any(|(a, b)| match (a, b) {
        (Spec::Ns2(a), Spec::Ns2(b)) => a.recorded && b.recorded && a != b,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_name_of_its_own() {
        let mut keys: Vec<_> = setups(false).into_iter().map(|s| s.0).collect();
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn runs_of_the_evaluation_differ_in_memory_programs_and_page_out_only() {
        let all = setups(false);
        let one = &all[0].1;
        for (key, setup) in all
            .iter()
            .filter(|(key, _)| key.variant.is_empty() && key.seed == 0)
        {
            let mut same = setup.clone();
            (same.frames, same.programs) = (one.frames, one.programs.clone());
            same.policies.pageout.clone_from(&one.policies.pageout);
            assert_eq!(&same, one, "{key:?}");
        }
    }

    #[test]
    fn what_is_compared_has_the_same_draw() {
        let all = setups(false);
        let drawn: Vec<_> = all.iter().filter(|(key, _)| key.seed > 0).collect();
        assert!(drawn.len() >= 20 * 2 * 18);
        for pair in drawn.chunks(2) {
            let mut same = pair[1].1.clone();
            same.policies
                .pageout
                .clone_from(&pair[0].1.policies.pageout);
            assert_eq!(pair[0].1, same, "{:?}", pair[0].0);
        }
    }
}
