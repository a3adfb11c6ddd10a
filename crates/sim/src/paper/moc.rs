//! The MOC paper: FreeBSD 6.2, three programs alone and together, a microbenchmark.

use super::chart::{Chart, Series};
use super::claims::section;
use super::evaluation::{Answers, Evaluation, Figure, Ours, Table, short};
use super::runs::{Measure, RunKey, Runs, Variation};
use crate::disk::{self, Params};
use crate::programs::{Layout, LuParams, MicroParams, Ns2Params, SorParams, Spec};
use crate::world::{DiskSpec, LastrSetting, Report, Setup, WindowSetting};

/// Pages that programs can have of 512 MB: the 126,000 that FreeBSD hands to its virtual memory
/// less 6,000 (24 MB) for what the kernel and an idle system keep wired. The latter is a guess;
/// 114,000 to 126,000 are shown.
const FRAMES_512: u64 = 120_000;
/// The same of 1 GB: 254,000 less 6,000.
const FRAMES_1G: u64 = 248_000;
/// 2 GB of swap.
const SWAP_SLOTS: u32 = 1 << 19;

const SMALL: &str = "512 MB";
const LARGE: &str = "1 GB";
const POLICIES: [&str; 2] = ["bsd", "moc"];
const CLUSTERS: [u64; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

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
        ..Setup::bsd("6.2", policy, frames, programs(workload))
    }
}

const ALONE: &[&str] = &["ns2", "sor", "lu"];
const PAGED: &[&str] = &["ns2", "sor", "lu", "all"];
const MICRO: &[&str] = &[
    "micro 1", "micro 2", "micro 4", "micro 6", "micro 8", "micro 10", "micro 12", "micro 14",
    "micro 16",
];

/// The setting of the write cache, on the same disk.
fn write_cache_off(setup: &mut Setup) {
    let model = disk::model("barracuda-7200.9-nowc").expect("registered");
    setup.disk = DiskSpec::Named(model.name.to_owned());
}

fn each_sor(setup: &mut Setup, change: impl Fn(&mut SorParams)) {
    for program in &mut setup.programs {
        if let Spec::Sor(params) = program {
            change(params);
        }
    }
}

fn each_ns2(setup: &mut Setup, moved_percent: u32) {
    for program in &mut setup.programs {
        if let Spec::Ns2(params) = program {
            params.moved_percent = moved_percent;
        }
    }
}

fn disk_with(setup: &mut Setup, change: impl Fn(&mut disk::RotatingParams)) {
    let Params::Rotating(mut params) = disk::model("barracuda-7200.9").expect("registered").params
    else {
        return;
    };
    change(&mut params);
    setup.disk = DiskSpec::Params(Params::Rotating(params));
}

/// What is not known of the paper's machine, kernel and programs.
const VARIATIONS: &[Variation] = &[
    Variation {
        cause: "write cache of the disk",
        value: "off",
        workloads: PAGED,
        apply: write_cache_off,
    },
    Variation {
        cause: "write cache of the disk",
        value: "off",
        workloads: MICRO,
        apply: write_cache_off,
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
        cause: "a scan that ends at its limit, and spares every dirty page once, as the paper says",
        value: "both",
        workloads: PAGED,
        apply: |s| {
            s.policies.bsd.stop_at_limit = true;
            s.policies.bsd.second_look_always = true;
        },
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
        workloads: &["sor"],
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
        workloads: &["ns2"],
        apply: |s| each_ns2(s, 0),
    },
    Variation {
        cause: "runs of NS2 that move in a second",
        value: "20 %",
        workloads: &["ns2"],
        apply: |s| each_ns2(s, 20),
    },
    Variation {
        cause: "runs of NS2 that move in a second",
        value: "30 %",
        workloads: &["ns2"],
        apply: |s| each_ns2(s, 30),
    },
    Variation {
        cause: "command overhead of the disk",
        value: "1 ms",
        workloads: ALONE,
        apply: |s| disk_with(s, |p| p.overhead_us = 1_000),
    },
    Variation {
        cause: "scheduler",
        value: "in order of arrival",
        workloads: ALONE,
        apply: |s| s.scheduler = "fifo".to_owned(),
    },
];

