//! The report: a page of charts that needs nothing beside itself.

use std::fmt::Write as _;

use super::gather::{Interval, Timeline};
use super::objects::{self, Series};
use crate::run::report::{grouped, quantiles};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 26.0;

/// Dark blue, orange, green: told apart without colour vision too.
const COLOURS: [&str; 3] = ["#1f4e79", "#e08214", "#4d9221"];

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0}svg{width:100%;height:auto;margin:.4rem 0}\
h2{font-size:1.05rem;margin:1.2rem 0 0}";

/// Where a line comes from: its name and its value in an interval, `None` where there is none.
type Line = (&'static str, fn(&Interval, f64) -> Option<f64>);

/// Charts: title, unit, lines. Rates are per second: the second argument is an interval's length.
const CHARTS: [(&str, &str, &[Line]); 6] = [
    (
        "Pages moved",
        "pages/s",
        &[
            ("page-ins", |i, s| Some(i.columns.page_ins as f64 / s)),
            ("page-outs", |i, s| Some(i.columns.page_outs as f64 / s)),
        ],
    ),
    (
        "Faults",
        "faults/s",
        &[
            ("minor", |i, s| Some(i.columns.minor_faults as f64 / s)),
            ("major", |i, s| Some(i.columns.major_faults as f64 / s)),
        ],
    ),
    (
        "Latency of faults",
        "us",
        &[
            ("p50", |i, _| {
                i.waits.quantile(0.5).map(|ns| ns as f64 / 1e3)
            }),
            ("p99", |i, _| {
                i.waits.quantile(0.99).map(|ns| ns as f64 / 1e3)
            }),
        ],
    ),
    (
        "Pages read ahead",
        "pages/s",
        &[
            ("touched later", |i, s| Some(i.columns.hits as f64 / s)),
            ("mapped along", |i, s| Some(i.columns.along as f64 / s)),
            ("in vain", |i, s| Some(i.columns.waste as f64 / s)),
        ],
    ),
    (
        "Size of transfers",
        "pages",
        &[
            ("a read", |i, _| mean(i.columns.page_ins, i.columns.reads)),
            ("a write", |i, _| {
                mean(i.columns.page_outs, i.columns.writes)
            }),
        ],
    ),
    (
        "In flight, at most",
        "",
        &[
            ("reads", |i, _| Some(f64::from(i.most[0]))),
            ("writes", |i, _| Some(f64::from(i.most[1]))),
            ("faults waiting", |i, _| Some(f64::from(i.most[2]))),
        ],
    ),
];

fn mean(pages: u64, requests: u64) -> Option<f64> {
    (requests > 0).then(|| pages as f64 / requests as f64)
}

/// The page.
#[must_use]
pub fn html(timeline: &Timeline) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Paging over time</title>\
         <style>{STYLE}</style></head><body>\n<h1>Paging over time</h1>\n<p>{:.2} s; {}. Intervals of {:.3} ms.</p>\n<table>\n",
        timeline.end_ns as f64 / 1e9,
        timeline.policies,
        timeline.interval_ns as f64 / 1e6
    );
    for (name, value) in facts(timeline) {
        let _ = writeln!(out, "<tr><td>{name}</td><td>{value}</td></tr>");
    }
    out += "</table>\n";
    let seconds = timeline.interval_ns as f64 / 1e9;
    for (title, unit, lines) in CHARTS {
        let _ = writeln!(out, "<h2>{title}</h2>");
        let series = lines.iter().map(|(name, value)| {
            let values = timeline.intervals.iter().map(|i| value(i, seconds));
            ((*name).to_owned(), values.collect())
        });
        out += &chart(timeline, unit, &series.collect::<Vec<Series>>());
    }
    if !timeline.objects.is_empty() {
        out += "<h2>Memory objects</h2>\n";
        out += &objects::table(&timeline.objects);
        for (title, unit, series) in objects::charts(&timeline.objects, timeline.interval_ns) {
            let _ = writeln!(out, "<h2>{title}</h2>");
            out += &chart(timeline, unit, &series);
        }
    }
    out + "</body></html>\n"
}

