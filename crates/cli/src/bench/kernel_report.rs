//! What `outpage bench kernel` prints and stores: medians a phase, ratios, I/O.

use serde::{Deserialize, Serialize};

use super::launch::{Ending, Run};
use super::machine::IoCounts;
use super::summary::{Spread, table};
use crate::workload::Report;

/// The kernel's default of `vm.page-cluster`.
const DEFAULT_PAGE_CLUSTER: u32 = 3;

/// Whose paging a run had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// `outpage run`.
    Outpage,
    /// The kernel's swap at this setting of `vm.page-cluster`.
    Kernel(u32),
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outpage => f.write_str("outpage"),
            Self::Kernel(page_cluster) => write!(f, "page-cluster {page_cluster}"),
        }
    }
}

/// One run as it is stored.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Short name of the workload.
    pub workload: String,
    /// From 1 up.
    pub round: u32,
    /// Whose paging.
    pub side: Side,
    /// Load average of the minute before.
    pub load_average: f64,
    /// `vm.page-cluster` as read before and after the run.
    pub page_cluster: [u32; 2],
    /// What came out.
    #[serde(flatten)]
    pub run: Run,
    /// Disk and swap counters over the run.
    pub io: IoCounts,
    /// What `outpage run --stats` wrote.
    pub outpage_stats: Option<serde_json::Value>,
}

/// A run without a limit.
#[derive(Clone, Debug, Serialize)]
pub struct Reference {
    /// Short name of the workload.
    pub label: String,
    /// Its report.
    pub report: Report,
}

/// One side's times of one phase.
#[derive(Clone, Debug, Serialize)]
pub struct SideTimes {
    /// Whose paging.
    pub side: Side,
    /// Seconds; `None` when no run finished.
    pub seconds: Option<Spread>,
    /// Runs that the OOM killer ended.
    pub oom_killed: usize,
    /// Runs that took longer than allowed.
    pub timed_out: usize,
    /// Runs that failed.
    pub failed: usize,
}

/// One line of the table: a phase of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Short name of the workload.
    pub workload: String,
    /// Name of the phase, or `total`.
    pub phase: String,
    /// Seconds without a limit.
    pub unlimited_seconds: f64,
    /// Outpage first, then the kernel's settings in the order given.
    pub sides: Vec<SideTimes>,
    /// Median of the kernel at its default setting over the median of Outpage.
    pub ratio_default: Option<f64>,
    /// The same against the kernel's best setting.
    pub ratio_best: Option<f64>,
}

/// Medians and ratios of every phase of the workloads that were run.
pub fn summarise(references: &[Reference], records: &[Record], page_clusters: &[u32]) -> Vec<Line> {
    let mut lines = Vec::new();
    let was_run = |reference: &&Reference| {
        records
            .iter()
            .any(|record| record.workload == reference.label)
    };
    for reference in references.iter().filter(was_run) {
        for phase in reference
            .report
            .phases
            .iter()
            .chain([&reference.report.total])
        {
            let mut sides = vec![side_times(
                &reference.label,
                &phase.name,
                Side::Outpage,
                records,
            )];
            sides.extend(
                page_clusters
                    .iter()
                    .map(|&n| side_times(&reference.label, &phase.name, Side::Kernel(n), records)),
            );
            let ours = sides[0].seconds.map(|spread| spread.median);
            let kernel = |wanted: Option<u32>| {
                let matching = sides[1..]
                    .iter()
                    .filter(|side| wanted.is_none_or(|n| side.side == Side::Kernel(n)));
                let medians = matching.filter_map(|side| Some(side.seconds?.median));
                Some(medians.min_by(f64::total_cmp)? / ours?)
            };
            lines.push(Line {
                workload: reference.label.clone(),
                phase: phase.name.clone(),
                unlimited_seconds: phase.seconds,
                ratio_default: kernel(Some(DEFAULT_PAGE_CLUSTER)),
                ratio_best: kernel(None),
                sides,
            });
        }
    }
    lines
}

