//! `outpage bench pageout`: the page-out policies on the same workloads, by write requests.

use outpage_engine::config::{parse_chunk, parse_pageout};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::guard::Guard;
use super::launch::{Ending, OutpageRun, Spec, launch};
use super::machine::Machine;
use super::progress::Steps;
use super::summary::{Spread, table};
use super::{BenchError, Common, parse_spec, problem, read_stats, reference, stats_file, verdict};

use crate::output;

/// The policy that the papers compare with.
const BASELINE: &str = "bsd";

/// Options of `outpage bench pageout`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Memory that the workloads touch, in limits
    #[arg(long, value_name = "RATIO", default_value_t = 2.0)]
    footprint: f64,
    /// Runs of each workload with each policy
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Page-out policies, as of `outpage run --pageout`
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = parse_pageout,
        default_value = "single,bsd,moc,mclustering,linux"
    )]
    policies: Vec<&'static str>,
    /// Pages in the page-out buffer
    #[arg(long, value_name = "PAGES", default_value_t = 16, value_parser = parse_chunk)]
    chunk: u32,
    /// Workloads, as of `bench kernel`
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = parse_spec,
        default_value = "moc1,moc2,moc3,moc4,moc5,moc6,moc7,moc8,moc9,moc10,moc11,moc12,moc13,moc14,moc15,moc16,sor,lu"
    )]
    workloads: Vec<Spec>,
}

/// The counters of `outpage run --stats` that this comparison needs; pages and requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Counters {
    page_ins: u64,
    page_outs: u64,
    page_in_reads: u64,
    page_out_writes: u64,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
struct Record {
    workload: String,
    policy: String,
    round: u32,
    seconds: f64,
    counters: Counters,
    write_histogram: serde_json::Value,
}

/// Runs the comparison, prints the table and writes the JSON.
///
/// # Errors
/// When a run failed, wrote no counters, or its contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let machine = Machine::look(&options.common.runs.swap);
    output::print(&machine.describe())?;
    let mib = options.common.footprint_mib(options.footprint)?;
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let runs = options.workloads.len() * (1 + options.policies.len() * options.rounds as usize);
    let mut steps = Steps::new(runs);
    let (mut records, mut problems) = (Vec::new(), Vec::new());
    'all: for spec in &options.workloads {
        steps.begin(&format!("{} without a limit", spec.label));
        let reference = reference(spec, mib, options.common.runs.timeout())?;
        for round in 1..=options.rounds {
            for policy in &options.policies {
                steps.begin(&format!(
                    "round {round} of {}: {}, {policy}",
                    options.rounds, spec.label
                ));
                match one(options, spec, policy, mib, &stats, &reference)? {
                    Ok(record) => records.push(Record { round, ..record }),
                    Err(wrong) => {
                        problems.push(format!("{}, {policy}, round {round}: {wrong}", spec.label))
                    }
                }
                if !problems.is_empty() && !options.common.runs.keep_going {
                    break 'all;
                }
            }
        }
    }
    drop(steps);
    output::print(&render(options, &records))?;
    let results = json!({"benchmark": "pageout", "machine": machine, "limit_bytes": options.common.memory,
        "footprint_mib": mib, "chunk": options.chunk, "run_args": options.common.runs.run_args,
        "runs": records, "problems": problems});
    let written = options.common.runs.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}

