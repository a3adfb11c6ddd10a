//! What `outpage bench programs` prints, stores and draws.

use outpage_sim::paper::{Chart, Series};
use serde::Serialize;

use super::super::launch::{Ending, Run};
use super::super::machine::IoCounts;
use super::super::summary::{Spread, table};
use super::zram::Seen;

/// Groups of bars that fit side by side with their names.
const GROUPS: usize = 5;
/// The width and the height of a chart, as its view box has them.
const CHART: (usize, usize) = (720, 300);

/// A program that was not run.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    /// Its name.
    pub program: &'static str,
    /// What is missing, and the Debian package that has it; or which limit it is too small for.
    pub why: String,
}

/// A run without a limit, with which all others are compared.
#[derive(Clone, Debug, Serialize)]
pub struct Reference {
    /// The program's name.
    pub program: &'static str,
    /// What kind of program it is.
    pub kind: &'static str,
    /// The size that it was run at.
    pub size: u32,
    /// Elapsed seconds.
    pub seconds: f64,
    /// Of what it printed.
    pub checksum: String,
    /// The most anonymous memory of all its processes together, in bytes.
    pub peak_bytes: u64,
    /// The most that its cgroup was charged with, files and the kernel's tables included, in bytes.
    pub charged_peak_bytes: Option<u64>,
}

/// One run as it is stored.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The program's name.
    pub program: &'static str,
    /// The limit, in percent of the peak.
    pub at_percent: u32,
    /// From 1 up.
    pub round: u32,
    /// What it ran under.
    pub system: String,
    /// Load average of the minute before.
    pub load_average: f64,
    /// The limit, Outpage's own memory and zram's included, in bytes.
    pub limit_bytes: Option<u64>,
    /// What of it `outpage run` was given, in bytes.
    pub given_bytes: Option<u64>,
    /// What came out.
    #[serde(flatten)]
    pub run: Run,
    /// Disk and swap counters over the run.
    pub io: IoCounts,
    /// What was seen of zram.
    pub zram: Option<Seen>,
    /// What `outpage run --stats` wrote.
    pub outpage_stats: Option<serde_json::Value>,
}

/// A system's times of one program at one limit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// Elapsed seconds; `None` when no run finished, or was ended as too long.
    pub seconds: Option<Spread>,
    /// Whether runs took longer than they were allowed to: then the seconds are at least so many.
    pub at_least: bool,
    /// Median over the median without a limit.
    pub ratio: Option<f64>,
    /// Runs that the OOM killer ended.
    pub oom_killed: usize,
    /// Runs that had more memory than the limit, zram's included: what they hold does not compress so far.
    pub over: usize,
    /// Runs that failed, or printed something else.
    pub failed: usize,
}

/// One line of the table: a program at a limit.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The program's name.
    pub program: &'static str,
    /// The most anonymous memory of a run without a limit, in bytes.
    pub peak_bytes: u64,
    /// The limit, in percent of that.
    pub at_percent: u32,
    /// In the order of the systems.
    pub cells: Vec<Cell>,
}

/// One system at one limit, over the programs.
#[derive(Clone, Debug, Serialize)]
pub struct Mean {
    /// What the programs ran under.
    pub system: String,
    /// The limit, in percent of the peak.
    pub at_percent: u32,
    /// Geometric mean of the ratios to no limit, over the programs that have one.
    pub ratio: Option<f64>,
    /// How many programs have one.
    pub programs: usize,
    /// The same over the programs that have one under every system.
    pub ratio_common: Option<f64>,
    /// How many those are.
    pub programs_common: usize,
    /// Whether a run was ended as too long: then the means are at least so much.
    pub at_least: bool,
    /// The program with the largest ratio.
    pub slowest: Option<&'static str>,
    /// That ratio.
    pub slowest_ratio: Option<f64>,
    /// Runs that the OOM killer ended.
    pub oom_killed: usize,
}

