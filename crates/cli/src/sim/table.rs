//! Results as a table, JSON and CSV.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use outpage_core::units::PAGE_BYTES;
use outpage_engine::config::format_size;
use outpage_sim::world::Ratio;
use serde_json::{Value, json};

use super::Output;
use super::jobs::{Job, Line};
use super::machine::bandwidth;
use super::programs::Source;
use crate::bench::summary::table;
use crate::error::CliError;
use crate::run::report::grouped;

/// Version of the JSON's layout.
const SCHEMA: u32 = 1;

/// A setting: its name, and what it is in a job.
type Setting = (&'static str, fn(&Job) -> String);

/// What may differ between two lines of a table.
const SETTINGS: [Setting; 11] = [
    ("system", |j| j.system.clone()),
    ("reclaim", |j| j.setup.policies.reclaim.clone()),
    ("page-out", |j| j.setup.policies.pageout.clone()),
    ("read-ahead", |j| j.setup.policies.readahead_text()),
    ("slots", |j| j.setup.policies.slots.clone()),
    ("tier", |j| j.setup.policies.tier.clone()),
    ("discard", |j| j.setup.policies.discard.clone()),
    ("ratio", Job::ratio),
    ("memory", memory),
    ("disk", |j| j.disk.clone()),
    ("scheduler", |j| j.setup.scheduler.clone()),
];

/// Programs that ran together, and their runs.
pub struct Runs {
    /// The programs.
    pub sources: Vec<Source>,
    /// What became of each run.
    pub lines: Vec<Line>,
}

impl Runs {
    /// The programs, as they were named.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.sources.iter().map(|s| s.text.as_str()).collect();
        names.join(" + ")
    }

    /// Of how many pages the compressed sizes were recorded, where a run goes by them.
    fn sizes_used(&self) -> String {
        let by_trace = |line: &Line| line.job.compresses() && line.job.setup.ratio == Ratio::Trace;
        if !self.lines.iter().any(by_trace) {
            return String::new();
        }
        let recorded: usize = self.sources.iter().map(Source::sizes).sum();
        let pages: u64 = self.sources.iter().map(Source::footprint).sum();
        let [recorded, pages] = [recorded as u64, pages].map(grouped);
        format!("; compressed sizes of {recorded} of its {pages} pages")
    }

    /// What the programs touch, as people write it.
    fn touched(&self) -> String {
        let footprint: u64 = self.sources.iter().map(Source::footprint).sum();
        format_size(footprint * PAGE_BYTES as u64)
    }
}

/// The table: what is the same in all lines stands above it.
#[must_use]
pub fn text(all: &[Runs]) -> String {
    let lines = || all.iter().flat_map(|runs| &runs.lines);
    let Some(first) = lines().next() else {
        return String::new();
    };
    let one = all.len() == 1;
    let mut out = String::new();
    if one {
        let sizes = all[0].sizes_used();
        let _ = writeln!(out, "{} ({}{sizes})", all[0].name(), all[0].touched());
    }
    let varies = |get: &fn(&Job) -> String| lines().any(|l| get(&l.job) != get(&first.job));
    let (varied, fixed): (Vec<_>, Vec<_>) = SETTINGS.iter().partition(|s| varies(&s.1));
    let pooled = lines().any(|line| line.job.compresses());
    let fixed = fixed
        .iter()
        .filter(|s: &&&Setting| pooled || s.0 != "ratio")
        .map(|(name, get)| format!("{name} {}", get(&first.job)));
    let _ = writeln!(out, "{}\n", fixed.collect::<Vec<_>>().join(", "));
    let bounded = lines().any(|line| line.bound.is_some());
    let names = varied.iter().map(|s| s.0);
    let mut rows = vec![head(one, names, pooled, bounded)];
    for runs in all {
        for line in &runs.lines {
            let mut row = if one {
                Vec::new()
            } else {
                vec![runs.name(), runs.touched()]
            };
            row.extend(varied.iter().map(|s| s.1(&line.job)));
            row.extend(figures(line, pooled, bounded));
            rows.push(row);
        }
    }
    out += &table(&rows);
    if bounded {
        out += "\nfloor: page-ins and page-outs that no policy can save; floor s: their time at the disk's best rate\n";
    }
    for runs in all {
        let name = if one {
            String::new()
        } else {
            format!("{}, ", runs.name())
        };
        out += &bounds_note(&name, &runs.lines);
    }
    if one {
        out += &programs(&all[0]);
    }
    out
}