fn of<'a>(
    workload: &'a str,
    side: Side,
    records: &'a [Record],
) -> impl Iterator<Item = &'a Record> {
    records
        .iter()
        .filter(move |record| record.workload == workload && record.side == side)
}

fn side_times(workload: &str, phase: &str, side: Side, records: &[Record]) -> SideTimes {
    let mut seconds = Vec::new();
    let (mut oom_killed, mut timed_out, mut failed) = (0, 0, 0);
    for record in of(workload, side, records) {
        match &record.run.ending {
            Ending::Finished { report } => {
                let mut phases = report.phases.iter().chain([&report.total]);
                seconds.extend(
                    phases
                        .find(|found| found.name == phase)
                        .map(|found| found.seconds),
                );
            }
            Ending::OomKilled { .. } => oom_killed += 1,
            Ending::TimedOut => timed_out += 1,
            Ending::Failed { .. } => failed += 1,
        }
    }
    SideTimes {
        side,
        seconds: Spread::of(&seconds),
        oom_killed,
        timed_out,
        failed,
    }
}

impl std::fmt::Display for SideTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.seconds {
            Some(seconds) => write!(f, "{seconds}")?,
            None => write!(f, "-")?,
        }
        let endings = [
            (self.oom_killed, "OOM"),
            (self.timed_out, "too long"),
            (self.failed, "failed"),
        ];
        for (count, what) in endings.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, " ({count} {what})")?;
        }
        Ok(())
    }
}

/// The tables for people: times, then I/O.
pub fn render(lines: &[Line], records: &[Record], page_clusters: &[u32]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let sides: Vec<Side> = std::iter::once(Side::Outpage)
        .chain(page_clusters.iter().map(|&n| Side::Kernel(n)))
        .collect();
    let ratio =
        |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x"));
    let mut head = vec!["phase".to_owned(), "unlimited".to_owned()];
    head.extend(sides.iter().map(Side::to_string));
    head.extend([format!("vs {DEFAULT_PAGE_CLUSTER}"), "vs best".to_owned()]);
    let mut rows = vec![head];
    for line in lines {
        let mut row = vec![
            format!("{} {}", line.workload, line.phase),
            format!("{:.2}", line.unlimited_seconds),
        ];
        row.extend(line.sides.iter().map(SideTimes::to_string));
        row.extend([ratio(line.ratio_default), ratio(line.ratio_best)]);
        rows.push(row);
    }
    let mut workloads: Vec<&str> = lines.iter().map(|line| line.workload.as_str()).collect();
    workloads.dedup();
    let mut io: Vec<Vec<String>> =
        vec!["whole run, medians|reads|KiB each|writes|KiB each|swap-ins|swap-outs|CPU s|elapsed s|peak MiB|swap MiB"
            .split('|')
            .map(str::to_owned)
            .collect()];
    for workload in workloads {
        io.extend(
            sides
                .iter()
                .filter_map(|&side| io_row(workload, side, records)),
        );
    }
    format!(
        "\nElapsed seconds: median [least-most]. \"vs\": how many times as fast Outpage is.\n{}\n{}\n{}",
        table(&rows),
        table(&io),
        data_lines(records) + &ending_lines(records)
    )
}

