//! `outpage bench events`: what the event log of `outpage trace --events` costs a program that pages.

use std::ffi::OsString;
use std::path::Path;

use serde_json::json;

use super::guard::{Guard, Undo};
use super::launch::{OutpageRun, Spec};
use super::machine::Machine;
use super::pairs::{Pairs, Plan, render};
use super::progress::Steps;
use super::{BenchError, Common, parse_spec, reference, stats_file, verdict};

/// Footprint as a multiple of the limit: every pass pages.
const FOOTPRINT: f64 = 2.0;

/// Options of `outpage bench events`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Pairs of runs, one with and one without the event log
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Workloads, as of `bench kernel`
    #[arg(long, value_delimiter = ',', value_parser = parse_spec, default_value = "sor,random")]
    workloads: Vec<Spec>,
}

/// Runs the pairs, prints the table and writes the JSON.
///
/// # Errors
/// When a run failed or its contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let common = &options.common;
    let machine = Machine::look(&common.swap);
    print!("{}", machine.describe());
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let logs = common
        .swap
        .join(format!("outpage-bench-events-{}", std::process::id()));
    guard.note(&Undo::Remove(logs.clone()))?;
    std::fs::create_dir(&logs)
        .map_err(|error| BenchError::Failed(format!("cannot make {}: {error}", logs.display())))?;
    let outpage = OutpageRun {
        limit_bytes: common.memory,
        swap: &common.swap,
        options: &common.run_args,
        stats: &stats,
    };
    let mib = common.footprint_mib(FOOTPRINT)?;
    let mut steps = Steps::new(options.workloads.len() * (1 + 2 * options.pairs as usize));
    let mut problems = Vec::new();
    let mut results = Vec::new();
    for spec in &options.workloads {
        steps.begin(&format!("{}, first run", spec.label));
        let reference = reference(spec, mib, common.timeout())?;
        let under = outpage.wrap(spec.command(mib)?)?;
        let plan = Plan {
            label: spec.label.clone(),
            ways: ["without events", "with events"],
            commands: [recording(None, &under), recording(Some(&logs), &under)],
            pairs: options.pairs,
            timeout: common.timeout(),
            keep_going: common.keep_going,
        };
        results.push(Pairs::run(&plan, &reference, &mut steps, &mut problems)?);
        if !problems.is_empty() && !common.keep_going {
            break;
        }
    }
    drop(steps);
    if std::fs::read_dir(&logs).is_ok_and(|mut files| files.next().is_none()) {
        problems.push("no run with events left a log: nothing was paged".into());
    }
    print!("{}", render(&results, ["without", "with"]));
    let results = json!({"benchmark": "events", "machine": machine, "limit_bytes": common.memory,
        "run_args": common.run_args, "workloads": results, "problems": problems});
    let written = common.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}

/// `command` with the variable that `outpage trace` sets; empty where there is to be no log. Every log
/// goes under its process's number into `logs`, whose disk must have room for all of them.
fn recording(logs: Option<&Path>, command: &[OsString]) -> Vec<OsString> {
    let mut variable = OsString::from("OUTPAGE_RECORD=");
    if let Some(logs) = logs {
        variable.push(logs.join("log"));
    }
    let mut all = vec!["env".into(), variable];
    all.extend_from_slice(command);
    all
}