/// The names of the columns, those of what differs between lines among them.
fn head<'a>(
    one: bool,
    varied: impl Iterator<Item = &'a str>,
    pooled: bool,
    bounded: bool,
) -> Vec<String> {
    let programs: &[&str] = if one { &[] } else { &["program", "touches"] };
    let pool: &[&str] = if pooled { &POOL_HEADS } else { &[] };
    let floor: &[&str] = if bounded { &FLOOR_HEADS } else { &[] };
    let figures = [&HEADS[..], pool, floor].concat();
    let all = programs.iter().copied().chain(varied).chain(figures);
    all.map(str::to_owned).collect()
}

const HEADS: [&str; 9] = [
    "seconds",
    "major faults",
    "page-ins",
    "hits",
    "waste",
    "reads",
    "page-outs",
    "writes",
    "pages/write",
];
/// Columns beside what no policy can save.
const FLOOR_HEADS: [&str; 4] = ["floor in", "floor out", "over floor", "floor s"];
/// Columns of tables in which a run has a pool of compressed pages.
const POOL_HEADS: [&str; 4] = ["pool hits", "compressed", "demoted", "pool"];

fn figures(line: &Line, pooled: bool, bounded: bool) -> Vec<String> {
    let r = match &line.report {
        Ok(report) => report,
        Err(why) => return vec![why.clone()],
    };
    let mut cells = vec![
        format!("{:.3}", r.seconds()),
        grouped(r.major_faults),
        grouped(r.page_ins),
        r.ahead_used.map_or_else(|| "-".into(), grouped),
        r.ahead_in_vain.map_or_else(|| "-".into(), grouped),
        grouped(r.page_in_reads),
        grouped(r.page_outs),
        grouped(r.page_out_writes),
        format!("{:.1}", r.pages_a_write()),
    ];
    if pooled {
        let pool = r.pool_frames_peak * PAGE_BYTES as u64;
        let figures = [r.pool_hits, r.compressed, r.demoted].map(grouped);
        cells.extend(match line.job.compresses() {
            true => figures.into_iter().chain([format_size(pool)]).collect(),
            false => vec!["-".to_owned(); POOL_HEADS.len()],
        });
    }
    if bounded {
        cells.extend(match line.bound {
            None => vec!["-".to_owned(); 4],
            Some(bound) => vec![
                grouped(bound.floor.page_ins),
                grouped(bound.floor.page_outs),
                above(line).map_or_else(|| "-".into(), |a| format!("{a:+.1} %")),
                floor_seconds(line).map_or_else(|| "-".into(), |s| format!("{s:.3}")),
            ],
        });
    }
    cells
}

/// Transfers beyond the floor, percent of it; `None` where the floor is nothing.
#[must_use]
pub fn above(line: &Line) -> Option<f64> {
    let (report, bound) = (line.report.as_ref().ok()?, line.bound?);
    let floor = bound.floor.page_ins + bound.floor.page_outs;
    let moved = report.page_ins + report.page_outs;
    (floor > 0).then(|| 100.0 * (moved as f64 / floor as f64 - 1.0))
}

/// The memory that a job had, as people write it.
#[must_use]
pub fn memory(job: &Job) -> String {
    format_size(job.setup.frames * PAGE_BYTES as u64)
}

/// Seconds that the disk needs for the floor at its best rate.
#[must_use]
pub fn floor_seconds(line: &Line) -> Option<f64> {
    let time = line.bound?.floor.time(bandwidth(&line.job.setup)?);
    Some(time.0 as f64 / 1e9)
}

/// The references and the bounds at each size of memory, a line each, behind `name`.
fn bounds_note(name: &str, lines: &[Line]) -> String {
    let mut out = String::new();
    let mut sizes: Vec<_> = lines
        .iter()
        .filter_map(|l| Some((l.job.setup.frames, l.bound?)))
        .collect();
    sizes.sort_by_key(|s| s.0);
    sizes.dedup_by_key(|s| s.0);
    for (frames, bound) in sizes {
        let _ = writeln!(
            out,
            "{name}{}: {} references to {} pages; misses of the optimum {}, of LRU {}",
            format_size(frames * PAGE_BYTES as u64),
            grouped(bound.references),
            grouped(bound.distinct),
            grouped(bound.opt_misses),
            grouped(bound.lru_misses)
        );
    }
    out
}

