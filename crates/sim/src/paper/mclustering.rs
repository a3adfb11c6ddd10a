//! The mClustering paper: FreeBSD 8.2, LU and SOR at three sizes on 1 GB.

use super::answers::Answers;
use super::chart::{Chart, Series};
use super::claims::{Published, section};
use super::draw::{DRAWS, RANGES, draw};
use super::ensemble::{Sample, combined, middle, samples};
use super::evaluation::{Evaluation, Figure, Ours};
use super::provenance;
use super::runs::{
    AS_THE_TEXT, ATA, Measure, RunKey, Runs, Variation, as_the_text, disk_with, each_sor,
    scan_of_the_papers, variation_table,
};
use super::table::Table;
use super::verdict::{Class, Held};
use crate::programs::{Layout, LuParams, SorParams, Spec};
use crate::world::{DiskSpec, LastrSetting, Report, Setup, WindowSetting};

/// Pages that programs can have of 1 GB: the 254,000 that FreeBSD hands to its virtual memory less
/// 10,000 (40 MB) for what a 64-bit kernel and an idle system keep wired. The latter is a guess;
/// 234,000 to 250,000 are shown.
const FRAMES: u64 = 244_000;
/// 2 GB of swap.
const SWAP_SLOTS: u32 = 1 << 19;
const SIZES: [&str; 3] = ["1.3 GB", "1.5 GB", "1.7 GB"];
/// The size at which the variations run.
const VARIED: &str = "1.5 GB";
const POLICIES: [&str; 2] = ["bsd", "mclustering"];
const WORKLOADS: &[&str] = &["lu", "sor"];
const SEQUENTIAL: &str = "when a fault counts as sequential";
const MEMORY: &str = "usable memory";
const IN_FLIGHT: &str = "page-outs in flight";
const CLEAN: &str = "where clean pages go";
/// What moves SOR's figures most: these run at all sizes.
const AT_ALL_SIZES: [&str; 4] = [SEQUENTIAL, MEMORY, IN_FLIGHT, CLEAN];
/// Usable memory when files have filled the buffer cache, which stays wired: 113 MB by `vfs_bio.c`
/// (50 buffers, 1,024 for the first 64 MB and 6,144 for the rest, of 16 KiB each).
const FRAMES_BUFFERS: u64 = 216_000;

/// Rows and columns for a size, GB of 2^30 bytes.
fn n_of(size: &str) -> u64 {
    match size {
        "1.3 GB" => 13_209,
        "1.5 GB" => 14_188,
        _ => 15_105,
    }
}

/// CPU times measured on today's machine, which is close to the paper's 3.5 GHz Core i7: SOR 0.55 s
/// for 128,000 pages and 0.20 s a sweep, LU 1.5 s for 1.76 million pages.
fn program(workload: &str, size: &str) -> Spec {
    let n = n_of(size);
    if workload == "lu" {
        return Spec::Lu(LuParams {
            n,
            offset: 0,
            init_ns: 850,
            add_ns: 850,
        });
    }
    Spec::Sor(SorParams {
        n,
        sweeps: 7,
        layout: Layout::Jemalloc,
        init_ns: 4_300,
        sweep_ns: 1_560,
    })
}

fn setup(size: &str, workload: &str, policy: &str) -> Setup {
    Setup {
        swap_slots: SWAP_SLOTS,
        disk: DiskSpec::Named("seagate-160".to_owned()),
        scheduler: ATA.to_owned(),
        ..Setup::bsd("8.2", policy, FRAMES, vec![program(workload, size)])
    }
}