/// Every run of the evaluation: the paper's, then the variations.
pub(super) fn setups() -> Vec<(RunKey, Setup)> {
    let mut cases: Vec<(&str, &str)> = vec![(SMALL, "all"), (LARGE, "all_larger"), (LARGE, "all")];
    cases.extend(ALONE.iter().flat_map(|w| [(SMALL, *w), (LARGE, *w)]));
    cases.extend(MICRO.iter().map(|w| (SMALL, *w)));
    let mut setups = Vec::new();
    for (memory, workload) in cases {
        for policy in POLICIES {
            setups.push((
                RunKey::new(memory, workload, policy),
                setup(memory, workload, policy),
            ));
        }
    }
    for variation in VARIATIONS {
        for workload in variation.workloads {
            for policy in POLICIES {
                let mut setup = setup(SMALL, workload, policy);
                (variation.apply)(&mut setup);
                setups.push((
                    RunKey::new(SMALL, workload, policy).varied(&variation.name()),
                    setup,
                ));
            }
        }
    }
    setups
}

/// Runs everything.
pub(super) fn evaluate(threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Evaluation {
    let runs = Runs::run(setups(), threads, progress);
    let answers = Answers {
        runs: &runs,
        variations: VARIATIONS,
        answer,
        remark,
    };
    Evaluation {
        title: "MOC: A Multiple-Object Clustering Scheme for High Performance of Page-out in BSD VM (2009)",
        constants: constants(),
        rows: answers.rows(section("moc", &[])),
        tables: tables(&runs),
        figures: figures(&runs),
        runs: runs.all().map(|(k, o)| (k.clone(), o.clone())).collect(),
    }
}

fn constants() -> Vec<String> {
    [
        "Kernel: the page daemon of FreeBSD 6.2 (reclaim bsd-6.2, slots blist, read-ahead bsd with the sequential \
         point moved at every fault); page-out bsd or moc, 16 pages.",
        "Memory: 120,000 pages of 512 MB and 248,000 of 1 GB; 2 GB of swap.",
        "Disk: Barracuda 7200.9, write cache on (FreeBSD's default, hw.ata.wc), one command at a time, elevator.",
        "NS2: a model calibrated to the run lengths and the growth of the real program, never to page-outs. SOR: 7 \
         sweeps, rows of whole pages. LU: nbench's build_problem, exact.",
        "CPU times are set from Table 1 at 1 GB, where nothing is paged: those rows of single programs agree by \
         construction.",
        "SOR's 7 sweeps were inferred from Table 3: that its pages written agree confirms nothing; 3 and 15 are shown.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn memory_of(key: &str) -> &'static str {
    if key == "memory_1gb" { LARGE } else { SMALL }
}

/// Runs with paging that the paper compares: the six pairs of section 5.2.
const PAIRS: [(&str, &str); 6] = [
    (SMALL, "ns2"),
    (SMALL, "sor"),
    (SMALL, "lu"),
    (SMALL, "all"),
    (LARGE, "all"),
    (LARGE, "all_larger"),
];

fn pair<'a>(
    runs: &'a Runs,
    variant: &str,
    memory: &str,
    workload: &str,
) -> Option<[&'a Report; 2]> {
    let [bsd, moc] = POLICIES.map(|policy| runs.report(variant, memory, workload, policy));
    Some([bsd?, moc?])
}

fn saved(
    runs: &Runs,
    variant: &str,
    memory: &str,
    workload: &str,
    measure: Measure,
) -> Option<f64> {
    let [bsd, moc] = pair(runs, variant, memory, workload)?;
    Some(measure.saved_percent(bsd, moc))
}

fn answer(runs: &Runs, variant: &str, keys: &[&str]) -> Ours {
    let number = |n: Option<f64>| n.map_or(Ours::None, Ours::Number);
    let of = |memory: &str, workload: &str, policy: &str, measure: Measure| {
        number(
            runs.report(variant, memory, workload, policy)
                .map(|r| measure.of(r)),
        )
    };
    match keys {
        ["elapsed", memory, workload, policy] => of(memory, workload, policy, Measure::Seconds),
        ["pages_written", memory, workload, policy] => {
            of(memory, workload, policy, Measure::PagesWritten)
        }
        ["pageout_requests_saved_percent", memory, workload] => number(saved(
            runs,
            variant,
            memory_of(memory),
            workload,
            Measure::Writes,
        )),
        ["elapsed_saved_percent", "abstract_range", end] => {
            number(extreme(runs, variant, &PAIRS, Measure::Seconds, end))
        }
        ["elapsed_saved_percent", memory, workload] => number(saved(
            runs,
            variant,
            memory_of(memory),
            workload,
            Measure::Seconds,
        )),
        ["pageouts_saved_range_percent", _, end] => {
            number(extreme(runs, variant, &PAIRS[..4], Measure::Writes, end))
        }
        ["pages_written_difference", _] => number(mean_difference(runs, variant)),
        ["microbenchmark", key] => micro(runs, variant, key),
        ["shape", key] if variant.is_empty() => shape(runs, key),
        _ => Ours::None,
    }
}

/// The smallest or largest saving of several pairs, all of which have to be there.
fn extreme(
    runs: &Runs,
    variant: &str,
    pairs: &[(&str, &str)],
    measure: Measure,
    end: &str,
) -> Option<f64> {
    let all = pairs
        .iter()
        .map(|(memory, workload)| saved(runs, variant, memory, workload, measure));
    let all: Vec<f64> = all.collect::<Option<_>>()?;
    let pick = if end == "min" { f64::min } else { f64::max };
    all.into_iter().reduce(pick)
}

/// The mean of the differences between the two policies in pages written, over Table 3.
fn mean_difference(runs: &Runs, variant: &str) -> Option<f64> {
    let mut sum = 0.0;
    for (memory, workload) in &PAIRS[..5] {
        let [bsd, moc] = pair(runs, variant, memory, workload)?;
        sum += 100.0 * (moc.page_outs as f64 / bsd.page_outs as f64 - 1.0).abs();
    }
    Some(sum / 5.0)
}

fn micro(runs: &Runs, variant: &str, key: &str) -> Ours {
    let at = |c: u64, policy: &str| runs.report(variant, SMALL, &format!("micro {c}"), policy);
    let modal = |c| at(c, "moc").map_or(Ours::None, |r| Ours::Number(f64::from(r.modal_write().0)));
    match key {
        "cluster_pages" if variant.is_empty() => {
            let ran = CLUSTERS
                .iter()
                .filter(|&&c| at(c, "bsd").is_some() && at(c, "moc").is_some());
            let ran: Vec<_> = ran.map(ToString::to_string).collect();
            let agrees = ran.len() == CLUSTERS.len();
            Ours::Text(ran.join(", "), Some(agrees))
        }
        // "Alike" is within 2 %.
        "moc_faster_up_to" => {
            let faster = CLUSTERS.iter().filter(|&&c| {
                let times = [at(c, "bsd"), at(c, "moc")].map(|r| r.map_or(0.0, Report::seconds));
                times[1] < 0.98 * times[0]
            });
            let known = at(16, "bsd").is_some();
            faster
                .max()
                .filter(|_| known)
                .map_or(Ours::None, |&c| Ours::Number(c as f64))
        }
        "pages_per_write_at_6" => modal(6),
        "pages_per_write_at_8" => modal(8),
        _ => Ours::None,
    }
}

/// The `count` most common sizes of writes, in ascending order.
fn common(report: &Report, count: usize) -> String {
    let mut sizes = report.write_sizes.clone();
    sizes.sort_by_key(|s| std::cmp::Reverse(s.1));
    let mut sizes: Vec<u32> = sizes.iter().take(count).map(|s| s.0).collect();
    sizes.sort_unstable();
    let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    sizes.join(", ")
}

fn shape(runs: &Runs, key: &str) -> Ours {
    let all = pair(runs, "", SMALL, "all");
    match (key, all) {
        ("bsd_common_cluster_sizes", Some([bsd, _])) => {
            let sizes = common(bsd, 3);
            let agrees = sizes == "1, 2, 16";
            Ours::Text(sizes, Some(agrees))
        }
        ("moc_common_cluster_sizes", Some([_, moc])) => {
            let sizes = common(moc, 1);
            let agrees = sizes == "16";
            let share = 100.0 * moc.modal_write().1;
            Ours::Text(format!("{sizes} ({share:.0} % of writes)"), Some(agrees))
        }
        ("page_in_requests", _) => page_ins(runs),
        ("mean_swap_utilisation_percent", _) => Ours::Text(
            "a survey's figure about other machines; not simulated".to_owned(),
            None,
        ),
        _ => Ours::None,
    }
}

fn page_ins(runs: &Runs) -> Ours {
    let mut worst: (f64, &str) = (0.0, "");
    for (memory, workload) in PAIRS {
        let Some(percent) = saved(runs, "", memory, workload, Measure::Reads) else {
            return Ours::None;
        };
        if percent.abs() >= worst.0.abs() {
            worst = (percent, workload);
        }
    }
    let text = format!("at most {:.1} % apart ({})", worst.0.abs(), worst.1);
    Ours::Text(text, Some(worst.0.abs() <= 3.0))
}

/// What is said besides the variations.
fn remark(keys: &[&str]) -> &'static str {
    match keys {
        ["elapsed_saved_percent", "memory_512mb", "all"] => "Table 1's own figures give 24.",
        ["elapsed" | "elapsed_saved_percent", .., "all_larger"]
        | ["elapsed", _, "all_larger", _] => {
            "The heap of NS2 with 1000 nodes is extrapolated from its size at 20 simulated seconds."
        }
        ["shape", "page_in_requests"] => {
            "Which pages are in memory depends on when writes end, so that runs part ways; the pages read differ less \
             than the requests."
        }
        ["microbenchmark", "moc_faster_up_to"] => {
            "With the write cache on, the drive joins small writes to neighbouring slots; what is left is the slots \
             that 12- and 14-page writes cannot use in a leaf of 32."
        }
        _ => "",
    }
}

