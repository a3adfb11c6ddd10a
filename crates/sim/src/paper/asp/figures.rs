//! Tables 1 and 2 with our figures beside the published ones, and curves over memory.

use super::orders::orders;
use super::setups::{ASP, READERS, SCHEDULERS, by_memory};
use super::{Point, head, spread};
use crate::paper::curves::{Curve, Curves};
use crate::paper::runs::Runs;
use crate::paper::spread::Spread;
use crate::paper::table::{Table, short};

fn cell(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), |s| s.to_string())
}

fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), Spread::ratio)
}

pub(super) fn tables(runs: &Runs) -> Vec<Table> {
    vec![
        table_1(runs, "Table 1: scores, and their ratio to KVM under CFQ"),
        table_2(runs),
        sweep(runs),
        orders(runs),
    ]
}

fn table_1(runs: &Runs, title: &str) -> Table {
    let row = |(name, reader, published): (&str, &str, [Option<f64>; 2])| {
        let mut row = vec![name.to_owned()];
        for (scheduler, published) in SCHEDULERS.into_iter().zip(published) {
            let own = |p: Point| p.score(scheduler, reader);
            let of_base = |p: Point| Some(own(p)? / p.score("cfq", "page-cluster 3")?);
            row.push(published.map_or_else(|| "-".to_owned(), short));
            row.push(cell(spread(runs, "", |p| own(p).map(f64::round))));
            row.push(published.map_or_else(|| "-".to_owned(), |v| format!("{:.2}", v / 3417.0)));
            row.push(ratio(spread(runs, "", of_base)));
        }
        row
    };
    let rows = [
        (
            "KVM (page-cluster 3)",
            "page-cluster 3",
            [Some(3417.0), Some(3632.0)],
        ),
        ("ASP", ASP, [Some(4045.0), Some(4287.0)]),
        ("ASP, one slot", "asp", [None, None]),
    ];
    Table {
        title: title.to_owned(),
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
        rows: rows.map(row).to_vec(),
    }
}

