//! Tables 1 and 2 with our figures beside the published ones, and curves over memory.

use super::setups::{READERS, SCHEDULERS, by_memory};
use super::{asp_gain, gain, report, score, share};
use crate::paper::curves::{Curve, Curves};
use crate::paper::evaluation::{Table, short};
use crate::paper::runs::Runs;
use crate::world::Report;

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"))
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|&n| n.to_owned()).collect()
}

pub(super) fn tables(runs: &Runs) -> Vec<Table> {
    vec![table_1(runs), table_2(runs), sweep(runs), orders(runs)]
}

fn table_1(runs: &Runs) -> Table {
    let base = report(runs, "", "cfq", "page-cluster 3").map(score);
    let mut rows = Vec::new();
    for (name, reader, published) in [
        (
            "KVM (page-cluster 3)",
            "page-cluster 3",
            [Some(3417.0), Some(3632.0)],
        ),
        ("ASP", "asp", [Some(4045.0), Some(4287.0)]),
        ("ASP, two slots", "asp2", [None, None]),
    ] {
        let mut row = vec![name.to_owned()];
        for (scheduler, published) in SCHEDULERS.into_iter().zip(published) {
            let ours = report(runs, "", scheduler, reader).map(score);
            let ratio = |v: Option<f64>, base: Option<f64>| {
                let ratio = v.zip(base).map(|(v, base)| v / base);
                ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.3}"))
            };
            row.push(published.map_or_else(|| "-".to_owned(), short));
            row.push(ours.map_or_else(|| "-".to_owned(), |v| short(v.round())));
            row.push(ratio(published, Some(3417.0)));
            row.push(ratio(ours, base));
        }
        rows.push(row);
    }
    Table {
        title: "Table 1: scores, and their ratio to KVM under CFQ".to_owned(),
        head: head(&[
            "",
            "CFQ, published",
            "CFQ, ours",
            "ratio, published",
            "ratio, ours",
            "AS, published",
            "AS, ours",
            "ratio, published",
            "ratio, ours",
        ]),
        rows,
    }
}

fn table_2(runs: &Runs) -> Table {
    let mut rows = Vec::new();
    for (reader, total, hit_rate) in [
        ("page-cluster 3", 15_642, 92.2),
        ("page-cluster 4", 18_031, 83.3),
        ("page-cluster 5", 21_852, 71.2),
        ("asp", 18_770, 90.6),
    ] {
        rows.push(vec![
            format!("{reader}, published"),
            match reader {
                "asp" => "39.9 / 33.5 / 10.8 / 15.8".to_owned(),
                _ => "-".to_owned(),
            },
            short(f64::from(total)),
            format!("{:.2}", f64::from(total) / 15_642.0),
            cell(Some(hit_rate)),
            "-".to_owned(),
        ]);
        rows.extend(swap_ins(runs, reader));
    }
    for reader in ["asp, target", "asp, centred", "asp2", "asp2, target"] {
        rows.extend(swap_ins(runs, reader));
    }
    Table {
        title: "Table 2: swap-ins by their windows under CFQ, and hit rates".to_owned(),
        head: head(&[
            "",
            "windows of 8 / 16 / 24 / 32, %",
            "swap-ins",
            "of page-cluster 3",
            "hit rate, %",
            "pages a page-in",
        ]),
        rows,
    }
}

fn swap_ins(runs: &Runs, reader: &str) -> Option<Vec<String>> {
    let ours = report(runs, "", "cfq", reader)?;
    let base = report(runs, "", "cfq", "page-cluster 3")?
        .major_faults
        .max(1);
    let shares = [8, 16, 24, 32].map(|size| format!("{:.1}", share(ours, size)));
    Some(vec![
        format!("{reader}, ours"),
        shares.join(" / "),
        short(ours.major_faults as f64),
        format!("{:.2}", ours.major_faults as f64 / base as f64),
        cell(ours.hit_rate_percent()),
        format!(
            "{:.2}",
            ours.page_ins as f64 / ours.major_faults.max(1) as f64
        ),
    ])
}