/// Bytes in MiB.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Medians and ratios of every program at every limit.
pub fn summarise(
    references: &[&Reference],
    records: &[Record],
    systems: &[String],
    at: &[u32],
) -> Vec<Line> {
    let mut lines = Vec::new();
    for &at_percent in at {
        for reference in references {
            let here = |record: &&Record| {
                record.program == reference.program && record.at_percent == at_percent
            };
            let here: Vec<&Record> = records.iter().filter(here).collect();
            if here.is_empty() {
                continue;
            }
            let times = |system: &String| cell(&here, system, &reference.checksum);
            let mut cells: Vec<Cell> = systems.iter().map(times).collect();
            let unlimited = systems.iter().position(|name| name == "unlimited");
            let free = unlimited.and_then(|at| cells[at].seconds);
            let free = free.map_or(reference.seconds, |spread| spread.median);
            for cell in &mut cells {
                cell.ratio = cell.seconds.map(|spread| spread.median / free);
            }
            lines.push(Line {
                program: reference.program,
                peak_bytes: reference.peak_bytes,
                at_percent,
                cells,
            });
        }
    }
    lines
}

fn cell(records: &[&Record], system: &str, checksum: &str) -> Cell {
    let mut cell = Cell::default();
    let mut seconds = Vec::new();
    for record in records.iter().filter(|record| record.system == system) {
        let limit = record.limit_bytes.unwrap_or(u64::MAX);
        let over = |seen: Seen| seen.over(limit) > 0;
        cell.over += usize::from(record.zram.is_some_and(over));
        match &record.run.ending {
            Ending::Finished { report } if report.checksum == checksum => {
                seconds.push(record.run.wall_seconds);
            }
            Ending::TimedOut => {
                seconds.push(record.run.wall_seconds);
                cell.at_least = true;
            }
            Ending::OomKilled { .. } => cell.oom_killed += 1,
            Ending::Finished { .. } | Ending::Failed { .. } => cell.failed += 1,
        }
    }
    // A run that was too long is not repeated, so it outweighs those that were not.
    if cell.at_least {
        let most = seconds.iter().copied().fold(0.0, f64::max);
        seconds = vec![most];
    }
    cell.seconds = Spread::of(&seconds);
    cell
}

/// Geometric means over the programs, a line for each limit and system.
pub fn means(lines: &[Line], systems: &[String], at: &[u32]) -> Vec<Mean> {
    let mut means = Vec::new();
    for &at_percent in at {
        let here = lines.iter().filter(|line| line.at_percent == at_percent);
        let here: Vec<&Line> = here.collect();
        let common = |line: &&&Line| line.cells.iter().all(|cell| cell.ratio.is_some());
        let common: Vec<&Line> = here.iter().filter(common).copied().collect();
        for (column, system) in systems.iter().enumerate() {
            let ratios = |lines: &[&Line]| -> Vec<f64> {
                let cells = lines.iter().map(|line| line.cells[column].ratio);
                cells.flatten().collect()
            };
            let slowest = here
                .iter()
                .filter_map(|line| Some((line.program, line.cells[column].ratio?)))
                .max_by(|one, other| one.1.total_cmp(&other.1));
            let cells = here.iter().map(|line| &line.cells[column]);
            means.push(Mean {
                system: system.clone(),
                at_percent,
                ratio: geometric(&ratios(&here)),
                programs: ratios(&here).len(),
                ratio_common: geometric(&ratios(&common)),
                programs_common: common.len(),
                at_least: cells.clone().any(|cell| cell.at_least),
                slowest: slowest.map(|(program, _)| program),
                slowest_ratio: slowest.map(|(_, ratio)| ratio),
                oom_killed: cells.map(|cell| cell.oom_killed).sum(),
            });
        }
    }
    means
}

fn geometric(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.seconds, self.at_least) {
            (Some(seconds), true) => write!(f, "> {:.0}", seconds.median)?,
            (Some(seconds), false) => write!(f, "{seconds}")?,
            (None, _) => write!(f, "-")?,
        }
        if let Some(ratio) = self.ratio {
            write!(f, " {ratio:.1}x")?;
        }
        let endings = [
            (self.oom_killed, "OOM"),
            (self.over, "over"),
            (self.failed, "failed"),
        ];
        for (count, what) in endings.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, " ({count} {what})")?;
        }
        Ok(())
    }
}

