//! Figure 3, Table 3 and what the paper leaves open.

use super::setups::{
    CONFIGURATIONS, DRAINS_MS, DRAWS, Draw, JAVA, READS, SWEPT, SWEPT_DRAWS, SYSBENCH, TWO,
    swept_key,
};
use super::{Point, Quantity, each_draw, spread};
use crate::paper::chart::{Chart, Series};
use crate::paper::curves::{Curve, Curves};
use crate::paper::evaluation::Figure;
use crate::paper::runs::Runs;
use crate::paper::spread::Spread;
use crate::paper::table::Table;

fn cell(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), |s| s.to_string())
}

fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), Spread::ratio)
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn tables(runs: &Runs) -> Vec<Table> {
    vec![
        figure_3(runs),
        table_3(runs),
        orders(runs),
        by_draw(runs),
        guests(runs),
        sweep(runs),
    ]
}

/// One of Figure 3's, rounded to MB.
fn transfers(runs: &Runs, quantity: Quantity, configuration: &str) -> Option<Spread> {
    spread(runs, |p| {
        p.quantity(quantity, configuration).map(f64::round)
    })
}

fn figure_3(runs: &Runs) -> Table {
    let row = |name: &str| {
        let mut row = vec![name.to_owned()];
        let figure = Quantity::FIGURE.iter();
        row.extend(figure.map(|(quantity, _)| cell(transfers(runs, *quantity, name))));
        row.push(cell(transfers(runs, Quantity::Double, name)));
        row.push(cell(spread(runs, |p| p.seconds(SYSBENCH, name, 0))));
        row
    };
    Table {
        title: "Figure 3: MB transferred on the host's side, of them page-ins that only a guest's page-out asks for, and seconds"
            .to_owned(),
        head: head(&["", "Disk-out", "of it the host's", "Disk-in", "of it the host's", "double paging", "seconds"]),
        rows: CONFIGURATIONS.map(row).to_vec(),
    }
}

fn table_3(runs: &Runs) -> Table {
    let seconds = |workload: &'static str, name: &'static str, guest| {
        cell(spread(runs, |p| p.seconds(workload, name, guest)))
    };
    let times =
        |workload, names, guest| ratio(spread(runs, |p: Point| p.times(workload, names, guest)));
    let one = ["KVM-768", "HSN-768"];
    let two = ["KVM", "HSN"];
    let score = |name: &'static str| cell(spread(runs, |p| p.score(name).map(f64::round)));
    let text = str::to_owned;
    let sysbench =
        |title: &str, workload, names: [&'static str; 2], guest, published: [&str; 3]| {
            let [kvm, hsn, faster] = published.map(text);
            let ours = names.map(|name| seconds(workload, name, guest));
            let [ours_kvm, ours_hsn] = ours;
            vec![
                text(title),
                kvm,
                hsn,
                faster,
                ours_kvm,
                ours_hsn,
                times(workload, names, guest),
            ]
        };
    Table {
        title: "Table 3: published, then ours; times as fast, or times the score".to_owned(),
        head: head(&[
            "",
            "KVM",
            "HSN",
            "times",
            "KVM, ours",
            "HSN, ours",
            "times, ours",
        ]),
        rows: vec![
            sysbench("Sysbench, s", SYSBENCH, one, 0, ["51.4", "32.6", "1.58"]),
            vec![
                text("SpecJBB; ours: transactions/s"),
                text("4,364"),
                text("5,492"),
                text("1.26"),
                score("KVM"),
                score("HSN"),
                ratio(spread(runs, |p| Some(p.score("HSN")? / p.score("KVM")?))),
            ],
            sysbench(
                "two guests, the first, s",
                TWO,
                two,
                0,
                ["96.9", "44.8", "2.16"],
            ),
            sysbench(
                "two guests, the second, s",
                TWO,
                two,
                1,
                ["99.2", "49.6", "2.00"],
            ),
        ],
    }
}

/// A figure of a draw.
type Margin = fn(Point) -> Option<f64>;

