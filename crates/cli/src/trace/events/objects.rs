//! What read-ahead brought to each memory object over time, and what became of it.

use std::collections::HashMap;
use std::fmt::Write as _;

use outpage_core::swap_cache::SwapCache;
use outpage_core::units::{ObjectId, PAGE_BYTES, PageNo};

use crate::run::report::grouped;

/// Objects that stand in the table and in the trace: those that most was read of, as in a run's
/// statistics.
const LISTED: usize = 16;
/// Objects in a chart: as many as there are colours.
const CHARTED: usize = 3;

/// One memory object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The lowest page of it that was read.
    pub first: PageNo,
    /// The highest.
    pub last: PageNo,
    /// Over the whole time.
    pub total: SwapCache,
    /// For each interval of the timeline.
    pub intervals: Vec<SwapCache>,
}

impl Object {
    /// Where in the program's memory it begins, as far as it was read: a page's index is its address.
    pub fn address(&self) -> u64 {
        self.first.index() * PAGE_BYTES as u64
    }

    fn pages(&self) -> u64 {
        self.last.index() - self.first.index() + 1
    }
}

/// A line of a chart: its name and its value in each interval.
pub type Series = (String, Vec<Option<f64>>);

/// The objects met so far.
#[derive(Default)]
pub struct Objects(HashMap<ObjectId, Object>);

impl Objects {
    /// Counts something about `page` in interval `at` of `intervals`.
    pub fn count(
        &mut self,
        page: PageNo,
        at: usize,
        intervals: usize,
        count: impl Fn(&mut SwapCache),
    ) {
        let object = self.0.entry(page.object()).or_insert_with(|| Object {
            first: page,
            last: page,
            total: SwapCache::ZERO,
            intervals: vec![SwapCache::ZERO; intervals],
        });
        object.first = object.first.min(page);
        object.last = object.last.max(page);
        count(&mut object.total);
        count(&mut object.intervals[at]);
    }

    /// Those that most was read of first; equal ones by address.
    pub fn sorted(self) -> Vec<Object> {
        let mut all: Vec<Object> = self.0.into_values().collect();
        all.sort_by_key(|object| (std::cmp::Reverse(object.total.page_ins), object.first));
        all
    }
}

/// A line for each object and each interval in which something was read of it, or became of it.
pub fn csv(objects: &[Object], interval_ns: u64) -> String {
    let mut out = String::from(
        "object,from_s,to_s,page_ins,major_faults,read_ahead,read_ahead_hits,read_ahead_along,read_ahead_waste,hit_rate\n",
    );
    let width = interval_ns as f64 / 1e9;
    for object in objects {
        for (at, c) in object.intervals.iter().enumerate() {
            if *c == SwapCache::ZERO {
                continue;
            }
            let rate = c
                .hit_rate()
                .map_or_else(String::new, |rate| format!("{:.4}", rate.share));
            let _ = writeln!(
                out,
                "{:#x},{:.6},{:.6},{},{},{},{},{},{},{rate}",
                object.address(),
                at as f64 * width,
                (at + 1) as f64 * width,
                c.page_ins,
                c.major_faults,
                c.read_ahead,
                c.hits,
                c.mapped,
                c.waste
            );
        }
    }
    out
}

/// The table of the report.
pub fn table(objects: &[Object]) -> String {
    let mut out = String::from(
        "<table>\n<tr><td>address</td><td>pages</td><td>read</td><td>read ahead</td><td>hits</td>\
         <td>mapped along</td><td>in vain</td><td>hit rate</td></tr>\n",
    );
    for object in objects.iter().take(LISTED) {
        let c = &object.total;
        let _ = writeln!(
            out,
            "<tr><td>{:#x}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            object.address(),
            grouped(object.pages()),
            grouped(c.page_ins),
            grouped(c.read_ahead),
            grouped(c.hits),
            grouped(c.mapped),
            grouped(c.waste),
            c.hit_rate()
                .map_or_else(|| "-".into(), |rate| format!("{:.0} %", 100.0 * rate.share))
        );
    }
    out += "</table>\n";
    if objects.len() > LISTED {
        let _ = writeln!(
            out,
            "<p>{} more in objects.csv.</p>",
            objects.len() - LISTED
        );
    }
    out
}

