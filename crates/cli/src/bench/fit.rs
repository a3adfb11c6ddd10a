//! `outpage bench fit`: what Outpage costs a program that fits its limit.

use std::ffi::OsString;

use serde_json::json;

use super::guard::Guard;
use super::launch::{OutpageRun, Spec};
use super::machine::Machine;
use super::pairs::{Bench, render};
use super::{BenchError, Common, parse_spec, stats_file, verdict};

use crate::output;

/// Part of the limit that the workloads use: they fit with room for allocator slack.
const FOOTPRINT: f64 = 0.25;

/// Options of `outpage bench fit`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Pairs of runs, one with and one without Outpage
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Workloads, as of `bench kernel`
    #[arg(long, value_delimiter = ',', value_parser = parse_spec, default_value = "alloc,compute")]
    workloads: Vec<Spec>,
}

/// Runs the pairs, prints the table and writes the JSON.
///
/// # Errors
/// When a run failed or its contents were wrong.
pub fn run(options: &Options) -> Result<(), BenchError> {
    let common = &options.common;
    let machine = Machine::look(&common.runs.swap);
    output::print(&machine.describe())?;
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let outpage = OutpageRun {
        limit_bytes: common.memory,
        swap: &common.runs.swap,
        options: &common.runs.run_args,
        stats: &stats,
    };
    let bench = Bench {
        common,
        pairs: options.pairs,
        workloads: &options.workloads,
        footprint: FOOTPRINT,
        ways: ["without Outpage", "with Outpage"],
    };
    let mut problems = Vec::new();
    let commands = |plain: Vec<OsString>| Ok([plain.clone(), outpage.wrap(plain)?]);
    let fits = bench.run(commands, |_| {}, &mut problems)?;
    output::print(&render(&fits, ["without", "with"]))?;
    let results = json!({"benchmark": "fit", "machine": machine, "limit_bytes": common.memory,
        "run_args": common.runs.run_args, "workloads": fits, "problems": problems});
    let written = common.runs.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}