fn table_2(runs: &Runs) -> Table {
    let mut rows = Vec::new();
    for (reader, total, hit_rate) in [
        ("page-cluster 3", 15_642, 92.2),
        ("page-cluster 4", 18_031, 83.3),
        ("page-cluster 5", 21_852, 71.2),
        (ASP, 18_770, 90.6),
    ] {
        rows.push(vec![
            format!("{reader}, published"),
            match reader {
                ASP => "39.9 / 33.5 / 10.8 / 15.8".to_owned(),
                _ => "-".to_owned(),
            },
            short(f64::from(total)),
            format!("{:.2}", f64::from(total) / 15_642.0),
            format!("{hit_rate:.1}"),
            "-".to_owned(),
        ]);
        rows.push(swap_ins(runs, reader));
    }
    let rest = READERS
        .iter()
        .filter(|r| r.name.starts_with("asp") && r.name != ASP);
    rows.extend(rest.map(|reader| swap_ins(runs, reader.name)));
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

fn swap_ins(runs: &Runs, reader: &str) -> Vec<String> {
    let of_base = |p: Point| Some(p.swap_ins(reader)? / p.swap_ins("page-cluster 3")?);
    let shares = [8, 16, 24, 32].map(|size| cell(spread(runs, "", |p| p.share(reader, size))));
    vec![
        format!("{reader}, ours"),
        shares.join(" / "),
        cell(spread(runs, "", |p| p.swap_ins(reader))),
        ratio(spread(runs, "", of_base)),
        cell(spread(runs, "", |p| p.hit_rate(reader))),
        ratio(spread(runs, "", |p| p.pages_a_swap_in(reader))),
    ]
}

/// Every point of the sweep of memory and placement.
fn sweep(runs: &Runs) -> Table {
    let mut rows = Vec::new();
    for (memory, variant) in by_memory() {
        for scheduler in SCHEDULERS {
            for reader in &READERS {
                let over = |figure: &dyn Fn(Point) -> Option<f64>| spread(runs, &variant, figure);
                let score = over(&|p| p.score(scheduler, reader.name).map(f64::round));
                let counted = |count: fn(&crate::world::Report) -> f64| {
                    cell(over(&|p| p.report(scheduler, reader.name).map(count)))
                };
                if score.is_none() {
                    continue;
                }
                rows.push(vec![
                    format!("{memory} %, {scheduler}, {}", reader.name),
                    cell(score),
                    counted(|r| r.major_faults as f64),
                    counted(|r| r.page_ins as f64),
                    cell(over(&|p| {
                        p.report(scheduler, reader.name)?.hit_rate_percent()
                    })),
                    counted(|r| r.page_outs as f64),
                ]);
            }
        }
    }
    Table {
        title: "All points by host memory, in percent of the guests' 960 MB".to_owned(),
        head: head(&[
            "",
            "score",
            "swap-ins",
            "pages read",
            "hit rate, %",
            "pages written",
        ]),
        rows,
    }
}

/// A curve over memory.
fn curve(
    runs: &Runs,
    name: &str,
    published: Option<f64>,
    figure: &dyn Fn(Point) -> Option<f64>,
) -> Curve {
    let values = by_memory();
    let values = values.iter().map(|(_, v)| spread(runs, v, figure));
    Curve {
        name: name.to_owned(),
        values: values.collect(),
        published,
    }
}

/// Of every chart.
const BARS: &str = "Medians; bars from the least to the most of 20 draws at 53.3 %, of 5 elsewhere, as far as the axis goes.";

fn over_memory(title: &str, unit: &str, curves: Vec<Curve>) -> Curves {
    Curves {
        title: title.to_owned(),
        unit: unit.to_owned(),
        over: "host memory, percent of the guests' 960 MB".to_owned(),
        places: by_memory().iter().map(|m| m.0).collect(),
        even: false,
        text: match curves.iter().any(|curve| curve.published.is_some()) {
            true => format!(
                "{BARS} The paper does not publish its memory: its values are points at the right, and dashed."
            ),
            false => BARS.to_owned(),
        },
        curves,
    }
}

/// Hit rates under CFQ.
fn hit_rates<const N: usize>(
    runs: &Runs,
    title: &str,
    readers: [(&str, Option<f64>); N],
) -> Curves {
    let curves =
        readers.map(|(reader, published)| curve(runs, reader, published, &|p| p.hit_rate(reader)));
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
        curve(runs, name, published, &|p| {
            let base = p.score(base.unwrap_or(scheduler), "page-cluster 3")?;
            Some(p.score(scheduler, reader)? / base)
        })
    });
    over_memory(title, "ratio", curves.to_vec())
}

fn used(runs: &Runs) -> Curves {
    let sizes = [(8, 39.9), (16, 33.5), (24, 10.8), (32, 15.8)];
    let curves = sizes.map(|(size, published)| {
        curve(runs, &format!("window {size}"), Some(published), &|p| {
            p.share(ASP, size)
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
        ("ASP, CFQ", cfq, ASP, Some(1.184)),
        ("ASP, anticipatory", waiting, ASP, Some(1.255)),
    ];
    let placements = [
        ("CFQ, aligned", cfq, ASP, Some(1.183)),
        ("CFQ, at the target", cfq, "asp2, target", None),
        ("CFQ, centred", cfq, "asp2, centred", None),
        ("anticipatory, aligned", waiting, ASP, Some(1.18)),
        ("anticipatory, at the target", waiting, "asp2, target", None),
        ("anticipatory, centred", waiting, "asp2, centred", None),
    ];
    let table_2 = [
        (linux, Some(92.2)),
        ("page-cluster 4", Some(83.3)),
        ("page-cluster 5", Some(71.2)),
        (ASP, Some(90.6)),
    ];
    let kinds = [ASP, "asp2, target", "asp2, centred", "asp"];
    let kinds = kinds.map(|kind| (kind, (kind == ASP).then_some(90.6)));
    let swap_ins = [linux, "page-cluster 4", "page-cluster 5", ASP]
        .map(|reader| curve(runs, reader, None, &|p| p.swap_ins(reader).map(|n| n / 1e3)));
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
