//! The MOC paper's tables and figures, from our runs.

use super::setups::{CLUSTERS, LARGE, POLICIES, SMALL, VARIATIONS};
use super::{PAIRS, memory_of, saved};
use crate::paper::chart::{Chart, Series};
use crate::paper::claims::{Published, section};
use crate::paper::ensemble::{Sample, middle};
use crate::paper::evaluation::Figure;
use crate::paper::runs::{Measure, Runs, variation_table};
use crate::paper::table::{Table, short};
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
            let ours = middle(runs, |s| {
                s.report(memory, workload, policy).map(|r| measure.of(r))
            });
            row.push(ours.map_or("-".to_owned(), |ours| ours.to_string()));
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

/// Of a microbenchmark, over all draws.
fn seconds(runs: &Runs, workload: &str, policy: &str) -> String {
    let spread = middle(runs, |s| {
        s.report(SMALL, workload, policy).map(Report::seconds)
    });
    spread.map_or("-".to_owned(), |spread| spread.to_string())
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
        let workload = format!("micro {c}");
        let Some([bsd, moc]) = runs.pair("", SMALL, &workload, POLICIES) else {
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
            seconds(runs, &workload, "bsd"),
            seconds(runs, &workload, "moc"),
        ]);
    }
    let varied = PAIRS.map(|(m, w)| variation_table(runs, VARIATIONS, m, w, POLICIES));
    let mut tables = vec![
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
    ];
    tables.extend(varied);
    tables
}

/// The median over all draws.
fn median(runs: &Runs, figure: impl Fn(Sample) -> Option<f64>) -> Option<f64> {
    middle(runs, figure).map(|spread| spread.median)
}

/// The published number of a claim.
fn published(keys: &[&str]) -> Option<f64> {
    let claims = section("moc", &[]);
    match claims.iter().find(|c| c.keys() == keys)?.published {
        Published::Number(n) => Some(n),
        Published::Text(_) => None,
    }
}

/// A table of the paper as a chart.
fn table_chart(
    runs: &Runs,
    (title, unit): (&str, &str),
    key: &str,
    cases: &[(&str, &str)],
    measure: Measure,
) -> Figure {
    let mut all = Vec::new();
    for policy in POLICIES {
        let name = policy.to_uppercase();
        let theirs = cases.iter().map(|(m, w)| published(&[key, m, w, policy]));
        let ours = cases
            .iter()
            .map(|(m, w)| median(runs, |s| s.report(m, w, policy).map(|r| measure.of(r))));
        all.push(Series::published(
            &format!("{name}, published"),
            theirs.collect(),
        ));
        all.push(Series::ours(&format!("{name}, ours"), ours.collect()));
    }
    Figure {
        chart: Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            categories: cases.iter().map(|(m, w)| format!("{w}, {m}")).collect(),
            series: all,
            whole: false,
        },
        text: "Hollow: published.".to_owned(),
    }
}

/// The savings that the text gives for figures 10 to 13 and 16.
fn savings(runs: &Runs) -> Figure {
    let small = "memory_512mb";
    let cases = [
        (small, "ns2"),
        (small, "sor"),
        (small, "lu"),
        (small, "all"),
        ("memory_1gb", "all_larger"),
    ];
    let mut all = Vec::new();
    for (name, key, measure) in [
        (
            "page-out requests",
            "pageout_requests_saved_percent",
            Measure::Writes,
        ),
        ("time", "elapsed_saved_percent", Measure::Seconds),
    ] {
        let theirs = cases.iter().map(|(m, w)| published(&[key, m, w]));
        let ours = cases
            .iter()
            .map(|(m, w)| median(runs, |s| saved(s, memory_of(m), w, measure)));
        all.push(Series::published(
            &format!("{name}, published"),
            theirs.collect(),
        ));
        all.push(Series::ours(&format!("{name}, ours"), ours.collect()));
    }
    Figure {
        chart: Chart {
            title: "What MOC saves of BSD's page-out requests and time".to_owned(),
            unit: "%".to_owned(),
            categories: cases
                .iter()
                .map(|(m, w)| format!("{w}, {}", memory_of(m)))
                .collect(),
            series: all,
            whole: false,
        },
        text: "Hollow: published.".to_owned(),
    }
}

/// Page-in and page-out requests of one pair, as in figures 10 to 13, 15 and 16.
fn requests(runs: &Runs, number: u32, memory: &str, workload: &str, published: &str) -> Figure {
    let values = |policy: &str| {
        let of = |m: Measure| {
            median(runs, |s| {
                s.report(memory, workload, policy).map(|r| m.of(r))
            })
        };
        [Measure::Reads, Measure::Writes].map(of).to_vec()
    };
    Figure {
        chart: Chart {
            title: format!("Figure {number}: page-in and page-out requests, {workload}, {memory}"),
            unit: "requests".to_owned(),
            categories: vec!["page-in".to_owned(), "page-out".to_owned()],
            series: vec![
                Series::ours("BSD", values("bsd")),
                Series::ours("MOC", values("moc")),
            ],
            whole: false,
        },
        text: format!(
            "Published: {published}. Here: {} % fewer page-out requests.",
            median(runs, |s| saved(s, memory, workload, Measure::Writes))
                .map_or("-".to_owned(), short)
        ),
    }
}

/// Writes of each size from 1 to 16 pages.
fn histogram(runs: &Runs, number: u32, policies: &[&str], text: &str) -> Figure {
    let values = |policy: &str| {
        let count = |pages| {
            median(runs, |s| {
                let sizes = &s.report(SMALL, "all", policy)?.write_sizes;
                let of = sizes.iter().find(|size| size.0 == pages);
                Some(of.map_or(0.0, |size| size.1 as f64))
            })
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
                .map(|p| Series::ours(&p.to_uppercase(), values(p)))
                .collect(),
            whole: true,
        },
        text: text.to_owned(),
    }
}

pub(super) fn figures(runs: &Runs) -> Vec<Figure> {
    let micro = |variant: &str, policy: &str| {
        let time = |c: &u64| {
            let workload = format!("micro {c}");
            let seconds = |s: Sample| s.report(SMALL, &workload, policy).map(Report::seconds);
            if variant.is_empty() {
                return median(runs, seconds);
            }
            runs.report(variant, SMALL, &workload, policy)
                .map(Report::seconds)
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
            series: vec![Series::ours("BSD", micro(variant, "bsd")), Series::ours("MOC", micro(variant, "moc"))],
            whole: false,
        },
        text: "Published as bars without figures: MOC is faster up to clusters of 8 pages, alike from 10 on, and slower \
               at 6 than at 8, because two clusters of 6 leave 4 of 16 pages empty."
            .to_owned(),
    }
    };
    let small: Vec<_> = PAIRS[..4].to_vec();
    let large = &PAIRS[4..];
    let time = |title: &str, cases: &[_]| {
        table_chart(runs, (title, "s"), "elapsed", cases, Measure::Seconds)
    };
    let pages = |title: &str, cases: &[_]| {
        let what = (title, "pages");
        table_chart(runs, what, "pages_written", cases, Measure::PagesWritten)
    };
    vec![
        time("Table 1: elapsed time, 512 MB", &small),
        time("Tables 1 and 2: elapsed time, 1 GB", large),
        pages("Table 3: pages written", &PAIRS[..5]),
        savings(runs),
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