/// The tables for people: times, means, then what memory and disk saw.
pub fn render(lines: &[Line], means: &[Mean], systems: &[String], records: &[Record]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    let mut times = vec![words("program|peak MiB|limit")];
    times[0].extend(systems.iter().cloned());
    for line in lines {
        let mut row = vec![
            line.program.to_owned(),
            format!("{:.1}", mib(line.peak_bytes)),
            format!("{} %", line.at_percent),
        ];
        row.extend(line.cells.iter().map(Cell::to_string));
        times.push(row);
    }
    let mut overall = vec![words(
        "system|limit|geometric mean|programs|where all ended|programs|slowest|OOM",
    )];
    overall.extend(means.iter().map(mean_row));
    let mut memory = vec![words(
        "medians|limit MiB|charged MiB|zram MiB|with zram MiB|page-ins|reads|KiB each|writes|CPU s",
    )];
    for line in lines {
        memory.extend(
            systems
                .iter()
                .filter_map(|name| memory_row(line, name, records)),
        );
    }
    let loads: Vec<f64> = records.iter().map(|record| record.load_average).collect();
    let load = Spread::of(&loads).map_or_else(String::new, |load| load.to_string());
    format!(
        "\nElapsed seconds: median [least-most], and how many times as long as without a limit. OOM: killed for want of \
         memory; over: cgroup and zram took more than the limit together.\n{}\n{}\n{}\nLoad average: {load}\n",
        table(&times),
        table(&overall),
        table(&memory)
    )
}

fn mean_row(mean: &Mean) -> Vec<String> {
    let sign = if mean.at_least { "> " } else { "" };
    let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |r| format!("{sign}{r:.2}x"));
    let slowest = mean.slowest.zip(mean.slowest_ratio);
    vec![
        mean.system.clone(),
        format!("{} %", mean.at_percent),
        times(mean.ratio),
        mean.programs.to_string(),
        times(mean.ratio_common),
        mean.programs_common.to_string(),
        slowest.map_or_else(|| "-".into(), |(name, ratio)| format!("{name} {ratio:.1}x")),
        mean.oom_killed.to_string(),
    ]
}

fn memory_row(line: &Line, system: &str, records: &[Record]) -> Option<Vec<String>> {
    let here = |record: &&Record| {
        (record.program, record.at_percent, &*record.system)
            == (line.program, line.at_percent, system)
    };
    let median = |value: &dyn Fn(&Record) -> Option<f64>| {
        let values: Vec<f64> = records.iter().filter(here).filter_map(value).collect();
        Spread::of(&values).map(|spread| spread.median)
    };
    let text = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
    };
    let limit = median(&|r| r.limit_bytes.map(mib))?;
    let page_ins = |r: &Record| match &r.outpage_stats {
        Some(stats) => stats.get("page_ins")?.as_f64(),
        None => Some(r.io.pswpin as f64),
    };
    Some(vec![
        format!("{} {} %, {system}", line.program, line.at_percent),
        text(Some(limit), 1),
        text(median(&|r| r.run.cgroup_peak_bytes.map(mib)), 1),
        text(median(&|r| Some(mib(r.zram?.zram_peak_bytes))), 1),
        text(median(&|r| Some(mib(r.zram?.together_peak_bytes))), 1),
        text(median(&page_ins), 0),
        text(median(&|r| Some(r.io.reads as f64)), 0),
        text(
            median(&|r| Some(r.io.read_bytes as f64 / 1024.0 / r.io.reads.max(1) as f64)),
            0,
        ),
        text(median(&|r| Some(r.io.writes as f64)), 0),
        text(median(&|r| Some(r.run.cpu_seconds)), 2),
    ])
}