/// Charts: title, unit, a line for each of the largest objects.
pub fn charts(
    objects: &[Object],
    interval_ns: u64,
) -> [(&'static str, &'static str, Vec<Series>); 3] {
    let seconds = interval_ns as f64 / 1e9;
    let series = |value: &dyn Fn(&SwapCache) -> Option<f64>| {
        let largest = objects.iter().take(CHARTED);
        largest
            .map(|object| {
                let name = format!("{:#x}", object.address());
                (name, object.intervals.iter().map(value).collect())
            })
            .collect()
    };
    let rate = |pages: u64| Some(pages as f64 / seconds);
    [
        (
            "Pages read by memory object",
            "pages/s",
            series(&|c| rate(c.page_ins)),
        ),
        (
            "Pages read in vain by memory object",
            "pages/s",
            series(&|c| rate(c.waste)),
        ),
        (
            "Hits of the pages read ahead and not mapped along, by memory object",
            "%",
            // Of an interval's reads and hits: a page may be touched later than it was read.
            series(&|c| c.hit_rate().map(|rate| (100.0 * rate.share).min(100.0))),
        ),
    ]
}

/// Counters of the Chrome trace.
pub fn counters(out: &mut String, objects: &[Object], interval_ns: u64) {
    for object in objects.iter().take(LISTED) {
        for (at, c) in object.intervals.iter().enumerate() {
            let _ = write!(
                out,
                ",\n{{\"ph\":\"C\",\"pid\":1,\"name\":\"object {:#x}\",\"ts\":{:.3},\
                 \"args\":{{\"read\":{},\"hits\":{},\"waste\":{}}}}}",
                object.address(),
                at as f64 * interval_ns as f64 / 1e3,
                c.page_ins,
                c.hits,
                c.waste
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Timeline;
    use super::super::gather::tests::{log, page};
    use super::*;

    /// Of `log()`: pages 7 and 8 of one object are read for a fault on 7, then 8 is touched; 20 to 22 of
    /// another for a fault on 21, whose neighbours are released.
    fn timeline() -> Timeline {
        Timeline::of(&log()).expect("a whole log")
    }

    #[test]
    fn each_object_has_its_own_counts_and_together_they_are_the_total() {
        let timeline = timeline();
        let counts = |page_ins, read_ahead, hits, waste| SwapCache {
            major_faults: 1,
            page_ins,
            read_ahead,
            hits,
            waste,
            ..SwapCache::ZERO
        };
        let [other, first] = &timeline.objects[..] else {
            panic!("{:?}", timeline.objects);
        };
        assert_eq!(other.total, counts(3, 2, 0, 2));
        assert_eq!(first.total, counts(2, 1, 1, 0));
        assert_eq!((other.first, other.pages()), (page(1, 20), 3));
        for object in &timeline.objects {
            let mut sum = SwapCache::ZERO;
            object.intervals.iter().for_each(|c| sum.add(c));
            assert_eq!(sum, object.total);
        }
        let t = &timeline.total;
        assert_eq!((t.page_ins, t.ahead, t.hits, t.waste), (5, 3, 1, 2));
    }

    #[test]
    fn table_csv_and_charts_show_them() {
        let timeline = timeline();
        let table = table(&timeline.objects);
        assert!(table.contains("<td>0x14000</td><td>3</td><td>3</td><td>2</td><td>0</td>"));
        assert!(table.contains("<td>100 %</td>") && table.contains("<td>0 %</td>"));
        let csv = csv(&timeline.objects, timeline.interval_ns);
        let of = |column: usize, object: &str| {
            let lines = csv.lines().filter(|line| line.starts_with(object));
            lines
                .map(|line| line.split(',').nth(column).expect("a column"))
                .map(|n| n.parse::<u64>().expect("a number"))
                .sum::<u64>()
        };
        assert_eq!([3, 5, 6, 8].map(|at| of(at, "0x14000,")), [3, 2, 0, 2]);
        assert_eq!([3, 5, 6, 8].map(|at| of(at, "0x7000,")), [2, 1, 1, 0]);
        let [(_, _, read), (_, _, vain), (_, _, rate)] =
            charts(&timeline.objects, timeline.interval_ns);
        assert_eq!([&read, &vain, &rate].map(Vec::len), [2, 2, 2]);
        let most = |series: &Series| series.1.iter().flatten().copied().fold(0.0, f64::max);
        assert!(most(&read[0]) > 0.0 && most(&vain[0]) > 0.0 && most(&vain[1]) == 0.0);
    }
}
