//! `outpage bench fit`: what Outpage costs a program that fits its limit.

use serde_json::json;

use super::guard::Guard;
use super::launch::{OutpageRun, Spec};
use super::machine::Machine;
use super::pairs::{Pairs, Plan, render};
use super::progress::Steps;
use super::{BenchError, Common, parse_spec, reference, stats_file, verdict};

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
    let machine = Machine::look(&common.swap);
    print!("{}", machine.describe());
    let mut guard = Guard::start()?;
    let stats = stats_file(&mut guard)?;
    let outpage = OutpageRun {
        limit_bytes: common.memory,
        swap: &common.swap,
        options: &common.run_args,
        stats: &stats,
    };
    let mib = common.footprint_mib(FOOTPRINT)?;
    let mut steps = Steps::new(options.workloads.len() * (1 + 2 * options.pairs as usize));
    let mut problems = Vec::new();
    let mut fits = Vec::new();
    for spec in &options.workloads {
        steps.begin(&format!("{}, first run", spec.label));
        let reference = reference(spec, mib, common.timeout())?;
        let plain = spec.command(mib)?;
        let plan = Plan {
            label: spec.label.clone(),
            ways: ["without Outpage", "with Outpage"],
            commands: [plain.clone(), outpage.wrap(plain)?],
            pairs: options.pairs,
            timeout: common.timeout(),
            keep_going: common.keep_going,
        };
        fits.push(Pairs::run(&plan, &reference, &mut steps, &mut problems)?);
        if !problems.is_empty() && !common.keep_going {
            break;
        }
    }
    drop(steps);
    print!("{}", render(&fits, ["without", "with"]));
    let results = json!({"benchmark": "fit", "machine": machine, "limit_bytes": common.memory,
        "run_args": common.run_args, "workloads": fits, "problems": problems});
    let written = common.write_json(&results);
    verdict(&problems).and(guard.finish()).and(written)
}