/// Each program's share, when there are several.
fn programs(runs: &Runs) -> String {
    let [line] = &runs.lines[..] else {
        return String::new();
    };
    let Ok(report) = &line.report else {
        return String::new();
    };
    if runs.sources.len() < 2 {
        return String::new();
    }
    let head = [
        "program",
        "seconds",
        "cpu s",
        "faults",
        "page-ins",
        "page-outs",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for p in &report.programs {
        rows.push(vec![
            p.name.clone(),
            format!("{:.3}", p.elapsed_ns as f64 / 1e9),
            format!("{:.3}", p.cpu_ns as f64 / 1e9),
            grouped(p.faults),
            grouped(p.pages_in),
            grouped(p.pages_out),
        ]);
    }
    format!("\n{}", table(&rows))
}

/// Every run as JSON.
#[must_use]
pub fn json(of: &Runs) -> Value {
    let runs: Vec<Value> = of.lines.iter().map(run_json).collect();
    let names: Vec<&str> = of.sources.iter().map(|s| s.text.as_str()).collect();
    json!({"schema": SCHEMA, "programs": names, "runs": runs})
}

fn run_json(line: &Line) -> Value {
    let mut setup = json!(line.job.setup);
    if let Some(map) = setup.as_object_mut() {
        map.remove("programs");
    }
    let (report, error) = match &line.report {
        Ok(report) => (json!(report), Value::Null),
        Err(why) => (Value::Null, json!(why)),
    };
    json!({
        "system": line.job.system,
        "disk": line.job.disk,
        "setup": setup,
        "report": report,
        "error": error,
        "bounds": line.bound,
        "over_floor_percent": above(line),
        "floor_seconds": floor_seconds(line),
    })
}

/// A line for each run, with a header.
#[must_use]
pub fn csv(all: &[Runs]) -> String {
    let mut out = "programs,system,reclaim,pageout,readahead,slots,tier,discard,ratio,memory_bytes,disk,scheduler,elapsed_s,major_faults,minor_faults,\
                   page_ins,hits,waste,page_in_reads,page_outs,page_out_writes,pool_hits,compressed,unfit,demoted,pool_bytes,opt_misses,floor_page_ins,floor_page_outs,error\n"
        .to_owned();
    for runs in all {
        let name = quoted(&runs.name());
        for line in &runs.lines {
            let _ = write!(out, "{name},");
            csv_line(line, &mut out);
        }
    }
    out
}

fn csv_line(line: &Line, out: &mut String) {
    let j = &line.job;
    let p = &j.setup.policies;
    let readahead = p.readahead_text();
    let ratio = j.ratio();
    let policies = [
        &p.reclaim, &p.pageout, &readahead, &p.slots, &p.tier, &p.discard, &ratio,
    ];
    let settings = policies.map(|s| quoted(s)).join(",");
    let memory = j.setup.frames * PAGE_BYTES as u64;
    let _ = write!(
        out,
        "{},{settings},{memory},{},{},",
        quoted(&j.system),
        quoted(&j.disk),
        quoted(&j.setup.scheduler)
    );
    let _ = match &line.report {
        Ok(r) => write!(
            out,
            "{:.6},{},{},{},{},{},{},{},{},{},{},{},{},{},",
            r.seconds(),
            r.major_faults,
            r.minor_faults,
            r.page_ins,
            r.ahead_used.map_or_else(String::new, |n| n.to_string()),
            r.ahead_in_vain.map_or_else(String::new, |n| n.to_string()),
            r.page_in_reads,
            r.page_outs,
            r.page_out_writes,
            r.pool_hits,
            r.compressed,
            r.unfit,
            r.demoted,
            r.pool_frames_peak * PAGE_BYTES as u64
        ),
        Err(_) => write!(out, ",,,,,,,,,,,,,,"),
    };
    let _ = match line.bound {
        Some(b) => write!(
            out,
            "{},{},{},",
            b.opt_misses, b.floor.page_ins, b.floor.page_outs
        ),
        None => write!(out, ",,,"),
    };
    let _ = writeln!(
        out,
        "{}",
        line.report
            .as_ref()
            .err()
            .map(|why| quoted(why))
            .unwrap_or_default()
    );
}

/// A cell of CSV (RFC 4180): quoted where it has to be.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Writes what `output` asks for.
///
/// # Errors
/// [`crate::error::code::IO`].
pub fn write(runs: &Runs, output: &Output) -> Result<(), CliError> {
    if let Some(file) = &output.json {
        put(file, &format!("{:#}\n", json(runs)))?;
    }
    if let Some(file) = &output.csv {
        put(file, &csv(std::slice::from_ref(runs)))?;
    }
    Ok(())
}

/// Writes `text` to `file`, or to standard output if that is "-".
///
/// # Errors
/// [`crate::error::code::IO`].
pub fn put(file: &Path, text: &str) -> Result<(), CliError> {
    let written = if file.as_os_str() == "-" {
        std::io::stdout().write_all(text.as_bytes())
    } else {
        std::fs::write(file, text)
    };
    written.map_err(|e| CliError::unwritten(file, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_needed() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