fn facts(timeline: &Timeline) -> Vec<(&'static str, String)> {
    let t = &timeline.total;
    let sizes = timeline
        .read_sizes
        .iter()
        .map(|(pages, reads)| format!("{pages}: {}", grouped(*reads)));
    let mut facts = vec![
        (
            "page-ins",
            format!("{} in {} reads", grouped(t.page_ins), grouped(t.reads)),
        ),
        (
            "page-outs",
            format!("{} in {} writes", grouped(t.page_outs), grouped(t.writes)),
        ),
        (
            "faults",
            format!(
                "{} minor, {} major",
                grouped(t.minor_faults),
                grouped(t.major_faults)
            ),
        ),
        (
            "read ahead",
            format!(
                "{} pages: {} touched later, {} mapped along, {} in vain",
                grouped(t.ahead),
                grouped(t.hits),
                grouped(t.along),
                grouped(t.waste)
            ),
        ),
        ("reads by pages", sizes.collect::<Vec<_>>().join(", ")),
    ];
    let waits = [
        ("minor faults", &timeline.minor),
        ("major faults", &timeline.major),
    ];
    facts.extend(
        waits
            .into_iter()
            .filter_map(|(name, histogram)| Some((name, quantiles(histogram)?))),
    );
    facts
}

fn chart(timeline: &Timeline, unit: &str, lines: &[Series]) -> String {
    let all = lines
        .iter()
        .flat_map(|line| line.1.iter().flatten().copied());
    let top = nice(all.fold(0.0, f64::max));
    let (width, height) = (WIDTH - LEFT, HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"11\">\n"
    );
    for step in 0..=2 {
        let y = TOP + height * (1.0 - f64::from(step) / 2.0);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(top * f64::from(step) / 2.0)
        );
    }
    for part in 0..=4 {
        let (x, s) = (
            LEFT + width * f64::from(part) / 4.0,
            timeline.end_ns as f64 / 1e9 * f64::from(part) / 4.0,
        );
        let anchor = if part == 4 { "end" } else { "middle" };
        let _ = writeln!(
            out,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{s:.2} s</text>",
            HEIGHT - 6.0
        );
    }
    let _ = writeln!(out, "<text x=\"4\" y=\"14\">{unit}</text>");
    let across = width / timeline.intervals.len().max(1) as f64;
    for (line, colour) in lines.iter().zip(COLOURS) {
        let mut path = String::new();
        let mut down = false;
        for (at, value) in line.1.iter().enumerate() {
            let Some(v) = *value else {
                down = false;
                continue;
            };
            let (x, y) = (
                LEFT + across * (at as f64 + 0.5),
                TOP + height * (1.0 - v / top),
            );
            let _ = write!(path, "{}{x:.1} {y:.1}", if down { "L" } else { "M" });
            down = true;
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\" stroke-linecap=\"round\"/>"
        );
    }
    let mut x = LEFT;
    for (line, colour) in lines.iter().zip(COLOURS) {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.0}\" y=\"5\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{:.0}\" y=\"14\">{}</text>",
            x + 14.0,
            line.0
        );
        x += 34.0 + 6.5 * line.0.len() as f64;
    }
    out + "</svg>\n"
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 10.0 || v == 0.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::tests::log;
    use super::*;

    #[test]
    fn every_chart_is_there_and_nothing_is_loaded() {
        let page = html(&Timeline::of(&log()).expect("a whole log"));
        assert_eq!(page.matches("<svg").count(), CHARTS.len() + 3);
        assert!(page.contains("<td>0x14000</td>"));
        assert!(page.contains("5 in 2 reads") && page.contains("1 minor, 2 major"));
        assert!(!page.contains("src=") && !page.contains("href="));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