/// What is not known of the paper's machine, kernel and programs.
const VARIATIONS: &[Variation] = &[
    Variation {
        cause: "write cache of the disk",
        value: "off",
        workloads: WORKLOADS,
        apply: |s| disk_with(s, |p| p.write_cache = false),
    },
    Variation {
        cause: "the disk",
        value: "a Barracuda 7200.9",
        workloads: WORKLOADS,
        apply: |s| s.disk = DiskSpec::Named("barracuda-7200.9".to_owned()),
    },
    Variation {
        cause: "scheduler",
        value: "upwards from the last request",
        workloads: WORKLOADS,
        apply: |s| s.scheduler = "elevator".to_owned(),
    },
    Variation {
        cause: "scheduler",
        value: "in order of arrival",
        workloads: WORKLOADS,
        apply: |s| s.scheduler = "fifo".to_owned(),
    },
    Variation {
        cause: MEMORY,
        value: "216,000 pages, with a full buffer cache",
        workloads: WORKLOADS,
        apply: |s| s.frames = FRAMES_BUFFERS,
    },
    Variation {
        cause: MEMORY,
        value: "234,000 pages",
        workloads: WORKLOADS,
        apply: |s| s.frames = 234_000,
    },
    Variation {
        cause: MEMORY,
        value: "250,000 pages",
        workloads: WORKLOADS,
        apply: |s| s.frames = 250_000,
    },
    Variation {
        cause: IN_FLIGHT,
        value: "1",
        workloads: &["sor"],
        apply: |s| s.policies.bsd.writes_max = Some(1),
    },
    Variation {
        cause: IN_FLIGHT,
        value: "1, and the write cache off",
        workloads: &["sor"],
        apply: |s| {
            s.policies.bsd.writes_max = Some(1);
            disk_with(s, |p| p.write_cache = false);
        },
    },
    Variation {
        cause: "clusters of 8 pages to each side of the victim, as the paper says",
        value: "so",
        workloads: WORKLOADS,
        apply: |s| s.policies.window = WindowSetting::Paper,
    },
    Variation {
        cause: "a scan that ends at its limit, and spares every dirty page once",
        value: "both",
        workloads: WORKLOADS,
        apply: scan_of_the_papers,
    },
    Variation {
        cause: "the limit of a scan counted in writes",
        value: "counted so",
        workloads: &["sor"],
        apply: |s| s.policies.bsd.limit_counts_writes = true,
    },
    Variation {
        cause: AS_THE_TEXT,
        value: "all of it, clean pages to the free list too",
        workloads: WORKLOADS,
        apply: |s| {
            as_the_text(s);
            s.policies.bsd.free_clean = true;
        },
    },
    Variation {
        cause: AS_THE_TEXT,
        value: "all of it but clean pages, which go to the cache",
        workloads: WORKLOADS,
        apply: as_the_text,
    },
    Variation {
        cause: CLEAN,
        value: "to the free list, as the paper says",
        workloads: WORKLOADS,
        apply: |s| s.policies.bsd.free_clean = true,
    },
    Variation {
        cause: SEQUENTIAL,
        value: "never",
        workloads: WORKLOADS,
        apply: |s| s.policies.lastr = LastrSetting::Off,
    },
    Variation {
        cause: SEQUENTIAL,
        value: "after any fault",
        workloads: WORKLOADS,
        apply: |s| s.policies.lastr = LastrSetting::EveryFault,
    },
    Variation {
        cause: "rows of SOR",
        value: "whole pages without chunks",
        workloads: &["sor"],
        apply: |s| each_sor(s, |p| p.layout = Layout::Phkmalloc),
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
];

/// Every run of the evaluation: the paper's at every draw, then the variations at the constants.
pub(super) fn setups() -> Vec<(RunKey, Setup)> {
    let mut setups = Vec::new();
    let mut add = |variation: Option<&Variation>, workload: &str, sizes: &[&str], number: u64| {
        for size in sizes {
            for policy in POLICIES {
                let mut setup = setup(size, workload, policy);
                let mut key = RunKey::new(size, workload, policy).seeded(number);
                if let Some(variation) = variation {
                    (variation.apply)(&mut setup);
                    key = key.varied(&variation.name());
                }
                draw(&mut setup, number);
                setups.push((key, setup));
            }
        }
    };
    for workload in WORKLOADS {
        for number in std::iter::once(0).chain(DRAWS) {
            add(None, workload, &SIZES, number);
        }
    }
    for variation in VARIATIONS {
        for workload in variation.workloads {
            let of_sor = AT_ALL_SIZES.contains(&variation.cause) && *workload == "sor";
            let every = of_sor || [AS_THE_TEXT, CLEAN].contains(&variation.cause);
            let sizes: &[&str] = if every { &SIZES } else { &[VARIED] };
            add(Some(variation), workload, sizes, 0);
        }
    }
    setups
}

/// What the runs show.
pub(super) fn evaluation(runs: &Runs) -> Evaluation {
    let varied = SIZES
        .iter()
        .flat_map(|size| WORKLOADS.iter().map(move |workload| (*size, *workload)))
        .map(|(size, workload)| variation_table(runs, VARIATIONS, size, workload, POLICIES))
        .filter(|table| table.rows.len() > 1)
        .collect::<Vec<_>>();
    let answers = Answers {
        runs,
        variations: VARIATIONS,
        answer,
        class,
        remark,
    };
    let claims = section("mclustering", &SIZES);
    let joint = answers.joint_table(&claims);
    Evaluation {
        title: "Paging out Multiple Clusters to Improve Virtual Memory System Performance (2014)",
        constants: constants(),
        provenance: provenance::table(provenance::MCLUSTERING),
        rows: answers.rows(claims),
        tables: [joint, table(runs)].into_iter().chain(varied).collect(),
        figures: figures(runs),
        curves: Vec::new(),
        runs: runs.lines(),
    }
}

fn constants() -> Vec<String> {
    [
        "Kernel: the page daemon of FreeBSD 8.2 (reclaim bsd-8.2, slots blist, read-ahead bsd); page-out bsd or \
         mclustering, 16 pages.",
        "Memory: 244,000 pages of 1 GB; 2 GB of swap.",
        "Disk: a Seagate of 160 GB and 7200 rpm of the time, write cache on, one command at a time, in ata(4)'s order.",
        "LU: nbench's build_problem, exact, n = 13,209, 14,188, 15,105 (GB of 2^30 bytes). SOR: the same n, 7 sweeps, \
         rows as FreeBSD 8's allocator lays them out.",
        "Variations are single runs at the constants, at 1.5 GB, and are compared with the run at the constants; the other sizes do not quote them. SOR's usable \
         memory, its page-outs in flight and when its faults count as sequential were varied at all three sizes, as were where clean pages go and the daemon as \
         the text has it for both programs.",
        RANGES,
        "CPU times are those measured on a machine of today; the paper gives none.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn saved(sample: Sample, size: &str, workload: &str, measure: Measure) -> Option<f64> {
    let [bsd, ours] = sample.pair(size, workload, POLICIES)?;
    Some(measure.saved_percent(bsd, ours))
}

/// The answer over the draws of a variant.
fn answer(runs: &Runs, variant: &str, keys: &[&str]) -> Ours {
    combined(samples(runs, variant, 0..=0).map(|sample| answer_of(sample, keys)))
}

fn answer_of(sample: Sample, keys: &[&str]) -> Ours {
    let of = |size, workload, measure| saved(sample, size, workload, measure).map(Ours::Number);
    let answered = match keys {
        ["elapsed_saved_percent", workload, size] => of(size, workload, Measure::Seconds),
        ["disk_writes_saved_percent", workload, size] => of(size, workload, Measure::Writes),
        ["shape", rest @ ..] => shape(sample, rest),
        _ => None,
    };
    answered.unwrap_or(Ours::None)
}

/// Writes of `sizes` pages.
fn writes(report: &Report, sizes: std::ops::RangeInclusive<u32>) -> f64 {
    let these = report.write_sizes.iter().filter(|s| sizes.contains(&s.0));
    these.map(|s| s.1 as f64).sum()
}

fn shape(sample: Sample, keys: &[&str]) -> Option<Ours> {
    match keys {
        ["lu_common_write_sizes", "bsd"] => {
            let lu = sample.report(VARIED, "lu", "bsd")?;
            let share = 100.0 * writes(lu, 1..=4) / lu.page_out_writes as f64;
            let text = format!("{share:.0} % of writes have 1 to 4 pages");
            Some(Ours::Text(text, Some(Held::once(share >= 30.0))))
        }
        ["lu_common_write_sizes", _] => {
            let (pages, share) = sample.report(VARIED, "lu", "mclustering")?.modal_write();
            let text = format!("{pages} ({:.0} % of writes)", 100.0 * share);
            Some(Ours::Text(text, Some(Held::once(pages == 16))))
        }
        ["sor_write_sizes"] => sor_sizes(sample),
        ["page_in_requests"] => page_ins(sample),
        _ => None,
    }
}

/// Every size that the text names has to move as it says: those below 8 down, 10, 13, 14 and 15 up, 16 not up.
fn sor_sizes(sample: Sample) -> Option<Ours> {
    let [sor, sor_ours] = sample.pair(VARIED, "sor", POLICIES)?;
    let change =
        |sizes: std::ops::RangeInclusive<u32>| writes(sor_ours, sizes.clone()) - writes(sor, sizes);
    let (below, most) = (change(1..=7), change(16..=16));
    let up = [10, 13, 14, 15].map(|n| change(n..=n));
    let [ten, thirteen, fourteen, fifteen] = up;
    let text = format!(
        "{below:+.0} below 8; {ten:+.0}, {thirteen:+.0}, {fourteen:+.0}, {fifteen:+.0} of 10, 13, 14, 15; {most:+.0} of 16"
    );
    let holds = below < 0.0 && up.iter().all(|by| *by > 0.0) && most <= 0.0;
    Some(Ours::Text(text, Some(Held::once(holds))))
}

/// How far apart the two policies are in reads, of the pairs that were run.
fn page_ins(sample: Sample) -> Option<Ours> {
    let pairs = WORKLOADS
        .iter()
        .flat_map(|workload| SIZES.map(|size| (*workload, size)));
    let apart = pairs.filter_map(|(workload, size)| {
        let percent = saved(sample, size, workload, Measure::Reads)?.abs();
        Some((percent, format!("{workload}, {size}")))
    });
    let (worst, which) = apart.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let text = format!("at most {worst:.1} % apart ({which})");
    Some(Ours::Text(text, Some(Held::once(worst <= 3.0))))
}

/// All rows are measured: time and writes, and what sizes writes have.
const fn class(_: &[&str]) -> Class {
    Class::Independent
}

fn remark(keys: &[&str]) -> &'static str {
    match keys {
        ["shape", "page_in_requests"] => {
            "Which pages are in memory depends on when writes end, so that runs part ways; the pages read differ less \
             than the requests."
        }
        ["disk_writes_saved_percent", "sor", "1.7 GB"] => {
            "BSD's writes have 15.8 pages at the median, so that a policy with a buffer of 16 can save 1.4 %, and 2.5 at 1.5 GB, where they have 15.6. The 13 \
             published need BSD's to have 13.9 at most: more of a victim's neighbours would have to be clean, in use or out of memory than here."
        }
        ["shape", "sor_write_sizes"] => {
            "Each of the six has to hold. Fewer writes below 8 pages is the one that is large: thousands of writes; the others change by tens of 188,000. What is shown is \
             the first draw's."
        }
        ["elapsed_saved_percent", "sor", _] => {
            "Nearly equal runs take up to twice as long as each other, with the same reads and writes within 1 %: how the daemon's writes and the program's reads \
             follow each other on the disk decides. So this model cannot tell. With one write in flight it saves 14, 13 and 7 % at 1.3, 1.5 and 1.7 GB."
        }
        [_, "sor", _] => {
            "The paper's SOR saves far fewer writes than the same program in the MOC paper (75 %), and why is not known. Here BSD's \
             writes are nearly as long as the buffer."
        }
        _ => "",
    }
}

fn table(runs: &Runs) -> Table {
    let head = [
        "",
        "policy",
        "elapsed, s",
        "page-ins",
        "reads",
        "pages written",
        "writes",
        "pages a write",
    ];
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        for size in SIZES {
            for policy in POLICIES {
                let of = |figure: fn(&Report) -> f64| {
                    let spread = middle(runs, |s| s.report(size, workload, policy).map(figure));
                    spread.map_or_else(|| "-".to_owned(), |spread| spread.to_string())
                };
                let mut row = vec![format!("{workload}, {size}"), policy.to_owned()];
                row.push(of(|r| r.seconds().round()));
                row.push(of(|r| r.page_ins as f64));
                row.push(of(|r| r.page_in_reads as f64));
                row.push(of(|r| r.page_outs as f64));
                row.push(of(|r| r.page_out_writes as f64));
                row.push(of(Report::pages_a_write));
                rows.push(row);
            }
        }
    }
    Table {
        title: "All runs: medians over all draws, with the least and the most".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows,
    }
}