/// Every run of the sweep of memory and placement.
fn sweep(runs: &Runs) -> Table {
    let mut rows = Vec::new();
    for (memory, variant) in by_memory() {
        for scheduler in SCHEDULERS {
            for (reader, ..) in READERS {
                let Some(r) = report(runs, &variant, scheduler, reader) else {
                    continue;
                };
                rows.push(vec![
                    format!("{memory} %, {scheduler}, {reader}"),
                    short(score(r).round()),
                    short(r.major_faults as f64),
                    short(r.page_ins as f64),
                    cell(r.hit_rate_percent()),
                    short(r.page_outs as f64),
                    format!("{:.0}", r.seconds()),
                ]);
            }
        }
    }
    Table {
        title: "All runs by host memory, in percent of the guests' 960 MB".to_owned(),
        head: head(&[
            "",
            "score",
            "swap-ins",
            "pages read",
            "hit rate, %",
            "pages written",
            "elapsed, s",
        ]),
        rows,
    }
}

/// An order that the paper's tables show, and whether it holds in a variant.
type Order = (&'static str, fn(&Runs, &str) -> Option<bool>);

const ORDERS: [Order; 8] = [
    ("hit rate falls from page-cluster 3 to 4 to 5", |r, v| {
        let rates = [3, 4, 5].map(|n| rate(r, v, &format!("page-cluster {n}")));
        let [three, four, five] = rates;
        Some(three? > four? && four? > five?)
    }),
    (
        "hit rate of ASP within 5 points of page-cluster 3",
        |r, v| Some((rate(r, v, "asp")? - rate(r, v, "page-cluster 3")?).abs() <= 5.0),
    ),
    (
        "ASP reads more pages a page-in than page-cluster 3",
        |r, v| {
            let linux = report(r, v, "cfq", "page-cluster 3")?;
            Some(pages_a_swap_in(report(r, v, "cfq", "asp")?) > pages_a_swap_in(linux))
        },
    ),
    ("ASP ahead of page-cluster 3 under CFQ", |r, v| {
        Some(asp_gain(r, v, "cfq")? > 0.0)
    }),
    ("ASP ahead of page-cluster 3 under anticipatory", |r, v| {
        Some(asp_gain(r, v, "anticipatory")? > 0.0)
    }),
    ("ASP with two slots ahead of ASP under CFQ", |r, v| {
        let one = report(r, v, "cfq", "asp")?;
        Some(gain(one, report(r, v, "cfq", "asp2")?) > 0.0)
    }),
    ("anticipatory ahead of CFQ with page-cluster 3", |r, v| {
        waits(r, v, "page-cluster 3")
    }),
    ("anticipatory ahead of CFQ with ASP", |r, v| {
        waits(r, v, "asp")
    }),
];

fn rate(runs: &Runs, variant: &str, reader: &str) -> Option<f64> {
    report(runs, variant, "cfq", reader)?.hit_rate_percent()
}

fn pages_a_swap_in(report: &Report) -> f64 {
    report.page_ins as f64 / report.major_faults.max(1) as f64
}

fn waits(runs: &Runs, variant: &str, reader: &str) -> Option<bool> {
    let [cfq, other] = SCHEDULERS.map(|s| report(runs, variant, s, reader));
    Some(gain(cfq?, other?) > 0.0)
}

/// At which memory sizes they hold.
fn orders(runs: &Runs) -> Table {
    let sizes = by_memory();
    let mut head = vec![String::new()];
    head.extend(sizes.iter().map(|s| format!("{} %", s.0)));
    let rows = ORDERS.map(|(name, holds)| {
        let held = sizes.iter().map(|(_, variant)| match holds(runs, variant) {
            Some(true) => "holds",
            Some(false) => "does not",
            None => "-",
        });
        let cells = std::iter::once(name).chain(held);
        cells.map(str::to_owned).collect()
    });
    Table {
        title: "Which orders hold, by host memory (ASP's windows aligned)".to_owned(),
        head,
        rows: rows.to_vec(),
    }
}

/// A curve over memory.
fn curve(
    runs: &Runs,
    name: &str,
    published: Option<f64>,
    value: &dyn Fn(&Runs, &str) -> Option<f64>,
) -> Curve {
    Curve {
        name: name.to_owned(),
        values: by_memory().iter().map(|(_, v)| value(runs, v)).collect(),
        published,
    }
}

fn over_memory(title: &str, unit: &str, curves: Vec<Curve>) -> Curves {
    Curves {
        title: title.to_owned(),
        unit: unit.to_owned(),
        over: "host memory, percent of the guests' 960 MB".to_owned(),
        places: by_memory().iter().map(|m| m.0).collect(),
        curves,
        text:
            "The paper does not publish its memory: its values are points at the right, and dashed."
                .to_owned(),
    }
}

/// Hit rates under CFQ.
fn hit_rates<const N: usize>(
    runs: &Runs,
    title: &str,
    readers: [(&str, Option<f64>); N],
) -> Curves {
    let curves = readers
        .map(|(reader, published)| curve(runs, reader, published, &|r, v| rate(r, v, reader)));
    over_memory(title, "%", curves.to_vec())
}

/// Scores by that of page-cluster 3 under the scheduler that `base` names, or else the run's own:
/// (name, scheduler, read-ahead, published).
fn scores<const N: usize>(
    runs: &Runs,
    title: &str,
    base: Option<&str>,
    lines: [(&str, &str, &str, Option<f64>); N],
) -> Curves {
    let curves = lines.map(|(name, scheduler, reader, published)| {
        curve(runs, name, published, &|r, v| {
            let base = report(r, v, base.unwrap_or(scheduler), "page-cluster 3")?;
            Some(score(report(r, v, scheduler, reader)?) / score(base))
        })
    });
    over_memory(title, "ratio", curves.to_vec())
}

fn used(runs: &Runs) -> Curves {
    let sizes = [(8, 39.9), (16, 33.5), (24, 10.8), (32, 15.8)];
    let curves = sizes.map(|(size, published)| {
        curve(runs, &format!("window {size}"), Some(published), &|r, v| {
            report(r, v, "cfq", "asp").map(|r| share(r, size))
        })
    });
    over_memory(
        "Table 2: windows of ASP under CFQ, of its swap-ins",
        "%",
        curves.to_vec(),
    )
}

pub(super) fn curves(runs: &Runs) -> Vec<Curves> {
    let (cfq, waiting) = ("cfq", "anticipatory");
    let linux = "page-cluster 3";
    let table_1 = [
        ("Linux, CFQ", cfq, linux, Some(1.0)),
        ("Linux, anticipatory", waiting, linux, Some(1.063)),
        ("ASP, CFQ", cfq, "asp", Some(1.184)),
        ("ASP, anticipatory", waiting, "asp", Some(1.255)),
    ];
    let placements = [
        ("CFQ, aligned", cfq, "asp", Some(1.183)),
        ("CFQ, at the target", cfq, "asp, target", None),
        ("CFQ, centred", cfq, "asp, centred", None),
        ("anticipatory, aligned", waiting, "asp", Some(1.18)),
        ("anticipatory, at the target", waiting, "asp, target", None),
        ("anticipatory, centred", waiting, "asp, centred", None),
    ];
    let table_2 = [
        (linux, Some(92.2)),
        ("page-cluster 4", Some(83.3)),
        ("page-cluster 5", Some(71.2)),
        ("asp", Some(90.6)),
    ];
    let kinds = ["asp", "asp, target", "asp, centred", "asp2", "asp2, target"];
    let kinds = kinds.map(|kind| (kind, (kind == "asp").then_some(90.6)));
    let swap_ins = [linux, "page-cluster 4", "page-cluster 5", "asp"].map(|reader| {
        curve(runs, reader, None, &|r, v| {
            report(r, v, cfq, reader).map(|r| r.major_faults as f64 / 1e3)
        })
    });
    vec![
        scores(
            runs,
            "Table 1: scores by that of Linux under CFQ",
            Some(cfq),
            table_1,
        ),
        scores(
            runs,
            "Scores of ASP by those of Linux, by where its window lies",
            None,
            placements,
        ),
        hit_rates(runs, "Table 2: hit rates under CFQ", table_2),
        hit_rates(
            runs,
            "Hit rates of ASP under CFQ, by its slots and where its window lies",
            kinds,
        ),
        used(runs),
        over_memory("Swap-ins under CFQ", "thousands", swap_ins.to_vec()),
    ]
}
