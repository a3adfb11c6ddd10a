//! A timeline in the JSON of Chrome's trace viewer, which ui.perfetto.dev reads too.

use std::fmt::Write as _;

use super::gather::{Kind, Span, Timeline};
use super::objects;

/// Spans in the file, at most: the viewers become slow beyond. The longest are kept.
const SPANS_MAX: usize = 200_000;

/// The document: complete events (`X`) in lanes, counters (`C`). Times in microseconds.
#[must_use]
pub fn json(timeline: &Timeline) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    out += "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"outpage\"}}";
    let kinds = [
        (Kind::Read, "read", 1000),
        (Kind::Write, "write", 2000),
        (Kind::Minor, "minor fault", 3000),
        (Kind::Major, "major fault", 3000),
    ];
    let mut lanes: Vec<(u32, u64)> = Vec::new();
    for span in kept(timeline) {
        let Some((_, name, base)) = kinds.iter().find(|k| k.0 == span.kind) else {
            continue;
        };
        let (lane, new) = lane(&mut lanes, *base, &span);
        if new {
            let what = name.rsplit(' ').next().unwrap_or(name);
            let _ = write!(
                out,
                ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{lane},\"name\":\"thread_name\",\"args\":{{\"name\":\"{what}s {}\"}}}}",
                lane - base
            );
        }
        let _ = write!(
            out,
            ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{lane},\"name\":\"{name}\",\"ts\":{:.3},\"dur\":{:.3},\
             \"args\":{{\"pages\":{},\"page\":\"{:#x}\"}}}}",
            span.from_ns as f64 / 1e3,
            (span.to_ns - span.from_ns) as f64 / 1e3,
            span.pages,
            span.page
        );
    }
    counters(&mut out, timeline);
    objects::counters(&mut out, &timeline.objects, timeline.interval_ns);
    out + "\n]}\n"
}

/// The spans in order of their beginnings.
fn kept(timeline: &Timeline) -> Vec<Span> {
    let mut spans = timeline.spans.clone();
    if spans.len() > SPANS_MAX {
        spans.sort_by_key(|s| std::cmp::Reverse(s.to_ns - s.from_ns));
        spans.truncate(SPANS_MAX);
    }
    spans.sort_by_key(|s| (s.from_ns, s.to_ns));
    spans
}

/// The first lane from `base` on that is free when `span` begins, and whether it is new: a viewer
/// draws no two spans of a lane at the same time.
fn lane(lanes: &mut Vec<(u32, u64)>, base: u32, span: &Span) -> (u32, bool) {
    let free = lanes
        .iter_mut()
        .find(|(lane, until)| (base..base + 1000).contains(lane) && *until <= span.from_ns);
    if let Some((lane, until)) = free {
        *until = span.to_ns;
        return (*lane, false);
    }
    let used = lanes
        .iter()
        .filter(|(lane, _)| (base..base + 1000).contains(lane))
        .count() as u32;
    let lane = base + used.min(999);
    lanes.push((lane, span.to_ns));
    (lane, true)
}

fn counters(out: &mut String, timeline: &Timeline) {
    for (at, interval) in timeline.intervals.iter().enumerate() {
        let ts = at as f64 * timeline.interval_ns as f64 / 1e3;
        let c = &interval.columns;
        let [reads, writes, faults] = interval.most;
        let groups = [
            (
                "pages",
                format!("\"in\":{},\"out\":{}", c.page_ins, c.page_outs),
            ),
            (
                "faults",
                format!("\"minor\":{},\"major\":{}", c.minor_faults, c.major_faults),
            ),
            (
                "read ahead",
                format!("\"hits\":{},\"waste\":{}", c.hits, c.waste),
            ),
            (
                "in flight, at most",
                format!("\"reads\":{reads},\"writes\":{writes},\"faults\":{faults}"),
            ),
        ];
        for (name, args) in groups {
            let _ = write!(
                out,
                ",\n{{\"ph\":\"C\",\"pid\":1,\"name\":\"{name}\",\"ts\":{ts:.3},\"args\":{{{args}}}}}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::tests::log;
    use super::*;

    #[test]
    fn it_is_json_with_every_span_and_no_overlap_in_a_lane() {
        let timeline = Timeline::of(&log()).expect("a whole log");
        let value: serde_json::Value = serde_json::from_str(&json(&timeline)).expect("JSON");
        let events = value["traceEvents"].as_array().expect("events");
        let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
        assert_eq!(of("X"), 6);
        // Four groups and two objects.
        assert_eq!(of("C"), (4 + 2) * timeline.intervals.len());
        let waste = events.iter().filter(|e| e["name"] == "object 0x14000");
        let waste = waste.filter_map(|e| e["args"]["waste"].as_u64());
        assert_eq!(waste.sum::<u64>(), 2);
        let faults: Vec<_> = events
            .iter()
            .filter(|e| e["name"] == "major fault")
            .collect();
        assert_eq!(
            (faults[0]["ts"].as_f64(), faults[0]["dur"].as_f64()),
            (Some(0.0), Some(2.0))
        );
        let mut lanes = Vec::new();
        let span = |from_ns, to_ns| Span {
            kind: Kind::Read,
            from_ns,
            to_ns,
            pages: 1,
            page: 0,
        };
        assert_eq!(lane(&mut lanes, 1000, &span(0, 10)), (1000, true));
        assert_eq!(lane(&mut lanes, 1000, &span(5, 15)), (1001, true));
        assert_eq!(lane(&mut lanes, 1000, &span(10, 12)), (1000, false));
    }
}