/// In words, the figure, and where it holds.
type Order = (&'static str, Margin, fn(f64) -> bool);

/// What the paper says, and by what it is held to hold.
const ORDERS: [Order; 8] = [
    (
        "Disk-out of HSN-768, % of KVM-1200 (95 to 105)",
        |p| p.share(Quantity::DiskOut, "KVM-1200", "HSN-768"),
        |v| (95.0..=105.0).contains(&v),
    ),
    (
        "Disk-out of KVM-768, % of KVM-1200 (above 125)",
        |p| p.share(Quantity::DiskOut, "KVM-1200", "KVM-768"),
        |v| v > 125.0,
    ),
    (
        "what the host pages out, KVM-768, % of KVM-1200 (above 90: \"not significantly reduced\")",
        |p| p.share(Quantity::HostOut, "KVM-1200", "KVM-768"),
        |v| v > 90.0,
    ),
    (
        "what the guest pages out, HSN-768, % of that of KVM-768 (90 to 110: \"the same\")",
        |p| {
            let guests = |name| {
                let swap = p.quantity(Quantity::HostOut, name)?;
                Some(p.quantity(Quantity::DiskOut, name)? - swap)
            };
            Some(100.0 * guests("HSN-768")? / guests("KVM-768")?)
        },
        |v| (90.0..=110.0).contains(&v),
    ),
    (
        "double paging of HSN-768, % of KVM-768 (at most 2)",
        |p| p.share(Quantity::Double, "KVM-768", "HSN-768"),
        |v| v <= 2.0,
    ),
    (
        "time saved by HSN-768, % (24 to 48: within 12 of 36)",
        |p| p.saved(),
        |v| (24.0..=48.0).contains(&v),
    ),
    (
        "two guests, times as fast, the slower gain (at least 1.7)",
        |p| {
            let times = |guest| p.times(TWO, ["KVM", "HSN"], guest);
            Some(times(0)?.min(times(1)?))
        },
        |v| v >= 1.7,
    ),
    (
        "SpecJBB's score, % more (at least 1)",
        |p| p.score_gain(),
        |v| v >= 1.0,
    ),
];

fn orders(runs: &Runs) -> Table {
    let row = |(name, margin, holds): Order| {
        let values = each_draw(runs, margin);
        let held = values.iter().filter(|value| holds(**value)).count();
        let median = Spread::of(values.iter().copied());
        let by_median = match median {
            None => "-",
            Some(spread) if holds(spread.median) => "yes",
            Some(_) => "no",
        };
        let of = format!("{held} of {}", values.len());
        vec![name.to_owned(), cell(median), by_median.to_owned(), of]
    };
    Table {
        title:
            "What the paper says, and whether it holds: at the median, and in how many of the draws"
                .to_owned(),
        head: head(&["", "median", "holds", "draws"]),
        rows: ORDERS.map(row).to_vec(),
    }
}

/// In words, which Sysbench, and which draws.
type Side = (&'static str, &'static str, fn(&Draw) -> bool);

/// The draws of each side of a coin, and what else Sysbench could do.
const SIDES: [Side; 5] = [
    ("CFQ", SYSBENCH, |draw| !draw.anticipatory),
    ("anticipatory", SYSBENCH, |draw| draw.anticipatory),
    ("Sysbench's own clock", SYSBENCH, |draw| draw.own_clock),
    ("the whole process", SYSBENCH, |draw| !draw.own_clock),
    ("Sysbench reads: not its default", READS, |_| true),
];

fn by_draw(runs: &Runs) -> Table {
    let row = |(name, sysbench, side): Side| {
        let of = |figure: &dyn Fn(Point) -> Option<f64>| {
            spread(runs, |p| {
                let held = Point { sysbench, ..p };
                figure(held).filter(|_| side(&Draw::of(p.seed)))
            })
        };
        let draws = (1..=DRAWS).filter(|&seed| side(&Draw::of(seed))).count();
        vec![
            name.to_owned(),
            draws.to_string(),
            cell(of(&|p| p.saved())),
            ratio(of(&|p| p.times(TWO, ["KVM", "HSN"], 0))),
            cell(of(&|p| p.score_gain())),
            cell(of(&|p| p.share(Quantity::DiskOut, "KVM-1200", "HSN-768"))),
            cell(of(&|p| p.share(Quantity::Double, "KVM-768", "HSN-768"))),
        ]
    };
    Table {
        title:
            "By what was drawn, and varied: time saved, two guests, score, Disk-out and double paging as above"
                .to_owned(),
        head: head(&[
            "",
            "draws",
            "time saved, %",
            "two guests, times",
            "score, % more",
            "Disk-out, %",
            "double paging, %",
        ]),
        rows: SIDES.map(row).to_vec(),
    }
}

/// What hiding does in the guests.
fn guests(runs: &Runs) -> Table {
    let workloads = [(SYSBENCH, "HSN-768"), (TWO, "HSN"), (JAVA, "HSN")];
    let row = |(workload, name): (&str, &str)| {
        let of = |figure: fn(&crate::guests::GuestReport) -> u64| {
            cell(spread(runs, |p| {
                Some(figure(p.report(workload, name)?.guests.first()?) as f64)
            }))
        };
        vec![
            format!("{workload}, {name}"),
            of(|guest| guest.hidden_peak),
            of(|guest| guest.drains),
            of(|guest| guest.skipped),
            of(|guest| guest.lost),
            of(|guest| guest.rescued),
        ]
    };
    Table {
        title: "Hidden pages of the first guest: the most at once, drains, entries without a page to hide, entries lost to a full ring, pages given back because memory ran out"
            .to_owned(),
        head: head(&["", "hidden at most", "drains", "skipped", "lost", "rescued"]),
        rows: workloads.map(row).to_vec(),
    }
}

/// Double paging in percent of that of KVM-768, over the draws of the sweep.
fn swept(runs: &Runs, curve: &str, drain_ms: u32) -> Option<Spread> {
    let share = |seed| {
        let base = Point::new(runs, seed).quantity(Quantity::Double, "KVM-768")?;
        let report = runs.guests(&swept_key(curve, drain_ms, seed))?;
        (base > 0.0).then(|| 100.0 * Quantity::Double.of(report) / base)
    };
    Spread::of((1..=SWEPT_DRAWS).filter_map(share))
}

/// The same as a table, with time saved.
fn sweep(runs: &Runs) -> Table {
    let saved = |curve: &str, drain_ms: u32| {
        let saved = |seed| {
            let name = if Draw::of(seed).own_clock {
                "timed"
            } else {
                "fill"
            };
            let base = Point::new(runs, seed).seconds(SYSBENCH, "KVM-768", 0)?;
            let guest = runs
                .guests(&swept_key(curve, drain_ms, seed))?
                .guests
                .first()?;
            Some(100.0 * (1.0 - guest.since(name)? as f64 / 1e9 / base))
        };
        Spread::of((1..=SWEPT_DRAWS).filter_map(saved)).map(|spread| spread.median)
    };
    let row = |(curve, _, _): (&str, u32, u32)| {
        let cells = DRAINS_MS.iter().map(|&drain_ms| {
            let double = swept(runs, curve, drain_ms).map(|spread| spread.median);
            let (double, saved) = (double?, saved(curve, drain_ms)?);
            Some(format!("{double:.1}; {saved:.0}"))
        });
        let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        [curve.to_owned()].into_iter().chain(cells).collect()
    };
    let intervals = DRAINS_MS.iter().map(|drain_ms| format!("{drain_ms} ms"));
    let rows: Vec<Vec<String>> = SWEPT.map(row).to_vec();
    let measured = rows.iter().flatten().any(|cell| cell.contains(';'));
    Table {
        title: "Drain interval, ring size and cap: double paging in % of that of KVM-768, then time saved in % (medians of 5 draws)".to_owned(),
        head: [String::new()].into_iter().chain(intervals).collect(),
        rows: if measured { rows } else { Vec::new() },
    }
}

pub(super) fn figures(runs: &Runs) -> Vec<Figure> {
    let series = CONFIGURATIONS[..3].iter().map(|name| {
        let of = |quantity| transfers(runs, quantity, name).map(|spread| spread.median);
        Series::ours(
            name,
            Quantity::FIGURE.map(|(quantity, _)| of(quantity)).to_vec(),
        )
    });
    vec![Figure {
        chart: Chart {
            title: "Figure 3: disk transfers on the host's side".to_owned(),
            unit: "MB".to_owned(),
            categories: Quantity::FIGURE.map(|(_, name)| name.to_owned()).to_vec(),
            series: series.collect(),
            whole: true,
        },
        text: "The paper prints bars without figures. It says: Disk-out of KVM-1200 is the least that has to be written; Disk-out of HSN-768 is close to it; \
               the host's part of it is not significantly less for KVM-768; the guest's part is the same for KVM-768 and HSN-768."
            .to_owned(),
    }]
}

pub(super) fn curves(runs: &Runs) -> Vec<Curves> {
    let curve = |(name, _, _): (&str, u32, u32)| Curve {
        name: name.to_owned(),
        values: DRAINS_MS
            .iter()
            .map(|&drain_ms| swept(runs, name, drain_ms))
            .collect(),
        published: None,
    };
    let curves: Vec<Curve> = SWEPT.map(curve).to_vec();
    if curves
        .iter()
        .all(|curve| curve.values.iter().all(Option::is_none))
    {
        return Vec::new();
    }
    vec![Curves {
        title: "Double paging by drain interval, ring size and cap on hidden pages".to_owned(),
        unit: "% of KVM-768".to_owned(),
        over: "drain interval, ms".to_owned(),
        places: DRAINS_MS.map(f64::from).to_vec(),
        even: true,
        curves,
        text: "Medians of 5 draws, with the least and the most. Caps are in percent of the guest's frames.".to_owned(),
    }]
}
