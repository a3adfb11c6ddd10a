//! For machines.

use std::fmt::Write;

use super::{Evaluation, Ours, Published, Row};
use crate::paper::spread::Spread;

impl Evaluation {
    /// A line for each published figure.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out =
            "figure,published,ours,low95,high95,class,verdict,deviation,unit,nearest,note\n"
                .to_owned();
        for row in &self.rows {
            let number = |n: f64| format!("{n}");
            let published = match &row.claim.published {
                Published::Number(n) => number(*n),
                Published::Text(text) => quoted(text),
            };
            let ours = match &row.ours {
                Ours::Number(n) => number(*n),
                Ours::Spread(spread) => number(spread.median),
                Ours::Against(against) => quoted(&against.text),
                Ours::Text(text, _) => quoted(text),
                Ours::None => String::new(),
            };
            let (low, high) = spread(row).map_or_else(Default::default, |s| {
                (number(s.interval.0), number(s.interval.1))
            });
            let deviation = row.deviation.map(|d| format!("{d:.2}")).unwrap_or_default();
            let unit = if row.points { "points" } else { "percent" };
            let _ = writeln!(
                out,
                "{},{published},{ours},{low},{high},{},{},{deviation},{unit},{},{}",
                quoted(&row.name()),
                row.class.name(),
                row.verdict.name(),
                quoted(&row.nearest()),
                quoted(&row.note)
            );
        }
        out
    }

    /// A line for each run.
    #[must_use]
    pub fn runs_csv(&self) -> String {
        let mut out = "variant,memory,workload,policy,seed,elapsed_s,page_ins,page_in_reads,page_outs,page_out_writes,\
                       pages_per_write,disk_busy_s,error\n"
            .to_owned();
        for (key, outcome) in &self.runs {
            let _ = write!(
                out,
                "{},{},{},{},{},",
                quoted(&key.variant),
                key.memory,
                key.workload,
                quoted(&key.policy),
                key.seed
            );
            let _ = match outcome {
                Ok(r) => writeln!(
                    out,
                    "{:.3},{},{},{},{},{:.3},{:.3},",
                    r.elapsed_ns as f64 / 1e9,
                    r.page_ins,
                    r.page_in_reads,
                    r.page_outs,
                    r.page_out_writes,
                    r.page_outs as f64 / r.page_out_writes.max(1) as f64,
                    r.busy_ns as f64 / 1e9,
                ),
                Err(why) => writeln!(out, ",,,,,,,{}", quoted(why)),
            };
        }
        out
    }
}

const fn spread(row: &Row) -> Option<&Spread> {
    match &row.ours {
        Ours::Spread(spread) => Some(spread),
        Ours::Against(against) => Some(&against.spread),
        _ => None,
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'"))
}
