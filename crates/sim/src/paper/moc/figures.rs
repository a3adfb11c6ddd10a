//! The MOC paper's tables and figures, from our runs.

use super::setups::{CLUSTERS, LARGE, POLICIES, SMALL, VARIATIONS};
use super::{pair, saved};
use crate::paper::chart::{Chart, Series};
use crate::paper::claims::{Published, section};
use crate::paper::evaluation::{Figure, Table, short};
use crate::paper::runs::{Measure, Runs};
use crate::world::Report;

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
                Some(Published::Number(n)) => short(*n),
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

pub(super) fn tables(runs: &Runs) -> Vec<Table> {
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

pub(super) fn figures(runs: &Runs) -> Vec<Figure> {
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