/// Figure 3(a) and (b) or 4(a) and (b) as far as the paper gives numbers: what is saved.
fn savings(runs: &Runs, number: u32, workload: &str) -> Figure {
    let claims = section("mclustering", &SIZES);
    let published = |key: &str, size: &str| {
        let claim = claims.iter().find(|c| c.keys() == [key, workload, size])?;
        match claim.published {
            Published::Number(n) => Some(n),
            Published::Text(_) => None,
        }
    };
    let mut all = Vec::new();
    for (name, key, measure) in [
        ("time", "elapsed_saved_percent", Measure::Seconds),
        ("writes", "disk_writes_saved_percent", Measure::Writes),
    ] {
        let theirs = SIZES.map(|size| published(key, size)).to_vec();
        let ours = SIZES
            .map(|size| median(runs, |s| saved(s, size, workload, measure)))
            .to_vec();
        all.push(Series::published(&format!("{name}, published"), theirs));
        all.push(Series::ours(&format!("{name}, ours"), ours));
    }
    let name = workload.to_uppercase();
    Figure {
        chart: Chart {
            title: format!(
                "Figure {number}(a) and (b): {name}, what mClustering saves of BSD's time and writes"
            ),
            unit: "%".to_owned(),
            categories: SIZES.map(str::to_owned).to_vec(),
            series: all,
            whole: false,
        },
        text: "Hollow: published.".to_owned(),
    }
}