/// How far the contents of the workloads compress, a line for each that has a choice.
fn data_lines(records: &[Record]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for record in records {
        if let Ending::Finished { report } = &record.run.ending
            && let Some(data) = &report.data
        {
            let line = format!("{}: data {}\n", record.workload, data.as_str());
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines.concat()
}

/// The runs that did not finish, one line each.
fn ending_lines(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        if !matches!(record.run.ending, Ending::Finished { .. }) {
            let ending = super::describe(&record.run.ending);
            text += &format!(
                "{}, {}, round {}: {ending}\n",
                record.workload, record.side, record.round
            );
        }
    }
    text
}

fn io_row(workload: &str, side: Side, records: &[Record]) -> Option<Vec<String>> {
    let median = |value: &dyn Fn(&Record) -> f64| {
        let values: Vec<f64> = of(workload, side, records).map(value).collect();
        Spread::of(&values).map(|spread| spread.median)
    };
    let each_kib = |bytes: u64, requests: u64| bytes as f64 / requests.max(1) as f64 / 1024.0;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let whole = |value: f64| format!("{value:.0}");
    Some(vec![
        format!("{workload} {side}"),
        whole(median(&|r| r.io.reads as f64)?),
        whole(median(&|r| each_kib(r.io.read_bytes, r.io.reads))?),
        whole(median(&|r| r.io.writes as f64)?),
        whole(median(&|r| each_kib(r.io.write_bytes, r.io.writes))?),
        whole(median(&|r| r.io.pswpin as f64)?),
        whole(median(&|r| r.io.pswpout as f64)?),
        format!("{:.2}", median(&|r| r.run.cpu_seconds)?),
        format!("{:.2}", median(&|r| r.run.wall_seconds)?),
        format!(
            "{:.1}",
            median(&|r| mib(r.run.cgroup_peak_bytes.unwrap_or(0)))?
        ),
        whole(median(&|r| mib(r.run.swap_peak_kib << 10))?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::launch::Run;
    use crate::bench::machine::IoCounts;
    use crate::workload::Phase;

    fn report(seconds: f64) -> Report {
        let phase = |name: &str| Phase {
            name: name.into(),
            seconds,
            user_seconds: 0.0,
            system_seconds: 0.0,
            minor_faults: 0,
            major_faults: 0,
        };
        Report {
            workload: "sor".into(),
            mib: 1,
            data: None,
            phases: vec![phase("sweeps")],
            checksum: "0".into(),
            verified: 0,
            total: phase("total"),
            latencies: None,
            untimed_reads: 0,
        }
    }

    fn record(side: Side, ending: Ending) -> Record {
        let run = Run {
            ending,
            wall_seconds: 0.0,
            cpu_seconds: 0.0,
            swap_peak_kib: 0,
            cgroup_peak_bytes: None,
        };
        Record {
            workload: "sor".into(),
            round: 1,
            side,
            load_average: 0.0,
            page_cluster: [3; 2],
            run,
            io: IoCounts::default(),
            outpage_stats: None,
        }
    }

    #[test]
    fn ratios_are_against_the_default_and_the_best_setting() {
        let finished = |side, seconds| {
            record(
                side,
                Ending::Finished {
                    report: report(seconds),
                },
            )
        };
        let records = [
            finished(Side::Outpage, 2.0),
            finished(Side::Kernel(3), 8.0),
            finished(Side::Kernel(5), 6.0),
            finished(Side::Kernel(0), 30.0),
            record(
                Side::Kernel(3),
                Ending::OomKilled {
                    swap_used_kib: 2048,
                },
            ),
        ];
        let reference = Reference {
            label: "sor".into(),
            report: report(0.5),
        };
        let lines = summarise(&[reference], &records, &[0, 3, 5]);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0].phase.as_str(), lines[1].phase.as_str()),
            ("sweeps", "total")
        );
        assert_eq!(
            (lines[0].ratio_default, lines[0].ratio_best),
            (Some(4.0), Some(3.0))
        );
        assert_eq!(lines[0].sides[2].to_string(), "8.00 [8.00-8.00] (1 OOM)");
        let text = render(&lines, &records, &[0, 3, 5]);
        assert!(text.contains("4.00x") && text.contains("3.00x"), "{text}");
        assert!(text.contains("OOM killer (2 MiB of swap in use)"), "{text}");
    }

    #[test]
    fn no_ratio_without_both_sides() {
        let reference = Reference {
            label: "sor".into(),
            report: report(0.5),
        };
        let records = [record(
            Side::Kernel(3),
            Ending::Finished {
                report: report(1.0),
            },
        )];
        let lines = summarise(&[reference], &records, &[3]);
        assert_eq!((lines[0].ratio_default, lines[0].ratio_best), (None, None));
        assert!(lines[0].sides[0].seconds.is_none());
    }
}