/// A table of the paper with ours beside it.
fn table(runs: &Runs, title: &str, key: &str, cases: &[(&str, &str)], measure: Measure) -> Table {
    let claims = section("moc", &[]);
    let mut rows = Vec::new();
    for (memory, workload) in cases {
        let mut row = vec![format!("{workload}, {memory}")];
        for policy in POLICIES {
            let claim = claims
                .iter()
                .find(|c| c.keys() == [key, *memory, *workload, policy]);
            row.push(match claim.map(|c| &c.published) {
                Some(super::claims::Published::Number(n)) => short(*n),
                _ => "-".to_owned(),
            });
            let ours = runs.report("", memory, workload, policy);
            row.push(ours.map_or("-".to_owned(), |r| short(measure.of(r))));
        }
        rows.push(row);
    }
    let head = ["", "BSD published", "BSD ours", "MOC published", "MOC ours"];
    Table {
        title: title.to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    }
}

fn tables(runs: &Runs) -> Vec<Table> {
    let alone = ["ns2", "sor", "lu", "all"];
    let both: Vec<_> = [SMALL, LARGE]
        .iter()
        .flat_map(|m| alone.map(|w| (*m, w)))
        .collect();
    let mut micro = Table {
        title:
            "Microbenchmark: pages a write, and the share of writes that have the most common size"
                .to_owned(),
        head: [
            "cluster",
            "BSD",
            "MOC",
            "share, BSD",
            "share, MOC",
            "page-ins",
            "BSD, s",
            "MOC, s",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    };
    for c in CLUSTERS {
        let Some([bsd, moc]) = pair(runs, "", SMALL, &format!("micro {c}")) else {
            continue;
        };
        let share = |r: &Report| format!("{:.1} %", 100.0 * r.modal_write().1);
        micro.rows.push(vec![
            c.to_string(),
            bsd.modal_write().0.to_string(),
            moc.modal_write().0.to_string(),
            share(bsd),
            share(moc),
            (bsd.page_ins + moc.page_ins).to_string(),
            format!("{:.1}", bsd.seconds()),
            format!("{:.1}", moc.seconds()),
        ]);
    }
    vec![
        table(
            runs,
            "Table 1: elapsed time, s",
            "elapsed",
            &both,
            Measure::Seconds,
        ),
        table(
            runs,
            "Table 2: elapsed time, s",
            "elapsed",
            &[(LARGE, "all_larger")],
            Measure::Seconds,
        ),
        table(
            runs,
            "Table 3: pages written",
            "pages_written",
            &both,
            Measure::PagesWritten,
        ),
        micro,
    ]
}

fn series(name: &str, values: Vec<Option<f64>>) -> Series {
    Series {
        name: name.to_owned(),
        values,
        published: false,
    }
}

/// Page-in and page-out requests of one pair, as in figures 10 to 13, 15 and 16.
fn requests(runs: &Runs, number: u32, memory: &str, workload: &str, published: &str) -> Figure {
    let values = |policy: &str| {
        let report = runs.report("", memory, workload, policy);
        let measures = [Measure::Reads, Measure::Writes];
        measures.map(|m| report.map(|r| m.of(r))).to_vec()
    };
    Figure {
        chart: Chart {
            title: format!("Figure {number}: page-in and page-out requests, {workload}, {memory}"),
            unit: "requests".to_owned(),
            categories: vec!["page-in".to_owned(), "page-out".to_owned()],
            series: vec![series("BSD", values("bsd")), series("MOC", values("moc"))],
        },
        text: format!(
            "Published: {published}. Here: {} % fewer page-out requests.",
            saved(runs, "", memory, workload, Measure::Writes).map_or("-".to_owned(), short)
        ),
    }
}

/// Writes of each size from 1 to 16 pages.
fn histogram(runs: &Runs, number: u32, policies: &[&str], text: &str) -> Figure {
    let values = |policy: &str| {
        let report = runs.report("", SMALL, "all", policy);
        let count = |pages| {
            let sizes = &report?.write_sizes;
            Some(
                sizes
                    .iter()
                    .find(|s| s.0 == pages)
                    .map_or(0.0, |s| s.1 as f64),
            )
        };
        (1..=16).map(count).collect()
    };
    Figure {
        chart: Chart {
            title: format!(
                "Figure {number}: writes by their size, the three programs at once, {SMALL}"
            ),
            unit: "writes".to_owned(),
            categories: (1..=16).map(|n: u32| n.to_string()).collect(),
            series: policies
                .iter()
                .map(|p| series(&p.to_uppercase(), values(p)))
                .collect(),
        },
        text: text.to_owned(),
    }
}

fn figures(runs: &Runs) -> Vec<Figure> {
    let micro = |variant: &str, policy: &str| {
        let time = |c| {
            Some(
                runs.report(variant, SMALL, &format!("micro {c}"), policy)?
                    .seconds(),
            )
        };
        CLUSTERS.iter().map(time).collect()
    };
    let off = VARIATIONS[0].name();
    let nine = |title: &str, variant: &str| {
        Figure {
        chart: Chart {
            title: format!("Figure 9: the microbenchmark, {SMALL}, {title}"),
            unit: "s".to_owned(),
            categories: CLUSTERS.map(|c| c.to_string()).to_vec(),
            series: vec![series("BSD", micro(variant, "bsd")), series("MOC", micro(variant, "moc"))],
        },
        text: "Published as bars without figures: MOC is faster up to clusters of 8 pages, alike from 10 on, and slower \
               at 6 than at 8, because two clusters of 6 leave 4 of 16 pages empty."
            .to_owned(),
    }
    };
    vec![
        histogram(
            runs,
            3,
            &["bsd"],
            "Published as bars: 1, 2 and 16 pages are most of the writes.",
        ),
        nine("write cache on", ""),
        nine("write cache off", &off),
        requests(runs, 10, SMALL, "ns2", "83 % fewer page-out requests"),
        requests(runs, 11, SMALL, "sor", "75 % fewer"),
        requests(runs, 12, SMALL, "lu", "37 % fewer"),
        requests(runs, 13, SMALL, "all", "69 % fewer"),
        histogram(
            runs,
            14,
            &POLICIES,
            "Published as bars: nearly all writes of MOC have 16 pages.",
        ),
        requests(runs, 15, LARGE, "all", "bars only"),
        requests(runs, 16, LARGE, "all_larger", "61 % fewer"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_name_of_its_own() {
        let mut keys: Vec<_> = setups().into_iter().map(|s| s.0).collect();
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn runs_of_the_evaluation_differ_in_memory_programs_and_page_out_only() {
        let all = setups();
        let one = &all[0].1;
        for (key, setup) in all.iter().filter(|(key, _)| key.variant.is_empty()) {
            let mut same = setup.clone();
            (same.frames, same.programs) = (one.frames, one.programs.clone());
            same.policies.pageout.clone_from(&one.policies.pageout);
            assert_eq!(&same, one, "{key:?}");
        }
    }
}