/// One run: what it counted, or what was wrong with it.
fn one(
    options: &Options,
    spec: &Spec,
    policy: &str,
    mib: u32,
    stats: &std::path::Path,
    reference: &crate::workload::Report,
) -> Result<Result<Record, String>, BenchError> {
    let _ = std::fs::remove_file(stats);
    let mut run_options = vec![
        format!("--pageout={policy}"),
        format!("--chunk={}", options.chunk),
    ];
    run_options.extend(options.common.runs.run_args.iter().cloned());
    let outpage = OutpageRun {
        limit_bytes: options.common.memory,
        swap: &options.common.runs.swap,
        options: &run_options,
        stats,
    };
    let run = launch(
        &outpage.wrap(spec.command(mib)?)?,
        None,
        options.common.runs.timeout(),
    )?;
    if let Some(wrong) = problem(&run.ending, reference) {
        return Ok(Err(wrong));
    }
    let seconds = match &run.ending {
        Ending::Finished { report } => report.total.seconds,
        _ => run.wall_seconds,
    };
    let Some(stats) = read_stats(stats) else {
        return Ok(Err("outpage run --stats wrote no JSON".into()));
    };
    Ok(match serde_json::from_value::<Counters>(stats.clone()) {
        Ok(counters) => Ok(Record {
            workload: spec.label.clone(),
            policy: policy.to_owned(),
            round: 0,
            seconds,
            counters,
            write_histogram: stats.get("write_histogram").cloned().unwrap_or_default(),
        }),
        Err(error) => Err(format!("the counters of outpage run --stats: {error}")),
    })
}

/// Median of a value over the rounds of a workload with a policy.
fn median(
    records: &[Record],
    workload: &str,
    policy: &str,
    value: fn(&Record) -> f64,
) -> Option<f64> {
    let of = records
        .iter()
        .filter(|record| record.workload == workload && record.policy == policy);
    Spread::of(&of.map(value).collect::<Vec<f64>>()).map(|spread| spread.median)
}

fn render(options: &Options, records: &[Record]) -> String {
    let head = [
        "workload, policy",
        "writes",
        "pages/write",
        "pages out",
        "pages in",
        "reads",
        "seconds",
        "writes vs bsd",
        "pages in vs bsd",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for spec in &options.workloads {
        for policy in &options.policies {
            rows.extend(row(records, &spec.label, policy));
        }
    }
    format!(
        "\nMedians over {} rounds, page-out buffer of {} pages.\n{}",
        options.rounds,
        options.chunk,
        table(&rows)
    )
}

fn row(records: &[Record], workload: &str, policy: &str) -> Option<Vec<String>> {
    let of = |value| median(records, workload, policy, value);
    let against = |value| {
        let ratio = median(records, workload, policy, value)?
            / median(records, workload, BASELINE, value)?.max(1.0);
        Some(format!("{:+.1} %", (ratio - 1.0) * 100.0))
    };
    let writes = |record: &Record| record.counters.page_out_writes as f64;
    let page_ins = |record: &Record| record.counters.page_ins as f64;
    let page_outs = of(|record| record.counters.page_outs as f64)?;
    Some(vec![
        format!("{workload} {policy}"),
        format!("{:.0}", of(writes)?),
        format!("{:.2}", page_outs / of(writes)?.max(1.0)),
        format!("{page_outs:.0}"),
        format!("{:.0}", of(page_ins)?),
        format!("{:.0}", of(|record| record.counters.page_in_reads as f64)?),
        format!("{:.2}", of(|record| record.seconds)?),
        against(writes).unwrap_or_else(|| "-".into()),
        against(page_ins).unwrap_or_else(|| "-".into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(policy: &str, writes: u64) -> Record {
        let counters = Counters {
            page_ins: 100,
            page_outs: 1600,
            page_in_reads: 10,
            page_out_writes: writes,
        };
        let histogram = serde_json::Value::Null;
        let (workload, policy) = ("moc1".into(), policy.into());
        Record {
            workload,
            policy,
            round: 1,
            seconds: 1.0,
            counters,
            write_histogram: histogram,
        }
    }

    #[test]
    fn a_row_compares_with_bsd() {
        let records = [
            record("bsd", 1600),
            record("moc", 100),
            record("moc", 300),
            record("moc", 200),
        ];
        let row = row(&records, "moc1", "moc").unwrap();
        assert_eq!(
            row,
            [
                "moc1 moc", "200", "8.00", "1600", "100", "10", "1.00", "-87.5 %", "+0.0 %"
            ]
        );
        assert!(super::row(&records, "moc1", "linux").is_none());
    }
}
