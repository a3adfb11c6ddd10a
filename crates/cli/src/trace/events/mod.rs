//! `outpage trace events`: what a pager did over time, from its event log.

mod gather;
mod objects;
mod page;
mod perfetto;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gather::{Columns, Timeline};
use outpage_core::record::Unreadable;

use crate::error::CliError;
use crate::message;
use crate::run::report::{grouped, quantiles};
use crate::trace::load::damaged;

/// Options of `outpage trace events`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The event log, as `outpage trace --log` writes it
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Directory for trace.json (Perfetto, chrome://tracing), events.csv, objects.csv and report.html
    #[arg(long, value_name = "DIR", default_value = "outpage-events")]
    out: PathBuf,
}

/// Reads the log and writes the report.
///
/// # Errors
/// [`crate::error::code::DATA`] with the offset for a damaged log; [`crate::error::code::IO`].
pub fn run(options: &Options) -> Result<ExitCode, CliError> {
    let path = &options.log;
    let bytes = std::fs::read(path).map_err(|e| CliError::unread(path, e))?;
    report(&bytes, |e| damaged(path, e), &options.out)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes charts, a Perfetto trace and CSV of the log `bytes` into `out`. Of a forked child's log the part
/// after the fork counts.
///
/// # Errors
/// What `damaged` makes of where the log cannot be read; [`crate::error::code::IO`].
pub fn report(
    bytes: &[u8],
    damaged: impl FnOnce(Unreadable) -> CliError,
    out: &Path,
) -> Result<(), CliError> {
    let timeline = Timeline::of(bytes).map_err(damaged)?;
    std::fs::create_dir_all(out).map_err(|e| CliError::unwritten(out, e))?;
    let files = [
        ("trace.json", perfetto::json(&timeline)),
        ("events.csv", csv(&timeline)),
        (
            "objects.csv",
            objects::csv(&timeline.objects, timeline.interval_ns),
        ),
        ("report.html", page::html(&timeline)),
    ];
    for (name, text) in files {
        let file = out.join(name);
        std::fs::write(&file, text).map_err(|e| CliError::unwritten(&file, e))?;
        message::line(format_args!("outpage: {}", file.display()));
    }
    message::text(format_args!("{}", summary(&timeline)));
    Ok(())
}

/// Totals and latencies, a few lines.
fn summary(timeline: &Timeline) -> String {
    let t = &timeline.total;
    let mut text = format!(
        "outpage: {:.2} s, {} faults, page-ins {} in {} reads, page-outs {} in {} writes\n",
        timeline.end_ns as f64 / 1e9,
        grouped(t.minor_faults + t.major_faults),
        grouped(t.page_ins),
        grouped(t.reads),
        grouped(t.page_outs),
        grouped(t.writes)
    );
    if let Some(share) = percent(t.hits + t.along, t.ahead) {
        let _ = writeln!(
            text,
            "  read ahead  {} pages, {} of them used ({share:.0} %): {} touched later, {} mapped along; {} in vain",
            grouped(t.ahead),
            grouped(t.hits + t.along),
            grouped(t.hits),
            grouped(t.along),
            grouped(t.waste)
        );
    }
    for (name, histogram) in [("minor", &timeline.minor), ("major", &timeline.major)] {
        if let Some(words) = quantiles(histogram) {
            let _ = writeln!(text, "  {name:<12}{words}");
        }
    }
    text
}

/// `part` of `whole` in percent; `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// A line for each interval.
fn csv(timeline: &Timeline) -> String {
    let mut out = String::from("from_s,to_s");
    for (name, _) in Columns::NAMES {
        out += ",";
        out += name;
    }
    out +=
        ",reads_in_flight_max,writes_in_flight_max,faults_waiting_max,fault_p50_us,fault_p99_us\n";
    let width = timeline.interval_ns as f64 / 1e9;
    for (at, interval) in timeline.intervals.iter().enumerate() {
        let _ = write!(
            out,
            "{:.6},{:.6}",
            at as f64 * width,
            (at + 1) as f64 * width
        );
        for (_, get) in Columns::NAMES {
            let _ = write!(out, ",{}", get(&interval.columns));
        }
        let us = |share| {
            interval
                .waits
                .quantile(share)
                .map_or_else(String::new, |ns| format!("{:.1}", ns as f64 / 1e3))
        };
        let [reads, writes, faults] = interval.most;
        let _ = writeln!(out, ",{reads},{writes},{faults},{},{}", us(0.5), us(0.99));
    }
    out
}