/// The median over all draws.
fn median(runs: &Runs, figure: impl Fn(Sample) -> Option<f64>) -> Option<f64> {
    middle(runs, figure).map(|spread| spread.median)
}

/// One measure of both policies at the three sizes.
fn by_size(runs: &Runs, workload: &str, measure: Measure, policy: &str) -> Vec<Option<f64>> {
    let value = |size| {
        median(runs, |s| {
            s.report(size, workload, policy).map(|r| measure.of(r))
        })
    };
    SIZES.map(value).to_vec()
}

/// Figure 3 (LU) or 4 (SOR): time, requests, write sizes.
fn panels(runs: &Runs, number: u32, workload: &str, published: [&str; 3]) -> Vec<Figure> {
    let name = workload.to_uppercase();
    let figure =
        |panel: &str, what: &str, unit: &str, categories: Vec<String>, series, text: &str| Figure {
            chart: Chart {
                title: format!("Figure {number}({panel}): {name}, {what}"),
                unit: unit.to_owned(),
                categories,
                series,
                whole: panel == "c",
            },
            text: text.to_owned(),
        };
    let sizes = SIZES.map(str::to_owned).to_vec();
    let of = |measure, policy| by_size(runs, workload, measure, policy);
    let histogram = |policy: &str| {
        let of = |n| {
            median(runs, |s| {
                Some(writes(s.report(VARIED, workload, policy)?, n..=n))
            })
        };
        (1..=16).map(of).collect()
    };
    vec![
        figure(
            "a",
            "elapsed time",
            "s",
            sizes.clone(),
            vec![
                Series::ours("BSD", of(Measure::Seconds, "bsd")),
                Series::ours("mClustering", of(Measure::Seconds, "mclustering")),
            ],
            published[0],
        ),
        figure(
            "b",
            "page-in and page-out requests",
            "requests",
            sizes,
            vec![
                Series::ours("BSD page-out", of(Measure::Writes, "bsd")),
                Series::ours("mClustering page-out", of(Measure::Writes, "mclustering")),
                Series::ours("BSD page-in", of(Measure::Reads, "bsd")),
                Series::ours("mClustering page-in", of(Measure::Reads, "mclustering")),
            ],
            published[1],
        ),
        figure(
            "c",
            "writes by their size, 1.5 GB",
            "writes",
            (1..=16).map(|n: u32| n.to_string()).collect(),
            vec![
                Series::ours("BSD", histogram("bsd")),
                Series::ours("mClustering", histogram("mclustering")),
            ],
            published[2],
        ),
    ]
}

fn figures(runs: &Runs) -> Vec<Figure> {
    let lu = [
        "Published: 13, 16 and 18 % less time.",
        "Published: 36, 38 and 41 % fewer writes, page-ins alike.",
        "Published: BSD writes mostly 1 to 4 pages, mClustering mostly 16.",
    ];
    let sor = [
        "Published: 12, 17 and 23 % less time.",
        "Published: 5, 8 and 13 % fewer writes, page-ins alike.",
        "Published: fewer writes below 8 pages, more of 10, 13, 14 and 15, not of 16.",
    ];
    let mut figures = panels(runs, 3, "lu", lu);
    figures.push(savings(runs, 3, "lu"));
    figures.extend(panels(runs, 4, "sor", sor));
    figures.push(savings(runs, 4, "sor"));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::runs::testing::alike;

    #[test]
    fn every_published_figure_has_an_answer() {
        let runs = alike(setups());
        for claim in section("mclustering", &SIZES) {
            let ours = answer(&runs, "", &claim.keys());
            assert_ne!(ours, Ours::None, "{:?}", claim.path);
        }
    }
}