/// Bars of the medians, a few programs in each of several charts below each other.
pub fn svg(lines: &[Line], systems: &[String], rounds: u32) -> String {
    let (width, height) = CHART;
    let charts = lines.len().div_ceil(GROUPS);
    let mut svg = format!(
        "<svg style=\"background:#fff\" viewBox=\"0 0 {width} {}\" xmlns=\"http://www.w3.org/2000/svg\">\n",
        charts * height
    );
    for (at, lines) in lines.chunks(GROUPS).enumerate() {
        let series = systems.iter().enumerate().map(|(column, name)| {
            let seconds = lines
                .iter()
                .map(|line| Some(line.cells[column].seconds?.median));
            Series::ours(name, seconds.collect())
        });
        let chart = Chart {
            title: "Programs at parts of their peak".to_owned(),
            unit: format!("seconds, medians of {rounds} rounds"),
            categories: lines
                .iter()
                .map(|line| format!("{} {} %", line.program, line.at_percent))
                .collect(),
            series: series.collect(),
            whole: true,
        };
        let place = format!(
            "<svg y=\"{}\" width=\"{width}\" height=\"{height}\" ",
            at * height
        );
        svg += &chart.svg().replacen("<svg ", &place, 1);
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Report;

    const SYSTEMS: [&str; 3] = ["unlimited", "outpage", "zram"];

    fn reference(program: &'static str) -> Reference {
        Reference {
            program,
            kind: "interpreter",
            size: 1,
            seconds: 9.0,
            checksum: Report::of_output("right", 0.0).checksum,
            peak_bytes: 64 << 20,
            charged_peak_bytes: None,
        }
    }

    fn record(program: &'static str, system: &str, seconds: f64, ending: Ending) -> Record {
        Record {
            program,
            at_percent: 50,
            round: 1,
            system: system.into(),
            load_average: 0.5,
            limit_bytes: (system != "unlimited").then_some(32 << 20),
            given_bytes: None,
            run: Run {
                ending,
                wall_seconds: seconds,
                cpu_seconds: 0.0,
                swap_peak_kib: 0,
                cgroup_peak_bytes: None,
            },
            io: IoCounts::default(),
            zram: (system == "zram").then_some(Seen {
                zram_peak_bytes: 7 << 20,
                together_peak_bytes: 31 << 20,
                held_peak_bytes: 20 << 20,
                slack_bytes: 0,
            }),
            outpage_stats: None,
        }
    }

    fn finished(said: &str) -> Ending {
        Ending::Finished {
            report: Report::of_output(said, 0.0),
        }
    }

    fn measured() -> (Vec<Line>, Vec<Mean>, Vec<Record>) {
        let oom = || Ending::OomKilled { swap_used_kib: 1 };
        let records = vec![
            record("one", "unlimited", 1.0, finished("right")),
            record("one", "outpage", 4.0, finished("right")),
            record("one", "outpage", 0.1, finished("wrong")),
            record("one", "zram", 2.0, finished("right")),
            record("two", "unlimited", 2.0, finished("right")),
            record("two", "outpage", 10.0, finished("right")),
            record("two", "outpage", 120.0, Ending::TimedOut),
            record("two", "zram", 2.0, oom()),
        ];
        let systems = SYSTEMS.map(str::to_owned);
        let lines = summarise(
            &[&reference("one"), &reference("two")],
            &records,
            &systems,
            &[50],
        );
        let means = means(&lines, &systems, &[50]);
        (lines, means, records)
    }

    #[test]
    fn a_run_that_is_too_long_is_a_lower_bound_and_a_wrong_one_has_no_time() {
        let (lines, ..) = measured();
        assert_eq!(
            lines[0].cells[1].to_string(),
            "4.00 [4.00-4.00] 4.0x (1 failed)"
        );
        assert_eq!(lines[1].cells[1].to_string(), "> 120 60.0x");
        assert_eq!(lines[1].cells[2].to_string(), "- (1 OOM)");
    }

    #[test]
    fn means_are_geometric_and_name_the_slowest() {
        let (_, means, _) = measured();
        let outpage = &means[1];
        assert!((outpage.ratio.unwrap() - 240.0_f64.sqrt()).abs() < 1e-9);
        assert!(outpage.at_least && outpage.slowest == Some("two"));
        // Under zram the second program never ended.
        assert_eq!((means[2].programs, means[2].oom_killed), (1, 1));
        assert_eq!(outpage.programs_common, 1);
        assert!((outpage.ratio_common.unwrap() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn tables_and_picture_have_every_system() {
        let (lines, means, records) = measured();
        let systems = SYSTEMS.map(str::to_owned);
        let text = render(&lines, &means, &systems, &records);
        for part in ["> 15.49x", "two 60.0x", "one 50 %, zram", "31.0", "(1 OOM)"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let svg = svg(&lines, &systems, 3);
        for part in ["one 50 %", "zram", "</svg>"] {
            assert!(svg.contains(part), "{part}");
        }
    }
}
